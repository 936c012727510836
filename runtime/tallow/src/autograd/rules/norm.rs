//! Gradients of norms and softmax along the last axis. Sources: Ba et al., 2016 (layer norm), Zhang and Sennrich, 2019 (RMS
//! norm).

use crate::{
    D, DType, Result, Tensor,
    autograd::{Input, Keep},
};

/// In a dtype that sums can be taken in, and the one to go back to.
fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}

/// g for y = x r, where r = 1 / sqrt(mean(x^2) + eps): r (g - y mean(g y)).
fn through_rms(grad: &Tensor, x: &Tensor, eps: f64) -> Result<Tensor> {
    let scale = (x.sqr()?.mean_keepdim(D::Minus1)? + eps)?.rsqrt()?;
    let y = x.broadcast_mul(&scale)?;
    let along = (grad * &y)?.mean_keepdim(D::Minus1)?;
    (grad - y.broadcast_mul(&along)?)?.broadcast_mul(&scale)
}

/// Records y = rms_norm(x). Only x is kept.
pub(crate) fn rms_norm(y: Tensor, x: &Input<'_>, eps: f64) -> Tensor {
    y.recorded("rms_norm", &[x], &[Keep::input(0)], move |saved, grad| {
        saved.each(|_| through_rms(&wide(grad)?, &wide(&saved.input(0)?)?, eps)?.to_dtype(grad.dtype()))
    })
}

/// Records y = layer_norm(x), which is the RMS norm of x - mean(x). Only x is kept.
pub(crate) fn layer_norm(y: Tensor, x: &Input<'_>, eps: f64) -> Tensor {
    y.recorded("layer_norm", &[x], &[Keep::input(0)], move |saved, grad| {
        saved.each(|_| {
            let x = wide(&saved.input(0)?)?;
            let centred = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
            let of_centred = through_rms(&wide(grad)?, &centred, eps)?;
            of_centred.broadcast_sub(&of_centred.mean_keepdim(D::Minus1)?)?.to_dtype(grad.dtype())
        })
    })
}

/// Records y = softmax(x): y (g - sum(g y)). Only y is kept.
pub(crate) fn softmax(y: Tensor, x: &Input<'_>) -> Tensor {
    y.recorded("softmax_last_dim", &[x], &[Keep::OUTPUT], |saved, grad| {
        saved.each(|_| {
            let (g, y) = (wide(grad)?, wide(&saved.output()?)?);
            let along = (&g * &y)?.sum_keepdim(D::Minus1)?;
            (g.broadcast_sub(&along)? * y)?.to_dtype(grad.dtype())
        })
    })
}
