//! When a result is right. All tolerances live here.

use tallow::{DType, Tensor};

/// How a result may differ from the f64 reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Bit by bit.
    Exact,
    /// Each element within so many units in the last place of its dtype (and of the largest operand's scale, near zero).
    Ulp(f64),
    /// The largest difference, relative to the root mean square of the whole result.
    Whole(f64),
}

/// Distance between neighbours of 1 in a dtype.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F8E4M3 => 2f64.powi(-3),
        DType::F8E5M2 => 2f64.powi(-2),
        _ => 0.0,
    }
}

fn values(tensor: &Tensor) -> Vec<f64> {
    // Stored first: a conversion that is fused into the operation would see it before it is rounded.
    tensor.realize().expect("the value can be computed");
    let wide =
        tensor.to_device(&tallow::Device::Cpu).and_then(|t| t.to_dtype(DType::F64)).and_then(|t| t.flatten_all());
    wide.and_then(|t| t.to_vec1::<f64>()).expect("the value can be read")
}

/// The smallest normal number of a dtype: below it, results may be flushed to zero.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F32 | DType::BF16 => f64::from(f32::MIN_POSITIVE),
        // Half of the smallest step: subnormal halves are kept.
        DType::F16 => 2f64.powi(-24),
        DType::F8E4M3 => 2f64.powi(-9),
        DType::F8E5M2 => 2f64.powi(-16),
        _ => 0.0,
    }
}

pub fn close(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Result<(), String> {
    if got.shape() != want.shape() || got.dtype() != want.dtype() {
        return Err(format!("{got:?} instead of {want:?}"));
    }
    let dtype = want.dtype();
    let (got, want) = (values(got), values(want));
    let rms = (want.iter().filter(|v| v.is_finite()).map(|v| v * v).sum::<f64>() / want.len().max(1) as f64).sqrt();
    for (at, (&g, &w)) in got.iter().zip(&want).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan());
        let fine = match tolerance {
            Tolerance::Exact => same,
            _ if same => true,
            _ if !w.is_finite() || !g.is_finite() => false,
            Tolerance::Ulp(ulp) => (g - w).abs() <= ulp * epsilon(dtype) * w.abs() + ulp * smallest(dtype),
            // The floor keeps a single element near zero from being judged by its own size.
            Tolerance::Whole(share) => {
                // And one step of the dtype is never too much: an element may be far above the mean.
                let step = epsilon(dtype) * w.abs();
                (g - w).abs() <= (share.max(2.0 * epsilon(dtype)) * rms.max(1e-6)).max(step) + smallest(dtype)
            }
        };
        if !fine {
            return Err(format!("element {at} is {g:e}, not {w:e} ({tolerance:?}, rms {rms:.3e})"));
        }
    }
    Ok(())
}
