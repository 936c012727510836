//! Large convolutions whose patches are never packed: the micro-kernel reads them as they lie in the input, or in its planes.
//!
//! Output channels lie along the vectors, and neighbouring positions of a line along the rows of the micro-kernel. A step of
//! the depth (a channel and a tap) is then one element a position, side by side in memory, at a place that differs from
//! that of the first step by the same offset for all positions. So a table of offsets takes the place of packed panels,
//! whose making would cost as much as a good part of the products where there are few output channels.

use smallvec::SmallVec;
use tallow_graph::Result;

use super::Memory;
use super::geometry::{Geometry, Phase};
use super::patches::{positions, taps};
use super::tile::{Block, Job, Part};
use crate::backend::class::Num;
use crate::backend::scratch::{self, FirstError};
use crate::gemm::{Cut, Element, Kernel, Stored, Strip};

/// Most positions and output channels of a tile: its sums stay in the second cache, with the input that it reads.
const TILE: (usize, usize) = (128, 256);
/// Tiles that each thread should have.
const TILES: usize = 6;
/// Sums that the micro-kernel should keep: fewer, and it waits for each of them.
const SUMS: usize = 8;

/// Whether patches are better read as they lie: lines of positions fill the rows of the micro-kernel, and output channels its
/// vectors.
pub(super) fn fits<T>(kernel: &Kernel<T>, geometry: &Geometry, phases: &[[Phase; 3]]) -> bool {
    let outputs = geometry.outputs;
    let (lanes, vectors) = (kernel.lanes(), kernel.cols / kernel.lanes());
    outputs >= kernel.cols
        && outputs * 8 >= outputs.next_multiple_of(lanes) * 7
        && phases.iter().all(|phase| {
            let count = phase[2].count;
            taps(phase) > 1 && count / count.div_ceil(kernel.rows).max(1) * vectors >= SUMS
        })
}

/// The positions of a phase, cut along its lines.
struct Lines {
    /// Lines of all samples.
    count: usize,
    /// Positions of a line.
    len: usize,
    /// Parts that a line is cut into.
    parts: usize,
}

impl Lines {
    /// First position of part `number`, counted through all lines.
    fn start(&self, number: usize) -> usize {
        let (line, part) = (number / self.parts, number % self.parts);
        line * self.len + part * (self.len / self.parts) + part.min(self.len % self.parts)
    }
}

/// What the tiles of a product share.
struct Shared<'a, T> {
    lines: Lines,
    /// Output channels in panels, packed block by block of the depth.
    filters: *const T,
    panels: usize,
    block: usize,
    /// Where each step of the depth lies, counted from the first of position 0.
    offsets: &'a [isize],
}

// SAFETY: memory that is only read while tiles are computed.
unsafe impl<T> Sync for Shared<'_, T> {}

