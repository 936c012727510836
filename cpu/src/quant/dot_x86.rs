//! One weight row by a few activation rows on x86, with the blocks unpacked in registers.
//!
//! Work goes by units: 4 blocks of the 32-element formats, or 1 block of 256. A unit's scales and minima are made as
//! one vector, multiplied with the activations' scales and sums, and spread over the lanes by a permutation, so that
//! a group costs one integer dot product, one conversion and one multiply-add.
//! `Avx2` multiplies unsigned weights with `maddubs`, and signed ones (Q8_0) by moving the sign to the activation;
//! VNNI takes Q8_0 with 128 added and a minimum of -128 * scale.

use std::arch::x86_64::*;

use super::acts::ActivationsQ8;
use super::format::{Format, Q4_0, Q4_1, Q4K, Q6K, Q8_0, half_to_f32};
use super::tile::TileMut;
use crate::Isa;
use crate::isa::Level;

/// How a format's units come into registers. Pointers are to a whole unit of `UNIT / ELEMS` blocks.
///
/// # Safety
/// Each function asks for AVX2, FMA and F16C, and those that say 512 for AVX-512 F, BW, VL, DQ.
pub(crate) trait Load: Format {
    /// Elements of a unit.
    const UNIT: usize;
    /// What `min` is of `scale`, where it is a multiple. VNNI's second.
    const OFFSET: [f32; 2];
    /// Scales of the unit's groups (lower lanes first), and minima (in the same lanes).
    unsafe fn scales(unit: *const u8) -> Scales;
    /// Quants 32 j .. 32 j + 32.
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i;
    /// Quants 64 j .. 64 j + 64, unsigned.
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i;
}

/// Up to 16 lanes, in two halves.
#[derive(Clone, Copy)]
pub(crate) struct Scales {
    scale: [__m256; 2],
    /// Used where `OFFSET` is 0.
    min: [__m256; 2],
}

/// Four blocks' leading 16-bit words as f32 in the lower lanes.
#[inline(always)]
unsafe fn four_halves(unit: *const u8, bytes: usize) -> __m256 {
    // SAFETY: by the caller, four blocks of `bytes` are readable.
    unsafe {
        let word = |i: usize| u64::from(unit.add(i * bytes).cast::<u16>().read_unaligned());
        let words = word(0) | (word(1) << 16) | (word(2) << 32) | (word(3) << 48);
        _mm256_castps128_ps256(_mm_cvtph_ps(_mm_cvtsi64_si128(words as i64)))
    }
}

#[inline(always)]
unsafe fn nibbles(bytes: *const u8) -> __m256i {
    // SAFETY: by the caller, 16 bytes are readable.
    unsafe {
        let packed = _mm_loadu_si128(bytes.cast());
        let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(packed), _mm_srli_epi16::<4>(packed));
        _mm256_and_si256(both, _mm256_set1_epi8(15))
    }
}

/// The nibbles of two blocks, `step` bytes apart.
#[inline(always)]
unsafe fn nibbles_512(bytes: *const u8, step: usize) -> __m512i {
    // SAFETY: by the caller, 16 bytes are readable at 0 and at `step`.
    unsafe {
        let a = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.cast()));
        let b = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.add(step).cast()));
        let both = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b);
        let shifted = _mm512_srlv_epi64(both, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0));
        _mm512_and_si512(shifted, _mm512_set1_epi8(15))
    }
}

impl Load for Q4_0 {
    const UNIT: usize = 128;
    const OFFSET: [f32; 2] = [-8.0, -8.0];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe { Scales { scale: [four_halves(unit, 18), _mm256_setzero_ps()], min: [_mm256_setzero_ps(); 2] } }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe { nibbles(unit.add(18 * j + 2)) }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe { nibbles_512(unit.add(36 * j + 2), 18) }
    }
}

