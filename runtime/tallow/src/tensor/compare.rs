//! Comparisons and logic: results are U8, 0 or 1.

use super::{
    Tensor, elementwise,
    scalar::{Against, TensorOrScalar, TensorScalar, against},
};
use crate::{DType, Dims, Result, Shape};
pub use tallow_graph::CompareOp as CmpOp;
use tallow_graph::{Scalar, ops};

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident $broadcast:ident $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        /// The right side is a tensor of the same shape, or a number.
        pub fn $name<T: TensorOrScalar>(&self, rhs: T) -> Result<Tensor> {
            self.cmp(rhs, CmpOp::$op)
        }

        $(#[$doc])*
        /// Operands are stretched to one shape, as in numpy.
        pub fn $broadcast(&self, rhs: &Tensor) -> Result<Tensor> {
            Ok(self.result(ops::compare(CmpOp::$op, self.edge(), rhs.edge())?))
        }
    )+ } };
}

comparisons! {
    /// x == y, as U8.
    eq broadcast_eq Eq;
    /// x != y, as U8.
    ne broadcast_ne Ne;
    /// x < y, as U8.
    lt broadcast_lt Lt;
    /// x <= y, as U8.
    le broadcast_le Le;
    /// x > y, as U8.
    gt broadcast_gt Gt;
    /// x >= y, as U8.
    ge broadcast_ge Ge;
}

const fn name(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "eq",
        CmpOp::Ne => "ne",
        CmpOp::Lt => "lt",
        CmpOp::Le => "le",
        CmpOp::Gt => "gt",
        CmpOp::Ge => "ge",
    }
}

impl Tensor {
    /// x op y, as U8. The right side is a tensor of the same shape and dtype, or a number. Integers compare with any number
    /// exactly: `x.lt(2.5)` holds for 2. A floating-point dtype first rounds the number to itself.
    ///
    /// ```
    /// use tallow::{CmpOp, Device, Tensor};
    /// let x = Tensor::new(&[1u32, 2, 3], &Device::Cpu)?;
    /// assert_eq!(x.cmp(2.5, CmpOp::Lt)?.to_vec1::<u8>()?, [1, 1, 0]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn cmp<T: TensorOrScalar>(&self, rhs: T, op: CmpOp) -> Result<Tensor> {
        match rhs.to_tensor_scalar() {
            TensorScalar::Tensor(rhs) => {
                elementwise::same_shape(name(op), self, &rhs)?;
                Ok(self.result(ops::compare(op, self.edge(), rhs.edge())?))
            }
            TensorScalar::Scalar(value) => match against(op, self.dtype(), value) {
                Against::Always(answer) => {
                    let answer = Scalar::U(u64::from(answer));
                    Tensor::constant(answer, DType::U8, self.shape().clone(), self.device())
                }
                Against::Number(op, value) => {
                    let rhs = Tensor::constant(value, self.dtype(), Shape::new(&[]), self.device())?;
                    Ok(self.result(ops::compare(op, self.edge(), rhs.edge())?))
                }
            },
        }
    }

    /// Whether an element is not a number.
    pub fn is_nan(&self) -> Result<Tensor> {
        if self.dtype().is_int() {
            return Tensor::zeros(self.shape(), DType::U8, self.device());
        }
        self.ne(self)
    }

    /// Whether an element is infinite, of either sign.
    pub fn is_inf(&self) -> Result<Tensor> {
        if self.dtype().is_int() {
            return Tensor::zeros(self.shape(), DType::U8, self.device());
        }
        self.wide()?.abs()?.eq(f64::INFINITY)
    }

    /// Whether an element is neither infinite nor NaN.
    pub fn is_finite(&self) -> Result<Tensor> {
        if self.dtype().is_int() {
            return Tensor::ones(self.shape(), DType::U8, self.device());
        }
        self.wide()?.abs()?.lt(f64::INFINITY)
    }

    /// 1 where an element is zero, else 0.
    pub fn logical_not(&self) -> Result<Tensor> {
        self.eq(0u8)
    }

    /// 1 where neither is zero (NaN is not zero). Operands are stretched to one shape and may differ in dtype.
    pub fn logical_and(&self, rhs: &Tensor) -> Result<Tensor> {
        self.ne(0u8)?.broadcast_mul(&rhs.ne(0u8)?)
    }

    /// 1 where one or both are not zero. Operands are stretched to one shape and may differ in dtype.
    pub fn logical_or(&self, rhs: &Tensor) -> Result<Tensor> {
        self.ne(0u8)?.broadcast_maximum(&rhs.ne(0u8)?)
    }

    /// 1 where exactly one is not zero. Operands are stretched to one shape and may differ in dtype.
    pub fn logical_xor(&self, rhs: &Tensor) -> Result<Tensor> {
        self.ne(0u8)?.broadcast_ne(&rhs.ne(0u8)?)
    }

    fn quantified(&self, axes: &[usize], keep: bool, all: bool) -> Result<Tensor> {
        let sizes = self.dims().iter().enumerate();
        let kept: Shape = sizes.map(|(a, &d)| if axes.contains(&a) { 1 } else { d }).collect();
        let truth = if axes.iter().any(|&a| self.dims()[a] == 0) {
            // Of nothing, all are true and none is.
            Tensor::constant(Scalar::U(u64::from(all)), DType::U8, kept, self.device())?
        } else if all {
            self.ne(0u8)?.min_keepdim(axes)?
        } else {
            self.ne(0u8)?.max_keepdim(axes)?
        };
        if keep {
            return Ok(truth);
        }
        let sizes = self.dims().iter().enumerate();
        truth.reshape(sizes.filter(|(a, _)| !axes.contains(a)).map(|(_, &d)| d).collect::<Shape>())
    }
}

macro_rules! quantifiers {
    ($($(#[$doc:meta])* $name:ident $keepdim:ident $everywhere:ident $all:literal;)+) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name<T: Dims>(&self, axes: T) -> Result<Tensor> {
            self.quantified(&axes.to_indexes(self.shape(), stringify!($name))?, false, $all)
        }

        $(#[$doc])*
        /// The reduced axes stay, with size 1.
        pub fn $keepdim<T: Dims>(&self, axes: T) -> Result<Tensor> {
            self.quantified(&axes.to_indexes(self.shape(), stringify!($keepdim))?, true, $all)
        }

        $(#[$doc])*
        /// Over all elements: a scalar.
        pub fn $everywhere(&self) -> Result<Tensor> {
            self.quantified(&(0..self.rank()).collect::<Vec<_>>(), false, $all)
        }
    )+ } };
}

quantifiers! {
    /// Whether some element is not zero, as U8; of nothing, 0.
    any any_keepdim any_all false;
    /// Whether no element is zero, as U8; of nothing, 1.
    all all_keepdim all_all true;
}
