//! Numbers as operands: arguments that may be a tensor or a number, and numbers that an integer dtype can or cannot hold.
//!
//! A number is never rounded in silence to fit an integer tensor: `x.lt(2.5)` compares exactly, `x * 2.5` is an error.

use super::Tensor;
use crate::{DType, Element, Error, Result, Var};
use tallow_graph::{BinaryOp, CompareOp, Scalar};

/// A tensor or a number.
#[derive(Debug, Clone)]
pub enum TensorScalar {
    /// A tensor.
    Tensor(Tensor),
    /// A number.
    Scalar(Scalar),
}

/// What may stand on the right of a comparison, `maximum`, `minimum`, `clamp`: a tensor or a number.
pub trait TensorOrScalar {
    /// Which of the two it is.
    fn to_tensor_scalar(self) -> TensorScalar;
}

impl TensorOrScalar for &Tensor {
    fn to_tensor_scalar(self) -> TensorScalar {
        TensorScalar::Tensor(self.clone())
    }
}

impl TensorOrScalar for Tensor {
    fn to_tensor_scalar(self) -> TensorScalar {
        TensorScalar::Tensor(self)
    }
}

impl TensorOrScalar for &Var {
    fn to_tensor_scalar(self) -> TensorScalar {
        TensorScalar::Tensor(self.as_tensor().clone())
    }
}

impl<T: Element> TensorOrScalar for T {
    fn to_tensor_scalar(self) -> TensorScalar {
        TensorScalar::Scalar(Scalar::from_element(self))
    }
}

/// A number as a whole one, rounded down, and whether that lost something. `None` for NaN. Infinities saturate.
fn floor(value: Scalar) -> Option<(i128, bool)> {
    match value {
        Scalar::I(v) => Some((i128::from(v), false)),
        Scalar::U(v) => Some((i128::from(v), false)),
        Scalar::F(v) if v.is_nan() => None,
        Scalar::F(v) => Some((v.floor() as i128, v.is_finite() && v.fract() != 0.0)),
    }
}

fn whole(value: i128) -> Option<Scalar> {
    i64::try_from(value).map(Scalar::I).or_else(|_| u64::try_from(value).map(Scalar::U)).ok()
}

fn cannot_hold(op: &'static str, dtype: DType, value: Scalar) -> Error {
    Error::op(op, format!("{dtype} cannot hold {}: convert with to_dtype first", value.to_f64()))
}

/// `value` as an element of `dtype`.
///
/// # Errors
/// The dtype is one of integers and the number is not whole, or out of its range.
pub(super) fn exact(op: &'static str, dtype: DType, value: Scalar) -> Result<Scalar> {
    let Some((low, high)) = dtype.int_range() else { return Ok(Scalar::F(value.to_f64())) };
    let number = floor(value).filter(|&(number, lost)| !lost && (low..=high).contains(&number));
    number.and_then(|(number, _)| whole(number)).ok_or_else(|| cannot_hold(op, dtype, value))
}

/// `value` as the right operand of `op` on a tensor of `dtype`. Integers wrap in sums, differences and products, so that any
/// whole number may take part in those.
///
/// # Errors
/// As [`exact`].
pub(super) fn operand(op: BinaryOp, name: &'static str, dtype: DType, value: Scalar) -> Result<Scalar> {
    if !dtype.is_int() || !matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Pow) {
        return exact(name, dtype, value);
    }
    let number = floor(value).filter(|&(_, lost)| !lost);
    number.and_then(|(number, _)| whole(number)).ok_or_else(|| cannot_hold(name, dtype, value))
}

/// The bound of `maximum` or `minimum` with a number; `None` where it changes no element.
pub(super) fn bound(op: BinaryOp, name: &'static str, dtype: DType, value: Scalar) -> Result<Option<Scalar>> {
    if let (Some((low, high)), Some((number, _))) = (dtype.int_range(), floor(value)) {
        let idle = if op == BinaryOp::Maximum { number < low } else { number >= high };
        if idle {
            return Ok(None);
        }
    }
    exact(name, dtype, value).map(Some)
}

/// What a comparison with a number means for tensors of an integer dtype.
pub(super) enum Against {
    /// The same answer for every element.
    Always(bool),
    /// This comparison with this number, which the dtype holds.
    Number(CompareOp, Scalar),
}

/// A number in the precision of a floating-point dtype: fused or not, an element then compares with the same one.
fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => half::f16::from_f64(value).to_f64(),
        DType::BF16 => half::bf16::from_f64(value).to_f64(),
        DType::F32 => f64::from(value as f32),
        _ => value,
    }
}

/// `x op value`, for x of an integer dtype made exact: x < 2.5 is x <= 2, and x < 300 holds for every U8.
pub(super) fn against(op: CompareOp, dtype: DType, value: Scalar) -> Against {
    use CompareOp::*;
    let Some((low, high)) = dtype.int_range() else {
        return Against::Number(op, Scalar::F(rounded(dtype, value.to_f64())));
    };
    let Some((number, fraction)) = floor(value) else { return Against::Always(op == Ne) };
    let op = match op {
        Eq | Ne if fraction => return Against::Always(op == Ne),
        Lt if fraction => Le,
        Ge if fraction => Gt,
        other => other,
    };
    if number > high {
        return Against::Always(matches!(op, Lt | Le | Ne));
    }
    if number < low {
        return Against::Always(matches!(op, Gt | Ge | Ne));
    }
    // Within the range of a 64-bit dtype, so it is one of the two.
    whole(number).map_or(Against::Always(op == Ne), |number| Against::Number(op, number))
}
