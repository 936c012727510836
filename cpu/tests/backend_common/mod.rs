//! Runs single kernels on the CPU backend, and plain reference loops in f64 to hold them against.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::sync::Arc;

use smallvec::SmallVec;
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{Layout, Operand};
use tallow_graph::{
    Args, Backend, Buffer, DType, Element, Error, Expr, Inst, Kernel, Program, Result, Run, Scalar, Step,
};

/// A stream of numbers that looks random enough.
pub struct Noise(pub u64);

impl Noise {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    /// In [-2, 2).
    pub fn float(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 51) as f64 - 2.0
    }
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float() as f32).collect()
    }
}

/// Bytes of elements.
pub fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|v| v.put(&mut out));
    out
}

/// Elements of bytes.
pub fn values<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::DTYPE.size_in_bytes()).map(T::take).collect()
}

pub fn buffer(backend: &CpuBackend, bytes: &[u8]) -> Buffer {
    let buffer = backend.allocate(bytes.len() as u64).unwrap();
    backend.write(&buffer, 0, bytes).unwrap();
    buffer
}

/// One kernel as a program, with its buffers.
pub struct Single {
    pub program: Program,
    pub buffers: Vec<Buffer>,
    pub args: Vec<Args>,
    pub words: Vec<i64>,
    pub scalars: Vec<Scalar>,
}

impl Single {
    pub fn new(
        kernel: Kernel,
        inputs: Vec<Buffer>,
        outputs: Vec<Buffer>,
        words: Vec<i64>,
        scalars: Vec<Scalar>,
    ) -> Self {
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
        let args = vec![Args { words: 0..words.len() as u32, scalars: 0..scalars.len() as u32 }];
        Self { program, buffers, args, words, scalars }
    }

    pub fn run(&self) -> Run<'_> {
        Run {
            program: &self.program,
            buffers: &self.buffers,
            args: &self.args,
            words: &self.words,
            scalars: &self.scalars,
        }
    }
}

/// A future that is done at once.
pub fn now<T>(future: tallow_graph::BoxFuture<'static, T>) -> T {
    let mut future = future;
    let waker = std::task::Waker::noop();
    match future.as_mut().poll(&mut std::task::Context::from_waker(waker)) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the CPU's futures are done at once"),
    }
}

/// Runs one kernel with outputs of so many bytes, which are filled with 0xa5 before, and reads them.
pub fn try_run(
    backend: &CpuBackend,
    kernel: Kernel,
    inputs: &[Vec<u8>],
    outputs: &[usize],
    words: &[i64],
    scalars: &[Scalar],
) -> Result<Vec<Vec<u8>>, Error> {
    assert!(!backend.lower(&kernel, words).is_empty(), "not lowered: {kernel:?}");
    let inputs = inputs.iter().map(|bytes| buffer(backend, bytes)).collect();
    let outs: Vec<Buffer> = outputs.iter().map(|&n| buffer(backend, &vec![0xa5; n])).collect();
    let single = Single::new(kernel, inputs, outs.clone(), words.to_vec(), scalars.to_vec());
    let prepared = backend.prepare(&single.program)?;
    if let Some(fault) = backend.submit(&*prepared, single.run())?.into_iter().next() {
        return Err(Error::Fault { op: fault.op, message: fault.message });
    }
    outs.iter().zip(outputs).map(|(out, &n)| now(backend.read(out, 0..n as u64))).collect()
}

pub fn run(
    backend: &CpuBackend,
    kernel: Kernel,
    inputs: &[Vec<u8>],
    outputs: &[usize],
    words: &[i64],
    scalars: &[Scalar],
) -> Vec<Vec<u8>> {
    try_run(backend, kernel, inputs, outputs, words, scalars).unwrap()
}

pub fn operand(input: u8, dtype: DType, layout: Layout) -> Operand {
    Operand { input: Some(input), dtype, layout }
}

/// An expression of instructions, each with its dtype.
pub fn expr(code: &[(Inst, DType)]) -> Expr {
    let mut expr = Expr::default();
    for &(inst, dtype) in code {
        expr.code.push(inst);
        expr.dtypes.push(dtype);
    }
    expr
}

/// One load, unchanged.
pub fn load(dtype: DType) -> Expr {
    expr(&[(Inst::Load(0), dtype)])
}

/// The accumulator, unchanged.
pub fn acc(dtype: DType) -> Expr {
    expr(&[(Inst::Acc(0), dtype)])
}

/// Every index of a nest, in order.
pub fn indices(sizes: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &size in sizes {
        all = all.into_iter().flat_map(|i: Vec<i64>| (0..size).map(move |k| [&i[..], &[k]].concat())).collect();
    }
    all
}

