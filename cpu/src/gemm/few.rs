//! Products of a few rows: each element of the right operand is read once, as it lies, and never packed.
//!
//! Memory sets the pace here. Stored by columns (`[n, k]`), a column is a dot product, and some columns go side by side, so
//! that several streams of memory are read. Stored by rows (`[k, n]`), some rows at a time are added into the sums, which
//! stay in the first cache.

use super::simd::{Simd, Source};

/// Most rows of the left operand.
pub(crate) const FEW: usize = 4;

/// A few rows of a left operand, and where their results go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Few<T> {
    pub depth: usize,
    /// Columns of the right operand.
    pub cols: usize,
    /// The left operand: elements between its rows, and between the steps of its depth.
    pub left: *const T,
    pub row: isize,
    pub along: isize,
    /// The right operand's first element.
    pub right: *const u8,
    /// Elements between its columns, or between its rows: the other distance is 1.
    pub step: isize,
    pub out: *mut T,
    /// Elements between the rows of the output.
    pub stride: usize,
}

/// `R` rows by a right operand whose columns lie in one piece; the left operand's rows do too (`along` is 1).
///
/// # Safety
/// The processor has `S`; the operands are readable, and the output is the caller's own.
#[inline(always)]
pub(super) unsafe fn by_columns<S: Simd, F: Source<S>, const R: usize>(few: Few<S::T>) {
    // SAFETY: the caller's.
    unsafe {
        let mut j = 0;
        // As many sums as the registers hold, and streams of memory enough. (Asking for memory ahead of time only slows what
        // the processor foresees.)
        if R == 1 && S::MANY {
            while j + 8 <= few.cols {
                columns::<S, F, R, 8>(&few, j);
                j += 8;
            }
        }
        if R == 1 || S::MANY {
            while j + 4 <= few.cols {
                columns::<S, F, R, 4>(&few, j);
                j += 4;
            }
        }
        while j + 2 <= few.cols {
            columns::<S, F, R, 2>(&few, j);
            j += 2;
        }
        if j < few.cols {
            columns::<S, F, R, 1>(&few, j);
        }
    }
}

/// Columns `j..j + C`. A column's sums do not depend on C.
///
/// # Safety
/// As [`by_columns`].
#[inline(always)]
unsafe fn columns<S: Simd, F: Source<S>, const R: usize, const C: usize>(few: &Few<S::T>, j: usize) {
    let n = S::LANES;
    // SAFETY: the caller's.
    unsafe {
        let right = few.right.cast::<F>();
        let mut at = [right; C];
        for c in 0..C {
            at[c] = right.wrapping_offset((j + c) as isize * few.step);
        }
        let mut acc = [[S::zero(); C]; R];
        let mut l = 0;
        while l + n <= few.depth {
            let mut w = [S::zero(); C];
            for c in 0..C {
                w[c] = F::load(at[c].add(l));
            }
            for r in 0..R {
                let x = S::load(few.left.offset(r as isize * few.row).add(l));
                for c in 0..C {
                    acc[r][c] = S::fma(x, w[c], acc[r][c]);
                }
            }
            l += n;
        }
        if l < few.depth {
            let rest = few.depth - l;
            for r in 0..R {
                let x = S::load_some(few.left.offset(r as isize * few.row).add(l), rest);
                for c in 0..C {
                    acc[r][c] = S::fma(x, F::load_some(at[c].add(l), rest), acc[r][c]);
                }
            }
        }
        for r in 0..R {
            for c in 0..C {
                few.out.add(r * few.stride + j + c).write(S::sum(acc[r][c]));
            }
        }
    }
}

/// `R` rows by a right operand whose rows lie in one piece.
///
/// # Safety
/// As [`by_columns`].
#[inline(always)]
pub(super) unsafe fn by_rows<S: Simd, F: Source<S>, const R: usize>(few: Few<S::T>) {
    // SAFETY: the caller's.
    unsafe {
        let mut l = 0;
        // As many elements of the left operand as the registers hold, but no more rows than the first cache has ways: where
        // rows are a power of two apart, all fall into one set.
        let together = (if S::MANY { 16 } else { 8 } / R.next_power_of_two()).min(8);
        if together >= 8 {
            while l + 8 <= few.depth {
                rows::<S, F, R, 8>(&few, l);
                l += 8;
            }
        }
        if together >= 4 {
            while l + 4 <= few.depth {
                rows::<S, F, R, 4>(&few, l);
                l += 4;
            }
        }
        while l + 2 <= few.depth {
            rows::<S, F, R, 2>(&few, l);
            l += 2;
        }
        while l < few.depth {
            rows::<S, F, R, 1>(&few, l);
            l += 1;
        }
    }
}

/// Adds `D` rows of the right operand into the sums; the first rows make them.
///
/// # Safety
/// As [`by_columns`].
#[inline(always)]
unsafe fn rows<S: Simd, F: Source<S>, const R: usize, const D: usize>(few: &Few<S::T>, l: usize) {
    let n = S::LANES;
    // SAFETY: the caller's.
    unsafe {
        let mut x = [[S::zero(); D]; R];
        for r in 0..R {
            for d in 0..D {
                x[r][d] = S::splat(few.left.offset(r as isize * few.row + (l + d) as isize * few.along));
            }
        }
        let right = few.right.cast::<F>().wrapping_offset(l as isize * few.step);
        let mut j = 0;
        while j + n <= few.cols {
            let mut y = [S::zero(); R];
            for r in 0..R {
                if l > 0 {
                    y[r] = S::load(few.out.add(r * few.stride + j));
                }
            }
            for d in 0..D {
                let w = F::load(right.offset(d as isize * few.step).add(j));
                for r in 0..R {
                    y[r] = S::fma(x[r][d], w, y[r]);
                }
            }
            for r in 0..R {
                S::store(few.out.add(r * few.stride + j), y[r]);
            }
            j += n;
        }
        if j < few.cols {
            let rest = few.cols - j;
            for r in 0..R {
                let out = few.out.add(r * few.stride + j);
                let mut y = if l > 0 { S::load_some(out, rest) } else { S::zero() };
                for d in 0..D {
                    y = S::fma(x[r][d], F::load_some(right.offset(d as isize * few.step).add(j), rest), y);
                }
                S::store_some(out, y, rest);
            }
        }
    }
}
