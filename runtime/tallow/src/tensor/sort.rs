//! Sorting along an axis, and what follows from it: the largest elements, medians, quantiles, and counts.

use super::Tensor;
use crate::{D, DType, Dim, Error, Result, Shape};
use tallow_graph::{Scalar, ops};

impl Tensor {
    /// The positions along `axis` in the order of the elements, as U32: smallest first, or largest first. Equal elements keep
    /// their order; NaN counts as the largest.
    pub fn arg_sort<T: Dim>(&self, axis: T, descending: bool) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "arg_sort")?;
        self.result(ops::arg_sort(self.edge(), axis, descending)?).reshape(self.shape())
    }

    /// The elements along `axis` in order, and their positions (U32). See [`Tensor::arg_sort`].
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[3f32, 1., 2.], &Device::Cpu)?;
    /// let (values, positions) = x.sort(0, true)?;
    /// assert_eq!(values.to_vec1::<f32>()?, [3., 2., 1.]);
    /// assert_eq!(positions.to_vec1::<u32>()?, [0, 2, 1]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn sort<T: Dim>(&self, axis: T, descending: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis.to_index(self.shape(), "sort")?;
        let positions = self.arg_sort(axis, descending)?;
        Ok((self.gather(&positions, axis)?, positions))
    }

    /// [`Tensor::arg_sort`] along the last axis, smallest first if `asc`.
    pub fn arg_sort_last_dim(&self, asc: bool) -> Result<Tensor> {
        self.arg_sort(D::Minus1, !asc)
    }

    /// [`Tensor::sort`] along the last axis, smallest first if `asc`.
    pub fn sort_last_dim(&self, asc: bool) -> Result<(Tensor, Tensor)> {
        self.sort(D::Minus1, !asc)
    }

    /// The `k` largest (or smallest) elements along `axis`, best first, and their positions (U32). NaN counts as the largest.
    pub fn topk<T: Dim>(&self, k: usize, axis: T, largest: bool) -> Result<(Tensor, Tensor)> {
        let axis = axis.to_index(self.shape(), "topk")?;
        if k > self.dims()[axis] {
            let message = format!("axis {axis} of {:?} has fewer than {k} elements", self.shape());
            return Err(Error::op("topk", message));
        }
        let positions = self.arg_sort(axis, largest)?.narrow(axis, 0, k)?;
        Ok((self.gather(&positions, axis)?, positions))
    }

    /// The middle element along `axis`, which goes; of an even number, the lower of the two. NaN if there is one.
    pub fn median<T: Dim>(&self, axis: T) -> Result<Tensor> {
        let axis = self.some_along("median", axis)?;
        let (sorted, _) = self.sort(axis, false)?;
        self.or_nan(&sorted, axis, sorted.get_on_dim(axis, (self.dims()[axis] - 1) / 2)?)
    }

    /// The element along `axis` below which a share `q` (0 to 1) of the elements lies, interpolated linearly between its two
    /// neighbours; the axis goes. NaN if there is one. Of a floating-point dtype.
    pub fn quantile<T: Dim>(&self, q: f64, axis: T) -> Result<Tensor> {
        let axis = self.some_along("quantile", axis)?;
        if !(0.0..=1.0).contains(&q) || !self.dtype().is_float() {
            let message = format!("takes a share from 0 to 1 of floating-point elements, not {q} of {}", self.dtype());
            return Err(Error::op("quantile", message));
        }
        let (sorted, _) = self.sort(axis, false)?;
        let place = q * (self.dims()[axis] - 1) as f64;
        let (low, high) =
            (sorted.get_on_dim(axis, place.floor() as usize)?, sorted.get_on_dim(axis, place.ceil() as usize)?);
        // Twice the same element where the place is whole: infinities then have no difference.
        let value =
            if place.fract() == 0.0 { low } else { ((low * (1.0 - place.fract()))? + (high * place.fract())?)? };
        self.or_nan(&sorted, axis, value)
    }

    fn some_along<T: Dim>(&self, op: &'static str, axis: T) -> Result<usize> {
        let axis = axis.to_index(self.shape(), op)?;
        if self.dims()[axis] == 0 {
            return Err(Error::op(op, format!("axis {axis} of {:?} has no elements", self.shape())));
        }
        Ok(axis)
    }

    /// `value`, but the last of `sorted` where that is NaN.
    fn or_nan(&self, sorted: &Tensor, axis: usize, value: Tensor) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Ok(value);
        }
        let last = sorted.get_on_dim(axis, self.dims()[axis] - 1)?;
        last.eq(&last)?.where_cond(&value, &last)
    }

    /// The positions at which elements are not zero, in row-major order: U32 [how many, axes]. How many there are is read from
    /// the device. In a browser, use [`Tensor::nonzero_async`].
    pub fn nonzero(&self) -> Result<Tensor> {
        crate::block_on::block_on_named(self.nonzero_async(), "nonzero", "nonzero_async")
    }

    /// The positions at which elements are not zero, in row-major order: U32 [how many, axes]. How many there are is read from
    /// the device.
    pub async fn nonzero_async(&self) -> Result<Tensor> {
        if self.dims().iter().any(|&d| u32::try_from(d).is_err()) {
            return Err(Error::op("nonzero", format!("{:?} has positions that U32 cannot count", self.shape())));
        }
        let zero = Tensor::constant(Scalar::F(0.0), self.dtype(), Shape::new(&[]), self.device())?;
        let set: Vec<u8> = self.detach().broadcast_ne(&zero)?.to_vec_async().await?;
        let mut positions: Vec<u32> = Vec::new();
        for at in set.iter().enumerate().filter_map(|(at, &set)| (set != 0).then_some(at)) {
            let start = positions.len();
            let mut rest = at;
            for &size in self.dims().iter().rev() {
                positions.push((rest % size) as u32);
                rest /= size;
            }
            positions[start..].reverse();
        }
        let count = set.iter().filter(|&&set| set != 0).count();
        Tensor::from_slice(&positions, (count, self.rank()), self.device())
    }

    /// How often each of the numbers 0 to bins - 1 occurs among the elements (an integer dtype): U32 `[bins]`. Another number is
    /// an error at the next read, except the largest of the dtype: a hole, not counted.
    pub fn bincount(&self, bins: usize) -> Result<Tensor> {
        let ids = self.flatten_all()?;
        let ones = Tensor::ones((), DType::U32, self.device())?.broadcast_as(ids.shape())?;
        Tensor::zeros(bins, DType::U32, self.device())?.index_add(&ids, &ones, 0)
    }

    /// How many elements lie in each of `bins` equal parts of min..=max: U32 `[bins]`. Elements outside, and NaN, are not
    /// counted.
    pub fn histogram(&self, bins: usize, min: f64, max: f64) -> Result<Tensor> {
        let proper = bins > 0 && u32::try_from(bins).is_ok() && min.is_finite() && max.is_finite() && min < max;
        if !proper {
            return Err(Error::op("histogram", format!("{min} to {max} in {bins} parts is no histogram")));
        }
        let work = if matches!(self.dtype(), DType::F64) { DType::F64 } else { DType::F32 };
        let x = self.detach().flatten_all()?.to_dtype(work)?;
        let limit = |value| Tensor::constant(Scalar::F(value), work, Shape::new(&[]), x.device());
        let inside = x.broadcast_ge(&limit(min)?)?.mul(&x.broadcast_le(&limit(max)?)?)?.to_dtype(DType::U32)?;
        let place = ((x - min)? * (bins as f64 / (max - min)))?.floor()?.clamp(0.0, (bins - 1) as f64)?;
        // NaN becomes 0, and counts nothing.
        Tensor::zeros(bins, DType::U32, self.device())?.index_add(&place.to_dtype(DType::U32)?, &inside, 0)
    }

    /// For each element, between which of the `boundaries` (a vector in ascending order) it lies: how many of them are below
    /// it, or with `right` not above it. U32, of this tensor's shape.
    pub fn bucketize(&self, boundaries: &Tensor, right: bool) -> Result<Tensor> {
        boundaries.dims1()?;
        let (x, limits) = (self.unsqueeze(D::Minus1)?, boundaries);
        let below = if right { x.broadcast_ge(limits)? } else { x.broadcast_gt(limits)? };
        below.to_dtype(DType::U32)?.sum(D::Minus1)
    }
}
