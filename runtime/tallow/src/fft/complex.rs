//! Complex tensors as pairs: a float tensor with a last axis of 2.

use super::signal_shape;
use crate::{D, Error, Result, Tensor};

/// A complex tensor [..., 2] of a real and an imaginary part of one shape.
pub fn complex(re: &Tensor, im: &Tensor) -> Result<Tensor> {
    if re.shape() != im.shape() || re.dtype() != im.dtype() {
        let message = format!("parts of one shape and dtype are needed, not {re:?} and {im:?}");
        return Err(Error::op("complex", message));
    }
    Tensor::stack(&[re, im], D::Minus1)
}

fn part(op: &'static str, z: &Tensor, at: usize) -> Result<Tensor> {
    let rank = signal_shape(op, z)?.rank();
    z.get_on_dim(rank, at)
}

/// The real part of a complex tensor [..., 2]: a view.
pub fn real(z: &Tensor) -> Result<Tensor> {
    part("real", z, 0)
}

/// The imaginary part of a complex tensor [..., 2]: a view.
pub fn imag(z: &Tensor) -> Result<Tensor> {
    part("imag", z, 1)
}

/// The conjugate of a complex tensor [..., 2].
pub fn conj(z: &Tensor) -> Result<Tensor> {
    complex(&real(z)?, &imag(z)?.neg()?)
}

/// The absolute value of a complex tensor [..., 2]: sqrt(re^2 + im^2).
pub fn abs(z: &Tensor) -> Result<Tensor> {
    (real(z)?.sqr()? + imag(z)?.sqr()?)?.root()
}
