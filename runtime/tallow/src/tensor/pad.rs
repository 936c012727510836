//! Padding, and parts of a tensor replaced by another's elements (without changing the tensor itself; the writes of
//! `inplace.rs` do).

use super::{
    Tensor,
    join::{Ground, assemble},
    scalar::exact,
};
use crate::{Dim, Error, Result, Shape};
use std::ops::{Bound, RangeBounds};
use tallow_graph::Scalar;

impl Tensor {
    /// Zeros before and after, along an axis.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[1f32, 2.], &Device::Cpu)?;
    /// assert_eq!(x.pad_with_zeros(0, 1, 2)?.to_vec1::<f32>()?, [0., 1., 2., 0., 0.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn pad_with_zeros<D: Dim>(&self, axis: D, left: usize, right: usize) -> Result<Tensor> {
        self.padded("pad_with_zeros", axis, left, right, 0.0)
    }

    /// A number before and after, along an axis.
    pub fn pad_with_value<D: Dim>(&self, axis: D, left: usize, right: usize, value: f64) -> Result<Tensor> {
        self.padded("pad_with_value", axis, left, right, value)
    }

    fn padded<D: Dim>(&self, op: &'static str, axis: D, left: usize, right: usize, value: f64) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), op)?;
        if left == 0 && right == 0 {
            return self.fresh(op);
        }
        let value = exact(op, self.dtype(), Scalar::F(value))?;
        let (mut sizes, mut starts) = (self.dims().to_vec(), vec![0; self.rank()]);
        sizes[axis] = sizes[axis].saturating_add(left).saturating_add(right);
        starts[axis] = left;
        assemble(op, &Shape::new(&sizes), Ground::Number(value), &[(self, starts)])
    }

    /// The first and the last element of an axis repeated before and after.
    pub fn pad_with_same<D: Dim>(&self, axis: D, left: usize, right: usize) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "pad_with_same")?;
        let size = self.dims()[axis];
        if left == 0 && right == 0 {
            return self.fresh("pad_with_same");
        }
        let Some(last) = size.checked_sub(1) else {
            return Err(Error::op(
                "pad_with_same",
                format!("axis {axis} of {:?} has no element to repeat", self.shape()),
            ));
        };
        let edge = |at: usize, times: usize| {
            let mut sizes = self.dims().to_vec();
            sizes[axis] = times;
            self.narrow(axis, at, 1)?.broadcast_as(sizes)
        };
        Tensor::cat(&[edge(0, left)?, self.clone(), edge(last, right)?], axis)
    }

    /// The elements next to the ends mirrored before and after; the ends themselves are not repeated. Both paddings must be
    /// smaller than the axis.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[1f32, 2., 3.], &Device::Cpu)?;
    /// assert_eq!(x.pad_with_reflection(0, 2, 1)?.to_vec1::<f32>()?, [3., 2., 1., 2., 3., 2.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn pad_with_reflection<D: Dim>(&self, axis: D, left: usize, right: usize) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "pad_with_reflection")?;
        let size = self.dims()[axis];
        if left == 0 && right == 0 {
            return self.fresh("pad_with_reflection");
        }
        if left.max(right) >= size {
            let message =
                format!("axis {axis} of {:?} has too few elements to mirror {left} and {right}", self.shape());
            return Err(Error::op("pad_with_reflection", message));
        }
        let before = self.narrow(axis, 1, left)?.flip(axis)?;
        let after = self.narrow(axis, size - 1 - right, right)?.flip(axis)?;
        Tensor::cat(&[before, self.clone(), after], axis)
    }

    /// This tensor with `source` in place of the elements from `start` on along an axis. Other axes must have equal sizes.
    pub fn slice_scatter<D: Dim>(&self, source: &Tensor, axis: D, start: usize) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "slice_scatter")?;
        let mut starts = vec![0; self.rank()];
        starts[axis] = start;
        let same = |(a, (s, d)): (usize, (&usize, &usize))| a == axis || s == d;
        if source.rank() != self.rank() || !source.dims().iter().zip(self.dims()).enumerate().all(same) {
            let message = format!("{:?} does not fit into {:?} along axis {axis}", source.shape(), self.shape());
            return Err(Error::op("slice_scatter", message));
        }
        self.replaced("slice_scatter", source, starts)
    }

    /// [`Tensor::slice_scatter`] along the first axis.
    pub fn slice_scatter0(&self, source: &Tensor, start: usize) -> Result<Tensor> {
        self.slice_scatter(source, 0, start)
    }

    /// This tensor with `source` in place of the part that the ranges name, one an axis from the first on. `source` has that
    /// part's shape.
    ///
    /// ```
    /// use tallow::{DType, Device, Tensor};
    /// let x = Tensor::zeros((2, 3), DType::U32, &Device::Cpu)?;
    /// let y = x.slice_assign(&[1..2, 0..2], &Tensor::new(&[[7u32, 8]], &Device::Cpu)?)?;
    /// assert_eq!(y.to_vec2::<u32>()?, [[0, 0, 0], [7, 8, 0]]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn slice_assign<R: RangeBounds<usize>>(&self, ranges: &[R], source: &Tensor) -> Result<Tensor> {
        let fail =
            |why: &str| Err(Error::op("slice_assign", format!("{why}: {:?} into {:?}", source.shape(), self.shape())));
        if ranges.len() > self.rank() || source.rank() != self.rank() {
            return fail("the numbers of axes differ");
        }
        let mut starts = vec![0; self.rank()];
        for (axis, &size) in self.dims().iter().enumerate() {
            let (from, to) = match ranges.get(axis) {
                None => (0, size),
                Some(range) => {
                    let from = match range.start_bound() {
                        Bound::Included(&from) => from,
                        Bound::Excluded(&from) => from.saturating_add(1),
                        Bound::Unbounded => 0,
                    };
                    let to = match range.end_bound() {
                        Bound::Included(&to) => to.saturating_add(1),
                        Bound::Excluded(&to) => to,
                        Bound::Unbounded => size,
                    };
                    (from, to)
                }
            };
            if to.checked_sub(from) != Some(source.dims()[axis]) {
                return fail(&format!("range {from}..{to} of axis {axis} has another size"));
            }
            starts[axis] = from;
        }
        self.replaced("slice_assign", source, starts)
    }

    fn replaced(&self, op: &'static str, source: &Tensor, starts: Vec<usize>) -> Result<Tensor> {
        for (axis, (&start, &len)) in starts.iter().zip(source.dims()).enumerate() {
            if start.checked_add(len).is_none_or(|end| end > self.dims()[axis]) {
                let message = format!("{len} positions from {start} are not inside axis {axis} of {:?}", self.shape());
                return Err(Error::op(op, message));
            }
        }
        if source.dtype() != self.dtype() || !source.device().same_device(self.device()) {
            let message = format!(
                "cannot put {} on {:?} into {} on {:?}: convert with to_dtype or move with to_device",
                source.dtype(),
                source.device(),
                self.dtype(),
                self.device()
            );
            return Err(Error::op(op, message));
        }
        assemble(op, self.shape(), Ground::Tensor(self), &[(source, starts)])
    }
}
