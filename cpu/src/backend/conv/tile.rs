//! The products of a convolution, and what becomes of their tiles.
//!
//! For each phase and group the output is a product: filters [output channels, depth] by patches [depth, positions of all
//! samples]. Its tiles are computed as matrix products are ([`crate::gemm`]), with patches packed straight from the input.
//! Where there are few positions, and they would leave parts of vectors unused, the product is turned: patches become the
//! left operand, and output channels lie along the vectors.

use tallow_graph::Result;
use tallow_graph::kernel::Layout;

use super::geometry::{Geometry, Phase};
use super::patches::{Filters, positions, runs, taps};
use super::planes::{Planes, copy_run, weave};
use super::{Memory, Output, Source};
use crate::backend::class::Num;
use crate::backend::scratch::{self, FirstError};
use crate::backend::step::StepRun;
use crate::backend::walk::{Bound, Nest, Walker, block_size};
use crate::gemm::{Cut, Element, Kernel, Product, Stored, Strip, Tile};

/// Multiplications of a product that is worth all threads by itself.
const LARGE: usize = 4 << 20;

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
    /// Patches are read as they lie: all of them are there, and positions along the last axis follow one another.
    pub direct: bool,
    /// Positions lie in the input as in the output, one after the other, and the processor has vectors with masks.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AVX-512 has such loads"))]
    pub masked: bool,
    pub planes: Planes<T>,
    pub filter: Source<T>,
    pub output: &'a Output<'a, T>,
}

/// The products of a phase, one a group.
pub(super) struct Part<'a> {
    pub phase: &'a [Phase; 3],
    pub filters: Filters,
    /// Positions of all samples.
    pub columns: usize,
    pub depth: usize,
    /// Patches are the left operand.
    turned: bool,
}

/// Some output channels by some columns of a product.
pub(super) struct Block {
    pub group: usize,
    pub rows: (usize, usize),
    pub columns: (usize, usize),
}

