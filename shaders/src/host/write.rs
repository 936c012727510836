//! Uploads. wgpu keeps written bytes in staging memory until the next submit, so uploads go in bounded chunks with a
//! submit after every few (long queues of writes have corrupted weights elsewhere), and natively an upload waits until
//! the one before the last is done: a model of any size streams through a bounded amount of memory.

use super::{backend::Inner, pool::WgpuBuffer};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use tallow_graph::{DeviceBuffer, Error, Result};

/// Bytes of one write.
const WRITE: usize = 8 << 20;
/// Writes between two submits.
const WRITES: u32 = 32;
/// Bytes between two submits.
const BYTES: u64 = 64 << 20;

#[derive(Default)]
struct State {
    writes: u32,
    bytes: u64,
    #[cfg(not(target_arch = "wasm32"))]
    last: Option<wgpu::SubmissionIndex>,
}

/// Counts what has been written since the last submit.
#[derive(Default)]
pub(super) struct Writer(Mutex<State>);

impl Writer {
    /// To be told of each submit: it carried all writes before it.
    pub(super) fn flushed(&self) {
        let mut state = self.0.lock();
        state.writes = 0;
        state.bytes = 0;
    }
}

impl Inner {
    /// Writes bytes at an offset that is a multiple of 4; a last word that is not whole is filled up with zeros.
    pub(super) fn write_bytes(&self, buffer: &WgpuBuffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.gpu.check()?;
        let end = offset.checked_add(bytes.len() as u64);
        if !offset.is_multiple_of(4) || end.is_none_or(|end| end > buffer.bytes()) {
            return Err(Error::op(
                "write",
                format!(
                    "{} bytes at offset {offset} of a buffer of {}: the offset must be a multiple of 4 and the end inside",
                    bytes.len(),
                    buffer.bytes()
                ),
            ));
        }
        let Some(target) = buffer.wgpu() else { return Ok(()) };
        // Written bytes arrive before all commands of the next submit, so reads that wait for it would see them.
        self.submit_reads();
        let whole = bytes.len() & !3;
        let (words, tail) = bytes.split_at(whole);
        let mut at = offset;
        for chunk in words.chunks(WRITE) {
            self.gpu.write(target, at, chunk);
            at += chunk.len() as u64;
            self.count_write(chunk.len() as u64)?;
        }
        if !tail.is_empty() {
            let mut word = [0u8; 4];
            word[..tail.len()].copy_from_slice(tail);
            self.gpu.write(target, at, &word);
            self.count_write(4)?;
        }
        Ok(())
    }

    fn count_write(&self, bytes: u64) -> Result<()> {
        let mut state = self.writer.0.lock();
        state.writes += 1;
        state.bytes += bytes;
        if state.writes < WRITES && state.bytes < BYTES {
            return Ok(());
        }
        state.writes = 0;
        state.bytes = 0;
        let _index = self.gpu.queue.submit([]);
        self.gpu.counts.submits.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(target_arch = "wasm32"))]
        if let Some(before) = state.last.replace(_index) {
            drop(state);
            self.wait(before)?;
        }
        Ok(())
    }
}

/// Joins small writes that continue one another: packing writes row by row into each of several sections, and every
/// write costs a staging buffer of its own.
pub(super) struct Joined<'a> {
    inner: &'a Inner,
    buffer: &'a WgpuBuffer,
    /// Open runs: where each begins, and its bytes.
    runs: SmallVec<[(u64, Vec<u8>); 4]>,
}

impl<'a> Joined<'a> {
    const RUNS: usize = 8;
    const RUN: usize = 1 << 20;

    pub(super) fn new(inner: &'a Inner, buffer: &'a WgpuBuffer) -> Self {
        Self { inner, buffer, runs: SmallVec::new() }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let continued = self.runs.iter().position(|(start, run)| start + run.len() as u64 == offset);
        let i = match continued {
            Some(i) => i,
            None if bytes.len() >= Self::RUN => return self.inner.write_bytes(self.buffer, offset, bytes),
            None => {
                if self.runs.len() >= Self::RUNS {
                    self.flush()?;
                }
                self.runs.push((offset, Vec::with_capacity(bytes.len().max(4096))));
                self.runs.len() - 1
            }
        };
        let Some((start, run)) = self.runs.get_mut(i) else { return Ok(()) };
        run.extend_from_slice(bytes);
        if run.len() < Self::RUN {
            return Ok(());
        }
        // What is not a whole word stays for the next write, which continues it.
        let whole = run.len() & !3;
        let rest = run.split_off(whole);
        let at = *start;
        *start += whole as u64;
        let full = std::mem::replace(run, rest);
        self.inner.write_bytes(self.buffer, at, &full)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        for (start, run) in self.runs.drain(..) {
            self.inner.write_bytes(self.buffer, start, &run)?;
        }
        Ok(())
    }
}
