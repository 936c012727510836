//! One weight row by a few f32 activation rows on x86, with the blocks unpacked in registers.

use std::arch::x86_64::*;

use super::load_x86::*;
use super::tile::TileMut;
use crate::Isa;
use crate::isa::Level;

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
        for_units::<F, 1>(weights, n * row, row, k, |[unit], at, left| {
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
        for_units::<F, 1>(weights, n * row, row, k, |[unit], at, left| {
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
