//! Fused element-wise work: an expression over a loop nest, block by block, on all threads.

use smallvec::SmallVec;
use tallow_graph::kernel::{Layout, MapKernel};
use tallow_graph::{Error, Result};

use super::expr::{Block, Code, Op};
use super::scratch::FirstError;
use super::step::StepRun;
use super::walk::{Bound, Nest, Words, bind, elements, run_range};

/// Elements that are worth a thread's while, for an expression of one instruction.
const GRAIN: usize = 32 << 10;

/// Compiles the parts of a map.
pub(crate) fn compile(kernel: &MapKernel) -> Result<Vec<Block>> {
    kernel.parts.iter().map(|part| Block::compile_map(&part.expr, &part.operands)).collect()
}

struct Part<'a> {
    nest: Nest<'a>,
    layout: Layout,
    output: Bound<'a>,
    elements: usize,
    /// Elements of a piece, and the number of the part's first piece.
    piece: usize,
    first: usize,
}

/// Runs a map.
pub(crate) fn run(step: &StepRun<'_>, kernel: &MapKernel, blocks: &[Block]) -> Result<()> {
    let mut words = Words(step.words);
    let mut sizes: SmallVec<[(&[i64], usize); 1]> = SmallVec::new();
    let mut outputs: SmallVec<[Bound<'_>; 1]> = SmallVec::new();
    let mut operands: SmallVec<[SmallVec<[Bound<'_>; 4]>; 1]> = SmallVec::new();
    for (n, part) in kernel.parts.iter().enumerate() {
        let axes = words.sizes(usize::from(part.rank))?;
        let dtype = part.expr.dtype().ok_or_else(|| Error::msg("a map without an expression"))?;
        outputs.push(bind(step.output(n)?, dtype, axes, words.take(axes.len() + 1)?)?);
        operands.push(step.bind(&part.operands, axes, &mut words)?);
        sizes.push((axes, elements(axes)?));
    }
    let mut pieces = 0;
    let mut parts: SmallVec<[Part<'_>; 1]> = SmallVec::new();
    for (n, (part, block)) in kernel.parts.iter().zip(blocks).enumerate() {
        let (sizes, elements) = sizes[n];
        let nest = Nest { isa: step.isa, block, sizes, operands: &operands[n], scalars: step.scalars };
        // Longer code makes an element dearer; a few pieces a thread even out what the threads get.
        let grain = (GRAIN / block.code.len().max(1)).max(2048);
        let count = (elements / grain).clamp(1, 4 * step.pool.threads());
        let piece = elements.div_ceil(count).next_multiple_of(64);
        parts.push(Part { nest, layout: part.output, output: outputs[n], elements, piece, first: pieces });
        pieces += elements.div_ceil(piece.max(1));
    }
    if let [part] = parts.as_slice()
        && let Some(turn) = Transpose::of(part)
    {
        // SAFETY: the engine gives a step no output that is one of its inputs, and runs one step at a time.
        step.pool.run_ranges(turn.bands(), (GRAIN / turn.cols / TILE).max(1), &|bands| unsafe { turn.run(bands) });
        return Ok(());
    }
    if let ([part], 1) = (parts.as_slice(), pieces) {
        // SAFETY: the engine gives a step no output that is one of its inputs, and runs one step at a time.
        return unsafe { run_range(&part.nest, part.layout, part.output, 0, part.elements) };
    }
    let failed = FirstError::default();
    step.pool.run(pieces, &|piece| {
        let part = &parts[parts.partition_point(|part| part.first <= piece) - 1];
        let from = (piece - part.first) * part.piece;
        let to = (from + part.piece).min(part.elements);
        // SAFETY: as above; pieces of a part write different elements, parts different outputs.
        failed.note(unsafe { run_range(&part.nest, part.layout, part.output, from, to) });
    });
    failed.done()
}

/// Elements along each side of a tile that is turned at once.
const TILE: usize = 16;

/// A copy whose source lies in order along the last axis but one: a transposition. Read along either axis alone, it
/// would touch a cache line for each element.
struct Transpose<'a> {
    part: &'a Part<'a>,
    source: Bound<'a>,
    size: usize,
    rows: usize,
    cols: usize,
}

impl<'a> Transpose<'a> {
    fn of(part: &'a Part<'a>) -> Option<Self> {
        let block = part.nest.block;
        let ([Code { op: Op::Copy, .. }], [load]) = (block.code.as_slice(), block.loads.as_slice()) else {
            return None;
        };
        let source = *part.nest.operands.get(usize::from(load.operand))?;
        let axes = part.nest.sizes.len();
        if part.layout != Layout::Linear || axes < 2 || load.input.is_none() || load.layout != Layout::Strided {
            return None;
        }
        let (rows, cols) = (part.nest.sizes[axes - 2] as usize, part.nest.sizes[axes - 1] as usize);
        let turned = source.strides[axes - 2] == 1 && !matches!(source.strides[axes - 1], 0 | 1);
        let whole = source.aligned && load.class.is_stored_as(load.dtype) && load.dtype == block.dtype;
        let size = load.class.size();
        (turned && whole && rows >= TILE && cols >= TILE).then_some(Self { part, source, size, rows, cols })
    }

    /// Bands of `TILE` rows over all outer axes.
    fn bands(&self) -> usize {
        self.part.elements / (self.rows * self.cols) * self.rows.div_ceil(TILE)
    }

    /// # Safety
    /// Nobody else uses the rows of these bands.
    unsafe fn run(&self, bands: std::ops::Range<usize>) {
        for band in bands {
            let high = self.rows.div_ceil(TILE);
            let (outer, row) = (band / high, band % high * TILE);
            let sizes = &self.part.nest.sizes[..self.part.nest.sizes.len() - 2];
            let (mut rest, mut offset) = (outer as i64, row as i64);
            for (&size, &stride) in sizes.iter().zip(self.source.strides).rev() {
                offset += rest % size * stride;
                rest /= size;
            }
            let from = self.source.at.wrapping_offset(offset as isize * self.size as isize);
            let to = self.part.output.at.wrapping_add((outer * self.rows + row) * self.cols * self.size);
            let rows = TILE.min(self.rows - row);
            let stride = self.source.strides[sizes.len() + 1];
            // SAFETY: `bind` checked both nests against their buffers; the rest is the caller's.
            unsafe {
                match self.size {
                    1 => turn::<u8>(from, stride, to, rows, self.cols),
                    2 => turn::<u16>(from, stride, to, rows, self.cols),
                    4 => turn::<u32>(from, stride, to, rows, self.cols),
                    _ => turn::<u64>(from, stride, to, rows, self.cols),
                }
            }
        }
    }
}

/// to[i, j] = from[i + j * stride], for at most `TILE` rows i.
///
/// # Safety
/// Both hold these elements, aligned, and nobody else uses `to`.
unsafe fn turn<T: Copy + Default>(from: *const u8, stride: i64, to: *mut u8, rows: usize, cols: usize) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    let mut tile = [[T::default(); TILE]; TILE];
    for first in (0..cols).step_by(TILE) {
        let n = TILE.min(cols - first);
        for j in 0..n {
            let column = from.wrapping_offset((first + j) as isize * stride as isize);
            for i in 0..rows {
                // SAFETY: the caller's.
                tile[i][j] = unsafe { column.add(i).read() };
            }
        }
        for (i, row) in tile.iter().enumerate().take(rows) {
            // SAFETY: the caller's.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), to.add(i * cols + first), n) };
        }
    }
}
