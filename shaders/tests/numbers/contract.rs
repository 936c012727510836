//! Products: every class of rows, dtype and layout of the right operand, sizes that divide nothing.

use super::harness::*;
use smallvec::smallvec;
use tallow_graph::{
    Backend, BinaryOp, DType, Inst, Kernel, Scalar, UnaryOp,
    kernel::{Activations, ContractKernel, ContractPart, Layout, Prologue, RightUnit, RowClass, RowOp},
};

struct Case {
    m: i64,
    k: i64,
    n: i64,
    right: DType,
    unit: RightUnit,
    left: DType,
    paired: bool,
    q8: bool,
    prologue: Option<RowOp>,
    parts: usize,
    batch: bool,
    left_rows: bool,
    output: DType,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            m: 1,
            k: 64,
            n: 10,
            right: DType::F32,
            unit: RightUnit::K,
            left: DType::F32,
            paired: false,
            q8: false,
            prologue: None,
            parts: 1,
            batch: false,
            left_rows: true,
            output: DType::F32,
        }
    }
}

fn run_case(noise: &mut Noise, case: &Case) {
    let Case { m, k, n, right, unit, left, paired, q8, prologue, parts, batch, left_rows, output } = *case;
    let batches = if batch { 3 } else { 1 };
    let columns = if paired { 2 * n } else { n };
    let quantized = right.is_quantized();
    let mut code = vec![(Inst::Acc(0), DType::F32)];
    if paired {
        code.push((Inst::Unary(UnaryOp::Silu, 0), DType::F32));
        code.push((Inst::Acc(1), DType::F32));
        code.push((Inst::Binary(BinaryOp::Mul, 1, 2), DType::F32));
    }
    let at = code.len() as u16 - 1;
    code.push((Inst::Load(0), DType::F32));
    code.push((Inst::Binary(BinaryOp::Add, at, at + 1), output));
    let extra = 1 + parts as u8;
    let vector = k % 4 == 0 && (unit == RightUnit::K || columns % 4 == 0) && (left_rows || m % 4 == 0);
    let kernel = Kernel::Contract(ContractKernel {
        batch: u8::from(batch),
        left: (0, left),
        left_rows,
        rows: RowClass::of(m as usize),
        vector,
        prologue: prologue.map(|op| Prologue {
            op,
            weight: Some((extra + 1, DType::F32)),
            bias: (op == RowOp::LayerNorm).then_some((extra + 2, DType::F32)),
        }),
        activations: if q8 { Activations::Q8 } else { Activations::F32 },
        parts: (0..parts)
            .map(|p| ContractPart {
                right: (1 + p as u8, right),
                right_unit: unit,
                paired,
                operands: smallvec![operand(extra, DType::F32, Layout::Strided)],
                epilogue: expr(&code),
            })
            .collect(),
    });
    let mut words = Vec::new();
    if batch {
        words.push(batches);
    }
    words.extend([m, k, 0]);
    if batch {
        words.push(m * k);
    }
    words.extend(if left_rows { [k, 1] } else { [1, m] });
    if prologue.is_some() {
        words.extend([3, 1]);
    }
    for p in 0..parts as i64 {
        // The packed weight has rows before those that are used.
        words.extend([n, if quantized { p } else { 0 }]);
        if batch {
            words.push(if quantized { 0 } else { k * columns });
        }
        words.extend(if unit == RightUnit::K { [1, k] } else { [columns, 1] });
        words.push(0);
        if batch {
            words.push(0);
        }
        words.extend([0, 1]);
    }
    let mut inputs = vec![Input::Plain(noise.elements(left, (batches * m * k) as usize))];
    for p in 0..parts as i64 {
        inputs.push(if quantized {
            Input::Packed(right, k as usize, noise.blocks(right, ((columns + p) * k) as usize))
        } else {
            Input::Plain(noise.elements(right, (batches * k * columns) as usize))
        });
    }
    inputs.push(Input::Plain(noise.elements(DType::F32, n as usize)));
    if prologue.is_some() {
        inputs.push(Input::Plain(noise.elements(DType::F32, k as usize + 3)));
    }
    if prologue == Some(RowOp::LayerNorm) {
        inputs.push(Input::Plain(noise.elements(DType::F32, k as usize + 1)));
    }
    let outputs = vec![(output, (batches * m * n) as usize); parts];
    let name = format!(
        "{m}x{k}x{n} {left} {right} {unit:?} paired {paired} q8 {q8} {prologue:?} x{parts} {batch} {left_rows}"
    );
    // The left operand is rounded in f32, so a value that lies between two steps may go either way; behind a norm the
    // reference does not round at all.
    let error = match (q8, prologue, output) {
        (true, None, _) => 3e-3,
        (true, Some(_), _) => 6e-2,
        // Cooperative matrices take weights as f16.
        (false, None, DType::F32) if left == DType::F16 && quantized && tier4() => 3e-3,
        // Rounding grows with the sum; a pair is a product of two.
        (false, _, DType::F32) => {
            if k > 500 {
                3e-5
            } else {
                5e-6
            }
        }
        _ => 1e-2,
    };
    let Some(device) = device() else { return };
    let mut reference = kernel.clone();
    let mut reference_inputs = inputs.clone();
    let mut reference_words = words.clone();
    if let (true, None, Input::Plain(bytes)) = (q8, prologue, &inputs[0]) {
        reference_inputs[0] = Input::Plain(rounded(bytes));
    }
    if matches!(right, DType::Q4K | DType::Q6K) {
        // The same weight as plain numbers, whose offsets count elements.
        let Kernel::Contract(contract) = &mut reference else { unreachable!() };
        let step = 1 + (3 + usize::from(batch)) * 2;
        let first = words.len() - parts * step;
        for (p, plain) in dequantized(&inputs[1..1 + parts]).iter().enumerate() {
            contract.parts[p].right.1 = DType::F32;
            reference_inputs[1 + p] = Input::Plain(plain.iter().flat_map(|v| v.to_le_bytes()).collect());
            reference_words[first + p * step + 1] *= k;
        }
    }
    let scalars = [Scalar::F(1e-5)];
    let before: Vec<Vec<u8>> = outputs.iter().map(|&(d, n)| vec![0; n * d.size_in_bytes()]).collect();
    let plain = tallow_graph::reference::Reference::default();
    let want = run(&plain, 0, &reference, &reference_inputs, &before, &reference_words, &scalars).unwrap();
    check_against(device, &name, &kernel, &inputs, &outputs, &words, &scalars, &want, scaled(error));
}

