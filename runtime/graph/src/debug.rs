//! `TALLOW_DEBUG=1`: runs a plan step by step and prints each kernel with shape, bytes, time and bandwidth.

use crate::{Args, Backend, Fault, Kernel, Node, Program, Result, Run};
use std::sync::Arc;

/// Submits each step on its own and waits for it. Slow, but the same on every backend.
pub(crate) fn run(backend: &dyn Backend, run: &Run<'_>, head: impl Fn(usize) -> Arc<Node>) -> Result<Vec<Fault>> {
    eprintln!("plan of {} kernels on {}", run.program.steps.len(), backend.info().name);
    let mut faults = Vec::new();
    for (i, step) in run.program.steps.iter().enumerate() {
        let mut step = step.clone();
        step.after.clear();
        let program = Program { steps: vec![step.clone()], buffers: run.program.buffers };
        let prepared = backend.prepare(&program)?;
        let args = [Args { words: run.args[i].words.clone(), scalars: run.args[i].scalars.clone() }];
        #[cfg(not(target_arch = "wasm32"))]
        let start = std::time::Instant::now();
        let met = backend.submit(&*prepared, Run { program: &program, args: &args, ..*run })?;
        faults.extend(met.into_iter().map(|fault| Fault { step: i, ..fault }));
        #[cfg(not(target_arch = "wasm32"))]
        let time = {
            block_on(backend.ready())?;
            let seconds = start.elapsed().as_secs_f64();
            let bytes: u64 = step.inputs.iter().chain(&step.outputs).map(|&b| run.buffers[b as usize].bytes()).sum();
            format!("{:>9.1} us {:>7.2} GB/s at most", seconds * 1e6, bytes as f64 / seconds / 1e9)
        };
        #[cfg(target_arch = "wasm32")]
        let time = "";
        let node = head(i);
        let parts = match &*step.kernel {
            Kernel::Map(map) => format!(" x{}", map.parts.len()),
            Kernel::Contract(c) => format!(" x{}{}", c.parts.len(), if c.prologue.is_some() { " +norm" } else { "" }),
            _ => String::new(),
        };
        eprintln!("{i:>5} {:<12}{parts:<10} {:?} {} {time}", step.kernel.name(), node.shape(), node.dtype());
    }
    Ok(faults)
}

/// Waits for a future of a backend that can be waited for.
#[cfg(not(target_arch = "wasm32"))]
fn block_on<T>(mut future: crate::BoxFuture<'_, T>) -> T {
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
