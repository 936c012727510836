//! Each operation of the page's table, as a user of Tallow would write it.

use tallow::{Attention, Error, Result, Tensor};

/// An operation on its inputs.
pub type Work = fn(&[Tensor]) -> Result<Tensor>;

/// The operation of that name.
pub fn find(op: &str) -> Option<Work> {
    Some(match op {
        "matmul" => |inputs| {
            let [x, y] = exactly(inputs)?;
            x.matmul(y)
        },
        "softmax" => |inputs| {
            let [x] = exactly(inputs)?;
            x.softmax_last_dim()
        },
        "layer_norm" => |inputs| {
            let [x, weight, bias] = exactly(inputs)?;
            x.layer_norm(1e-5)?.broadcast_mul(weight)?.broadcast_add(bias)
        },
        "conv2d" => |inputs| {
            let [x, filter, bias] = exactly(inputs)?;
            convolve(x, filter, bias, 1)
        },
        "attention" => |inputs| {
            let [q, k, v] = exactly(inputs)?;
            let width = q.dims().last().copied().unwrap_or(1);
            let options = Attention { scale: 1. / (width as f64).sqrt(), causal: true, window: None, softcap: None };
            q.attention(k, v, None, options)
        },
        "block" => block,
        _ => return None,
    })
}

/// MobileNetV2's inverted residual: a wider 1x1, a depthwise 3x3, a narrower 1x1, and the input on top.
fn block(inputs: &[Tensor]) -> Result<Tensor> {
    let [x, expand, bias0, depthwise, bias1, project, bias2] = exactly(inputs)?;
    let wide = convolve(x, expand, bias0, 1)?.clamp(0., 6.)?;
    let wide = convolve(&wide, depthwise, bias1, depthwise.dims().first().copied().unwrap_or(1))?.clamp(0., 6.)?;
    convolve(&wide, project, bias2, 1)? + x
}

/// A convolution that keeps height and width, and its bias.
fn convolve(x: &Tensor, filter: &Tensor, bias: &Tensor, groups: usize) -> Result<Tensor> {
    let (.., size) = filter.dims4()?;
    x.conv2d(filter, size / 2, 1, 1, groups)?.broadcast_add(&bias.reshape((1, (), 1, 1))?)
}

fn exactly<const N: usize>(inputs: &[Tensor]) -> Result<&[Tensor; N]> {
    inputs.try_into().map_err(|_| Error::msg(format!("{} inputs, not {N}", inputs.len())))
}
