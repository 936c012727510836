//! The input as patches are read from it: as it lies in memory, with what is padding told by its sizes; or, where the packed
//! direction has a step or a stride, or taps run across padding, as planes with their padding, in which neighbours lie
//! side by side.

use std::ops::Range;

use smallvec::SmallVec;

use super::geometry::{Geometry, Phase};
use super::vectors::fill_rows;
use crate::Isa;
use crate::backend::class::{Class, Num};

/// Which part of the (padded) input a plane holds, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// The input position of the plane's first element on each axis; it may lie before the input.
    pub origin: [i64; 3],
    /// Positions on each axis.
    pub length: [usize; 3],
    /// Rows are stored as so many lanes: position q is element q / split of lane q % split.
    pub split: usize,
    /// Elements of a lane.
    pub lane: usize,
}

impl Frame {
    /// The part that the phases read. `None` where that is more than can be counted.
    pub fn new(geometry: &Geometry, phases: &[[Phase; 3]], split: usize) -> Option<Self> {
        let mut frame = Self { origin: [0; 3], length: [1; 3], split, lane: 1 };
        for (at, axis) in geometry.axes.iter().enumerate() {
            let (mut low, mut high) = (i64::MAX, i64::MIN);
            for phase in phases.iter().map(|phases| phases[at]).filter(|phase| phase.taps > 0) {
                low = low.min(phase.from);
                let last = (phase.count as i64 - 1) * axis.step() + (phase.taps as i64 - 1) * axis.gap();
                high = high.max(phase.from + last);
            }
            if low <= high {
                frame.origin[at] = low;
                frame.length[at] = usize::try_from(high - low + 1).ok()?;
            }
        }
        frame.lane = frame.length[2].div_ceil(split);
        frame.length[0].checked_mul(frame.length[1])?.checked_mul(frame.lane.checked_mul(split)?)?;
        Some(frame)
    }

    /// Elements of a row.
    pub fn row(&self) -> usize {
        self.lane * self.split
    }

    /// Elements of a plane.
    pub fn plane(&self) -> usize {
        self.length[0] * self.length[1] * self.row()
    }

    /// Whether all of it lies inside the input.
    pub fn is_inside(&self, geometry: &Geometry) -> bool {
        (0..3).all(|axis| self.origin[axis] >= 0 && self.inside(geometry, axis).len() == self.length[axis])
    }

    /// The positions of an axis that lie inside the input.
    pub fn inside(&self, geometry: &Geometry, axis: usize) -> Range<usize> {
        let (origin, length) = (self.origin[axis], self.length[axis] as i64);
        let first = (-origin).clamp(0, length);
        first as usize..(geometry.axes[axis].size - origin).clamp(first, length) as usize
    }

    /// Fills a plane, whose rows and planes of rows are `apart`, from the input's plane at `from`, with these strides; zeros
    /// where the input has nothing.
    ///
    /// # Safety
    /// `from` has the geometry's sizes under the strides; `to` has room for the rows, which nobody else uses.
    pub unsafe fn fill<T: Num>(
        &self,
        isa: Isa,
        geometry: &Geometry,
        (from, strides): (*const T, [i64; 3]),
        (to, apart): (*mut T, [usize; 2]),
    ) {
        let columns = self.inside(geometry, 2);
        let row = Row {
            split: self.split,
            lane: self.lane,
            first: columns.start,
            count: columns.len(),
            stride: strides[2] as isize,
        };
        // What the input has not, in a row that is inside.
        let outside: SmallVec<[Range<usize>; 8]> = (0..self.split)
            .flat_map(|lane| {
                let up = |end: usize| end.saturating_sub(lane).div_ceil(self.split);
                let at = lane * self.lane;
                [at..at + up(columns.start), at + up(columns.end)..at + self.lane]
            })
            .filter(|part| !part.is_empty())
            .collect();
        let (inside, whole) = ([0, 1].map(|axis| self.inside(geometry, axis)), 0..self.row());
        let mut rows: SmallVec<[(i64, usize); 64]> = SmallVec::new();
        for q0 in 0..self.length[0] {
            for q1 in 0..self.length[1] {
                let place = q0 * apart[0] + q1 * apart[1];
                let is_inside = inside[0].contains(&q0) && inside[1].contains(&q1) && !columns.is_empty();
                // SAFETY: the caller's; parts of a row of the plane. (Most are one element: not worth a call.)
                let clear = |part: Range<usize>| unsafe {
                    if part.len() == 1 {
                        to.add(place + part.start).write(T::default());
                        return;
                    }
                    std::slice::from_raw_parts_mut(to.add(place + part.start), part.len()).fill(T::default());
                };
                if !is_inside {
                    clear(whole.clone());
                    continue;
                }
                outside.iter().cloned().for_each(clear);
                let x = |axis: usize, q: usize| (q as i64 + self.origin[axis]) * strides[axis];
                rows.push((x(0, q0) + x(1, q1) + x(2, columns.start), place));
            }
        }
        // SAFETY: the caller's.
        unsafe { fill_rows(isa, T::CLASS == Class::F64, from.cast(), to.cast(), &rows, row) };
    }
}

/// A row of the input that is brought into lanes: element i is position `first + i`, and position q goes to element
/// q / split of lane q % split.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub split: usize,
    /// Elements from lane to lane.
    pub lane: usize,
    pub first: usize,
    pub count: usize,
    /// From element to element, in the input.
    pub stride: isize,
}