impl Load for Q4_1 {
    const UNIT: usize = 128;
    const OFFSET: [f32; 2] = [0.0; 2];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe {
            let word = |i: usize| unit.add(i * 20).cast::<i32>().read_unaligned();
            let words = _mm_setr_epi32(word(0), word(1), word(2), word(3));
            let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
            let both = _mm256_cvtph_ps(_mm_shuffle_epi8(words, order));
            let min = _mm256_castps128_ps256(_mm256_extractf128_ps::<1>(both));
            Scales { scale: [both, _mm256_setzero_ps()], min: [min, _mm256_setzero_ps()] }
        }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe { nibbles(unit.add(20 * j + 4)) }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe { nibbles_512(unit.add(40 * j + 4), 20) }
    }
}

impl Load for Q8_0 {
    const UNIT: usize = 128;
    const OFFSET: [f32; 2] = [0.0, -128.0];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe { Scales { scale: [four_halves(unit, 34), _mm256_setzero_ps()], min: [_mm256_setzero_ps(); 2] } }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe { _mm256_loadu_si256(unit.add(34 * j + 2).cast()) }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe {
            let (a, b) = (unit.add(68 * j + 2), unit.add(68 * j + 36));
            let a = _mm512_castsi256_si512(_mm256_loadu_si256(a.cast()));
            let both = _mm512_inserti64x4::<1>(a, _mm256_loadu_si256(b.cast()));
            _mm512_xor_si512(both, _mm512_set1_epi8(-128))
        }
    }
}

impl Load for Q4K {
    const UNIT: usize = 256;
    const OFFSET: [f32; 2] = [0.0; 2];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe {
            let half = |at: usize| half_to_f32(unit.add(at).cast::<u16>().read_unaligned());
            let word = |at: usize| unit.add(at).cast::<u32>().read_unaligned();
            // The packing that `format::Q4K` explains, four bytes at a time.
            let (s, m, high) = (word(4), word(8), word(12));
            let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x0303_0303);
            let (s_low, s_high) = (s & six, (high & four) | (((s >> 6) & two) << 4));
            let (m_low, m_high) = (m & six, ((high >> 4) & four) | (((m >> 6) & two) << 4));
            let bytes = |low: u32, high: u32| _mm_cvtsi64_si128((u64::from(low) | (u64::from(high) << 32)) as i64);
            let scale = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(s_low, s_high)));
            let min = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes(m_low, m_high)));
            Scales {
                scale: [_mm256_mul_ps(scale, _mm256_set1_ps(half(0))), _mm256_setzero_ps()],
                min: [_mm256_mul_ps(min, _mm256_set1_ps(-half(2))), _mm256_setzero_ps()],
            }
        }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe {
            let packed = _mm256_loadu_si256(unit.add(16 + 32 * (j / 2)).cast());
            let packed = if j.is_multiple_of(2) { packed } else { _mm256_srli_epi16::<4>(packed) };
            _mm256_and_si256(packed, _mm256_set1_epi8(15))
        }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe {
            let both = _mm512_broadcast_i64x4(_mm256_loadu_si256(unit.add(16 + 32 * j).cast()));
            let shifted = _mm512_srlv_epi64(both, _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0));
            _mm512_and_si512(shifted, _mm512_set1_epi8(15))
        }
    }
}

