//! Forward and backward of small networks, in plain tensors.

use candle_core::{D, Error, Result, Tensor, Var};
use candle_nn::{loss, ops};
use tallow_bench_protocol::{Prepared, Refusal};

use crate::cases::{causal_mask, gradients};

fn vars(tensors: &[Tensor]) -> Result<Vec<Var>> {
    tensors.iter().map(Var::from_tensor).collect()
}

fn with_loss(loss: Tensor, vars: &[Var]) -> Result<Vec<Tensor>> {
    let grads = loss.backward()?;
    let mut all = vec![loss];
    for var in vars {
        all.push(grads.get(var).cloned().ok_or_else(|| Error::Msg("a gradient is missing".into()))?);
    }
    Ok(all)
}

/// 2 x 2 max pooling. candle 0.11's own gradient of it is a quarter of the true one (it is multiplied by the mean of the
/// mask): four times the value less three times the constant has the same value and the true gradient.
fn max_pool(x: &Tensor) -> Result<Tensor> {
    let pooled = x.max_pool2d(2)?;
    (&pooled * 4.)? - (pooled.detach() * 3.)?
}

/// See `Op::TrainCnn`.
pub fn cnn(inputs: &[Tensor]) -> std::result::Result<Prepared, Refusal> {
    let [x, labels, weights @ ..] = inputs else { return Err(Refusal::Failed("inputs are missing".into())) };
    let (x, labels, vars) = (x.clone(), labels.clone(), vars(weights)?);
    gradients(move || {
        let [k1, b1, k2, b2, w1, c1, w2, c2] = vars.as_slice() else {
            return Err(Error::Msg("eight weights are needed".into()));
        };
        let block = |x: &Tensor, kernel: &Var, bias: &Var| {
            let bias = bias.reshape((1, (), 1, 1))?;
            max_pool(&x.conv2d(kernel, 1, 1, 1, 1)?.broadcast_add(&bias)?.relu()?)
        };
        let y = block(&block(&x, k1, b1)?, k2, b2)?.flatten_from(1)?;
        let y = y.matmul(w1)?.broadcast_add(c1)?.relu()?.matmul(w2)?.broadcast_add(c2)?;
        with_loss(loss::cross_entropy(&y, &labels)?, &vars)
    })
}

fn rms_norm(x: &Tensor, gain: &Var) -> Result<Tensor> {
    let size = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
    x.broadcast_div(&size)?.broadcast_mul(gain)
}

/// See `Op::TrainDecoder`.
pub fn decoder(inputs: &[Tensor], layers: usize, heads: usize) -> std::result::Result<Prepared, Refusal> {
    let [x, weights @ ..] = inputs else { return Err(Refusal::Failed("inputs are missing".into())) };
    let (x, vars) = (x.clone(), vars(weights)?);
    let (batch, length, width) = x.dims3()?;
    let mask = causal_mask(length)?;
    gradients(move || {
        let mut y = x.clone();
        for layer in vars.chunks_exact(6).take(layers) {
            let [g1, qkv, out, g2, up, down] = layer else { return Err(Error::Msg("six weights a layer".into())) };
            let parts = rms_norm(&y, g1)?.broadcast_matmul(qkv)?;
            let parts = parts.reshape((batch, length, 3, heads, width / heads))?.permute((2, 0, 3, 1, 4))?;
            let part = |i| parts.get(i)?.contiguous();
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let scores = (q.matmul(&k.t()?)? / ((width / heads) as f64).sqrt())?.broadcast_add(&mask)?;
            let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&v)?.transpose(1, 2)?;
            y = (y + mixed.reshape((batch, length, width))?.broadcast_matmul(out)?)?;
            y = (&y + rms_norm(&y, g2)?.broadcast_matmul(up)?.gelu()?.broadcast_matmul(down)?)?;
        }
        with_loss(y.sqr()?.mean_all()?, &vars)
    })
}
