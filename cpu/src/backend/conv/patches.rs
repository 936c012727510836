//! Panels of a convolution's operands: patches straight from the input, filters from where they lie.
//!
//! The depth of a product is channel by channel, and tap by tap inside a channel. A strip of columns (output positions) is
//! some runs along the last axis; with one tap, a run reads a run of the input, the same one in each channel. So the places
//! are found once for a strip and a tap, and serve all the channels of a block. What lies in the padding is zero.

use smallvec::SmallVec;

use super::geometry::Phase;
use super::tile::Job;
#[cfg(target_arch = "x86_64")]
use super::vectors::{Masked, Segment, copy_masked};
use super::vectors::{Piece, Rows, copy_rows, turn_columns};
use crate::backend::class::{Class, Num};
use crate::gemm::{Element, Kernel, Stored, Strip};

/// Columns that are neighbours along the last axis.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub sample: usize,
    pub position: [usize; 3],
    pub len: usize,
}

pub(super) type Runs = SmallVec<[Run; 8]>;

/// Positions of a phase.
pub(super) fn positions(phase: &[Phase; 3]) -> usize {
    phase[0].count * phase[1].count * phase[2].count
}

/// Taps of a phase.
pub(super) fn taps(phase: &[Phase; 3]) -> usize {
    phase[0].taps * phase[1].taps * phase[2].taps
}

/// The runs of columns `from..to`: positions, sample after sample.
pub(super) fn runs(phase: &[Phase; 3], (from, to): (usize, usize)) -> Runs {
    let (b, c) = (phase[1].count, phase[2].count);
    let all = positions(phase);
    let mut found = Runs::new();
    let mut at = from;
    while at < to {
        let (sample, p) = (at / all, at % all);
        let len = (c - p % c).min(to - at);
        found.push(Run { sample, position: [p / (b * c), p / c % b, p % c], len });
        at += len;
    }
    found
}

/// Whether the class is f64.
pub(super) fn wide<T: Num>() -> bool {
    T::CLASS == Class::F64
}

