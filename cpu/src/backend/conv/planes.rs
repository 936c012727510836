//! The input as the products read it: planes with their padding, in which neighbours along the packed direction lie side by
//! side. A plane whose rows are read with a step is stored by remainders of the step, so that every read is a run.

use super::geometry::{Geometry, Phase};

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
        let mut axes = geometry.axes.iter().zip(self.origin.iter().zip(&self.length));
        axes.all(|(axis, (&origin, &length))| origin >= 0 && origin + length as i64 <= axis.size)
    }

    /// Fills a plane from the input's plane at `from`, with these strides; zeros where the input has nothing.
    ///
    /// # Safety
    /// `from` has the geometry's sizes under the strides; `to` has room for the plane, which nobody else uses.
    pub unsafe fn fill<T: Copy + Default>(&self, geometry: &Geometry, from: *const T, strides: [i64; 3], to: *mut T) {
        let sizes = geometry.axes.map(|axis| axis.size);
        let row = self.row();
        for q0 in 0..self.length[0] {
            for q1 in 0..self.length[1] {
                // SAFETY: a row of the plane.
                let to = unsafe { std::slice::from_raw_parts_mut(to.add((q0 * self.length[1] + q1) * row), row) };
                let (x0, x1) = (q0 as i64 + self.origin[0], q1 as i64 + self.origin[1]);
                if !(0..sizes[0]).contains(&x0) || !(0..sizes[1]).contains(&x1) {
                    to.fill(T::default());
                    continue;
                }
                let from = from.wrapping_offset((x0 * strides[0] + x1 * strides[1]) as isize);
                // Positions begin..end of the row lie inside the input.
                let begin = (-self.origin[2]).clamp(0, self.length[2] as i64) as usize;
                let end = (sizes[2] - self.origin[2]).clamp(begin as i64, self.length[2] as i64) as usize;
                let x = |q: usize| from.wrapping_offset(((q as i64 + self.origin[2]) * strides[2]) as isize);
                if self.split == 1 && strides[2] == 1 {
                    to[..begin].fill(T::default());
                    to[end..].fill(T::default());
                    if begin < end {
                        // SAFETY: both hold the elements; the plane is memory of its own.
                        unsafe { std::ptr::copy_nonoverlapping(x(begin), to[begin..].as_mut_ptr(), end - begin) };
                    }
                    continue;
                }
                for (r, lane) in to.chunks_exact_mut(self.lane.max(1)).enumerate() {
                    for (i, to) in lane.iter_mut().enumerate() {
                        let q = i * self.split + r;
                        // SAFETY: inside the input.
                        *to = if (begin..end).contains(&q) { unsafe { x(q).read() } } else { T::default() };
                    }
                }
            }
        }
    }
}

/// Planes in memory: of the frame's making, or the input itself.
#[derive(Clone, Copy)]
pub(super) struct Planes<T> {
    /// The element at the frame's origin of the first plane.
    pub at: *const T,
    /// Strides of sample, group and channel.
    pub strides: [i64; 3],
    /// Strides of the first two spatial axes; the last one's is 1, within a lane.
    pub rows: [i64; 2],
    pub origin: [i64; 3],
    pub split: usize,
    pub lane: usize,
}

// SAFETY: memory that is only read while tiles are computed.
unsafe impl<T> Sync for Planes<T> {}

impl<T> Planes<T> {
    /// Where position `q` of a row lies, counted from the frame's origin.
    pub fn last(&self, q: i64) -> i64 {
        let q = q as usize;
        ((q % self.split) * self.lane + q / self.split) as i64
    }

    /// An element's address, `offset` elements from the first.
    pub fn at(&self, offset: i64) -> *const T {
        self.at.wrapping_offset(offset as isize)
    }
}
