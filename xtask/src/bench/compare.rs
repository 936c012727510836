//! Whether two results are the same: nothing is timed whose result is wrong.

use std::path::Path;

/// A result as a participant wrote it.
pub struct Values {
    /// Its shape.
    pub dims: Vec<usize>,
    /// Its elements, row-major.
    pub values: Vec<f32>,
}

impl Values {
    /// Reads a result file; its length must fit the shape that the participant told.
    pub fn read(path: &Path, dims: Vec<usize>) -> Result<Self, String> {
        let values = tallow_bench_protocol::read_f32(path)
            .map_err(|error| format!("the result {} cannot be read: {error}", path.display()))?;
        let elements = dims.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
        if elements != Some(values.len()) {
            return Err(format!("the result has {} elements, which is not the shape {dims:?}", values.len()));
        }
        Ok(Self { dims, values })
    }
}

/// How far `got` is from `want`: the largest difference of an element over the root mean square of `want`; infinite where
/// one is not a number and where only one is infinite. With `tolerance` 0, equal elements are wanted.
///
/// `Ok` holds the distance; `Err` says what differs.
pub fn compare(got: &Values, want: &Values, tolerance: f64) -> Result<f64, String> {
    if got.dims != want.dims {
        return Err(format!("the shape {:?}, not {:?}", got.dims, want.dims));
    }
    let (mut worst, mut at) = (0f64, 0);
    let mut squares = 0f64;
    for (i, (&g, &w)) in got.values.iter().zip(&want.values).enumerate() {
        let distance = if g == w { 0. } else { (f64::from(g) - f64::from(w)).abs() };
        // A NaN is the worst error there is; max would drop it.
        let distance = if distance.is_nan() { f64::INFINITY } else { distance };
        if distance > worst {
            (worst, at) = (distance, i);
        }
        squares += f64::from(w) * f64::from(w);
    }
    let rms = (squares / want.values.len().max(1) as f64).sqrt();
    let distance = if worst == 0. { 0. } else { worst / rms.max(f64::MIN_POSITIVE) };
    if distance <= tolerance {
        return Ok(distance);
    }
    let (g, w) = (got.values.get(at).copied().unwrap_or(0.), want.values.get(at).copied().unwrap_or(0.));
    Err(format!("element {at} is {g}, not {w}: {distance:.1e} of the result's size, where {tolerance:.0e} is allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(values: &[f32]) -> Values {
        Values { dims: vec![values.len()], values: values.to_vec() }
    }

    #[test]
    fn differences_are_relative_to_the_results_size() {
        let want = vector(&[300., -400., 0.]);
        let distance = compare(&vector(&[300., -400., 0.01]), &want, 1e-4).unwrap();
        assert!((distance - 0.01 / 288.675).abs() < 1e-7, "{distance}");
        let error = compare(&vector(&[300., -400., 0.1]), &want, 1e-4).unwrap_err();
        assert!(error.contains("element 2 is 0.1, not 0"), "{error}");
    }

    #[test]
    fn zero_means_equal() {
        let want = vector(&[3., 4.]);
        assert_eq!(compare(&vector(&[3., 4.]), &want, 0.), Ok(0.));
        assert!(compare(&vector(&[3., 4.0000005]), &want, 0.).is_err());
        let nothing = vector(&[0., 0.]);
        assert_eq!(compare(&nothing, &nothing, 0.), Ok(0.));
        assert!(compare(&vector(&[0., 1e-30]), &nothing, 1e-3).is_err());
    }

    #[test]
    fn nan_and_infinity_never_pass() {
        let want = vector(&[1., 1.]);
        assert!(compare(&vector(&[1., f32::NAN]), &want, 1.).is_err());
        assert!(compare(&want, &vector(&[1., f32::NAN]), 1.).is_err());
        assert!(compare(&vector(&[1., f32::INFINITY]), &want, 1.).is_err());
        let infinite = vector(&[1., f32::INFINITY]);
        assert_eq!(compare(&infinite, &infinite, 1e-3), Ok(0.));
    }

    #[test]
    fn another_shape_is_another_result() {
        let row = Values { dims: vec![1, 2], values: vec![1., 2.] };
        assert!(compare(&vector(&[1., 2.]), &row, 1.).unwrap_err().contains("shape"));
    }

    #[test]
    fn a_file_must_hold_what_was_told() {
        let path = std::env::temp_dir().join(format!("tallow-bench-compare-{}", std::process::id()));
        std::fs::write(&path, 1f32.to_le_bytes()).unwrap();
        assert_eq!(Values::read(&path, vec![1, 1]).unwrap().values, [1.]);
        assert!(Values::read(&path, vec![2]).is_err_and(|error| error.contains("1 elements")));
        assert!(Values::read(&path, vec![usize::MAX, 2]).is_err());
        std::fs::write(&path, [0; 6]).unwrap();
        assert!(Values::read(&path, vec![1]).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Values::read(&path, vec![1]).is_err());
    }
}
