//! Gradients of element-wise operations.

use crate::{
    DType, Error, Result, Shape, Tensor,
    autograd::{Input, Keep},
};
use tallow_graph::{BinaryOp, Scalar, UnaryOp};

/// A constant without axes, to compare with or to choose.
fn constant(value: f64, like: &Tensor) -> Result<Tensor> {
    Tensor::constant(Scalar::F(value), like.dtype(), Shape::new(&[]), like.device())
}

/// `grad` where `mask` is 0, else 0.
fn masked(grad: &Tensor, mask: &Tensor) -> Result<Tensor> {
    mask.where_cond(&constant(0.0, grad)?, grad)
}

/// What the gradient of a function of one operand needs.
fn keep_of(op: UnaryOp) -> Keep {
    use UnaryOp::*;
    match op {
        Neg | Sign | Floor | Ceil | Round => Keep::NOTHING,
        Sqrt | Rsqrt | Recip | Exp | Tanh | Relu | Sigmoid => Keep::OUTPUT,
        Abs | Sqr | Log | Sin | Cos | Erf | Gelu | GeluErf | Silu => Keep::input(0),
    }
}

/// Records `y = op(x)`.
pub(crate) fn unary(y: Tensor, op: UnaryOp, name: &'static str, x: &Input<'_>) -> Tensor {
    y.recorded(name, &[x], &[keep_of(op)], move |saved, grad| {
        saved.each(|_| {
            let x = || saved.input(0);
            let y = || saved.output();
            match op {
                UnaryOp::Neg => grad.neg(),
                UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => grad.zeros_like(),
                UnaryOp::Abs => grad * x()?.sign(),
                UnaryOp::Sqr => grad * (x()? * 2.0),
                UnaryOp::Sqrt => (grad * 0.5)? / y()?,
                UnaryOp::Rsqrt => (grad * -0.5)? * (y()?.sqr()? * y()?),
                UnaryOp::Recip => grad.neg()? * y()?.sqr(),
                UnaryOp::Exp => grad * y()?,
                UnaryOp::Log => grad / x()?,
                UnaryOp::Sin => grad * x()?.cos(),
                UnaryOp::Cos => grad.neg()? * x()?.sin(),
                UnaryOp::Tanh => grad * (1.0 - y()?.sqr()?),
                // 2 / sqrt(pi) e^(-x^2)
                UnaryOp::Erf => grad * (x()?.sqr()?.neg()?.exp()? * std::f64::consts::FRAC_2_SQRT_PI),
                UnaryOp::Gelu => grad * gelu(&x()?),
                UnaryOp::GeluErf => grad * gelu_erf(&x()?),
                UnaryOp::Relu => {
                    let y = y()?;
                    masked(grad, &y.broadcast_le(&constant(0.0, &y)?)?)
                }
                UnaryOp::Silu => {
                    let x = x()?;
                    let s = x.sigmoid()?;
                    // s (1 + x (1 - s))
                    grad * (&s * ((1.0 - &s)? * &x)?.affine(1.0, 1.0))
                }
                UnaryOp::Sigmoid => {
                    let y = y()?;
                    (grad * &y)? * (1.0 - &y)
                }
            }
        })
    })
}

/// The derivative of x (1 + tanh u) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3).
fn gelu(x: &Tensor) -> Result<Tensor> {
    let c = (2.0 / std::f64::consts::PI).sqrt();
    let square = x.sqr()?;
    let t = (x * square.affine(0.044715 * c, c))?.tanh()?;
    let inner = square.affine(3.0 * 0.044715 * c, c)?;
    let right = ((x * (1.0 - t.sqr()?))? * inner)?;
    ((t + 1.0)? + right)? * 0.5
}

/// The derivative of x Phi(x): Phi(x) + x phi(x), of the normal distribution.
fn gelu_erf(x: &Tensor) -> Result<Tensor> {
    let half = ((x * std::f64::consts::FRAC_1_SQRT_2)?.erf()?.affine(0.5, 0.5))?;
    let density = ((x.sqr()? * -0.5)?.exp()? * (1.0 / (2.0 * std::f64::consts::PI).sqrt()))?;
    half + (x * density)
}

