//! Convolution. One general form (as XLA's ConvGeneralDilated) serves the forward and the transposed convolution and both
//! of their gradients, since filters and inputs are views: a flipped filter or swapped axes cost nothing.

use super::same_engine;
use crate::{Edge, Error, Node, Op, Result, Scalar, Shape, View};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// How a convolution walks one spatial axis: output position p and tap t read input position
/// `(p * stride + t * dilation - low) / input_dilation`, or nothing where that is outside or between two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvAxis {
    /// Positions of the output. Those past the end of the input read zeros: padding after it is implied.
    pub out: usize,
    /// Step from one output position to the next, at least 1.
    pub stride: usize,
    /// Zeros before the input; a negative number crops.
    pub low: isize,
    /// Step from one tap to the next, at least 1.
    pub dilation: usize,
    /// Step from one element of the input to the next, at least 1; zeros lie between.
    pub input_dilation: usize,
}

/// input [samples, groups, channels, spatial...] with filter [groups, output channels, channels, spatial...]: the sum, over
/// the channels and the taps, of input times filter. One floating-point dtype; accumulates in f32 for types narrower than
/// that. One to three spatial axes. The node holds [samples, groups, output channels, out...] in row-major order, but its
/// shape may have joined axes: view it as that.
///
/// The formulas of its gradients, by the output's gradient (same group axes throughout): of the input, the gradient as
/// input, dilated by `stride`, with the flipped filter whose channel axes are swapped, stride `input_dilation` and low =
/// (taps - 1) * dilation - low; of the filter, the input with samples and channels swapped, and the gradient as filter with
/// samples as channels, stride `dilation`, dilation `stride`.
pub fn convolution(input: Edge, filter: Edge, axes: &[ConvAxis]) -> Result<Arc<Node>> {
    let engine = same_engine("conv", &[&input, &filter])?.clone();
    super::refuse_packed("conv", &[&input, &filter])?;
    let (x, f) = (&input.view.shape, &filter.view.shape);
    let fail = |why: &str| Error::op("conv", format!("{why}: input {x:?}, filter {f:?}"));
    let spatial = axes.len();
    if !(1..=3).contains(&spatial) || x.rank() != 3 + spatial || f.rank() != 3 + spatial {
        return Err(fail(
            "takes one to three spatial axes, behind samples (or groups), groups (or output channels), channels",
        ));
    }
    if x[1] != f[0] || x[2] != f[2] {
        return Err(fail("groups or channels differ"));
    }
    let dtype = input.node.dtype;
    if dtype != filter.node.dtype {
        let message = format!("dtypes {dtype} and {} differ: convert one with to_dtype", filter.node.dtype);
        return Err(Error::op("conv", message));
    }
    if !dtype.is_float() {
        return Err(Error::op("conv", format!("needs a floating-point dtype, not {dtype}: convert with to_dtype")));
    }
    for (axis, &taps) in axes.iter().zip(&f[3..]) {
        if axis.stride == 0 || axis.dilation == 0 || axis.input_dilation == 0 {
            return Err(fail("strides and dilations must be 1 or more"));
        }
        if reach(axis, taps).is_none() {
            return Err(fail("the window is more than can be addressed"));
        }
    }
    let shape: Shape = [x[0], x[1], f[1]].into_iter().chain(axes.iter().map(|a| a.out)).collect();
    // Nothing to add, or nowhere to put it.
    if shape.elem_count() == 0 || f.elem_count() == 0 || x.elem_count() == 0 {
        return super::full(&engine, shape, dtype, Scalar::F(0.0));
    }
    let op = Op::Conv { spatial: spatial as u8 };
    if engine.options().decompose || !engine.runs(op, dtype) {
        return decomposed(input, filter, axes);
    }
    let scalars = axes
        .iter()
        .flat_map(|a| [a.stride as i64, a.low as i64, a.dilation as i64, a.input_dilation as i64].map(Scalar::I))
        .collect();
    engine.node(op, dtype, shape, smallvec![input, filter], scalars)
}

/// Elements of the dilated and padded input that the outputs reach; `None` where that is more than a signed 32-bit number,
/// in which kernels count.
fn reach(axis: &ConvAxis, taps: usize) -> Option<usize> {
    let fits = |n: usize| i32::try_from(n).is_ok();
    let last = axis.out.saturating_sub(1).checked_mul(axis.stride)?;
    let window = taps.saturating_sub(1).checked_mul(axis.dilation)?;
    let reach = last.checked_add(window)?.checked_add(1)?;
    (fits(reach) && fits(axis.low.unsigned_abs()) && fits(axis.input_dilation)).then_some(reach)
}

