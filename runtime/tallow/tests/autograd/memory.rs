//! What is alive at once: a deep stack of checkpointed blocks needs less than one that keeps everything.

use std::sync::Arc;
use tallow::{Device, Result, Tensor, Var, checkpoint};

const LAYERS: usize = 24;
const WIDTH: usize = 16;
const ROWS: usize = 256;

/// One block: several values that a gradient needs.
fn block(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let hidden = x.matmul(w)?.gelu()?.matmul(w)?.silu()?;
    x + hidden.layer_norm(1e-5)?
}

/// The most memory that a step took, and the gradient of the first weight.
fn step(device: &Device, checkpointed: bool) -> Result<(u64, Vec<f32>)> {
    let start = device.engine().backend().counters().bytes;
    let scale = |i: usize| Tensor::arange(0f32, (WIDTH * WIDTH) as f32, device)?.affine(0.37, i as f64)?.sin();
    let weights: Vec<Var> =
        (0..LAYERS).map(|i| Var::from_tensor(&(scale(i)? * 0.3)?.reshape((WIDTH, WIDTH))?)).collect::<Result<_>>()?;
    let mut x = Tensor::arange(0f32, (ROWS * WIDTH) as f32, device)?.affine(0.11, 0.)?.cos()?.reshape((ROWS, WIDTH))?;
    for w in &weights {
        x = if checkpointed {
            let w = w.as_tensor().clone();
            checkpoint(move |x: &[Tensor]| block(&x[0], &w), &[&x])?
        } else {
            block(&x, w)?
        };
    }
    let loss = x.sqr()?.mean_all()?;
    drop(x);
    let grads = loss.backward()?;
    let mut roots = vec![loss.node()];
    for w in &weights {
        roots.push(grads.get(w).expect("a gradient").node());
    }
    tallow::block_on(device.engine().realize(&roots))?;
    let peak = device.engine().backend().counters().peak_bytes - start;
    Ok((peak, grads.get(&weights[0]).expect("a gradient").flatten_all()?.to_vec1()?))
}

#[test]
fn checkpoints_lower_the_peak() -> Result<()> {
    let devices =
        [false, true].map(|on| (Device::from_backend(Arc::new(tallow_cpu::CpuBackend::new().expect("a CPU"))), on));
    let [plain, saving] = devices.map(|(device, on)| step(&device, on));
    let ((plain, a), (saving, b)) = (plain?, saving?);
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1e-3)), "{a:?}\n{b:?}");
    let value = (ROWS * WIDTH * 4) as u64;
    println!("peak in values of one layer: {} plain, {} checkpointed", plain / value, saving / value);
    assert!(saving * 2 < plain, "{saving} is not half of {plain}");
    Ok(())
}
