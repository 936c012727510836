//! More views: windows, diagonals, parts, axes moved; and how a view lies in memory.

use super::Tensor;
use crate::{Dim, Dims, Error, Result, View};
use tallow_graph::MAX_RANK;

impl Tensor {
    /// Windows of `size` positions along an axis, one every `step` positions: the axis counts the windows, a new last axis
    /// goes along one. A view: windows that overlap share their elements.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::arange(0u32, 5, &Device::Cpu)?;
    /// assert_eq!(x.unfold(0, 3, 2)?.to_vec2::<u32>()?, [[0, 1, 2], [2, 3, 4]]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn unfold<D: Dim>(&self, axis: D, size: usize, step: usize) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "unfold")?;
        if self.rank() == MAX_RANK {
            return Err(Error::op("unfold", format!("{:?} has as many axes as can be", self.shape())));
        }
        let count = self.dims()[axis].checked_sub(size).and_then(|rest| rest.checked_div(step)).map(|steps| steps + 1);
        let count = count.ok_or_else(|| {
            let message =
                format!("no windows of {size} every {step} positions along axis {axis} of {:?}", self.shape());
            Error::op("unfold", message)
        })?;
        // A single window takes no step, however long.
        let step = if count > 1 { step } else { 0 };
        Ok(self.viewed("unfold", |view| view.windows(axis, count, step, size, 1)))
    }

    /// The elements whose positions along two different axes are equal, along a new last axis.
    pub(super) fn main_diagonal(&self, first: usize, second: usize) -> Result<Tensor> {
        Ok(self.viewed("diagonal", |view| view.diagonal(first, second)))
    }

    /// Cut along an axis into parts of these sizes, which must add up to the axis's own.
    pub fn split<D: Dim>(&self, sizes: &[usize], axis: D) -> Result<Vec<Tensor>> {
        let axis = axis.to_index(self.shape(), "split")?;
        if sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n)) != Some(self.dims()[axis]) {
            let message = format!("sizes {sizes:?} do not add up to axis {axis} of {:?}", self.shape());
            return Err(Error::op("split", message));
        }
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            self.narrow(axis, start - size, size)
        };
        sizes.iter().map(part).collect()
    }

    /// Axes moved to other places; the rest keep their order around them.
    ///
    /// ```
    /// use tallow::{DType, Device, Tensor};
    /// let x = Tensor::zeros((2, 3, 4), DType::F32, &Device::Cpu)?;
    /// assert_eq!(x.movedim(0, 2)?.dims(), [3, 4, 2]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn movedim<A: Dims, B: Dims>(&self, from: A, to: B) -> Result<Tensor> {
        let (from, to) = (from.to_indexes(self.shape(), "movedim")?, to.to_indexes(self.shape(), "movedim")?);
        if from.len() != to.len() {
            return Err(Error::op("movedim", format!("axes {from:?} cannot move to {to:?}")));
        }
        let mut rest = (0..self.rank()).filter(|axis| !from.contains(axis));
        let order: Vec<usize> = (0..self.rank())
            .filter_map(|place| match to.iter().position(|&t| t == place) {
                Some(moved) => Some(from[moved]),
                None => rest.next(),
            })
            .collect();
        self.permute(order)
    }

    /// Whether elements follow one another in memory in column-major order: the first axis fastest.
    pub fn is_fortran_contiguous(&self) -> bool {
        let order: Vec<usize> = (0..self.rank()).rev().collect();
        self.view.permute(&order).is_dense()
    }

    /// Where the elements lie in the value's storage, in row-major order.
    pub fn strided_index(&self) -> StridedIndex {
        StridedIndex::new(&self.view)
    }
}

/// The places of a view's elements, in row-major order of its indices. See [`Tensor::strided_index`].
#[derive(Debug, Clone)]
pub struct StridedIndex {
    /// Size and stride of each axis.
    axes: Vec<(usize, isize)>,
    index: Vec<usize>,
    at: isize,
    left: usize,
}

impl StridedIndex {
    fn new(view: &View) -> Self {
        let axes: Vec<_> = view.shape.iter().copied().zip(view.strides.iter().copied()).collect();
        Self { index: vec![0; axes.len()], axes, at: view.offset as isize, left: view.shape.elem_count() }
    }
}

impl Iterator for StridedIndex {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let now = self.at as usize;
        for (index, &(size, stride)) in self.index.iter_mut().zip(&self.axes).rev() {
            *index += 1;
            self.at += stride;
            if *index < size {
                break;
            }
            *index = 0;
            self.at -= size as isize * stride;
        }
        Some(now)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StridedIndex {}
