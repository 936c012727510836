//! Vectors of AArch64.

use std::arch::aarch64::*;

use super::simd::{halves, own, vectors};

vectors! {
    /// NEON, f32.
    Neon, f32, float32x4_t, 4 of 32, vdupq_n_f32(0.0), vld1q_f32, vst1q_f32, vdupq_n_f32, vaddq_f32,
    |a, b, c| vfmaq_f32(c, a, b),
    #[inline(always)]
    unsafe fn transpose(block: &mut [float32x4_t]) {
        let [a, b, c, d] = block else { return };
        // SAFETY: the caller's.
        unsafe {
            let pair = |x, y| (vtrn1q_f32(x, y), vtrn2q_f32(x, y));
            let ((e, f), (g, h)) = (pair(*a, *b), pair(*c, *d));
            let halves = |x, y| {
                let (x, y) = (vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y));
                (vreinterpretq_f32_f64(vzip1q_f64(x, y)), vreinterpretq_f32_f64(vzip2q_f64(x, y)))
            };
            ((*a, *c), (*b, *d)) = (halves(e, g), halves(f, h));
        }
    }
}
vectors! {
    /// NEON, f64.
    NeonF64, f64, float64x2_t, 2 of 32, vdupq_n_f64(0.0), vld1q_f64, vst1q_f64, vdupq_n_f64, vaddq_f64,
    |a, b, c| vfmaq_f64(c, a, b)
}
own!(Neon, NeonF64);
halves!(Neon; f16 {} bf16 {});
