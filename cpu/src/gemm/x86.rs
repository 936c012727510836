//! Vectors of x86-64: SSE2 (which every such processor has), AVX2 with FMA, AVX-512.

use std::arch::x86_64::*;

use super::simd::{halves, own, vectors};

vectors! {
    /// SSE2, f32.
    Sse, f32, __m128, 4 of 16, _mm_setzero_ps(), _mm_loadu_ps, _mm_storeu_ps, _mm_set1_ps, _mm_add_ps,
    |a, b, c| _mm_add_ps(_mm_mul_ps(a, b), c),
    #[inline(always)]
    unsafe fn transpose(block: &mut [__m128]) {
        let [a, b, c, d] = block else { return };
        // SAFETY: the caller's.
        unsafe { _MM_TRANSPOSE4_PS(a, b, c, d) };
    }
}
vectors! {
    /// SSE2, f64.
    Sse64, f64, __m128d, 2 of 16, _mm_setzero_pd(), _mm_loadu_pd, _mm_storeu_pd, _mm_set1_pd, _mm_add_pd,
    |a, b, c| _mm_add_pd(_mm_mul_pd(a, b), c)
}
vectors! {
    /// AVX2, f32.
    Avx2, f32, __m256, 8 of 16, _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_add_ps,
    _mm256_fmadd_ps,
    #[inline(always)]
    unsafe fn transpose(block: &mut [__m256]) {
        let Ok(rows) = <&mut [__m256; 8]>::try_from(block) else { return };
        // SAFETY: the caller's.
        unsafe { transpose_8(rows) };
    }
    #[inline(always)]
    unsafe fn load_some(at: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller's; lanes that are masked out are not touched.
        unsafe {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_maskload_ps(at, _mm256_cmpgt_epi32(_mm256_set1_epi32(n.min(8) as i32), lanes))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
vectors! {
    /// AVX2, f64.
    Avx2F64, f64, __m256d, 4 of 16, _mm256_setzero_pd(), _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_add_pd,
    _mm256_fmadd_pd,
    #[inline(always)]
    unsafe fn load_some(at: *const f64, n: usize) -> __m256d {
        // SAFETY: as above.
        unsafe {
            let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
            _mm256_maskload_pd(at, _mm256_cmpgt_epi64(_mm256_set1_epi64x(n.min(4) as i64), lanes))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f64) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

/// The first `n` of 16 lanes.
#[inline(always)]
fn mask(n: usize) -> u16 {
    ((1u32 << n.min(16)) - 1) as u16
}

vectors! {
    /// AVX-512, f32.
    Avx512, f32, __m512, 16 of 32, _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_add_ps,
    _mm512_fmadd_ps,
    #[inline(always)]
    unsafe fn load_some(at: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller's; lanes that are masked out are not touched.
        unsafe { _mm512_maskz_loadu_ps(mask(n), at) }
    }
    #[inline(always)]
    unsafe fn store_some(at: *mut f32, v: __m512, n: usize) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(at, mask(n), v) };
    }
    #[inline(always)]
    unsafe fn transpose(block: &mut [__m512]) {
        let Ok(rows) = <&mut [__m512; 16]>::try_from(block) else { return };
        // SAFETY: the caller's.
        unsafe { transpose_16(rows) };
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f32) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}
vectors! {
    /// AVX-512, f64.
    Avx512F64, f64, __m512d, 8 of 32, _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_add_pd,
    _mm512_fmadd_pd,
    #[inline(always)]
    unsafe fn load_some(at: *const f64, n: usize) -> __m512d {
        // SAFETY: the caller's; lanes that are masked out are not touched.
        unsafe { _mm512_maskz_loadu_pd(mask(n.min(8)) as u8, at) }
    }
    #[inline(always)]
    unsafe fn store_some(at: *mut f64, v: __m512d, n: usize) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_pd(at, mask(n.min(8)) as u8, v) };
    }
    #[inline(always)]
    unsafe fn prefetch(at: *const f64) {
        // SAFETY: any address may be asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn transpose_8(r: &mut [__m256; 8]) {
    // SAFETY: the caller's.
    unsafe {
        // Pairs, then fours, of rows inside each half; then the halves.
        let lo = |i: usize| _mm256_unpacklo_ps(r[i], r[i + 1]);
        let hi = |i: usize| _mm256_unpackhi_ps(r[i], r[i + 1]);
        let t = [lo(0), hi(0), lo(2), hi(2), lo(4), hi(4), lo(6), hi(6)];
        let four = |a: usize, b: usize| [_mm256_shuffle_ps::<0x44>(t[a], t[b]), _mm256_shuffle_ps::<0xee>(t[a], t[b])];
        let ([a, b], [c, d]) = (four(0, 2), four(1, 3));
        let ([e, f], [g, h]) = (four(4, 6), four(5, 7));
        let (low, high) = ([a, b, c, d], [e, f, g, h]);
        for i in 0..4 {
            r[i] = _mm256_permute2f128_ps::<0x20>(low[i], high[i]);
            r[i + 4] = _mm256_permute2f128_ps::<0x31>(low[i], high[i]);
        }
    }
}

/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn transpose_16(r: &mut [__m512; 16]) {
    // SAFETY: the caller's.
    unsafe {
        let zero = _mm512_setzero_ps();
        // Fours of rows: u[4 q + c] holds column 4 l + c of rows 4 q.. in its 128-bit lane l.
        let mut u = [zero; 16];
        for q in 0..4 {
            let at = 4 * q;
            let (a, b) = (_mm512_unpacklo_ps(r[at], r[at + 1]), _mm512_unpackhi_ps(r[at], r[at + 1]));
            let (c, d) = (_mm512_unpacklo_ps(r[at + 2], r[at + 3]), _mm512_unpackhi_ps(r[at + 2], r[at + 3]));
            u[at] = _mm512_shuffle_ps::<0x44>(a, c);
            u[at + 1] = _mm512_shuffle_ps::<0xee>(a, c);
            u[at + 2] = _mm512_shuffle_ps::<0x44>(b, d);
            u[at + 3] = _mm512_shuffle_ps::<0xee>(b, d);
        }
        // Then 128-bit lanes.
        for c in 0..4 {
            let (a, b) = (u[c], u[4 + c]);
            let (d, e) = (u[8 + c], u[12 + c]);
            let (ab0, ab1) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
            let (de0, de1) = (_mm512_shuffle_f32x4::<0x88>(d, e), _mm512_shuffle_f32x4::<0xdd>(d, e));
            // ab0 holds lanes 0 and 2 of a, then of b; ab1 lanes 1 and 3.
            r[c] = _mm512_shuffle_f32x4::<0x88>(ab0, de0);
            r[8 + c] = _mm512_shuffle_f32x4::<0xdd>(ab0, de0);
            r[4 + c] = _mm512_shuffle_f32x4::<0x88>(ab1, de1);
            r[12 + c] = _mm512_shuffle_f32x4::<0xdd>(ab1, de1);
        }
    }
}

own!(Sse, Sse64, Avx2, Avx2F64, Avx512, Avx512F64);
halves!(Sse; f16 {} bf16 {});
halves!(Avx2;
    f16 {
        #[inline(always)]
        unsafe fn load(at: *const Self) -> __m256 {
            // SAFETY: the caller's; AVX2's level has F16C.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
        }
    }
    bf16 {
        #[inline(always)]
        unsafe fn load(at: *const Self) -> __m256 {
            // SAFETY: the caller's.
            unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast())))) }
        }
    }
);
halves!(Avx512;
    f16 {
        #[inline(always)]
        unsafe fn load(at: *const Self) -> __m512 {
            // SAFETY: the caller's.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
        }
        #[inline(always)]
        unsafe fn load_some(at: *const Self, n: usize) -> __m512 {
            // SAFETY: the caller's; the level has AVX-512 BW and VL, and lanes that are masked out are not touched.
            unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(n), at.cast())) }
        }
    }
    bf16 {
        #[inline(always)]
        unsafe fn load(at: *const Self) -> __m512 {
            // SAFETY: the caller's.
            unsafe { widen(_mm256_loadu_si256(at.cast())) }
        }
        #[inline(always)]
        unsafe fn load_some(at: *const Self, n: usize) -> __m512 {
            // SAFETY: as for f16.
            unsafe { widen(_mm256_maskz_loadu_epi16(mask(n), at.cast())) }
        }
    }
);

/// bf16 to f32.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn widen(halves: __m256i) -> __m512 {
    // SAFETY: the caller's.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves))) }
}