impl Load for Q6K {
    const UNIT: usize = 256;
    const OFFSET: [f32; 2] = [-32.0, -32.0];
    #[inline(always)]
    unsafe fn scales(unit: *const u8) -> Scales {
        // SAFETY: as the trait asks.
        unsafe {
            let d = _mm256_set1_ps(half_to_f32(unit.add(208).cast::<u16>().read_unaligned()));
            let scale = |at: usize| {
                let bytes = _mm_loadl_epi64(unit.add(at).cast());
                _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d)
            };
            Scales { scale: [scale(192), scale(200)], min: [_mm256_setzero_ps(); 2] }
        }
    }
    #[inline(always)]
    unsafe fn quants(unit: *const u8, j: usize) -> __m256i {
        // SAFETY: as the trait asks.
        unsafe {
            let low = _mm256_loadu_si256(unit.add(64 * (j / 4) + 32 * (j % 2)).cast());
            let high = _mm256_loadu_si256(unit.add(128 + 32 * (j / 4)).cast());
            let low = if j % 4 < 2 { low } else { _mm256_srli_epi16::<4>(low) };
            let high = match j % 4 {
                0 => _mm256_slli_epi16::<4>(high),
                1 => _mm256_slli_epi16::<2>(high),
                2 => high,
                _ => _mm256_srli_epi16::<2>(high),
            };
            let low = _mm256_and_si256(low, _mm256_set1_epi8(0x0f));
            _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)))
        }
    }
    #[inline(always)]
    unsafe fn quants_512(unit: *const u8, j: usize) -> __m512i {
        // SAFETY: as the trait asks.
        unsafe {
            let low = _mm512_loadu_si512(unit.add(64 * (j / 2)).cast());
            let high = _mm512_broadcast_i64x4(_mm256_loadu_si256(unit.add(128 + 32 * (j / 2)).cast()));
            let (low, high) = if j.is_multiple_of(2) {
                (low, _mm512_sllv_epi64(high, _mm512_set_epi64(2, 2, 2, 2, 4, 4, 4, 4)))
            } else {
                (_mm512_srli_epi16::<4>(low), _mm512_srlv_epi64(high, _mm512_set_epi64(2, 2, 2, 2, 0, 0, 0, 0)))
            };
            let low = _mm512_and_si512(low, _mm512_set1_epi8(0x0f));
            _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi8(0x30)))
        }
    }
}

/// Bytes of the largest unit: 4 blocks of Q8_0 are 136, a Q6_K block 210.
const UNIT_BYTES: usize = 210;

/// Scales and sums of one activation row's unit, zero where the row has ended.
#[inline(always)]
unsafe fn act_lanes<F: Load>(acts: &ActivationsQ8, at: usize, left: usize) -> ([__m256; 2], [__m256; 2]) {
    // SAFETY: by the caller, `left` elements (at least one block) follow `at`, a multiple of 32.
    unsafe {
        let zero = _mm256_setzero_ps();
        if F::UNIT == 128 {
            let (scale, sum) = (acts.scale.as_ptr().add(at / 32), acts.sum.as_ptr().add(at / 32));
            let load = |from: *const f32| {
                if left >= 128 {
                    return _mm256_castps128_ps256(_mm_loadu_ps(from));
                }
                let lane = |i: usize| if i * 32 < left { *from.add(i) } else { 0.0 };
                _mm256_castps128_ps256(_mm_setr_ps(lane(0), lane(1), lane(2), 0.0))
            };
            ([load(scale), zero], [load(sum), zero])
        } else if F::GROUP == 32 {
            let (scale, sum) = (acts.scale.as_ptr().add(at / 32), acts.sum.as_ptr().add(at / 32));
            ([_mm256_loadu_ps(scale), zero], [_mm256_loadu_ps(sum), zero])
        } else {
            let (scale, sum) = (acts.scale.as_ptr().add(at / 32), acts.half_sum.as_ptr().add(at / 16));
            let scale = _mm256_loadu_ps(scale);
            let twice = |low: i32| _mm256_setr_epi32(low, low, low + 1, low + 1, low + 2, low + 2, low + 3, low + 3);
            let spread = |low: i32| _mm256_permutevar8x32_ps(scale, twice(low));
            ([spread(0), spread(4)], [_mm256_loadu_ps(sum), _mm256_loadu_ps(sum.add(8))])
        }
    }
}