impl<T: Num + Element> Job<'_, T> {
    /// Where the first position that a phase reads lies on an axis, counted from the planes' origin.
    pub(super) fn start(&self, phase: &[Phase; 3], axis: usize) -> i64 {
        phase[axis].from - self.planes.origin[axis]
    }

    /// Packs a strip of columns.
    ///
    /// # Safety
    /// The strip is part of the phase's columns and depth; `to` has room for the panel, which nobody else uses.
    pub(super) unsafe fn pack_patches(&self, phase: &[Phase; 3], group: usize, strip: Strip, to: *mut T) {
        let runs = runs(phase, (strip.at, strip.at + strip.width));
        let base = self.planes.at.wrapping_offset(group as isize * self.planes.strides[1] as isize);
        // SAFETY: the caller's.
        unsafe {
            if self.by_taps {
                self.pack_along_taps(phase, base, &runs, strip, to);
            } else {
                self.pack_along_positions(phase, base, &runs, strip, to);
            }
        }
    }

    /// # Safety
    /// As [`Job::pack_patches`].
    unsafe fn pack_along_positions(&self, phase: &[Phase; 3], base: *const T, runs: &Runs, strip: Strip, to: *mut T) {
        let Strip { width, from, depth, step, .. } = strip;
        let all = taps(phase);
        let planes = &self.planes;
        let every = planes.every(self.steps[2]);
        let start = [0, 1, 2].map(|axis| self.start(phase, axis));
        let mut pieces: SmallVec<[Piece; 8]> = SmallVec::new();
        let mut tap = 0;
        for t0 in 0..phase[0].taps as i64 {
            for t1 in 0..phase[1].taps as i64 {
                for t2 in 0..phase[2].taps as i64 {
                    // The channels whose tap is in this part of the depth.
                    let first = from.saturating_sub(tap).div_ceil(all);
                    let last = (from + depth).saturating_sub(tap).div_ceil(all);
                    tap += 1;
                    if first >= last {
                        continue;
                    }
                    let origin =
                        [start[0] + t0 * self.gaps[0], start[1] + t1 * self.gaps[1], start[2] + t2 * self.gaps[2]];
                    let source = base.wrapping_offset(first as isize * planes.strides[2] as isize);
                    let row = to.wrapping_add((first * all + tap - 1 - from) * step);
                    #[cfg(target_arch = "x86_64")]
                    if self.masked {
                        let segments = self.segments(phase, origin, runs);
                        let rows = Masked {
                            count: last - first,
                            by_source: planes.strides[2],
                            by_panel: all * step,
                            vectors: step / 16,
                            segments: &segments,
                        };
                        // SAFETY: the caller's; the masks tell what is inside the input; the processor has masks.
                        unsafe { copy_masked(source.cast(), row.cast(), &rows) };
                        continue;
                    }
                    pieces.clear();
                    let (mut at, mut covered) = (0, 0);
                    for run in runs {
                        let [p0, p1, p2] = run.position;
                        let mut q = [
                            origin[0] + p0 as i64 * self.steps[0],
                            origin[1] + p1 as i64 * self.steps[1],
                            origin[2] + p2 as i64 * self.steps[2],
                        ];
                        let (low, high) = self.inside(q, run.len);
                        if low < high {
                            q[2] += low as i64 * self.steps[2];
                            let piece = Piece {
                                to: at + low,
                                from: run.sample as i64 * planes.strides[0] + planes.place(q),
                                len: high - low,
                            };
                            covered += piece.len;
                            match pieces.last_mut() {
                                Some(last)
                                    if last.to + last.len == piece.to
                                        && last.from + last.len as i64 * every == piece.from =>
                                {
                                    last.len += piece.len;
                                }
                                _ => pieces.push(piece),
                            }
                        }
                        at += run.len;
                    }
                    let rows = Rows {
                        count: last - first,
                        by_source: planes.strides[2],
                        by_panel: all * step,
                        every,
                        clear: if covered < width { step } else { 0 },
                        pieces: &pieces,
                    };
                    // SAFETY: the caller's; the pieces are inside the input.
                    unsafe { copy_rows(self.step.isa, wide::<T>(), source.cast(), row.cast(), &rows) };
                }
            }
        }
    }

    /// Elements low..high of a run of `len` elements, which begins at position `q`, lie inside the input.
    fn inside(&self, q: [i64; 3], len: usize) -> (usize, usize) {
        let Some(sizes) = self.planes.sizes else { return (0, len) };
        if !(0..sizes[0]).contains(&q[0]) || !(0..sizes[1]).contains(&q[1]) {
            return (0, 0);
        }
        // The first i for which q + i * step is not before an edge.
        let after = |edge: i64| (edge - q[2] + self.steps[2] - 1).div_euclid(self.steps[2]).clamp(0, len as i64);
        (after(0) as usize, after(sizes[2]) as usize)
    }

    /// The segments of a strip for the tap that reads `origin` at the first position.
    #[cfg(target_arch = "x86_64")]
    fn segments(&self, phase: &[Phase; 3], origin: [i64; 3], runs: &Runs) -> SmallVec<[Segment; 4]> {
        let mut segments: SmallVec<[Segment; 4]> = SmallVec::new();
        let (mut at, mut sample) = (0, usize::MAX);
        for run in runs {
            let [p0, p1, p2] = run.position;
            if run.sample != sample {
                sample = run.sample;
                let position = (p0 * phase[1].count + p1) * phase[2].count + p2;
                let from = sample as i64 * self.planes.strides[0] + self.planes.place(origin) + position as i64;
                segments.push(Segment { from: from - at as i64, mask: 0 });
            }
            let q = [origin[0] + p0 as i64, origin[1] + p1 as i64, origin[2] + p2 as i64];
            let (low, high) = self.inside(q, run.len);
            if let (Some(segment), true) = (segments.last_mut(), low < high) {
                let ones = ((1u64 << (high - low)) - 1) as u32;
                segment.mask |= ones << (at + low);
            }
            at += run.len;
        }
        segments
    }

    /// # Safety
    /// As [`Job::pack_patches`].
    unsafe fn pack_along_taps(&self, phase: &[Phase; 3], base: *const T, runs: &Runs, strip: Strip, to: *mut T) {
        let Strip { from, depth, step, .. } = strip;
        let planes = &self.planes;
        let start = [0, 1, 2].map(|axis| self.start(phase, axis));
        let mut columns: SmallVec<[i64; 32]> = SmallVec::new();
        for run in runs {
            for i in 0..run.len {
                let [p0, p1, p2] = run.position;
                let q = [
                    start[0] + p0 as i64 * self.steps[0],
                    start[1] + p1 as i64 * self.steps[1],
                    start[2] + (p2 + i) as i64 * self.steps[2],
                ];
                columns.push(run.sample as i64 * planes.strides[0] + planes.place(q));
            }
        }
        // The depth as runs along the last axis' taps; a tap's place is counted from its column's.
        let [_, b, c] = [phase[0].taps, phase[1].taps, phase[2].taps];
        let mut lines: SmallVec<[(i64, usize); 16]> = SmallVec::new();
        let mut k = from;
        while k < from + depth {
            let len = (c - k % c).min(from + depth - k);
            let (t0, t1, t2) = ((k / (b * c) % phase[0].taps) as i64, (k / c % b) as i64, (k % c) as i64);
            let offset = (k / taps(phase)) as i64 * planes.strides[2]
                + t0 * self.gaps[0] * planes.spatial[0]
                + t1 * self.gaps[1] * planes.spatial[1]
                + t2 * planes.every(self.gaps[2]);
            match lines.last_mut() {
                Some(last) if last.0 + last.1 as i64 == offset => last.1 += len,
                _ => lines.push((offset, len)),
            }
            k += len;
        }
        // SAFETY: the caller's; along the taps, everything that is read is there, in runs.
        unsafe { turn_columns(self.step.isa, wide::<T>(), base.cast(), &columns, &lines, step, to.cast()) };
    }

    /// Packs a strip of a group's output channels: their filters over the taps of a phase.
    ///
    /// # Safety
    /// The strip is part of the filters and the depth; `to` has room for the panel, which nobody else uses.
    pub(super) unsafe fn pack_filters(
        &self,
        kernel: &Kernel<T>,
        filters: &Filters,
        group: usize,
        strip: Strip,
        to: *mut T,
    ) {
        let Strip { at, width, from, depth, step } = strip;
        let by_width = self.filter.strides[1] as isize;
        let base = self.filter.plane([group, at, 0]);
        let taps = filters.taps.len();
        // SAFETY: `bind` checked the filter; the panel is the caller's, for all that follows.
        unsafe {
            if let Some(by_depth) = filters.line {
                let at = base.wrapping_offset((filters.taps[0] + from as i64 * by_depth) as isize);
                kernel.pack(Stored::Own, depth, width, step, at.cast(), by_depth as isize, by_width, to);
                return;
            }
            if filters.in_order && taps >= 8 {
                let mut k = from;
                while k < from + depth {
                    let len = (taps - k % taps).min(from + depth - k);
                    let offset = (k / taps) as i64 * self.filter.strides[2] + filters.taps[0] + (k % taps) as i64;
                    let (at, to) = (base.wrapping_offset(offset as isize), to.add((k - from) * step));
                    kernel.pack(Stored::Own, len, width, step, at.cast(), 1, by_width, to);
                    k += len;
                }
                return;
            }
            let (mut channel, mut tap) = ((from / taps) as i64, from % taps);
            for l in 0..depth {
                let at = base.wrapping_offset((channel * self.filter.strides[2] + filters.taps[tap]) as isize);
                let to = to.add(l * step);
                for w in 0..width {
                    to.add(w).write(at.wrapping_offset(w as isize * by_width).read());
                }
                tap += 1;
                if tap == taps {
                    (channel, tap) = (channel + 1, 0);
                }
            }
        }
    }

    /// Where a phase's taps lie in a filter.
    pub(super) fn filters(&self, phase: &[Phase; 3]) -> Filters {
        let place =
            |axis: usize, t: usize| (phase[axis].tap + t * phase[axis].tap_every) as i64 * self.filter.spatial[axis];
        let mut taps = Vec::with_capacity(taps(phase));
        for t0 in 0..phase[0].taps {
            for t1 in 0..phase[1].taps {
                taps.extend((0..phase[2].taps).map(|t2| place(0, t0) + place(1, t1) + place(2, t2)));
            }
        }
        let channel = self.filter.strides[2];
        let apart = if taps.len() > 1 { taps[1] - taps[0] } else { channel };
        let even = taps.windows(2).all(|pair| pair[1] - pair[0] == apart);
        let line = even && (self.geometry.channels == 1 || channel == apart * taps.len() as i64);
        Filters { in_order: even && apart == 1, line: line.then_some(apart), taps }
    }
}

/// Where a phase's taps lie in a filter.
pub(super) struct Filters {
    taps: Vec<i64>,
    /// The taps follow one another.
    in_order: bool,
    /// How far apart the elements of the depth lie, where that is always the same.
    line: Option<i64>,
}
