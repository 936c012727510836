//! Some weight rows by a few rows of 8-bit activations on x86.
//!
//! `Avx2` multiplies unsigned weights with `maddubs`, and signed ones (Q8_0) by moving the sign to the activation;
//! VNNI takes Q8_0 with 128 added and a minimum of -128 * scale.

use std::arch::x86_64::*;

use super::acts::ActivationsQ8;
use super::load_x86::*;
use super::tile::TileMut;
use crate::Isa;
use crate::isa::Level;

/// Bytes between what is read and what is asked of memory: the processor's own prefetching stops at each page, and is led
/// astray by rows that are read side by side.
const AHEAD: usize = 8192;

/// As many rows of weights at a time as share the loads of activations and leave registers free.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn rows_avx2<F: Load, const M: usize, const R: usize>(
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    out: &mut TileMut<'_>,
) {
    let rows = weights.len() / (acts.k() / F::ELEMS * F::BYTES);
    for n in (0..rows / R * R).step_by(R) {
        some_rows_avx2::<F, M, R>(weights, acts, first, n, out);
    }
    for n in rows / R * R..rows {
        some_rows_avx2::<F, M, 1>(weights, acts, first, n, out);
    }
}

/// Weight rows `n..n + R`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn some_rows_avx2<F: Load, const M: usize, const R: usize>(
    weights: &[u8],
    acts: &ActivationsQ8,
    first: usize,
    n: usize,
    out: &mut TileMut<'_>,
) {
    let k = acts.k();
    let ones = _mm256_set1_epi16(1);
    let row = k / F::ELEMS * F::BYTES;
    let unit_bytes = F::UNIT / F::ELEMS * F::BYTES;
    let mut acc = [[_mm256_setzero_ps(); M]; R];
    let mut low = [[_mm256_setzero_ps(); M]; R];
    let mut ahead = weights.as_ptr().wrapping_add(n * row + AHEAD);
    for_units::<F, R>(weights, n * row, row, k, |units, at, left| {
        // SAFETY: `for_units` gives whole units and an element offset inside the row; loads of activations past the row
        // end inside `acts.q`'s padding, and their scale is 0. Prefetching asks nothing of its address.
        unsafe {
            for line in 0..(R * unit_bytes).div_ceil(64) {
                _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(64 * line).cast());
            }
            ahead = ahead.wrapping_add(R * unit_bytes);
            let mut lanes = [([_mm256_setzero_ps(); 2], [_mm256_setzero_ps(); 2]); M];
            for i in 0..M {
                lanes[i] = act_lanes::<F>(acts, (first + i) * k + at, left);
            }
            let mut scale = [[[_mm256_setzero_ps(); 2]; M]; R];
            for r in 0..R {
                let scales = scales_until::<F>(units[r], left);
                let min = minima(&scales, F::OFFSET[0]);
                for i in 0..M {
                    if F::HAS_MIN {
                        low[r][i] = add_minima(low[r][i], min, lanes[i].1, F::GROUP);
                    }
                    let product = |half: usize| _mm256_mul_ps(scales.scale[half], lanes[i].0[half]);
                    scale[r][i] = arrange::<F>([product(0), product(1)]);
                }
            }
            for p in 0..F::UNIT / 64 {
                if F::UNIT == 128 && 64 * p >= left {
                    break;
                }
                let mut a = [[_mm256_setzero_si256(); 2]; M];
                for i in 0..M {
                    a[i] = act_pair::<F>(acts.q.as_ptr().add((first + i) * k + at), p);
                }
                for r in 0..R {
                    let q = F::pair(units[r], p);
                    for i in 0..M {
                        let pairs = |half: usize| {
                            if F::MAX.is_some() {
                                _mm256_maddubs_epi16(q[half], a[i][half])
                            } else {
                                _mm256_maddubs_epi16(_mm256_abs_epi8(q[half]), _mm256_sign_epi8(a[i][half], q[half]))
                            }
                        };
                        let mut add = |pairs: __m256i, block: usize| {
                            let dot = _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, ones));
                            acc[r][i] = _mm256_fmadd_ps(dot, spread(&scale[r][i], block), acc[r][i]);
                        };
                        if F::HALVES {
                            // Four products of a quant of at most 15 and an i8 fit 16 bits.
                            add(_mm256_add_epi16(pairs(0), pairs(1)), 2 * p);
                        } else {
                            add(pairs(0), 2 * p);
                            add(pairs(1), 2 * p + 1);
                        }
                    }
                }
            }
        }
    });
    for r in 0..R {
        for i in 0..M {
            let lanes = _mm_add_ps(_mm256_castps256_ps128(acc[r][i]), _mm256_extractf128_ps::<1>(acc[r][i]));
            // SAFETY: this function has AVX2.
            let sum = unsafe { sum_128(lanes) + if F::HAS_MIN { minima_sum::<F>(low[r][i]) } else { 0.0 } };
            out.set(first + i, n + r, sum);
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
        for_units::<F, 1>(weights, n * row, row, k, |[unit], at, left| {
            // SAFETY: as in `some_rows_avx2`.
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
            1 => rows_avx2::<F, 1, 4>(weights, acts, first, out),
            2 => rows_avx2::<F, 2, 2>(weights, acts, first, out),
            _ => rows_avx2::<F, 3, 1>(weights, acts, first, out),
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
