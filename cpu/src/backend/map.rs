//! Fused element-wise work: an expression over a loop nest, block by block, on all threads.

use smallvec::SmallVec;
use tallow_graph::kernel::{Layout, MapKernel};
use tallow_graph::{Error, Result};

use super::expr::Block;
use super::scratch::FirstError;
use super::step::StepRun;
use super::turn::{TILE, turn};
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
        let (load, source) = part.nest.plain()?;
        let axes = part.nest.sizes.len();
        if part.layout != Layout::Linear || axes < 2 || load.layout != Layout::Strided {
            return None;
        }
        let (rows, cols) = (part.nest.sizes[axes - 2] as usize, part.nest.sizes[axes - 1] as usize);
        let turned = source.strides[axes - 2] == 1 && !matches!(source.strides[axes - 1], 0 | 1);
        let (same, size) = (load.dtype == part.nest.block.dtype, load.class.size());
        (turned && same && rows >= TILE && cols >= TILE).then_some(Self { part, source, size, rows, cols })
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
                turn(self.size, from, stride, to, rows, self.cols);
            }
        }
    }
}
