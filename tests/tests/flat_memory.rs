//! Loops that must not grow: one that never reads, and one that reads at each step. Watched are the device's bytes and
//! buffers, and the process's resident memory where the system tells (Linux).

use std::sync::Mutex;
use tallow::{DType, Device, Result, Tensor, Var};
use tallow_tests::device;

/// Resident bytes of this process; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

#[derive(Debug, Clone, Copy)]
struct Use {
    resident: Option<u64>,
    bytes: u64,
    buffers: u64,
}

fn measure(device: &Device) -> Use {
    let counters = device.engine().backend().counters();
    Use { resident: resident(), bytes: counters.bytes, buffers: counters.buffers }
}

/// The resident size is the whole process's: one loop at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// After the first fifth of a loop, nothing may grow any more: no buffer is created, and the resident size stays within
/// what allocators and page tables round.
fn hold_flat(name: &str, steps: usize, mut step: impl FnMut(usize, &Device) -> Result<()>) {
    let _alone = ALONE.lock();
    let Some(candidate) = device(name) else { return };
    let device = candidate.device;
    for i in 0..steps / 5 {
        step(i, &device).expect("a step runs");
    }
    device.synchronize().expect("the work ends");
    let warm = measure(&device);
    for i in steps / 5..steps {
        step(i, &device).expect("a step runs");
    }
    device.synchronize().expect("the work ends");
    let last = measure(&device);
    println!("{name}: {steps} steps, warm {warm:?}, last {last:?}");
    assert!(last.buffers <= warm.buffers + 2, "buffers were created: {warm:?} to {last:?}");
    assert!(last.bytes <= warm.bytes + (1 << 16), "the device's memory grew: {warm:?} to {last:?}");
    if let (Some(warm), Some(last)) = (warm.resident, last.resident) {
        assert!(last <= warm + (16 << 20), "the resident size grew from {warm} to {last} bytes");
    }
}

fn never_reads(name: &str) {
    let mut x: Option<Tensor> = None;
    hold_flat(name, 100_000, |i, device| {
        let before = match x.take() {
            Some(x) => x,
            None => Tensor::ones((8, 8), DType::F32, device)?,
        };
        x = Some(if i % 2 == 0 { before.affine(0.5, 1.0)? } else { before.tanh()? });
        Ok(())
    });
}

/// A training step: forward, backward, an update in place, and the loss is read.
fn reads_each_time(name: &str) {
    let mut weight: Option<(Var, Tensor)> = None;
    hold_flat(name, 10_000, |_, device| {
        if weight.is_none() {
            weight = Some((Var::ones((4, 4), DType::F32, device)?, Tensor::randn(0f32, 1., (8, 4), device)?));
        }
        let Some((weight, x)) = &weight else { return Ok(()) };
        let loss = x.matmul(weight)?.sqr()?.mean_all()?;
        let grads = loss.backward()?;
        if let Some(grad) = grads.get(weight) {
            weight.set(&(weight.as_tensor() - (grad * 1e-3)?)?.detach())?;
        }
        assert!(loss.to_scalar::<f32>()?.is_finite());
        Ok(())
    });
}

#[test]
fn a_loop_that_never_reads_stays_flat_on_the_cpu() {
    never_reads("cpu");
}

#[test]
fn a_loop_that_never_reads_stays_flat_on_wgpu() {
    never_reads("wgpu");
}

#[test]
fn a_loop_that_reads_each_time_stays_flat_on_the_cpu() {
    reads_each_time("cpu");
}

#[test]
fn a_loop_that_reads_each_time_stays_flat_on_wgpu() {
    reads_each_time("wgpu");
}
