//! f32 rows to each block format: the 32-element formats as llama.cpp rounds them, bit for bit, the 256-element ones by a search
//! for the scales that lose least.

use half::f16;
use tallow_graph::{DType, Error, Result};

use super::format::row_bytes;
use super::search::{Affine, affine, symmetric};

/// The blocks of `x` in `dtype`, appended to `out`.
///
/// # Errors
/// `dtype` is not quantized, or `x` is not whole blocks.
pub fn quantize_row(dtype: DType, x: &[f32], out: &mut Vec<u8>) -> Result<()> {
    out.reserve(row_bytes("quantize", dtype, x.len())?);
    let quantize: fn(&[f32], &mut Vec<u8>) = match dtype {
        DType::Q4_0 => q4_0,
        DType::Q4_1 => q4_1,
        DType::Q8_0 => q8_0,
        DType::Q4K => |x, out| q4k(x, None, out),
        DType::Q6K => |x, out| q6k(x, None, out),
        other => return Err(Error::op("quantize", format!("{other} is not a quantized dtype"))),
    };
    for block in x.chunks_exact(dtype.block_elements()) {
        quantize(block, out);
    }
    Ok(())
}

/// What the errors of a block of 256 weigh where its columns have these importances: as in llama.cpp, more where a value is large.
pub fn weigh(x: &[f32], importance: &[f32]) -> [f32; 256] {
    let sigma2 = 2.0 * x.iter().map(|x| x * x).sum::<f32>() / 256.0;
    std::array::from_fn(|i| importance[i] * (sigma2 + x[i] * x[i]).sqrt())
}

/// Appends `value` as f16 and returns what was stored.
pub fn put_half(value: f32, out: &mut Vec<u8>) -> f32 {
    let half = f16::from_f32(value);
    out.extend_from_slice(&half.to_le_bytes());
    half.to_f32()
}

/// 1 / d; 0 for 0.
pub fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The element of largest magnitude, with its sign.
pub fn extreme(x: &[f32]) -> f32 {
    x.iter().copied().fold(0.0, |a, b| if b.abs() > a.abs() { b } else { a })
}

/// The least and the largest element.
pub fn range(x: &[f32]) -> (f32, f32) {
    x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)))
}

fn put_nibbles(q: &[u8; 32], out: &mut Vec<u8>) {
    out.extend((0..16).map(|j| q[j] | (q[j + 16] << 4)));
}

// As in llama.cpp, the 32-element formats round by the scale before it is rounded itself.

fn q4_0(x: &[f32], out: &mut Vec<u8>) {
    let d = extreme(x) / -8.0;
    put_half(d, out);
    let id = inverse(d);
    let mut q = [0; 32];
    q.iter_mut().zip(x).for_each(|(q, x)| *q = (x * id + 8.5).clamp(0.0, 15.0) as u8);
    put_nibbles(&q, out);
}

fn q4_1(x: &[f32], out: &mut Vec<u8>) {
    let (low, high) = range(x);
    let d = (high - low) / 15.0;
    put_half(d, out);
    put_half(low, out);
    let id = inverse(d);
    let mut q = [0; 32];
    q.iter_mut().zip(x).for_each(|(q, x)| *q = ((x - low) * id + 0.5).clamp(0.0, 15.0) as u8);
    put_nibbles(&q, out);
}

fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let d = extreme(x).abs() / 127.0;
    put_half(d, out);
    let id = inverse(d);
    out.extend(x.iter().map(|x| (x * id).round().clamp(-127.0, 127.0) as i8 as u8));
}

/// Eight groups of 32 as x = step * q - min, for q up to `by.n`: appends d, dmin and the 6-bit multiples of them that each group
/// has as step and min, as Q4_K and Q5_K store them, and returns the quants. `importance` is of the 256 columns.
pub fn put_affine(x: &[f32], by: &Affine, importance: Option<&[f32]>, out: &mut Vec<u8>) -> [u8; 256] {
    let weights = importance.map(|importance| weigh(x, importance));
    let (mut step, mut min) = ([0f32; 8], [0f32; 8]);
    for (j, group) in x.chunks_exact(32).take(8).enumerate() {
        (step[j], min[j]) = affine(group, by, weights.as_ref().map(|weights| &weights[32 * j..32 * (j + 1)]));
    }
    let d = put_half(extreme(&step) / 63.0, out);
    let dmin = put_half(extreme(&min) / 63.0, out);
    let six = |v: f32, d: f32| (v * inverse(d)).round().clamp(0.0, 63.0) as u8;
    let (mut s, mut m, mut packed) = ([0u8; 8], [0u8; 8], [0u8; 12]);
    for j in 0..8 {
        (s[j], m[j]) = (six(step[j], d), six(min[j], dmin));
    }
    for j in 0..4 {
        packed[j] = s[j] | ((s[j + 4] >> 4) << 6);
        packed[j + 4] = m[j] | ((m[j + 4] >> 4) << 6);
        packed[j + 8] = (s[j + 4] & 15) | ((m[j + 4] & 15) << 4);
    }
    out.extend_from_slice(&packed);
    let mut q = [0u8; 256];
    for (i, (q, x)) in q.iter_mut().zip(x).enumerate() {
        let (step, min) = (d * f32::from(s[i / 32]), dmin * f32::from(m[i / 32]));
        *q = ((x + min) * inverse(step)).round().clamp(0.0, by.n) as u8;
    }
    q
}

