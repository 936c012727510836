//! The CPU as a device: [`CpuBackend`] runs the graph's kernels on this machine's cores.
//!
//! A step is compiled once, when its plan is prepared ([`expr`]), and run in the order of the plan, synchronously: when
//! `submit` returns, the work is done. Maps, rows and epilogues share one interpreter ([`walk`], [`exec`]) that works on
//! blocks of elements in L1; products, norms and attention call the kernels of this crate and hand it their tiles.

mod attention;
mod axes;
mod class;
mod contract;
mod conv;
mod custom;
mod exec;
mod expr;
mod gather;
mod info;
mod map;
mod memory;
mod nest_copy;
mod norm;
mod pick;
mod pool;
mod product;
mod random;
mod reduce;
mod row;
mod scan;
mod scatter;
pub(crate) mod scratch;
mod small_float;
mod sort;
mod step;
mod turn;
mod walk;

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use tallow_graph::{
    Backend, BoxFuture, Buffer, Counters, DType, Error, Fault, HostBytes, Implementation, Info, Kernel, Prepared,
    Program, Result, Run, kernel::Custom,
};

use crate::{Isa, Pool};
use memory::{CpuBuffer, Mem, Memory};
use step::{FirstFault, StepRun};

/// This machine's processor as a device.
pub struct CpuBackend {
    info: Info,
    memory: Arc<Memory>,
    pool: PoolHandle,
    dispatches: AtomicU64,
    submits: AtomicU64,
    prepared: AtomicU64,
}

enum PoolHandle {
    Global,
    Own(Pool),
}

/// A step, compiled.
enum Code {
    Map(Vec<expr::Block>),
    Row(row::Row),
    Contract(contract::Contract),
    Conv(conv::Conv),
    Attention(attention::Code),
    /// Nothing to compile: the kernel itself says all.
    Plain,
}

/// A program, compiled: one code a step.
struct CpuPrepared {
    steps: Vec<Code>,
}

impl Prepared for CpuPrepared {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CpuBackend {
    /// The CPU with the process's threads: `TALLOW_THREADS`, else one a core.
    ///
    /// # Errors
    /// `TALLOW_CPU_ISA` names an instruction set that this processor lacks.
    pub fn new() -> Result<Self> {
        Self::build(PoolHandle::Global)
    }

    /// The CPU with `threads` threads of its own, the caller's included.
    ///
    /// # Errors
    /// As [`CpuBackend::new`].
    pub fn with_threads(threads: usize) -> Result<Self> {
        Self::build(PoolHandle::Own(Pool::new(threads)))
    }

    fn build(pool: PoolHandle) -> Result<Self> {
        let info = info::info(Isa::current()?, pool.get());
        Ok(Self {
            info,
            memory: Memory::new(),
            pool,
            dispatches: AtomicU64::new(0),
            submits: AtomicU64::new(0),
            prepared: AtomicU64::new(0),
        })
    }

    fn supports(kernel: &Kernel) -> bool {
        match kernel {
            Kernel::Map(_) => true,
            Kernel::Row(row) => row::supports(row),
            Kernel::Contract(contract) => contract::supports(contract),
            Kernel::Conv(conv) => conv::supports(conv),
            Kernel::Attention(attention) => attention::supports(attention),
            Kernel::Gather(gather) => gather::supports(gather),
            Kernel::Random(random) => random::supports(random),
            Kernel::Pick(pick) => pick::supports(pick),
            Kernel::Scatter(scatter) => scatter::supports(scatter),
            Kernel::Sort(sort) => sort::supports(sort),
            Kernel::Scan(scan) => scan::supports(scan),
            Kernel::Custom(custom) => custom::supports(custom),
        }
    }

