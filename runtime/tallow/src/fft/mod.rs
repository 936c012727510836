//! Discrete Fourier transforms on every device: [`fft()`], [`ifft`], [`rfft`], [`irfft`], their two-dimensional kin, and the
//! short-time transforms [`stft`] and [`istft`] with their windows.
//!
//! # Complex tensors
//! There is no complex dtype. A complex tensor is a float tensor whose last axis has size 2: real part, imaginary part, as
//! `torch.view_as_real` shows it. Axes are named as if that last axis were not there, so that `D::Minus1` is the last
//! axis of the signal and code reads as it does in PyTorch. [`complex`], [`real`] and [`imag`] go between.
//!
//! # What is computed
//! X\[k\] = sum over j of x\[j\] exp(-2 pi i j k / n), and its inverse with the other sign, scaled by [`Norm`]. Any length
//! works. A length without prime factors above 127 takes one matrix product for each factor of up to 64 (Cooley and Tukey,
//! 1965, ordered as in Stockham, 1966); another goes through a convolution of a length that is a power of two (Bluestein,
//! 1970). Everything is made of [`Tensor`] operations: it runs where they run, is computed only when needed, and has
//! gradients.
//!
//! F32 and F64 are computed in their own type. F16 and BF16 are converted, and the result is F32: a sum over thousands of
//! samples does not fit into a half. In F32 the error is about 1e-6 of the whole output's size, and less for short lengths.
//!
//! ```
//! use tallow::{D, Device, Tensor, fft::{self, Norm}};
//! let x = Tensor::new([1f32, 2., 3., 4.], &Device::Cpu)?;
//! let spectrum = fft::rfft(&x, None, D::Minus1, Norm::Backward)?;
//! assert_eq!(spectrum.dims(), [3, 2]);
//! assert_eq!(spectrum.to_vec2::<f32>()?[0], [10., 0.]);
//! let back = fft::irfft(&spectrum, Some(4), D::Minus1, Norm::Backward)?;
//! assert!((back - &x)?.abs()?.max_all()?.to_scalar::<f32>()? < 1e-6);
//! # Ok::<(), tallow::Error>(())
//! ```

mod complex;
mod plane;
mod stft;
mod tables;
mod transform;
mod window;

pub use complex::{abs, complex, conj, imag, real};
pub use plane::{fft2, fftshift, ifft2, ifftshift, irfft2, rfft2};
pub use stft::{PadMode, Stft, istft, stft};
pub(crate) use tables::Cache;
pub use window::{fftfreq, hamming_window, hann_window, rfftfreq};

use crate::{DType, Dim, Error, Result, Shape, Tensor};
use transform::{Input, Outputs, transform};

/// Where the factor that makes a transform and its inverse undo each other stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Norm {
    /// 1/n in the inverse: the default of numpy and PyTorch.
    #[default]
    Backward,
    /// 1/sqrt(n) in both: lengths of vectors stay (Parseval).
    Ortho,
    /// 1/n in the forward transform.
    Forward,
}

