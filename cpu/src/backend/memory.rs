//! Device memory of the CPU: 64-byte-aligned blocks from a pool of size classes, and packed weights that stay where
//! their owner (a mapped file) keeps them.
//!
//! Blocks are handed out with undefined contents, as the contract says; they are zeroed once, when they come from the
//! system, so that reading them is never undefined behaviour in Rust.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tallow_graph::{Buffer, DeviceBuffer, Error, HostBytes, Result};

use crate::pages::prefer_large;

/// Alignment of every block: a cache line, and the widest vector.
const ALIGN: usize = 64;
/// Steps of a power of two that get a class of their own.
const STEPS: usize = 4;
/// Classes: `STEPS` for each power of two from `ALIGN` on.
const CLASSES: usize = (usize::BITS as usize - 6) * STEPS;
/// Freed bytes that are kept for reuse even where less than that is in use.
const KEEP: u64 = 256 << 20;

/// The size class of `bytes`, and the size of its blocks. `None` where the size overflows.
fn class_of(bytes: usize) -> Option<(usize, usize)> {
    let bytes = bytes.max(ALIGN);
    let power = bytes.ilog2() as usize;
    let step = (1usize << power) / STEPS;
    let extra = (bytes - (1usize << power)).div_ceil(step);
    let size = (1usize << power).checked_add(extra.checked_mul(step)?)?;
    let size = size.checked_next_multiple_of(ALIGN)?;
    Some(((power - 6) * STEPS + extra, size))
}

/// A block of memory, owned.
struct Block {
    at: NonNull<u8>,
    size: usize,
}

// SAFETY: a block is plain memory without any tie to a thread.
unsafe impl Send for Block {}
// SAFETY: a shared `Block` only tells its address; what is done there is the duty of who dereferences it.
unsafe impl Sync for Block {}

impl Block {
    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size, ALIGN).ok().filter(|_| size > 0)
    }

    fn new(size: usize) -> Option<Self> {
        let layout = Self::layout(size)?;
        // SAFETY: the layout's size is not 0.
        let at = NonNull::new(unsafe { alloc(layout) })?;
        // Before the first touch. (`alloc_zeroed` touches memory of such an alignment at once.)
        prefer_large(at.as_ptr(), size);
        // SAFETY: the block's own bytes.
        unsafe { at.as_ptr().write_bytes(0, size) };
        Some(Self { at, size })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.size) {
            // SAFETY: `new` allocated this block with the same layout.
            unsafe { dealloc(self.at.as_ptr(), layout) }
        }
    }
}

