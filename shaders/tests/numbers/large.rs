//! Buffers that are larger than one binding: the device is opened with bindings of 16 KiB at most, and every kind of
//! kernel runs on several times that, in pieces. wgpu itself refuses a binding that is larger.

use super::harness::*;
use smallvec::smallvec;
use std::sync::OnceLock;
use tallow_graph::{
    Backend, BinaryOp, DType, Inst, Kernel, Scalar,
    kernel::{
        Activations, AttentionKernel, ContractKernel, ContractPart, Distribution, GatherKernel, Layout, MapKernel,
        MapPart, Operand, Prologue, RandomKernel, RightUnit, RowClass, RowKernel, RowOp,
    },
    reference::Reference,
};
use tallow_wgpu::{Options, Tier, WgpuBackend};

const LIMIT: u64 = 16 << 10;

/// Devices with small bindings: at the highest tier, and without f16, where an output's words are shared.
fn devices() -> &'static [WgpuBackend] {
    static DEVICES: OnceLock<Vec<WgpuBackend>> = OnceLock::new();
    DEVICES.get_or_init(open)
}

/// Such devices, new ones.
fn open() -> Vec<WgpuBackend> {
    let Some(index) = tallow_wgpu::adapters_blocking().len().checked_sub(1) else {
        eprintln!("skipped: wgpu: no adapter");
        return Vec::new();
    };
    [Tier::T4, Tier::T0]
        .map(|tier| {
            let options = Options { tier, max_binding: Some(LIMIT), ..Options::default() };
            WgpuBackend::open_blocking(index, options).unwrap()
        })
        .into()
}

#[allow(clippy::too_many_arguments, reason = "one description of a run")]
fn large(
    name: &str,
    kernel: &Kernel,
    inputs: &[Input],
    outputs: &[(DType, usize)],
    words: &[i64],
    scalars: &[Scalar],
    tolerance: Tolerance,
    pieces: u64,
) {
    if devices().is_empty() {
        return;
    }
    let before: Vec<Vec<u8>> = outputs.iter().map(|&(dtype, n)| vec![0x3c; n * dtype.size_in_bytes()]).collect();
    let want = run(&Reference::default(), 0, kernel, inputs, &before, words, scalars).unwrap();
    for device in devices() {
        let count = device.counters().dispatches;
        check_against(device, name, kernel, inputs, outputs, words, scalars, &want, tolerance);
        let runs = device.lower(kernel, words).len() as u64;
        let made = (device.counters().dispatches - count) / runs;
        assert!(made >= pieces, "{name}: {made} pieces");
        if std::env::var_os("TALLOW_TIMES").is_some() {
            eprintln!("{name}: {made} pieces");
        }
    }
}

/// The error of a step that cannot be cut.
fn refused(name: &str, kernel: &Kernel, inputs: &[Input], outputs: &[(DType, usize)], words: &[i64]) {
    for device in devices() {
        let before: Vec<Vec<u8>> = outputs.iter().map(|&(dtype, n)| vec![0; n * dtype.size_in_bytes()]).collect();
        let id = device.lower(kernel, words)[0].id;
        let error = run(device, id, kernel, inputs, &before, words, &[Scalar::F(1.0), Scalar::F(0.0)]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("max_storage_buffer_binding_size") && message.contains("16384"), "{name}: {message}");
        // The device is unharmed.
        let other = device.allocate(64).unwrap();
        device.write(&other, 0, &[7; 64]).unwrap();
        assert_eq!(pollster::block_on(device.read(&other, 0..64)).unwrap(), [7; 64]);
    }
}

fn map(part: MapPart) -> Kernel {
    Kernel::Map(MapKernel { parts: smallvec![part] })
}