/// Calls `unit(pointer, element offset, elements left)` over a row that starts at `start`. The last unit may reach into
/// the next row; where there is none, it is a padded copy.
#[inline(always)]
fn for_units<F: Load>(weights: &[u8], start: usize, k: usize, mut unit: impl FnMut(*const u8, usize, usize)) {
    let unit_bytes = F::UNIT / F::ELEMS * F::BYTES;
    for at in (0..k).step_by(F::UNIT) {
        let bytes = &weights[start + at / F::ELEMS * F::BYTES..];
        if bytes.len() >= unit_bytes {
            unit(bytes.as_ptr(), at, k - at);
        } else {
            let mut padded = [0u8; UNIT_BYTES];
            padded[..bytes.len()].copy_from_slice(bytes);
            unit(padded.as_ptr(), at, k - at);
        }
    }
}

/// The unit's scales, with zeros for the blocks past the row's end, whose bytes are another row's.
#[inline(always)]
unsafe fn scales_until<F: Load>(unit: *const u8, left: usize) -> Scales {
    // SAFETY: as `Load` asks.
    unsafe {
        let mut scales = F::scales(unit);
        if F::UNIT == 128 && left < 128 {
            let index = _mm256_setr_epi32(0, 32, 64, 96, 128, 128, 128, 128);
            let inside = _mm256_cmpgt_epi32(_mm256_set1_epi32(left as i32), index);
            scales.scale[0] = _mm256_and_ps(scales.scale[0], _mm256_castsi256_ps(inside));
            scales.min[0] = _mm256_and_ps(scales.min[0], _mm256_castsi256_ps(inside));
        }
        scales
    }
}

/// Where min = OFFSET * scale, that product; else the format's own minima.
#[inline(always)]
unsafe fn minima(scales: &Scales, offset: f32) -> [__m256; 2] {
    // SAFETY: by the caller, AVX is there.
    unsafe {
        if offset == 0.0 { scales.min } else { scales.scale.map(|scale| _mm256_mul_ps(scale, _mm256_set1_ps(offset))) }
    }
}

#[inline(always)]
unsafe fn add_minima(acc: __m256, min: [__m256; 2], sum: [__m256; 2], group: usize) -> __m256 {
    // SAFETY: by the caller, AVX2 and FMA are there.
    unsafe {
        let acc = _mm256_fmadd_ps(min[0], sum[0], acc);
        if group == 16 { _mm256_fmadd_ps(min[1], sum[1], acc) } else { acc }
    }
}

/// The lanes that minima used: four for the 32-element formats (the others may hold anything).
#[inline(always)]
unsafe fn minima_sum<F: Load>(acc: __m256) -> f32 {
    // SAFETY: by the caller, AVX is there.
    unsafe {
        let low = _mm256_castps256_ps128(acc);
        let lanes = if F::UNIT == 128 { low } else { _mm_add_ps(low, _mm256_extractf128_ps::<1>(acc)) };
        sum_128(lanes)
    }
}

