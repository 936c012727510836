//! One weight row by a few activation rows, for any instruction set: each block is unpacked once and multiplied with
//! the integer dot products of [`Dot`]. On x86, `dot_x86` has copies that keep the blocks in registers.

use super::acts::ActivationsQ8;
use super::format::{Format, Unpacked, half_to_f32};
use super::tile::TileMut;
use crate::Isa;

/// Largest number of activation rows that a kernel takes at once.
const AT_ONCE: usize = 3;
/// Up to how many activation rows this is quicker than a panel: one row more than fit at once, where weights are read twice; not
/// so for AVX2 and quants of four bits, whose panels multiply faster.
pub(crate) fn max_m<F: Format>(isa: Isa) -> usize {
    #[cfg(target_arch = "x86_64")]
    if F::MAX == Some(15) && matches!(isa.level(), crate::isa::Level::Avx2 | crate::isa::Level::Avx512) {
        return AT_ONCE;
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    AT_ONCE + 1
}

/// The integer dot product of an instruction set.
pub(crate) trait Dot {
    /// f32 lanes that sums gather in.
    type Acc: Copy;
    fn zero() -> Self::Acc;
    /// Adds `s[0]` times the dot product of the first 16 elements and `s[1]` times that of the last 16.
    fn block(acc: Self::Acc, q: &[i8; 32], a: &[i8; 32], s: [f32; 2]) -> Self::Acc;
    fn sum(acc: Self::Acc) -> f32;
}

pub(crate) struct Portable;
impl Dot for Portable {
    type Acc = f32;
    #[inline(always)]
    fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    fn block(acc: f32, q: &[i8; 32], a: &[i8; 32], s: [f32; 2]) -> f32 {
        let mut dot = [0i32; 2];
        for half in 0..2 {
            for i in half * 16..half * 16 + 16 {
                dot[half] += i32::from(q[i]) * i32::from(a[i]);
            }
        }
        acc + s[0] * dot[0] as f32 + s[1] * dot[1] as f32
    }
    #[inline(always)]
    fn sum(acc: f32) -> f32 {
        acc
    }
}

#[cfg(target_arch = "aarch64")]
pub(crate) mod neon {
    use std::arch::aarch64::*;
    use std::arch::asm;

    use super::Dot;

    /// acc += the dot products of four bytes each. By hand, as the intrinsic is not stable.
    ///
    /// # Safety
    /// The processor has `dotprod`.
    #[inline(always)]
    pub unsafe fn sdot(mut acc: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
        // SAFETY: by the caller; registers only.
        unsafe {
            asm!(".arch_extension dotprod", "sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) acc, in(vreg) a,
                in(vreg) b, options(pure, nomem, nostack, preserves_flags));
        }
        acc
    }

    pub struct Neon<const DOTPROD: bool>;
    impl<const DOTPROD: bool> Dot for Neon<DOTPROD> {
        type Acc = float32x4_t;
        #[inline(always)]
        fn zero() -> float32x4_t {
            // SAFETY: NEON is part of AArch64.
            unsafe { vdupq_n_f32(0.0) }
        }
        #[inline(always)]
        fn block(mut acc: float32x4_t, q: &[i8; 32], a: &[i8; 32], s: [f32; 2]) -> float32x4_t {
            for (half, &s) in s.iter().enumerate() {
                // SAFETY: 16 bytes at 0 and at 16 of 32; `DOTPROD` is only set for `Level::NeonDot`.
                unsafe {
                    let (q, a) = (vld1q_s8(q.as_ptr().add(16 * half)), vld1q_s8(a.as_ptr().add(16 * half)));
                    let dot = if DOTPROD {
                        sdot(vdupq_n_s32(0), q, a)
                    } else {
                        let low = vmull_s8(vget_low_s8(q), vget_low_s8(a));
                        vpadalq_s16(vpaddlq_s16(low), vmull_high_s8(q, a))
                    };
                    acc = vfmaq_n_f32(acc, vcvtq_f32_s32(dot), s);
                }
            }
            acc
        }
        #[inline(always)]
        fn sum(acc: float32x4_t) -> f32 {
            // SAFETY: NEON is part of AArch64.
            unsafe { vaddvq_f32(acc) }
        }
    }
}

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod wasm {
    use std::arch::wasm32::*;

    use super::Dot;

    pub struct Simd128;
    impl Dot for Simd128 {
        type Acc = v128;
        #[inline(always)]
        fn zero() -> v128 {
            f32x4_splat(0.0)
        }
        #[inline(always)]
        fn block(mut acc: v128, q: &[i8; 32], a: &[i8; 32], s: [f32; 2]) -> v128 {
            for (half, &s) in s.iter().enumerate() {
                // SAFETY: 16 bytes at 0 and at 16 of 32.
                let (q, a) = unsafe {
                    (v128_load(q.as_ptr().add(16 * half).cast()), v128_load(a.as_ptr().add(16 * half).cast()))
                };
                let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(q), i16x8_extend_low_i8x16(a));
                let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(q), i16x8_extend_high_i8x16(a));
                let dot = f32x4_convert_i32x4(i32x4_add(low, high));
                acc = f32x4_add(acc, f32x4_mul(dot, f32x4_splat(s)));
            }
            acc
        }
        #[inline(always)]
        fn sum(acc: v128) -> f32 {
            let (a, b) = (f32x4_extract_lane::<0>(acc), f32x4_extract_lane::<1>(acc));
            a + b + (f32x4_extract_lane::<2>(acc) + f32x4_extract_lane::<3>(acc))
        }
    }
}

