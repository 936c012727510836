//! Panels on x86: VNNI's `vpdpbusd` over 16 lanes, and AVX2's `maddubs` over 8.

use std::arch::x86_64::*;

use super::{ActivationsQ8, Format, Kernel, Panel, ROWS, TileMut, tile};

/// Four bytes on every lane.
#[inline(always)]
unsafe fn four(a: *const i8) -> i32 {
    // SAFETY: by the caller, four bytes are readable.
    unsafe { a.cast::<i32>().read_unaligned() }
}

struct Vnni;
impl Kernel for Vnni {
    const KG: usize = 4;
    const UNSIGNED: bool = true;
    const LANES: usize = 16;
    type V = __m512;
    #[inline(always)]
    fn zero() -> __m512 {
        // SAFETY: kernels run only where `tile_vnni` does.
        unsafe { _mm512_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn group<F: Format, const M: usize>(
        acc: &mut [__m512; M],
        q: *const i8,
        a: [*const i8; M],
        scale: *const f32,
        s: [f32; M],
    ) {
        // SAFETY: by the caller; the panel's lines are aligned.
        unsafe {
            let mut dot = [_mm512_setzero_si512(); M];
            for kg in 0..F::GROUP / 4 {
                let w = _mm512_load_si512(q.add(kg * 4 * ROWS).cast());
                for i in 0..M {
                    dot[i] = _mm512_dpbusd_epi32(dot[i], w, _mm512_set1_epi32(four(a[i].add(4 * kg))));
                }
            }
            let scale = _mm512_loadu_ps(scale);
            for i in 0..M {
                let s = _mm512_mul_ps(scale, _mm512_set1_ps(s[i]));
                acc[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[i]), s, acc[i]);
            }
        }
    }
    #[inline(always)]
    unsafe fn offset(acc: __m512, min: *const f32, sum: f32) -> __m512 {
        // SAFETY: by the caller.
        unsafe { _mm512_fmadd_ps(_mm512_loadu_ps(min), _mm512_set1_ps(sum), acc) }
    }
    #[inline(always)]
    unsafe fn store(acc: __m512, to: *mut f32) {
        // SAFETY: by the caller.
        unsafe { _mm512_storeu_ps(to, acc) }
    }
}

struct Avx2;
impl Kernel for Avx2 {
    const KG: usize = 4;
    const UNSIGNED: bool = false;
    const LANES: usize = 8;
    type V = __m256;
    #[inline(always)]
    fn zero() -> __m256 {
        // SAFETY: kernels run only where `tile_avx2` does.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn group<F: Format, const M: usize>(
        acc: &mut [__m256; M],
        q: *const i8,
        a: [*const i8; M],
        scale: *const f32,
        s: [f32; M],
    ) {
        // How many products of `maddubs` (two bytes each) 16 bits can add up: 15 * 127 * 2 * 8 < 2^15, and so on.
        let run = match F::MAX {
            Some(..=15) => 8,
            Some(..=63) => 2,
            _ => 1,
        };
        // SAFETY: by the caller.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut dot = [_mm256_setzero_si256(); M];
            for start in (0..F::GROUP / 4).step_by(run) {
                let mut pairs = [_mm256_setzero_si256(); M];
                for kg in start..(start + run).min(F::GROUP / 4) {
                    let w = _mm256_loadu_si256(q.add(kg * 4 * ROWS).cast());
                    for i in 0..M {
                        let a = _mm256_set1_epi32(four(a[i].add(4 * kg)));
                        let product = if F::MAX.is_some() {
                            _mm256_maddubs_epi16(w, a)
                        } else {
                            _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
                        };
                        pairs[i] = _mm256_add_epi16(pairs[i], product);
                    }
                }
                for i in 0..M {
                    dot[i] = _mm256_add_epi32(dot[i], _mm256_madd_epi16(pairs[i], ones));
                }
            }
            let scale = _mm256_loadu_ps(scale);
            for i in 0..M {
                let s = _mm256_mul_ps(scale, _mm256_set1_ps(s[i]));
                acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[i]), s, acc[i]);
            }
        }
    }
    #[inline(always)]
    unsafe fn offset(acc: __m256, min: *const f32, sum: f32) -> __m256 {
        // SAFETY: by the caller.
        unsafe { _mm256_fmadd_ps(_mm256_loadu_ps(min), _mm256_set1_ps(sum), acc) }
    }
    #[inline(always)]
    unsafe fn store(acc: __m256, to: *mut f32) {
        // SAFETY: by the caller.
        unsafe { _mm256_storeu_ps(to, acc) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn tile_vnni<F: Format>(panel: &mut Panel, weights: &[u8], acts: &ActivationsQ8, out: &mut TileMut<'_>) {
    tile::<F, Vnni, 8>(panel, weights, acts, out);
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn tile_avx2<F: Format>(panel: &mut Panel, weights: &[u8], acts: &ActivationsQ8, out: &mut TileMut<'_>) {
    tile::<F, Avx2, 4>(panel, weights, acts, out);
}
