//! Gradients of reductions.

use crate::{
    Result, Shape, Tensor,
    autograd::{Input, Keep},
};
use tallow_graph::kernel::RowOp;

/// `reduced` (without the axes) stretched over the axes of `shape` again.
fn stretched(reduced: &Tensor, axes: &[usize], shape: &Shape) -> Result<Tensor> {
    kept(reduced, axes, shape)?.broadcast_as(shape)
}

/// `reduced` with the axes back as size 1.
fn kept(reduced: &Tensor, axes: &[usize], shape: &Shape) -> Result<Tensor> {
    let ones: Shape = shape.iter().enumerate().map(|(a, &d)| if axes.contains(&a) { 1 } else { d }).collect();
    reduced.reshape(ones)
}

/// Records `y`, the reduction of `x` over `axes`, without these. Of several largest (or smallest) elements, the first gets the
/// gradient where the reduction is along a single axis that was named (`first`), as with PyTorch's `max(dim)`; else all get
/// an even share, as with `amax`.
pub(crate) fn reduce(y: Tensor, op: RowOp, name: &'static str, x: &Input<'_>, axes: &[usize], first: bool) -> Tensor {
    if x.tape().is_none() {
        return y;
    }
    let axes = axes.to_vec();
    match op {
        RowOp::Sum => y.recorded(name, &[x], &[Keep::NOTHING], move |saved, grad| {
            saved.each(|_| stretched(grad, &axes, saved.shape(0)?))
        }),
        RowOp::Mean => y.recorded(name, &[x], &[Keep::NOTHING], move |saved, grad| {
            saved.each(|_| {
                let shape = saved.shape(0)?;
                let count: f64 = axes.iter().map(|&a| shape[a] as f64).product();
                stretched(&(grad / count)?, &axes, shape)
            })
        }),
        RowOp::Max | RowOp::Min if first => y.recorded(name, &[x], &[Keep::input(0)], move |saved, grad| {
            saved.each(|_| {
                let (x, axis) = (saved.input(0)?.detach(), axes[0]);
                let at = if op == RowOp::Max { x.argmax_keepdim(axis)? } else { x.argmin_keepdim(axis)? };
                let shape: Shape = (0..x.rank()).map(|a| if a == axis { x.dims()[a] } else { 1 }).collect();
                let position = Tensor::arange(0u32, x.dims()[axis] as u32, x.device())?.reshape(shape)?;
                let grad = stretched(grad, &axes, x.shape())?;
                position.broadcast_eq(&at)?.where_cond(&grad, &grad.zeros_like()?)
            })
        }),
        RowOp::Max | RowOp::Min => {
            y.recorded(name, &[x], &[Keep::input(0).and(Keep::OUTPUT)], move |saved, grad| {
                saved.each(|_| {
                    let (x, y) = (saved.input(0)?.detach(), saved.output()?.detach());
                    let y = kept(&y, &axes, x.shape())?;
                    // The elements that are the result; of NaN, those that are NaN.
                    let nan = x.ne(&x)?.broadcast_mul(&y.ne(&y)?)?;
                    let chosen = x.broadcast_eq(&y)?.maximum(&nan)?.to_dtype(grad.dtype())?;
                    let share = chosen.broadcast_div(&kept(&chosen.sum(axes.as_slice())?, &axes, x.shape())?)?;
                    kept(grad, &axes, x.shape())?.broadcast_mul(&share)
                })
            })
        }
        _ => y.without_gradient(name, &[x]),
    }
}