#[inline(always)]
unsafe fn sum_128(lanes: __m128) -> f32 {
    // SAFETY: SSE is part of x86-64.
    unsafe {
        let pair = _mm_add_ps(lanes, _mm_movehl_ps(lanes, lanes));
        _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn rows_avx2<F: Load, const M: usize>(weights: &[u8], acts: &ActivationsQ8, first: usize, out: &mut TileMut<'_>) {
    let k = acts.k();
    let ones = _mm256_set1_epi16(1);
    let row = k / F::ELEMS * F::BYTES;
    for n in 0..weights.len() / row {
        let mut acc = [[_mm256_setzero_ps(); 2]; M];
        let mut low = [_mm256_setzero_ps(); M];
        for_units::<F>(weights, n * row, k, |unit, at, left| {
            // SAFETY: `for_units` gives a whole unit and an element offset inside the row; loads of activations past
            // the row end inside `acts.q`'s padding, and their scale is 0.
            unsafe {
                let scales = scales_until::<F>(unit, left);
                let min = minima(&scales, F::OFFSET[0]);
                let mut spread = [[_mm256_setzero_ps(); 2]; M];
                for i in 0..M {
                    let (scale, sum) = act_lanes::<F>(acts, (first + i) * k + at, left);
                    if F::HAS_MIN {
                        low[i] = add_minima(low[i], min, sum, F::GROUP);
                    }
                    spread[i] = [_mm256_mul_ps(scales.scale[0], scale[0]), _mm256_mul_ps(scales.scale[1], scale[1])];
                }
                for j in 0..F::UNIT / 32 {
                    let q = F::quants(unit, j);
                    for i in 0..M {
                        let a = acts.q.as_ptr().add((first + i) * k + at + 32 * j);
                        let a = _mm256_loadu_si256(a.cast());
                        let pairs = if F::MAX.is_some() {
                            _mm256_maddubs_epi16(q, a)
                        } else {
                            _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q))
                        };
                        let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
                        let s = if F::GROUP == 32 {
                            _mm256_permutevar8x32_ps(spread[i][0], _mm256_set1_epi32(j as i32))
                        } else {
                            let (a, b) = (2 * (j % 4) as i32, 2 * (j % 4) as i32 + 1);
                            let lanes = _mm256_setr_epi32(a, a, a, a, b, b, b, b);
                            _mm256_permutevar8x32_ps(spread[i][j / 4], lanes)
                        };
                        acc[i][j % 2] = _mm256_fmadd_ps(dot, s, acc[i][j % 2]);
                    }
                }
            }
        });
        for i in 0..M {
            let lanes = _mm256_add_ps(acc[i][0], acc[i][1]);
            let lanes = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
            // SAFETY: this function has AVX2.
            let sum = unsafe { sum_128(lanes) + if F::HAS_MIN { minima_sum::<F>(low[i]) } else { 0.0 } };
            out.set(first + i, n, sum);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn rows_vnni<F: Load, const M: usize>(weights: &[u8], acts: &ActivationsQ8, first: usize, out: &mut TileMut<'_>) {
    let k = acts.k();
    let row = k / F::ELEMS * F::BYTES;
    for n in 0..weights.len() / row {
        let mut acc = [[_mm512_setzero_ps(); 2]; M];
        let mut low = [_mm256_setzero_ps(); M];
        for_units::<F>(weights, n * row, k, |unit, at, left| {
            // SAFETY: as in `rows_avx2`.
            unsafe {
                let scales = scales_until::<F>(unit, left);
                let min = minima(&scales, F::OFFSET[1]);
                let mut spread = [_mm512_setzero_ps(); M];
                for i in 0..M {
                    let (scale, sum) = act_lanes::<F>(acts, (first + i) * k + at, left);
                    low[i] = add_minima(low[i], min, sum, F::GROUP);
                    let product = _mm512_castps256_ps512(_mm256_mul_ps(scales.scale[0], scale[0]));
                    spread[i] = if F::GROUP == 32 {
                        product
                    } else {
                        _mm512_insertf32x8::<1>(product, _mm256_mul_ps(scales.scale[1], scale[1]))
                    };
                }
                for j in 0..F::UNIT / 64 {
                    let q = F::quants_512(unit, j);
                    let lanes = if F::GROUP == 32 {
                        _mm512_inserti64x4::<1>(_mm512_set1_epi32(2 * j as i32), _mm256_set1_epi32(2 * j as i32 + 1))
                    } else {
                        let g = 4 * j as i32;
                        let (a, b, c, d) = (g, g + 1, g + 2, g + 3);
                        _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d)
                    };
                    for i in 0..M {
                        let a = _mm512_loadu_si512(acts.q.as_ptr().add((first + i) * k + at + 64 * j).cast());
                        let dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), q, a));
                        acc[i][j % 2] = _mm512_fmadd_ps(dot, _mm512_permutexvar_ps(lanes, spread[i]), acc[i][j % 2]);
                    }
                }
            }
        });
        for i in 0..M {
            // SAFETY: this function has AVX2.
            let low = unsafe { minima_sum::<F>(low[i]) };
            out.set(first + i, n, _mm512_reduce_add_ps(_mm512_add_ps(acc[i][0], acc[i][1])) + low);
        }
    }
}

