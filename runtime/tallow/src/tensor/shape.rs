//! Views: other shapes and orders of the same elements. None of these runs a kernel, except that a reshape which no view
//! expresses copies.

use super::Tensor;
use crate::autograd::rules::elementwise;
use crate::{Dim, Dims, Error, IntoShape, Result, Shape, ShapeWithHole};
use tallow_graph::ops;

impl Tensor {
    /// The same elements in the same order under another shape; one size may be left open: `((), 4)`.
    pub fn reshape<S: ShapeWithHole>(&self, shape: S) -> Result<Tensor> {
        let shape = shape.fill(self.elem_count())?;
        if shape.elem_count() != self.elem_count() || shape.rank() > tallow_graph::MAX_RANK {
            return Err(Error::op("reshape", format!("{:?} does not make {shape:?}", self.shape())));
        }
        match self.view.reshape(&shape) {
            Some(_) => self.reshaped(shape),
            None => {
                let copy = self.force_contiguous()?;
                copy.reshaped(shape)
            }
        }
    }

    /// Of a tensor whose view can be reshaped.
    fn reshaped(&self, shape: Shape) -> Result<Tensor> {
        // A contiguous view takes any shape of as many elements.
        Ok(self
            .viewed("reshape", |view| view.reshape(&shape).unwrap_or_else(|| crate::View::contiguous(shape.clone()))))
    }

    /// Repeats along axes of size 1, and along new leading axes.
    pub fn broadcast_as(&self, shape: impl IntoShape) -> Result<Tensor> {
        let shape = shape.into_shape();
        if shape.rank() > tallow_graph::MAX_RANK || shape.elem_count() > isize::MAX as usize {
            return Err(Error::op("broadcast_as", format!("{shape:?} has too many axes or elements")));
        }
        if self.view.broadcast_to(&shape).is_none() {
            return Err(Error::op("broadcast_as", format!("{:?} does not stretch to {shape:?}", self.shape())));
        }
        Ok(self.viewed("broadcast_as", |view| view.broadcast_to(&shape).unwrap_or_else(|| view.clone())))
    }

    /// Another name of [`Tensor::broadcast_as`].
    pub fn expand(&self, shape: impl IntoShape) -> Result<Tensor> {
        self.broadcast_as(shape)
    }

    /// Repeats along new leading axes.
    pub fn broadcast_left(&self, left: impl IntoShape) -> Result<Tensor> {
        let shape: Shape = left.into_shape().iter().chain(self.dims()).copied().collect();
        self.broadcast_as(shape)
    }

    /// Swaps two axes.
    pub fn transpose<A: Dim, B: Dim>(&self, a: A, b: B) -> Result<Tensor> {
        let (a, b) = (a.to_index(self.shape(), "transpose")?, b.to_index(self.shape(), "transpose")?);
        let mut order: Vec<usize> = (0..self.rank()).collect();
        order.swap(a, b);
        Ok(self.viewed("transpose", |view| view.permute(&order)))
    }

