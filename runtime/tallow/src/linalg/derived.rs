//! What is made of factorizations and products: pseudoinverse, least squares, powers, norms.

use super::{inverse, masks, matrix, square, svd, svdvals};
use crate::{D, Error, Result, Tensor};

/// The pseudoinverse (Moore, 1920; Penrose, 1955) of A [..., m, n]: [..., n, m]. Singular values up to `rcond` times the largest
/// count as 0; where none is given, max(m, n) times the dtype's epsilon.
pub fn pinv(a: &Tensor, rcond: Option<f64>) -> Result<Tensor> {
    let (m, n) = matrix("pinv", a)?;
    let epsilon = if a.dtype() == crate::DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let rcond = rcond.unwrap_or(m.max(n) as f64 * epsilon);
    if m == 0 || n == 0 {
        return a.t();
    }
    let (u, s, vt) = svd(a)?;
    let least = s.narrow(s.rank() - 1, 0, 1)?.affine(rcond, 0.0)?.broadcast_as(s.shape())?;
    let kept = s.gt(least.detach())?;
    let ones = s.ones_like()?;
    let safe = kept.where_cond(&s, &ones)?.recip()?;
    let inverted = kept.where_cond(&safe, &s.zeros_like()?)?;
    vt.t()?.broadcast_mul(&inverted.unsqueeze(s.rank() - 1)?)?.matmul(&u.t()?)
}

/// The X of least |A X - B|, and among several the smallest, for A [..., m, n] and B [..., m, k]: by [`pinv`].
pub fn lstsq(a: &Tensor, b: &Tensor, rcond: Option<f64>) -> Result<Tensor> {
    let ((m, _), (rows, _)) = (matrix("lstsq", a)?, matrix("lstsq", b)?);
    if m != rows {
        return Err(Error::op("lstsq", format!("A {:?} and B {:?} differ in rows", a.shape(), b.shape())));
    }
    pinv(a, rcond)?.matmul(b)
}

/// A to an integer power, by squaring; a negative one is that of the inverse.
pub fn matrix_power(a: &Tensor, exponent: i32) -> Result<Tensor> {
    let n = square("matrix_power", a)?;
    let mut base = if exponent < 0 { inverse(a)? } else { a.clone() };
    let mut left = exponent.unsigned_abs();
    let mut power: Option<Tensor> = None;
    while left > 0 {
        if left & 1 == 1 {
            power = Some(match &power {
                None => base.clone(),
                Some(power) => power.matmul(&base)?,
            });
        }
        left >>= 1;
        if left > 0 {
            base = base.matmul(&base)?;
        }
    }
    match power {
        Some(power) => power.apart_from(a, "matrix_power"),
        None => masks::identity(n, a)?.broadcast_as(a.shape()),
    }
}

/// A norm of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatrixNorm {
    /// The root of the sum of squares.
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The largest singular value.
    Spectral,
    /// The largest sum of absolute values in a column.
    One,
    /// The largest sum of absolute values in a row.
    Infinity,
}

/// A norm of each matrix of A [..., m, n]: [...].
pub fn matrix_norm(a: &Tensor, norm: MatrixNorm) -> Result<Tensor> {
    matrix("matrix_norm", a)?;
    match norm {
        MatrixNorm::Frobenius => a.sqr()?.sum((D::Minus1, D::Minus2))?.root(),
        MatrixNorm::Nuclear => svdvals(a)?.sum(D::Minus1),
        MatrixNorm::Spectral => svdvals(a)?.max(D::Minus1),
        MatrixNorm::One => a.abs()?.sum(D::Minus2)?.max(D::Minus1),
        MatrixNorm::Infinity => a.abs()?.sum(D::Minus1)?.max(D::Minus1),
    }
}
