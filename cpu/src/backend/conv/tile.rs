//! Tiles of a convolution: packing patches, multiplying, and bringing the sums to the output.

use gemm::Parallelism;
use tallow_graph::Result;
use tallow_graph::kernel::Layout;

use super::geometry::{Geometry, Phase};
use super::planes::Planes;
use super::{Filters, Output};
use crate::backend::class::Num;
use crate::backend::scratch::{self, FirstError};
use crate::backend::step::StepRun;
use crate::backend::walk::{Bound, Nest, Walker, block_size};

/// Bytes that a tile's patches may take at a time: a good part of a usual second-level cache.
const PATCHES: usize = 512 << 10;
/// Most positions of a tile.
const COLUMNS: usize = 512;
/// Multiplications that are worth a thread's while.
const GRAIN: usize = 128 << 10;

/// A convolution that is being computed.
pub(super) struct Job<'a, T> {
    pub step: &'a StepRun<'a>,
    pub geometry: &'a Geometry,
    pub phases: &'a [[Phase; 3]],
    /// Input elements between neighbouring positions, and between neighbouring taps, on each axis.
    pub steps: [i64; 3],
    pub gaps: [i64; 3],
    /// Patches are packed along the taps, not along the positions.
    pub by_taps: bool,
    pub planes: Planes<T>,
    pub filters: Filters<T>,
    pub output: &'a Output<'a, T>,
}

/// Output channels `rows` of a group by columns `columns`: positions of a phase, sample after sample.
struct Tile {
    phase: usize,
    group: usize,
    rows: (usize, usize),
    columns: (usize, usize),
}

/// Columns that are neighbours along the last axis.
#[derive(Clone, Copy)]
struct Run {
    sample: usize,
    position: [usize; 3],
    len: usize,
}

/// Positions of a phase.
fn positions(phase: &[Phase; 3]) -> usize {
    phase.iter().map(|p| p.count).product()
}

/// Taps of a phase.
fn taps(phase: &[Phase; 3]) -> usize {
    phase.iter().map(|p| p.taps).product()
}

/// The runs of columns `from..to`.
fn runs(phase: &[Phase; 3], (from, to): (usize, usize)) -> Vec<Run> {
    let [_, b, c] = phase.map(|p| p.count);
    let all = positions(phase);
    let mut found = Vec::new();
    let mut at = from;
    while at < to {
        let (sample, p) = (at / all, at % all);
        let len = (c - p % c).min(to - at);
        found.push(Run { sample, position: [p / (b * c), p / c % b, p % c], len });
        at += len;
    }
    found
}