    /// Swaps the last two axes.
    pub fn t(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::op("t", format!("{:?} has fewer than two axes", self.shape())));
        }
        self.transpose(self.rank() - 2, self.rank() - 1)
    }

    /// Axes in another order: axis i of the result is axis `order[i]`.
    pub fn permute<T: Dims>(&self, order: T) -> Result<Tensor> {
        let order = order.to_indexes(self.shape(), "permute")?;
        if order.len() != self.rank() {
            return Err(Error::op("permute", format!("{order:?} does not order the axes of {:?}", self.shape())));
        }
        Ok(self.viewed("permute", |view| view.permute(&order)))
    }

    /// `len` positions of an axis from `start`.
    pub fn narrow<T: Dim>(&self, axis: T, start: usize, len: usize) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "narrow")?;
        if start.checked_add(len).is_none_or(|end| end > self.dims()[axis]) {
            let message = format!("{len} positions from {start} are not inside axis {axis} of {:?}", self.shape());
            return Err(Error::op("narrow", message));
        }
        Ok(self.viewed("narrow", |view| view.narrow(axis, start, len)))
    }

    /// Position `index` of the first axis.
    pub fn get(&self, index: usize) -> Result<Tensor> {
        self.get_on_dim(0, index)
    }

    /// Position `index` of an axis, which goes.
    pub fn get_on_dim<T: Dim>(&self, axis: T, index: usize) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "get_on_dim")?;
        self.narrow(axis, index, 1)?.squeeze(axis)
    }

    /// Without an axis of size 1; unchanged where its size is another.
    pub fn squeeze<T: Dim>(&self, axis: T) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "squeeze")?;
        if self.dims()[axis] != 1 {
            return Ok(self.clone());
        }
        Ok(self.viewed("squeeze", |view| view.squeeze(axis)))
    }

    /// With a new axis of size 1 before `axis`; `D::Minus1` puts it last.
    pub fn unsqueeze<T: Dim>(&self, axis: T) -> Result<Tensor> {
        if self.rank() == tallow_graph::MAX_RANK {
            return Err(Error::op("unsqueeze", format!("{:?} has as many axes as can be", self.shape())));
        }
        let grown: Shape = self.dims().iter().copied().chain([1]).collect();
        let axis = axis.to_index(&grown, "unsqueeze")?;
        Ok(self.viewed("unsqueeze", |view| view.unsqueeze(axis)))
    }

    /// An axis read backwards.
    pub fn flip<T: Dims>(&self, axes: T) -> Result<Tensor> {
        let axes = axes.to_indexes(self.shape(), "flip")?;
        Ok(self.viewed("flip", |view| axes.iter().fold(view.clone(), |view, &axis| view.flip(axis))))
    }

    /// Axes `from..=to` as one.
    pub fn flatten<A: Dim, B: Dim>(&self, from: A, to: B) -> Result<Tensor> {
        let (from, to) = (from.to_index(self.shape(), "flatten")?, to.to_index(self.shape(), "flatten")?);
        if to < from {
            return Ok(self.clone());
        }
        let dims = self.dims();
        // A tensor's elements can be counted, so a part of its axes can.
        let middle: usize = dims[from..=to].iter().fold(1, |n, &d| n.saturating_mul(d));
        let shape: Shape = dims[..from].iter().copied().chain([middle]).chain(dims[to + 1..].iter().copied()).collect();
        self.reshape(shape)
    }

    /// All axes as one.
    pub fn flatten_all(&self) -> Result<Tensor> {
        self.reshape(self.elem_count())
    }

    /// The axes from `from` on as one.
    pub fn flatten_from<A: Dim>(&self, from: A) -> Result<Tensor> {
        self.flatten(from, crate::D::Minus1)
    }

    /// The axes up to `to` as one.
    pub fn flatten_to<A: Dim>(&self, to: A) -> Result<Tensor> {
        self.flatten(0, to)
    }

    /// Cut along an axis into `chunks` parts, the last ones smaller by one where it does not divide evenly.
    pub fn chunk<T: Dim>(&self, chunks: usize, axis: T) -> Result<Vec<Tensor>> {
        let axis = axis.to_index(self.shape(), "chunk")?;
        let size = self.dims()[axis];
        if chunks == 0 {
            return Err(Error::op("chunk", "0 chunks were asked for"));
        }
        let chunks = chunks.min(size.max(1));
        let mut start = 0;
        (0..chunks)
            .map(|i| {
                let len = size / chunks + usize::from(i < size % chunks);
                start += len;
                self.narrow(axis, start - len, len)
            })
            .collect()
    }

    /// The same tensor if its elements follow one another in memory, else a copy in which they do.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() { Ok(self.clone()) } else { self.force_contiguous() }
    }

    /// A copy with memory of its own.
    pub fn force_contiguous(&self) -> Result<Tensor> {
        let x = self.input();
        Ok(elementwise::copy(self.result(ops::copy(x.edge())?), &x))
    }

    /// A copy with memory of its own: later writes into this tensor do not show in it.
    pub fn copy(&self) -> Result<Tensor> {
        self.force_contiguous()
    }
}