/// Whether the device has cooperative matrices for f16.
fn tier4() -> bool {
    device().is_some_and(|device| device.target().coop.f16 > 0)
}

/// Floats rounded to 8 bits by blocks of 32.
fn rounded(bytes: &[u8]) -> Vec<u8> {
    let x: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    x.chunks(32)
        .flat_map(|block| {
            let top = block.iter().fold(0f32, |m, v| m.max(v.abs()));
            let (d, inverse) = (top / 127.0, if top > 0.0 { 127.0 / top } else { 0.0 });
            block.iter().flat_map(|v| ((v * inverse).round_ties_even() * d).to_le_bytes()).collect::<Vec<u8>>()
        })
        .collect()
}

/// Rows of Q4_K and Q6_K blocks as numbers, from the formats' descriptions.
pub fn dequantized(inputs: &[Input]) -> Vec<Vec<f32>> {
    let half = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
    inputs
        .iter()
        .map(|input| {
            let Input::Packed(dtype, _, bytes) = input else { unreachable!() };
            let mut out = Vec::new();
            for block in bytes.chunks_exact(dtype.block_bytes()) {
                if *dtype == DType::Q4K {
                    let (d, dmin, six) = (half(block), half(&block[2..]), &block[4..16]);
                    for e in 0..256 {
                        let j = e / 32;
                        let (scale, min) = if j < 4 {
                            (six[j] & 63, six[j + 4] & 63)
                        } else {
                            ((six[j + 4] & 15) | (six[j - 4] >> 6 << 4), (six[j + 4] >> 4) | (six[j] >> 6 << 4))
                        };
                        let byte = block[16 + e / 64 * 32 + e % 32];
                        let q = if j % 2 == 0 { byte & 15 } else { byte >> 4 };
                        out.push(d * f32::from(scale) * f32::from(q) - dmin * f32::from(min));
                    }
                } else {
                    let d = half(&block[208..]);
                    for e in 0..256 {
                        let (part, l, quarter) = (e / 128, e % 32, e % 128 / 32);
                        let low = block[part * 64 + l + if quarter % 2 == 1 { 32 } else { 0 }];
                        let low = if quarter < 2 { low & 15 } else { low >> 4 };
                        let high = (block[128 + part * 32 + l] >> (2 * quarter)) & 3;
                        let q = i32::from(low | (high << 4)) - 32;
                        out.push(d * f32::from(block[192 + e / 16] as i8) * q as f32);
                    }
                }
            }
            out
        })
        .collect()
}

