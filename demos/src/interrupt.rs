//! Ctrl-C. It ends the program, except while something watches for it: then the first press is a request to stop, which
//! the watcher sees between two pieces of work, and the second ends the program.

use crate::failure::{Failure, INTERRUPTED, Outcome};
use std::sync::atomic::{AtomicU8, Ordering};
use tallow::Error;

const UNWATCHED: u8 = 0;
const WATCHED: u8 = 1;
const PRESSED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNWATCHED);

/// Takes over Ctrl-C. The handler runs on a thread of its own, not in signal context.
pub fn install() -> Outcome {
    ctrlc::set_handler(|| {
        if STATE.compare_exchange(WATCHED, PRESSED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            std::process::exit(INTERRUPTED.into());
        }
    })
    .map_err(|error| Failure::Error(Error::msg(format!("Ctrl-C cannot be handled: {error}"))))
}

/// While this lives, the first Ctrl-C is a request. There is one at a time.
pub struct Watch(());

impl Watch {
    /// Starts watching.
    pub fn start() -> Self {
        STATE.store(WATCHED, Ordering::SeqCst);
        Self(())
    }

    /// Whether Ctrl-C was pressed since.
    pub fn pressed(&self) -> bool {
        STATE.load(Ordering::SeqCst) == PRESSED
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        STATE.store(UNWATCHED, Ordering::SeqCst);
    }
}
