//! Fused element-wise work: an expression over a loop nest, block by block, on all threads.

use smallvec::SmallVec;
use tallow_graph::kernel::{Layout, MapKernel};
use tallow_graph::{Error, Result};

use super::expr::Block;
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
