//! The backend itself: [`Backend`] in terms of the parts beside it.

use super::{
    open::Library,
    pipelines::Pipelines,
    pool::{Gpu, Pool, WgpuBuffer},
    read::Reader,
    submit::{Recorder, WgpuPrepared},
    write::{Joined, Writer},
};
use crate::{
    library::{Checked, Target},
    quant,
};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::{
    future::ready,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};
use tallow_graph::{
    Backend, BoxFuture, Buffer, Counters, DType, DeviceBuffer, Error, Fault, HostBytes, Implementation, Info, Kernel,
    Op, Prepared, Program, Result, Run, kernel::Custom,
};

/// A GPU, reached through wgpu.
pub struct WgpuBackend {
    info: Info,
    inner: Arc<Inner>,
}

/// What futures keep alive.
pub(super) struct Inner {
    pub(super) gpu: Arc<Gpu>,
    pub(super) pool: Arc<Pool>,
    pub(super) target: Target,
    pub(super) library: Library,
    pub(super) checks: bool,
    pub(super) pipelines: Mutex<Pipelines>,
    pub(super) recorder: Mutex<Recorder>,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    /// Users' kernels that have been found good.
    pub(super) customs: Checked,
    #[cfg(not(target_arch = "wasm32"))]
    tuner: Option<super::tune::Tuner>,
}

impl Inner {
    /// The buffer as this backend's own.
    pub(super) fn ours<'a>(&self, buffer: &'a Buffer) -> Result<&'a WgpuBuffer> {
        buffer
            .as_any()
            .downcast_ref::<WgpuBuffer>()
            .filter(|buffer| buffer.is_of(&self.pool))
            .ok_or_else(|| Error::Device(format!("a buffer of another device was given to {}", self.gpu.name)))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.trim_reads();
        let recorder = self.recorder.get_mut();
        for buffer in recorder.own_buffers() {
            self.gpu.destroy_buffer(&buffer);
        }
    }
}

impl WgpuBackend {
    pub(super) fn new(
        pool: Arc<Pool>,
        info: Info,
        target: Target,
        library: Library,
        checks: bool,
        #[cfg(not(target_arch = "wasm32"))] tuner: Option<super::tune::Tuner>,
    ) -> Result<Self> {
        let gpu = Arc::clone(&pool.gpu);
        gpu.check()?;
        let inner = Arc::new(Inner {
            gpu,
            pool,
            target,
            library,
            checks,
            pipelines: Mutex::default(),
            recorder: Mutex::default(),
            reader: Reader::default(),
            writer: Writer::default(),
            customs: Checked::default(),
            #[cfg(not(target_arch = "wasm32"))]
            tuner,
        });
        Ok(Self { info, inner })
    }

    /// What kernels are told about this device.
    pub fn target(&self) -> &Target {
        &self.inner.target
    }

    /// The device and its queue, for those who bring their own wgpu code.
    pub fn wgpu(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.inner.gpu.device, &self.inner.gpu.queue)
    }

    fn check_packed(&self, dtype: DType, rows: usize, cols: usize, buffer: &WgpuBuffer) -> Result<()> {
        let needed = quant::packed_bytes(dtype, rows, cols)?;
        if buffer.bytes() < needed {
            return Err(Error::op(
                "pack",
                format!("{rows} x {cols} of {dtype} take {needed} bytes, the buffer has {}", buffer.bytes()),
            ));
        }
        Ok(())
    }
}

impl Backend for WgpuBackend {
    fn info(&self) -> &Info {
        &self.info
    }

    fn check_dtype(&self, dtype: DType) -> Result<()> {
        if dtype == DType::F64 {
            return Err(Error::Device(format!("{}: WebGPU has no F64: use F32, or Device::Cpu", self.info.name)));
        }
        Ok(())
    }

    fn runs(&self, op: Op, dtype: DType) -> bool {
        match op {
            // Products of integers are rare: maps and sums do.
            Op::Contract { .. } => !dtype.is_int(),
            _ => true,
        }
    }