/// out[i][j] = weight row j by activation row `first + i`, for `M` activation rows.
#[inline(always)]
pub(crate) fn dot_rows<F: Format, D: Dot, const M: usize>(
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    out: &mut TileMut<'_>,
) {
    let k = acts.k();
    let mut block = Unpacked::new();
    for (j, row) in weights.chunks_exact(k / F::ELEMS * F::BYTES).enumerate() {
        let mut acc = [D::zero(); M];
        let mut offset = [0f32; M];
        for (b, bytes) in row.chunks_exact(F::BYTES).enumerate() {
            F::unpack(bytes, half_to_f32, &mut block);
            for i in 0..M {
                let at = (first + i) * k + b * F::ELEMS;
                let (a, scale) = (&acts.q[at..at + F::ELEMS], &acts.scale[at / 32..(at + F::ELEMS) / 32]);
                let pairs = block.q[..F::ELEMS].as_chunks::<32>().0.iter().zip(a.as_chunks::<32>().0);
                for (g, ((q, a), &scale)) in pairs.zip(scale).enumerate() {
                    let s = if F::GROUP == 32 {
                        [block.scale[g] * scale; 2]
                    } else {
                        [block.scale[2 * g] * scale, block.scale[2 * g + 1] * scale]
                    };
                    acc[i] = D::block(acc[i], q, a, s);
                }
                if F::HAS_MIN {
                    let sums = if F::GROUP == 32 { &acts.sum } else { &acts.half_sum };
                    let at = at / F::GROUP;
                    for (min, sum) in block.min[..F::GROUPS].iter().zip(&sums[at..at + F::GROUPS]) {
                        offset[i] += min * sum;
                    }
                }
            }
        }
        for i in 0..M {
            out.set(first + i, j, D::sum(acc[i]) + offset[i]);
        }
    }
}

/// Generic over `M` by a match, so that each count is unrolled.
#[inline(always)]
fn dot_rows_any<F: Format, D: Dot>(
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    count: usize,
    out: &mut TileMut<'_>,
) {
    match count {
        1 => dot_rows::<F, D, 1>(weights, acts, first, out),
        2 => dot_rows::<F, D, 2>(weights, acts, first, out),
        _ => dot_rows::<F, D, 3>(weights, acts, first, out),
    }
}

/// Every activation row by every weight row.
pub(crate) fn run<F: Format + X86>(isa: Isa, weights: &[u8], acts: &ActivationsQ8, out: &mut TileMut<'_>) {
    for first in (0..acts.m()).step_by(AT_ONCE) {
        run_some::<F>(isa, weights, acts, first, (acts.m() - first).min(AT_ONCE), out);
    }
}

/// Activation rows `first..first + count`, `count` at most [`AT_ONCE`].
fn run_some<F: Format + X86>(
    isa: Isa,
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    count: usize,
    out: &mut TileMut<'_>,
) {
    #[allow(unused_imports, reason = "some targets have one level only")]
    use crate::isa::Level;
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => super::dot_x86::run_vnni::<F>(isa, weights, acts, first, count, out),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => super::dot_x86::run_avx2::<F>(isa, weights, acts, first, count, out),
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => dot_rows_any::<F, neon::Neon<true>>(weights, acts, first, count, out),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => dot_rows_any::<F, neon::Neon<false>>(weights, acts, first, count, out),
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128 => dot_rows_any::<F, wasm::Simd128>(weights, acts, first, count, out),
        _ => dot_rows_any::<F, Portable>(weights, acts, first, count, out),
    }
}

/// What a format must have on this architecture besides [`Format`].
#[cfg(target_arch = "x86_64")]
pub(crate) use super::load_x86::Load as X86;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) trait X86 {}
#[cfg(not(target_arch = "x86_64"))]
impl<F: Format> X86 for F {}
