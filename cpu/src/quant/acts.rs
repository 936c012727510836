//! 8-bit activations: rows of f32, quantized once a step and used by every product that reads them.
//!
//! Blocks of 32 for all weight formats: no coarser than llama.cpp's own (32 for the simple formats, 256 for the
//! K ones), so the error is at most as large.

use tallow_graph::{Error, Result};

use crate::Isa;

/// Elements that share a scale.
pub const BLOCK: usize = 32;
/// Readable bytes after the last row of `q`.
const PADDING: usize = 128;

/// `m` rows of `k` elements: element i of a row is about `scale[i / 32] * q[i]`.
///
/// A NaN or an infinity makes its block's scale NaN or infinite, and every product that reads it NaN.
#[derive(Debug, Clone, Default)]
pub struct ActivationsQ8 {
    m: usize,
    k: usize,
    pub(crate) q: Vec<i8>,
    /// `m x k / 32`.
    pub(crate) scale: Vec<f32>,
    /// `m x k / 32`: scale * (sum of the block's q).
    pub(crate) sum: Vec<f32>,
    /// `m x k / 16`: the same for each half of a block.
    pub(crate) half_sum: Vec<f32>,
}

impl ActivationsQ8 {
    /// Nothing yet; [`ActivationsQ8::fill`] reuses its memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows.
    pub fn m(&self) -> usize {
        self.m
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Quantizes `x`, `m x k` row-major.
    ///
    /// # Errors
    /// `k` is 0 or not a multiple of 32, or `x` is not whole rows.
    pub fn from_rows(isa: Isa, x: &[f32], k: usize) -> Result<Self> {
        let mut acts = Self::new();
        acts.fill(isa, x, k)?;
        Ok(acts)
    }

    /// Quantizes `x` in place of what was here.
    ///
    /// # Errors
    /// As [`ActivationsQ8::from_rows`].
    pub fn fill(&mut self, isa: Isa, x: &[f32], k: usize) -> Result<()> {
        if k == 0 || !k.is_multiple_of(BLOCK) || !x.len().is_multiple_of(k) {
            let message = format!("{} values in rows of {k}: rows must be whole and blocks of {BLOCK}", x.len());
            return Err(Error::op("quantize_activations", message));
        }
        (self.m, self.k) = (x.len() / k, k);
        // The padding lets a kernel load whole vectors past the last block; it multiplies them by 0.
        self.q.resize(x.len() + PADDING, 0);
        self.scale.resize(x.len() / 32, 0.0);
        self.sum.resize(x.len() / 32, 0.0);
        self.half_sum.resize(x.len() / 16, 0.0);
        quantize(isa, x, &mut self.q, &mut self.scale, &mut self.sum, &mut self.half_sum);
        Ok(())
    }

    /// The values as they were rounded, row-major: what the products compute with.
    pub fn dequantize(&self) -> Vec<f32> {
        let blocks = self.q.chunks_exact(BLOCK).zip(&self.scale);
        blocks.flat_map(|(q, &scale)| q.iter().map(move |&q| scale * f32::from(q))).collect()
    }
}

multiversion! {
    fn quantize(x: &[f32], q: &mut [i8], scale: &mut [f32], sum: &mut [f32], half_sum: &mut [f32]) = quantize_body;
}

#[inline(always)]
fn quantize_body<const FMA: bool>(x: &[f32], q: &mut [i8], scale: &mut [f32], sum: &mut [f32], half_sum: &mut [f32]) {
    let outputs = scale.iter_mut().zip(sum).zip(half_sum.chunks_exact_mut(2));
    for ((x, q), ((scale, sum), half_sum)) in x.chunks_exact(BLOCK).zip(q.chunks_exact_mut(BLOCK)).zip(outputs) {
        // As bits, so that a NaN is the largest of all and is not lost.
        let mut peak = [0u32; BLOCK];
        for i in 0..BLOCK {
            peak[i] = x[i].to_bits() & 0x7fff_ffff;
        }
        let peak = f32::from_bits(peak.iter().fold(0, |a, &b| a.max(b)));
        let d = peak / 127.0;
        // A subnormal d would lose the inverse to infinity: such a block counts as 0.
        let id = if d < f32::MIN_POSITIVE { 0.0 } else { 127.0 / peak };
        let mut sums = [0i32; 2];
        for half in 0..2 {
            for i in half * 16..half * 16 + 16 {
                // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
                let rounded = (x[i] * id + 12_582_912.0).to_bits() as i32 - 0x4b40_0000;
                q[i] = rounded.clamp(-127, 127) as i8;
                sums[half] += i32::from(q[i]);
            }
        }
        *scale = d;
        *sum = d * (sums[0] + sums[1]) as f32;
        half_sum[0] = d * sums[0] as f32;
        half_sum[1] = d * sums[1] as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_half_a_step_on_every_isa() {
        for isa in Isa::supported() {
            let x: Vec<f32> = (0..96).map(|i| ((i * 37 % 101) as f32 - 50.0) * 10f32.powi(i / 32 * 6 - 6)).collect();
            let acts = ActivationsQ8::from_rows(isa, &x, 96).unwrap();
            for (i, (got, want)) in acts.dequantize().iter().zip(&x).enumerate() {
                let d = acts.scale[i / 32];
                assert!((got - want).abs() <= 0.5001 * d, "{isa:?} {got} {want}");
            }
            for b in 0..3 {
                let sum: i32 = acts.q[b * 32..b * 32 + 32].iter().map(|&q| i32::from(q)).sum();
                assert_eq!(acts.sum[b], acts.scale[b] * sum as f32);
            }
        }
    }

    #[test]
    fn nan_and_wrong_sizes() {
        let mut x = [1.0; 64];
        x[40] = f32::NAN;
        let acts = ActivationsQ8::from_rows(Isa::best(), &x, 64).unwrap();
        assert!(acts.scale[1].is_nan() && !acts.scale[0].is_nan());
        assert!(ActivationsQ8::from_rows(Isa::best(), &x, 48).is_err());
        assert!(ActivationsQ8::from_rows(Isa::best(), &x, 0).is_err());
    }
}
