//! Windows that fade a frame out at its ends, and the frequencies of a spectrum. Computed in f64 on the host.

use crate::{DType, Device, Element, Error, Result, Shape, Tensor};

/// offset - (1 - offset) cos(2 pi j / period)
fn raised_cosine(
    op: &'static str,
    offset: f64,
    length: usize,
    periodic: bool,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    if !dtype.is_float() {
        return Err(Error::op(op, format!("a window is of a floating-point dtype, not {dtype}")));
    }
    // A window of one sample lets it through.
    let period = if periodic { length } else { length.saturating_sub(1) }.max(1);
    let value = |j: usize| match length {
        1 => 1.0,
        _ => offset - (1.0 - offset) * super::tables::unit_root(j as u64, period as u64).0,
    };
    values((0..length).map(value), &[length], dtype, device)
}

/// A tensor of host values, rounded once.
pub(super) fn values(
    values: impl Iterator<Item = f64>,
    shape: &[usize],
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    fn of<T: Element>(values: impl Iterator<Item = f64>, shape: &[usize], device: &Device) -> Result<Tensor> {
        let values: Vec<T> = values.map(T::from_f64).collect();
        Tensor::from_slice(&values, shape, device)
    }
    if Shape::new(shape).elem_count() > i32::MAX as usize {
        return Err(Error::op("fft", format!("{shape:?} is too long for a table")));
    }
    match dtype {
        DType::F64 => of::<f64>(values, shape, device),
        DType::F16 => of::<half::f16>(values, shape, device),
        DType::BF16 => of::<half::bf16>(values, shape, device),
        _ => of::<f32>(values, shape, device)?.to_dtype(dtype),
    }
}

/// Hann's window, 0.5 - 0.5 cos(2 pi j / length): as PyTorch's, `periodic` for spectra, else symmetric (period length - 1).
pub fn hann_window(length: usize, periodic: bool, dtype: DType, device: &Device) -> Result<Tensor> {
    raised_cosine("hann_window", 0.5, length, periodic, dtype, device)
}

/// Hamming's window, 0.54 - 0.46 cos(2 pi j / length): `periodic` for spectra, else symmetric (period length - 1).
pub fn hamming_window(length: usize, periodic: bool, dtype: DType, device: &Device) -> Result<Tensor> {
    raised_cosine("hamming_window", 0.54, length, periodic, dtype, device)
}

fn frequency_unit(op: &'static str, n: usize, d: f64) -> Result<f64> {
    if n == 0 || !(d.is_finite() && d != 0.0) {
        return Err(Error::op(op, format!("{n} samples, {d} apart, have no frequencies")));
    }
    Ok(1.0 / (n as f64 * d))
}

/// The frequencies of [`fft`](super::fft())'s results for samples `d` apart, in cycles per unit of `d`: 0, 1, ..., -2, -1
/// over n d.
pub fn fftfreq(n: usize, d: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    let unit = frequency_unit("fftfreq", n, d)?;
    let signed = |k: usize| if k < n.div_ceil(2) { k as f64 } else { k as f64 - n as f64 };
    values((0..n).map(|k| signed(k) * unit), &[n], dtype, device)
}

/// The frequencies of [`rfft`](super::rfft)'s results for samples `d` apart, in cycles per unit of `d`: 0, 1, ..., n/2 over
/// n d.
pub fn rfftfreq(n: usize, d: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    let unit = frequency_unit("rfftfreq", n, d)?;
    values((0..=n / 2).map(|k| k as f64 * unit), &[n / 2 + 1], dtype, device)
}
