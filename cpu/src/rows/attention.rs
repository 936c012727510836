//! Scaled dot-product attention of some query rows that share one key head, without a stored score matrix: online
//! softmax over blocks of keys (Milakov and Gimelshein, 2018; Dao et al., 2022).
//!
//! For each block of `BLOCK` keys and each few query rows: scores into a small buffer, their running maximum m and sum
//! l, and `out = out * e^(m_old - m) + p v`. At the end `out /= l`. With many rows the block's keys are transposed
//! once, so that lanes are keys; with few (decoding) each score is a dot product.

use std::cell::RefCell;

use tallow_graph::{Error, Result};

use super::reduce::{dot_body, sum_lanes};
use crate::Isa;
use crate::math::scalar::{exp, tanh};
use crate::multiversion::fma;

/// Keys of a block: a multiple of `LANES`.
const BLOCK: usize = 64;
/// Lanes of a vector loop.
const LANES: usize = 16;
/// Query rows that go through a block together.
const ROWS: usize = 4;
/// From this many rows on, transposing the keys pays.
const TRANSPOSE: usize = 8;

/// Where rows of a matrix lie: row (t, g) starts at `t * step + g * head`, for position t and head g of a group.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Elements between successive positions.
    pub step: usize,
    /// Elements between successive heads of the group.
    pub head: usize,
}

/// Numbers that are added to the scores: that of position t, head g and key s is at
/// `t * rows.step + g * rows.head + s * key`.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// The numbers; negative infinity hides a key.
    pub data: &'a [f32],
    /// By query.
    pub rows: Rows,
    /// Elements between successive keys.
    pub key: usize,
}

/// The operands of [`attention_tile`].
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Queries: `positions x group` rows of `width`.
    pub q: &'a [f32],
    /// Where they lie.
    pub q_rows: Rows,
    /// Query positions.
    pub positions: usize,
    /// Query heads that share the key head (1 without grouping).
    pub group: usize,
    /// Keys: row s starts at `s * k_stride`.
    pub k: &'a [f32],
    /// Elements between successive keys.
    pub k_stride: usize,
    /// Values, likewise.
    pub v: &'a [f32],
    /// Elements between successive values.
    pub v_stride: usize,
    /// Number of keys.
    pub keys: usize,
    /// Elements of a query and a key.
    pub width: usize,
    /// Elements of a value and a result.
    pub v_width: usize,
    /// What scores are multiplied with, usually 1 / sqrt(width).
    pub scale: f32,
    /// c > 0: scores become c tanh(score / c). 0: none.
    pub softcap: f32,
    /// `Some(p)`: position t sees keys s <= p + t only. `None`: all.
    pub causal: Option<usize>,
    /// w > 0, with `causal`: only keys s > p + t - w. 0: no limit.
    pub window: usize,
    /// Added after the cap.
    pub mask: Option<Mask<'a>>,
}

#[derive(Default)]
struct Scratch {
    /// A block of keys, `width x BLOCK`.
    keys: Vec<f32>,
    /// Running maximum and sum of each row.
    state: Vec<(f32, f32)>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Attention<'_> {
    /// The keys that position t sees.
    #[inline(always)]
    fn visible(&self, t: usize) -> (usize, usize) {
        match self.causal {
            None => (0, self.keys),
            Some(position) => {
                let end = position.saturating_add(t).saturating_add(1);
                let start = if self.window > 0 { end.saturating_sub(self.window) } else { 0 };
                (start.min(self.keys), end.min(self.keys))
            }
        }
    }
}

fn end_of(counts: &[(usize, usize)], width: usize) -> Option<usize> {
    if counts.iter().any(|&(count, _)| count == 0) {
        return Some(0);
    }
    counts.iter().try_fold(width, |end, &(count, stride)| (count - 1).checked_mul(stride)?.checked_add(end))
}

fn check(a: &Attention<'_>, out: &[f32], out_rows: Rows) -> Result<()> {
    let rows = |rows: Rows| [(a.positions, rows.step), (a.group, rows.head)];
    let mut parts = vec![
        ("q", end_of(&rows(a.q_rows), a.width), a.q.len()),
        ("k", end_of(&[(a.keys, a.k_stride)], a.width), a.k.len()),
        ("v", end_of(&[(a.keys, a.v_stride)], a.v_width), a.v.len()),
        ("out", end_of(&rows(out_rows), a.v_width), out.len()),
    ];
    if let Some(mask) = a.mask {
        let [step, head] = rows(mask.rows);
        parts.push(("mask", end_of(&[step, head, (a.keys, mask.key)], 1), mask.data.len()));
    }
    for (name, end, len) in parts {
        if end.is_none_or(|end| end > len) {
            let message = format!(
                "{name} has {len} elements, too few for {} positions, {} heads, {} keys, width {} and {}",
                a.positions, a.group, a.keys, a.width, a.v_width
            );
            return Err(Error::op("attention", message));
        }
    }
    Ok(())
}

