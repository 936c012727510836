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
/// Sums are turned before they are stored, which a depth of so many times the output channels is worth.
const TURNING: usize = 2;
/// Tiles that each thread should have.
const TILES: usize = 6;
/// Positions of a tile that packs its filters for itself, at most, and how many such tiles each thread should have.
const FEW: usize = 1024;
const OWN_TILES: usize = 4;
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
            taps(phase) > 1
                && geometry.channels * taps(phase) >= TURNING * outputs
                && count / count.div_ceil(kernel.rows).max(1) * vectors >= SUMS
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

/// A phase of a bundle: the product of one remainder along the last axis.
struct Strand<'a> {
    part: &'a Part<'a>,
    /// Where each step of the depth lies, counted from the first element that position 0 could read.
    offsets: Vec<isize>,
    /// Where its packed filters begin.
    filters: usize,
}

/// What the tiles of a bundle share.
struct Bundle<'a, T> {
    group: usize,
    lines: Lines,
    strands: &'a [Strand<'a>],
    /// Panels of output channels, and a block of the depth.
    panels: usize,
    block: usize,
    /// The packed filters; none where each tile packs its own.
    filters: Option<*const T>,
}

// SAFETY: memory that is only read while tiles are computed.
unsafe impl<T> Sync for Bundle<'_, T> {}

impl<T> Bundle<'_, T> {
    /// A panel over a block of a strand's depth.
    fn strip(&self, kernel: &Kernel<T>, outputs: usize, strand: &Strand<'_>, from: usize, panel: usize) -> Strip {
        let at = panel * kernel.cols;
        let depth = self.block.min(strand.offsets.len() - from);
        Strip { at, width: kernel.cols.min(outputs - at), from, depth, step: kernel.cols }
    }

    /// Where it is packed.
    fn place(&self, strand: &Strand<'_>, strip: &Strip) -> usize {
        strand.filters + strip.from * self.panels * strip.step + strip.at * strip.depth
    }
}

