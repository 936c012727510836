//! The contract between the graph and a device. A backend is one crate that implements [`Backend`]; nothing above it
//! asks what kind of device it is.

use crate::{DType, Kernel, Op, Result, Scalar, kernel::Custom};
use smallvec::SmallVec;
use std::{any::Any, future::Future, ops::Range, pin::Pin, sync::Arc};

/// A future as backends return them. In a browser everything stays on its worker, so it need not be `Send` there.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A future as backends return them. In a browser everything stays on its worker, so it need not be `Send` there.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Memory on a device. Dropping the last handle gives the memory back to its backend, once work that was submitted
/// before has no more use for it.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Bytes that may be used.
    fn bytes(&self) -> u64;
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A shared handle to device memory.
pub type Buffer = Arc<dyn DeviceBuffer>;

/// Bytes on the host whose owner is kept alive: a mapped file, an owned vector.
pub type HostBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// What a device is and can.
#[derive(Debug, Clone)]
pub struct Info {
    /// The device's own name: `NVIDIA GeForce RTX 4090`, `AMD EPYC, 2 threads, avx512`.
    pub name: String,
    /// What it is reached through: `cpu`, `wgpu`, `cuda`.
    pub backend: &'static str,
    /// More words: the driver, the API (`Vulkan`, `Metal`).
    pub driver: String,
    /// Whether a CPU does a GPU's work: never chosen as best.
    pub software: bool,
    /// Features, by the names of their specification.
    pub features: Vec<&'static str>,
    /// Limits worth showing, by name.
    pub limits: Vec<(&'static str, u64)>,
    /// Memory in bytes, where it is known.
    pub memory: Option<u64>,
    /// Most distinct buffers (inputs and outputs) one step may bind.
    pub max_bindings: usize,
    /// Most operand and size words a map part may need: bounds fusion.
    pub max_words: usize,
    /// Whether a call may wait for the device.
    pub can_block: bool,
}

/// One way in which a backend can run a kernel. Several may be offered; [`Backend::choose`] takes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Implementation {
    /// The backend's own number, stable across runs of one version.
    pub id: u32,
    /// Scratch memory that the step needs beside its inputs and outputs, in bytes.
    pub scratch: u64,
    /// Estimated cost, in any unit that is the same for all implementations of the backend.
    pub cost: f32,
}

/// One step of a program: structure only.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// What to compute.
    pub kernel: Arc<Kernel>,
    /// Which of the backend's implementations.
    pub implementation: u32,
    /// Buffers it reads, as numbers into [`Run::buffers`].
    pub inputs: SmallVec<[u32; 6]>,
    /// Buffers it writes. An output may be the same buffer as an input of an *earlier* step, never of this one.
    pub outputs: SmallVec<[u32; 2]>,
    /// Whether the first output holds an earlier value, of which the step leaves what it does not write.
    pub in_place: bool,
    /// Scratch buffer, where the implementation asked for one.
    pub scratch: Option<u32>,
    /// Steps that must have finished before this one starts. They have lower numbers: running in order is always right.
    pub after: SmallVec<[u32; 4]>,
}

/// The structure of a plan, as given to [`Backend::prepare`] once.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// The steps, in an order that respects their dependencies.
    pub steps: Vec<Step>,
    /// How many buffers a run brings.
    pub buffers: usize,
}

/// The data of one step: ranges into [`Run::words`] and [`Run::scalars`]. Layouts are documented at each kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Args {
    /// Sizes, offsets, strides.
    pub words: Range<u32>,
    /// Scalars.
    pub scalars: Range<u32>,
}

/// Everything that a run of a prepared program brings: buffers and data.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The program.
    pub program: &'a Program,
    /// The buffers, by number. Contents of outputs are undefined before the run.
    pub buffers: &'a [Buffer],
    /// The data of each step.
    pub args: &'a [Args],
    /// All words.
    pub words: &'a [i64],
    /// All scalars.
    pub scalars: &'a [Scalar],
}

impl<'a> Run<'a> {
    /// Words and scalars of step `i`.
    pub fn data(&self, i: usize) -> (&'a [i64], &'a [Scalar]) {
        let args = &self.args[i];
        (
            &self.words[args.words.start as usize..args.words.end as usize],
            &self.scalars[args.scalars.start as usize..args.scalars.end as usize],
        )
    }
}

/// What a backend made of a program: pipelines, bind groups.
pub trait Prepared: Any + Send + Sync {
    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;
}