/// `out` row (t, g) = sum over keys s of softmax_s(scale q . k_s ...) v_s. A query that sees no key gives zeros.
///
/// Rows of `out` must not overlap (rows that do are overwritten in turn).
///
/// # Errors
/// A slice is shorter than its sizes and strides say.
pub fn attention_tile(isa: Isa, a: &Attention<'_>, out: &mut [f32], out_rows: Rows) -> Result<()> {
    check(a, out, out_rows)?;
    if a.group > 0 {
        SCRATCH.with_borrow_mut(|scratch| attention(isa, a, out, out_rows, scratch));
    }
    Ok(())
}

multiversion! {
    fn attention(a: &Attention<'_>, out: &mut [f32], out_rows: Rows, scratch: &mut Scratch) = attention_body;
}

#[inline(always)]
fn attention_body<const FMA: bool>(a: &Attention<'_>, out: &mut [f32], out_rows: Rows, scratch: &mut Scratch) {
    let count = a.positions * a.group;
    scratch.state.clear();
    scratch.state.resize(count, (f32::NEG_INFINITY, 0.0));
    for r in 0..count {
        let at = r / a.group * out_rows.step + r % a.group * out_rows.head;
        out[at..at + a.v_width].fill(0.0);
    }
    let transpose = count >= TRANSPOSE;
    if transpose {
        scratch.keys.resize(a.width * BLOCK, 0.0);
    }
    // Positions are in order, so the first sees the earliest keys and the last the latest.
    let (first, last) = match a.positions {
        0 => return,
        n => (a.visible(0).0, a.visible(n - 1).1),
    };
    let mut start = first / BLOCK * BLOCK;
    while start < last {
        let keys = (a.keys - start).min(BLOCK);
        if transpose {
            for s in 0..keys {
                let row = &a.k[(start + s) * a.k_stride..][..a.width];
                for (to, from) in scratch.keys.iter_mut().skip(s).step_by(BLOCK).zip(row) {
                    *to = *from;
                }
            }
        }
        let mut r = 0;
        while count - r >= ROWS {
            block::<FMA, ROWS>(a, out, out_rows, scratch, transpose, r, start, keys);
            r += ROWS;
        }
        while r < count {
            block::<FMA, 1>(a, out, out_rows, scratch, transpose, r, start, keys);
            r += 1;
        }
        start += BLOCK;
    }
    for r in 0..count {
        let at = r / a.group * out_rows.step + r % a.group * out_rows.head;
        let sum = scratch.state[r].1;
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
    scratch: &mut Scratch,
    transposed: bool,
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
    if transposed {
        scores_transposed::<FMA, R>(&q, &scratch.keys, &mut p, keys);
    } else {
        let k = &a.k[start * a.k_stride..];
        for i in 0..R {
            scores::<FMA>(q[i], k, a.k_stride, keys, &mut p[i]);
        }
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
        let (old, sum) = scratch.state[first + i];
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
        scratch.state[first + i] = (top, fma::<FMA>(sum, shrink, sum_lanes(&total)));
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

/// The same for `LANES` keys at a time. Columns past `keys` hold old numbers, and are hidden by the caller.
#[inline(always)]
fn scores_transposed<const FMA: bool, const R: usize>(
    q: &[&[f32]; R],
    keys_by_width: &[f32],
    p: &mut [[f32; BLOCK]; R],
    keys: usize,
) {
    let rows = keys_by_width.as_chunks::<BLOCK>().0;
    for at in (0..keys).step_by(LANES) {
        let mut acc = [[0f32; LANES]; R];
        for (d, row) in rows.iter().enumerate() {
            for i in 0..R {
                // SAFETY: `q[i]` and the transposed keys both have `width` rows.
                let q = unsafe { *q[i].get_unchecked(d) };
                for l in 0..LANES {
                    acc[i][l] = fma::<FMA>(q, row[at + l], acc[i][l]);
                }
            }
        }
        for i in 0..R {
            p[i][at..at + LANES].copy_from_slice(&acc[i]);
        }
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

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