    fn compile(kernel: &Kernel) -> Result<Code> {
        if !Self::supports(kernel) {
            return Err(Error::msg(format!("the CPU cannot run this {} kernel: {kernel:?}", kernel.name())));
        }
        Ok(match kernel {
            Kernel::Map(map) => Code::Map(map::compile(map)?),
            Kernel::Row(row) => Code::Row(row::compile(row)?),
            Kernel::Contract(contract) => Code::Contract(contract::compile(contract)?),
            Kernel::Conv(conv) => Code::Conv(conv::compile(conv)?),
            Kernel::Attention(attention) => Code::Attention(attention::compile(attention)?),
            Kernel::Gather(_)
            | Kernel::Pick(_)
            | Kernel::Scatter(_)
            | Kernel::Sort(_)
            | Kernel::Scan(_)
            | Kernel::Custom(_)
            | Kernel::Random(_) => Code::Plain,
        })
    }
}

impl PoolHandle {
    fn get(&self) -> &Pool {
        match self {
            PoolHandle::Global => Pool::global(),
            PoolHandle::Own(pool) => pool,
        }
    }
}

/// A future that has its value already: the CPU's work is done when `submit` returns.
fn done<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

/// Runs one compiled step.
fn run_step(step: &StepRun<'_>, kernel: &Kernel, code: &Code) -> Result<()> {
    match (kernel, code) {
        (Kernel::Map(kernel), Code::Map(blocks)) => map::run(step, kernel, blocks),
        (Kernel::Row(kernel), Code::Row(code)) => row::run(step, kernel, code),
        (Kernel::Contract(kernel), Code::Contract(code)) => contract::run(step, kernel, code),
        (Kernel::Conv(kernel), Code::Conv(code)) => conv::run(step, kernel, code),
        (Kernel::Attention(kernel), Code::Attention(code)) => attention::run(step, kernel, code),
        (Kernel::Gather(kernel), Code::Plain) => gather::run(step, kernel),
        (Kernel::Pick(kernel), Code::Plain) => pick::run(step, kernel),
        (Kernel::Scatter(kernel), Code::Plain) => scatter::run(step, kernel),
        (Kernel::Sort(kernel), Code::Plain) => sort::run(step, kernel),
        (Kernel::Scan(kernel), Code::Plain) => scan::run(step, kernel),
        (Kernel::Custom(kernel), Code::Plain) => custom::run(step, kernel),
        (Kernel::Random(kernel), Code::Plain) => random::run(step, kernel),
        _ => Err(Error::msg("a program was run with what was prepared for another")),
    }
}

impl Backend for CpuBackend {
    fn info(&self) -> &Info {
        &self.info
    }

    fn check_dtype(&self, _: DType) -> Result<()> {
        Ok(())
    }

    fn lower(&self, kernel: &Kernel, _: &[i64]) -> SmallVec<[Implementation; 2]> {
        let one = Implementation { id: 0, scratch: 0, cost: 1.0 };
        Self::supports(kernel).then_some(one).into_iter().collect()
    }

    /// Attention is computed in f32 only.
    fn runs(&self, op: tallow_graph::Op, dtype: DType) -> bool {
        !matches!(op, tallow_graph::Op::Attention { .. }) || dtype != DType::F64
    }

    fn check_custom(&self, custom: &Custom, _: &[DType], _: DType) -> Result<()> {
        custom.cpu().map(|_| ()).ok_or_else(|| custom.missing("a CPU closure"))
    }

    fn prepare(&self, program: &Program) -> Result<Arc<dyn Prepared>> {
        let steps: Vec<Code> = program.steps.iter().map(|step| Self::compile(&step.kernel)).collect::<Result<_>>()?;
        self.prepared.fetch_add(steps.len() as u64, Ordering::Relaxed);
        Ok(Arc::new(CpuPrepared { steps }))
    }

