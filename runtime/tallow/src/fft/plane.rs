//! Transforms over two axes, and spectra with their zero frequency in the middle.

use super::{Norm, fft, ifft, irfft, rfft, signal_shape};
use crate::{Dims, Error, Result, Tensor};

/// The last two axes of a signal.
fn last_two(op: &'static str, rank: usize) -> Result<(usize, usize)> {
    if rank < 2 {
        return Err(Error::op(op, format!("needs a signal of two axes or more, not {rank}")));
    }
    Ok((rank - 2, rank - 1))
}

/// [`fft()`] over the last two axes of the signal of a complex tensor [..., h, w, 2].
pub fn fft2(x: &Tensor, norm: Norm) -> Result<Tensor> {
    let (h, w) = last_two("fft2", signal_shape("fft2", x)?.rank())?;
    fft(&fft(x, None, w, norm)?, None, h, norm)
}

/// The inverse of [`fft2`].
pub fn ifft2(x: &Tensor, norm: Norm) -> Result<Tensor> {
    let (h, w) = last_two("ifft2", signal_shape("ifft2", x)?.rank())?;
    ifft(&ifft(x, None, w, norm)?, None, h, norm)
}

/// The transform of a real tensor [..., h, w] over its last two axes: [..., h, w/2 + 1, 2].
pub fn rfft2(x: &Tensor, norm: Norm) -> Result<Tensor> {
    let (h, w) = last_two("rfft2", x.rank())?;
    fft(&rfft(x, None, w, norm)?, None, h, norm)
}

/// The inverse of [`rfft2`]; `width` is that of the result, 2 (m - 1) where none is given.
pub fn irfft2(x: &Tensor, width: Option<usize>, norm: Norm) -> Result<Tensor> {
    let (h, w) = last_two("irfft2", signal_shape("irfft2", x)?.rank())?;
    irfft(&ifft(x, None, h, norm)?, width, w, norm)
}

/// Axes turned so that what stands at 0 comes to stand at n/2: the zero frequency in the middle. Axes are those of the tensor
/// as it is, so that it serves real tensors too; of a complex one do not name the last.
pub fn fftshift<T: Dims>(x: &Tensor, axes: T) -> Result<Tensor> {
    turned(x, axes.to_indexes(x.shape(), "fftshift")?, |n| n.div_ceil(2))
}

/// The inverse of [`fftshift`].
pub fn ifftshift<T: Dims>(x: &Tensor, axes: T) -> Result<Tensor> {
    turned(x, axes.to_indexes(x.shape(), "ifftshift")?, |n| n / 2)
}

/// Each axis, starting from the position that `first` gives for its size.
fn turned(x: &Tensor, axes: Vec<usize>, first: fn(usize) -> usize) -> Result<Tensor> {
    let shifted = axes.into_iter().try_fold(x.clone(), |x, axis| {
        let n = x.dim(axis)?;
        let first = first(n);
        Tensor::cat(&[x.narrow(axis, first, n - first)?, x.narrow(axis, 0, first)?], axis)
    })?;
    // Of no axes, nothing moved.
    shifted.apart_from(x, "fftshift")
}
