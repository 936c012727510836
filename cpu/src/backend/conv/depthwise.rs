//! Depthwise filters: one input channel a group. Too thin for matrix products, they are summed tap by tap over runs of
//! outputs that stay in registers.
//!
//! A channel's padded input is split by the remainders of the steps: position q of an axis is element q / step of part
//! q % step. Then the outputs that are neighbours read neighbours with every tap, whatever the step, and a whole plane of
//! outputs is one run: output p reads, with tap t, `start of t's part + f(t * gap / step) + f(p)`, where f is the
//! row-major place in a part. So short rows cost no more than long ones. What the run computes between rows is left out.

use tallow_graph::Result;

use super::geometry::{Geometry, Phase};
use super::planes::{Frame, Row};
use super::vectors::{fill_rows, gather_rows, sum_taps};
use super::{Output, Source};
use crate::backend::class::{Class, Num};
use crate::backend::scratch::{self, FirstError};
use crate::backend::step::StepRun;

/// Elements that may be read past a run: of the longest vector.
const PAST: usize = 16;
/// Output channels a group up to which this pays.
const OUTPUTS: usize = 4;
/// Elements of a plane: it should stay in the second-level cache.
const PLANE: usize = 256 << 10;
/// Most taps.
const TAPS: usize = 512;
/// Multiplications that are worth a thread's while.
const GRAIN: usize = 128 << 10;

/// Whether a convolution is computed here.
pub(super) fn fits<T: Num>(geometry: &Geometry, by_taps: bool, phases: &[[Phase; 3]]) -> bool {
    let taps: i64 = geometry.axes.iter().map(|axis| axis.taps).product();
    let ([phase], 1) = (phases, geometry.channels) else { return false };
    T::CLASS == Class::F32
        && geometry.outputs <= OUTPUTS
        && !by_taps
        && (1..=TAPS as i64).contains(&taps)
        && Parts::new(geometry, phase).is_some_and(|parts| parts.size() <= PLANE)
}

/// How a channel's padded input lies.
struct Parts {
    frame: Frame,
    /// Input elements between neighbouring outputs, on each axis.
    steps: [usize; 3],
    /// Elements of a part on each axis.
    lanes: [usize; 3],
}

impl Parts {
    /// `None` where it is more than can be counted, or nothing is read.
    fn new(geometry: &Geometry, phase: &[Phase; 3]) -> Option<Self> {
        let frame = Frame::new(geometry, &[*phase], 1)?;
        let mut parts = Self { frame, steps: [1; 3], lanes: [1; 3] };
        let mut size = 1usize;
        for axis in 0..3 {
            // A single output takes no step.
            let step = if phase[axis].count > 1 { geometry.axes[axis].step() as usize } else { 1 };
            parts.steps[axis] = step;
            parts.lanes[axis] = frame.length[axis].div_ceil(step);
            size = size.checked_mul(parts.lanes[axis])?.checked_mul(step)?;
        }
        phase.iter().all(|phase| phase.taps > 0).then_some(parts)
    }

    /// Elements of a part.
    fn part(&self) -> usize {
        self.lanes[0] * self.lanes[1] * self.lanes[2]
    }

    /// Elements of all parts.
    fn size(&self) -> usize {
        self.part() * self.steps[0] * self.steps[1] * self.steps[2]
    }

    /// The row-major place of a position in a part.
    fn place(&self, [a, b, c]: [usize; 3]) -> usize {
        (a * self.lanes[1] + b) * self.lanes[2] + c
    }

    /// Where padded position `q` lies.
    fn at(&self, q: [usize; 3]) -> usize {
        let [s0, s1, s2] = self.steps;
        let part = (q[0] % s0 * s1 + q[1] % s1) * s2 + q[2] % s2;
        part * self.part() + self.place([q[0] / s0, q[1] / s1, q[2] / s2])
    }

    /// How the input's rows are brought to their places: for each, where it begins in the input and in the parts. The padding
    /// is left as it is.
    fn rows(&self, geometry: &Geometry, strides: [i64; 3]) -> (Row, Vec<(i64, usize)>) {
        let columns = self.frame.inside(geometry, 2);
        let row = Row {
            split: self.steps[2],
            lane: self.part(),
            first: columns.start,
            count: columns.len(),
            stride: strides[2] as isize,
        };
        let x = |axis: usize, q: usize| (q as i64 + self.frame.origin[axis]) * strides[axis];
        let mut rows = Vec::new();
        for q0 in self.frame.inside(geometry, 0) {
            for q1 in self.frame.inside(geometry, 1).filter(|_| !columns.is_empty()) {
                rows.push((x(0, q0) + x(1, q1) + x(2, columns.start), self.at([q0, q1, 0])));
            }
        }
        (row, rows)
    }
}

