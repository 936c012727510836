//! Downloads, and the faults that they bring along.
//!
//! A kernel that meets something impossible sets the device's fault word {code, kernel, index}, the first one winning.
//! Each read has a number; in queue order it moves the word into slot `number % SLOTS` of a log, clears the word, and
//! takes the whole log with its bytes. So a fault is seen by every read that was under way when it was first
//! reported, by none that starts after, and a fault that happens in between is not lost.
//!
//! A read's copies are recorded at once, and submitted with whatever is submitted next (work, an upload), or when somebody
//! waits for the bytes: a loop that starts a step before it looks at the last one's result submits once a step.

use super::{backend::Inner, pool::Gpu};
use futures_channel::oneshot;
use parking_lot::Mutex;
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tallow_graph::{BoxFuture, Buffer, DeviceBuffer, Error, FAULT_INDEX, Result};

/// Reads whose faults the log remembers.
const SLOTS: u64 = 64;
/// Bytes of the fault word: three words and a spare.
const WORD: u64 = 16;
const LOG: u64 = SLOTS * WORD;
/// Bytes that one staging buffer holds at most.
const PART: u64 = 256 << 20;
/// Staging buffers up to this size are kept.
const KEEP: u64 = 16 << 20;
/// How many of them.
const KEPT: usize = 8;

/// The fault word and its log, made when first needed.
#[derive(Default)]
pub(super) struct Faults {
    word: Option<wgpu::Buffer>,
    log: Option<wgpu::Buffer>,
    /// Reads so far.
    reads: u64,
}

impl Faults {
    pub(super) fn word(&mut self, gpu: &Gpu) -> Result<&wgpu::Buffer> {
        made(&mut self.word, gpu, "tallow fault", WORD)
    }

    pub(super) fn take_buffers(&mut self) -> impl Iterator<Item = wgpu::Buffer> {
        self.word.take().into_iter().chain(self.log.take())
    }

    /// Records the move of the word into the log, and the log's copy to `staging` at `at`. Returns the read's number.
    fn record(
        &mut self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        staging: &wgpu::Buffer,
        at: u64,
    ) -> Result<u64> {
        self.reads += 1;
        let number = self.reads;
        let word = made(&mut self.word, gpu, "tallow fault", WORD)?;
        let log = made(&mut self.log, gpu, "tallow fault log", LOG)?;
        encoder.copy_buffer_to_buffer(word, 0, log, number % SLOTS * WORD, WORD);
        encoder.clear_buffer(word, 0, None);
        encoder.copy_buffer_to_buffer(log, 0, staging, at, LOG);
        Ok(number)
    }
}

fn made<'a>(slot: &'a mut Option<wgpu::Buffer>, gpu: &Gpu, label: &str, bytes: u64) -> Result<&'a wgpu::Buffer> {
    if slot.is_none() {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        *slot = Some(gpu.create_buffer(label, bytes, usage)?);
    }
    slot.as_ref().ok_or_else(|| Error::msg("the fault word is missing"))
}

/// Mappable buffers kept for the next read, and the highest read whose fault has been told.
#[derive(Default)]
pub(super) struct Reader {
    free: Mutex<Vec<wgpu::Buffer>>,
    told: AtomicU64,
}

/// Where the commands of a read are.
enum Place {
    /// They are being recorded.
    Begun,
    /// They wait for the next submit.
    Waiting,
    /// They wait, and nobody wants the bytes any more.
    Unwanted,
    Submitted(wgpu::SubmissionIndex),
}

type Mapped = Result<(), wgpu::BufferAsyncError>;

/// A read that goes with the next submit.
pub(super) struct WaitingRead {
    commands: wgpu::CommandBuffer,
    end: ReadEnd,
}

/// What is left to do for a read that has been submitted.
pub(super) struct ReadEnd {
    /// Staging buffers, how much of each is mapped, and whom to tell.
    copies: Vec<(wgpu::Buffer, u64, oneshot::Sender<Mapped>)>,
    place: Arc<Mutex<Place>>,
    /// Kept until then: a free buffer may be destroyed, and commands that use it could not be submitted.
    _source: Buffer,
}

impl WaitingRead {
    pub(super) fn begin(self) -> (wgpu::CommandBuffer, ReadEnd) {
        (self.commands, self.end)
    }

    /// The staging buffers of a read that will never be submitted.
    pub(super) fn into_buffers(self) -> impl Iterator<Item = wgpu::Buffer> {
        self.end.copies.into_iter().map(|(buffer, ..)| buffer)
    }
}

