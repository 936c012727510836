//! Times of single kernels on the CPU backend, beside what memory or arithmetic allows:
//! `cargo run --release -p tallow-cpu --example backend_speed [NAME]`.

use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use tallow_cpu::{CpuBackend, quant};
use tallow_graph::kernel::{
    Activations, AttentionKernel, ContractKernel, ContractPart, ConvKernel, Layout, MapKernel, MapPart, Operand,
    RightUnit, RowClass, RowKernel, RowOp,
};
use tallow_graph::{
    Args, Backend, BinaryOp, Buffer, DType, Expr, Inst, Kernel, Program, Result, Run, Scalar, Step, UnaryOp,
};

const F: DType = DType::F32;

struct Bench {
    backend: CpuBackend,
    only: Option<String>,
    /// One thread: times of the processor count too, so that a busy machine disturbs less.
    alone: bool,
}

/// Nanoseconds that this thread has had a processor, where the system tells.
fn on_cpu() -> Option<u64> {
    std::fs::read_to_string("/proc/self/schedstat").ok()?.split_ascii_whitespace().next()?.parse().ok()
}

impl Bench {
    fn buffer(&self, bytes: usize) -> Result<Buffer> {
        let buffer = self.backend.allocate(bytes as u64)?;
        let data: Vec<u8> = (0..bytes / 4).flat_map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()).collect();
        self.backend.write(&buffer, 0, &data)?;
        Ok(buffer)
    }

    #[allow(clippy::too_many_arguments, reason = "what a step is made of")]
    /// The best of some runs, or their mean time on the processor.
    fn time(
        &self,
        name: &str,
        kernel: Kernel,
        inputs: Vec<Buffer>,
        outputs: Vec<Buffer>,
        words: &[i64],
        scalars: &[Scalar],
        show: &dyn Fn(f64) -> String,
    ) -> Result<()> {
        if self.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        let n = inputs.len() as u32;
        let step = Step {
            kernel: Arc::new(kernel),
            implementation: 0,
            inputs: (0..n).collect(),
            outputs: (n..n + outputs.len() as u32).collect(),
            in_place: false,
            scratch: None,
            after: SmallVec::new(),
        };
        let buffers: Vec<Buffer> = inputs.into_iter().chain(outputs).collect();
        let program = Program { steps: vec![step], buffers: buffers.len() };
        let args = [Args { words: 0..words.len() as u32, scalars: 0..scalars.len() as u32 }];
        let prepared = self.backend.prepare(&program)?;
        let run = Run { program: &program, buffers: &buffers, args: &args, words, scalars };
        self.backend.submit(&*prepared, run)?;
        let (mut best, mut total, start, busy) = (f64::INFINITY, 0u32, Instant::now(), on_cpu());
        while start.elapsed().as_secs_f64() < 0.5 {
            let (from, mut rounds) = (Instant::now(), 0);
            while rounds == 0 || from.elapsed().as_micros() < 100 {
                self.backend.submit(&*prepared, run)?;
                rounds += 1;
            }
            best = best.min(from.elapsed().as_secs_f64() / f64::from(rounds));
            total += rounds;
        }
        if let (Some(busy), Some(now), true) = (busy, on_cpu(), self.alone) {
            best = best.min((now - busy) as f64 / 1e9 / f64::from(total));
        }
        println!("{name:34} {:>10.2} us  {}", best * 1e6, show(best));
        Ok(())
    }
}

fn expr(code: &[(Inst, DType)]) -> Expr {
    let mut expr = Expr::default();
    for &(inst, dtype) in code {
        expr.code.push(inst);
        expr.dtypes.push(dtype);
    }
    expr
}

fn linear(input: u8) -> Operand {
    Operand { input: Some(input), dtype: F, layout: Layout::Linear }
}

fn map(operands: SmallVec<[Operand; 3]>, expr: Expr) -> Kernel {
    let part = MapPart { rank: 1, vector: true, operands, expr, output: Layout::Linear };
    Kernel::Map(MapKernel { parts: smallvec![part] })
}

fn row(op: RowOp, weight: bool) -> Kernel {
    let mut operands = smallvec![linear(0)];
    let mut after = expr(&[(Inst::Acc(0), F)]);
    if weight {
        operands.push(Operand { input: Some(1), dtype: F, layout: Layout::Strided });
        after = expr(&[(Inst::Acc(0), F), (Inst::Load(1), F), (Inst::Binary(BinaryOp::Mul, 0, 1), F)]);
    }
    let before = expr(&[(Inst::Load(0), F)]);
    Kernel::Row(RowKernel { op, outer: 1, inner: 1, operands, before, after, accumulator: F })
}