impl<T: Num + Element> Job<'_, T> {
    /// One product on all threads: filters are packed first.
    pub(super) fn run_direct(
        &self,
        kernel: &'static Kernel<T>,
        part: &Part<'_>,
        group: usize,
        failed: &FirstError,
    ) -> Result<()> {
        let Geometry { samples, outputs, .. } = *self.geometry;
        let (phase, depth, pool) = (part.phase, part.depth, self.step.pool);
        let (block, panels) = (Cut::depth(depth), outputs.div_ceil(kernel.cols));
        let len = phase[2].count;
        let lines = Lines { count: samples * phase[0].count * phase[1].count, len, parts: len.div_ceil(kernel.rows) };
        let offsets = self.offsets(phase);
        let bytes = panels.checked_mul(kernel.cols * size_of::<T>()).and_then(|n| n.checked_mul(depth));
        scratch::with(scratch::CONVERTED, bytes.ok_or_else(super::too_large)?, |memory| {
            let memory = Memory(memory);
            pool.run_ranges(depth.div_ceil(block) * panels, 2, &|range| {
                for number in range {
                    let (from, at) = (number / panels * block, number % panels * kernel.cols);
                    let depth = block.min(depth - from);
                    let strip = Strip { at, width: kernel.cols.min(outputs - at), from, depth, step: kernel.cols };
                    let to = memory.at().cast::<T>().wrapping_add(from * panels * kernel.cols + at * depth);
                    // SAFETY: a part of the filters; its panel is its own.
                    unsafe { self.pack_filters(kernel, &part.filters, group, strip, to) };
                }
            });
            let filters = memory.at().cast_const().cast();
            let shared = Shared { lines, filters, panels, block, offsets: &offsets };
            // Parts of lines and panels of a tile.
            let all = shared.lines.count * shared.lines.parts;
            let mut tall = (TILE.0 * shared.lines.parts / len).clamp(1, all);
            let mut wide = (TILE.1 / kernel.cols).clamp(1, panels);
            let tiles = |tall: usize, wide: usize| all.div_ceil(tall) * panels.div_ceil(wide);
            while pool.threads() > 1 && tiles(tall, wide) < TILES * pool.threads() && tall * wide > 4 {
                if tall >= wide { tall = tall.div_ceil(2) } else { wide = wide.div_ceil(2) }
            }
            let across = panels.div_ceil(wide);
            pool.run(tiles(tall, wide), &|number| {
                let (at, first) = (number / across * tall, number % across * wide);
                let (parts, panels) = ((at, (at + tall).min(all)), (first, (first + wide).min(panels)));
                failed.note(self.direct_tile(kernel, part, group, &shared, parts, panels));
            });
            Ok(())
        })
    }

    /// Where each step of the depth lies, counted from the first of a position.
    fn offsets(&self, phase: &[Phase; 3]) -> Vec<isize> {
        let start = [0, 1, 2].map(|axis| self.start(phase, axis));
        let mut offsets = Vec::with_capacity(self.geometry.channels * taps(phase));
        for channel in 0..self.geometry.channels as i64 {
            for t0 in 0..phase[0].taps as i64 {
                for t1 in 0..phase[1].taps as i64 {
                    offsets.extend((0..phase[2].taps as i64).map(|t2| {
                        let t = [t0, t1, t2];
                        let q = [0, 1, 2].map(|axis| start[axis] + t[axis] * self.gaps[axis]);
                        (channel * self.planes.strides[2] + self.planes.place(q)) as isize
                    }));
                }
            }
        }
        offsets
    }

    /// Parts of lines by panels of output channels.
    fn direct_tile(
        &self,
        kernel: &Kernel<T>,
        part: &Part<'_>,
        group: usize,
        shared: &Shared<'_, T>,
        parts: (usize, usize),
        panels: (usize, usize),
    ) -> Result<()> {
        let (phase, lines) = (part.phase, &shared.lines);
        let planes = &self.planes;
        let columns = (lines.start(parts.0), lines.start(parts.1));
        let rows = (panels.0 * kernel.cols, (panels.1 * kernel.cols).min(self.geometry.outputs));
        // Where the first element of each part's first position would lie, and the part's first position and length.
        let mut pieces: SmallVec<[(*const T, usize, usize); 32]> = SmallVec::new();
        for number in parts.0..parts.1 {
            let (at, end) = (lines.start(number), lines.start(number + 1));
            let (line, all) = (at / lines.len, positions(phase));
            let (p1, p0, sample) = (line % phase[1].count, line / phase[1].count % phase[0].count, at / all);
            let offset = sample as i64 * planes.strides[0]
                + group as i64 * planes.strides[1]
                + p0 as i64 * self.steps[0] * planes.spatial[0]
                + p1 as i64 * self.steps[1] * planes.spatial[1]
                + (at % lines.len) as i64;
            pieces.push((planes.at.wrapping_offset(offset as isize), at - columns.0, end - at));
        }
        let (tall, wide) = (columns.1 - columns.0, rows.1 - rows.0);
        let (width, stride) = ((panels.1 - panels.0) * kernel.cols, tall.next_multiple_of(16));
        let elements = tall * width + wide * stride;
        scratch::with(scratch::TILE, elements * size_of::<T>(), |memory| {
            let sums = memory.cast::<T>();
            for from in (0..part.depth).step_by(shared.block) {
                let offsets = &shared.offsets[from..(from + shared.block).min(part.depth)];
                for panel in panels.0..panels.1 {
                    let place = (from * shared.panels + panel * offsets.len()) * kernel.cols;
                    let filters = shared.filters.wrapping_add(place);
                    let cols = kernel.cols.min(self.geometry.outputs - panel * kernel.cols);
                    let to = sums.wrapping_add((panel - panels.0) * kernel.cols);
                    for &(at, first, len) in &pieces {
                        let to = to.wrapping_add(first * width);
                        // SAFETY: the offsets lead to elements that are there; the sums are this call's own.
                        unsafe { kernel.run_direct(offsets, (at, len), (filters, cols), to, width, from > 0) };
                    }
                }
            }
            let turned = sums.wrapping_add(tall * width);
            // SAFETY: this call's own memory; the block's outputs are this task's own.
            unsafe {
                let from = sums.cast_const().cast();
                kernel.pack(Stored::Own, wide, tall, stride, from, 1, width as isize, turned);
                self.deliver(phase, &Block { group, rows, columns }, turned, stride)
            }
        })
    }
}
