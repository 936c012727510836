//! How failures that wgpu reports beside the call (validation, memory, a lost device) become a `Result`.
//!
//! Natively an error scope answers at once. In a browser the answer comes later: it is awaited by the next read, so that
//! no number is read whose computation failed. A failure that belongs to no scope leaves unknown buffers wrong: from
//! then on every submit and read of the device returns it.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tallow_graph::{Error, Result};

/// What the device failed with.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The device is gone.
    Lost(String),
    /// An allocation of so many bytes (0: not known).
    OutOfMemory(u64),
    /// A validation or internal error, in words.
    Other(String),
}

/// How much a failure explains: a later one that explains more takes the place of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Often a consequence: use of something whose making failed.
    Uncaptured,
    /// The making itself. Only a browser tells it late enough to need a rank.
    #[cfg_attr(not(target_arch = "wasm32"), expect(dead_code, reason = "natively it is returned at once"))]
    Scoped,
    /// A lost device fails at everything.
    Lost,
}

/// The first failure of a device, kept.
#[derive(Default)]
pub(super) struct Errors {
    any: AtomicBool,
    first: Mutex<Option<(Failure, Rank)>>,
    #[cfg(target_arch = "wasm32")]
    pending: Mutex<Vec<Pending>>,
}

impl Errors {
    /// Keeps a failure that came by itself.
    pub(super) fn report(&self, failure: Failure) {
        let rank = if matches!(failure, Failure::Lost(_)) { Rank::Lost } else { Rank::Uncaptured };
        self.keep(failure, rank);
    }

    fn keep(&self, failure: Failure, rank: Rank) {
        log::debug!("wgpu: {failure:?}");
        let mut first = self.first.lock();
        if first.as_ref().is_none_or(|&(_, kept)| rank > kept) {
            *first = Some((failure, rank));
        }
        self.any.store(true, Ordering::Release);
    }

    /// The kept failure, if there is one. One atomic load where there is none.
    pub(super) fn check(&self, device: &str) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        match &*self.first.lock() {
            None => Ok(()),
            Some((failure, _)) => Err(failure.to_error(device)),
        }
    }
}

impl Failure {
    /// From wgpu's own error.
    pub(super) fn from_wgpu(error: &wgpu::Error) -> Self {
        match error {
            wgpu::Error::OutOfMemory { .. } => Failure::OutOfMemory(0),
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                Failure::Other(description.trim().to_owned())
            }
        }
    }

    /// As the error that a caller sees.
    pub(super) fn to_error(&self, device: &str) -> Error {
        match self {
            Failure::Lost(message) => Error::DeviceLost { device: device.to_owned(), message: message.clone() },
            Failure::OutOfMemory(bytes) => out_of_memory(device, *bytes),
            Failure::Other(message) => Error::Device(format!(
                "{device}: {message}. Results on this device are no longer reliable: open it again"
            )),
        }
    }
}

/// The error for an allocation that found no room.
pub(super) fn out_of_memory(device: &str, bytes: u64) -> Error {
    Error::OutOfMemory {
        device: device.to_owned(),
        bytes,
        hint: "Free tensors or models, take a smaller batch, a shorter context or a smaller quantization",
    }
}

/// An answer to an error scope that has not come yet, with what its error would mean.
#[cfg(target_arch = "wasm32")]
struct Pending {
    answer: std::pin::Pin<Box<dyn Future<Output = Option<wgpu::Error>>>>,
    bytes: u64,
    what: String,
}

// SAFETY: in a browser the device and everything made from it stays on one thread; wgpu's
// `fragile-send-sync-non-atomic-wasm`, on which the whole backend relies there, makes the same promise.
#[cfg(target_arch = "wasm32")]
unsafe impl Send for Pending {}

impl Errors {
    /// Runs `make` inside an error scope. An error that is known at once is returned, and harms nothing else; one that
    /// is known later is reported by the next [`Errors::settle`]. `bytes` (of an allocation) and `what` go into it.
    pub(super) fn scoped<T>(
        &self,
        device: &wgpu::Device,
        filter: wgpu::ErrorFilter,
        bytes: u64,
        what: &str,
        make: impl FnOnce() -> T,
    ) -> Result<T, Failure> {
        let guard = device.push_error_scope(filter);
        let made = make();
        let mut answer = Box::pin(guard.pop());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match answer.as_mut().poll(&mut context) {
            std::task::Poll::Ready(None) => Ok(made),
            std::task::Poll::Ready(Some(error)) => Err(meaning(&error, bytes, what)),
            std::task::Poll::Pending => {
                #[cfg(target_arch = "wasm32")]
                self.pending.lock().push(Pending { answer, bytes, what: what.to_owned() });
                Ok(made)
            }
        }
    }

    /// Waits for the answers of all scopes.
    #[cfg(target_arch = "wasm32")]
    pub(super) async fn settle(&self) {
        let pending = std::mem::take(&mut *self.pending.lock());
        for Pending { answer, bytes, what } in pending {
            if let Some(error) = answer.await {
                self.keep(meaning(&error, bytes, &what), Rank::Scoped);
            }
        }
    }
}

fn meaning(error: &wgpu::Error, bytes: u64, what: &str) -> Failure {
    match Failure::from_wgpu(error) {
        Failure::OutOfMemory(_) => Failure::OutOfMemory(bytes),
        Failure::Other(message) => Failure::Other(format!("{what}: {message}")),
        lost => lost,
    }
}