#[test]
fn maps() {
    let mut noise = Noise(100);
    // Contiguous, of every size of element; odd sizes, offsets, vectors.
    for dtype in [DType::F32, DType::F16, DType::U8, DType::I64] {
        for (n, vector, offset) in [(65_536i64, true, 0i64), (65_537, false, 3)] {
            let e = expr(&[(Inst::Load(0), dtype), (Inst::Load(1), dtype), (Inst::Binary(BinaryOp::Add, 0, 1), dtype)]);
            let part = MapPart {
                rank: 1,
                vector,
                operands: smallvec![operand(0, dtype, Layout::Linear), operand(1, dtype, Layout::Scalar)],
                expr: e,
                output: Layout::Linear,
            };
            let inputs =
                [Input::Plain(noise.elements(dtype, (n + offset) as usize)), Input::Plain(noise.elements(dtype, 8))];
            let words = [n, 0, 1, offset, 1, 4, 0];
            let outputs = [(dtype, n as usize)];
            large(&format!("map {dtype} {n}"), &map(part), &inputs, &outputs, &words, &[], relative(1e-3, 1e-3), 4);
        }
    }
    // Transposed: no cut of one axis alone would do. With a position, which has no memory.
    let (rows, cols) = (160i64, 96i64);
    for dtype in [DType::F32, DType::BF16] {
        let e = expr(&[
            (Inst::Load(0), dtype),
            (Inst::Load(1), dtype),
            (Inst::Position(2), dtype),
            (Inst::Binary(BinaryOp::Mul, 0, 1), dtype),
            (Inst::Binary(BinaryOp::Add, 3, 2), dtype),
        ]);
        let part = MapPart {
            rank: 2,
            vector: false,
            operands: smallvec![
                operand(0, dtype, Layout::Strided),
                operand(0, dtype, Layout::Linear),
                Operand { input: None, dtype, layout: Layout::Strided },
            ],
            expr: e,
            output: Layout::Linear,
        };
        let inputs = [Input::Plain(noise.elements(dtype, (rows * cols) as usize))];
        // The position counts down along the columns.
        let words = [rows, cols, 0, cols, 1, 0, 1, rows, 0, cols, 1, 100, 1, -1];
        let outputs = [(dtype, (rows * cols) as usize)];
        let tolerance = relative(1e-2, 1e-3);
        large(&format!("map transposed {dtype}"), &map(part), &inputs, &outputs, &words, &[], tolerance, 2);
    }
    // Flipped, into a window of what was there; two parts of one step.
    let n = 9000i64;
    let part = |input: u8| MapPart {
        rank: 1,
        vector: false,
        operands: smallvec![operand(input, DType::F32, Layout::Strided)],
        expr: expr(&[
            (Inst::Load(0), DType::F32),
            (Inst::Param(0), DType::F32),
            (Inst::Binary(BinaryOp::Mul, 0, 1), DType::F32),
        ]),
        output: Layout::Strided,
    };
    let kernel = Kernel::Map(MapKernel { parts: smallvec![part(1), part(0)] });
    let inputs =
        [Input::Plain(noise.elements(DType::F32, n as usize)), Input::Plain(noise.elements(DType::F32, n as usize))];
    let words = [n, 5, 2, n - 1, -1, n, 0, 1, 0, 1];
    let outputs = [(DType::F32, 2 * n as usize + 9), (DType::F32, n as usize)];
    large("map in parts", &kernel, &inputs, &outputs, &words, &[Scalar::F(1.5)], relative(1e-6, 0.0), 6);
}

