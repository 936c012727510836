//! The inner loops of a convolution over vectors: copying patches into panels, and sums of a depthwise filter.

use super::planes::Row;
use crate::gemm::{MAX_LANES, Simd, vectorised};

/// Elements of a panel's row that follow one another in the input too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Where in the row.
    pub to: usize,
    /// Where in the source.
    pub from: i64,
    pub len: usize,
}

/// Rows of a panel that are made of the same pieces: one for each channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    pub count: usize,
    /// From one row to the next: in the source, in the panel.
    pub by_source: i64,
    pub by_panel: usize,
    /// From one element of a piece to the next, in the source.
    pub every: i64,
    /// Elements that are cleared first, in whole vectors.
    pub clear: usize,
    pub pieces: &'a [Piece],
}

vectorised! {
    /// Copies rows of a panel.
    ///
    /// # Safety
    /// The pieces of every row lie in the source's memory; the rows are memory of their own, whole vectors of it where they
    /// are cleared. Both are of f32, of f64 where `wide`.
    pub(super) unsafe fn copy_rows(from: *const u8, to: *mut u8, rows: &Rows<'_>) = copy_rows_body;
    /// Fills a panel whose columns are runs in the source: column c's part of run (offset, length) is at `from + columns[c] +
    /// offset`; the runs follow one another along the depth. The panel's rows are `step` apart, whole vectors.
    ///
    /// # Safety
    /// As [`copy_rows`]; there are at most `step` columns.
    pub(super) unsafe fn turn_columns(
        from: *const u8, columns: &[i64], runs: &[(i64, usize)], step: usize, to: *mut u8,
    ) = turn_columns_body;
    /// Brings rows of an input to their places: for each, where it begins in the input, and where its lanes do.
    ///
    /// # Safety
    /// As [`Row::fill`], for each row.
    pub(super) unsafe fn fill_rows(from: *const u8, to: *mut u8, rows: &[(i64, usize)], row: Row) = fill_rows_body;
    /// Copies rows of `len` elements, from their places, to follow one another.
    ///
    /// # Safety
    /// The rows lie in the source's memory; `to` has room for them, apart from it.
    pub(super) unsafe fn gather_rows(from: *const u8, to: *mut u8, places: &[usize], len: usize) = gather_rows_body;
    /// `out[j] = sum over taps of weight * from[offset + j]` for j below `n`. Not for `wide` elements.
    ///
    /// # Safety
    /// `from` goes on for a vector past what is needed; there are as many weights as taps; `out` has room for `n`.
    pub(super) unsafe fn sum_taps(
        from: *const u8, taps: &[(usize, i64)], weights: &[f32], out: *mut u8, n: usize,
    ) = sum_taps_body;
}

/// # Safety
/// As [`copy_rows`].
#[inline(always)]
unsafe fn copy_rows_body<S: Simd>(from: *const u8, to: *mut u8, rows: &Rows<'_>) {
    let (from, to) = (from.cast::<S::T>(), to.cast::<S::T>());
    // SAFETY: the caller's, for all that follows.
    unsafe {
        if let ([Piece { to: 0, from: offset, len }], 1, 0) = (rows.pieces, rows.every, rows.clear) {
            for i in 0..rows.count {
                let source = from.wrapping_offset(i as isize * rows.by_source as isize + *offset as isize);
                // The rows lie far apart, so the processor does not see that the next panel goes on where this one ends.
                S::prefetch(source.wrapping_add(2 * len));
                copy::<S>(source, to.add(i * rows.by_panel), *len);
            }
            return;
        }
        for i in 0..rows.count {
            let source = from.wrapping_offset(i as isize * rows.by_source as isize);
            let row = to.add(i * rows.by_panel);
            let mut at = 0;
            while at < rows.clear {
                S::store(row.add(at), S::zero());
                at += S::LANES;
            }
            for piece in rows.pieces {
                let source = source.wrapping_offset(piece.from as isize);
                let row = row.add(piece.to);
                if rows.every == 1 {
                    copy::<S>(source, row, piece.len);
                } else {
                    for j in 0..piece.len {
                        row.add(j).write(source.wrapping_offset(j as isize * rows.every as isize).read());
                    }
                }
            }
        }
    }
}

/// # Safety
/// Both hold `len` elements, and do not overlap.
#[inline(always)]
unsafe fn copy<S: Simd>(from: *const S::T, to: *mut S::T, len: usize) {
    let n = S::LANES;
    // SAFETY: the caller's; the last vector overlaps the one before it.
    unsafe {
        if len >= n {
            let mut at = 0;
            while at + n <= len {
                S::store(to.add(at), S::load(from.add(at)));
                at += n;
            }
            if at < len {
                S::store(to.add(len - n), S::load(from.add(len - n)));
            }
        } else if len >= 8 {
            part::<S, 8>(from, to, len);
        } else if len >= 4 {
            part::<S, 4>(from, to, len);
        } else {
            for i in 0..len {
                to.add(i).write(from.add(i).read());
            }
        }
    }
}

/// Two overlapping pieces of `N` elements, of which `len` are at least one and at most two: stores by masks are slow.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn part<S: Simd, const N: usize>(from: *const S::T, to: *mut S::T, len: usize) {
    // SAFETY: the caller's.
    unsafe {
        let first = from.cast::<[S::T; N]>().read_unaligned();
        let last = from.add(len - N).cast::<[S::T; N]>().read_unaligned();
        to.cast::<[S::T; N]>().write_unaligned(first);
        to.add(len - N).cast::<[S::T; N]>().write_unaligned(last);
    }
}

