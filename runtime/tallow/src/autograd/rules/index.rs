//! Gradients of indexing.

use crate::{
    DType, Result, Shape, Tensor,
    autograd::{Input, Keep},
};

/// Records `y` [outer, ids, inner], the slices of `x` along `axis` at `ids`. Each slice's gradient is added where it came from.
pub(crate) fn index_select(y: Tensor, x: &Input<'_>, ids: &Input<'_>, axis: usize) -> Tensor {
    y.recorded("index_select", &[x, ids], &[Keep::input(1), Keep::NOTHING], move |saved, grad| {
        saved.each(|_| scatter_slices(grad, &saved.input(1)?, axis, saved.shape(0)?))
    })
}

/// The sum, at each position of `axis` of `shape`, of the slices of `grad` [outer, ids, inner] whose id it is.
fn scatter_slices(grad: &Tensor, ids: &Tensor, axis: usize, shape: &Shape) -> Result<Tensor> {
    // A product with the one-hot matrix [rows, ids], until the graph has a scatter: this is the one place to put it.
    let rows = Tensor::arange(0u32, shape[axis] as u32, grad.device())?.unsqueeze(1)?;
    let chosen = rows.broadcast_eq(&ids.to_dtype(DType::U32)?)?.to_dtype(grad.dtype())?;
    chosen.broadcast_matmul(grad)?.reshape(shape)
}