impl<T: Num + Element> Job<'_, T> {
    /// Runs all products.
    pub fn run(&self) -> Result<()> {
        let Geometry { samples, groups, channels, outputs, .. } = *self.geometry;
        let kernel = T::kernel(self.step.isa);
        let threads = self.step.pool.threads();
        let parts: Vec<Part<'_>> = self
            .phases
            .iter()
            .map(|phase| {
                let (columns, depth) = (samples * positions(phase), channels * taps(phase));
                let filters = self.filters(phase);
                Part { phase, filters, columns, depth, turned: turned(kernel, outputs, columns) }
            })
            .filter(|part| part.columns > 0 && outputs > 0)
            .collect();
        let sizes = |part: &Part<'_>| {
            if part.turned { (part.columns, outputs, part.depth) } else { (outputs, part.columns, part.depth) }
        };
        let failed = FirstError::default();
        let large = |part: &Part<'_>| outputs.saturating_mul(part.columns).saturating_mul(part.depth) >= LARGE;
        let alone = parts.len() * groups == 1 || parts.iter().all(large);
        if alone && self.direct {
            for group in 0..groups {
                self.run_direct(kernel, &parts, group, &failed)?;
            }
            return failed.done();
        }
        if alone {
            for part in &parts {
                let cut = Cut::tall(kernel, sizes(part), threads);
                for group in 0..groups {
                    self.large(kernel, part, group, cut, &failed)?;
                }
            }
            return failed.done();
        }
        // Many small products: each is one thread's.
        let cuts: Vec<Cut> = parts.iter().map(|part| Cut::new(kernel, sizes(part), 1, threads, true)).collect();
        let mut ends: Vec<usize> = Vec::with_capacity(cuts.len());
        let mut total = 0;
        for cut in &cuts {
            total += cut.tiles() * groups;
            ends.push(total);
        }
        self.step.pool.run_ranges(total, 1, &|range| {
            for at in range {
                let number = ends.partition_point(|&end| end <= at);
                let (cut, part) = (&cuts[number], &parts[number]);
                let at = at - if number > 0 { ends[number - 1] } else { 0 };
                let group = at / cut.tiles();
                let left = |strip: Strip, to: *mut T| self.pack(kernel, part, group, part.turned, strip, to);
                let right = |strip: Strip, to: *mut T| self.pack(kernel, part, group, !part.turned, strip, to);
                let product = Product::alone(kernel, *cut, &left, &right);
                failed.note(self.tile(kernel, part, group, &product, &cut.tile(at % cut.tiles())));
            }
        });
        failed.done()
    }

    /// One product on all threads: the left operand is packed first, the right one by each tile.
    fn large(
        &self,
        kernel: &'static Kernel<T>,
        part: &Part<'_>,
        group: usize,
        cut: Cut,
        failed: &FirstError,
    ) -> Result<()> {
        let bytes = cut.left_len(kernel).and_then(|n| n.checked_mul(size_of::<T>())).ok_or_else(super::too_large)?;
        scratch::with(scratch::CONVERTED, bytes, |memory| {
            let memory = Memory(memory);
            let pool = self.step.pool;
            pool.run_ranges(cut.left_strips(), 2, &|range| {
                for number in range {
                    let (strip, place) = cut.left_strip(kernel, number);
                    let to = memory.at().cast::<T>().wrapping_add(place);
                    failed.note(self.pack(kernel, part, group, part.turned, strip, to));
                }
            });
            let right = |strip: Strip, to: *mut T| self.pack(kernel, part, group, !part.turned, strip, to);
            // SAFETY: all strips were packed.
            let product = unsafe { Product::of_packed(kernel, cut, memory.at().cast_const().cast(), &right) };
            pool.run(cut.tiles(), &|at| failed.note(self.tile(kernel, part, group, &product, &cut.tile(at))));
            Ok(())
        })
    }

    /// Packs a strip of patches or of filters.
    fn pack(
        &self,
        kernel: &Kernel<T>,
        part: &Part<'_>,
        group: usize,
        patches: bool,
        strip: Strip,
        to: *mut T,
    ) -> Result<()> {
        // SAFETY: strips are parts of the product that was cut; their panels are their own.
        unsafe {
            if patches {
                self.pack_patches(part.phase, group, strip, to);
            } else {
                self.pack_filters(kernel, &part.filters, group, strip, to);
            }
        }
        Ok(())
    }

    /// A tile of a product, brought to the output.
    fn tile(
        &self,
        kernel: &Kernel<T>,
        part: &Part<'_>,
        group: usize,
        product: &Product<'_, T>,
        tile: &Tile,
    ) -> Result<()> {
        let (vertical, horizontal) = ((tile.i, tile.i + tile.tall), (tile.j, tile.j + tile.wide));
        let (rows, columns) = if part.turned { (horizontal, vertical) } else { (vertical, horizontal) };
        let block = Block { group, rows, columns };
        let all = positions(part.phase);
        let one_sample = columns.0 / all == (columns.1 - 1) / all;
        if !part.turned && self.output.plain && self.output.whole && one_sample && part.depth > 0 {
            let to = self.output.sums.wrapping_add(self.place(&block, all, 0, columns.0));
            // SAFETY: the tile's own outputs.
            return unsafe { product.products(tile, 0, to, all) };
        }
        let stride = if part.turned { tile.tall.next_multiple_of(16) } else { tile.wide };
        let second = if part.turned { stride * tile.wide.next_multiple_of(16) } else { 0 };
        scratch::with(scratch::TILE, (tile.tall * tile.wide + second) * size_of::<T>(), |memory| {
            let sums = memory.cast::<T>();
            // SAFETY: this call's own memory, for all that follows.
            unsafe {
                if part.depth == 0 {
                    std::slice::from_raw_parts_mut(sums, tile.tall * tile.wide + second).fill(T::default());
                    return self.deliver(part.phase, &block, sums, stride);
                }
                product.products(tile, 0, sums, tile.wide)?;
                if !part.turned {
                    return self.deliver(part.phase, &block, sums, stride);
                }
                let rows = sums.add(tile.tall * tile.wide);
                let (tall, wide) = (tile.tall, tile.wide);
                kernel.pack(Stored::Own, wide, tall, stride, sums.cast_const().cast(), 1, wide as isize, rows);
                self.deliver(part.phase, &block, rows, stride)
            }
        })
    }

    /// Where output `column` of a block's row lies, if there is one phase of `all` positions.
    fn place(&self, block: &Block, all: usize, row: usize, column: usize) -> usize {
        let Geometry { groups, outputs, .. } = *self.geometry;
        ((column / all * groups + block.group) * outputs + block.rows.0 + row) * all + column % all
    }

    /// Brings a block's sums, whose rows are `stride` apart, to the output.
    ///
    /// # Safety
    /// The sums are there; the block's outputs are this task's own.
    pub(super) unsafe fn deliver(
        &self,
        phase: &[Phase; 3],
        block: &Block,
        sums: *const T,
        stride: usize,
    ) -> Result<()> {
        let output = self.output;
        let all = positions(phase);
        let rows = block.rows.1 - block.rows.0;
        if !output.whole {
            // SAFETY: the caller's.
            unsafe { self.scatter(phase, block, sums, stride, (1, 0)) };
            return Ok(());
        }
        // Runs of one sample: first column, length.
        let each = |f: &mut dyn FnMut(usize, *const T, usize)| {
            for row in 0..rows {
                let mut at = block.columns.0;
                while at < block.columns.1 {
                    let len = (all - at % all).min(block.columns.1 - at);
                    let from = sums.wrapping_add(row * stride + at - block.columns.0);
                    f(self.place(block, all, row, at), from, len);
                    at += len;
                }
            }
        };
        if output.plain {
            // SAFETY: the caller's.
            each(&mut |to, from, len| unsafe { copy_run(from, output.sums.add(to), len) });
            return Ok(());
        }
        output.epilogue(self.step, block.columns.1 - block.columns.0, |walk| {
            // SAFETY: the caller's.
            each(&mut |to, from, len| unsafe { walk.row(to, from, len) });
        })
    }

    /// Brings sums to their places, which lie apart; those of `strands` phases, `apart` from one another, whose places follow
    /// one another.
    ///
    /// # Safety
    /// As [`Job::deliver`], for each phase.
    pub(super) unsafe fn scatter(
        &self,
        phase: &[Phase; 3],
        block: &Block,
        sums: *const T,
        stride: usize,
        (strands, apart): (usize, usize),
    ) {
        let Geometry { groups, outputs, axes, .. } = *self.geometry;
        let runs = runs(phase, block.columns);
        let every = phase[2].every;
        for row in block.rows.0..block.rows.1 {
            let mut from = sums.wrapping_add((row - block.rows.0) * stride);
            for run in &runs {
                let mut at = (run.sample * groups + block.group) * outputs + row;
                for axis in 0..3 {
                    at = at * axes[axis].out as usize + phase[axis].first + run.position[axis] * phase[axis].every;
                }
                let to = self.output.sums.wrapping_add(at);
                // SAFETY: the caller's; the places are inside the output.
                unsafe {
                    if (strands, every) == (2, 2) {
                        weave(from, from.wrapping_add(apart), to, run.len);
                    } else {
                        for i in 0..run.len {
                            for strand in 0..strands {
                                to.add(i * every + strand).write(from.add(strand * apart + i).read());
                            }
                        }
                    }
                }
                from = from.wrapping_add(run.len);
            }
        }
    }
}

/// Whether a product is better turned: the columns leave a good part of a vector unused, and the output channels do not.
fn turned<T>(kernel: &Kernel<T>, outputs: usize, columns: usize) -> bool {
    let lanes = kernel.lanes();
    let unused = |n: usize| n.next_multiple_of(lanes) - n;
    unused(columns) * 25 > columns && unused(outputs) * columns < unused(columns) * outputs && outputs >= 2 * lanes
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
