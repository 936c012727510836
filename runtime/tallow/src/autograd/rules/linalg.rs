//! Gradients of matrix products.

use crate::{
    Activations, Result, Shape, Tensor,
    autograd::{Input, Keep},
};

/// The axes before the last two.
fn lead(shape: &Shape) -> &[usize] {
    &shape[..shape.rank().saturating_sub(2)]
}

/// x [..., k] as [rows, k].
fn rows(x: &Tensor) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(1);
    let count: usize = x.dims()[..x.rank().saturating_sub(1)].iter().product();
    x.reshape((count, width))
}

/// Records y = a b: the gradient of a is g b^T, of b a^T g; leading axes that were stretched are summed by the tape.
pub(crate) fn matmul(y: Tensor, a: &Input<'_>, b: &Input<'_>) -> Tensor {
    y.recorded("matmul", &[a, b], &[Keep::input(1), Keep::input(0)], |saved, grad| {
        saved.each(|i| {
            if i == 0 {
                return grad.broadcast_matmul(&saved.input(1)?.t()?);
            }
            let a = saved.input(0)?;
            // One matrix for all leading axes: they are rows of one product, instead of many products to be summed.
            let shared = lead(saved.shape(1)?).iter().all(|&d| d == 1) && lead(a.shape()) == lead(grad.shape());
            if shared && a.rank() > 2 {
                return rows(&a)?.t()?.matmul(&rows(grad)?)?.reshape(saved.shape(1)?);
            }
            a.t()?.broadcast_matmul(grad)
        })
    })
}

/// Records y [rows, n] = x w^T, of x [..., k] and w [n, k]: the gradient of x is g w, of w g^T x. A packed weight has none.
pub(crate) fn linear(y: Tensor, x: &Input<'_>, weight: &Input<'_>) -> Tensor {
    y.recorded("linear", &[x, weight], &[Keep::input(1), Keep::input(0)], |saved, grad| {
        saved.each(|i| {
            if i == 0 {
                let weight = saved.input(1)?;
                let of_rows = if weight.dtype().is_quantized() {
                    grad.matmul(&weight.dequantize()?)?
                } else {
                    grad.linear(&weight.t()?, Activations::F32)?
                };
                return of_rows.reshape(saved.shape(0)?);
            }
            let x = rows(&saved.input(0)?)?;
            grad.t()?.matmul(&x)?.to_dtype(saved.dtype(1)?)
        })
    })
}