/// # Safety
/// As [`turn_columns`].
#[inline(always)]
unsafe fn turn_columns_body<S: Simd>(
    from: *const u8,
    columns: &[i64],
    runs: &[(i64, usize)],
    step: usize,
    to: *mut u8,
) {
    let n = S::LANES;
    let (from, mut to) = (from.cast::<S::T>(), to.cast::<S::T>());
    // SAFETY: the caller's, for all that follows.
    unsafe {
        for &(offset, len) in runs {
            let mut k = 0;
            while k < len {
                let steps = n.min(len - k);
                let from = from.wrapping_offset(offset as isize + k as isize);
                for (c, columns) in columns.chunks(n).enumerate() {
                    let mut block = [S::zero(); MAX_LANES];
                    for (v, &column) in block.iter_mut().zip(columns) {
                        let at = from.wrapping_offset(column as isize);
                        *v = if steps == n { S::load(at) } else { S::load_some(at, steps) };
                    }
                    S::transpose(&mut block[..n]);
                    for (i, v) in block.iter().enumerate().take(steps) {
                        S::store(to.add((k + i) * step + c * n), *v);
                    }
                }
                k += n;
            }
            to = to.add(len * step);
        }
    }
}

/// # Safety
/// As [`fill_rows`].
#[inline(always)]
unsafe fn fill_rows_body<S: Simd>(from: *const u8, to: *mut u8, rows: &[(i64, usize)], row: Row) {
    let (from, to) = (from.cast::<S::T>(), to.cast::<S::T>());
    for &(source, place) in rows {
        // SAFETY: the caller's.
        unsafe { row.fill(from.wrapping_offset(source as isize), to.add(place)) };
    }
}

/// # Safety
/// As [`gather_rows`].
#[inline(always)]
unsafe fn gather_rows_body<S: Simd>(from: *const u8, to: *mut u8, places: &[usize], len: usize) {
    let (from, to) = (from.cast::<S::T>(), to.cast::<S::T>());
    for (i, &place) in places.iter().enumerate() {
        // SAFETY: the caller's.
        unsafe { copy::<S>(from.add(place), to.add(i * len), len) };
    }
}

/// A sample's part of a row of a panel, where the positions lie in memory as the output's do.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// Where column 0 of the panel would read, if it were this sample's.
    pub from: i64,
    /// Which columns read an element: the others are another sample's, or padding.
    pub mask: u32,
}

/// As [`Rows`], of segments: whole vectors are read, without what the masks leave out.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(super) struct Masked<'a> {
    pub count: usize,
    pub by_source: i64,
    pub by_panel: usize,
    /// Vectors of a row.
    pub vectors: usize,
    pub segments: &'a [Segment],
}