/// From primitives: zeros around and between the input's elements (a fill and a write), overlapping windows of that as a
/// view, stored as columns, and a batched product with the filter.
fn decomposed(input: Edge, filter: Edge, axes: &[ConvAxis]) -> Result<Arc<Node>> {
    let (x, f) = (input.view.shape.clone(), filter.view.shape.clone());
    let [samples, groups] = [x[0], x[1]];
    let planes = joined(input)?;
    let padded = pad(planes, axes, &f[3..])?;
    let mut view = padded.view.clone();
    for (at, (axis, &taps)) in axes.iter().zip(&f[3..]).enumerate() {
        view = view.windows(2 + at, axis.out, axis.stride, taps, axis.dilation);
    }
    // [planes, channels, out..., taps...] -> [planes, channels, taps..., out...]
    let spatial = axes.len();
    let order: SmallVec<[usize; 8]> = (0..2).chain(2 + spatial..2 + 2 * spatial).chain(2..2 + spatial).collect();
    let view = view.permute(&order);
    let positions: usize = axes.iter().map(|a| a.out).product();
    let depth = f[2..].iter().product();
    let columns = Shape::new(&[samples, groups, depth, positions]);
    let columns = match view.reshape(&columns) {
        // A filter of one tap: the input itself.
        Some(view) => Edge { node: padded.node, view },
        None => {
            let stored = super::copy(Edge { node: padded.node, view })?;
            Edge { node: stored, view: View::contiguous(columns) }
        }
    };
    let rows = Shape::new(&[groups, f[1], depth]);
    let filter = match filter.view.reshape(&rows) {
        Some(view) => Edge { node: filter.node, view },
        None => Edge { node: super::copy(filter)?, view: View::contiguous(rows) },
    };
    super::matmul(filter, columns)
}

/// The input with samples and groups as one axis, through a copy where no view has them so: the columns of three spatial
/// axes then have no more axes than a tensor may have.
fn joined(input: Edge) -> Result<Edge> {
    let shape = &input.view.shape;
    let shape: Shape = [shape[0] * shape[1]].into_iter().chain(shape[2..].iter().copied()).collect();
    Ok(match input.view.reshape(&shape) {
        Some(view) => Edge { node: input.node, view },
        None => Edge { node: super::copy(input)?, view: View::contiguous(shape) },
    })
}

/// What the windows cover of the dilated, padded input: [planes, channels, reach...].
fn pad(x: Edge, axes: &[ConvAxis], taps: &[usize]) -> Result<Edge> {
    let mut inside = x.view.clone();
    let mut whole: SmallVec<[usize; 8]> = SmallVec::from_slice(&x.view.shape[..2]);
    let mut firsts: SmallVec<[usize; 3]> = SmallVec::new();
    let mut padded = false;
    for (at, (axis, &taps)) in axes.iter().zip(taps).enumerate() {
        let size = x.view.shape[2 + at];
        let length = reach(axis, taps).ok_or_else(|| Error::op("conv", "the window is more than can be addressed"))?;
        let (low, step) = (axis.low, axis.input_dilation as isize);
        // Input element i lies at i * step + low: those inside 0..length.
        let first = if low >= 0 { 0 } else { (step - 1 - low) / step } as usize;
        let end = if low >= length as isize { 0 } else { ((length as isize - 1 - low) / step + 1) as usize };
        let count = end.min(size).saturating_sub(first);
        inside = inside.narrow(2 + at, first.min(size), count);
        firsts.push((first as isize * step + low).max(0) as usize);
        whole.push(length);
        padded |= low > 0 || step > 1 || count < length;
    }
    if !padded {
        return Ok(Edge { node: x.node, view: inside });
    }
    let zeros = super::full(&x.node.engine, Shape::new(&whole), x.node.dtype, Scalar::F(0.0))?;
    if inside.shape.elem_count() == 0 {
        return Ok(Edge::from(&zeros));
    }
    let mut window = View::contiguous(Shape::new(&whole));
    for (at, axis) in axes.iter().enumerate() {
        let (from, count) = (firsts[at], inside.shape[2 + at]);
        window = window.narrow(2 + at, from, whole[2 + at] - from).every(2 + at, count, axis.input_dilation);
    }
    let node = super::write(&zeros, window, Edge { node: x.node, view: inside })?;
    Ok(Edge::from(&node))
}
