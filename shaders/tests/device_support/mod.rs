//! A kernel library of five small shaders, so that the host code is tested by itself, and helpers to run programs.
#![allow(dead_code, reason = "each test file uses its part")]

use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tallow_graph::{
    Args, Backend, Buffer, DType, Error, Expr, Implementation, Inst, Kernel, Prepared, Program, Result, Run, Scalar,
    Step,
    kernel::{
        AttentionKernel, Distribution, GatherKernel, Layout, MapKernel, MapPart, Operand, RandomKernel, RowClass,
        RowKernel, RowOp,
    },
};
use tallow_wgpu::{
    host::{Library, Options, WgpuBackend},
    library::{Shader, Target},
};

/// out[i] = a[i] + b[i] + scalar 0.
pub fn add() -> Arc<Kernel> {
    let operand = |i| Operand { input: Some(i), dtype: DType::F32, layout: Layout::Linear };
    Arc::new(Kernel::Map(MapKernel {
        parts: smallvec![MapPart {
            rank: 1,
            vector: false,
            operands: smallvec![operand(0), operand(1)],
            expr: Expr::default(),
            output: Layout::Linear,
        }],
    }))
}

/// `add` as another kernel: its structure is other, its shader the same.
pub fn add_variant(rank: u8) -> Arc<Kernel> {
    let mut kernel = (*add()).clone();
    if let Kernel::Map(map) = &mut kernel {
        map.parts[0].rank = rank;
    }
    Arc::new(kernel)
}

/// out[i] = i * scalar 0.
pub fn ramp() -> Arc<Kernel> {
    Arc::new(Kernel::Random(RandomKernel { distribution: Distribution::Uniform, dtype: DType::F32 }))
}

/// out[i] = source[ids[i]], a fault where the id is not below word 1.
pub fn gather() -> Arc<Kernel> {
    Arc::new(Kernel::Gather(GatherKernel { source: DType::F32, ids: DType::U32, output: DType::F32 }))
}

/// Two dispatches over scratch: out[i] = a[i] * 2 + 1.
pub fn two_steps() -> Arc<Kernel> {
    Arc::new(Kernel::Attention(AttentionKernel {
        dtype: DType::F32,
        kv_dtype: DType::F32,
        causal: false,
        window: false,
        softcap: false,
        mask: false,
        rows: RowClass::One,
    }))
}

/// A kernel whose shader is wrong.
pub fn broken() -> Arc<Kernel> {
    let mut after = Expr::default();
    after.push(Inst::Acc(0), DType::F32);
    Arc::new(Kernel::Row(RowKernel {
        op: RowOp::Sum,
        outer: 0,
        inner: 1,
        operands: smallvec![Operand { input: Some(0), dtype: DType::F32, layout: Layout::Linear }],
        before: Expr::default(),
        after,
        accumulator: DType::F32,
    }))
}

const ADD: &str = "
struct P { n: u32, bias: f32 }
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> p: P;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < p.n) { out[id.x] = a[id.x] + b[id.x] + p.bias; }
}";
const RAMP: &str = "
struct P { n: u32, scale: f32 }
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<uniform> p: P;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < p.n) { out[id.x] = f32(id.x) * p.scale; }
}";
const GATHER: &str = "
struct P { n: u32, rows: u32, kernel: u32 }
@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> fault: array<atomic<u32>, 3>;
@group(0) @binding(4) var<uniform> p: P;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x >= p.n) { return; }
  let row = ids[id.x];
  if (row >= p.rows) {
    if (atomicCompareExchangeWeak(&fault[0], 0u, 1u).exchanged) {
      atomicStore(&fault[1], p.kernel);
      atomicStore(&fault[2], row);
    }
    out[id.x] = 0.0;
    return;
  }
  out[id.x] = source[row];
}";
const TWO: &str = "
struct P { n: u32 }
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<storage, read_write> scratch: array<f32>;
@group(0) @binding(3) var<uniform> p: P;
@compute @workgroup_size(64) fn first(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < p.n) { scratch[id.x] = a[id.x] * 2.0; }
}
@compute @workgroup_size(64) fn second(@builtin(global_invocation_id) id: vec3<u32>) {
  if (id.x < p.n) { out[id.x] = scratch[id.x] + 1.0; }
}";