impl<T: Num> Job<'_, T> {
    /// Runs all tiles.
    pub fn run(&self) -> Result<()> {
        let tiles = self.tiles();
        let failed = FirstError::default();
        self.step.pool.run(tiles.len(), &|at| failed.note(self.tile(&tiles[at])));
        failed.done()
    }

    fn tiles(&self) -> Vec<Tile> {
        let Geometry { samples, groups, outputs, channels, .. } = *self.geometry;
        let threads = self.step.pool.threads();
        let mut tiles = Vec::new();
        for (at, phase) in self.phases.iter().enumerate() {
            let (all, depth) = (positions(phase), (channels * taps(phase)).max(1));
            let fit = PATCHES / size_of::<T>() / depth;
            let mut wide = fit.clamp(96, COLUMNS);
            let mut tall = outputs;
            // Tiles of one sample where it has enough positions: their products go straight to the output.
            let (pieces, size) = if all >= 64 { (samples, all) } else { (1, samples * all) };
            let work = outputs * depth;
            let count = |wide: usize, tall: usize| groups * pieces * size.div_ceil(wide) * outputs.div_ceil(tall);
            while threads > 1 && count(wide, tall) * self.phases.len() < 3 * threads && wide * work > GRAIN && wide > 64
            {
                wide = wide.div_ceil(2);
            }
            while threads > 1
                && count(wide, tall) * self.phases.len() < 2 * threads
                && tall > 16
                && tall * depth * wide.min(size) > GRAIN
            {
                tall = tall.div_ceil(2).next_multiple_of(8);
            }
            // Equal tiles.
            let wide = size.div_ceil(size.div_ceil(wide)).next_multiple_of(16);
            for group in 0..groups {
                for piece in 0..pieces {
                    for from in (0..size).step_by(wide) {
                        let to = (from + wide).min(size);
                        let columns = (piece * size + from, piece * size + to);
                        for row in (0..outputs).step_by(tall) {
                            tiles.push(Tile { phase: at, group, rows: (row, (row + tall).min(outputs)), columns });
                        }
                    }
                }
            }
        }
        tiles
    }

    fn tile(&self, tile: &Tile) -> Result<()> {
        let Geometry { groups, outputs, .. } = *self.geometry;
        let phase = &self.phases[tile.phase];
        let all = positions(phase);
        let (rows, columns) = (tile.rows.1 - tile.rows.0, tile.columns.1 - tile.columns.0);
        let (sample, position) = (tile.columns.0 / all, tile.columns.0 % all);
        let one_sample = position + columns <= all;
        let output = self.output;
        // Where a row of the tile begins in the output, if there is one phase.
        let place = |sample: usize, row: usize, position: usize| {
            ((sample * groups + tile.group) * outputs + tile.rows.0 + row) * all + position
        };
        if output.plain && output.whole && one_sample {
            let to = output.sums.wrapping_add(place(sample, 0, position));
            return self.products(tile, to, all);
        }
        scratch::with(scratch::TILE, rows * columns * size_of::<T>(), |memory| {
            let sums = memory.cast::<T>();
            self.products(tile, sums, columns)?;
            if output.whole && !output.plain {
                return output.epilogue(self.step, columns, |walk| {
                    for row in 0..rows {
                        let mut done = 0;
                        while done < columns {
                            let at = tile.columns.0 + done;
                            let len = (all - at % all).min(columns - done);
                            // SAFETY: the sums of the tile; its outputs are this task's own.
                            unsafe { walk.row(place(at / all, row, at % all), sums.add(row * columns + done), len) };
                            done += len;
                        }
                    }
                });
            }
            self.scatter(tile, sums);
            Ok(())
        })
    }

    /// Brings a tile's sums to their places, which may lie apart.
    fn scatter(&self, tile: &Tile, sums: *const T) {
        let Geometry { groups, outputs, axes, .. } = *self.geometry;
        let phase = &self.phases[tile.phase];
        let columns = tile.columns.1 - tile.columns.0;
        let runs = runs(phase, tile.columns);
        let every = phase[2].every;
        for row in tile.rows.0..tile.rows.1 {
            let mut from = sums.wrapping_add((row - tile.rows.0) * columns);
            for run in &runs {
                let mut at = (run.sample * groups + tile.group) * outputs + row;
                for (axis, (phase, position)) in axes.iter().zip(phase.iter().zip(run.position)) {
                    at = at * axis.out as usize + phase.first + position * phase.every;
                }
                for i in 0..run.len {
                    // SAFETY: the tile's sums; their places are inside the output, and this task's own.
                    unsafe { self.output.sums.add(at + i * every).write(from.add(i).read()) };
                }
                from = from.wrapping_add(run.len);
            }
        }
    }

    /// The products of a tile, to `to`, whose rows are `stride` values apart.
    fn products(&self, tile: &Tile, to: *mut T, stride: usize) -> Result<()> {
        let Geometry { channels, outputs, .. } = *self.geometry;
        let phase = &self.phases[tile.phase];
        let (rows, columns) = (tile.rows.1 - tile.rows.0, tile.columns.1 - tile.columns.0);
        let depth = channels * taps(phase);
        if depth == 0 {
            for row in 0..rows {
                // SAFETY: the tile's own rows.
                unsafe { std::slice::from_raw_parts_mut(to.add(row * stride), columns) }.fill(T::default());
            }
            return Ok(());
        }
        let first = self.filters.first[tile.phase] + (tile.group * outputs + tile.rows.0) * depth;
        let filter = self.filters.at.wrapping_add(first);
        let base = self.planes.at(tile.group as i64 * self.planes.strides[1]);
        let into = Into { to, stride, rows, columns };
        if let Some(offset) = self.in_place(phase, tile.columns) {
            let channel = self.planes.strides[2];
            let patches = (base.wrapping_offset(offset as isize), channel, 1);
            // SAFETY: the columns follow one another in the input's rows.
            unsafe { into.add(filter, depth, depth, patches, false) };
            return Ok(());
        }
        let runs = runs(phase, tile.columns);
        let block = (PATCHES / size_of::<T>() / columns.max(1)).clamp(8, depth.max(8));
        // Equal blocks.
        let block = depth.div_ceil(depth.div_ceil(block));
        scratch::with(scratch::CONVERTED, block * columns * size_of::<T>(), |memory| {
            let patches = memory.cast::<T>();
            for from in (0..depth).step_by(block) {
                let part = block.min(depth - from);
                let view = if self.by_taps {
                    let points = self.columns(phase, &runs);
                    let lines = self.depth_runs(phase, from, part);
                    // SAFETY: inside the planes; the scratch memory has room for the patches.
                    unsafe { pack(base, &points, &lines, patches) };
                    (patches.cast_const(), 1, part as i64)
                } else {
                    let points: Vec<i64> = (from..from + part).map(|k| self.tap(phase, k)).collect();
                    let lines: Vec<(i64, usize)> = runs.iter().map(|run| (self.column(phase, run), run.len)).collect();
                    // SAFETY: as above.
                    unsafe { pack(base, &points, &lines, patches) };
                    (patches.cast_const(), columns as i64, 1)
                };
                // SAFETY: filter and patches hold `part` of the depth.
                unsafe { into.add(filter.wrapping_add(from), depth, part, view, from > 0) };
            }
            Ok(())
        })
    }

    /// Where columns `from..to` lie in the input, if one tap reads them one after the other.
    fn in_place(&self, phase: &[Phase; 3], (from, to): (usize, usize)) -> Option<i64> {
        let all = positions(phase);
        let [a, b, c] = phase.map(|p| p.count as i64);
        let (rows, steps) = (self.planes.rows, self.steps);
        let dense = (b == 1 || rows[1] * steps[1] == c) && (a == 1 || rows[0] * steps[0] == b * c);
        if taps(phase) != 1
            || self.planes.split != 1
            || steps[2] != 1 && c > 1
            || !dense
            || from % all + to - from > all
        {
            return None;
        }
        // Along the taps, a tap's place leaves out where the phase begins.
        let start = if self.by_taps { self.start(phase, 2) } else { 0 };
        Some(self.tap(phase, 0) + start + (from / all) as i64 * self.planes.strides[0] + (from % all) as i64)
    }

    /// Where a run of columns lies, without its tap. Along the taps: where its first column lies.
    fn column(&self, phase: &[Phase; 3], run: &Run) -> i64 {
        let [p0, p1, p2] = run.position.map(|p| p as i64);
        let rows = p0 * self.steps[0] * self.planes.rows[0] + p1 * self.steps[1] * self.planes.rows[1];
        let last = if self.by_taps { self.planes.last(self.start(phase, 2) + p2 * self.steps[2]) } else { p2 };
        run.sample as i64 * self.planes.strides[0] + rows + last
    }

    /// Every column's place, for patches along the taps.
    fn columns(&self, phase: &[Phase; 3], runs: &[Run]) -> Vec<i64> {
        let each = |run: &Run| {
            let &Run { sample, position: [a, b, c], len } = run;
            (0..len).map(move |i| Run { sample, position: [a, b, c + i], len: 1 })
        };
        runs.iter().flat_map(each).map(|run| self.column(phase, &run)).collect()
    }

    /// Element `k` of the depth (channel, then taps): its place for the first column. Along the taps: without the place of
    /// the column in its row.
    fn tap(&self, phase: &[Phase; 3], k: usize) -> i64 {
        let [_, b, c] = phase.map(|p| p.taps);
        let [t0, t1, t2] = [k / (b * c) % phase[0].taps, k / c % b, k % c].map(|t| t as i64);
        let channel = (k / taps(phase)) as i64 * self.planes.strides[2];
        let rows = (self.start(phase, 0) + t0 * self.gaps[0]) * self.planes.rows[0]
            + (self.start(phase, 1) + t1 * self.gaps[1]) * self.planes.rows[1];
        channel + rows + if self.by_taps { t2 } else { self.planes.last(self.start(phase, 2) + t2 * self.gaps[2]) }
    }

    /// Elements `from..from + part` of the depth as runs along the last axis' taps.
    fn depth_runs(&self, phase: &[Phase; 3], from: usize, part: usize) -> Vec<(i64, usize)> {
        let row = phase[2].taps;
        let mut found = Vec::with_capacity(part / row + 2);
        let mut k = from;
        while k < from + part {
            let len = (row - k % row).min(from + part - k);
            found.push((self.tap(phase, k), len));
            k += len;
        }
        found
    }

    /// The first position that a phase reads on an axis, counted from the planes' origin.
    fn start(&self, phase: &[Phase; 3], axis: usize) -> i64 {
        phase[axis].from - self.planes.origin[axis]
    }
}

