//! Packing: a strip of an operand, brought into the order in which the micro-kernel reads it.
//!
//! A panel holds, for each step of the depth, the strip's `width` elements, `step` places from one to the next. Half
//! types become f32 on the way. What lies between `width` and `step` is never part of a result.

use super::simd::{MAX_LANES, Simd, Source};

/// Packs `depth` steps of `width` elements: element (l, w) lies at `from + l * by_depth + w * by_width`.
///
/// # Safety
/// The processor has `S`; the elements are readable; `to` has room for `depth * step` elements that nobody else uses;
/// `width` is at most `step`, a multiple of the vectors' length.
#[allow(clippy::too_many_arguments, reason = "a strip of a matrix")]
#[inline(always)]
pub(super) unsafe fn pack<S: Simd, F: Source<S>>(
    depth: usize,
    width: usize,
    step: usize,
    from: *const u8,
    by_depth: isize,
    by_width: isize,
    to: *mut S::T,
) {
    let from = from.cast::<F>();
    // SAFETY: the caller's.
    unsafe {
        if by_width == 1 {
            along::<S, F>(depth, width, step, from, by_depth, to);
        } else if by_depth == 1 {
            across::<S, F>(depth, width, step, from, by_width, to);
        } else {
            for l in 0..depth {
                for w in 0..width {
                    let at = from.wrapping_offset(l as isize * by_depth + w as isize * by_width);
                    to.add(l * step + w).write(at.read_unaligned().get());
                }
            }
        }
    }
}

/// Steps that lie in runs of `width`.
#[inline(always)]
unsafe fn along<S: Simd, F: Source<S>>(
    depth: usize,
    width: usize,
    step: usize,
    from: *const F,
    by_depth: isize,
    to: *mut S::T,
) {
    let n = S::LANES;
    // SAFETY: the caller's.
    unsafe {
        if width == 2 * n {
            for l in 0..depth {
                let at = from.wrapping_offset(l as isize * by_depth);
                let out = to.add(l * step);
                let (x, y) = (F::load(at), F::load(at.add(n)));
                S::store(out, x);
                S::store(out.add(n), y);
            }
            return;
        }
        for l in 0..depth {
            let at = from.wrapping_offset(l as isize * by_depth);
            let out = to.add(l * step);
            let mut done = 0;
            while done + n <= width {
                S::store(out.add(done), F::load(at.add(done)));
                done += n;
            }
            if done < width {
                S::store(out.add(done), F::load_some(at.add(done), width - done));
            }
        }
    }
}

/// Steps whose elements lie apart, each the next in its own run: blocks are transposed.
#[inline(always)]
unsafe fn across<S: Simd, F: Source<S>>(
    depth: usize,
    width: usize,
    step: usize,
    from: *const F,
    by_width: isize,
    to: *mut S::T,
) {
    let n = S::LANES;
    // SAFETY: the caller's.
    unsafe {
        let mut w = 0;
        while w < width {
            let rows = n.min(width - w);
            // Rows that are not there are read as the last one: what stands in their places is never part of a result.
            let at: [*const F; MAX_LANES] =
                std::array::from_fn(|i| from.wrapping_offset((w + i.min(rows - 1)) as isize * by_width));
            let to = to.add(w);
            let mut block = [S::zero(); MAX_LANES];
            let mut l = 0;
            while l + n <= depth {
                for i in 0..n {
                    // Many rows are read side by side, more than the processor follows by itself.
                    S::prefetch(at[i].wrapping_add(l + 4 * n).cast());
                    block[i] = F::load(at[i].add(l));
                }
                S::transpose(&mut block[..n]);
                for i in 0..n {
                    S::store(to.add((l + i) * step), block[i]);
                }
                l += n;
            }
            if l < depth {
                for i in 0..n {
                    block[i] = F::load_some(at[i].add(l), depth - l);
                }
                S::transpose(&mut block[..n]);
                for (i, v) in block.iter().enumerate().take(depth - l) {
                    S::store(to.add((l + i) * step), *v);
                }
            }
            w += n;
        }
    }
}
