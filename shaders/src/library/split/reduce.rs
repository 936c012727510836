//! Reductions whose rows are longer than a binding: the sum of a large tensor, or over its leading axis. The row is cut
//! into chunks, each is reduced to a partial result in temporary memory, and a second step reduces these. Only for
//! operations whose results combine by the operation itself; a mean is a sum of scaled sums.

use super::{Cut, Nest, Piece, Room, describe::rows};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{
    BinaryOp, Expr, Inst, Result, Scalar,
    kernel::{Layout, Operand, RowKernel, RowOp},
};

/// Chunks of a row, at most.
const MOST: i64 = 4096;

/// Where a reduction writes: its output, and the first number that a temporary may have.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub output: usize,
    pub temporary: usize,
}

/// The reduction in two steps; `None` where chunks do not help. `scalars`: how many the step brings.
pub(super) fn in_chunks(
    kernel: &RowKernel,
    words: &[i64],
    scalars: usize,
    places: Places,
    room: &Room,
) -> Result<Option<Cut>> {
    let (outer, inner) = (usize::from(kernel.outer), usize::from(kernel.inner));
    let rank = outer + inner;
    let cuttable = kernel.op.reduces() && !matches!(kernel.op, RowOp::ArgMax | RowOp::ArgMin);
    let Some(sizes) = words.get(..rank).filter(|_| cuttable) else { return Ok(None) };
    // The axis along which the operands reach furthest.
    let reach = |axis: usize| {
        let strides = (0..kernel.operands.len()).filter_map(|o| words.get(rank + o * (1 + rank) + 1 + axis));
        strides.map(|s| s.saturating_abs()).max().unwrap_or(0).saturating_mul(sizes[axis] - 1)
    };
    let Some(axis) = (outer..rank).max_by_key(|&axis| reach(axis)) else { return Ok(None) };
    let mut chunks = 2;
    while chunks <= MOST.min(sizes[axis]) {
        // A chunk that is still too long is an error of the cut.
        if let Ok(cut) = chunked(kernel, words, scalars, axis, chunks, places, room) {
            return Ok(Some(cut));
        }
        chunks *= 2;
    }
    Ok(None)
}

fn chunked(
    kernel: &RowKernel,
    words: &[i64],
    scalars: usize,
    axis: usize,
    chunks: i64,
    Places { output, temporary }: Places,
    room: &Room,
) -> Result<Cut> {
    let (outer, rank) = (usize::from(kernel.outer), usize::from(kernel.outer) + usize::from(kernel.inner));
    let results: i64 = words[..outer].iter().fold(1, |n, &size| n.saturating_mul(size));
    let accumulator = kernel.accumulator;
    let mean = kernel.op == RowOp::Mean;
    let op = if mean { RowOp::Sum } else { kernel.op };

    let mut partial = kernel.clone();
    partial.op = op;
    partial.after = Expr::default();
    let value = partial.after.push(Inst::Acc(0), accumulator);
    let mut more: SmallVec<[Scalar; 1]> = SmallVec::new();
    if mean {
        let length = words[outer..rank].iter().fold(1f64, |n, &size| n * size as f64);
        more.push(Scalar::F(1.0 / length));
        let share = partial.after.push(Inst::Param(scalars as u16), accumulator);
        partial.after.push(Inst::Binary(BinaryOp::Mul, value, share), accumulator);
    }
    let size = words[axis];
    let step = (size + chunks - 1) / chunks;
    let mut pieces: Vec<Piece> = Vec::new();
    let mut count = 0;
    while count * step < size {
        let first = count * step;
        let mut own = words.to_vec();
        own[axis] = step.min(size - first);
        for at in (0..kernel.operands.len()).map(|o| rank + o * (1 + rank)) {
            own[at] += first * own[at + 1 + axis];
        }
        let mut nest: Nest = rows(&partial, &own, temporary, room)?;
        if let Some(access) = nest.accesses.last_mut() {
            access.start = count * results;
        }
        nest.cut(room, &mut pieces)?;
        count += 1;
    }
    pieces.iter_mut().for_each(|piece| piece.scalars.clone_from(&more));

    // Partial results lie [chunk, outer...].
    let used = |o: usize| kernel.after.code.contains(&Inst::Load(o as u16));
    let mut operands = kernel.operands.clone();
    // What nobody loads keeps its number, but costs no binding.
    operands.iter_mut().enumerate().filter(|(o, _)| !used(*o)).for_each(|(_, operand)| operand.input = None);
    // The partial results stand last, so that the other operands keep their numbers.
    let last = operands.len() as u16;
    operands.push(Operand { input: Some(temporary as u8), dtype: accumulator, layout: Layout::Strided });
    let mut before = Expr::default();
    before.push(Inst::Load(last), accumulator);
    let all = RowKernel { op, inner: 1, operands, before, after: kernel.after.clone(), ..kernel.clone() };
    let mut own: Vec<i64> = words[..outer].to_vec();
    own.push(count);
    for at in (0..kernel.operands.len()).map(|o| rank + o * (1 + rank)) {
        own.extend_from_slice(&words[at..at + 1 + outer]);
        own.push(0);
    }
    own.push(0);
    let mut strides: SmallVec<[i64; 8]> = smallvec![];
    let mut stride = 1i64;
    for &size in words[..outer].iter().rev() {
        strides.push(stride);
        stride = stride.saturating_mul(size);
    }
    own.extend(strides.iter().rev());
    own.push(results);
    let bytes = (results as u64).saturating_mul(count as u64).saturating_mul(accumulator.size_in_bytes() as u64);
    let mut temporaries = vec![bytes.max(16).next_multiple_of(16)];
    let before = pieces.len();
    if let Err(error) = rows(&all, &own, output, room)?.cut(room, &mut pieces) {
        // The partial results of many rows may lie too far apart in their turn.
        pieces.truncate(before);
        let places = Places { output, temporary: temporary + 1 };
        let rest = in_chunks(&all, &own, scalars, places, room)?.ok_or(error)?;
        pieces.extend(rest.pieces);
        temporaries.extend(rest.temporaries);
    }
    Ok(Cut { pieces, temporaries })
}
