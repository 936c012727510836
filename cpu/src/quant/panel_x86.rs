//! Panels on x86: VNNI's `vpdpbusd` over 16 lanes, and AVX2's `maddubs` over 8.

use std::arch::x86_64::*;

use super::{ActivationsQ8, Format, HALF, Kernel, Panel, ROWS, TileMut, Unpacked, tile};

/// Four bytes on every lane.
#[inline(always)]
unsafe fn four(a: *const i8) -> i32 {
    // SAFETY: by the caller, four bytes are readable.
    unsafe { a.cast::<i32>().read_unaligned() }
}

/// f16 to f32.
///
/// # Safety
/// The processor has F16C.
#[inline(always)]
unsafe fn half(bits: u16) -> f32 {
    // SAFETY: by the caller.
    unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
}

/// As [`Kernel::weave`] for runs of four elements: eight runs of eight rows are transposed at a time.
///
/// # Safety
/// As there, with AVX2.
#[inline(always)]
unsafe fn weave(rows: &[Unpacked; HALF], elems: usize, flip: i8, to: *mut i8) {
    // SAFETY: by the caller; a row has `elems` bytes.
    unsafe {
        let flip = _mm256_set1_epi8(flip);
        for at in (0..elems).step_by(32) {
            let mut x = [_mm256_setzero_si256(); 8];
            for i in 0..8 {
                x[i] = _mm256_xor_si256(_mm256_loadu_si256(rows[i].q.as_ptr().add(at).cast()), flip);
            }
            // Pairs, then fours, of rows inside each half of a vector; then the halves.
            let (mut two, mut four) = ([_mm256_setzero_si256(); 8], [_mm256_setzero_si256(); 8]);
            for i in 0..4 {
                two[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
                two[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
            }
            for i in 0..2 {
                let [a, b, c, d] = [two[4 * i], two[4 * i + 1], two[4 * i + 2], two[4 * i + 3]];
                four[4 * i] = _mm256_unpacklo_epi64(a, c);
                four[4 * i + 1] = _mm256_unpackhi_epi64(a, c);
                four[4 * i + 2] = _mm256_unpacklo_epi64(b, d);
                four[4 * i + 3] = _mm256_unpackhi_epi64(b, d);
            }
            for i in 0..4 {
                let line = |line: usize| to.add((at / 4 + line) * 4 * ROWS).cast();
                _mm256_storeu_si256(line(i), _mm256_permute2x128_si256::<0x20>(four[i], four[4 + i]));
                _mm256_storeu_si256(line(4 + i), _mm256_permute2x128_si256::<0x31>(four[i], four[4 + i]));
            }
        }
    }
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
    #[inline(always)]
    fn half(bits: u16) -> f32 {
        // SAFETY: kernels run only where the functions below do, whose levels have F16C.
        unsafe { half(bits) }
    }
    #[inline(always)]
    unsafe fn weave(rows: &[Unpacked; HALF], elems: usize, flip: i8, to: *mut i8) {
        // SAFETY: by the caller.
        unsafe { weave(rows, elems, flip, to) }
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
    #[inline(always)]
    fn half(bits: u16) -> f32 {
        // SAFETY: kernels run only where the functions below do, whose levels have F16C.
        unsafe { half(bits) }
    }
    #[inline(always)]
    unsafe fn weave(rows: &[Unpacked; HALF], elems: usize, flip: i8, to: *mut i8) {
        // SAFETY: by the caller.
        unsafe { weave(rows, elems, flip, to) }
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
