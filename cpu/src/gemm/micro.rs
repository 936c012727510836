//! The micro-kernel: `R` rows by `V` vectors of columns, summed in registers over the depth.
//!
//! A panel of the left operand holds, for each step of the depth, one element a row; a panel of the right operand one
//! element a column. So a step loads V vectors, and spreads R elements that are each multiplied with all of them: R * V
//! independent sums, enough to hide the latency of the multiply-add, and few loads beside them.

use super::simd::Simd;

/// Steps of the depth by which the right operand is asked for ahead of time.
const AHEAD: usize = 8;
/// Bytes that are asked for at a time.
const LINE: usize = 64;

/// `c[i, j] (+)= sum over l < depth of a[l, i] * b[l, j]` for `R` rows and `cols` columns.
///
/// # Safety
/// The processor has `S`. `a` holds `depth` steps of `A` elements, of which `R` are read; `b` `depth` steps of `B`
/// elements, of which `V` vectors are read. `c` has `R` rows of `cols` elements, `stride` apart, that nobody else uses;
/// `cols` is above V - 1 vectors and at most V.
#[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
#[inline(always)]
pub(super) unsafe fn micro<S: Simd, const A: usize, const B: usize, const R: usize, const V: usize>(
    depth: usize,
    a: *const S::T,
    b: *const S::T,
    c: *mut S::T,
    stride: usize,
    cols: usize,
    add: bool,
) {
    // SAFETY: the caller's, for all that follows.
    unsafe {
        for r in 0..R {
            let row = c.wrapping_add(r * stride);
            S::prefetch(row);
            S::prefetch(row.wrapping_add(cols - 1));
        }
        let mut acc = [[S::zero(); V]; R];
        let (mut a, mut b) = (a, b);
        let mut left = depth;
        while left >= 4 {
            for _ in 0..4 {
                step::<S, B, R, V>(&mut acc, a, b);
                a = a.add(A);
                b = b.add(B);
            }
            left -= 4;
        }
        while left > 0 {
            step::<S, B, R, V>(&mut acc, a, b);
            a = a.add(A);
            b = b.add(B);
            left -= 1;
        }
        let last = cols - (V - 1) * S::LANES;
        for (r, sums) in acc.iter().enumerate() {
            let row = c.add(r * stride);
            for (v, sum) in sums.iter().enumerate() {
                let at = row.add(v * S::LANES);
                if v + 1 < V || last == S::LANES {
                    S::store(at, if add { S::add(S::load(at), *sum) } else { *sum });
                } else {
                    S::store_some(at, if add { S::add(S::load_some(at, last), *sum) } else { *sum }, last);
                }
            }
        }
    }
}

/// One step of the depth.
///
/// # Safety
/// As [`micro`].
#[inline(always)]
unsafe fn step<S: Simd, const B: usize, const R: usize, const V: usize>(
    acc: &mut [[S::V; V]; R],
    a: *const S::T,
    b: *const S::T,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut y = [S::zero(); V];
        for v in 0..V {
            // The right operand's panel streams from the second cache.
            if (v * S::LANES * size_of::<S::T>()).is_multiple_of(LINE) {
                S::prefetch(b.wrapping_add(AHEAD * B + v * S::LANES));
            }
            y[v] = S::load(b.add(v * S::LANES));
        }
        for r in 0..R {
            let x = S::splat(a.add(r));
            for v in 0..V {
                acc[r][v] = S::fma(x, y[v], acc[r][v]);
            }
        }
    }
}

/// As [`micro`], of a left operand that was not packed: element `i` of step `l` lies at `a + offsets[l] + i`. `c` has whole
/// vectors of columns.
///
/// # Safety
/// The processor has `S`. There are `depth` offsets, and `R` elements to read at each; `b` and `c` are as in [`micro`].
#[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
#[inline(always)]
pub(super) unsafe fn direct<S: Simd, const B: usize, const R: usize, const V: usize>(
    depth: usize,
    a: *const S::T,
    offsets: *const isize,
    b: *const S::T,
    c: *mut S::T,
    stride: usize,
    add: bool,
) {
    // SAFETY: the caller's, for all that follows.
    unsafe {
        let mut acc = [[S::zero(); V]; R];
        let (mut b, mut l) = (b, 0);
        while l + 4 <= depth {
            for i in 0..4 {
                step::<S, B, R, V>(&mut acc, a.offset(offsets.add(l + i).read()), b);
                b = b.add(B);
            }
            l += 4;
        }
        while l < depth {
            step::<S, B, R, V>(&mut acc, a.offset(offsets.add(l).read()), b);
            b = b.add(B);
            l += 1;
        }
        for (r, sums) in acc.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                let at = c.add(r * stride + v * S::LANES);
                S::store(at, if add { S::add(S::load(at), *sum) } else { *sum });
            }
        }
    }
}
