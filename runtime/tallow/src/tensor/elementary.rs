//! Element-wise functions made of simpler ones.

use super::{
    Tensor,
    scalar::{TensorOrScalar, TensorScalar},
};
use crate::{DType, Error, Result, Shape};
use tallow_graph::Scalar;

impl Tensor {
    /// In F32, where the dtype is a narrower floating-point one: for what loses too much in it half way.
    pub(super) fn wide(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => self.to_dtype(DType::F32),
            _ => Ok(self.clone()),
        }
    }

    fn need_float(&self, op: &'static str) -> Result<()> {
        if self.dtype().is_float() {
            return Ok(());
        }
        Err(Error::op(op, format!("needs a floating-point dtype, not {}: convert with to_dtype", self.dtype())))
    }

    /// e^x - 1, accurate near 0 too.
    pub fn expm1(&self) -> Result<Tensor> {
        self.need_float("expm1")?;
        let x = self.wide()?;
        // The Taylor series x (1 + x/2 (1 + x/3 (...))) up to 1/2; what it leaves out is below the precision.
        let small = x.clamp(-0.5, 0.5)?;
        let terms = if x.dtype() == DType::F64 { 15 } else { 9 };
        let mut sum = small.affine(1.0 / f64::from(terms), 1.0)?;
        for k in (2..terms).rev() {
            sum = (&small * sum)?.affine(1.0 / f64::from(k), 1.0)?;
        }
        let large = (x.exp()? - 1.0)?;
        x.abs()?.lt(0.5)?.where_cond(&(small * sum)?, &large)?.to_dtype(self.dtype())
    }

    /// The natural logarithm of 1 + x, accurate near 0 too; NaN below -1.
    pub fn log1p(&self) -> Result<Tensor> {
        self.need_float("log1p")?;
        let x = self.wide()?;
        // log(1 + x) = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = x / (2 + x), up to |x| = 0.3.
        let small = x.clamp(-0.3, 0.3)?;
        let s = (&small / (&small + 2.0)?)?;
        let square = s.sqr()?;
        let terms = if x.dtype() == DType::F64 { 11 } else { 6 };
        let mut sum = square.affine(1.0 / f64::from(2 * terms + 1), 1.0 / f64::from(2 * terms - 1))?;
        for k in (1..terms - 1).rev() {
            sum = (&square * sum)?.affine(1.0, 1.0 / f64::from(2 * k + 1))?;
        }
        let series = ((&square * sum)?.affine(2.0, 2.0)? * s)?;
        let large = (&x + 1.0)?.log()?;
        x.abs()?.lt(0.3)?.where_cond(&series, &large)?.to_dtype(self.dtype())
    }

    /// tan x, x in radians.
    pub fn tan(&self) -> Result<Tensor> {
        self.need_float("tan")?;
        let x = self.wide()?;
        (x.sin()? / x.cos()?)?.to_dtype(self.dtype())
    }

    /// x above 0, alpha * (e^x - 1) elsewhere (Clevert et al., 2015).
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.need_float("elu")?;
        // The branch that is not taken must stay finite, or its gradient is 0 * infinity.
        let below = (self.clamp(f64::NEG_INFINITY, 0.0)?.expm1()? * alpha)?;
        self.gt(0.0)?.where_cond(self, &below)
    }

    /// Rounded to so many decimals, half away from zero; to tens, hundreds, ... where negative.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[1.2345f64, 678.9], &Device::Cpu)?;
    /// assert_eq!(x.round_to(2)?.to_vec1::<f64>()?, [1.23, 678.9]);
    /// assert_eq!(x.round_to(-2)?.to_vec1::<f64>()?, [0., 700.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        if decimals >= 0 && self.dtype().is_int() {
            return self.fresh("round_to");
        }
        self.need_float("round_to")?;
        // Powers of ten with a positive exponent are exact, their reciprocals are not.
        let scale = 10f64.powi(decimals.abs());
        let x = self.wide()?;
        let rounded = if decimals >= 0 { ((x * scale)?.round()? / scale)? } else { ((x / scale)?.round()? * scale)? };
        rounded.to_dtype(self.dtype())
    }

    /// self + weight * (end - self): 0 gives this tensor, 1 gives `end`, exactly. The weight is a number or a tensor;
    /// all are stretched to one shape.
    pub fn lerp<T: TensorOrScalar>(&self, end: &Tensor, weight: T) -> Result<Tensor> {
        self.need_float("lerp")?;
        let difference = end.broadcast_sub(self)?;
        match weight.to_tensor_scalar() {
            TensorScalar::Scalar(weight) => {
                let weight = weight.to_f64();
                // From the nearer end, so that both ends are met exactly.
                if weight < 0.5 {
                    self.broadcast_add(&(difference * weight)?)
                } else {
                    end.broadcast_sub(&(difference * (1.0 - weight))?)
                }
            }
            TensorScalar::Tensor(weight) => {
                let near = self.broadcast_add(&difference.broadcast_mul(&weight)?)?;
                let far = end.broadcast_sub(&difference.broadcast_mul(&weight.affine(-1.0, 1.0)?)?)?;
                weight.lt(0.5)?.where_cond(&near, &far)
            }
        }
    }

    /// `value` where the mask (an integer dtype, stretched to this shape) is not zero, this tensor elsewhere.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?;
    /// let mask = Tensor::new(&[0u8, 1], &Device::Cpu)?;
    /// assert_eq!(x.masked_fill(&mask, f64::NEG_INFINITY)?.to_vec2::<f32>()?[1], [3., f32::NEG_INFINITY]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn masked_fill(&self, mask: &Tensor, value: f64) -> Result<Tensor> {
        let mask = mask.broadcast_as(self.shape())?;
        let value = Tensor::number("masked_fill", value, self.dtype(), self.device())?;
        mask.where_cond(&value, self)
    }

    /// For ids of any shape: [ids..., depth], 1 at each id and 0 elsewhere. An id outside 0..depth (-1, say) gives zeros
    /// only.
    pub fn one_hot(&self, depth: usize, dtype: DType) -> Result<Tensor> {
        if !self.dtype().is_int() {
            return Err(Error::op("one_hot", format!("ids are of an integer dtype, not {}", self.dtype())));
        }
        let last = u32::try_from(depth.saturating_sub(1)).ok();
        let last = last.filter(|&last| self.dtype().int_range().is_some_and(|r| i128::from(last) <= r.1));
        if last.is_none() {
            return Err(Error::op("one_hot", format!("ids of {} do not reach a depth of {depth}", self.dtype())));
        }
        let classes = Tensor::arange(0u32, depth as u32, self.device())?.to_dtype(self.dtype())?;
        self.unsqueeze(crate::D::Minus1)?.broadcast_eq(&classes)?.to_dtype(dtype)
    }

    /// A tensor without axes that holds a number.
    ///
    /// # Errors
    /// The dtype is one of integers that does not have the number.
    pub(super) fn number(op: &'static str, value: f64, dtype: DType, device: &crate::Device) -> Result<Tensor> {
        let value = super::scalar::exact(op, dtype, Scalar::F(value))?;
        Tensor::constant(value, dtype, Shape::new(&[]), device)
    }
}

impl std::ops::Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl std::ops::Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}
