//! Waiting for futures where waiting is possible.

use crate::{Error, Result};
use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// One for all the thread's waits: a wake that comes late only makes the next wait look once more.
    static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
}

/// Runs a future to its end. In a browser only futures that need not wait (those of the CPU) can be run this way; any other
/// gives [`Error::WouldBlock`].
pub fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    block_on_named(future, "this call", "its async twin")
}

/// [`block_on`] with the names for the error.
pub(crate) fn block_on_named<T>(
    future: impl Future<Output = Result<T>>,
    call: &'static str,
    instead: &'static str,
) -> Result<T> {
    let mut future = pin!(future);
    let mut wait = |waker: &Waker| {
        let mut context = Context::from_waker(waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending if cfg!(target_arch = "wasm32") => return Err(Error::WouldBlock { call, instead }),
                Poll::Pending => std::thread::park(),
            }
        }
    };
    // While a thread ends, its own waker may be gone.
    match WAKER.try_with(Clone::clone) {
        Ok(waker) => wait(&waker),
        Err(_) => wait(&Waker::from(Arc::new(Unpark(std::thread::current())))),
    }
}