#[test]
fn rows() {
    let mut noise = Noise(101);
    for dtype in [DType::F32, DType::F16, DType::U8] {
        for op in [RowOp::Sum, RowOp::ArgMax, RowOp::Softmax, RowOp::LayerNorm] {
            if !dtype.is_float() && !op.reduces() {
                continue;
            }
            let accumulator = if op == RowOp::ArgMax { DType::U32 } else { dtype };
            let kernel = Kernel::Row(RowKernel {
                op,
                outer: 2,
                inner: 1,
                operands: smallvec![operand(0, dtype, Layout::Strided)],
                before: expr(&[(Inst::Load(0), dtype)]),
                after: expr(&[(Inst::Acc(0), accumulator)]),
                accumulator,
            });
            // [a, b, length], a and b walked the other way round.
            let (a, b, length) = (9i64, 11i64, 401i64);
            let words = [a, b, length, 0, length, a * length, 1];
            let inputs = [Input::Plain(noise.elements(dtype, (a * b * length) as usize))];
            let n = if op.reduces() { a * b } else { a * b * length } as usize;
            let stored = if op == RowOp::ArgMax { DType::U32 } else { dtype };
            let tolerance = if dtype == DType::F32 {
                scaled(1e-5)
            } else {
                Tolerance { relative: 2e-3, absolute: 1e-3, scaled: 0.0 }
            };
            large(
                &format!("{op:?} {dtype}"),
                &kernel,
                &inputs,
                &[(stored, n)],
                &words,
                &[Scalar::F(1e-5)],
                tolerance,
                3,
            );
        }
    }
    // Many results: the output is too large as well.
    let (rows, length) = (20_000i64, 3i64);
    let kernel = Kernel::Row(RowKernel {
        op: RowOp::Max,
        outer: 1,
        inner: 1,
        operands: smallvec![operand(0, DType::F32, Layout::Strided)],
        before: expr(&[(Inst::Load(0), DType::F32)]),
        after: expr(&[(Inst::Acc(0), DType::F32), (Inst::Cast(0), DType::F16)]),
        accumulator: DType::F32,
    });
    let inputs = [Input::Plain(noise.elements(DType::F32, (rows * length) as usize))];
    let words = [rows, length, 0, length, 1];
    large("many rows", &kernel, &inputs, &[(DType::F16, rows as usize)], &words, &[], relative(1e-3, 1e-3), 16);
    // Rows that are longer than a binding, and the sum over a leading axis: partial results, then all.
    for op in [RowOp::Sum, RowOp::Mean, RowOp::Max, RowOp::Min, RowOp::ArgMax, RowOp::Softmax] {
        for (name, sizes, strides, n) in [
            ("long", [2i64, 40_001], [40_001i64, 1], 80_002usize),
            ("leading", [7, 1111], [1, 7], 7777),
            ("leading, wide", [512, 256], [1, 512], 131_072),
        ] {
            let whole = matches!(op, RowOp::ArgMax | RowOp::Softmax);
            let accumulator = if op == RowOp::ArgMax { DType::U32 } else { DType::F32 };
            let after = if whole {
                expr(&[(Inst::Acc(0), accumulator)])
            } else {
                expr(&[
                    (Inst::Acc(0), DType::F32),
                    (Inst::Load(1), DType::F32),
                    (Inst::Binary(BinaryOp::Mul, 0, 1), DType::F32),
                    (Inst::Param(0), DType::F32),
                    (Inst::Binary(BinaryOp::Add, 2, 3), DType::F32),
                ])
            };
            let kernel = Kernel::Row(RowKernel {
                op,
                outer: 1,
                inner: 1,
                operands: smallvec![operand(0, DType::F32, Layout::Strided), operand(1, DType::F32, Layout::Strided)],
                before: expr(&[(Inst::Load(0), DType::F32)]),
                after,
                accumulator,
            });
            let inputs = [Input::Plain(noise.elements(DType::F32, n)), Input::Plain(noise.elements(DType::F32, 600))];
            let words = [sizes[0], sizes[1], 0, strides[0], strides[1], 2, 1, 0];
            let results = if op == RowOp::Softmax { n } else { sizes[0] as usize };
            let outputs = [(accumulator, results)];
            let name = format!("{op:?} {name}");
            if whole {
                refused(&name, &kernel, &inputs, &outputs, &words);
            } else {
                large(&name, &kernel, &inputs, &outputs, &words, &[Scalar::F(0.25)], scaled(1e-5), 3);
            }
        }
    }
}

struct Product {
    left: DType,
    right: DType,
    unit: RightUnit,
    m: i64,
    k: i64,
    n: i64,
    batch: i64,
    paired: bool,
    norm: bool,
    output: DType,
    pieces: u64,
}

const PRODUCT: Product = Product {
    left: DType::F32,
    right: DType::F32,
    unit: RightUnit::K,
    m: 1,
    k: 96,
    n: 300,
    batch: 1,
    paired: false,
    norm: false,
    output: DType::F32,
    pieces: 2,
};

fn product(noise: &mut Noise, p: &Product) -> (Kernel, Vec<Input>, Vec<i64>) {
    let Product { left, right, unit, m, k, n, batch, paired, norm, output, .. } = *p;
    let columns = if paired { 2 * n } else { n };
    let mut code = vec![(Inst::Acc(0), DType::F32)];
    if paired {
        code.push((Inst::Acc(1), DType::F32));
        code.push((Inst::Binary(BinaryOp::Mul, 0, 1), DType::F32));
    }
    let at = code.len() as u16 - 1;
    code.push((Inst::Load(0), DType::F32));
    code.push((Inst::Binary(BinaryOp::Add, at, at + 1), output));
    let kernel = Kernel::Contract(ContractKernel {
        batch: 1,
        left: (0, left),
        left_rows: true,
        rows: RowClass::of(m as usize),
        vector: k % 4 == 0 && (unit == RightUnit::K || columns % 4 == 0),
        prologue: norm.then_some(Prologue { op: RowOp::RmsNorm, weight: Some((3, DType::F32)), bias: None }),
        activations: Activations::F32,
        parts: smallvec![ContractPart {
            right: (1, right),
            right_unit: unit,
            paired,
            operands: smallvec![operand(2, DType::F32, Layout::Strided)],
            epilogue: expr(&code),
        }],
    });
    let mut words = vec![batch, m, k, 0, m * k, k, 1];
    if norm {
        words.extend([2, 0]);
    }
    let quantized = right.is_quantized();
    words.extend([n, i64::from(quantized), if quantized || batch == 1 { 0 } else { k * columns }]);
    words.extend(if unit == RightUnit::K { [1, k] } else { [columns, 1] });
    words.extend([0, m * n, n, 1]);
    let mut inputs = vec![
        Input::Plain(noise.elements(left, (batch * m * k) as usize)),
        if quantized {
            Input::Packed(right, k as usize, noise.blocks(right, ((columns + 1) * k) as usize))
        } else {
            Input::Plain(noise.elements(right, (batch * k * columns) as usize))
        },
        Input::Plain(noise.elements(DType::F32, (batch * m * n) as usize)),
    ];
    if norm {
        inputs.push(Input::Plain(noise.elements(DType::F32, k as usize + 2)));
    }
    (kernel, inputs, words)
}