fn shader(kernel: &Kernel, _: u32, _: &Target) -> Result<Shader> {
    let (source, entries, inputs, scratch, fault, param_words): (_, SmallVec<[&'static str; 2]>, _, _, _, _) =
        match kernel {
            Kernel::Map(_) => (ADD, smallvec!["main"], 2, false, false, 2),
            Kernel::Random(_) => (RAMP, smallvec!["main"], 0, false, false, 2),
            Kernel::Gather(_) => (GATHER, smallvec!["main"], 2, false, true, 3),
            Kernel::Attention(_) => (TWO, smallvec!["first", "second"], 1, true, false, 1),
            _ => ("@compute fn main() { let x = nothing; }", smallvec!["main"], 1, false, false, 1),
        };
    Ok(Shader {
        label: kernel.name().to_owned(),
        source: source.to_owned(),
        entries,
        inputs,
        outputs: 1,
        scratch,
        fault,
        param_words,
    })
}

fn params(kernel: &Kernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    out.extend(words.iter().map(|&word| word as u32));
    out.extend(scalars.iter().map(|scalar| (scalar.to_f64() as f32).to_bits()));
    if matches!(kernel, Kernel::Gather(_)) {
        // The host's place for the kernel's number.
        out.push(0);
    }
    Ok(())
}

fn grids(kernel: &Kernel, _: u32, words: &[i64], _: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let grid = [(words[0] as u32).div_ceil(64), 1, 1];
    if matches!(kernel, Kernel::Attention(_)) { smallvec![grid, grid] } else { smallvec![grid] }
}

fn implementations(_: &Kernel, words: &[i64], _: &Target) -> SmallVec<[Implementation; 2]> {
    smallvec![Implementation { id: 0, scratch: 0, cost: words.len() as f32 }]
}

/// Options with the small library.
pub fn options() -> Options {
    Options { library: Library { implementations, shader, params, grids, ..Library::default() }, ..Options::default() }
}

/// The last adapter (a software one, where there is one), or `None` with a line that says so.
#[cfg(not(target_arch = "wasm32"))]
pub fn open(options: Options) -> Option<WgpuBackend> {
    let index = tallow_wgpu::host::adapters_blocking().len().checked_sub(1);
    match index.map(|index| WgpuBackend::open_blocking(index, options)) {
        None => {
            eprintln!("skipped: wgpu: no adapter");
            None
        }
        Some(Err(error)) => panic!("an adapter that is listed does not open: {error}"),
        Some(Ok(backend)) => Some(backend),
    }
}

/// A program under construction, with its data and buffers.
#[derive(Default)]
pub struct Builder {
    pub steps: Vec<Step>,
    pub args: Vec<Args>,
    pub words: Vec<i64>,
    pub scalars: Vec<Scalar>,
}

impl Builder {
    pub fn step(
        &mut self,
        kernel: &Arc<Kernel>,
        inputs: &[u32],
        output: u32,
        scratch: Option<u32>,
        words: &[i64],
        scalars: &[f64],
    ) -> &mut Self {
        let before = (self.words.len() as u32, self.scalars.len() as u32);
        self.words.extend_from_slice(words);
        self.scalars.extend(scalars.iter().map(|&scalar| Scalar::F(scalar)));
        self.args.push(Args { words: before.0..self.words.len() as u32, scalars: before.1..self.scalars.len() as u32 });
        self.steps.push(Step {
            kernel: Arc::clone(kernel),
            implementation: 0,
            inputs: inputs.iter().copied().collect(),
            outputs: smallvec![output],
            in_place: false,
            scratch,
            after: SmallVec::new(),
        });
        self
    }

    pub fn program(&self, buffers: usize) -> Program {
        Program { steps: self.steps.clone(), buffers }
    }

    pub fn submit(
        &self,
        backend: &WgpuBackend,
        program: &Program,
        prepared: &dyn Prepared,
        buffers: &[Buffer],
    ) -> Result<()> {
        backend
            .submit(prepared, Run { program, buffers, args: &self.args, words: &self.words, scalars: &self.scalars })
            .map(|faults| assert!(faults.is_empty(), "a GPU tells of faults with its reads: {faults:?}"))
    }

    /// Prepares and submits.
    pub fn run(&self, backend: &WgpuBackend, buffers: &[Buffer]) -> Result<()> {
        let program = self.program(buffers.len());
        let prepared = backend.prepare(&program)?;
        self.submit(backend, &program, &*prepared, buffers)
    }
}

/// A buffer with these floats.
pub fn upload(backend: &WgpuBackend, values: &[f32]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffer = backend.allocate(bytes.len() as u64).unwrap();
    backend.write(&buffer, 0, &bytes).unwrap();
    buffer
}

/// A buffer with these words.
pub fn upload_words(backend: &WgpuBackend, values: &[u32]) -> Buffer {
    let values: Vec<f32> = values.iter().map(|&value| f32::from_bits(value)).collect();
    upload(backend, &values)
}

/// The floats of a buffer.
#[cfg(not(target_arch = "wasm32"))]
pub fn download(backend: &WgpuBackend, buffer: &Buffer) -> Result<Vec<f32>, Error> {
    let bytes = pollster::block_on(backend.read(buffer, 0..buffer.bytes()))?;
    Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect())
}
