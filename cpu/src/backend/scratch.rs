//! Working memory of a thread, kept from one step to the next, so that a step allocates nothing once it is warm.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use tallow_graph::{Error, Result};

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

thread_local! {
    /// Arenas that nobody uses now: one a level of nesting.
    static ARENAS: [Cell<Vec<Line>>; LEVELS] = const { [const { Cell::new(Vec::new()) }; LEVELS] };
}

const LEVELS: usize = 5;
/// For the registers of expressions.
pub(crate) const REGISTERS: usize = 0;
/// For a tile or a row that expressions then read.
pub(crate) const TILE: usize = 1;
/// For what all tiles of a step share.
pub(crate) const STEP: usize = 2;

/// For a tile of an operand that had to be converted.
pub(crate) const CONVERTED: usize = 3;
/// For packed operands of a matrix product.
pub(crate) const PACKED: usize = 4;

/// More than this is given back to the system after use.
const KEEP_LINES: usize = (64 << 20) / 64;

/// Calls `f` with `bytes` bytes of initialised memory, aligned to 64, with undefined contents. `level` tells apart uses
/// that nest; a second use of one level is served too, from fresh memory.
pub(crate) fn with<R>(level: usize, bytes: usize, f: impl FnOnce(*mut u8) -> Result<R>) -> Result<R> {
    ARENAS.with(|arenas| {
        let arena = &arenas[level.min(LEVELS - 1)];
        let mut lines = arena.take();
        let need = bytes.div_ceil(64);
        if lines.len() < need {
            lines = Vec::new();
            let size = need.next_power_of_two().clamp(1024, need.max(1 << 16));
            lines.try_reserve_exact(size).map_err(|_| Error::OutOfMemory {
                device: "cpu".to_owned(),
                bytes: bytes as u64,
                hint: "A step needs working memory. Free tensors, or use a smaller batch",
            })?;
            crate::pages::prefer_large(lines.as_mut_ptr().cast(), size * 64);
            lines.resize(size, Line([0; 64]));
        }
        let result = f(lines.as_mut_ptr().cast());
        if lines.len() <= KEEP_LINES {
            arena.set(lines);
        }
        result
    })
}

/// The first error of the tasks of a step.
#[derive(Default)]
pub(crate) struct FirstError(Mutex<Option<Error>>);

impl FirstError {
    /// Keeps the error of `result`, if it is the first.
    pub fn note(&self, result: Result<()>) {
        if let Err(error) = result {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    /// The error that was kept.
    pub fn done(self) -> Result<()> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}