impl ReadEnd {
    pub(super) fn submitted(self, gpu: &Gpu, index: &wgpu::SubmissionIndex) {
        let wanted =
            matches!(std::mem::replace(&mut *self.place.lock(), Place::Submitted(index.clone())), Place::Waiting);
        for (buffer, length, send) in self.copies {
            if wanted {
                buffer.map_async(wgpu::MapMode::Read, 0..length, move |result| {
                    // The reader may have gone away.
                    let _ = send.send(result);
                });
            } else {
                gpu.destroy_buffer(&buffer);
            }
        }
    }
}

/// A staging buffer in use. One that is dropped half-way may still be mapped, so it is destroyed, not kept.
struct Staging {
    inner: Arc<Inner>,
    buffer: wgpu::Buffer,
    place: Arc<Mutex<Place>>,
    done: bool,
}

impl Staging {
    fn new(inner: &Arc<Inner>, bytes: u64, place: &Arc<Mutex<Place>>) -> Result<Self> {
        let size = if bytes <= KEEP { bytes.next_power_of_two().max(4096) } else { bytes.next_multiple_of(4) };
        let kept = {
            let mut free = inner.reader.free.lock();
            let found = free.iter().rposition(|buffer| buffer.size() == size);
            found.map(|i| free.swap_remove(i))
        };
        let buffer = match kept {
            Some(buffer) => buffer,
            None => {
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                inner.gpu.create_buffer("tallow read", size, usage)?
            }
        };
        Ok(Self { inner: Arc::clone(inner), buffer, place: Arc::clone(place), done: false })
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let mut place = self.place.lock();
        if matches!(*place, Place::Waiting | Place::Unwanted) {
            // The commands that use it destroy it.
            *place = Place::Unwanted;
            return;
        }
        drop(place);
        let mut free = self.inner.reader.free.lock();
        if self.done && self.buffer.size() <= KEEP && free.len() < KEPT {
            free.push(self.buffer.clone());
        } else {
            drop(free);
            self.inner.gpu.destroy_buffer(&self.buffer);
        }
    }
}

/// One staging buffer with its share of the bytes.
struct Part {
    staging: Staging,
    bytes: u64,
    mapped: oneshot::Receiver<Mapped>,
}

impl Inner {
    /// Frees staging memory that is kept.
    pub(super) fn trim_reads(&self) {
        for buffer in self.reader.free.lock().drain(..) {
            self.gpu.destroy_buffer(&buffer);
        }
    }

