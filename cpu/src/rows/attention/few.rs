//! Attention of a few query rows: keys and values are read once, as they lie, and each score is a dot product.

use super::{Attention, MANY, Rows};
use crate::math::scalar::{exp, tanh};
use crate::multiversion::fma;
use crate::rows::reduce::{dot_body, sum_lanes};

/// Keys of a block: a multiple of `LANES`.
const BLOCK: usize = 64;
/// Lanes of a vector loop.
const LANES: usize = 16;
/// Query rows that go through a block together.
const ROWS: usize = 4;

/// Running maximum and sum of each row.
type State = [(f32, f32); MANY];

multiversion! {
    /// At most `MANY` rows; the operands were checked.
    pub(super) fn attention(a: &Attention<'_>, out: &mut [f32], out_rows: Rows) = attention_body;
}

#[inline(always)]
fn attention_body<const FMA: bool>(a: &Attention<'_>, out: &mut [f32], out_rows: Rows) {
    let count = (a.positions * a.group).min(MANY);
    if count == 0 {
        return;
    }
    let mut state: State = [(f32::NEG_INFINITY, 0.0); MANY];
    for r in 0..count {
        let at = r / a.group * out_rows.step + r % a.group * out_rows.head;
        out[at..at + a.v_width].fill(0.0);
    }
    // Positions are in order, so the first sees the earliest keys and the last the latest.
    let (first, last) = (a.visible(0).0, a.visible(a.positions - 1).1);
    let mut start = first / BLOCK * BLOCK;
    while start < last {
        let keys = (a.keys - start).min(BLOCK);
        let mut r = 0;
        while count - r >= ROWS {
            block::<FMA, ROWS>(a, out, out_rows, &mut state, r, start, keys);
            r += ROWS;
        }
        while r < count {
            block::<FMA, 1>(a, out, out_rows, &mut state, r, start, keys);
            r += 1;
        }
        start += BLOCK;
    }
    for r in 0..count {
        let at = r / a.group * out_rows.step + r % a.group * out_rows.head;
        let sum = state[r].1;
        // 0 only where no key was seen: the largest score's share alone is 1.
        let scale = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        for out in &mut out[at..at + a.v_width] {
            *out *= scale;
        }
    }
}

/// Rows `first..first + R` through the keys `start..start + keys`.
#[allow(clippy::too_many_arguments, reason = "one loop's body, split for reading")]
#[inline(always)]
fn block<const FMA: bool, const R: usize>(
    a: &Attention<'_>,
    out: &mut [f32],
    out_rows: Rows,
    state: &mut State,
    first: usize,
    start: usize,
    keys: usize,
) {
    let mut seen = [(0usize, 0usize); R];
    let mut any = false;
    for i in 0..R {
        let (low, high) = a.visible((first + i) / a.group);
        let inside = |key: usize| key.clamp(start, start + keys) - start;
        seen[i] = (inside(low), inside(high));
        any |= seen[i].0 < seen[i].1;
    }
    if !any {
        return;
    }
    let mut q = [a.q; R];
    for i in 0..R {
        let (t, g) = ((first + i) / a.group, (first + i) % a.group);
        q[i] = &a.q[t * a.q_rows.step + g * a.q_rows.head..][..a.width];
    }
    let mut p = [[f32::NEG_INFINITY; BLOCK]; R];
    let k = &a.k[start * a.k_stride..];
    for i in 0..R {
        scores::<FMA>(q[i], k, a.k_stride, keys, &mut p[i]);
    }
    for i in 0..R {
        let p = &mut p[i];
        for p in p.iter_mut() {
            *p *= a.scale;
        }
        if a.softcap > 0.0 {
            for p in p.iter_mut() {
                *p = a.softcap * tanh::<FMA>(*p / a.softcap);
            }
        }
        if let Some(mask) = a.mask {
            let (t, g) = ((first + i) / a.group, (first + i) % a.group);
            let row = &mask.data[t * mask.rows.step + g * mask.rows.head + start * mask.key..];
            for (p, m) in p[..keys].iter_mut().zip(row.iter().step_by(mask.key.max(1))) {
                *p += m;
            }
        }
        let (low, high) = seen[i];
        p[..low].fill(f32::NEG_INFINITY);
        p[high.max(low)..].fill(f32::NEG_INFINITY);
        let (old, sum) = state[first + i];
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for p in p.as_chunks::<LANES>().0 {
            for l in 0..LANES {
                // A NaN is passed over here, and reaches the result by its exponential.
                lanes[l] = if p[l] > lanes[l] { p[l] } else { lanes[l] };
            }
        }
        let mut top = old;
        for lane in lanes {
            top = if lane > top { lane } else { top };
        }
        // Nothing seen yet: subtracting 0 leaves every exponential 0 (and a NaN a NaN).
        let base = if top == f32::NEG_INFINITY { 0.0 } else { top };
        let mut total = [0f32; LANES];
        for p in p.as_chunks_mut::<LANES>().0 {
            for l in 0..LANES {
                p[l] = exp::<FMA>(p[l] - base);
                total[l] += p[l];
            }
        }
        let shrink = exp::<FMA>(old - base);
        state[first + i] = (top, fma::<FMA>(sum, shrink, sum_lanes(&total)));
        if shrink != 1.0 {
            let at = (first + i) / a.group * out_rows.step + (first + i) % a.group * out_rows.head;
            for out in &mut out[at..at + a.v_width] {
                *out *= shrink;
            }
        }
    }
    let (mut low, mut high) = (keys, 0);
    for seen in seen {
        if seen.0 < seen.1 {
            (low, high) = (low.min(seen.0), high.max(seen.1));
        }
    }
    add_values::<FMA, R>(a, out, out_rows, first, start, &p, low, high);
}

/// p[s] = q . k_s, with the keys as they lie.
#[inline(always)]
fn scores<const FMA: bool>(q: &[f32], k: &[f32], stride: usize, keys: usize, p: &mut [f32; BLOCK]) {
    let mut s = 0;
    #[cfg(target_arch = "x86_64")]
    if FMA {
        while s + 8 <= keys {
            assert!((s + 7) * stride + q.len() <= k.len());
            // SAFETY: on x86 only copies for AVX2 and more have `FMA`, and the eight keys were just checked.
            let eight = unsafe { eight_scores(q, k.as_ptr().add(s * stride), stride) };
            p[s..s + 8].copy_from_slice(&eight);
            s += 8;
        }
    }
    while s < keys {
        p[s] = dot_body::<FMA>(q, &k[s * stride..][..q.len()]);
        s += 1;
    }
}

/// Eight dot products at once: the sums across lanes are shared, by adding neighbours of two vectors three times.
///
/// # Safety
/// AVX2 and FMA are there; eight rows of `q.len()` floats, `stride` apart, are readable at `k`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn eight_scores(q: &[f32], k: *const f32, stride: usize) -> [f32; 8] {
    use std::arch::x86_64::*;
    // SAFETY: by the caller.
    unsafe {
        let mut acc = [_mm256_setzero_ps(); 8];
        let (chunks, rest) = q.as_chunks::<8>();
        for (c, q) in chunks.iter().enumerate() {
            let q = _mm256_loadu_ps(q.as_ptr());
            for s in 0..8 {
                acc[s] = _mm256_fmadd_ps(q, _mm256_loadu_ps(k.add(s * stride + 8 * c)), acc[s]);
            }
        }
        let pair = |a: usize| _mm256_hadd_ps(acc[a], acc[a + 1]);
        let (low, high) = (_mm256_hadd_ps(pair(0), pair(2)), _mm256_hadd_ps(pair(4), pair(6)));
        // Each half now has partial sums of keys 0..4 (low) and 4..8 (high).
        let (a, b) = (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high));
        let mut sums = [0f32; 8];
        _mm256_storeu_ps(sums.as_mut_ptr(), _mm256_add_ps(a, b));
        for (d, q) in rest.iter().enumerate() {
            for s in 0..8 {
                sums[s] += q * *k.add(s * stride + 8 * chunks.len() + d);
            }
        }
        sums
    }
}