const ROWS: [i64; 4] = [1, 2, 7, 70];

#[test]
fn dense_of_any_size() {
    let mut noise = Noise(20);
    for right in [DType::F32, DType::F16, DType::BF16] {
        for unit in [RightUnit::K, RightUnit::N] {
            for m in ROWS {
                for (k, n) in [(1, 1), (37, 13), (100, 132)] {
                    run_case(&mut noise, &Case { m, k, n, right, unit, left: right, ..Case::default() });
                }
            }
        }
    }
}

#[test]
fn quantized_weights() {
    let mut noise = Noise(21);
    for right in DType::QUANTIZED {
        let block = right.block_elements() as i64;
        for m in [1, 7, 70] {
            for (k, n, parts, q8, paired) in [
                (block, 5, 1, false, false),
                (3 * block, 67, 1, true, false),
                (3 * block, 67, 2, false, false),
                (2 * block, 40, 1, m == 1, true),
            ] {
                run_case(&mut noise, &Case { m, k, n, right, q8, paired, parts, ..Case::default() });
            }
        }
    }
}

#[test]
fn batches_pairs_and_strided_left_operands() {
    let mut noise = Noise(22);
    for unit in [RightUnit::K, RightUnit::N] {
        for m in ROWS {
            for paired in [false, true] {
                for left_rows in [false, true] {
                    for (k, n) in [(24, 12), (15, 9)] {
                        let case = Case { m, k, n, unit, paired, left_rows, batch: true, ..Case::default() };
                        run_case(&mut noise, &case);
                    }
                }
            }
        }
    }
}

#[test]
fn norms_on_the_way_in_and_narrow_outputs() {
    let mut noise = Noise(23);
    for (op, m, k, right, q8, parts) in [
        (RowOp::RmsNorm, 1, 96, DType::Q4_1, false, 2),
        (RowOp::RmsNorm, 5, 96, DType::Q8_0, true, 1),
        (RowOp::RmsNorm, 5, 35, DType::F32, false, 1),
        (RowOp::LayerNorm, 1, 35, DType::F32, false, 1),
        (RowOp::LayerNorm, 5, 64, DType::F32, false, 1),
        (RowOp::LayerNorm, 1, 96, DType::Q8_0, true, 1),
    ] {
        run_case(&mut noise, &Case { m, k, n: 11, right, q8, prologue: Some(op), parts, ..Case::default() });
    }
    for output in [DType::F16, DType::BF16] {
        for m in ROWS {
            for n in [7, 12] {
                run_case(&mut noise, &Case { m, n, output, ..Case::default() });
            }
        }
    }
}

/// Few tiles and a long k: several workgroups share a tile. And enough rows and columns for bands of tiles.
#[test]
fn split_k_and_bands_of_tiles() {
    let mut noise = Noise(24);
    let f32 = DType::F32;
    for (m, k, n, unit, paired, batch, parts, output) in [
        (70, 1030, 12, RightUnit::K, false, false, 1, f32),
        (9, 512, 70, RightUnit::N, true, true, 2, f32),
        (33, 801, 40, RightUnit::K, true, false, 1, f32),
        (40, 520, 24, RightUnit::N, false, false, 1, DType::F16),
        (650, 24, 200, RightUnit::K, false, false, 1, f32),
    ] {
        run_case(&mut noise, &Case { m, k, n, unit, paired, batch, parts, output, ..Case::default() });
    }
    for (right, q8) in [(DType::Q4_0, true), (DType::Q8_0, false), (DType::Q4K, false), (DType::Q6K, true)] {
        run_case(&mut noise, &Case { m: 70, k: 768, n: 35, right, q8, ..Case::default() });
    }
}

