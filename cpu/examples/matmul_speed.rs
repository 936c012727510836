//! Times of matrix products on the CPU backend, best and median, in microseconds and GFLOP/s:
//! `cargo run --release -p tallow-cpu --example matmul_speed [NAME]`; `TALLOW_THREADS` sets the threads (2 if unset).
//! Names are `[BATCH] M x K x N LAYOUT DTYPE`, with layout N for a right operand stored as [k, n] and K for [n, k], and a
//! trailing T for a left operand stored as [k, m].

use std::sync::Arc;
use std::time::Instant;

use smallvec::{SmallVec, smallvec};
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{Activations, ContractKernel, ContractPart, RightUnit, RowClass};
use tallow_graph::{Args, Backend, Buffer, DType, Expr, Inst, Kernel, Program, Result, Run, Step};

/// A product of a batch (0: none).
struct Case {
    batch: usize,
    size: (usize, usize, usize),
    unit: RightUnit,
    transposed: bool,
    dtype: DType,
}

impl Case {
    fn name(&self) -> String {
        let Case { batch, size: (m, k, n), unit, dtype, .. } = self;
        let batch = if *batch > 0 { format!("{batch} ") } else { String::new() };
        let turned = if self.transposed { " T" } else { "" };
        format!("{batch}{m} x {k} x {n} {unit:?} {dtype:?}{turned}")
    }

    fn kernel(&self) -> Kernel {
        let acc = if self.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut epilogue = Expr::default();
        epilogue.code.push(Inst::Acc(0));
        epilogue.dtypes.push(acc);
        if self.dtype != acc {
            epilogue.code.push(Inst::Cast(0));
            epilogue.dtypes.push(self.dtype);
        }
        let part = ContractPart {
            right: (1, self.dtype),
            right_unit: self.unit,
            paired: false,
            operands: smallvec![],
            epilogue,
        };
        Kernel::Contract(ContractKernel {
            batch: u8::from(self.batch > 0),
            left: (0, self.dtype),
            left_rows: !self.transposed,
            rows: RowClass::of(self.size.0),
            vector: false,
            prologue: None,
            activations: Activations::F32,
            parts: smallvec![part],
        })
    }

    fn words(&self) -> Vec<i64> {
        let (m, k, n) = self.size;
        let batched = self.batch > 0;
        let mut words = vec![];
        words.extend(batched.then_some(self.batch));
        words.extend([m, k, 0]);
        words.extend(batched.then_some(m * k));
        words.extend(if self.transposed { [1, m] } else { [k, 1] });
        words.extend([n, 0]);
        words.extend(batched.then_some(k * n));
        words.extend(if self.unit == RightUnit::K { [1, k] } else { [n, 1] });
        words.into_iter().map(|w| w as i64).collect()
    }
}

fn buffer(backend: &CpuBackend, dtype: DType, count: usize) -> Result<Buffer> {
    let size = dtype.size_in_bytes();
    let buffer = backend.allocate((count * size) as u64)?;
    let value = |i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0;
    let data: Vec<u8> = match dtype {
        DType::F16 => (0..count).flat_map(|i| half::f16::from_f32(value(i)).to_bits().to_le_bytes()).collect(),
        DType::BF16 => (0..count).flat_map(|i| half::bf16::from_f32(value(i)).to_bits().to_le_bytes()).collect(),
        DType::F64 => (0..count).flat_map(|i| f64::from(value(i)).to_le_bytes()).collect(),
        _ => (0..count).flat_map(|i| value(i).to_le_bytes()).collect(),
    };
    backend.write(&buffer, 0, &data)?;
    Ok(buffer)
}

fn time(backend: &CpuBackend, case: &Case) -> Result<()> {
    let (m, k, n) = case.size;
    let count = case.batch.max(1);
    let buffers: SmallVec<[Buffer; 3]> = [m * k, k * n, m * n]
        .into_iter()
        .map(|size| buffer(backend, case.dtype, size * count))
        .collect::<Result<_>>()?;
    let step = Step {
        kernel: Arc::new(case.kernel()),
        implementation: 0,
        inputs: smallvec![0, 1],
        outputs: smallvec![2],
        in_place: false,
        scratch: None,
        after: SmallVec::new(),
    };
    let program = Program { steps: vec![step], buffers: 3 };
    let words = case.words();
    let args = [Args { words: 0..words.len() as u32, scalars: 0..0 }];
    let prepared = backend.prepare(&program)?;
    let run = Run { program: &program, buffers: &buffers, args: &args, words: &words, scalars: &[] };
    backend.submit(&*prepared, run)?;
    let (mut times, start) = (vec![], Instant::now());
    while start.elapsed().as_secs_f64() < 0.25 || times.len() < 3 {
        let from = Instant::now();
        backend.submit(&*prepared, run)?;
        times.push(from.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    let rate = (2 * count * m * k * n) as f64 / best / 1e9;
    let bytes = (case.dtype.size_in_bytes() * count * (m * k + k * n)) as f64 / best / 1e9;
    println!(
        "{:32} {:>10.1} / {:>10.1} us  {rate:7.1} GFLOP/s  {bytes:6.1} GB/s",
        case.name(),
        best * 1e6,
        median * 1e6
    );
    Ok(())
}

fn main() -> Result<()> {
    let threads = std::env::var("TALLOW_THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(2);
    let only = std::env::args().nth(1).unwrap_or_default();
    let backend = CpuBackend::with_threads(threads)?;
    println!("{}, {threads} threads", backend.info().name);
    let f32s = [
        (0, 256, 256, 256),
        (0, 1024, 1024, 1024),
        (0, 2048, 2048, 2048),
        (0, 1, 4096, 4096),
        (0, 2, 4096, 4096),
        (0, 4, 4096, 4096),
        (0, 8, 4096, 4096),
        (0, 37, 129, 515),
        (32, 128, 64, 128),
        (24, 96, 64, 96),
        (0, 64, 64, 64),
        (0, 1, 576, 1536),
    ];
    let halves = [(0, 1024, 1024, 1024), (0, 1, 4096, 4096), (0, 4, 4096, 4096)];
    let cases = f32s
        .map(|size| (size, DType::F32))
        .into_iter()
        .chain([DType::F16, DType::BF16].into_iter().flat_map(|dtype| halves.map(|size| (size, dtype))))
        .chain([((0, 512, 512, 512), DType::F64)]);
    for ((batch, m, k, n), dtype) in cases {
        for (unit, transposed) in [(RightUnit::N, false), (RightUnit::K, false), (RightUnit::N, true)] {
            let case = Case { batch, size: (m, k, n), unit, transposed, dtype };
            if case.name().contains(&only) && (!transposed || m >= 512) {
                time(&backend, &case)?;
            }
        }
    }
    Ok(())
}