/// Sums of `x`'s groups, so that minima cost one multiplication a group; `UNIT / GROUP` for each unit.
fn group_sums<F: Load>(isa: Isa, x: &[f32], sums: &mut Vec<f32>) {
    sums.clear();
    sums.extend(x.chunks_exact(F::GROUP).map(|x| crate::rows::reduce::sum(isa, x)));
    // Kernels load whole vectors.
    sums.resize(sums.len() + 16, 0.0);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn rows_f32_avx512<F: Load>(weights: &[u8], x: &[f32], sums: &[f32], m: usize, out: &mut TileMut<'_>) {
    let k = x.len();
    let row = k / F::ELEMS * F::BYTES;
    assert!(sums.len() >= k / F::GROUP + 16);
    for n in 0..weights.len() / row {
        let mut acc = [_mm512_setzero_ps(); 2];
        let mut low = _mm256_setzero_ps();
        for_units::<F>(weights, n * row, k, |unit, at, left| {
            // SAFETY: `for_units` gives a whole unit and an element offset inside the row; `x` is read up to its end
            // only, and `sums` has 16 more.
            unsafe {
                let scales = scales_until::<F>(unit, left);
                if F::HAS_MIN {
                    let sum = sums.as_ptr().add(at / F::GROUP);
                    let sum = [_mm256_loadu_ps(sum), _mm256_loadu_ps(sum.add(8))];
                    low = add_minima(low, minima(&scales, F::OFFSET[0]), sum, F::GROUP);
                }
                let scale = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(scales.scale[0]), scales.scale[1]);
                for j in 0..F::UNIT / 32 {
                    if j * 32 >= left {
                        break;
                    }
                    let q = F::quants(unit, j);
                    let (a, b) = (_mm256_castsi256_si128(q), _mm256_extracti128_si256::<1>(q));
                    let x = x.as_ptr().add(at + 32 * j);
                    // Quants are below 128 unless they are signed, so the signed extension serves both.
                    let a = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(a)), _mm512_loadu_ps(x));
                    let b = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
                    let spread = |lane: usize| _mm512_permutexvar_ps(_mm512_set1_epi32(lane as i32), scale);
                    if F::GROUP == 32 {
                        let both = _mm512_fmadd_ps(b, _mm512_loadu_ps(x.add(16)), a);
                        acc[j % 2] = _mm512_fmadd_ps(both, spread(j), acc[j % 2]);
                    } else {
                        let b = _mm512_mul_ps(b, _mm512_loadu_ps(x.add(16)));
                        acc[0] = _mm512_fmadd_ps(a, spread(2 * j), acc[0]);
                        acc[1] = _mm512_fmadd_ps(b, spread(2 * j + 1), acc[1]);
                    }
                }
            }
        });
        // SAFETY: this function has AVX2.
        let low = unsafe { if F::HAS_MIN { minima_sum::<F>(low) } else { 0.0 } };
        out.set(m, n, _mm512_reduce_add_ps(_mm512_add_ps(acc[0], acc[1])) + low);
    }
}