    fn submit(&self, prepared: &dyn Prepared, run: Run<'_>) -> Result<Vec<Fault>> {
        let prepared: &CpuPrepared =
            prepared.as_any().downcast_ref().ok_or_else(|| Error::msg("a program of another device"))?;
        let (isa, pool) = (Isa::current()?, self.pool.get());
        if prepared.steps.len() != run.program.steps.len() || run.args.len() < run.program.steps.len() {
            return Err(Error::msg("a program was run with what was prepared for another"));
        }
        let mem = |&number: &u32| -> Result<Mem> {
            let buffer = run.buffers.get(number as usize);
            let buffer = buffer.ok_or_else(|| Error::msg(format!("a run brings no buffer {number}")))?;
            CpuBuffer::of(buffer).map(CpuBuffer::mem)
        };
        let (fault, mut faults) = (FirstFault::default(), Vec::new());
        for (i, (step, code)) in run.program.steps.iter().zip(&prepared.steps).enumerate() {
            let inputs: SmallVec<[Mem; 6]> = step.inputs.iter().map(mem).collect::<Result<_>>()?;
            let outputs: SmallVec<[Mem; 2]> = step.outputs.iter().map(mem).collect::<Result<_>>()?;
            if step.outputs.iter().any(|output| step.inputs.contains(output)) {
                let name = step.kernel.name();
                return Err(Error::msg(format!("step {i} ({name}) writes a buffer that it reads")));
            }
            let (words, scalars) = run.data(i);
            let data = StepRun { isa, pool, inputs: &inputs, outputs: &outputs, words, scalars, fault: &fault };
            run_step(&data, &step.kernel, code)?;
            faults.extend(fault.take(i));
        }
        self.submits.fetch_add(1, Ordering::Relaxed);
        self.dispatches.fetch_add(prepared.steps.len() as u64, Ordering::Relaxed);
        Ok(faults)
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        self.memory.allocate(bytes, &self.info.name)
    }

    fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        CpuBuffer::of(buffer)?.write(offset, bytes)
    }

    fn read(&self, buffer: &Buffer, range: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>>> {
        done(CpuBuffer::of(buffer).and_then(|buffer| buffer.read(range)))
    }

    fn ready(&self) -> BoxFuture<'static, Result<()>> {
        done(Ok(()))
    }

    fn packed_bytes(&self, dtype: DType, rows: usize, cols: usize) -> Result<u64> {
        let bytes = dtype.bytes_for(cols).and_then(|row| row.checked_mul(rows));
        bytes.map(|bytes| bytes as u64).ok_or_else(|| {
            let block = dtype.block_elements();
            Error::op(
                "pack",
                format!("{rows} rows of {cols} elements of {dtype}: rows must be whole blocks of {block}"),
            )
        })
    }

    fn pack(&self, dtype: DType, rows: usize, cols: usize, source: HostBytes, range: Range<usize>) -> Result<Buffer> {
        let bytes = self.packed_bytes(dtype, rows, cols)?;
        if range.len() as u64 != bytes {
            let message = format!("{rows} x {cols} of {dtype} are {bytes} bytes, not {}", range.len());
            return Err(Error::op("pack", message));
        }
        Memory::keep(source, range)
    }

    fn pack_rows(
        &self,
        buffer: &Buffer,
        dtype: DType,
        rows: usize,
        cols: usize,
        first_row: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let row = self.packed_bytes(dtype, 1, cols)?;
        let whole = row > 0 && (bytes.len() as u64).is_multiple_of(row);
        let end = (bytes.len() as u64).checked_div(row).and_then(|n| n.checked_add(first_row as u64));
        if !whole || end.is_none_or(|end| end > rows as u64) {
            let message = format!("{} bytes from row {first_row} on, of {rows} rows of {row} bytes", bytes.len());
            return Err(Error::op("pack", message));
        }
        CpuBuffer::of(buffer)?.write(first_row as u64 * row, bytes)
    }

    fn unpack(&self, buffer: &Buffer, dtype: DType, rows: usize, cols: usize) -> BoxFuture<'static, Result<Vec<u8>>> {
        let bytes = self.packed_bytes(dtype, rows, cols).and_then(|bytes| CpuBuffer::of(buffer)?.read(0..bytes));
        done(bytes)
    }

    fn counters(&self) -> Counters {
        let (buffers, bytes, peak_bytes) = self.memory.counts();
        Counters {
            dispatches: self.dispatches.load(Ordering::Relaxed),
            submits: self.submits.load(Ordering::Relaxed),
            pipelines: self.prepared.load(Ordering::Relaxed),
            buffers,
            bytes,
            peak_bytes,
            ..Counters::default()
        }
    }

    fn trim(&self) {
        self.memory.trim();
    }
}