/// Copies rows of a panel of at most 32 columns.
///
/// # Safety
/// The processor has AVX-512. The elements that the masks tell lie in the source's memory; the rows are memory of their own.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn copy_masked(from: *const f32, to: *mut f32, rows: &Masked<'_>) {
    use std::arch::x86_64::{_mm512_mask_loadu_ps, _mm512_maskz_loadu_ps, _mm512_setzero_ps, _mm512_storeu_ps};
    let Masked { count, by_source, by_panel, vectors, segments } = *rows;
    // SAFETY: the caller's; what is masked out is not touched.
    unsafe {
        if let ([segment], 2) = (segments, vectors) {
            let (low, high) = (segment.mask as u16, (segment.mask >> 16) as u16);
            for i in 0..count {
                let source = from.wrapping_offset((segment.from + i as i64 * by_source) as isize);
                let row = to.add(i * by_panel);
                let (x, y) = (_mm512_maskz_loadu_ps(low, source), _mm512_maskz_loadu_ps(high, source.wrapping_add(16)));
                _mm512_storeu_ps(row, x);
                _mm512_storeu_ps(row.add(16), y);
            }
            return;
        }
        for i in 0..count {
            let source = from.wrapping_offset((i as i64 * by_source) as isize);
            let row = to.add(i * by_panel);
            for v in 0..vectors {
                let mut x = _mm512_setzero_ps();
                for segment in segments {
                    let at = source.wrapping_offset(segment.from as isize + 16 * v as isize);
                    x = _mm512_mask_loadu_ps(x, (segment.mask >> (16 * v)) as u16, at);
                }
                _mm512_storeu_ps(row.add(16 * v), x);
            }
        }
    }
}

/// # Safety
/// As [`sum_taps`].
#[inline(always)]
unsafe fn sum_taps_body<S: Simd>(from: *const u8, taps: &[(usize, i64)], weights: &[f32], out: *mut u8, n: usize) {
    let (mut from, mut out) = (from.cast::<S::T>(), out.cast::<S::T>());
    let weights = weights.as_ptr().cast::<S::T>();
    let mut rest = n;
    // SAFETY: the caller's, for all that follows.
    unsafe {
        while rest > 0 {
            let count = rest.min(8 * S::LANES);
            match count.div_ceil(S::LANES) {
                8 => sum_block::<S, 8>(from, taps, weights, out, count),
                7 => sum_block::<S, 7>(from, taps, weights, out, count),
                6 => sum_block::<S, 6>(from, taps, weights, out, count),
                5 => sum_block::<S, 5>(from, taps, weights, out, count),
                4 => sum_block::<S, 4>(from, taps, weights, out, count),
                3 => sum_block::<S, 3>(from, taps, weights, out, count),
                2 => sum_block::<S, 2>(from, taps, weights, out, count),
                _ => sum_block::<S, 1>(from, taps, weights, out, count),
            }
            from = from.wrapping_add(count);
            out = out.wrapping_add(count);
            rest -= count;
        }
    }
}

/// `count` sums, in V vectors.
///
/// # Safety
/// As [`sum_taps`].
#[inline(always)]
unsafe fn sum_block<S: Simd, const V: usize>(
    from: *const S::T,
    taps: &[(usize, i64)],
    weights: *const S::T,
    out: *mut S::T,
    count: usize,
) {
    // SAFETY: the caller's, for all that follows.
    unsafe {
        let mut sums = [S::zero(); V];
        for (i, &(offset, _)) in taps.iter().enumerate() {
            let weight = S::splat(weights.add(i));
            let x = from.add(offset);
            for v in 0..V {
                sums[v] = S::fma(weight, S::load(x.add(v * S::LANES)), sums[v]);
            }
        }
        let last = count - (V - 1) * S::LANES;
        for v in 0..V {
            let at = out.add(v * S::LANES);
            if v + 1 < V || last == S::LANES { S::store(at, sums[v]) } else { S::store_some(at, sums[v], last) }
        }
    }
}