/// The address that an operand's words give.
pub fn address(words: &[i64], index: &[i64]) -> usize {
    (words[0] + index.iter().zip(&words[1..]).map(|(i, s)| i * s).sum::<i64>()) as usize
}

pub fn close(got: f64, want: f64, tolerance: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= tolerance * want.abs().max(1.0)
}

/// Words of an operand that walks contiguous memory over the nest.
pub fn contiguous(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for i in (1..sizes.len()).rev() {
        strides[i - 1] = strides[i] * sizes[i];
    }
    [&[0][..], &strides].concat()
}

/// The same on the graph's reference backend: plain loops in f64.
pub fn reference(
    kernel: Kernel,
    inputs: &[Vec<u8>],
    outputs: &[usize],
    words: &[i64],
    scalars: &[Scalar],
) -> Vec<Vec<u8>> {
    let backend = tallow_graph::reference::Reference::default();
    let make = |bytes: &[u8]| {
        let buffer = backend.allocate(bytes.len() as u64).unwrap();
        backend.write(&buffer, 0, bytes).unwrap();
        buffer
    };
    let inputs = inputs.iter().map(|bytes| make(bytes)).collect();
    let outs: Vec<Buffer> = outputs.iter().map(|&n| make(&vec![0xa5; n])).collect();
    let single = Single::new(kernel, inputs, outs.clone(), words.to_vec(), scalars.to_vec());
    let prepared = backend.prepare(&single.program).unwrap();
    backend.submit(&*prepared, single.run()).unwrap();
    outs.iter().zip(outputs).map(|(out, &n)| now(backend.read(out, 0..n as u64)).unwrap()).collect()
}

/// Bytes of a dtype as f64 (integers exactly, as far as f64 goes).
pub fn as_f64(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    use half::{bf16, f16};
    fn all<T: Element>(bytes: &[u8]) -> Vec<f64> {
        values::<T>(bytes).into_iter().map(Element::to_f64).collect()
    }
    match dtype {
        DType::U8 => all::<u8>(bytes),
        DType::I8 => all::<i8>(bytes),
        DType::U16 => all::<u16>(bytes),
        DType::I16 => all::<i16>(bytes),
        DType::U32 => all::<u32>(bytes),
        DType::I32 => all::<i32>(bytes),
        DType::U64 => all::<u64>(bytes),
        DType::I64 => all::<i64>(bytes),
        DType::F16 => all::<f16>(bytes),
        DType::BF16 => all::<bf16>(bytes),
        DType::F64 => all::<f64>(bytes),
        _ => all::<f32>(bytes),
    }
}

/// Elements of a dtype: floats in [-2, 2), small integers.
pub fn noise_of(noise: &mut Noise, dtype: DType, n: usize) -> Vec<u8> {
    use half::{bf16, f16};
    fn all<T: Element>(x: Vec<f64>) -> Vec<u8> {
        bytes(&x.into_iter().map(T::from_f64).collect::<Vec<T>>())
    }
    let x: Vec<f64> = if dtype.is_float() {
        (0..n).map(|_| noise.float()).collect()
    } else {
        (0..n).map(|_| (noise.float() * 40.0).round()).collect()
    };
    match dtype {
        DType::U8 => all::<u8>(x),
        DType::I8 => all::<i8>(x),
        DType::U16 => all::<u16>(x),
        DType::I16 => all::<i16>(x),
        DType::U32 => all::<u32>(x),
        DType::I32 => all::<i32>(x),
        DType::U64 => all::<u64>(x),
        DType::I64 => all::<i64>(x),
        DType::F16 => all::<f16>(x),
        DType::BF16 => all::<bf16>(x),
        DType::F64 => all::<f64>(x),
        _ => all::<f32>(x),
    }
}

/// Runs a kernel here and on the reference, and holds one against the other: |difference| <= tolerance * max(1, |want|).
#[allow(clippy::too_many_arguments, reason = "what a step is made of")]
pub fn check(
    backend: &CpuBackend,
    what: &str,
    kernel: &Kernel,
    inputs: &[Vec<u8>],
    outputs: &[(DType, usize)],
    words: &[i64],
    scalars: &[Scalar],
    tolerance: f64,
) {
    let sizes: Vec<usize> = outputs.iter().map(|(dtype, n)| n * dtype.size_in_bytes()).collect();
    let got = run(backend, kernel.clone(), inputs, &sizes, words, scalars);
    let want = reference(kernel.clone(), inputs, &sizes, words, scalars);
    for ((got, want), &(dtype, _)) in got.iter().zip(&want).zip(outputs) {
        for (i, (got, want)) in as_f64(dtype, got).into_iter().zip(as_f64(dtype, want)).enumerate() {
            assert!(close(got, want, tolerance), "{what}: element {i} is {got}, not {want}\n{kernel:?}\n{words:?}");
        }
    }
}
