//! Constant matrices of zeros and ones, in a tensor's dtype and on its device.

use crate::{D, Result, Tensor};

/// [n, n]: 1 in the upper (or lower) triangle, with the diagonal or without.
pub(super) fn triangle(n: usize, upper: bool, diagonal: bool, like: &Tensor) -> Result<Tensor> {
    let (row, col) = places(n, like)?;
    let mask = match (upper, diagonal) {
        (true, true) => row.broadcast_le(&col)?,
        (true, false) => row.broadcast_lt(&col)?,
        (false, true) => row.broadcast_ge(&col)?,
        (false, false) => row.broadcast_gt(&col)?,
    };
    mask.to_dtype(like.dtype())
}

/// [n, n]: 1 on the diagonal.
pub(super) fn identity(n: usize, like: &Tensor) -> Result<Tensor> {
    let (row, col) = places(n, like)?;
    row.broadcast_eq(&col)?.to_dtype(like.dtype())
}

fn places(n: usize, like: &Tensor) -> Result<(Tensor, Tensor)> {
    let place = Tensor::arange(0u32, u32::try_from(n).unwrap_or(u32::MAX), like.device())?;
    Ok((place.unsqueeze(D::Minus1)?, place.unsqueeze(0)?))
}