fn contract(m: usize, dtype: DType, unit: RightUnit, activations: Activations) -> Kernel {
    let epilogue = expr(&[(Inst::Acc(0), F)]);
    let part = ContractPart { right: (1, dtype), right_unit: unit, paired: false, operands: smallvec![], epilogue };
    Kernel::Contract(ContractKernel {
        batch: 0,
        left: (0, F),
        left_rows: true,
        rows: RowClass::of(m),
        vector: true,
        prologue: None,
        activations,
        parts: smallvec![part],
    })
}

/// A convolution of [samples, channels, sizes...] with stride 1 and the padding that keeps the sizes: name, [samples,
/// groups, channels and outputs of a group], sizes, taps.
fn conv(b: &Bench, name: &str, lead: [usize; 4], sizes: &[usize], taps: usize) -> Result<()> {
    let [samples, groups, channels, outputs] = lead;
    let mut words: Vec<i64> = lead.iter().map(|&n| n as i64).collect();
    for &size in sizes {
        words.extend([size as i64, taps as i64, size as i64, 1, taps as i64 / 2, 1, 1]);
    }
    let mut elements = Vec::new();
    let filter: Vec<usize> = sizes.iter().map(|_| taps).collect();
    for (first, rest) in [([samples, groups, channels], sizes), ([groups, outputs, channels], &filter)] {
        let dims = [&first[..], rest].concat();
        let mut step = 1;
        words.push(0);
        let at = words.len();
        for &dim in dims.iter().rev() {
            words.insert(at, step as i64);
            step *= dim;
        }
        elements.push(step);
    }
    let positions: usize = sizes.iter().product();
    let results = samples * groups * outputs * positions;
    let flops = 2 * results * channels * filter.iter().product::<usize>();
    let kernel = Kernel::Conv(ConvKernel {
        spatial: sizes.len() as u8,
        input: (0, F),
        filter: (1, F),
        operands: smallvec![],
        epilogue: expr(&[(Inst::Acc(0), F)]),
    });
    let inputs = elements.iter().map(|&n| b.buffer(4 * n)).collect::<Result<_>>()?;
    let show = move |s: f64| format!("{:.1} GFLOP/s", flops as f64 / s / 1e9);
    b.time(name, kernel, inputs, vec![b.buffer(4 * results)?], &words, &[], &show)
}