#[test]
fn products() {
    let mut noise = Noise(102);
    for case in [
        // A matrix-vector product with a large weight: the output layer of a decoder.
        Product { pieces: 8, ..PRODUCT },
        Product { right: DType::F16, k: 90, n: 301, norm: true, pieces: 4, ..PRODUCT },
        Product { right: DType::Q8_0, pieces: 2, ..PRODUCT },
        Product { right: DType::Q4_0, n: 1001, norm: true, output: DType::F16, pieces: 4, ..PRODUCT },
        // Few rows and many: the output has rows of its own length.
        Product { m: 5, n: 701, right: DType::BF16, output: DType::F16, pieces: 8, ..PRODUCT },
        Product { m: 70, n: 130, right: DType::Q8_0, output: DType::BF16, pieces: 2, ..PRODUCT },
        Product { m: 300, n: 90, pieces: 8, ..PRODUCT },
        Product { m: 90, k: 40, n: 64, unit: RightUnit::N, left: DType::F16, pieces: 2, ..PRODUCT },
        // Batches, and pairs whose halves lie far apart but in one binding.
        Product { m: 33, k: 36, n: 20, batch: 7, pieces: 3, ..PRODUCT },
        Product { m: 3, k: 32, n: 80, batch: 2, paired: true, pieces: 2, ..PRODUCT },
        Product { right: DType::Q8_0, k: 64, n: 130, paired: true, norm: true, pieces: 2, ..PRODUCT },
    ] {
        let (kernel, inputs, words) = product(&mut noise, &case);
        let name = format!("{}x{}x{} {} {:?}", case.m, case.k, case.n, case.right, case.unit);
        let outputs = [(case.output, (case.batch * case.m * case.n) as usize)];
        let error = match case.output {
            DType::F32 => 5e-6,
            _ => 1e-2,
        };
        large(&name, &kernel, &inputs, &outputs, &words, &[Scalar::F(1e-5)], scaled(error), case.pieces);
    }
    // One row of the weight is too long.
    let case = Product { k: 6000, n: 3, ..PRODUCT };
    let (kernel, inputs, words) = product(&mut noise, &case);
    refused("a long row", &kernel, &inputs, &[(DType::F32, 3)], &words);
}

#[test]
fn gathers() {
    let mut noise = Noise(103);
    // Ids from all over: each window of rows finds its own.
    let list: Vec<i64> = (0..700).map(|i| (i * 37 + 5) % 300).collect();
    let ids = |list: &[i64]| Input::Plain(list.iter().flat_map(|&id| (id as u32).to_le_bytes()).collect());
    for dtype in [DType::F32, DType::F16, DType::U8, DType::I64] {
        for (outer, inner, count) in [(1i64, 96i64, 3usize), (1, 51, 700), (2, 32, 64)] {
            let kernel = Kernel::Gather(GatherKernel { source: dtype, ids: DType::U32, output: dtype });
            let stride = inner + 1;
            let words = [outer, count as i64, 300, inner, 1, 300 * stride, stride, 0, 1];
            let inputs =
                [Input::Plain(noise.elements(dtype, (outer * 300 * stride + 1) as usize)), ids(&list[..count])];
            let n = outer as usize * count * inner as usize;
            large(&format!("gather {dtype} {inner} x {count}"), &kernel, &inputs, &[(dtype, n)], &words, &[], EXACT, 1);
        }
    }
    for dtype in [DType::Q8_0, DType::Q4_0] {
        let kernel = Kernel::Gather(GatherKernel { source: dtype, ids: DType::U32, output: DType::F32 });
        let cols = 96i64;
        let words = [1, 50, 600, cols, cols, 0, cols, 0, 1];
        let list: Vec<i64> = (0..50).map(|i| (i * 137 + 599) % 600).collect();
        let inputs = [Input::Packed(dtype, cols as usize, noise.blocks(dtype, 601 * cols as usize)), ids(&list)];
        let n = 50 * cols as usize;
        large(&format!("gather {dtype}"), &kernel, &inputs, &[(DType::F32, n)], &words, &[], relative(1e-6, 1e-7), 3);
    }
    // A bad id is told once, by its number. On devices of its own: a GPU's fault goes to whoever reads next.
    for device in &open() {
        let kernel = Kernel::Gather(GatherKernel { source: DType::F32, ids: DType::U32, output: DType::F32 });
        let words = [1, 3, 300, 96, 0, 0, 96, 0, 1];
        let inputs = [Input::Plain(noise.elements(DType::F32, 300 * 96)), ids(&[299, 300, 0])];
        let error = run(device, 0, &kernel, &inputs, &[vec![1; 3 * 96 * 4]], &words, &[]).unwrap_err();
        assert!(error.to_string().contains("300"), "{error}");
    }
    let kernel = Kernel::Gather(GatherKernel { source: DType::F32, ids: DType::U32, output: DType::F32 });
    let words = [1, 1, 2, 5000, 0, 0, 5000, 0, 1];
    let inputs = [Input::Plain(noise.elements(DType::F32, 10_000)), ids(&[1])];
    refused("a long row", &kernel, &inputs, &[(DType::F32, 5000)], &words);
}

