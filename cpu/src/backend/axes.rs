//! Operands of three axes, [outer, along, inner], and ids read and checked a block at a time: what picks, scatters, sorts and
//! scans share.

use tallow_graph::{DType, Error, Result};

use super::class::{Class, Num, with_class};
use super::memory::Mem;
use super::step::FirstFault;
use super::walk::{Bound, Words, bind};

/// Most ids that are read at a time.
pub(crate) const BLOCK: usize = 256;

/// Stands for an id out of range, which was reported.
pub(crate) const OUTSIDE: usize = usize::MAX;

/// Sizes of the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axes {
    pub outer: usize,
    pub along: usize,
    pub inner: usize,
}

impl Axes {
    /// The next three words.
    pub fn take(words: &mut Words<'_>) -> Result<Self> {
        Ok(Self { outer: words.size()?, along: words.size()?, inner: words.size()? })
    }

    /// The number of elements.
    pub fn count(self) -> Result<usize> {
        let count = self.outer.checked_mul(self.along).and_then(|n| n.checked_mul(self.inner));
        count.ok_or_else(|| Error::msg(format!("{} x {} x {} elements overflow", self.outer, self.along, self.inner)))
    }

    /// Binds an operand of these axes: the next four words are its offset and strides.
    pub fn bind<'a>(self, mem: Mem, dtype: DType, words: &mut Words<'a>) -> Result<Bound<'a>> {
        bind(mem, dtype, &[self.outer as i64, self.along as i64, self.inner as i64], words.take(4)?)
    }

    /// Cuts the elements `from..to`, in row-major order, into runs along the last axis that has more than one position:
    /// calls `f(linear position, outer, along, inner, count, whether the run is along the inner axis)`, at most [`BLOCK`]
    /// elements each.
    pub fn runs(self, from: usize, to: usize, mut f: impl FnMut(usize, [usize; 3], usize, bool)) {
        let by_inner = self.inner > 1;
        let width = if by_inner { self.inner } else { self.along };
        let mut at = from;
        while at < to {
            let (row, column) = (at / width, at % width);
            let count = (width - column).min(to - at).min(BLOCK);
            let index = if by_inner { [row / self.along, row % self.along, column] } else { [row, column, 0] };
            f(at, index, count, by_inner);
            at += count;
        }
    }
}

/// The offset of a position, in elements.
pub(crate) fn offset(strides: &[i64], index: [usize; 3]) -> isize {
    (index[0] as i64 * strides[0] + index[1] as i64 * strides[1] + index[2] as i64 * strides[2]) as isize
}

/// Reads the element at an offset. A file's bytes need not be aligned.
///
/// # Safety
/// The offset is that of a position of the nest that `bound` was bound for, of a dtype of `T`'s size.
#[inline(always)]
pub(crate) unsafe fn read<T: Copy>(bound: &Bound<'_>, offset: isize) -> T {
    // SAFETY: the caller's; `bind` checked all positions.
    unsafe { bound.at().cast::<T>().wrapping_offset(offset).read_unaligned() }
}

/// Ids, with what to do about those that are out of range.
pub(crate) struct Ids<'a> {
    pub bound: Bound<'a>,
    pub dtype: DType,
    /// Ids below this are in range.
    pub rows: usize,
    pub fault: &'a FirstFault,
    /// The operation, for the message.
    pub op: &'static str,
}

impl Ids<'_> {
    /// Reads the ids from `index` on along an axis into `out`, and says whether all are in range; [`OUTSIDE`] stands for
    /// those that are not.
    ///
    /// # Safety
    /// All of them are inside the nest that `bound` was bound for.
    pub unsafe fn read(&self, index: [usize; 3], axis: usize, out: &mut [usize]) -> bool {
        let (first, stride) = (offset(self.bound.strides, index), self.bound.strides[axis] as isize);
        with_class!(Class::of(self.dtype), T => {
            // SAFETY: the caller's.
            let wide = |i: usize| unsafe { read::<T>(&self.bound, first + i as isize * stride) }.to_i128();
            // Without a branch first: negative ones are large as unsigned numbers.
            let mut inside = true;
            for (i, out) in out.iter_mut().enumerate() {
                let id = wide(i) as u64;
                inside &= id < self.rows as u64;
                *out = id as usize;
            }
            if !inside {
                for (i, out) in out.iter_mut().enumerate() {
                    let wide = wide(i);
                    if wide as u64 >= self.rows as u64 {
                        *out = OUTSIDE;
                        if !self.dtype.is_hole(wide) {
                            self.fault.set(self.op, || format!("index {wide} is outside 0..{}", self.rows));
                        }
                    }
                }
            }
            inside
        })
    }
}
