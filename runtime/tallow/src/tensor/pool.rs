//! Pooling: reductions over the inner axes of overlapping windows. A window is a view, so nothing is copied.

use super::Tensor;
use crate::{
    Error, Result,
    autograd::rules::pool::{Windows, pool},
};
use tallow_graph::{kernel::RowOp, ops};

/// Two sizes: of rows and columns, or one for both.
pub trait ToUsize2 {
    /// Rows, columns.
    fn to_usize2(self) -> (usize, usize);
}

impl ToUsize2 for usize {
    fn to_usize2(self) -> (usize, usize) {
        (self, self)
    }
}

impl ToUsize2 for (usize, usize) {
    fn to_usize2(self) -> (usize, usize) {
        self
    }
}

impl Tensor {
    /// Means over windows of `size`, which do not overlap: this is [batch, channels, height, width].
    pub fn avg_pool2d<T: ToUsize2>(&self, size: T) -> Result<Tensor> {
        let size = size.to_usize2();
        self.avg_pool2d_with_stride(size, size)
    }

    /// Means over windows of `size` that begin `stride` apart: this is [batch, channels, height, width]. Only whole windows
    /// count: a size becomes (size - window) / stride + 1.
    pub fn avg_pool2d_with_stride<T: ToUsize2>(&self, size: T, stride: T) -> Result<Tensor> {
        self.pool2d("avg_pool2d", RowOp::Mean, size, stride)
    }

    /// Maxima over windows of `size`, which do not overlap: this is [batch, channels, height, width]. NaN wins.
    pub fn max_pool2d<T: ToUsize2>(&self, size: T) -> Result<Tensor> {
        let size = size.to_usize2();
        self.max_pool2d_with_stride(size, size)
    }

    /// Maxima over windows of `size` that begin `stride` apart: this is [batch, channels, height, width]. Only whole windows
    /// count. NaN wins.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::arange(0f32, 9., &Device::Cpu)?.reshape((1, 1, 3, 3))?;
    /// let y = x.max_pool2d_with_stride(2, 1)?;
    /// assert_eq!(y.flatten_all()?.to_vec1::<f32>()?, [4., 5., 7., 8.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn max_pool2d_with_stride<T: ToUsize2>(&self, size: T, stride: T) -> Result<Tensor> {
        self.pool2d("max_pool2d", RowOp::Max, size, stride)
    }

    /// Means over windows of `size` that begin `stride` apart: this is [batch, channels, length].
    pub fn avg_pool1d(&self, size: usize, stride: usize) -> Result<Tensor> {
        self.pool("avg_pool1d", RowOp::Mean, &[size], &[stride])
    }

    /// Maxima over windows of `size` that begin `stride` apart: this is [batch, channels, length]. NaN wins.
    pub fn max_pool1d(&self, size: usize, stride: usize) -> Result<Tensor> {
        self.pool("max_pool1d", RowOp::Max, &[size], &[stride])
    }

    fn pool2d<T: ToUsize2>(&self, name: &'static str, op: RowOp, size: T, stride: T) -> Result<Tensor> {
        let (size, stride) = (size.to_usize2(), stride.to_usize2());
        self.pool(name, op, &[size.0, size.1], &[stride.0, stride.1])
    }

    fn pool(&self, name: &'static str, op: RowOp, size: &[usize], stride: &[usize]) -> Result<Tensor> {
        let lead = self.rank().checked_sub(size.len()).filter(|&lead| lead == 2);
        let fail =
            |why: &str| Error::op(name, format!("{why}: input {:?}, window {size:?}, stride {stride:?}", self.shape()));
        let lead =
            lead.ok_or_else(|| fail("needs an input of [batch, channels] and an axis for each of the window"))?;
        if size.contains(&0) || stride.contains(&0) {
            return Err(fail("windows and strides must be 1 or more"));
        }
        if size.iter().zip(&self.dims()[lead..]).any(|(size, dim)| size > dim) {
            return Err(fail("the window is larger than the input"));
        }
        let windows = Windows { lead, size: size.to_vec(), stride: stride.to_vec() };
        let x = self.input();
        let pooled = self.result(ops::reduce(op, windows.edge(&x), windows.mask())?);
        Ok(pool(pooled, op, name, &x, windows))
    }
}