fn main() -> Result<()> {
    let threads = std::env::var("TALLOW_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(2);
    let b = Bench { backend: CpuBackend::with_threads(threads)?, only: std::env::args().nth(1), alone: threads == 1 };
    println!("{}", b.backend.info().name);
    let rate = |bytes: usize| move |s: f64| format!("{:.1} GB/s", bytes as f64 / s / 1e9);
    let add = expr(&[(Inst::Load(0), F), (Inst::Load(1), F), (Inst::Binary(BinaryOp::Add, 0, 1), F)]);
    let tiny = [4, 0, 1, 0, 1, 0, 1];
    let none = |_: f64| String::new();
    b.time(
        "add 2 x 2",
        map(smallvec![linear(0), linear(1)], add.clone()),
        vec![b.buffer(16)?, b.buffer(16)?],
        vec![b.buffer(16)?],
        &tiny,
        &[],
        &none,
    )?;
    let mut chain = expr(&[(Inst::Load(0), F), (Inst::Load(1), F)]);
    for i in 0..100 {
        chain.code.push(Inst::Binary(BinaryOp::Add, i + u16::from(i > 0), 1));
        chain.dtypes.push(F);
    }
    b.time(
        "100 adds of 4 elements",
        map(smallvec![linear(0), linear(1)], chain),
        vec![b.buffer(16)?, b.buffer(16)?],
        vec![b.buffer(16)?],
        &tiny,
        &[],
        &none,
    )?;

    let n = 16 << 20;
    let big = [n as i64, 0, 1, 0, 1];
    let (x, y) = (b.buffer(4 * n)?, b.buffer(4 * n)?);
    let fused = |op| {
        expr(&[
            (Inst::Load(0), F),
            (Inst::Param(0), F),
            (Inst::Param(1), F),
            (Inst::Param(2), F),
            (Inst::Binary(BinaryOp::Mul, 0, 1), F),
            (Inst::Binary(BinaryOp::Add, 4, 2), F),
            (Inst::Unary(op, 5), F),
            (Inst::Binary(BinaryOp::Mul, 6, 3), F),
        ])
    };
    let abc = [Scalar::F(1.5), Scalar::F(0.25), Scalar::F(3.0)];
    b.time(
        "copy 16M",
        map(smallvec![linear(0)], expr(&[(Inst::Load(0), F)])),
        vec![x.clone()],
        vec![y.clone()],
        &big,
        &[],
        &rate(8 * n),
    )?;
    for (name, op) in [("gelu(x*a+b)*c 16K", UnaryOp::Gelu), ("relu(x*a+b)*c 16K", UnaryOp::Relu)] {
        let small = [16 << 10, 0, 1, 0, 1];
        b.time(
            name,
            map(smallvec![linear(0)], fused(op)),
            vec![x.clone()],
            vec![y.clone()],
            &small,
            &abc,
            &rate(8 << 14),
        )?;
    }
    for (name, op) in
        [("gelu(x*a+b)*c 16M", UnaryOp::Gelu), ("relu(x*a+b)*c 16M", UnaryOp::Relu), ("exp(x*a+b)*c 16M", UnaryOp::Exp)]
    {
        b.time(name, map(smallvec![linear(0)], fused(op)), vec![x.clone()], vec![y.clone()], &big, &abc, &rate(8 * n))?;
    }
    b.time(
        "add 16M",
        map(smallvec![linear(0), linear(1)], add),
        vec![x.clone(), x.clone()],
        vec![y.clone()],
        &[n as i64, 0, 1, 0, 1, 0, 1],
        &[],
        &rate(12 * n),
    )?;
    let mut transpose = map(smallvec![Operand { layout: Layout::Strided, ..linear(0) }], expr(&[(Inst::Load(0), F)]));
    if let Kernel::Map(map) = &mut transpose {
        map.parts[0].rank = 2;
    }
    b.time(
        "transpose 4096 x 4096",
        transpose,
        vec![x.clone()],
        vec![y.clone()],
        &[4096, 4096, 0, 4096, 1, 0, 1, 4096],
        &[],
        &rate(8 * n),
    )?;

    let (rows, cols) = (4096i64, 1024i64);
    let size = (rows * cols) as usize;
    for (op, weight) in
        [(RowOp::Softmax, false), (RowOp::RmsNorm, false), (RowOp::RmsNorm, true), (RowOp::LayerNorm, true)]
    {
        let mut words = vec![rows, cols, 0, cols, 1];
        words.extend(if weight { &[0i64, 0, 1][..] } else { &[] });
        let name = format!("{op:?}{} 4096 x 1024", if weight { " * w" } else { "" });
        b.time(
            &name,
            row(op, weight),
            vec![x.clone(), b.buffer(4096)?],
            vec![y.clone()],
            &words,
            &[Scalar::F(1e-5)],
            &rate(8 * size),
        )?;
    }
    b.time(
        "RmsNorm * w 1 x 576",
        row(RowOp::RmsNorm, true),
        vec![x.clone(), b.buffer(4096)?],
        vec![y.clone()],
        &[1, 576, 0, 576, 1, 0, 0, 1],
        &[Scalar::F(1e-5)],
        &none,
    )?;
    b.time(
        "Sum rows 4096 x 4096",
        row(RowOp::Sum, false),
        vec![x.clone()],
        vec![y.clone()],
        &[4096, 4096, 0, 4096, 1],
        &[],
        &rate(4 * n),
    )?;
    let mut columns = row(RowOp::Sum, false);
    if let Kernel::Row(row) = &mut columns {
        row.operands[0].layout = Layout::Strided;
    }
    b.time(
        "Sum columns 4096 x 4096",
        columns,
        vec![x.clone()],
        vec![y.clone()],
        &[4096, 4096, 0, 1, 4096],
        &[],
        &rate(4 * n),
    )?;
    b.time(
        "Sum all 16M",
        row(RowOp::Sum, false),
        vec![x.clone()],
        vec![y.clone()],
        &[1, n as i64, 0, 0, 1],
        &[],
        &rate(4 * n),
    )?;

    for (m, k, n) in [(1024usize, 1024usize, 1024usize), (256, 576, 1536), (64, 64, 64), (8, 576, 1536)] {
        for unit in [RightUnit::K, RightUnit::N] {
            let (s, t) = if unit == RightUnit::K { (1, k) } else { (n, 1) };
            let words = [m, k, 0, k, 1, n, 0, s, t].map(|w| w as i64);
            let flops = move |s: f64| format!("{:.1} GFLOP/s", (2 * m * k * n) as f64 / s / 1e9);
            let name = format!("matmul {m} x {k} x {n} {unit:?}");
            b.time(
                &name,
                contract(m, F, unit, Activations::F32),
                vec![x.clone(), y.clone()],
                vec![b.buffer(4 * m * n)?],
                &words,
                &[],
                &flops,
            )?;
        }
    }
    for unit in [RightUnit::K, RightUnit::N] {
        let (s, t) = if unit == RightUnit::K { (1, 4096) } else { (4096, 1) };
        b.time(
            &format!("matvec 4096 x 4096 {unit:?}"),
            contract(1, F, unit, Activations::F32),
            vec![b.buffer(16384)?, x.clone()],
            vec![b.buffer(16384)?],
            &[1, 4096, 0, 4096, 1, 4096, 0, s, t],
            &[],
            &rate(4 * n),
        )?;
    }
    for (dtype, k, cols) in [
        (DType::Q4_1, 4096usize, 4096usize),
        (DType::Q4_1, 576, 1536),
        (DType::Q4K, 4096, 4096),
        (DType::Q8_0, 4096, 4096),
    ] {
        let mut packed = vec![];
        let sample: Vec<f32> = (0..k).map(|i| ((i * 37 % 101) as f32 / 50.0) - 1.0).collect();
        for _ in 0..cols {
            quant::quantize_row(dtype, &sample, &mut packed)?;
        }
        let bytes = packed.len();
        let weight = b.backend.pack(dtype, cols, k, Arc::new(packed), 0..bytes)?;
        for (m, activations) in [(1usize, Activations::Q8), (1, Activations::F32), (128, Activations::Q8)] {
            let words = [m, k, 0, k, 1, cols, 0, 1, k].map(|w| w as i64);
            let show = move |s: f64| {
                format!("{:.1} GB/s, {:.1} GFLOP/s", bytes as f64 / s / 1e9, (2 * m * k * cols) as f64 / s / 1e9)
            };
            let name = format!("{dtype} {m} x {k} x {cols} {activations:?}");
            b.time(
                &name,
                contract(m, dtype, RightUnit::K, activations),
                vec![x.clone(), weight.clone()],
                vec![b.buffer(4 * m * cols)?],
                &words,
                &[],
                &show,
            )?;
        }
    }
    for (queries, keys) in [(1i64, 512i64), (256, 256)] {
        let kernel = AttentionKernel {
            dtype: F,
            kv_dtype: F,
            causal: true,
            window: false,
            softcap: false,
            mask: false,
            rows: RowClass::of(queries as usize),
        };
        let words = [
            1,
            queries,
            keys,
            9,
            3,
            64,
            64,
            keys - queries,
            0,
            0,
            0,
            576,
            64,
            0,
            0,
            64,
            keys * 64,
            0,
            0,
            64,
            keys * 64,
        ];
        b.time(
            &format!("attention {queries} by {keys}, 9 heads"),
            Kernel::Attention(kernel),
            vec![x.clone(), x.clone(), x.clone()],
            vec![y.clone()],
            &words,
            &[Scalar::F(0.125), Scalar::F(0.0)],
            &none,
        )?;
    }

    conv(&b, "conv2d 64 -> 64, 3x3, 4 x 56 x 56", [4, 1, 64, 64], &[56, 56], 3)?;
    conv(&b, "conv2d 512 -> 512, 3x3, 7 x 7", [1, 1, 512, 512], &[7, 7], 3)?;
    conv(&b, "conv2d 256 -> 64, 1x1, 4 x 56 x 56", [4, 1, 256, 64], &[56, 56], 1)?;
    conv(&b, "conv2d depthwise 96, 3x3, 112 x 112", [1, 96, 1, 1], &[112, 112], 3)?;
    conv(&b, "conv1d 80 -> 384, 3, 3000", [1, 1, 80, 384], &[3000], 3)?;
    Ok(())
}