impl Norm {
    fn scale(self, n: usize, inverse: bool) -> f64 {
        let n = n as f64;
        match (self, inverse) {
            (Norm::Backward, false) | (Norm::Forward, true) => 1.0,
            (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / n,
            (Norm::Ortho, _) => 1.0 / n.sqrt(),
        }
    }
}

/// The tensor in a dtype that transforms compute in.
fn computed(op: &'static str, x: &Tensor) -> Result<Tensor> {
    match x.dtype() {
        DType::F32 | DType::F64 => Ok(x.clone()),
        DType::F16 | DType::BF16 => x.to_dtype(DType::F32),
        other => Err(Error::op(op, format!("needs a floating-point dtype, not {other}: convert with to_dtype"))),
    }
}

/// The shape of a complex tensor without its last axis of 2.
fn signal_shape(op: &'static str, x: &Tensor) -> Result<Shape> {
    match x.dims() {
        [signal @ .., 2] => Ok(Shape::new(signal)),
        other => {
            let message = format!(
                "a complex tensor has a last axis of 2 (real and imaginary part), not {other:?}: see rfft for real input"
            );
            Err(Error::op(op, message))
        }
    }
}

/// A length to transform.
fn length(op: &'static str, n: usize) -> Result<usize> {
    if n == 0 || n > tables::MAX_LENGTH {
        let message = format!("a length of 1 to {} can be transformed, not {n}", tables::MAX_LENGTH);
        return Err(Error::op(op, message));
    }
    Ok(n)
}

/// The first `n` positions of the last axis, with zeros after its end.
fn resized(x: &Tensor, n: usize) -> Result<Tensor> {
    let axis = x.rank().saturating_sub(1);
    let have = x.dim(axis)?;
    if have >= n {
        return x.narrow(axis, 0, n);
    }
    x.pad_with_zeros(axis, 0, n - have)
}

/// All axes but the last `keep` as one.
fn rows(x: &Tensor, keep: usize) -> Result<Tensor> {
    let lead = x.rank().saturating_sub(keep);
    let count = Shape::new(&x.dims()[..lead]).elem_count();
    let shape: Shape = [count].into_iter().chain(x.dims()[lead..].iter().copied()).collect();
    x.reshape(shape)
}

/// A transform of complex input along an axis.
fn complex_to_complex<T: Dim>(
    op: &'static str,
    x: &Tensor,
    n: Option<usize>,
    axis: T,
    norm: Norm,
    inverse: bool,
) -> Result<Tensor> {
    let signal = signal_shape(op, x)?;
    let axis = axis.to_index(&signal, op)?;
    let n = length(op, n.unwrap_or(signal[axis]))?;
    let (rank, scale) = (x.rank(), norm.scale(n, inverse));
    // [others..., part, axis]. The inverse is the transform with both parts swapped, before and after.
    let planes = moved(&computed(op, x)?, axis, rank - 1)?;
    let planes = if inverse { planes.flip(rank - 2)? } else { planes };
    let planes = resized(&planes, n)?;
    let z = transform(Input::Complex(rows(&planes, 2)?), n, Outputs::All)?;
    let z = if inverse { z.flip(3)? } else { z };
    let others = planes.dims()[..rank - 2].iter().copied();
    let z = scaled(&z, scale)?.reshape(others.chain([n, 2]).collect::<Shape>())?;
    moved(&z, rank - 2, axis)
}

/// Axis `from` at the place of axis `to`; the ones between move up.
fn moved(x: &Tensor, from: usize, to: usize) -> Result<Tensor> {
    let mut order: Vec<usize> = (0..x.rank()).collect();
    let axis = order.remove(from);
    order.insert(to, axis);
    x.permute(order.as_slice())
}

/// Times a factor, in memory of its own order.
fn scaled(x: &Tensor, factor: f64) -> Result<Tensor> {
    if factor == 1.0 { x.contiguous() } else { x.affine(factor, 0.0) }
}

/// The transform of a complex tensor [..., 2] along an axis of the signal; the shape stays. With `n`, the axis is first
/// cut to that length or filled with zeros.
///
/// # Errors
/// If the last axis is not 2, the dtype is no float, or the length is 0.
///
/// ```
/// use tallow::{D, Device, Tensor, fft::{self, Norm}};
/// let x = Tensor::new([[1f32, 0.], [0., 1.]], &Device::Cpu)?; // 1, i
/// let y = fft::fft(&x, None, D::Minus1, Norm::Backward)?;
/// assert_eq!(y.to_vec2::<f32>()?, [[1., 1.], [1., -1.]]);
/// # Ok::<(), tallow::Error>(())
/// ```
pub fn fft<T: Dim>(x: &Tensor, n: Option<usize>, axis: T, norm: Norm) -> Result<Tensor> {
    complex_to_complex("fft", x, n, axis, norm, false)
}

/// The inverse of [`fft()`].
pub fn ifft<T: Dim>(x: &Tensor, n: Option<usize>, axis: T, norm: Norm) -> Result<Tensor> {
    complex_to_complex("ifft", x, n, axis, norm, true)
}

/// The transform of a real tensor along an axis: its first n/2 + 1 values (the others are their conjugates), as a complex
/// tensor with a new last axis of 2. With `n`, the axis is first cut to that length or filled with zeros.
pub fn rfft<T: Dim>(x: &Tensor, n: Option<usize>, axis: T, norm: Norm) -> Result<Tensor> {
    real_to_complex("rfft", x, n, axis, norm, Outputs::Half)
}

fn real_to_complex<T: Dim>(
    op: &'static str,
    x: &Tensor,
    n: Option<usize>,
    axis: T,
    norm: Norm,
    outputs: Outputs,
) -> Result<Tensor> {
    let axis = axis.to_index(x.shape(), op)?;
    let n = length(op, n.unwrap_or(x.dims()[axis]))?;
    let last = x.rank() - 1;
    let x = resized(&moved(&computed(op, x)?, axis, last)?, n)?;
    let z = transform(Input::Real(rows(&x, 1)?), n, outputs)?;
    let z = scaled(&z, norm.scale(n, false))?;
    let [_, a, b, _] = *z.dims() else { return Err(Error::op(op, "a transform of another shape")) };
    let others = || x.dims()[..last].iter().copied();
    let z = z.reshape(others().chain([a * b, 2]).collect::<Shape>())?;
    let kept = if outputs == Outputs::Half { n / 2 + 1 } else { n };
    moved(&z.narrow(last, 0, kept)?, last, axis)
}

/// The inverse of [`rfft`]: a real tensor of length `n` (2 (m - 1) where none is given) from the first n/2 + 1 values of
/// its spectrum, [..., m, 2]. Missing values are zeros, further ones are not looked at, and neither are imaginary parts that
/// a real signal cannot have (of the first value and, for even n, of the last).
pub fn irfft<T: Dim>(x: &Tensor, n: Option<usize>, axis: T, norm: Norm) -> Result<Tensor> {
    let op = "irfft";
    let signal = signal_shape(op, x)?;
    let axis = axis.to_index(&signal, op)?;
    let n = length(op, n.unwrap_or(signal[axis].saturating_sub(1).saturating_mul(2)))?;
    let last = signal.rank() - 1;
    // x[j] = Re sum over k <= n/2 of w[k] X[k] exp(2 pi i j k / n), w = 2 where k and n - k differ.
    let z = resized(&moved(&computed(op, x)?, axis, last + 1)?, n / 2 + 1)?;
    let weights = tables::hermitian(x.device(), z.dtype(), n)?;
    // Swapped before the product: what follows needs it in memory in this order.
    let planes = resized(&z.flip(last)?.broadcast_mul(&weights)?, n)?;
    let planes = rows(&planes, 2)?;
    // Parts are swapped, so the real part of the inverse comes out as the imaginary one.
    let y = transform(Input::Complex(planes), n, Outputs::Imaginary)?;
    let y = scaled(&y, norm.scale(n, true))?;
    let shape: Shape = z.dims()[..last].iter().copied().chain([n]).collect();
    moved(&y.reshape(shape)?, last, axis)
}
