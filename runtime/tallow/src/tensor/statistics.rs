//! Variance, norms, and sums of exponentials. Narrow floating-point types are computed in F32.

use super::Tensor;
use crate::{Dims, Error, Result};

impl Tensor {
    /// The square root of a sum of squares. Its gradient where all of them are 0 is 0, as in PyTorch; that of the square root
    /// alone is infinite.
    pub(crate) fn root(&self) -> Result<Tensor> {
        if !self.is_tracked() {
            return self.sqrt();
        }
        // The sum itself stands in for its root at 0: what is behind it multiplies its gradient by 0.
        let positive = self.gt(0.0)?;
        let safe = positive.where_cond(self, &self.ones_like()?)?;
        positive.where_cond(&safe.sqrt()?, self)
    }

    fn variance(&self, op: &'static str, axes: &[usize], keep: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            let message = format!("needs a floating-point dtype, not {}: convert with to_dtype", self.dtype());
            return Err(Error::op(op, message));
        }
        let x = self.wide()?;
        let count: f64 = axes.iter().map(|&a| self.dims()[a] as f64).product();
        let squares = x.broadcast_sub(&x.mean_keepdim(axes)?)?.sqr()?;
        let sum = if keep { squares.sum_keepdim(axes)? } else { squares.sum(axes)? };
        // Of one element, 0 / 0; of none, the mean was NaN over nothing, and so is this.
        let degrees = if count == 0.0 { f64::NAN } else { count - 1.0 };
        sum / degrees
    }

    /// The unbiased variance: squared distances from the mean, summed and divided by n - 1. Of one element, NaN.
    pub fn var<T: Dims>(&self, axes: T) -> Result<Tensor> {
        self.variance("var", &axes.to_indexes(self.shape(), "var")?, false)?.to_dtype(self.dtype())
    }

    /// [`Tensor::var`]; the reduced axes stay, with size 1.
    pub fn var_keepdim<T: Dims>(&self, axes: T) -> Result<Tensor> {
        self.variance("var_keepdim", &axes.to_indexes(self.shape(), "var_keepdim")?, true)?.to_dtype(self.dtype())
    }

    /// The square root of the unbiased variance.
    pub fn std<T: Dims>(&self, axes: T) -> Result<Tensor> {
        self.variance("std", &axes.to_indexes(self.shape(), "std")?, false)?.root()?.to_dtype(self.dtype())
    }

    /// [`Tensor::std`]; the reduced axes stay, with size 1.
    pub fn std_keepdim<T: Dims>(&self, axes: T) -> Result<Tensor> {
        self.variance("std_keepdim", &axes.to_indexes(self.shape(), "std_keepdim")?, true)?
            .root()?
            .to_dtype(self.dtype())
    }

    /// The square root of the sum of all squares: a scalar.
    pub fn norm(&self) -> Result<Tensor> {
        self.wide()?.sqr()?.sum_all()?.root()?.to_dtype(self.dtype())
    }

    /// log(sum(e^x)) over axes, without overflow. Of nothing, -infinity.
    pub fn log_sum_exp<T: Dims>(&self, axes: T) -> Result<Tensor> {
        let axes = axes.to_indexes(self.shape(), "log_sum_exp")?;
        let x = self.wide()?;
        if axes.iter().any(|&a| self.dims()[a] == 0) {
            return x.exp()?.sum(axes)?.log()?.to_dtype(self.dtype());
        }
        // Infinite maxima are left alone: infinity - infinity is not a number.
        // The gradient does not depend on what is subtracted.
        let top = x.detach().max_keepdim(axes.as_slice())?;
        let top = top.is_finite()?.where_cond(&top, &Tensor::zeros((), x.dtype(), x.device())?)?;
        let sum = x.broadcast_sub(&top)?.exp()?.sum_keepdim(axes.as_slice())?;
        let kept = (sum.log()? + top)?;
        let sizes = self.dims().iter().enumerate();
        let shape: crate::Shape = sizes.filter(|(a, _)| !axes.contains(a)).map(|(_, &d)| d).collect();
        kept.reshape(shape)?.to_dtype(self.dtype())
    }
}