/// out_i += sum over keys low..high of p_i[s] v[s].
#[allow(clippy::too_many_arguments, reason = "one loop's body, split for reading")]
#[inline(always)]
fn add_values<const FMA: bool, const R: usize>(
    a: &Attention<'_>,
    out: &mut [f32],
    out_rows: Rows,
    first: usize,
    start: usize,
    p: &[[f32; BLOCK]; R],
    low: usize,
    high: usize,
) {
    let mut at = [0usize; R];
    for i in 0..R {
        at[i] = (first + i) / a.group * out_rows.step + (first + i) % a.group * out_rows.head;
    }
    let mut d = 0;
    // Enough separate sums to hide the latency of a multiply-add: four vectors, of four rows or of one.
    if R == 1 {
        while d + 4 * LANES <= a.v_width {
            add_columns::<FMA, R, { 4 * LANES }>(a, out, &at, start, p, low, high, d);
            d += 4 * LANES;
        }
    }
    while d + LANES <= a.v_width {
        add_columns::<FMA, R, LANES>(a, out, &at, start, p, low, high, d);
        d += LANES;
    }
    for d in d..a.v_width {
        for i in 0..R {
            let mut acc = 0.0;
            for s in low..high {
                acc = fma::<FMA>(p[i][s], a.v[(start + s) * a.v_stride + d], acc);
            }
            out[at[i] + d] += acc;
        }
    }
}

/// `D` columns from `d` on.
#[allow(clippy::too_many_arguments, reason = "one loop's body, split for reading")]
#[inline(always)]
fn add_columns<const FMA: bool, const R: usize, const D: usize>(
    a: &Attention<'_>,
    out: &mut [f32],
    at: &[usize; R],
    start: usize,
    p: &[[f32; BLOCK]; R],
    low: usize,
    high: usize,
    d: usize,
) {
    let mut acc = [[0f32; D]; R];
    for s in low..high {
        let v = &a.v[(start + s) * a.v_stride + d..][..D];
        for i in 0..R {
            for l in 0..D {
                acc[i][l] = fma::<FMA>(p[i][s], v[l], acc[i][l]);
            }
        }
    }
    for i in 0..R {
        for (out, acc) in out[at[i] + d..at[i] + d + D].iter_mut().zip(&acc[i]) {
            *out += acc;
        }
    }
}
