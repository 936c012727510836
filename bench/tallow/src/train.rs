//! Forward and backward of small networks, in plain tensors.

use tallow::{Attention, D, Device, Error, Result, Tensor, Var};
use tallow_bench_protocol::{Prepared, Refusal, timed};

/// Runs that give loss and gradients; the result is all of them, one after the other. They are one plan, as in a training
/// step.
fn gradients(
    device: &Device,
    vars: Vec<Var>,
    loss: impl Fn(&[Var]) -> Result<Tensor> + 'static,
) -> std::result::Result<Prepared, Refusal> {
    let device = device.clone();
    let work = move || {
        let loss = loss(&vars)?;
        let grads = loss.backward()?;
        let mut all = vec![loss];
        for var in &vars {
            all.push(grads.get(var).cloned().ok_or_else(|| Error::msg("a gradient is missing"))?);
        }
        let nodes: Vec<_> = all.iter().map(Tensor::node).collect();
        tallow::block_on(device.engine().realize(&nodes))?;
        device.synchronize()?;
        Ok::<_, Error>(all)
    };
    let flat: Vec<Tensor> = work()?.iter().map(Tensor::flatten_all).collect::<Result<_>>()?;
    let values = Tensor::cat(&flat, 0)?.to_vec1::<f32>()?;
    let dims = vec![values.len()];
    Ok(Prepared { values, dims, run: Box::new(move || timed(&work)) })
}

fn vars(tensors: &[Tensor]) -> Result<Vec<Var>> {
    tensors.iter().map(Var::from_tensor).collect()
}

/// See `Op::TrainCnn`.
pub fn cnn(device: &Device, inputs: &[Tensor]) -> std::result::Result<Prepared, Refusal> {
    let [x, labels, weights @ ..] = inputs else { return Err(Refusal::Failed("inputs are missing".into())) };
    let (x, picks) = (x.clone(), labels.unsqueeze(1)?);
    gradients(device, vars(weights)?, move |vars| {
        let [k1, b1, k2, b2, w1, c1, w2, c2] = vars else {
            return Err(Error::msg("eight weights are needed"));
        };
        let block = |x: &Tensor, kernel: &Var, bias: &Var| {
            let bias = bias.reshape((1, (), 1, 1))?;
            x.conv2d(kernel, 1, 1, 1, 1)?.broadcast_add(&bias)?.relu()?.max_pool2d(2)
        };
        let y = block(&block(&x, k1, b1)?, k2, b2)?.flatten_from(1)?;
        let y = y.matmul(w1)?.broadcast_add(c1)?.relu()?.matmul(w2)?.broadcast_add(c2)?;
        // Cross entropy.
        (y.log_sum_exp(1)? - y.gather(&picks, 1)?.squeeze(1)?)?.mean_all()
    })
}

/// See `Op::TrainDecoder`.
pub fn decoder(
    device: &Device,
    inputs: &[Tensor],
    layers: usize,
    heads: usize,
) -> std::result::Result<Prepared, Refusal> {
    let [x, weights @ ..] = inputs else { return Err(Refusal::Failed("inputs are missing".into())) };
    let x = x.clone();
    let (batch, length, width) = x.dims3()?;
    let options = Attention { scale: ((width / heads) as f64).powf(-0.5), causal: true, window: None, softcap: None };
    let norm = |x: &Tensor, gain: &Var| x.rms_norm(1e-5)?.broadcast_mul(gain);
    gradients(device, vars(weights)?, move |vars| {
        let mut y = x.clone();
        for layer in vars.chunks_exact(6).take(layers) {
            let [g1, qkv, out, g2, up, down] = layer else { return Err(Error::msg("six weights a layer")) };
            let parts = norm(&y, g1)?.broadcast_matmul(qkv)?.chunk(3, D::Minus1)?;
            let [q, k, v] = parts.as_slice() else { return Err(Error::msg("three parts")) };
            let heads = |part: &Tensor| part.reshape((batch, length, heads, width / heads));
            let mixed = heads(q)?.attention(&heads(k)?, &heads(v)?, None, options)?.reshape((batch, length, width))?;
            y = (y + mixed.broadcast_matmul(out)?)?;
            y = (&y + norm(&y, g2)?.broadcast_matmul(up)?.gelu()?.broadcast_matmul(down)?)?;
        }
        y.sqr()?.mean_all()
    })
}