impl<T: Num + Element> Job<'_, T> {
    /// Runs the products of a group on all threads. Phases that differ along the last axis alone go together, so that lines
    /// of the output are written in one piece.
    pub(super) fn run_direct(
        &self,
        kernel: &'static Kernel<T>,
        parts: &[Part<'_>],
        group: usize,
        failed: &FirstError,
    ) -> Result<()> {
        let mut rest = parts;
        while let Some(first) = rest.first() {
            let every = first.phase[2].every;
            let whole = rest.get(..every).is_some_and(|parts| {
                parts.iter().enumerate().all(|(i, part)| {
                    let (a, b) = (part.phase, first.phase);
                    a[..2] == b[..2] && a[2].first == i && a[2].count == b[2].count && a[2].taps == b[2].taps
                })
            });
            let (now, next) = rest.split_at(if whole { every } else { 1 });
            self.run_bundle(kernel, now, group, failed)?;
            rest = next;
        }
        Ok(())
    }

    fn run_bundle(
        &self,
        kernel: &'static Kernel<T>,
        parts: &[Part<'_>],
        group: usize,
        failed: &FirstError,
    ) -> Result<()> {
        let Geometry { samples, outputs, .. } = *self.geometry;
        let Some(Part { phase, depth, .. }) = parts.first() else { return Ok(()) };
        let pool = self.step.pool;
        let (block, panels, len) = (Cut::depth(*depth), outputs.div_ceil(kernel.cols), phase[2].count);
        let lines = Lines { count: samples * phase[0].count * phase[1].count, len, parts: len.div_ceil(kernel.rows) };
        let each = panels.checked_mul(kernel.cols).and_then(|n| n.checked_mul(*depth)).ok_or_else(super::too_large)?;
        let strands: Vec<Strand<'_>> = parts
            .iter()
            .enumerate()
            .map(|(i, part)| Strand { part, offsets: self.offsets(part.phase), filters: i * each })
            .collect();
        let all = lines.count * lines.parts;
        let mut bundle = Bundle { group, lines, strands: &strands, panels, block, filters: None };
        let run = |bundle: &Bundle<'_, T>, (tall, wide): (usize, usize)| {
            let across = panels.div_ceil(wide);
            pool.run(all.div_ceil(tall) * across, &|number| {
                let (at, first) = (number / across * tall, number % across * wide);
                let (parts, panels) = ((at, (at + tall).min(all)), (first, (first + wide).min(panels)));
                failed.note(self.direct_tile(kernel, bundle, parts, panels));
            });
        };
        // Few positions: a tile has all of them, and packs its filters, which nobody else reads, just before it reads them.
        if bundle.lines.count * len <= FEW && panels >= OWN_TILES * pool.threads() {
            run(&bundle, (all, 1));
            return Ok(());
        }
        let bytes = each.checked_mul(parts.len() * size_of::<T>()).ok_or_else(super::too_large)?;
        scratch::with(scratch::CONVERTED, bytes, |memory| {
            let memory = Memory(memory);
            let packed = &bundle;
            pool.run_ranges(depth.div_ceil(block) * panels, 2, &|range| {
                for number in range {
                    for strand in packed.strands {
                        let (from, panel) = (number / panels * block, number % panels);
                        let strip = packed.strip(kernel, outputs, strand, from, panel);
                        let to = memory.at().cast::<T>().wrapping_add(packed.place(strand, &strip));
                        // SAFETY: a part of the filters; its panel is its own.
                        unsafe { self.pack_filters(kernel, &strand.part.filters, group, strip, to) };
                    }
                }
            });
            bundle.filters = Some(memory.at().cast_const().cast());
            // Parts of lines and panels of a tile.
            let mut tall = (TILE.0 * bundle.lines.parts / len).clamp(1, all);
            let mut wide = (TILE.1 / kernel.cols).clamp(1, panels);
            let tiles = |tall: usize, wide: usize| all.div_ceil(tall) * panels.div_ceil(wide);
            while pool.threads() > 1 && tiles(tall, wide) < TILES * pool.threads() && tall * wide > 4 {
                if tall >= wide { tall = tall.div_ceil(2) } else { wide = wide.div_ceil(2) }
            }
            run(&bundle, (tall, wide));
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
        bundle: &Bundle<'_, T>,
        parts: (usize, usize),
        panels: (usize, usize),
    ) -> Result<()> {
        let Some(Strand { part: Part { phase, .. }, .. }) = bundle.strands.first() else { return Ok(()) };
        let (planes, lines, outputs) = (&self.planes, &bundle.lines, self.geometry.outputs);
        let columns = (lines.start(parts.0), lines.start(parts.1));
        let rows = (panels.0 * kernel.cols, (panels.1 * kernel.cols).min(outputs));
        // Of each part: where offsets are counted from, its first position, its length.
        let mut pieces: SmallVec<[(*const T, usize, usize); 32]> = SmallVec::new();
        for number in parts.0..parts.1 {
            let (at, end) = (lines.start(number), lines.start(number + 1));
            let (line, all) = (at / lines.len, positions(phase));
            let (p1, p0, sample) = (line % phase[1].count, line / phase[1].count % phase[0].count, at / all);
            let offset = sample as i64 * planes.strides[0]
                + bundle.group as i64 * planes.strides[1]
                + p0 as i64 * self.steps[0] * planes.spatial[0]
                + p1 as i64 * self.steps[1] * planes.spatial[1]
                + (at % lines.len) as i64;
            pieces.push((planes.at.wrapping_offset(offset as isize), at - columns.0, end - at));
        }
        let (tall, wide) = (columns.1 - columns.0, rows.1 - rows.0);
        let (width, stride) = ((panels.1 - panels.0) * kernel.cols, tall.next_multiple_of(16));
        let own = if bundle.filters.is_some() { 0 } else { bundle.block * kernel.cols };
        let elements = own + tall * width + bundle.strands.len() * wide * stride;
        scratch::with(scratch::TILE, elements * size_of::<T>(), |memory| {
            let own_at = memory.cast::<T>();
            let sums = own_at.wrapping_add(own);
            let turned = sums.wrapping_add(tall * width);
            for (number, strand) in bundle.strands.iter().enumerate() {
                let depth = strand.offsets.len();
                for from in (0..depth).step_by(bundle.block) {
                    let offsets = &strand.offsets[from..(from + bundle.block).min(depth)];
                    for panel in panels.0..panels.1 {
                        let strip = bundle.strip(kernel, outputs, strand, from, panel);
                        let filters = match bundle.filters {
                            Some(at) => at.wrapping_add(bundle.place(strand, &strip)),
                            None => {
                                // SAFETY: a part of the filters; this call's own memory.
                                unsafe { self.pack_filters(kernel, &strand.part.filters, bundle.group, strip, own_at) };
                                own_at.cast_const()
                            }
                        };
                        let to = sums.wrapping_add((panel - panels.0) * kernel.cols);
                        for &(at, first, len) in &pieces {
                            let to = to.wrapping_add(first * width);
                            // SAFETY: the offsets lead to elements that are there; the sums are this call's own.
                            unsafe {
                                kernel.run_direct(offsets, (at, len), (filters, strip.width), to, width, from > 0)
                            };
                        }
                    }
                }
                let (from, to) = (sums.cast_const().cast(), turned.wrapping_add(number * wide * stride));
                // SAFETY: this call's own memory.
                unsafe { kernel.pack(Stored::Own, wide, tall, stride, from, 1, width as isize, to) };
            }
            let block = Block { group: bundle.group, rows, columns };
            // SAFETY: the sums are there; the block's outputs are this task's own.
            unsafe {
                if bundle.strands.len() == 1 {
                    return self.deliver(phase, &block, turned, stride);
                }
                self.scatter(phase, &block, turned, stride, (bundle.strands.len(), wide * stride));
            }
            Ok(())
        })
    }
}
