//! Products of one left operand with several right operands, each with its epilogue.
//!
//! The output is cut into tiles over all parts and batches, and tiles go to the threads. A tile's products are made by
//! the packed kernels ([`product`](super::product)), by those for few rows, or by the quantized ones, and its epilogue runs over them while they are in cache. The left operand is brought into rows once
//! where it is normalised or quantized, or of a type that the kernels do not read.

use std::cell::Cell;

use smallvec::SmallVec;
use tallow_graph::kernel::{Activations, ContractKernel, ContractPart, Layout, Operand, RowOp};
use tallow_graph::{DType, Error, Expr, Inst, Result};

use super::class::{Class, Num, with_class};
use super::exec::{slice, slice_mut};
use super::expr::Block;
use super::memory::Mem;
use super::norm::normalise;
use super::product::stored;
use super::scratch::{self, FirstError};
use super::step::StepRun;
use super::walk::{Bound, Nest, Walker, Words, bind, block_size, elements};
use crate::gemm::{Element, FEW, Few, Stored};
use crate::quant::{self, ActivationsQ8, TileMut};

/// Multiplications that are worth a thread's while.
const GRAIN: usize = 64 << 10;

thread_local! {
    /// Quantized activations, whose memory the next step uses again.
    static ACTS: Cell<ActivationsQ8> = Cell::new(ActivationsQ8::new());
}

/// A contraction, compiled.
#[derive(Debug)]
pub(crate) struct Contract {
    /// Of the accumulators.
    class: Class,
    /// Brings the left operand into the class.
    left: Block,
    parts: Vec<Part>,
    weight: Option<Block>,
    bias: Option<Block>,
}

#[derive(Debug)]
pub(super) struct Part {
    epilogue: Block,
    /// Brings the right operand into the class, where it is not quantized.
    pub right: Option<Block>,
}

/// The class that products of these are summed in; `None` where they do not go together.
fn class_of(left: DType, right: DType) -> Option<Class> {
    if right.is_quantized() {
        return (left.is_float() && left != DType::F64).then_some(Class::F32);
    }
    let (a, b) = (Class::of(left), Class::of(right));
    (a == b && !left.is_quantized()).then_some(a)
}

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &ContractKernel) -> bool {
    let classes = kernel.parts.iter().map(|part| class_of(kernel.left.1, part.right.1));
    let first = kernel.parts.first().and_then(|part| class_of(kernel.left.1, part.right.1));
    first.is_some()
        && classes.into_iter().all(|class| class == first)
        && kernel.batch <= 2
        && kernel
            .prologue
            .as_ref()
            .is_none_or(|p| first == Some(Class::F32) && matches!(p.op, RowOp::RmsNorm | RowOp::LayerNorm))
}

/// An expression that loads operand 0.
pub(crate) fn loader(dtype: DType, class: Class) -> Result<Block> {
    let to = if class == Class::F32 { DType::F32 } else { dtype };
    let mut expr = Expr::default();
    expr.push(Inst::Load(0), to);
    Block::compile(&expr, &[Operand { input: Some(0), dtype, layout: Layout::Strided }], None)
}

/// Compiles a contraction.
pub(crate) fn compile(kernel: &ContractKernel) -> Result<Contract> {
    let class = kernel.parts.first().and_then(|part| class_of(kernel.left.1, part.right.1));
    let class = class.ok_or_else(|| Error::msg("a product of dtypes that do not go together"))?;
    let acc = match class {
        Class::F32 => DType::F32,
        _ => kernel.left.1,
    };
    let parts = kernel.parts.iter().map(|part| {
        let right = if part.right.1.is_quantized() { None } else { Some(loader(part.right.1, class)?) };
        Ok(Part { epilogue: Block::compile(&part.epilogue, &part.operands, Some(acc))?, right })
    });
    let vector = |input: Option<(u8, DType)>| input.map(|(_, dtype)| loader(dtype, Class::F32)).transpose();
    let prologue = kernel.prologue.as_ref();
    Ok(Contract {
        class,
        left: loader(kernel.left.1, class)?,
        parts: parts.collect::<Result<_>>()?,
        weight: vector(prologue.and_then(|p| p.weight))?,
        bias: vector(prologue.and_then(|p| p.bias))?,
    })
}

