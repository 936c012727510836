//! The reference backend: every kernel as the plainest loop, in f64. It is the oracle of the other backends and the device
//! of the graph's own tests; it also records the programs it runs. Never use it for work.

mod conv;
mod index;
mod run;
mod value;

use crate::{
    Backend, BoxFuture, Buffer, Counters, DType, DeviceBuffer, Error, Fault, HostBytes, Implementation, Info, Kernel,
    Prepared, Program, Result, Run, kernel::Custom,
};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use std::{
    any::Any,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Bytes, and the count of live buffers that they are one of.
struct Memory(Mutex<Vec<u8>>, Arc<AtomicUsize>);

impl Memory {
    fn buffer(bytes: Vec<u8>, live: &Arc<AtomicUsize>) -> Buffer {
        live.fetch_add(1, Ordering::Relaxed);
        Arc::new(Memory(Mutex::new(bytes), live.clone()))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeviceBuffer for Memory {
    fn bytes(&self) -> u64 {
        self.0.lock().len() as u64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Nothing;

impl Prepared for Nothing {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// See the module.
pub struct Reference {
    info: Info,
    programs: Mutex<Vec<Program>>,
    counters: Mutex<Counters>,
    live: Arc<AtomicUsize>,
    refuse: fn(&Kernel) -> bool,
}

impl Default for Reference {
    fn default() -> Self {
        Self::refusing(|_| false)
    }
}

impl Reference {
    /// A backend that has no implementation of the kernels for which `refuse` holds.
    pub fn refusing(refuse: fn(&Kernel) -> bool) -> Self {
        Self {
            info: Info {
                name: "reference".into(),
                backend: "reference",
                driver: "f64 loops".into(),
                software: true,
                features: Vec::new(),
                limits: Vec::new(),
                memory: None,
                max_bindings: 8,
                max_words: 240,
                can_block: true,
            },
            programs: Mutex::new(Vec::new()),
            counters: Mutex::new(Counters::default()),
            live: Arc::default(),
            refuse,
        }
    }

    /// Buffers that somebody still holds.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Programs run since the last call, oldest first.
    pub fn take_programs(&self) -> Vec<Program> {
        std::mem::take(&mut *self.programs.lock())
    }
}

fn memory(buffer: &Buffer) -> Result<&Memory> {
    buffer.as_any().downcast_ref().ok_or_else(|| Error::msg("a buffer of another backend"))
}

impl Backend for Reference {
    fn info(&self) -> &Info {
        &self.info
    }

    fn check_dtype(&self, _: DType) -> Result<()> {
        Ok(())
    }

    fn lower(&self, kernel: &Kernel, _words: &[i64]) -> SmallVec<[Implementation; 2]> {
        if (self.refuse)(kernel) {
            return SmallVec::new();
        }
        smallvec![Implementation { id: 0, scratch: 0, cost: 1.0 }]
    }

    fn check_custom(&self, custom: &Custom, _: &[DType], _: DType) -> Result<()> {
        custom.cpu().map(|_| ()).ok_or_else(|| custom.missing("a CPU closure"))
    }

    fn prepare(&self, _program: &Program) -> Result<Arc<dyn Prepared>> {
        self.counters.lock().pipelines += 1;
        Ok(Arc::new(Nothing))
    }

    fn submit(&self, _prepared: &dyn Prepared, run: Run<'_>) -> Result<Vec<Fault>> {
        let mut faults = Vec::new();
        for (i, step) in run.program.steps.iter().enumerate() {
            if step.outputs.iter().any(|out| step.inputs.contains(out)) {
                return Err(Error::msg("a step writes what it reads"));
            }
            let (words, scalars) = run.data(i);
            let inputs: Vec<Vec<u8>> = step
                .inputs
                .iter()
                .map(|&b| memory(&run.buffers[b as usize]).map(|m| m.0.lock().clone()))
                .collect::<Result<_>>()?;
            let mut outputs: Vec<Vec<u8>> = step
                .outputs
                .iter()
                .map(|&b| memory(&run.buffers[b as usize]).map(|m| m.0.lock().clone()))
                .collect::<Result<_>>()?;
            let fault = run::step(&step.kernel, words, scalars, &inputs, &mut outputs);
            if let Err(message) = fault {
                faults.push(Fault { step: i, op: step.kernel.name().to_owned(), message });
            }
            for (&b, bytes) in step.outputs.iter().zip(outputs) {
                *memory(&run.buffers[b as usize])?.0.lock() = bytes;
            }
        }
        let mut counters = self.counters.lock();
        counters.submits += 1;
        counters.dispatches += run.program.steps.len() as u64;
        self.programs.lock().push(run.program.clone());
        Ok(faults)
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        if bytes > 1 << 40 {
            let hint = "The reference is for tests.";
            return Err(Error::OutOfMemory { device: self.info.name.clone(), bytes, hint });
        }
        self.counters.lock().buffers += 1;
        // Poisoned, so that reading what was never written shows.
        Ok(Memory::buffer(vec![0xA5; bytes as usize], &self.live))
    }

    fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut memory = memory(buffer)?.0.lock();
        let range = offset as usize..offset as usize + bytes.len();
        let place = memory.get_mut(range).ok_or_else(|| Error::msg("a write past the end of a buffer"))?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, buffer: &Buffer, range: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>>> {
        let result = memory(buffer).and_then(|m| {
            let bytes = m.0.lock();
            let part = bytes.get(range.start as usize..range.end as usize);
            part.map(<[u8]>::to_vec).ok_or_else(|| Error::msg("a read past the end of a buffer"))
        });
        Box::pin(std::future::ready(result))
    }

    fn ready(&self) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn packed_bytes(&self, dtype: DType, rows: usize, cols: usize) -> Result<u64> {
        let bytes = rows.checked_mul(cols).and_then(|n| dtype.bytes_for(n));
        bytes
            .map(|b| b as u64)
            .ok_or_else(|| Error::op("pack", format!("[{rows}, {cols}] of {dtype} is not whole blocks")))
    }

    fn pack(&self, _: DType, _: usize, _: usize, source: HostBytes, range: Range<usize>) -> Result<Buffer> {
        let bytes = (*source).as_ref().get(range).ok_or_else(|| Error::msg("a range past the end of the source"))?;
        Ok(Memory::buffer(bytes.to_vec(), &self.live))
    }

    fn pack_rows(
        &self,
        buffer: &Buffer,
        dtype: DType,
        rows: usize,
        cols: usize,
        first: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let total = self.packed_bytes(dtype, rows, cols)?;
        self.write(buffer, total / rows.max(1) as u64 * first as u64, bytes)
    }

    fn unpack(&self, buffer: &Buffer, dtype: DType, rows: usize, cols: usize) -> BoxFuture<'static, Result<Vec<u8>>> {
        match self.packed_bytes(dtype, rows, cols) {
            Ok(bytes) => self.read(buffer, 0..bytes),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn counters(&self) -> Counters {
        *self.counters.lock()
    }
}
