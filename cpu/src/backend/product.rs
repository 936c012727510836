//! The dense float products of a contraction: its operands as strips that the packed kernels ask for.

use smallvec::SmallVec;
use tallow_graph::kernel::ContractPart;
use tallow_graph::{DType, Error, Result};

use super::class::{Class, Num};
use super::contract::{Job, Left, PartRun, Place, copy_out};
use super::exec::{slice, slice_mut};
use super::scratch::{self, FirstError};
use super::walk::{Bound, Nest};
use crate::gemm::{Cut, Element, Few, Kernel, Product, Stored, Strip};

/// Multiplications of one product of a batch up to which a thread computes it alone.
const ALONE: usize = 16 << 20;

/// Elements of a right operand from which few rows are multiplied by pieces of the depth, and those of all pieces' sums.
const DEEP: (usize, usize) = (1 << 20, 1 << 20);

/// How elements of `dtype` are stored for products in `class`, if they can be packed as they are.
pub(super) fn stored(class: Class, dtype: DType) -> Option<Stored> {
    match dtype {
        _ if class.is_stored_as(dtype) => Some(Stored::Own),
        DType::F16 if class == Class::F32 => Some(Stored::F16),
        DType::BF16 if class == Class::F32 => Some(Stored::BF16),
        _ => None,
    }
}

/// One product of a batch.
struct Unit<'u, 'a, T: 'static> {
    kernel: &'static Kernel<T>,
    job: &'u Job<'a>,
    part: &'u PartRun<'a>,
    left: &'u Left<'u>,
    batch: usize,
    /// Of the batch, in elements.
    left_offset: i64,
    right_offset: i64,
}

impl<T: Num> Unit<'_, '_, T> {
    fn pack_left(&self, strip: Strip, to: *mut T) -> Result<()> {
        let left = self.left;
        let offset = self.left_offset + strip.at as i64 * left.row + strip.from as i64 * left.k;
        let at = left.at.wrapping_offset(offset as isize * left.stored.size::<T>() as isize);
        // SAFETY: `bind` checked the operand; `Product` gives room for the strip. Halves are read for f32 only.
        unsafe {
            let (along, across) = (left.k as isize, left.row as isize);
            self.kernel.pack(left.stored, strip.depth, strip.width, strip.step, at, along, across, to);
        }
        Ok(())
    }

    fn pack_right(&self, strip: Strip, to: *mut T) -> Result<()> {
        let (job, right) = (self.job, &self.part.right);
        let axes = job.batch.len();
        let (by_k, by_n) = (right.strides[axes], right.strides[axes + 1]);
        let Strip { at, width, from, depth, step } = strip;
        if let Some(stored) = stored(job.class, self.part.kernel.right.1) {
            let offset = self.right_offset + at as i64 * by_n + from as i64 * by_k;
            let from = right.at.cast_const().wrapping_offset(offset as isize * stored.size::<T>() as isize);
            // SAFETY: as above.
            unsafe { self.kernel.pack(stored, depth, width, step, from, by_k as isize, by_n as isize, to) };
            return Ok(());
        }
        let Some(loader) = &self.part.code.right else { return Ok(()) };
        // Converted first, as columns of the strip's depth.
        let cols = self.part.n * if self.part.kernel.paired { 2 } else { 1 };
        let sizes: SmallVec<[i64; 4]> = job.batch.iter().copied().chain([cols as i64, job.k as i64]).collect();
        let turned: SmallVec<[i64; 4]> = right.strides[..axes].iter().copied().chain([by_n, by_k]).collect();
        let bound = [Bound { strides: &turned, ..*right }];
        let nest = Nest { isa: job.step.isa, block: loader, sizes: &sizes, operands: &bound, scalars: &[] };
        let size = size_of::<T>();
        scratch::with(scratch::CONVERTED, width * depth * size, |memory| {
            for col in 0..width {
                let first = (self.batch * cols + at + col) * job.k + from;
                // SAFETY: column `col` of this call's scratch memory.
                unsafe { copy_out(&nest, first, depth, memory.wrapping_add(col * depth * size), size)? };
            }
            // SAFETY: the columns were just written; `Product` gives room for the strip.
            unsafe { self.kernel.pack(Stored::Own, depth, width, step, memory.cast_const(), 1, depth as isize, to) };
            Ok(())
        })
    }
}