/// The left operand as the products read it.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub at: *const u8,
    pub stored: Stored,
    /// Strides of the batch axes (of [`Job::batch`]), of a row and of k, in elements.
    pub batch: &'a [i64],
    pub row: i64,
    pub k: i64,
}

// SAFETY: an address that is only read while the step runs.
unsafe impl Sync for Left<'_> {}

/// One part's data.
pub(super) struct PartRun<'a> {
    pub kernel: &'a ContractPart,
    pub code: &'a Part,
    pub n: usize,
    /// The weight's bytes, and the row that it starts at, where it is quantized.
    weight: Mem,
    first_row: usize,
    pub right: Bound<'a>,
    /// Sizes of the epilogue's nest: batch, m, n.
    sizes: SmallVec<[i64; 4]>,
    operands: SmallVec<[Bound<'a>; 4]>,
    output: Bound<'a>,
    /// Rows, columns and batches of tiles, and the number of the first.
    tile_rows: usize,
    tile_cols: usize,
    pub batches: usize,
    rows: usize,
    first: usize,
}

impl PartRun<'_> {
    fn tiles(&self) -> (usize, usize) {
        (self.rows.div_ceil(self.tile_rows), self.n.div_ceil(self.tile_cols))
    }
}

pub(super) struct Job<'a> {
    pub step: &'a StepRun<'a>,
    pub class: Class,
    pub batch: &'a [i64],
    pub m: usize,
    pub k: usize,
    /// Parts that are computed by tiles of their own.
    parts: SmallVec<[PartRun<'a>; 1]>,
    tiles: usize,
    /// Parts for the packed kernels.
    dense: SmallVec<[PartRun<'a>; 1]>,
}

/// Runs a contraction.
pub(crate) fn run(step: &StepRun<'_>, kernel: &ContractKernel, code: &Contract) -> Result<()> {
    let axes = usize::from(kernel.batch);
    let mut words = Words(step.words);
    let batch = words.sizes(axes)?;
    let (m, k) = (words.size()?, words.size()?);
    let left_words = words.take(axes + 3)?;
    let norm_words = if kernel.prologue.is_some() { words.take(2)? } else { &[0, 0] };
    let left_sizes: SmallVec<[i64; 4]> = batch.iter().copied().chain([m as i64, k as i64]).collect();
    elements(&left_sizes)?;
    let left = bind(step.input(kernel.left.0)?, kernel.left.1, &left_sizes, left_words)?;
    let batches = elements(batch)?;

    // Whether products find the left operand's rows in one piece.
    let along = kernel.prologue.is_some() || !code.class.is_stored_as(kernel.left.1) || left.strides[axes + 1] == 1;
    let (parts, dense) = (SmallVec::new(), SmallVec::new());
    let mut job = Job { step, class: code.class, batch, m, k, parts, tiles: 0, dense };
    for (number, (part, code)) in kernel.parts.iter().zip(&code.parts).enumerate() {
        job.add(number, part, code, batches, along, &mut words)?;
    }
    if job.tiles == 0 && job.dense.is_empty() {
        return Ok(());
    }
    let any = |f: &dyn Fn(&ContractPart) -> bool| kernel.parts.iter().any(f);
    let quantized = any(&|part| part.right.1.is_quantized());
    let native = code.class.is_stored_as(kernel.left.1) && left.aligned;
    let (row, along) = (left.strides[axes], left.strides[axes + 1]);
    let in_rows = (along == 1 || k == 1) && (row == k as i64 || m == 1) && batches == 1;
    let packed = if job.tiles == 0 { stored(code.class, kernel.left.1) } else { native.then_some(Stored::Own) };
    if let (Some(stored), None, true) = (packed, &kernel.prologue, !quantized || in_rows) {
        let left = Left { at: left.at, stored, batch: &left.strides[..axes], row, k: if k == 1 { 1 } else { along } };
        return job.run(kernel, &left);
    }
    // Brought into rows: converted, normalised, or only in order.
    let size = code.class.size();
    let vector = (k * 4).next_multiple_of(64);
    let bytes = batches.checked_mul(m).and_then(|rows| rows.checked_mul(k)).and_then(|n| n.checked_mul(size));
    let bytes = bytes.ok_or_else(|| Error::msg("a product's left operand is too large"))?.next_multiple_of(64);
    scratch::with(scratch::STEP, bytes + 2 * vector, |memory| {
        let rows = Rows { at: memory, weight: None, bias: None };
        let rows = match &kernel.prologue {
            Some(prologue) => {
                let load = |input: Option<(u8, DType)>, block: &Option<Block>, word: usize, at: *mut u8| {
                    let (Some((input, dtype)), Some(block)) = (input, block) else { return Ok(None) };
                    let sizes = [k as i64];
                    let words = [norm_words[word], 1];
                    let bound = [bind(step.input(input)?, dtype, &sizes, &words)?];
                    let nest = Nest { isa: step.isa, block, sizes: &sizes, operands: &bound, scalars: &[] };
                    // SAFETY: `at` has room for `k` values, apart from the rest.
                    unsafe { copy_out(&nest, 0, k, at, 4)? };
                    Ok::<_, Error>(Some(at.cast_const()))
                };
                let (w, b) = (memory.wrapping_add(bytes), memory.wrapping_add(bytes + vector));
                Rows {
                    weight: load(prologue.weight, &code.weight, 0, w)?,
                    bias: load(prologue.bias, &code.bias, 1, b)?,
                    ..rows
                }
            }
            None => rows,
        };
        let nest = Nest { isa: step.isa, block: &code.left, sizes: &left_sizes, operands: &[left], scalars: &[] };
        let eps = if kernel.prologue.is_some() { step.scalar(0)?.to_f64() } else { 0.0 };
        let failed = FirstError::default();
        step.pool.run_ranges(batches * m, GRAIN / (4 * k).max(1), &|range| {
            for r in range {
                let to = rows.at().wrapping_add(r * k * size);
                // SAFETY: row `r` of the scratch memory is this task's own.
                failed.note(unsafe { copy_out(&nest, r * k, k, to, size) });
                if let Some(prologue) = &kernel.prologue {
                    // SAFETY: the row was just filled; weight and bias hold `k` values.
                    unsafe {
                        normalise::<f32>(step.isa, prologue.op, eps, to, to, k);
                        rows.finish(slice_mut(to, k));
                    }
                }
            }
        });
        failed.done()?;
        let strides: SmallVec<[i64; 2]> = match batch {
            [] => SmallVec::new(),
            [_] => SmallVec::from_slice(&[(m * k) as i64]),
            _ => SmallVec::from_slice(&[batch[1] * (m * k) as i64, (m * k) as i64]),
        };
        job.run(kernel, &Left { at: memory, stored: Stored::Own, batch: &strides, row: k as i64, k: 1 })
    })
}

/// The left operand's rows in scratch memory, with the prologue's vectors.
struct Rows {
    at: *mut u8,
    weight: Option<*const u8>,
    bias: Option<*const u8>,
}

// SAFETY: each task writes its own rows; the vectors are only read.
unsafe impl Sync for Rows {}

impl Rows {
    fn at(&self) -> *mut u8 {
        self.at
    }

    /// row * weight + bias.
    ///
    /// # Safety
    /// Weight and bias hold as many values as the row.
    unsafe fn finish(&self, row: &mut [f32]) {
        let n = row.len();
        if let Some(weight) = self.weight {
            // SAFETY: the caller's.
            row.iter_mut().zip(unsafe { slice::<f32>(weight, n) }).for_each(|(x, w)| *x *= w);
        }
        if let Some(bias) = self.bias {
            // SAFETY: the caller's.
            row.iter_mut().zip(unsafe { slice::<f32>(bias, n) }).for_each(|(x, b)| *x += b);
        }
    }
}

/// Elements `from..from + n` of a nest, to memory in their class of `size` bytes.
///
/// # Safety
/// `to` has room for them and nobody else uses it.
pub(crate) unsafe fn copy_out(nest: &Nest<'_>, from: usize, n: usize, to: *mut u8, size: usize) -> Result<()> {
    let block = block_size(nest.block, n);
    scratch::with(scratch::REGISTERS, Walker::scratch(nest.block, block), |registers| {
        // SAFETY: this call's scratch memory.
        let mut walker = unsafe { Walker::new(nest, registers, block)? };
        let mut done = 0;
        while done < n {
            let count = block.min(n - done);
            // SAFETY: inside the nest; the destination is the caller's.
            unsafe { walker.run(from + done, count, Some(to.wrapping_add(done * size))) };
            done += count;
        }
        Ok(())
    })
}

impl<'a> Job<'a> {
    /// Reads a part's words, and cuts its output into tiles.
    fn add(
        &mut self,
        number: usize,
        kernel: &'a ContractPart,
        code: &'a Part,
        batches: usize,
        along: bool,
        words: &mut Words<'a>,
    ) -> Result<()> {
        let (step, m, k) = (self.step, self.m, self.k);
        let axes = self.batch.len();
        let n = words.size()?;
        let sizes: SmallVec<[i64; 4]> = self.batch.iter().copied().chain([m as i64, n as i64]).collect();
        let total = elements(&sizes)?;
        let cols = if kernel.paired { n.checked_mul(2) } else { Some(n) };
        let cols = cols.ok_or_else(|| Error::msg("a product is too wide"))?;
        let right_words = words.take(axes + 3)?;
        let weight = step.input(kernel.right.0)?;
        let quantized = kernel.right.1.is_quantized();
        let right_sizes: SmallVec<[i64; 4]> = self.batch.iter().copied().chain([k as i64, cols as i64]).collect();
        elements(&right_sizes)?;
        let (right, first_row) = if quantized {
            let row = kernel.right.1.bytes_for(k).ok_or_else(|| {
                Error::msg(format!("rows of {k} elements are not whole blocks of {}", kernel.right.1))
            })?;
            let end = usize::try_from(right_words[0]).ok().and_then(|first| {
                first.checked_add(cols).and_then(|rows| rows.checked_mul(row)).filter(|&end| end <= weight.len)
            });
            let strides = &right_words[1..];
            let whole = strides[..axes].iter().all(|&s| s == 0) && strides[axes + 1] == k as i64;
            if end.is_none() || !whole && total > 0 {
                let what = format!("rows {}..+{cols} of a packed weight of {} bytes", right_words[0], weight.len);
                return Err(Error::msg(format!("a product reads {what}, which has no such whole rows of {k}")));
            }
            (Bound { at: weight.at, offset: 0, strides, aligned: true }, right_words[0] as usize)
        } else {
            (bind(weight, kernel.right.1, &right_sizes, right_words)?, 0)
        };
        let operands = step.bind(&kernel.operands, &sizes, words)?;
        let out = step.output_for(number, code.epilogue.dtype, total)?;
        let output = Bound { at: out.at, offset: 0, strides: &[], aligned: true };

        let (rows, batches) = if quantized { (batches * m, 1) } else { (m, batches) };
        let threads = step.pool.threads();
        let work = total.saturating_mul(k.max(1));
        let dense = match self.class {
            _ if quantized || k == 0 => false,
            Class::F32 | Class::F64 => {
                m > FEW || !self.is_few(kernel.right.1, &right, along) || self.pieces(kernel, &right, n).is_some()
            }
            _ => false,
        };
        let (tile_rows, tile_cols) = if work <= GRAIN || total == 0 || dense {
            (rows, n)
        } else if quantized {
            (rows, n.div_ceil(threads * 8).next_multiple_of(16).min((256 << 10) / rows.max(1)).max(16))
        } else if rows <= FEW {
            // Wide enough that a row of [k, n] is read in long runs.
            let least = if right.strides[axes] == 1 { (GRAIN / 4 / k.max(1)).max(16) } else { 256 };
            (rows, n.div_ceil(threads * 4).clamp(least, 4096))
        } else {
            // Of integers.
            let (mut a, mut b) = (rows.min(256), n.min(512));
            let tiles = |a: usize, b: usize| batches * rows.div_ceil(a) * n.div_ceil(b);
            while tiles(a, b) < 3 * threads && threads > 1 && a * b * k > 8 * GRAIN {
                if a > b { a = a.div_ceil(2) } else { b = b.div_ceil(2).next_multiple_of(16) }
            }
            (a, b)
        };
        let part = PartRun {
            kernel,
            code,
            n,
            weight,
            first_row,
            right,
            sizes,
            operands,
            output,
            tile_rows: tile_rows.max(1),
            tile_cols: tile_cols.clamp(1, n.max(1)),
            batches,
            rows,
            first: self.tiles,
        };
        if total > 0 && dense {
            self.dense.push(part);
        } else if total > 0 {
            let (a, b) = part.tiles();
            self.tiles += a * b * part.batches;
            self.parts.push(part);
        }
        Ok(())
    }

    /// Whether the kernels for few rows read this right operand.
    fn is_few(&self, dtype: DType, right: &Bound<'_>, along: bool) -> bool {
        let axes = self.batch.len();
        let converted = stored(self.class, dtype).is_none();
        right.strides[axes + 1] == 1 || along && (converted || right.strides[axes] == 1)
    }

    /// Runs all tiles.
    fn run(&self, kernel: &ContractKernel, left: &Left<'_>) -> Result<()> {
        for part in &self.dense {
            let pieces = if self.m <= FEW { self.pieces(part.kernel, &part.right, part.n) } else { None };
            match (self.class, pieces) {
                (Class::F64, Some(pieces)) => self.deep::<f64>(part, left, pieces)?,
                (_, Some(pieces)) => self.deep::<f32>(part, left, pieces)?,
                (Class::F64, None) => self.dense::<f64>(part, left)?,
                _ => self.dense::<f32>(part, left)?,
            }
        }
        if self.tiles == 0 {
            return Ok(());
        }
        let q8 =
            kernel.activations == Activations::Q8 && self.parts.iter().any(|part| part.kernel.right.1.is_quantized());
        let mut acts = ACTS.take();
        let result = (|| {
            if q8 && self.k > 0 {
                let rows = elements(self.batch)? * self.m;
                // SAFETY: quantized parts read a left operand in contiguous rows.
                acts.fill(self.step.isa, unsafe { slice(left.at, rows * self.k) }, self.k)?;
            }
            let failed = FirstError::default();
            let acts = q8.then_some(&acts);
            // Tiles are taken in turns, and weights that are read once are asked for ahead of time: so threads begin apart, and
            // each goes on where it was.
            let threads = self.step.pool.threads();
            let each = self.tiles.div_ceil(threads);
            self.step.pool.run(each * threads, &|turn| {
                let tile = turn % threads * each + turn / threads;
                if tile < self.tiles {
                    failed.note(self.tile(tile, left, acts));
                }
            });
            failed.done()
        })();
        ACTS.set(acts);
        result
    }

    fn tile(&self, tile: usize, left: &Left<'_>, acts: Option<&ActivationsQ8>) -> Result<()> {
        let part = &self.parts[self.parts.partition_point(|part| part.first <= tile) - 1];
        let (tall, wide) = part.tiles();
        let tile = tile - part.first;
        let (batch, tile) = (tile / (tall * wide), tile % (tall * wide));
        // Down the columns first: neighbours in time share the right operand.
        let (i, j) = (tile % tall * part.tile_rows, tile / tall * part.tile_cols);
        let (rows, cols) = (part.tile_rows.min(part.rows - i), part.tile_cols.min(part.n - j));
        let place = Place { batch, i, j, rows, cols };
        self.emit(part, &place, &|half, out, stride| {
            self.products(part, &place, half * part.n, left, acts, out, stride)
        })
    }

    /// A tile's results: `products` makes those of a half (of a pair; else of half 0) at an address with room for the tile,
    /// whose rows are so many values apart; the epilogue brings them to the output.
    pub(super) fn emit(
        &self,
        part: &PartRun<'_>,
        &Place { batch, i, j, rows, cols }: &Place,
        products: &dyn Fn(usize, *mut u8, usize) -> Result<()>,
    ) -> Result<()> {
        let epilogue = &part.code.epilogue;
        let size = self.class.size();
        // Where this tile starts in the nest of the epilogue.
        let at = |row: usize| (batch * self.m + i + row) * part.n + j;
        if epilogue.is_acc && !part.kernel.paired && self.class.is_stored_as(epilogue.dtype) {
            return products(0, part.output.at.wrapping_add(at(0) * size), part.n);
        }
        let one = (rows * cols * size).next_multiple_of(64);
        let block = block_size(epilogue, cols);
        scratch::with(scratch::TILE, one * if part.kernel.paired { 2 } else { 1 }, |memory| {
            products(0, memory, cols)?;
            if part.kernel.paired {
                products(1, memory.wrapping_add(one), cols)?;
            }
            scratch::with(scratch::REGISTERS, Walker::scratch(epilogue, block), |registers| {
                let nest = Nest {
                    isa: self.step.isa,
                    block: epilogue,
                    sizes: &part.sizes,
                    operands: &part.operands,
                    scalars: self.step.scalars,
                };
                // SAFETY: this call's scratch memory.
                let mut walker = unsafe { Walker::new(&nest, registers, block)? };
                for row in 0..rows {
                    let mut done = 0;
                    while done < cols {
                        let n = block.min(cols - done);
                        let acc = memory.wrapping_add((row * cols + done) * size);
                        walker.set_acc(0, acc);
                        walker.set_acc(1, acc.wrapping_add(if part.kernel.paired { one } else { 0 }));
                        // SAFETY: the accumulators hold the tile; its outputs are this task's own.
                        unsafe { walker.run_and_store(Layout::Linear, part.output, at(row) + done, n) };
                        done += n;
                    }
                }
                Ok(())
            })
        })
    }

    /// The products of one tile, to `out`, whose rows are `stride` values apart. `shift`: columns to the right of the
    /// tile's own, for the second half of a pair.
    #[allow(clippy::too_many_arguments, reason = "what a tile is made of")]
    fn products(
        &self,
        part: &PartRun<'_>,
        place: &Place,
        shift: usize,
        left: &Left<'_>,
        acts: Option<&ActivationsQ8>,
        out: *mut u8,
        stride: usize,
    ) -> Result<()> {
        let (k, isa) = (self.k, self.step.isa);
        let &Place { batch, i, j, rows, cols } = place;
        let j = j + shift;
        let dtype = part.kernel.right.1;
        if k == 0 {
            for row in 0..rows {
                let size = self.class.size();
                // SAFETY: the tile's own rows.
                unsafe { slice_mut::<u8>(out.wrapping_add(row * stride * size), cols * size) }.fill(0);
            }
            return Ok(());
        }
        let Some(loader) = &part.code.right else {
            let row = dtype.bytes_for(k).unwrap_or(0);
            // SAFETY: `add` checked the rows against the weight's bytes; the tile's floats are this task's own; the left
            // operand is in rows.
            unsafe {
                let weights = slice(part.weight.at.wrapping_add((part.first_row + j) * row), cols * row);
                let mut tile = TileMut::from_raw(out.cast(), rows, cols, stride);
                return match acts {
                    Some(acts) => quant::tile_q8(isa, dtype, weights, acts, &mut tile),
                    None => quant::tile_f32(isa, dtype, weights, k, slice(left.at, rows * k), &mut tile),
                };
            }
        };
        let axes = self.batch.len();
        let index = self.batch_index(batch);
        let from = |strides: &[i64]| -> i64 { index.iter().zip(strides).map(|(&i, &stride)| i * stride).sum() };
        let size = self.class.size() as i64;
        let left_at = left.at.wrapping_offset(((from(left.batch) + i as i64 * left.row) * size) as isize);
        let (by_k, by_n) = (part.right.strides[axes], part.right.strides[axes + 1]);
        let a = Matrix { at: left_at, row: left.row, col: left.k };
        if let Some(stored) = stored(self.class, dtype) {
            let offset = (from(part.right.strides) + j as i64 * by_n) * dtype.size_in_bytes() as i64;
            let b = Matrix { at: part.right.at.wrapping_offset(offset as isize), row: by_k, col: by_n };
            // SAFETY: `bind` checked both operands; the tile is this task's own.
            unsafe { self.few(a, (b, stored), part.n, out, stride, rows, cols) };
            return Ok(());
        }
        // Converted for the tile, in the order in which it lies.
        let transposed = by_k == 1 || k == 1;
        let bound = [part.right];
        let turned: SmallVec<[i64; 4]>;
        let sizes: SmallVec<[i64; 4]>;
        let cols_all = if part.kernel.paired { 2 * part.n } else { part.n };
        let batch_sizes = self.batch.iter().copied();
        let (bound, outer, inner, n_inner) = if transposed {
            sizes = batch_sizes.chain([cols_all as i64, k as i64]).collect();
            turned = part.right.strides[..axes].iter().copied().chain([by_n, by_k]).collect();
            ([Bound { strides: &turned, ..part.right }], cols, k, k)
        } else {
            sizes = batch_sizes.chain([k as i64, cols_all as i64]).collect();
            (bound, k, cols, cols_all)
        };
        let nest = Nest { isa, block: loader, sizes: &sizes, operands: &bound, scalars: &[] };
        let element = self.class.size();
        scratch::with(scratch::CONVERTED, k * cols * element, |memory| {
            let first = if transposed { j * k } else { j };
            for row in 0..outer {
                let from = batch * k * cols_all + first + row * n_inner;
                // SAFETY: row `row` of this call's scratch memory.
                unsafe { copy_out(&nest, from, inner, memory.wrapping_add(row * inner * element), element)? };
            }
            let (row, col) = if transposed { (1, k as i64) } else { (cols as i64, 1) };
            let b = (Matrix { at: memory, row, col }, Stored::Own);
            // SAFETY: the scratch memory holds the tile of the right operand.
            unsafe { self.few(a, b, part.n, out, stride, rows, cols) };
            Ok(())
        })
    }

    /// The position in the batch axes.
    pub(super) fn batch_index(&self, batch: usize) -> [i64; 2] {
        match *self.batch {
            [_, inner] if inner > 0 => [batch as i64 / inner, batch as i64 % inner],
            _ => [batch as i64, 0],
        }
    }

    /// `out` = a (`rows x k`) by b (`k x cols`, of `n` columns in all).
    ///
    /// # Safety
    /// The matrices lie inside memory that nobody writes; `out` has `rows` rows of `cols` values, `stride` apart, that
    /// nobody else uses. Of floats there are at most [`FEW`] rows, and `is_few` holds.
    #[allow(clippy::too_many_arguments, reason = "a product's operands")]
    unsafe fn few(
        &self,
        a: Matrix,
        (b, stored): (Matrix, Stored),
        n: usize,
        out: *mut u8,
        stride: usize,
        rows: usize,
        cols: usize,
    ) {
        let k = self.k;
        match self.class {
            // SAFETY: the caller's.
            Class::F32 => unsafe { self.few_floats::<f32>(a, (b, stored), n, out, stride, rows, cols) },
            // SAFETY: the caller's.
            Class::F64 => unsafe { self.few_floats::<f64>(a, (b, stored), n, out, stride, rows, cols) },
            class => with_class!(class, T => {
                for i in 0..rows {
                    // SAFETY: the caller's.
                    let y: &mut [T] = unsafe { slice_mut(out.wrapping_add(i * stride * size_of::<T>()), cols) };
                    y.fill(T::default());
                    for l in 0..k {
                        // SAFETY: the caller's.
                        let x = unsafe { a.offset(i, l, size_of::<T>()).cast::<T>().read() };
                        for (j, y) in y.iter_mut().enumerate() {
                            // SAFETY: the caller's.
                            *y = y.add(x.mul(unsafe { b.offset(l, j, size_of::<T>()).cast::<T>().read() }));
                        }
                    }
                }
            }),
        }
    }

    /// # Safety
    /// As [`Job::few`].
    #[allow(clippy::too_many_arguments, reason = "a product's operands")]
    unsafe fn few_floats<T: Element>(
        &self,
        a: Matrix,
        (b, stored): (Matrix, Stored),
        n: usize,
        out: *mut u8,
        stride: usize,
        rows: usize,
        cols: usize,
    ) {
        // By columns where they are dot products; where rows lie in one piece too, by the longer way.
        let by_columns = b.row == 1 && a.col == 1 && (b.col != 1 || self.k >= n);
        let few = Few {
            depth: self.k,
            cols,
            left: a.at.cast::<T>(),
            row: a.row as isize,
            along: a.col as isize,
            right: b.at,
            step: if by_columns { b.col } else { b.row } as isize,
            out: out.cast(),
            stride,
        };
        // SAFETY: the caller's.
        unsafe { T::kernel(self.step.isa).few(stored, rows, by_columns, few) };
    }
}

/// A tile: batch, first row and column, rows and columns.
pub(super) struct Place {
    pub batch: usize,
    pub i: usize,
    pub j: usize,
    pub rows: usize,
    pub cols: usize,
}

/// An address and two strides, in elements.
#[derive(Clone, Copy)]
struct Matrix {
    at: *const u8,
    row: i64,
    col: i64,
}

impl Matrix {
    fn offset(&self, i: usize, j: usize, size: usize) -> *const u8 {
        self.at.wrapping_offset((i as i64 * self.row + j as i64 * self.col) as isize * size as isize)
    }
}