/// Runs it.
pub(super) fn run<T: Num>(
    step: &StepRun<'_>,
    geometry: &Geometry,
    phase: &[Phase; 3],
    input: Source<T>,
    filter: Source<T>,
    output: &Output<'_, T>,
) -> Result<()> {
    let Some(parts) = Parts::new(geometry, phase) else { return Ok(()) };
    let gaps = geometry.axes.map(|axis| axis.gap() as usize);
    let mut taps = Vec::new();
    for t0 in 0..phase[0].taps {
        for t1 in 0..phase[1].taps {
            for t2 in 0..phase[2].taps {
                let t = [t0, t1, t2];
                let filter: i64 = (0..3)
                    .map(|axis| (phase[axis].tap + t[axis] * phase[axis].tap_every) as i64 * filter.spatial[axis])
                    .sum();
                taps.push((parts.at([t0 * gaps[0], t1 * gaps[1], t2 * gaps[2]]), filter));
            }
        }
    }
    let failed = FirstError::default();
    let planes = geometry.samples * geometry.groups;
    let counts = phase.map(|phase| phase.count);
    let run = parts.place(counts.map(|count| count - 1)) + 1;
    let places = (0..counts[0] * counts[1]).map(|row| parts.place([row / counts[1], row % counts[1], 0])).collect();
    let rows = parts.rows(geometry, input.spatial);
    let job = Job { step, geometry, counts, parts, rows, places, taps, run, input, filter, output };
    let cost = job.taps.len() * geometry.outputs * run;
    step.pool.run_ranges(planes, GRAIN / cost.max(1), &|range| failed.note(job.planes(range.start, range.end)));
    failed.done()
}

struct Job<'a, T> {
    step: &'a StepRun<'a>,
    geometry: &'a Geometry,
    /// Outputs on each axis.
    counts: [usize; 3],
    parts: Parts,
    /// The input's rows: see [`Parts::rows`].
    rows: (Row, Vec<(i64, usize)>),
    /// Where each row of outputs lies in the run.
    places: Vec<usize>,
    /// Of each tap: where it reads for the first output, and its place in a filter.
    taps: Vec<(usize, i64)>,
    /// Elements from the first output to the last, as they lie in a part.
    run: usize,
    input: Source<T>,
    filter: Source<T>,
    output: &'a Output<'a, T>,
}

impl<T: Num> Job<'_, T> {
    /// All outputs of planes `from..to`, each of one sample and group.
    fn planes(&self, from: usize, to: usize) -> Result<()> {
        let Geometry { groups, outputs, .. } = *self.geometry;
        let all = self.geometry.positions();
        let size = self.parts.size();
        // The last vector of a run may read past it.
        let room = (size + PAST).next_multiple_of(16);
        let run = self.run.next_multiple_of(16);
        let first = from * outputs * all;
        // The sums of these planes, before the epilogue.
        let sums = if self.output.plain { 0 } else { (to - from) * outputs * all };
        let dense = self.counts[1..] == self.parts.lanes[1..];
        scratch::with(scratch::TILE, (room + run + sums) * size_of::<f32>(), |memory| {
            let memory = memory.cast::<f32>();
            let spread = memory.wrapping_add(room);
            let sums = if self.output.plain {
                self.output.sums.cast::<f32>().wrapping_add(first)
            } else {
                memory.wrapping_add(room + run)
            };
            // SAFETY: the planes are this task's own. The padding stays from one plane to the next.
            unsafe { std::slice::from_raw_parts_mut(memory, room) }.fill(0.0);
            let mut weights = vec![0f32; self.taps.len()];
            for plane in from..to {
                let (sample, group) = (plane / groups, plane % groups);
                let x = self.input.plane([sample, group, 0]).cast::<f32>();
                // SAFETY: `bind` checked the input. The class is f32: see `fits`.
                unsafe { fill_rows(self.step.isa, false, x.cast(), memory.cast(), &self.rows.1, self.rows.0) };
                for channel in 0..outputs {
                    let filter = self.filter.plane([group, channel, 0]).cast::<f32>();
                    for (weight, &(_, at)) in weights.iter_mut().zip(&self.taps) {
                        // SAFETY: `bind` checked the filter.
                        *weight = unsafe { filter.wrapping_offset(at as isize).read() };
                    }
                    let out = sums.wrapping_add(((plane - from) * outputs + channel) * all);
                    // SAFETY: the channel's own sums; or memory for the run, from which its rows are then copied there.
                    unsafe {
                        let to = if dense { out } else { spread };
                        sum_taps(self.step.isa, false, memory.cast(), &self.taps, &weights, to.cast(), self.run);
                        if !dense {
                            let width = self.counts[2];
                            gather_rows(self.step.isa, false, spread.cast(), out.cast(), &self.places, width);
                        }
                    }
                }
            }
            if !self.output.plain {
                let count = (to - from) * outputs * all;
                // SAFETY: the sums are there; these planes' outputs are this task's own.
                self.output.epilogue(self.step, count, |walk| unsafe { walk.row(first, sums.cast::<T>(), count) })?;
            }
            Ok(())
        })
    }
}