    fn lower(&self, kernel: &Kernel, words: &[i64]) -> SmallVec<[Implementation; 2]> {
        (self.inner.library.implementations)(kernel, words, &self.inner.target)
    }

    fn choose(&self, kernel: &Kernel, words: &[i64]) -> Option<Implementation> {
        let ways = self.lower(kernel, words);
        #[cfg(not(target_arch = "wasm32"))]
        if let Some(id) = self.inner.tuner.as_ref().and_then(|t| t.choose(&self.inner, kernel, words, &ways)) {
            return ways.into_iter().find(|way| way.id == id);
        }
        ways.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    fn check_custom(&self, custom: &Custom, inputs: &[DType], output: DType) -> Result<()> {
        self.inner.customs.check(custom, inputs, output, &self.inner.target)
    }

    fn prepare(&self, program: &Program) -> Result<Arc<dyn Prepared>> {
        Ok(Arc::new(self.inner.prepare_program(program)?))
    }

    fn submit(&self, prepared: &dyn Prepared, run: Run<'_>) -> Result<Vec<Fault>> {
        let prepared = prepared.as_any().downcast_ref::<WgpuPrepared>();
        let prepared = prepared.ok_or_else(|| Error::msg("submit: a program that another backend prepared"))?;
        self.inner.run(prepared, run)?;
        // A GPU is still at work: its faults come with the reads.
        Ok(Vec::new())
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        Ok(Arc::new(self.inner.pool.allocate(bytes)?))
    }

    fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_bytes(self.inner.ours(buffer)?, offset, bytes)
    }

    fn read(&self, buffer: &Buffer, range: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>>> {
        match self.inner.read_bytes(buffer, range) {
            Ok(future) => future,
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn ready(&self) -> BoxFuture<'static, Result<()>> {
        self.inner.when_ready()
    }

    fn packed_bytes(&self, dtype: DType, rows: usize, cols: usize) -> Result<u64> {
        quant::packed_bytes(dtype, rows, cols)
    }

    fn pack(&self, dtype: DType, rows: usize, cols: usize, source: HostBytes, range: Range<usize>) -> Result<Buffer> {
        let all = (*source).as_ref();
        let bytes = all
            .get(range.clone())
            .ok_or_else(|| Error::op("pack", format!("bytes {range:?} of a source of {} bytes", all.len())))?;
        let buffer = self.allocate(quant::packed_bytes(dtype, rows, cols)?)?;
        self.pack_rows(&buffer, dtype, rows, cols, 0, bytes)?;
        Ok(buffer)
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
        let ours = self.inner.ours(buffer)?;
        self.check_packed(dtype, rows, cols, ours)?;
        let mut joined = Joined::new(&self.inner, ours);
        quant::pack_rows(dtype, rows, cols, first_row, bytes, &mut |offset, bytes| joined.write(offset, bytes))?;
        joined.flush()
    }

    fn unpack(&self, buffer: &Buffer, dtype: DType, rows: usize, cols: usize) -> BoxFuture<'static, Result<Vec<u8>>> {
        let needed = self.inner.ours(buffer).and_then(|ours| {
            self.check_packed(dtype, rows, cols, ours)?;
            quant::packed_bytes(dtype, rows, cols)
        });
        match needed {
            Ok(needed) => {
                let packed = self.read(buffer, 0..needed);
                Box::pin(async move { quant::unpack(dtype, rows, cols, &packed.await?) })
            }
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn counters(&self) -> Counters {
        let counts = &self.inner.gpu.counts;
        Counters {
            dispatches: counts.dispatches.load(Ordering::Relaxed),
            submits: counts.submits.load(Ordering::Relaxed),
            pipelines: counts.pipelines.load(Ordering::Relaxed),
            bind_groups: counts.bind_groups.load(Ordering::Relaxed),
            buffers: counts.buffers.load(Ordering::Relaxed),
            writes: counts.writes.load(Ordering::Relaxed),
            written: counts.written.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            peak_bytes: counts.peak_bytes.load(Ordering::Relaxed),
        }
    }

    fn trim(&self) {
        self.inner.submit_reads();
        self.inner.pool.trim();
        self.inner.trim_reads();
    }
}