/// A block of Q4_K, with the importances of its columns if there are any.
pub fn q4k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let q = put_affine(x, &Affine { n: 15.0, first: -1.0, steps: 20, squared: true }, importance, out);
    for chunk in q.chunks_exact(64) {
        out.extend((0..32).map(|j| chunk[j] | (chunk[j + 32] << 4)));
    }
}

/// Sixteen groups of 16 as x = d * scale * q for q in -n..n and whole scales in -s..s: d as it is stored, the scales, the quants
/// with n added. Errors have these weights, if there are any.
pub fn of_sixteen(x: &[f32], n: i32, s: f32, weights: Option<&[f32]>) -> (f16, [i8; 16], [u8; 256]) {
    let mut step = [0f32; 16];
    for (g, (step, group)) in step.iter_mut().zip(x.chunks_exact(16)).enumerate() {
        *step = symmetric(group, n, weights.map(|weights| &weights[16 * g..16 * (g + 1)]));
    }
    let d = f16::from_f32(extreme(&step) / -s);
    let id = inverse(d.to_f32());
    let scale = step.map(|step| (step * id).round().clamp(-s, s - 1.0) as i8);
    let (n, mut q) = (n as f32, [0u8; 256]);
    for (i, (q, x)) in q.iter_mut().zip(x).enumerate() {
        let step = d.to_f32() * f32::from(scale[i / 16]);
        *q = ((x * inverse(step)).round().clamp(-n, n - 1.0) + n) as u8;
    }
    (d, scale, q)
}

/// A block of Q6_K: x = d * scale * (q - 32).
pub fn put_q6k(d: f16, scale: &[i8; 16], q: &[u8; 256], out: &mut Vec<u8>) {
    for half in q.chunks_exact(128) {
        out.extend((0..64).map(|j| (half[j] & 15) | ((half[j + 64] & 15) << 4)));
    }
    for half in q.chunks_exact(128) {
        let high = |j: usize| half[j] >> 4;
        out.extend((0..32).map(|j| high(j) | (high(j + 32) << 2) | (high(j + 64) << 4) | (high(j + 96) << 6)));
    }
    out.extend(scale.map(|s| s as u8));
    out.extend_from_slice(&d.to_le_bytes());
}

/// A block of Q6_K, with the importances of its columns if there are any.
pub fn q6k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let (d, scale, q) = of_sixteen(x, 32, 128.0, importance);
    put_q6k(d, &scale, &q, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::dequantize_row;

    #[test]
    fn a_round_trip_stays_within_a_step() {
        let mut seed = 1u64;
        let x: Vec<f32> = (0..1024)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 40) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect();
        let tolerance = [0.13, 0.075, 0.005, 0.09, 0.04];
        for (dtype, tolerance) in DType::QUANTIZED.into_iter().zip(tolerance) {
            let (mut bytes, mut back) = (Vec::new(), vec![0.0; x.len()]);
            quantize_row(dtype, &x, &mut bytes).unwrap();
            dequantize_row(dtype, &bytes, &mut back).unwrap();
            let worst = x.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < tolerance, "{dtype}: {worst}");
            assert!(worst > tolerance / 8.0, "{dtype}: {worst} is too good to be true");
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for dtype in DType::QUANTIZED {
            let (mut bytes, mut back) = (Vec::new(), vec![1.0; 256]);
            quantize_row(dtype, &[0.0; 256], &mut bytes).unwrap();
            dequantize_row(dtype, &bytes, &mut back).unwrap();
            assert!(back.iter().all(|&v| v == 0.0), "{dtype}");
        }
    }
}
