//! Tensors put together: zeros around one, one after another, side by side.

use crate::{Error, Result, Shape, Tensor};

/// Zeros before and after, along an axis.
pub(super) fn padded(x: &Tensor, axis: usize, before: usize, after: usize) -> Result<Tensor> {
    if before + after == 0 {
        return Ok(x.clone());
    }
    let grown = x.dims().iter().enumerate().map(|(a, &d)| if a == axis { before + d + after } else { d });
    let out = Tensor::zeros(grown.collect::<Shape>(), x.dtype(), x.device())?;
    out.slice_set(x, axis, before)?;
    Ok(out)
}

/// One after another along an axis.
pub(super) fn joined(parts: &[Tensor], axis: usize) -> Result<Tensor> {
    let Some(first) = parts.first() else { return Err(Error::op("fft", "there is nothing to join")) };
    let total: usize = parts.iter().map(|p| p.dim(axis)).sum::<Result<usize>>()?;
    let shape = first.dims().iter().enumerate().map(|(a, &d)| if a == axis { total } else { d });
    let out = Tensor::zeros(shape.collect::<Shape>(), first.dtype(), first.device())?;
    let mut at = 0;
    for part in parts {
        out.slice_set(part, axis, at)?;
        at += part.dim(axis)?;
    }
    Ok(out)
}

/// Side by side along a new last axis.
pub(super) fn stacked(parts: &[&Tensor]) -> Result<Tensor> {
    let parts: Vec<Tensor> = parts.iter().map(|p| p.unsqueeze(crate::D::Minus1)).collect::<Result<_>>()?;
    let last = parts.first().map_or(0, |p| p.rank() - 1);
    joined(&parts, last)
}
