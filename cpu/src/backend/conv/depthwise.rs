//! Depthwise filters: one input channel a group. Too thin for matrix products, they are summed tap by tap over rows of
//! outputs that stay in registers.

use tallow_graph::Result;

use super::geometry::{Geometry, Phase};
use super::planes::Frame;
use super::{Output, Source};
use crate::Isa;
use crate::backend::class::{Class, Num};
use crate::backend::scratch::{self, FirstError};
use crate::backend::step::StepRun;
use crate::multiversion::fma;

/// Outputs that are summed together: as many as registers hold.
const TOGETHER: usize = 64;
/// Output channels a group up to which this pays.
const OUTPUTS: usize = 4;
/// Elements of a plane: it should stay in the second-level cache.
const PLANE: usize = 256 << 10;
/// Most taps.
const TAPS: usize = 512;

/// Whether a convolution is computed here.
pub(super) fn fits<T: Num>(geometry: &Geometry, by_taps: bool, phases: &[[Phase; 3]]) -> bool {
    let taps: i64 = geometry.axes.iter().map(|axis| axis.taps).product();
    let Some(frame) = Frame::new(geometry, phases, geometry.axes[2].step() as usize) else { return false };
    T::CLASS == Class::F32
        && geometry.channels == 1
        && geometry.outputs <= OUTPUTS
        && phases.len() == 1
        && !by_taps
        && (1..=TAPS as i64).contains(&taps)
        && frame.plane() <= PLANE
}

/// Runs it.
pub(super) fn run<T: Num>(
    step: &StepRun<'_>,
    geometry: &Geometry,
    phase: &[Phase; 3],
    frame: &Frame,
    input: Source<T>,
    filter: Source<T>,
    output: &Output<'_, T>,
) -> Result<()> {
    let failed = FirstError::default();
    let planes = geometry.samples * geometry.groups;
    let job = Job { step, geometry, phase, frame, input, filter, output };
    step.pool.run(planes, &|plane| failed.note(job.plane(plane)));
    failed.done()
}

struct Job<'a, T> {
    step: &'a StepRun<'a>,
    geometry: &'a Geometry,
    phase: &'a [Phase; 3],
    frame: &'a Frame,
    input: Source<T>,
    filter: Source<T>,
    output: &'a Output<'a, T>,
}

impl<T: Num> Job<'_, T> {
    /// All outputs of one sample and group.
    fn plane(&self, at: usize) -> Result<()> {
        let Geometry { groups, outputs, .. } = *self.geometry;
        let (sample, group) = (at / groups, at % groups);
        let (frame, [a, b, c]) = (self.frame, self.phase);
        let all = self.geometry.positions();
        let size = frame.plane();
        let steps = self.geometry.axes.map(|axis| axis.step() as usize);
        let gaps = self.geometry.axes.map(|axis| axis.gap() as usize);
        // The last block of a row may read past it, into what follows.
        let room = size + TOGETHER + frame.row();
        // The sums of one output channel, before its epilogue.
        let sums = if self.output.plain { 0 } else { all };
        scratch::with(scratch::TILE, (room.next_multiple_of(16) + sums) * size_of::<T>(), |memory| {
            let plane = memory.cast::<T>();
            // SAFETY: `bind` checked the input; the plane is this task's own, and what follows it is filled too.
            let plane: &[f32] = unsafe {
                frame.fill(self.geometry, self.input.plane([sample, group, 0]), self.input.spatial, plane);
                std::slice::from_raw_parts_mut(plane.add(size), room - size).fill(T::default());
                std::slice::from_raw_parts(plane.cast_const().cast(), room)
            };
            for channel in 0..outputs {
                let mut taps: Vec<(usize, f32)> = Vec::new();
                let weights = self.filter.plane([group, channel, 0]);
                for t0 in 0..a.taps {
                    for t1 in 0..b.taps {
                        for t2 in 0..c.taps {
                            let q2 = t2 * gaps[2];
                            let last = q2 % frame.split * frame.lane + q2 / frame.split;
                            let row = t0 * gaps[0] * frame.length[1] + t1 * gaps[1];
                            let place: i64 = [t0, t1, t2]
                                .iter()
                                .zip(self.phase)
                                .zip(&self.filter.spatial)
                                .map(|((&t, phase), stride)| (phase.tap + t * phase.tap_every) as i64 * stride)
                                .sum();
                            // SAFETY: `bind` checked the filter. The class is f32: see `fits`.
                            let weight = unsafe { weights.wrapping_offset(place as isize).cast::<f32>().read() };
                            taps.push((row * frame.row() + last, weight));
                        }
                    }
                }
                let first = (at * outputs + channel) * all;
                let to = if self.output.plain {
                    self.output.sums.wrapping_add(first)
                } else {
                    memory.cast::<T>().wrapping_add(room.next_multiple_of(16))
                };
                // SAFETY: the outputs of this channel, or memory for its sums.
                let to: &mut [f32] = unsafe { std::slice::from_raw_parts_mut(to.cast(), all) };
                for (row, to) in to.chunks_exact_mut(c.count).enumerate() {
                    let (p0, p1) = (row / b.count, row % b.count);
                    let start = (p0 * steps[0] * frame.length[1] + p1 * steps[1]) * frame.row();
                    sum_taps(self.step.isa, &plane[start..], &taps, to);
                }
                if !self.output.plain {
                    let sums = to.as_ptr();
                    // SAFETY: the sums are there; this channel's outputs are this task's own.
                    self.output.epilogue(self.step, all, |walk| unsafe { walk.row(first, sums, all) })?;
                }
            }
            Ok(())
        })
    }
}

/// out[j] = sum over taps of weight * from[offset + j]. `from` goes on for [`TOGETHER`] elements past what is needed.
fn sum_taps(isa: Isa, from: &[f32], taps: &[(usize, f32)], out: &mut [f32]) {
    by_blocks(isa, from, taps, out);
}

multiversion! {
    fn by_blocks(from: &[f32], taps: &[(usize, f32)], out: &mut [f32]) = by_blocks_body;
}

#[inline(always)]
fn by_blocks_body<const FMA: bool>(from: &[f32], taps: &[(usize, f32)], out: &mut [f32]) {
    let mut at = 0;
    while at < out.len() {
        // The rest of a row is computed as widely as it needs.
        let rest = out.len() - at;
        let wide = if rest > 32 {
            block::<FMA, TOGETHER>(from, taps, out, at)
        } else if rest > 16 {
            block::<FMA, 32>(from, taps, out, at)
        } else {
            block::<FMA, 16>(from, taps, out, at)
        };
        at += wide;
    }
}

#[inline(always)]
fn block<const FMA: bool, const N: usize>(from: &[f32], taps: &[(usize, f32)], out: &mut [f32], at: usize) -> usize {
    let mut sums = [0f32; N];
    for &(offset, weight) in taps {
        let Some((x, _)) = from.get(offset + at..).and_then(|x| x.split_first_chunk::<N>()) else { continue };
        for (sum, x) in sums.iter_mut().zip(x) {
            *sum = fma::<FMA>(weight, *x, *sum);
        }
    }
    let count = N.min(out.len() - at);
    out[at..at + count].copy_from_slice(&sums[..count]);
    count
}