/// Copies runs: for each point, each run at the point's offset.
///
/// # Safety
/// Every run lies inside the memory of `base` for every point; `to` has room for all, apart from it.
unsafe fn pack<T: Copy>(base: *const T, points: &[i64], runs: &[(i64, usize)], mut to: *mut T) {
    for &point in points {
        let from = base.wrapping_offset(point as isize);
        for &(offset, len) in runs {
            // SAFETY: the caller's.
            unsafe { copy_run(from.wrapping_offset(offset as isize), to, len) };
            to = to.wrapping_add(len);
        }
    }
}

/// A short copy, without a call.
///
/// # Safety
/// Both hold `len` elements, and do not overlap.
#[inline(always)]
unsafe fn copy_run<T: Copy>(from: *const T, to: *mut T, len: usize) {
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

/// Where products are summed.
struct Into<T> {
    to: *mut T,
    stride: usize,
    rows: usize,
    columns: usize,
}

impl<T: Num> Into<T> {
    /// Adds (or, the first time, stores) `rows x depth` of the filter, whose rows are `pitch` apart, times `depth x columns`
    /// patches, given by address and strides. On this thread.
    ///
    /// # Safety
    /// Everything lies inside memory that nobody writes, and the sums are the caller's own.
    unsafe fn add(&self, filter: *const T, pitch: usize, depth: usize, patches: (*const T, i64, i64), more: bool) {
        let (patches, by_depth, by_column) = patches;
        // SAFETY: the caller's. Where `more` is false, the old contents are not read.
        unsafe {
            gemm::gemm::<T>(
                self.rows,
                self.columns,
                depth,
                self.to,
                1,
                self.stride as isize,
                more,
                filter,
                1,
                pitch as isize,
                patches,
                by_column as isize,
                by_depth as isize,
                if more { T::ONE } else { T::default() },
                T::ONE,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

/// The epilogue on one thread.
pub(super) struct Epilogue<'a, 'b> {
    walker: Walker<'a>,
    output: Bound<'b>,
    block: usize,
    size: usize,
}

impl Epilogue<'_, '_> {
    /// Outputs `at..at + n` from their sums.
    ///
    /// # Safety
    /// `sums` holds `n` sums of the class; the outputs are the caller's own.
    pub unsafe fn row<T>(&mut self, at: usize, sums: *const T, n: usize) {
        let mut done = 0;
        while done < n {
            let count = self.block.min(n - done);
            self.walker.set_acc(0, sums.cast::<u8>().wrapping_add(done * self.size));
            // SAFETY: the caller's.
            unsafe { self.walker.run_and_store(Layout::Linear, self.output, at + done, count) };
            done += count;
        }
    }
}

impl<T: Num> Output<'_, T> {
    /// Calls `f` with the epilogue, for rows of about `width` outputs.
    pub(super) fn epilogue(
        &self,
        step: &StepRun<'_>,
        width: usize,
        f: impl FnOnce(&mut Epilogue<'_, '_>),
    ) -> Result<()> {
        let block = block_size(self.epilogue, width.max(256));
        scratch::with(scratch::REGISTERS, Walker::scratch(self.epilogue, block), |registers| {
            let nest = Nest {
                isa: step.isa,
                block: self.epilogue,
                sizes: self.sizes,
                operands: self.operands,
                scalars: step.scalars,
            };
            let output = Bound { at: self.at, offset: 0, strides: &[], aligned: true };
            // SAFETY: this call's scratch memory.
            let walker = unsafe { Walker::new(&nest, registers, block)? };
            f(&mut Epilogue { walker, output, block, size: size_of::<T>() });
            Ok(())
        })
    }
}