/// Records `y = op(a, b)`, whose operands broadcast.
pub(crate) fn binary(y: Tensor, op: BinaryOp, a: &Input<'_>, b: &Input<'_>) -> Tensor {
    let (left, right, both) = (Keep::input(0), Keep::input(1), Keep::input(0).and(Keep::input(1)));
    let keep = match op {
        BinaryOp::Add | BinaryOp::Sub => [Keep::NOTHING; 2],
        BinaryOp::Mul => [right, left],
        BinaryOp::Div => [right, both],
        BinaryOp::Maximum | BinaryOp::Minimum => [both; 2],
        BinaryOp::Pow => [both, both.and(Keep::OUTPUT)],
        BinaryOp::Rem => [Keep::NOTHING, both.and(Keep::OUTPUT)],
        // Of integers, which have no gradient.
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::Shl | BinaryOp::Shr => return y,
    };
    y.recorded(op.name(), &[a, b], &keep, move |saved, grad| {
        saved.each(|i| match (op, i) {
            (BinaryOp::Add, _) | (BinaryOp::Sub | BinaryOp::Rem, 0) => Ok(grad.clone()),
            (BinaryOp::Sub, _) => grad.neg(),
            (BinaryOp::Mul, 0) => grad.broadcast_mul(&saved.input(1)?),
            (BinaryOp::Mul, _) => grad.broadcast_mul(&saved.input(0)?),
            (BinaryOp::Div, 0) => grad.broadcast_div(&saved.input(1)?),
            (BinaryOp::Div, _) => {
                let (a, b) = (saved.input(0)?, saved.input(1)?);
                grad.neg()?.broadcast_mul(&a.broadcast_div(&b)?)?.broadcast_div(&b)
            }
            // x - y trunc(x / y); the quotient is what was taken away, in whole y
            (BinaryOp::Rem, _) => {
                let (x, y) = (saved.input(0)?, saved.input(1)?);
                grad.neg()? * x.broadcast_sub(&saved.output()?)?.broadcast_div(&y)?.round()
            }
            // Half of the gradient each where both are equal.
            (BinaryOp::Maximum | BinaryOp::Minimum, i) => {
                let (own, other) = (saved.input(i)?, saved.input(1 - i)?);
                let lost = if op == BinaryOp::Maximum { own.broadcast_lt(&other)? } else { own.broadcast_gt(&other)? };
                own.broadcast_eq(&other)?.where_cond(&(grad * 0.5)?, &masked(grad, &lost)?)
            }
            // b a^(b - 1), 0 for b = 0
            (BinaryOp::Pow, 0) => {
                let (a, b) = (saved.input(0)?, saved.input(1)?);
                let slope = b.broadcast_mul(&a.broadcast_pow(&(&b - 1.0)?)?)?;
                masked(&(grad * slope)?, &b.broadcast_eq(&constant(0.0, &b)?)?)
            }
            // a^b ln a, 0 for a = 0 and b >= 0
            (BinaryOp::Pow, _) => {
                let (a, b) = (saved.input(0)?, saved.input(1)?);
                let zero = constant(0.0, &a)?;
                let mask = a.broadcast_eq(&zero)?.broadcast_mul(&b.broadcast_ge(&zero)?)?;
                masked(&(grad * saved.output()?)?.broadcast_mul(&a.log()?)?, &mask)
            }
            _ => Err(Error::op(op.name(), "has no gradient")),
        })
    })
}

/// Records `y = op(x, scalar)`.
pub(crate) fn with_scalar(y: Tensor, op: BinaryOp, x: &Input<'_>, scalar: f64) -> Tensor {
    let keep = match op {
        BinaryOp::Maximum | BinaryOp::Minimum | BinaryOp::Pow => Keep::input(0),
        _ => Keep::NOTHING,
    };
    y.recorded(op.name(), &[x], &[keep], move |saved, grad| {
        saved.each(|_| match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Rem => Ok(grad.clone()),
            BinaryOp::Mul => grad * scalar,
            BinaryOp::Div => grad / scalar,
            BinaryOp::Maximum => {
                let x = saved.input(0)?;
                masked(grad, &x.broadcast_lt(&constant(scalar, &x)?)?)
            }
            BinaryOp::Minimum => {
                let x = saved.input(0)?;
                masked(grad, &x.broadcast_gt(&constant(scalar, &x)?)?)
            }
            BinaryOp::Pow if scalar == 0.0 => grad.zeros_like(),
            BinaryOp::Pow => (grad * scalar)? * saved.input(0)?.powf(scalar - 1.0),
            _ => Err(Error::op(op.name(), "has no gradient")),
        })
    })
}

/// Records `y = x * factor + term`.
pub(crate) fn affine(y: Tensor, x: &Input<'_>, factor: f64) -> Tensor {
    y.recorded("affine", &[x], &[Keep::NOTHING], move |saved, grad| saved.each(|_| grad * factor))
}

/// Records `y = clamp(x, min, max)`: the gradient passes where x lies within, the limits included.
pub(crate) fn clamp(y: Tensor, x: &Input<'_>, min: f64, max: f64) -> Tensor {
    y.recorded("clamp", &[x], &[Keep::input(0)], move |saved, grad| {
        saved.each(|_| {
            let x = saved.input(0)?;
            let (low, high) = (x.broadcast_lt(&constant(min, &x)?)?, x.broadcast_gt(&constant(max, &x)?)?);
            masked(grad, &low.maximum(&high)?)
        })
    })
}

/// Records `y = where(condition, a, b)`.
pub(crate) fn where_cond(y: Tensor, condition: &Input<'_>, a: &Input<'_>, b: &Input<'_>) -> Tensor {
    let keep = [Keep::NOTHING, Keep::input(0), Keep::input(0)];
    y.recorded("where_cond", &[condition, a, b], &keep, |saved, grad| {
        saved.each(|i| {
            let (condition, zero) = (saved.input(0)?, constant(0.0, grad)?);
            if i == 1 { condition.where_cond(grad, &zero) } else { condition.where_cond(&zero, grad) }
        })
    })
}

/// Records `y`, x in another floating-point dtype. (Through an integer dtype there is no gradient, as in PyTorch.)
pub(crate) fn cast(y: Tensor, x: &Input<'_>) -> Tensor {
    let dtype: DType = x.dtype();
    y.recorded("to_dtype", &[x], &[Keep::NOTHING], move |saved, grad| saved.each(|_| grad.to_dtype(dtype)))
}

/// Records `y`, a copy of x.
pub(crate) fn copy(y: Tensor, x: &Input<'_>) -> Tensor {
    y.recorded("copy", &[x], &[Keep::NOTHING], |saved, grad| saved.each(|_| Ok(grad.clone())))
}