/// Counts that tests and `--json` report. They only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kernels launched.
    pub dispatches: u64,
    /// Command submissions.
    pub submits: u64,
    /// Pipelines compiled.
    pub pipelines: u64,
    /// Bind groups created.
    pub bind_groups: u64,
    /// Buffers created on the device (not taken from the pool).
    pub buffers: u64,
    /// Uploads: parameters of runs, and writes of buffers.
    pub writes: u64,
    /// Their bytes.
    pub written: u64,
    /// Bytes in live buffers, the pool's included.
    pub bytes: u64,
    /// The most that `bytes` has been.
    pub peak_bytes: u64,
}

/// What a step met that it cannot compute: an index out of range. The step has run to its end all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The step's number in its program.
    pub step: usize,
    /// The operation, in words.
    pub op: String,
    /// What it met.
    pub message: String,
}

/// The fault code for an index out of range; the word beside it is the index.
pub const FAULT_INDEX: u32 = 1;

/// A device. All methods may be called from any thread; `submit` is called under the engine's lock.
pub trait Backend: Send + Sync + 'static {
    /// What this device is.
    fn info(&self) -> &Info;

    /// Whether tensors of this dtype can be made; if not, what to use instead.
    fn check_dtype(&self, dtype: DType) -> Result<()>;

    /// The ways to run a kernel; empty where it cannot (then the graph decomposes, or does not fuse). `words` are an
    /// example of the data to come, for estimates; a choice must be right for any data.
    fn lower(&self, kernel: &Kernel, words: &[i64]) -> SmallVec<[Implementation; 2]>;

    /// The way to run a kernel in a new plan, out of [`Backend::lower`]'s: the cheapest by estimate, unless the backend has
    /// measured. `None` where there is none.
    fn choose(&self, kernel: &Kernel, words: &[i64]) -> Option<Implementation> {
        self.lower(kernel, words).into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// Whether the device runs a composite (softmax, a norm, attention) in a kernel of its own; where it does not, the
    /// composite is built from primitives.
    fn runs(&self, _op: Op, _dtype: DType) -> bool {
        true
    }

    /// Whether the device can run a user's kernel for operands of these dtypes; if not, what to do.
    fn check_custom(&self, custom: &Custom, inputs: &[DType], output: DType) -> Result<()>;

    /// Makes ready what the program needs. Kept as long as the plan is cached.
    fn prepare(&self, program: &Program) -> Result<Arc<dyn Prepared>>;

    /// Starts a run. Work is ordered after everything submitted before. Gives the faults that are known when it returns, at
    /// most one a step: the values computed from such a step are never read as numbers. Those of a device that is
    /// still at work come with [`Backend::read`].
    fn submit(&self, prepared: &dyn Prepared, run: Run<'_>) -> Result<Vec<Fault>>;

    /// Memory of at least `bytes`, with undefined contents.
    fn allocate(&self, bytes: u64) -> Result<Buffer>;

    /// Writes bytes, ordered after work submitted before. `offset` and length are multiples of 4, except that the last
    /// write of a buffer may end anywhere.
    fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads bytes after all submitted work, or the first fault of that work which `submit` did not tell.
    fn read(&self, buffer: &Buffer, range: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>>>;

    /// Done when all work submitted so far is done.
    fn ready(&self) -> BoxFuture<'static, Result<()>>;

    /// Bytes that a packed weight of `rows` x `cols` takes on the device.
    fn packed_bytes(&self, dtype: DType, rows: usize, cols: usize) -> Result<u64>;

    /// A weight that is packed at once: `source` holds `rows` rows of `cols` elements in the file's layout. A backend that
    /// computes from the file's own layout may keep `source` instead of copying it.
    fn pack(&self, dtype: DType, rows: usize, cols: usize, source: HostBytes, range: Range<usize>) -> Result<Buffer>;

    /// Packs whole rows from `first_row` on into a buffer of [`Backend::packed_bytes`]: weights stream.
    fn pack_rows(
        &self,
        buffer: &Buffer,
        dtype: DType,
        rows: usize,
        cols: usize,
        first_row: usize,
        bytes: &[u8],
    ) -> Result<()>;

    /// Bytes of a packed weight in the file's layout again.
    fn unpack(&self, buffer: &Buffer, dtype: DType, rows: usize, cols: usize) -> BoxFuture<'static, Result<Vec<u8>>>;

    /// Sets the counters down as they are now.
    fn counters(&self) -> Counters;

    /// Frees memory that is kept for reuse.
    fn trim(&self) {}
}