/// Freed blocks by class, and the counts that the backend reports.
pub(crate) struct Memory {
    free: Mutex<Vec<Vec<Block>>>,
    /// Bytes in `free`.
    kept: AtomicU64,
    /// Bytes in blocks that are in use or in `free`.
    bytes: AtomicU64,
    peak: AtomicU64,
    created: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            free: Mutex::new((0..CLASSES + STEPS).map(|_| Vec::new()).collect()),
            kept: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            created: AtomicU64::new(0),
        })
    }

    /// A buffer of at least `bytes`, from the pool where it has one.
    pub fn allocate(self: &Arc<Self>, bytes: u64, device: &str) -> Result<Buffer> {
        let failed = || Error::OutOfMemory {
            device: device.to_owned(),
            bytes,
            hint: "Free tensors that are no longer needed, or use a smaller batch or context",
        };
        let (class, size) = usize::try_from(bytes).ok().and_then(class_of).ok_or_else(failed)?;
        let kept = lock(&self.free).get_mut(class).and_then(Vec::pop);
        let block = match kept {
            Some(block) => {
                self.kept.fetch_sub(block.size as u64, Ordering::Relaxed);
                block
            }
            None => {
                let block = Block::new(size).or_else(|| {
                    // The pool's other classes may hold what is missing.
                    self.trim();
                    Block::new(size)
                });
                let block = block.ok_or_else(failed)?;
                let total = self.bytes.fetch_add(block.size as u64, Ordering::Relaxed) + block.size as u64;
                self.peak.fetch_max(total, Ordering::Relaxed);
                self.created.fetch_add(1, Ordering::Relaxed);
                block
            }
        };
        Ok(Arc::new(CpuBuffer { bytes, store: Store::Block { block: Some(block), class, memory: Arc::clone(self) } }))
    }

    /// A buffer that is `range` of bytes which somebody else owns. It can only be read.
    pub fn keep(source: HostBytes, range: Range<usize>) -> Result<Buffer> {
        let have = (*source).as_ref().len();
        if range.start > range.end || range.end > have {
            let message = format!("bytes {}..{} of a weight, from a source of {have}", range.start, range.end);
            return Err(Error::op("pack", message));
        }
        Ok(Arc::new(CpuBuffer { bytes: range.len() as u64, store: Store::Host { source, range } }))
    }

    fn give_back(&self, block: Block, class: usize) {
        let size = block.size as u64;
        let kept = self.kept.load(Ordering::Relaxed);
        let used = self.bytes.load(Ordering::Relaxed).saturating_sub(kept);
        if kept + size <= KEEP.max(used)
            && let Some(list) = lock(&self.free).get_mut(class)
        {
            self.kept.fetch_add(size, Ordering::Relaxed);
            list.push(block);
            return;
        }
        self.bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// Gives the pool's free blocks back to the system.
    pub fn trim(&self) {
        let freed: Vec<Block> = lock(&self.free).iter_mut().flat_map(std::mem::take).collect();
        let size = freed.iter().map(|block| block.size as u64).sum();
        self.kept.fetch_sub(size, Ordering::Relaxed);
        self.bytes.fetch_sub(size, Ordering::Relaxed);
    }

    /// (blocks created, bytes now, most bytes).
    pub fn counts(&self) -> (u64, u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.created), get(&self.bytes), get(&self.peak))
    }
}

enum Store {
    Block {
        /// `None` only while it is dropped.
        block: Option<Block>,
        class: usize,
        memory: Arc<Memory>,
    },
    Host {
        source: HostBytes,
        range: Range<usize>,
    },
}

/// A buffer of the CPU backend.
pub(crate) struct CpuBuffer {
    bytes: u64,
    store: Store,
}

impl Drop for CpuBuffer {
    fn drop(&mut self) {
        if let Store::Block { block, class, memory } = &mut self.store
            && let Some(block) = block.take()
        {
            memory.give_back(block, *class);
        }
    }
}

impl DeviceBuffer for CpuBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An address and a length in bytes: what a step computes with. The buffers outlive the run that borrows them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mem {
    pub at: *mut u8,
    pub len: usize,
    /// Whether kernels may write here.
    pub writable: bool,
}

// SAFETY: an address alone; kernels keep what they read and write apart (see `Backend::submit` for why they can).
unsafe impl Send for Mem {}
// SAFETY: as above.
unsafe impl Sync for Mem {}

impl Mem {
    /// The address. (A closure that names the field would capture the bare pointer, which threads may not share.)
    pub fn at(&self) -> *mut u8 {
        self.at
    }
}

impl CpuBuffer {
    /// The buffer behind a handle, if this backend made it.
    pub fn of(buffer: &Buffer) -> Result<&CpuBuffer> {
        (**buffer).as_any().downcast_ref().ok_or_else(|| {
            Error::msg("a buffer of another device was given to the CPU: move the tensor with to_device first")
        })
    }

    /// Where it lies.
    pub fn mem(&self) -> Mem {
        match &self.store {
            Store::Block { block: Some(block), .. } => {
                Mem { at: block.at.as_ptr(), len: block.size.min(self.bytes as usize), writable: true }
            }
            Store::Block { block: None, .. } => Mem { at: NonNull::dangling().as_ptr(), len: 0, writable: false },
            Store::Host { source, range } => {
                // Asked for each time: `as_ref` need not give the same slice twice.
                let bytes = (**source).as_ref().get(range.clone()).unwrap_or_default();
                Mem { at: bytes.as_ptr().cast_mut(), len: bytes.len(), writable: false }
            }
        }
    }