#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn rows_f32_avx2<F: Load>(weights: &[u8], x: &[f32], sums: &[f32], m: usize, out: &mut TileMut<'_>) {
    let k = x.len();
    let row = k / F::ELEMS * F::BYTES;
    assert!(sums.len() >= k / F::GROUP + 16);
    for n in 0..weights.len() / row {
        let mut acc = [_mm256_setzero_ps(); 2];
        let mut low = _mm256_setzero_ps();
        for_units::<F>(weights, n * row, k, |unit, at, left| {
            // SAFETY: as in `rows_f32_avx512`.
            unsafe {
                let scales = scales_until::<F>(unit, left);
                if F::HAS_MIN {
                    let sum = sums.as_ptr().add(at / F::GROUP);
                    let sum = [_mm256_loadu_ps(sum), _mm256_loadu_ps(sum.add(8))];
                    low = add_minima(low, minima(&scales, F::OFFSET[0]), sum, F::GROUP);
                }
                for j in 0..F::UNIT / 32 {
                    if j * 32 >= left {
                        break;
                    }
                    let q = F::quants(unit, j);
                    let halves = [_mm256_castsi256_si128(q), _mm256_extracti128_si256::<1>(q)];
                    for (h, q) in halves.into_iter().enumerate() {
                        let x = x.as_ptr().add(at + 32 * j + 16 * h);
                        let a = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q));
                        let b = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(q)));
                        let a = _mm256_mul_ps(a, _mm256_loadu_ps(x));
                        let both = _mm256_fmadd_ps(b, _mm256_loadu_ps(x.add(8)), a);
                        let group = if F::GROUP == 32 { j } else { 2 * j + h };
                        let lane = _mm256_set1_epi32((group % 8) as i32);
                        let scale = _mm256_permutevar8x32_ps(scales.scale[group / 8], lane);
                        acc[h] = _mm256_fmadd_ps(both, scale, acc[h]);
                    }
                }
            }
        });
        let lanes = _mm256_add_ps(acc[0], acc[1]);
        let lanes = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps::<1>(lanes));
        // SAFETY: this function has AVX2.
        let sum = unsafe { sum_128(lanes) + if F::HAS_MIN { minima_sum::<F>(low) } else { 0.0 } };
        out.set(m, n, sum);
    }
}

/// Every weight row by each row of `x`; `false` where `isa` has no kernel here.
pub(crate) fn run_f32<F: Load>(isa: Isa, weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) -> bool {
    thread_local! {
        static SUMS: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    if isa.level() < Level::Avx2 {
        return false;
    }
    SUMS.with_borrow_mut(|sums| {
        for (m, x) in x.chunks_exact(k).enumerate() {
            group_sums::<F>(isa, x, sums);
            match isa.level() {
                // SAFETY: an `Isa` of this level exists only where the processor has these features.
                Level::Avx2 => unsafe { rows_f32_avx2::<F>(weights, x, sums, m, out) },
                // SAFETY: as above; the levels above AVX2 have AVX-512.
                _ => unsafe { rows_f32_avx512::<F>(weights, x, sums, m, out) },
            }
        }
    });
    true
}

/// `isa` must be `Avx2` or better: else this does nothing, which callers rule out.
pub(crate) fn run_avx2<F: Load>(
    isa: Isa,
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    count: usize,
    out: &mut TileMut<'_>,
) {
    debug_assert!(isa.level() >= Level::Avx2);
    if isa.level() < Level::Avx2 {
        return;
    }
    // SAFETY: an `Isa` of this level exists only where the processor has these features.
    unsafe {
        match count {
            1 => rows_avx2::<F, 1>(weights, acts, first, out),
            2 => rows_avx2::<F, 2>(weights, acts, first, out),
            _ => rows_avx2::<F, 3>(weights, acts, first, out),
        }
    }
}

/// `isa` must be `Avx512Vnni`: else this does nothing, which callers rule out.
pub(crate) fn run_vnni<F: Load>(
    isa: Isa,
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    count: usize,
    out: &mut TileMut<'_>,
) {
    debug_assert!(isa.level() == Level::Avx512Vnni);
    if isa.level() != Level::Avx512Vnni {
        return;
    }
    // SAFETY: an `Isa` of this level exists only where the processor has these features.
    unsafe {
        match count {
            1 => rows_vnni::<F, 1>(weights, acts, first, out),
            2 => rows_vnni::<F, 2>(weights, acts, first, out),
            _ => rows_vnni::<F, 3>(weights, acts, first, out),
        }
    }
}