impl Row {
    /// # Safety
    /// `from` has the row's elements; their places, counted from `to`, are nobody else's.
    #[inline(always)]
    pub unsafe fn fill<T: Copy + Default>(&self, from: *const T, to: *mut T) {
        let Row { split, lane, first, count, stride } = *self;
        let mut at = 0;
        // SAFETY: the caller's, for all that follows.
        unsafe {
            if split == 1 && stride == 1 {
                copy_run(from, to.add(first), count);
                return;
            }
            if split == 2 && stride == 1 {
                if first % 2 == 1 && count > 0 {
                    to.add(lane + first / 2).write(from.read());
                    at = 1;
                }
                while at + 32 <= count {
                    apart::<T, 32, 16>(from.add(at), to.add((first + at) / 2), lane);
                    at += 32;
                }
                while at + 8 <= count {
                    apart::<T, 8, 4>(from.add(at), to.add((first + at) / 2), lane);
                    at += 8;
                }
            }
            let (mut r, mut i) = ((first + at) % split, (first + at) / split);
            while at < count {
                to.add(r * lane + i).write(from.wrapping_offset(at as isize * stride).read());
                at += 1;
                r += 1;
                if r == split {
                    (r, i) = (0, i + 1);
                }
            }
        }
    }
}

/// `N` elements, the even ones to `to`, the odd ones `lane` further.
///
/// # Safety
/// As [`Row::fill`].
#[inline(always)]
unsafe fn apart<T: Copy + Default, const N: usize, const HALF: usize>(from: *const T, to: *mut T, lane: usize) {
    let (mut even, mut odd) = ([T::default(); HALF], [T::default(); HALF]);
    // SAFETY: the caller's.
    unsafe {
        let x = from.cast::<[T; N]>().read_unaligned();
        for i in 0..HALF {
            (even[i], odd[i]) = (x[2 * i], x[2 * i + 1]);
        }
        to.cast::<[T; HALF]>().write_unaligned(even);
        to.add(lane).cast::<[T; HALF]>().write_unaligned(odd);
    }
}

/// `len` elements of two runs, by turns.
///
/// # Safety
/// Both have `len` elements; `to` has room for twice as many, apart from them.
#[inline(always)]
pub(super) unsafe fn weave<T: Copy + Default>(a: *const T, b: *const T, to: *mut T, len: usize) {
    const N: usize = 4;
    let mut at = 0;
    // SAFETY: the caller's.
    unsafe {
        while at + N <= len {
            let (x, y) = (a.add(at).cast::<[T; N]>().read_unaligned(), b.add(at).cast::<[T; N]>().read_unaligned());
            let mut both = [T::default(); 2 * N];
            for i in 0..N {
                (both[2 * i], both[2 * i + 1]) = (x[i], y[i]);
            }
            to.add(2 * at).cast::<[T; 2 * N]>().write_unaligned(both);
            at += N;
        }
        while at < len {
            to.add(2 * at).write(a.add(at).read());
            to.add(2 * at + 1).write(b.add(at).read());
            at += 1;
        }
    }
}

/// A short copy, without a call.
///
/// # Safety
/// Both hold `len` elements, and do not overlap.
#[inline(always)]
pub(super) unsafe fn copy_run<T: Copy>(from: *const T, to: *mut T, len: usize) {
    const N: usize = 8;
    // SAFETY: the caller's; the last piece overlaps the one before it.
    unsafe {
        if len < N {
            for i in 0..len {
                to.add(i).write(from.add(i).read());
            }
            return;
        }
        let mut at = 0;
        while at + N <= len {
            to.add(at).cast::<[T; N]>().write_unaligned(from.add(at).cast::<[T; N]>().read_unaligned());
            at += N;
        }
        if at < len {
            let at = len - N;
            to.add(at).cast::<[T; N]>().write_unaligned(from.add(at).cast::<[T; N]>().read_unaligned());
        }
    }
}

/// Planes in memory: of the frame's making, or the input itself.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    /// The element at the origin of the first plane.
    pub at: *const T,
    /// Strides of sample, group and channel.
    pub strides: [i64; 3],
    /// Strides of the spatial axes; the last one's within a lane.
    pub spatial: [i64; 3],
    /// The input position that `at` is.
    pub origin: [i64; 3],
    pub split: i64,
    pub lane: i64,
    /// Where what is read may lie outside: the positions that are there, from `origin` on.
    pub sizes: Option<[i64; 3]>,
}

// SAFETY: memory that is only read while tiles are computed.
unsafe impl<T> Sync for Planes<T> {}

impl<T> Planes<T> {
    /// Where position `q` of a row lies, counted from the origin.
    pub fn last(&self, q: i64) -> i64 {
        if self.split == 1 { q * self.spatial[2] } else { q % self.split * self.lane + q / self.split }
    }

    /// Where position `q` lies in its plane, counted from the origin.
    pub fn place(&self, q: [i64; 3]) -> i64 {
        q[0] * self.spatial[0] + q[1] * self.spatial[1] + self.last(q[2])
    }

    /// How far apart two elements of a row lie that are `step` positions apart: a multiple of the split.
    pub fn every(&self, step: i64) -> i64 {
        step / self.split * self.spatial[2]
    }
}
