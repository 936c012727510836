//! What holds for this thread: whether operations are recorded, and the random draws of a block that is computed twice.

use crate::Device;
use std::{cell::Cell, cell::RefCell, collections::VecDeque};

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    /// The innermost block last. Draws that are replayed come from the innermost block that replays.
    static DRAWS: RefCell<Vec<Draws>> = const { RefCell::new(Vec::new()) };
}

/// A draw: (key, counter).
type Draw = (u64, u64);

/// The random draws of one run of a block.
enum Draws {
    /// Taken down.
    Written(Vec<Draw>),
    /// Given again.
    Replayed(VecDeque<Draw>),
}

/// Whether operations are recorded on this thread.
pub(crate) fn enabled() -> bool {
    ENABLED.get()
}

/// Sets a mode back when it goes, on a panic too.
struct Reset(bool);

impl Drop for Reset {
    fn drop(&mut self) {
        ENABLED.set(self.0);
    }
}

/// Runs `f` with recording on or off.
pub(crate) fn with_recording<T>(on: bool, f: impl FnOnce() -> T) -> T {
    let _reset = Reset(ENABLED.replace(on));
    f()
}

/// Runs `f` without recording anything on this thread: results have no gradient, and keep no memory for one. For
/// evaluation and generation with a model whose weights are variables.
///
/// ```
/// use tallow::{Device, Var, no_grad};
/// let w = Var::new(2f32, &Device::Cpu)?;
/// let y = no_grad(|| w.sqr())?;
/// assert!(y.backward().is_err());
/// # Ok::<(), tallow::Error>(())
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    with_recording(false, f)
}

/// The next place in the device's random stream; inside a block that is computed again, the place it had the first time.
pub(crate) fn draw(device: &Device) -> Draw {
    DRAWS.with_borrow_mut(|stack| {
        let source = stack.iter().rposition(|draws| matches!(draws, Draws::Replayed(_)));
        let again = source.and_then(|at| match &mut stack[at] {
            Draws::Replayed(draws) => draws.pop_front(),
            Draws::Written(_) => None,
        });
        let draw = again.unwrap_or_else(|| device.next_draw());
        // Blocks around one that replays do not see its draws: they will not see them the next time either.
        for draws in &mut stack[source.map_or(0, |at| at + 1)..] {
            if let Draws::Written(draws) = draws {
                draws.push(draw);
            }
        }
        draw
    })
}

/// Takes the innermost block off the stack when it goes, on a panic too.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        DRAWS.with_borrow_mut(|stack| stack.pop());
    }
}

/// Runs `f` and takes down its random draws.
pub(crate) fn writing_draws<T>(f: impl FnOnce() -> T) -> (T, Vec<Draw>) {
    DRAWS.with_borrow_mut(|stack| stack.push(Draws::Written(Vec::new())));
    let _leave = Leave;
    let result = f();
    let written = DRAWS.with_borrow_mut(|stack| match stack.last_mut() {
        Some(Draws::Written(draws)) => std::mem::take(draws),
        _ => Vec::new(),
    });
    (result, written)
}

/// Runs `f` with the random draws that it had before.
pub(crate) fn replaying_draws<T>(draws: &[Draw], f: impl FnOnce() -> T) -> T {
    DRAWS.with_borrow_mut(|stack| stack.push(Draws::Replayed(draws.iter().copied().collect())));
    let _leave = Leave;
    f()
}