    /// Records the copies at once; the future waits for them.
    pub(super) fn read_bytes(
        self: &Arc<Self>,
        shared: &Buffer,
        range: Range<u64>,
    ) -> Result<BoxFuture<'static, Result<Vec<u8>>>> {
        let buffer = self.ours(shared)?;
        let gpu = &*self.gpu;
        gpu.check()?;
        if range.start > range.end || range.end > buffer.bytes() {
            return Err(Error::op("read", format!("bytes {range:?} of a buffer of {} bytes", buffer.bytes())));
        }
        let source = buffer.wgpu().ok_or_else(|| Error::msg("read: the buffer was freed"))?;
        // Copies are of whole words, and capacities are multiples of 4.
        let (start, end) = (range.start & !3, range.end.next_multiple_of(4));
        let part_bytes = PART.min(gpu.limits.max_buffer_size.saturating_sub(LOG) & !3).max(4);

        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let place = Arc::new(Mutex::new(Place::Begun));
        let mut parts: Vec<Part> = Vec::with_capacity(1);
        let mut copies = Vec::with_capacity(1);
        let mut at = start;
        loop {
            let bytes = part_bytes.min(end - at);
            // The first part carries the log behind its bytes.
            let extra = if parts.is_empty() { LOG } else { 0 };
            let staging = Staging::new(self, bytes + extra, &place)?;
            if bytes > 0 {
                encoder.copy_buffer_to_buffer(source, at, &staging.buffer, 0, bytes);
            }
            let (send, mapped) = oneshot::channel();
            copies.push((staging.buffer.clone(), bytes + extra, send));
            parts.push(Part { staging, bytes, mapped });
            at += bytes;
            if at >= end {
                break;
            }
        }
        let told = self.reader.told.load(Ordering::Acquire);
        let number = {
            // Numbers are given in queue order.
            let mut recorder = self.recorder.lock();
            let number = match parts.first() {
                Some(part) => recorder.faults.record(gpu, &mut encoder, &part.staging.buffer, part.bytes)?,
                None => 0,
            };
            *place.lock() = Place::Waiting;
            let end = ReadEnd { copies, place: Arc::clone(&place), _source: Arc::clone(shared) };
            recorder.reads.push(WaitingRead { commands: encoder.finish(), end });
            number
        };
        let inner = Arc::clone(self);
        let skip = (range.start - start) as usize;
        let length = (range.end - range.start) as usize;
        Ok(Box::pin(async move {
            inner.submit_read(&place);
            let index = match &*place.lock() {
                Place::Submitted(index) => Some(index.clone()),
                _ => None,
            };
            if let Some(index) = index {
                inner.wait_async(index)?;
            }
            let mut out = Vec::with_capacity(length + skip + 3);
            let mut fault = None;
            for (i, mut part) in parts.into_iter().enumerate() {
                let mapped = (&mut part.mapped).await;
                #[cfg(target_arch = "wasm32")]
                inner.gpu.errors.settle().await;
                inner.gpu.check()?;
                if !matches!(mapped, Ok(Ok(()))) {
                    return Err(Error::Device(format!("{}: memory could not be mapped for reading", inner.gpu.name)));
                }
                let extra = if i == 0 { LOG } else { 0 };
                let view = part.staging.buffer.get_mapped_range(0..part.bytes + extra);
                let view = view.map_err(|error| Error::Device(format!("{}: {error}", inner.gpu.name)))?;
                let (bytes, log) = view.split_at(part.bytes as usize);
                if i == 0 {
                    fault = inner.first_fault(log, told, number);
                }
                out.extend_from_slice(bytes);
                drop(view);
                part.staging.buffer.unmap();
                part.staging.done = true;
            }
            if let Some(fault) = fault {
                return Err(fault);
            }
            out.drain(..skip);
            out.truncate(length);
            Ok(out)
        }))
    }

    /// Submits the reads that wait.
    pub(super) fn submit_reads(&self) {
        let mut recorder = self.recorder.lock();
        if !recorder.reads.is_empty() {
            self.submit(&mut recorder, None);
        }
    }

    /// Submits the reads that wait, if this is one of them.
    fn submit_read(&self, place: &Mutex<Place>) {
        // The two locks are taken in this order by every submit.
        let mut recorder = self.recorder.lock();
        let waits = matches!(*place.lock(), Place::Waiting);
        if waits {
            self.submit(&mut recorder, None);
        }
    }

    /// The first fault that the reads after `told` up to `number` took, marked as told.
    fn first_fault(&self, log: &[u8], told: u64, number: u64) -> Option<Error> {
        let oldest = (told + 1).max((number + 1).saturating_sub(SLOTS));
        (oldest..=number).find_map(|read| {
            let at = (read % SLOTS * WORD) as usize;
            let word = |i: usize| {
                let bytes = log.get(at + 4 * i..at + 4 * i + 4)?;
                bytes.try_into().ok().map(u32::from_le_bytes)
            };
            let (code, kernel, index) = (word(0)?, word(1)?, word(2)?);
            if code == 0 {
                return None;
            }
            self.reader.told.fetch_max(read, Ordering::AcqRel);
            Some(self.fault_error(code, kernel, index))
        })
    }

    fn fault_error(&self, code: u32, kernel: u32, index: u32) -> Error {
        let op = self.pipelines.lock().name(kernel).unwrap_or("a kernel").to_owned();
        let message = if code == FAULT_INDEX {
            let signed = index.cast_signed();
            if signed < 0 {
                format!("index {signed} is out of range")
            } else {
                format!("index {index} is out of range")
            }
        } else {
            format!("fault {code} at index {index}")
        };
        Error::Fault { op, message }
    }

    /// Blocks until a submission is done.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn wait(&self, index: wgpu::SubmissionIndex) -> Result<()> {
        let waited = self.gpu.device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None });
        self.gpu.check()?;
        waited.map(drop).map_err(|error| Error::Device(format!("{}: waiting failed: {error}", self.gpu.name)))
    }

    /// Blocks until everything submitted so far is done.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn wait_for_all(&self) -> Result<()> {
        let index = self.submit(&mut self.recorder.lock(), None);
        self.wait(index)
    }

    /// Natively nobody else drives the device, so a future that is polled waits here; the callback may still be running
    /// on another thread, for which the future then awaits its channel. In a browser there is nothing to drive.
    #[cfg(not(target_arch = "wasm32"))]
    fn wait_async(&self, index: wgpu::SubmissionIndex) -> Result<()> {
        self.wait(index)
    }

    #[cfg(target_arch = "wasm32")]
    #[expect(clippy::unnecessary_wraps, reason = "the native twin can fail")]
    fn wait_async(&self, _: wgpu::SubmissionIndex) -> Result<()> {
        Ok(())
    }

    /// Done when everything submitted so far is.
    pub(super) fn when_ready(self: &Arc<Self>) -> BoxFuture<'static, Result<()>> {
        let index = self.submit(&mut self.recorder.lock(), None);
        let (send, done) = oneshot::channel();
        self.gpu.queue.on_submitted_work_done(move || {
            // Whoever waited may have gone away.
            let _ = send.send(());
        });
        let inner = Arc::clone(self);
        Box::pin(async move {
            inner.wait_async(index)?;
            let _ = done.await;
            #[cfg(target_arch = "wasm32")]
            inner.gpu.errors.settle().await;
            inner.gpu.check()
        })
    }
}