    /// Copies `bytes` to `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mem = self.mem();
        let fits = offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= mem.len as u64);
        if !fits || !mem.writable {
            let why = if fits { "which is a file's own memory" } else { "which is shorter" };
            let message = format!("{} bytes at {offset} of a buffer of {}, {why}", bytes.len(), mem.len);
            return Err(Error::op("write", message));
        }
        // SAFETY: the range was checked; the engine orders writes against all other uses of the buffer, and `bytes` is
        // a Rust slice, which cannot be this buffer's memory (none is ever lent out).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), mem.at.add(offset as usize), bytes.len()) }
        Ok(())
    }

    /// A copy of `range`.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let mem = self.mem();
        if range.start > range.end || range.end > mem.len as u64 {
            let message = format!("bytes {}..{} of a buffer of {}", range.start, range.end, mem.len);
            return Err(Error::op("read", message));
        }
        let len = (range.end - range.start) as usize;
        let mut out = Vec::new();
        out.try_reserve_exact(len).map_err(|_| Error::OutOfMemory {
            device: "cpu".to_owned(),
            bytes: len as u64,
            hint: "Read a part at a time",
        })?;
        // SAFETY: the range was checked, blocks are initialised, and nothing writes to a buffer while it is read: the
        // engine orders the two.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(mem.at.add(range.start as usize), len) });
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_their_sizes_and_waste_little() {
        for bytes in (0..5000).chain([1 << 20, (1 << 20) + 1, 3 << 30]) {
            let (class, size) = class_of(bytes).unwrap();
            assert!(size >= bytes && size % ALIGN == 0 && class < CLASSES + STEPS, "{bytes}");
            assert!(bytes < 1024 || size <= bytes + bytes / 4 + ALIGN, "{bytes} {size}");
        }
        // A class has one size only, or a block could be too short for its next user.
        let mut sizes = std::collections::HashMap::new();
        for bytes in 0..100_000 {
            let (class, size) = class_of(bytes).unwrap();
            assert_eq!(*sizes.entry(class).or_insert(size), size, "{bytes}");
        }
        assert!(class_of(usize::MAX).is_none());
    }

    #[test]
    fn blocks_come_back() {
        let memory = Memory::new();
        let a = memory.allocate(1000, "cpu").unwrap();
        let at = CpuBuffer::of(&a).unwrap().mem().at;
        assert_eq!(at as usize % ALIGN, 0);
        drop(a);
        let b = memory.allocate(900, "cpu").unwrap();
        assert_eq!(CpuBuffer::of(&b).unwrap().mem().at, at);
        assert_eq!(memory.counts().0, 1);
        drop(b);
        memory.trim();
        assert_eq!(memory.counts().1, 0);
    }

    #[test]
    fn too_much_is_an_error_not_an_abort() {
        let memory = Memory::new();
        for bytes in [u64::MAX, u64::MAX / 2, 1 << 60] {
            assert!(matches!(memory.allocate(bytes, "cpu"), Err(Error::OutOfMemory { .. })));
        }
    }

    #[test]
    fn host_bytes_are_not_copied_nor_written() {
        let bytes: HostBytes = Arc::new(vec![1u8, 2, 3, 4]);
        let at = (*bytes).as_ref().as_ptr();
        let buffer = Memory::keep(Arc::clone(&bytes), 1..3).unwrap();
        let buffer = CpuBuffer::of(&buffer).unwrap();
        assert_eq!(buffer.mem().at.cast_const(), at.wrapping_add(1));
        assert_eq!(buffer.read(0..2).unwrap(), [2, 3]);
        assert!(buffer.write(0, &[9]).is_err() && buffer.read(1..3).is_err());
        assert!(Memory::keep(bytes, 2..5).is_err());
    }
}
