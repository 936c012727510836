//! The one gradient of all views: where a view shows element `p` of a value at index `i`, the gradient at `i` belongs to `p`.
//! And the opposite, writing into a window of a value, which is the gradient of a view and has a view as its gradient.

use super::{
    Keep,
    tape::{TapeInput, TapeNode},
};
use crate::{DType, Device, Result, Shape, Tensor, View};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tallow_graph::{Scalar, ops};

/// The tape of a view of a tracked value: `view` addresses the contiguous elements of the value, whose shape is `shape`.
pub(crate) fn view_of(
    name: &'static str,
    tape: &Arc<TapeNode>,
    (shape, dtype, device): (Shape, DType, &Device),
    view: View,
    writes: u32,
) -> Arc<TapeNode> {
    let of = (view.shape.clone(), dtype, device.clone());
    let input =
        TapeInput { tape: Some(tape.clone()), shape: shape.clone(), dtype, device: device.clone(), value: None };
    TapeNode::op(name, writes, of, smallvec![input], None, move |saved, grad| {
        saved.each(|_| unview(grad, &view, &shape))
    })
}

/// The gradient of a value of shape `shape`, for the gradient of what `view` shows of it.
fn unview(grad: &Tensor, view: &View, shape: &Shape) -> Result<Tensor> {
    if view.is_whole(shape.elem_count()) {
        return grad.reshape(shape);
    }
    if grad.elem_count() == 0 {
        return Tensor::zeros(shape, grad.dtype(), grad.device());
    }
    // An element that is shown several times gets the sum.
    let repeated = |a: usize| view.strides[a] == 0 && view.shape[a] != 1;
    let axes: Vec<usize> = (0..view.shape.rank()).filter(|&a| repeated(a)).collect();
    let mut grad = if axes.is_empty() { grad.clone() } else { grad.sum(axes.as_slice())? };
    // The other axes, the longest steps first, all steps positive: then a view of every element is the value in order.
    let mut steps: SmallVec<[(isize, usize, usize); 8]> = SmallVec::new();
    let mut offset = view.offset as isize;
    let mut flipped: Vec<usize> = Vec::new();
    for (at, axis) in (0..view.shape.rank()).filter(|&a| !repeated(a)).enumerate() {
        let (size, stride) = (view.shape[axis], view.strides[axis]);
        if stride < 0 && size > 1 {
            flipped.push(at);
            offset += stride * (size as isize - 1);
        }
        steps.push((stride.abs(), size, at));
    }
    if !flipped.is_empty() {
        grad = grad.flip(flipped.as_slice())?;
    }
    steps.sort_by_key(|&(stride, _, _)| std::cmp::Reverse(stride));
    let order: Vec<usize> = steps.iter().map(|&(_, _, at)| at).collect();
    grad = grad.permute(order.as_slice())?;
    let window = View {
        offset: offset as usize,
        shape: steps.iter().map(|&(_, size, _)| size).collect(),
        strides: steps.iter().map(|&(stride, _, _)| stride).collect(),
    };
    if window.is_whole(shape.elem_count()) {
        return grad.reshape(shape);
    }
    let zeros = || Tensor::zeros(shape, grad.dtype(), grad.device());
    // No two indices show one element where each step is longer than all that the shorter steps reach together.
    let mut reach = 0;
    for axis in (0..window.shape.rank()).rev().filter(|&a| window.shape[a] > 1) {
        if window.strides[axis] <= reach {
            // Windows that overlap: one position of the axis after the other.
            let parts = (0..window.shape[axis])
                .map(|i| -> Result<Tensor> { unview(&grad.narrow(axis, i, 1)?, &window.narrow(axis, i, 1), shape) });
            return parts.reduce(|sum, part| sum? + part?).unwrap_or_else(zeros);
        }
        reach += window.strides[axis] * (window.shape[axis] as isize - 1);
    }
    overwrite(&zeros()?, &window, &grad)
}

/// `base`, except that `window` (a view of its contiguous elements, each at most once) holds `value`, which broadcasts.
pub(crate) fn overwrite(base: &Tensor, window: &View, value: &Tensor) -> Result<Tensor> {
    let base = base.whole()?;
    let (old, new) = (base.input(), value.input());
    let node = ops::write(&old.edge().node, window.clone(), new.edge())?;
    let written = base.result(node);
    let (window, shape) = (window.clone(), base.shape().clone());
    let written = written.recorded("slice_set", &[&old, &new], &[Keep::NOTHING, Keep::NOTHING], move |saved, grad| {
        write_gradients(saved, grad, &window, &shape)
    });
    written.reshape(base.shape())
}

/// The gradients of a write for that of the written value, of shape `shape`: outside the window it is the old value's,
/// inside the new one's.
pub(crate) fn write_gradients(
    saved: &super::Saved<'_>,
    grad: &Tensor,
    window: &View,
    shape: &Shape,
) -> Result<super::Grads> {
    let grad = grad.reshape(shape)?;
    saved.each(|i| {
        if i == 0 {
            let zero = Tensor::constant(Scalar::F(0.0), grad.dtype(), Shape::new(&[]), grad.device())?;
            overwrite(&grad, window, &zero)
        } else {
            let grad = grad.whole()?;
            Ok(grad.viewed("slice_set", |_| window.clone()))
        }
    })
}
