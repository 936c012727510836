//! Device memory by size class. A buffer that is dropped comes back here and is handed out again at once: the queue runs
//! work in the order of the calls, so whoever gets it next writes it after its last reader is done.
//!
//! Classes are spaced so that at most a quarter of a small buffer and a sixteenth of a large one is waste. Memory that
//! nobody asked for in a long while goes back to the driver by an explicit `destroy`: in a browser, dropping frees nothing.

use super::errors::{Errors, out_of_memory};
use parking_lot::Mutex;
use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tallow_graph::{DeviceBuffer, Error, Result};

/// Free memory below this is never given back by age.
const KEEP_FREE: u64 = 256 << 20;
/// Submits after which unused free memory counts as old.
const OLD: u64 = 512;

/// What any part of the backend may need of the device.
pub(super) struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    /// The name for messages.
    pub(super) name: String,
    pub(super) limits: wgpu::Limits,
    pub(super) errors: Arc<Errors>,
    pub(super) counts: Counts,
}

/// The atomic side of [`tallow_graph::Counters`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) dispatches: AtomicU64,
    pub(super) submits: AtomicU64,
    pub(super) pipelines: AtomicU64,
    pub(super) bind_groups: AtomicU64,
    pub(super) buffers: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) peak_bytes: AtomicU64,
}

impl Counts {
    fn created(&self, bytes: u64) {
        self.buffers.fetch_add(1, Ordering::Relaxed);
        let now = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(now, Ordering::Relaxed);
    }
}

impl Gpu {
    /// Puts bytes on their way into a buffer, counted.
    pub(super) fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.queue.write_buffer(buffer, offset, bytes);
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    /// The first failure, if there was one.
    pub(super) fn check(&self) -> Result<()> {
        let checked = self.errors.check(&self.name);
        // A lost device fails at many things before it says, when it is next driven, that it is lost.
        #[cfg(not(target_arch = "wasm32"))]
        if checked.is_err() && self.device.poll(wgpu::PollType::Poll).is_ok() {
            return self.errors.check(&self.name);
        }
        checked
    }

    /// A new buffer of exactly `bytes`, counted.
    pub(super) fn create_buffer(&self, label: &str, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer> {
        if bytes > self.limits.max_buffer_size {
            return Err(too_large(&self.name, bytes, "max_buffer_size", self.limits.max_buffer_size));
        }
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size: bytes, usage, mapped_at_creation: false };
        let made = self.errors.scoped(&self.device, wgpu::ErrorFilter::OutOfMemory, bytes, label, || {
            self.device.create_buffer(&descriptor)
        });
        match made {
            Ok(buffer) => {
                self.counts.created(bytes);
                Ok(buffer)
            }
            Err(failure) => Err(failure.to_error(&self.name)),
        }
    }

    /// Gives memory back to the driver, once work that was submitted before has no more use for it.
    pub(super) fn destroy_buffer(&self, buffer: &wgpu::Buffer) {
        self.counts.bytes.fetch_sub(buffer.size(), Ordering::Relaxed);
        buffer.destroy();
    }
}

fn too_large(device: &str, bytes: u64, limit: &str, value: u64) -> Error {
    Error::op(
        "allocate",
        format!(
            "{bytes} bytes are more than {device} holds in one buffer ({limit} = {value}): split the tensor, load weights \
             quantized, or use Device::Cpu"
        ),
    )
}

/// The capacity that a request of `bytes` gets: a multiple of 16.
pub(super) fn class_of(bytes: u64) -> u64 {
    let bytes = bytes.max(16);
    // 4 classes an octave, 16 from 1 MiB on.
    let parts = if bytes >= 1 << 20 { 16 } else { 4 };
    let octave = 1u64 << (63 - bytes.leading_zeros());
    let step = (octave / parts).max(16);
    bytes.div_ceil(step).saturating_mul(step)
}

/// Memory that may be handed out again.
struct Free {
    raw: Raw,
    /// [`State::tick`] at which it came back.
    since: u64,
}

/// A buffer on the device; `id` stays the same when it is handed out again.
struct Raw {
    id: u64,
    buffer: wgpu::Buffer,
}

#[derive(Default)]
struct State {
    /// By capacity, then id. The lowest id is handed out first, so that a program which asks for the same sizes again
    /// gets the same buffers in the same places, in whatever order they came back: its bind groups stay valid.
    free: BTreeMap<(u64, u64), Free>,
    free_bytes: u64,
    tick: u64,
    next_id: u64,
    /// Destroyed since [`Pool::take_dead`] was called.
    dead: Vec<u64>,
}

/// The pool of one device.
pub(super) struct Pool {
    pub(super) gpu: Arc<Gpu>,
    /// The most bytes that may live at once, where the user set a bound.
    limit: Option<u64>,
    state: Mutex<State>,
}

/// Device memory of the wgpu backend; returns to its pool when dropped.
pub struct WgpuBuffer {
    raw: Option<Raw>,
    bytes: u64,
    pool: Arc<Pool>,
}

impl std::fmt::Debug for WgpuBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WgpuBuffer").field("bytes", &self.bytes).field("id", &self.id()).finish()
    }
}

impl WgpuBuffer {
    /// The wgpu buffer: at least [`DeviceBuffer::bytes`] long, a multiple of 16. `None` never happens before the drop.
    pub fn wgpu(&self) -> Option<&wgpu::Buffer> {
        self.raw.as_ref().map(|raw| &raw.buffer)
    }