impl<'a> Job<'a> {
    /// A part's products, each with its epilogue.
    pub(super) fn dense<T: Num + Element>(&self, part: &PartRun<'a>, left: &Left<'_>) -> Result<()> {
        let kernel = T::kernel(self.step.isa);
        let (pool, threads) = (self.step.pool, self.step.pool.threads());
        let axes = self.batch.len();
        // One right operand for a batch whose rows follow one another: one product of all rows.
        let mut rows = self.m as i64;
        let mut merge = part.right.strides[..axes].iter().all(|&stride| stride == 0);
        for (&size, &stride) in self.batch.iter().zip(left.batch).rev() {
            merge &= size == 1 || stride == rows * left.row;
            rows *= size;
        }
        let (m, batches) = if merge { (part.batches * self.m, 1) } else { (self.m, part.batches) };
        let halves = if part.kernel.paired { 2 } else { 1 };
        let work = m.saturating_mul(part.n).saturating_mul(self.k);
        let alone = batches >= 4 * threads && work <= ALONE;
        let cut = Cut::new(kernel, (m, part.n, self.k), halves, threads, alone);
        let tiles = cut.tiles();
        let unit = |batch: usize| {
            let index = self.batch_index(batch);
            let from = |strides: &[i64]| -> i64 { index.iter().zip(strides).map(|(&i, &stride)| i * stride).sum() };
            let (left_offset, right_offset) = (from(left.batch), from(&part.right.strides[..axes]));
            Unit { kernel, job: self, part, left, batch, left_offset, right_offset }
        };
        let failed = FirstError::default();
        let tile = |product: &Product<'_, T>, batch: usize, number: usize| {
            let tile = cut.tile(number);
            let place = Place { batch, i: tile.i, j: tile.j, rows: tile.tall, cols: tile.wide };
            failed.note(self.emit(part, &place, &|half, out, stride| {
                // SAFETY: `emit` gives room for the tile.
                unsafe { product.products(&tile, half, out.cast(), stride) }
            }));
        };
        if alone {
            pool.run(batches * tiles, &|number| {
                let unit = unit(number / tiles);
                let (left, right) =
                    (|s: Strip, to: *mut T| unit.pack_left(s, to), |s: Strip, to: *mut T| unit.pack_right(s, to));
                tile(&Product::alone(kernel, cut, &left, &right), unit.batch, number % tiles);
            });
        } else {
            for batch in 0..batches {
                let unit = unit(batch);
                let (left, right) =
                    (|s: Strip, to: *mut T| unit.pack_left(s, to), |s: Strip, to: *mut T| unit.pack_right(s, to));
                Product::shared(kernel, cut, &left, &right, |product| {
                    pool.run(tiles, &|number| tile(product, batch, number));
                    Ok(())
                })?;
            }
        }
        failed.done()
    }

    /// Into how many pieces of the depth the product of a few rows is cut, where the right operand's rows lie in one piece:
    /// each thread then reads memory in its order, not a part of every row. By the shapes alone, since sums depend on it.
    pub(super) fn pieces(&self, kernel: &ContractPart, right: &Bound<'_>, n: usize) -> Option<usize> {
        let axes = self.batch.len();
        let cols = n.saturating_mul(if kernel.paired { 2 } else { 1 });
        let rows = right.strides[axes] != 1 && right.strides[axes + 1] == 1;
        let deep = rows && stored(self.class, kernel.right.1).is_some() && cols.saturating_mul(self.k) >= DEEP.0;
        let pieces = (DEEP.1 / (self.m * cols).max(1)).min(self.k / 128).min(16);
        (deep && pieces >= 4).then_some(pieces)
    }

    /// A part's products of few rows, by pieces of the depth, each with its epilogue.
    pub(super) fn deep<T: Num + Element>(&self, part: &PartRun<'a>, left: &Left<'_>, pieces: usize) -> Result<()> {
        let (kernel, pool, m, n) = (T::kernel(self.step.isa), self.step.pool, self.m, part.n);
        let Some(stored) = stored(self.class, part.kernel.right.1) else { return Ok(()) };
        let axes = self.batch.len();
        let cols = n * if part.kernel.paired { 2 } else { 1 };
        let depth = self.k.div_ceil(pieces);
        let pieces = self.k.div_ceil(depth);
        let size = size_of::<T>();
        let bytes = (m * cols).checked_mul(pieces * size);
        let bytes = bytes.ok_or_else(|| Error::msg("a product of few rows is too large"))?;
        let wide = n.div_ceil(4 * self.step.pool.threads()).next_multiple_of(64);
        let failed = FirstError::default();
        scratch::with(scratch::PACKED, bytes, |memory| {
            let sums = Sums(memory.cast::<T>());
            for batch in 0..part.batches {
                let index = self.batch_index(batch);
                let from = |strides: &[i64]| -> i64 { index.iter().zip(strides).map(|(&i, &stride)| i * stride).sum() };
                let (left_offset, right_offset) = (from(left.batch), from(&part.right.strides[..axes]));
                let step = part.right.strides[axes];
                let (x, w) = (Sums(left.at.cast_mut().cast::<T>()), &part.right);
                pool.run(pieces, &|piece| {
                    let first = piece * depth;
                    let offset = (right_offset + first as i64 * step) as isize * stored.size::<T>() as isize;
                    let few = Few {
                        depth: depth.min(self.k - first),
                        cols,
                        left: x.at().cast_const().wrapping_offset((left_offset + first as i64 * left.k) as isize),
                        row: left.row as isize,
                        along: left.k as isize,
                        right: w.at().cast_const().wrapping_offset(offset),
                        step: step as isize,
                        out: sums.at().wrapping_add(piece * m * cols),
                        stride: cols,
                    };
                    // SAFETY: `bind` checked the operands; the piece's sums are this task's own.
                    unsafe { kernel.few(stored, m, false, few) };
                });
                pool.run(n.div_ceil(wide), &|number| {
                    let j = number * wide;
                    let place = Place { batch, i: 0, j, rows: m, cols: wide.min(n - j) };
                    failed.note(self.emit(part, &place, &|half, out, stride| {
                        for row in 0..m {
                            let from = sums.at().cast_const().wrapping_add(row * cols + half * n + j).cast::<u8>();
                            // SAFETY: all pieces' sums are there; `emit` gives room for the tile.
                            unsafe {
                                let out = slice_mut::<T>(out.wrapping_add(row * stride * size), place.cols);
                                out.copy_from_slice(slice(from, place.cols));
                                for piece in 1..pieces {
                                    let more: &[T] = slice(from.wrapping_add(piece * m * cols * size), place.cols);
                                    out.iter_mut().zip(more).for_each(|(sum, &x)| *sum = sum.add(x));
                                }
                            }
                        }
                        Ok(())
                    }));
                });
            }
            Ok(())
        })?;
        failed.done()
    }
}

/// An address that threads share: each uses its own part of what lies there, or all only read it.
#[derive(Clone, Copy)]
struct Sums<T>(*mut T);

// SAFETY: see the type.
unsafe impl<T> Sync for Sums<T> {}

impl<T> Sums<T> {
    /// The address. (A closure that names the field would capture the bare pointer.)
    fn at(&self) -> *mut T {
        self.0
    }
}