#[test]
fn attention() {
    let mut noise = Noise(104);
    let (heads, kv_heads, width) = (6i64, 3i64, 32i64);
    for (queries, keys, dtype, kv_dtype) in
        [(1i64, 100i64, DType::F32, DType::F32), (70, 100, DType::F32, DType::F16), (70, 70, DType::F16, DType::F16)]
    {
        for mask in [false, true] {
            let kernel = Kernel::Attention(AttentionKernel {
                dtype,
                kv_dtype,
                causal: true,
                window: !mask,
                softcap: false,
                mask,
                rows: RowClass::of(queries as usize),
            });
            let batch = 2;
            let mut words = vec![batch, queries, keys, heads, kv_heads, width, width, keys - queries, 60];
            words.extend([0, queries * heads * width, heads * width, width]);
            // The cache's layout: heads outside.
            words.extend([0, keys * kv_heads * width, width, keys * width]);
            words.extend([0, keys * kv_heads * width, width, keys * width]);
            if mask {
                words.extend([0, 0, queries * keys, keys, 1]);
            }
            let mut inputs = vec![
                Input::Plain(noise.elements(dtype, (batch * queries * heads * width) as usize)),
                Input::Plain(noise.elements(kv_dtype, (batch * keys * kv_heads * width) as usize)),
                Input::Plain(noise.elements(kv_dtype, (batch * keys * kv_heads * width) as usize)),
            ];
            if mask {
                inputs.push(Input::Plain(noise.elements(DType::F32, (heads * queries * keys) as usize)));
            }
            let n = (batch * queries * heads * width) as usize;
            let error = if dtype == DType::F32 { 1e-5 } else { 5e-3 };
            let name = format!("attention {queries} {keys} {dtype} {kv_dtype} {mask}");
            let scalars = [Scalar::F(0.2), Scalar::F(0.0)];
            large(&name, &kernel, &inputs, &[(dtype, n)], &words, &scalars, scaled(error), 4);
        }
    }
}

#[test]
fn random_numbers() {
    for (dtype, n) in [(DType::F32, 20_001i64), (DType::F16, 20_001)] {
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            let kernel = Kernel::Random(RandomKernel { distribution, dtype });
            let words = [n, 11, 12, 13, 14];
            let tolerance = if dtype == DType::F32 { relative(1e-4, 1e-5) } else { relative(2e-3, 1e-3) };
            let scalars = [Scalar::F(0.0), Scalar::F(1.0)];
            let outputs = [(dtype, n as usize)];
            large(&format!("{distribution:?} {dtype}"), &kernel, &[], &outputs, &words, &scalars, tolerance, 3);
        }
    }
}

/// The second run of a step in pieces creates no pipeline, bind group or buffer.
#[test]
fn a_warm_run_in_pieces_creates_nothing() {
    let mut noise = Noise(105);
    let case = Product { n: 800, ..PRODUCT };
    let (kernel, inputs, words) = product(&mut noise, &case);
    for device in devices() {
        let mut counts = Vec::new();
        for _ in 0..3 {
            run(device, 1, &kernel, &inputs, &[vec![0; 3200]], &words, &[]).unwrap();
            let now = device.counters();
            counts.push([now.pipelines, now.bind_groups, now.buffers]);
        }
        assert_eq!(counts[1], counts[2]);
    }
}