    pub(super) fn id(&self) -> u64 {
        self.raw.as_ref().map_or(u64::MAX, |raw| raw.id)
    }

    /// Bytes of the wgpu buffer.
    pub(super) fn capacity(&self) -> u64 {
        self.raw.as_ref().map_or(0, |raw| raw.buffer.size())
    }

    /// Whether the buffer belongs to that pool's device.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl DeviceBuffer for WgpuBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take() {
            self.pool.give_back(raw);
        }
    }
}

impl Pool {
    pub(super) fn new(gpu: Arc<Gpu>, limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self { gpu, limit, state: Mutex::default() })
    }

    /// The capacity of a buffer for `bytes`, and the most that a buffer in its place may have. What fits one binding
    /// stays so: a step that binds more is cut into pieces ([`super::submit`]).
    fn capacities(&self, bytes: u64) -> Result<(u64, u64)> {
        let limits = &self.gpu.limits;
        let most = if bytes <= limits.max_storage_buffer_binding_size {
            limits.max_storage_buffer_binding_size.min(limits.max_buffer_size)
        } else {
            limits.max_buffer_size
        };
        if bytes > most {
            return Err(too_large(&self.gpu.name, bytes, "max_buffer_size", limits.max_buffer_size));
        }
        // Near the limit a class may lie beyond it; bindings are multiples of 4, and the limit is one too.
        let class = class_of(bytes).min((most & !15).max(bytes.next_multiple_of(4)));
        // A somewhat larger one will do, within the same bound on waste.
        Ok((class, (class + class / 16).min(most)))
    }

    /// Memory of at least `bytes`, from the pool or new.
    pub(super) fn allocate(self: &Arc<Self>, bytes: u64) -> Result<WgpuBuffer> {
        self.gpu.check()?;
        let (class, most) = self.capacities(bytes)?;
        let raw = match self.take_free(class, most) {
            Some(raw) => raw,
            None => self.create(class)?,
        };
        Ok(WgpuBuffer { raw: Some(raw), bytes, pool: Arc::clone(self) })
    }

    fn take_free(&self, class: u64, most: u64) -> Option<Raw> {
        let mut state = self.state.lock();
        let (&key, _) = state.free.range((class, 0)..=(most, u64::MAX)).next()?;
        let raw = state.free.remove(&key)?.raw;
        state.free_bytes -= key.0;
        Some(raw)
    }

    fn create(&self, class: u64) -> Result<Raw> {
        if let Some(limit) = self.limit {
            let live = || self.gpu.counts.bytes.load(Ordering::Relaxed).saturating_add(class);
            if live() > limit {
                self.trim();
            }
            if live() > limit {
                return Err(out_of_memory(&self.gpu.name, class));
            }
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = match self.gpu.create_buffer("tallow", class, usage) {
            Err(Error::OutOfMemory { .. }) => {
                // Memory kept for reuse may be what is missing; it is free once the work before it is done.
                self.trim();
                #[cfg(not(target_arch = "wasm32"))]
                if self.gpu.device.poll(wgpu::PollType::wait_indefinitely()).is_err() {
                    self.gpu.check()?;
                }
                self.gpu.create_buffer("tallow", class, usage)?
            }
            other => other?,
        };
        let mut state = self.state.lock();
        state.next_id += 1;
        Ok(Raw { id: state.next_id, buffer })
    }

    fn give_back(&self, raw: Raw) {
        let mut state = self.state.lock();
        let capacity = raw.buffer.size();
        let since = state.tick;
        state.free_bytes += capacity;
        state.free.insert((capacity, raw.id), Free { raw, since });
    }

    /// To be called at each submit: time passes, and now and then memory that has been free for long goes back.
    pub(super) fn tick(&self) {
        let mut state = self.state.lock();
        state.tick += 1;
        if !state.tick.is_multiple_of(64) || state.free_bytes <= KEEP_FREE {
            return;
        }
        let before = state.tick.saturating_sub(OLD);
        self.destroy_where(&mut state, |free| free.since < before);
    }

    /// Gives all free memory back to the driver.
    pub(super) fn trim(&self) {
        self.destroy_where(&mut self.state.lock(), |_| true);
    }

    fn destroy_where(&self, state: &mut State, old: impl Fn(&Free) -> bool) {
        let State { free, free_bytes, dead, .. } = state;
        free.retain(|&(capacity, id), entry| {
            let keep = !old(entry);
            if !keep {
                self.gpu.destroy_buffer(&entry.raw.buffer);
                dead.push(id);
                *free_bytes -= capacity;
            }
            keep
        });
    }

    /// The ids of buffers that were destroyed since the last call: nothing made from them is of use any more.
    pub(super) fn take_dead(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        if state.dead.is_empty() { Vec::new() } else { std::mem::take(&mut state.dead) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_little_and_never_shrink() {
        let mut bytes = 0u64;
        while bytes < 1 << 36 {
            for bytes in [bytes, bytes + 1, bytes + 3] {
                let class = class_of(bytes);
                assert!(class >= bytes && class.is_multiple_of(16), "{bytes} -> {class}");
                assert_eq!(class_of(class), class, "{bytes}");
                let waste = class - bytes;
                let bound = if bytes >= 1 << 20 { bytes / 16 } else { (bytes / 4).max(16) };
                assert!(waste <= bound, "{bytes} -> {class}");
            }
            bytes += bytes / 7 + 1;
        }
    }
}