/// What cooperative matrices take, at sizes that are no multiples of a matrix or a tile, with every kind of edge: ragged
/// rows and columns, a k that ends inside a matrix, pairs, several parts, batches, split-K, a strided left operand.
#[test]
fn f16_by_f16_and_by_quantized_weights() {
    if !tier4() {
        eprintln!("skipped: wgpu tier T4: the adapter has no cooperative matrices of f16; the other ways run");
    }
    let mut noise = Noise(25);
    let left = DType::F16;
    for unit in [RightUnit::K, RightUnit::N] {
        for (m, k, n) in [(9, 1, 1), (17, 15, 33), (70, 16, 64), (129, 50, 65), (130, 100, 132), (64, 64, 64)] {
            run_case(&mut noise, &Case { m, k, n, left, right: left, unit, ..Case::default() });
        }
        for (paired, batch, left_rows, parts, output) in
            [(false, true, false, 1, DType::F32), (true, false, true, 2, DType::F16)]
        {
            let (m, k, n) = (83, 52, 44);
            let case =
                Case { m, k, n, left, right: left, unit, paired, batch, left_rows, parts, output, ..Case::default() };
            run_case(&mut noise, &case);
        }
        run_case(&mut noise, &Case { m: 70, k: 1030, n: 12, left, right: left, unit, paired: true, ..Case::default() });
    }
    for right in DType::QUANTIZED {
        let block = right.block_elements() as i64;
        for (m, k, n) in [(9, block, 5), (131, 3 * block, 67), (40, 768, 35)] {
            run_case(&mut noise, &Case { m, k, n, left, right, ..Case::default() });
        }
    }
}

/// Sums beyond what f16 holds, and values at its end: sums are f32.
#[test]
fn sums_of_f16_do_not_overflow() {
    let Some(device) = device() else { return };
    let (m, k, n) = (40usize, 96usize, 36usize);
    let kernel = Kernel::Contract(ContractKernel {
        batch: 0,
        left: (0, DType::F16),
        left_rows: true,
        rows: RowClass::Many,
        vector: true,
        prologue: None,
        activations: Activations::F32,
        parts: smallvec![ContractPart {
            right: (1, DType::F16),
            right_unit: RightUnit::K,
            paired: false,
            operands: smallvec![],
            epilogue: expr(&[(Inst::Acc(0), DType::F32)]),
        }],
    });
    let full = |count: usize, value: f32| half::f16::from_f32(value).to_le_bytes().repeat(count);
    let inputs = [Input::Plain(full(m * k, 65504.0)), Input::Plain(full(n * k, 32.0))];
    let want = (65504.0f32 * 32.0 * k as f32).to_le_bytes().repeat(m * n);
    let words = [m, k, 0, k, 1, n, 0, 1, k].map(|w| w as i64);
    let outputs = [(DType::F32, m * n)];
    check_against(device, "large f16", &kernel, &inputs, &outputs, &words, &[], &[want], scaled(1e-6));
}

#[test]
fn many_rows_take_no_norm() {
    let Some(device) = device() else { return };
    let kernel = ContractKernel {
        batch: 0,
        left: (0, DType::F32),
        left_rows: true,
        rows: RowClass::Many,
        vector: false,
        prologue: Some(Prologue { op: RowOp::RmsNorm, weight: None, bias: None }),
        activations: Activations::F32,
        parts: smallvec![ContractPart {
            right: (1, DType::F32),
            right_unit: RightUnit::K,
            paired: false,
            operands: smallvec![],
            epilogue: expr(&[(Inst::Acc(0), DType::F32)]),
        }],
    };
    assert!(device.lower(&Kernel::Contract(kernel), &[]).is_empty());
}
