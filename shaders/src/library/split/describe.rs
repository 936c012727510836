//! Each kind of kernel as boxes with accesses: which axes a cut may go through, and how every operand moves along them.
//! A step of several parts becomes one box a part.

use super::{Access, Axis, Nest, Offset, Part, Room, too_large};
use crate::{
    library::{attention, contract, gather, map, random, row},
    quant,
};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use tallow_graph::{
    DType, Error, Kernel, Result,
    kernel::{
        AttentionKernel, ContractKernel, GatherKernel, Layout, MapKernel, MapPart, Operand, RandomKernel, RightUnit,
        RowKernel,
    },
};

/// The boxes of a step.
pub(super) fn nests(kernel: &Kernel, words: &[i64], room: &Room) -> Result<Vec<Nest>> {
    Ok(match kernel {
        Kernel::Map(k) => maps(k, words, room)?,
        Kernel::Row(k) => vec![rows(k, words, row::inputs(k), room)?],
        Kernel::Contract(k) => contracts(k, words, room)?,
        Kernel::Attention(k) => vec![attentions(k, words)?],
        Kernel::Gather(k) => vec![gathers(k, words)?],
        Kernel::Random(k) => vec![randoms(k, words)?],
        // Kinds whose accesses are not described.
        other => return Err(too_large(other, "a buffer", room)),
    })
}

fn few(kernel: &'static str) -> Error {
    Error::op(kernel, "the step brings too few words")
}

/// Which buffer of the step each binding of a piece shows.
struct Bindings {
    buffers: SmallVec<[usize; 8]>,
    /// Each operand has a window of its own, where the device binds that many buffers.
    apart: bool,
}

impl Bindings {
    fn new(operands: usize, room: &Room) -> Self {
        Self { buffers: SmallVec::new(), apart: operands <= room.buffers }
    }

    fn add(&mut self, buffer: impl Into<usize>) -> usize {
        let buffer = buffer.into();
        let known = self.buffers.iter().position(|&b| b == buffer).filter(|_| !self.apart);
        known.unwrap_or_else(|| {
            self.buffers.push(buffer);
            self.buffers.len() - 1
        })
    }

    /// Renumbers an operand's input; its binding.
    fn operand(&mut self, operand: &mut Operand) -> Option<usize> {
        let binding = self.add(operand.input?);
        operand.input = Some(binding as u8);
        Some(binding)
    }
}

fn elements(dtype: DType, binding: Option<usize>, offset: Offset, start: i64, strides: &[i64]) -> Access {
    Access {
        binding,
        bytes: (dtype.size_in_bytes() as u64).max(1),
        scale: 1,
        offset,
        start,
        strides: strides.iter().copied().collect(),
        extent: (0, 0),
    }
}

/// First and last place of axes that are never cut, from (size, stride); nothing where one is empty.
fn extent(axes: impl IntoIterator<Item = (i64, i64)>) -> (i64, i64) {
    axes.into_iter()
        .try_fold((0i64, 0i64), |(low, high), (size, stride)| {
            let far = (size > 0).then(|| (size - 1).saturating_mul(stride))?;
            Some((low.saturating_add(far.min(0)), high.saturating_add(far.max(0))))
        })
        .unwrap_or((0, -1))
}

/// Strides of a contiguous value.
fn contiguous(sizes: &[i64]) -> SmallVec<[i64; 8]> {
    let mut step = 1i64;
    let mut strides: SmallVec<[i64; 8]> = sizes
        .iter()
        .rev()
        .map(|&size| {
            let stride = step;
            step = step.saturating_mul(size);
            stride
        })
        .collect();
    strides.reverse();
    strides
}

fn product(sizes: &[i64]) -> i64 {
    sizes.iter().fold(1, |n, &size| n.saturating_mul(size))
}

fn maps(kernel: &MapKernel, words: &[i64], room: &Room) -> Result<Vec<Nest>> {
    let parts = map::split(kernel, words).ok_or_else(|| few("map"))?;
    let inputs = map::inputs(kernel);
    Ok(parts.into_iter().enumerate().map(|(p, (part, own))| map_part(part, own, inputs + p, room)).collect())
}

fn map_part(part: &MapPart, words: &[i64], output: usize, room: &Room) -> Nest {
    let rank = usize::from(part.rank);
    let sizes = &words[..rank];
    let mut words = words.to_vec();
    let mut part = part.clone();
    let mut bindings = Bindings::new(part.operands.len() + 1, room);
    // The strides that a layout means, so that the strided form of the kernel finds them among the words.
    let linear = contiguous(sizes);
    let mut walk = |at: usize, layout: Layout| -> (i64, SmallVec<[i64; 8]>) {
        let strides = match layout {
            Layout::Linear => linear.clone(),
            Layout::Scalar => smallvec![0; rank],
            Layout::Strided => words[at + 1..at + 1 + rank].iter().copied().collect(),
        };
        words[at + 1..at + 1 + rank].copy_from_slice(&strides);
        (words[at], strides)
    };
    let dtype = part.expr.dtype().unwrap_or(DType::F32);
    let mut accesses = Vec::new();
    for (o, operand) in part.operands.iter_mut().enumerate() {
        let at = rank + (1 + o) * (1 + rank);
        let (start, strides) = walk(at, operand.layout);
        let binding = bindings.operand(operand);
        accesses.push(elements(operand.dtype, binding, Offset::Word(at), start, &strides));
    }
    let (start, strides) = walk(rank, part.output);
    bindings.buffers.push(output);
    let binding = Some(bindings.buffers.len() - 1);
    accesses.push(elements(dtype, binding, Offset::Word(rank), start, &strides));
    let axes =
        (0..rank).map(|a| Axis::new(words[a], a).grain(if part.vector && a + 1 == rank { 4 } else { 1 })).collect();
    let one = |part: MapPart| Arc::new(Kernel::Map(MapKernel { parts: smallvec![part] }));
    let is_linear = part.output == Layout::Linear || part.operands.iter().any(|o| o.layout == Layout::Linear);
    let strided = (is_linear && rank > 1).then(|| {
        let mut part = part.clone();
        part.output = Layout::Strided;
        part.operands.iter_mut().for_each(|operand| operand.layout = Layout::Strided);
        one(part)
    });
    Nest { kernel: one(part), strided, words, axes, accesses, buffers: bindings.buffers, patches: SmallVec::new() }
}

/// `output`: the buffer that it writes.
pub(super) fn rows(kernel: &RowKernel, words: &[i64], output: usize, room: &Room) -> Result<Nest> {
    let (outer, inner) = (usize::from(kernel.outer), usize::from(kernel.inner));
    let rank = outer + inner;
    let words = words.get(..row::word_count(kernel)).ok_or_else(|| few("row"))?;
    let (outer_sizes, inner_sizes) = words[..rank].split_at(outer);
    let mut own = kernel.clone();
    let mut bindings = Bindings::new(own.operands.len() + 1, room);
    let mut accesses = Vec::new();
    for (o, operand) in own.operands.iter_mut().enumerate() {
        let at = rank + o * (1 + rank);
        let strides = &words[at + 1..at + 1 + rank];
        let binding = bindings.operand(operand);
        let mut access = elements(operand.dtype, binding, Offset::Word(at), words[at], &strides[..outer]);
        access.extent = extent(inner_sizes.iter().copied().zip(strides[outer..].iter().copied()));
        accesses.push(access);
    }
    let length = if kernel.op.reduces() { 1 } else { product(inner_sizes) };
    let strides: SmallVec<[i64; 8]> = contiguous(outer_sizes).iter().map(|s| s.saturating_mul(length)).collect();
    bindings.buffers.push(output);
    let stored = kernel.after.dtype().unwrap_or(DType::F32);
    let place = Offset::Patch(row::place(kernel)?);
    let mut access = elements(stored, Some(bindings.buffers.len() - 1), place, 0, &strides);
    access.extent = (0, length - 1);
    accesses.push(access);
    let axes = outer_sizes.iter().enumerate().map(|(a, &size)| Axis::new(size, a).ordered()).collect();
    Ok(Nest {
        kernel: Arc::new(Kernel::Row(own)),
        strided: None,
        words: words.to_vec(),
        axes,
        accesses,
        buffers: bindings.buffers,
        patches: SmallVec::new(),
    })
}

fn contracts(kernel: &ContractKernel, words: &[i64], room: &Room) -> Result<Vec<Nest>> {
    let at = contract::Words::of(kernel);
    let words = words.get(..at.total).ok_or_else(|| few("matmul"))?;
    let inputs = contract::inputs(kernel);
    let starts = at.parts.iter().map(|part| part.0);
    let ends = starts.clone().skip(1).chain([at.total]);
    let head = starts.clone().next().unwrap_or(at.total);
    starts
        .zip(ends)
        .enumerate()
        .map(|(p, (start, end))| {
            let own = [&words[..head], &words[start..end]].concat();
            contract_part(kernel, p, own, inputs + p, room)
        })
        .collect()
}

fn contract_part(kernel: &ContractKernel, p: usize, words: Vec<i64>, output: usize, room: &Room) -> Result<Nest> {
    let mut own = kernel.clone();
    own.parts = smallvec![kernel.parts[p].clone()];
    let norms = own.prologue.as_ref().map_or(0, |p| p.weight.iter().chain(&p.bias).count());
    let mut bindings = Bindings::new(3 + norms + own.parts[0].operands.len(), room);
    let left_binding = bindings.add(own.left.0);
    own.left.0 = left_binding as u8;
    let part = &mut own.parts[0];
    let right_binding = bindings.add(part.right.0);
    part.right.0 = right_binding as u8;
    let mut weights: SmallVec<[(usize, usize, DType); 2]> = SmallVec::new();
    if let Some(prologue) = &mut own.prologue {
        for (i, operand) in [&mut prologue.weight, &mut prologue.bias].into_iter().enumerate() {
            if let Some((input, dtype)) = operand {
                let binding = bindings.add(*input);
                *input = binding as u8;
                weights.push((i, binding, *dtype));
            }
        }
    }
    let operands: SmallVec<[Option<usize>; 4]> = part.operands.iter_mut().map(|o| bindings.operand(o)).collect();
    bindings.buffers.push(output);

    let at = contract::Words::of(&own);
    let part = &own.parts[0];
    let (n_at, right_at, epilogue_at) = &at.parts[0];
    let (m, k, n) = (words[at.m], words[at.k], words[*n_at]);
    let columns = if part.paired { 2 } else { 1 };
    let batch = |at: usize| words[at + 1..at + 1 + kernel.batch as usize].iter().copied();
    let tail = |operand: usize| (words[operand + 1 + at.batch], words[operand + 2 + at.batch]);
    let strides = |operand: usize, m: i64, n: i64| batch(operand).chain([m, n]).collect::<SmallVec<[i64; 8]>>();

    let mut accesses = Vec::new();
    let (left_m, left_k) = tail(at.left);
    let mut left =
        elements(own.left.1, Some(left_binding), Offset::Word(at.left), words[at.left], &strides(at.left, left_m, 0));
    left.extent = extent([(k, if own.left_rows { 1 } else { left_k })]);
    accesses.push(left);
    let dtype = part.right.1;
    let (right_k, right_n) = tail(*right_at);
    let (right_k, right_n) = match (dtype.is_quantized(), part.right_unit) {
        (true, _) => (0, 1),
        (_, RightUnit::K) => (1, right_n),
        (_, RightUnit::N) => (right_k, 1),
    };
    let right_words = strides(*right_at, 0, right_n);
    let mut right = elements(dtype, Some(right_binding), Offset::Word(*right_at), words[*right_at], &right_words);
    // The other half of a pair lies n columns further, wherever the cut is.
    let pair = if part.paired { n.saturating_mul(right_n) } else { 0 };
    right.extent = extent([(k, right_k), (columns, pair)]);
    if dtype.is_quantized() {
        right.bytes = quant::packed_bytes(dtype, 1, usize::try_from(k).unwrap_or(0))?;
    }
    accesses.push(right);
    for (i, binding, dtype) in weights {
        let word = at.prologue + i;
        let mut weight = elements(dtype, Some(binding), Offset::Word(word), words[word], &strides(at.left, 0, 0));
        weight.strides.iter_mut().for_each(|stride| *stride = 0);
        weight.extent = (0, k - 1);
        accesses.push(weight);
    }
    for ((operand, &word), binding) in part.operands.iter().zip(epilogue_at).zip(operands) {
        let (sm, sn) = tail(word);
        accesses.push(elements(operand.dtype, binding, Offset::Word(word), words[word], &strides(word, sm, sn)));
    }
    let place = contract::place(&own)?;
    let batch_sizes = &words[..at.batch];
    let block = m.saturating_mul(n);
    let out: SmallVec<[i64; 8]> =
        contiguous(batch_sizes).iter().map(|s| s.saturating_mul(block)).chain([n, 1]).collect();
    let stored = part.epilogue.dtype().unwrap_or(DType::F32);
    accesses.push(elements(stored, Some(bindings.buffers.len() - 1), Offset::Patch(place), 0, &out));

    let mut axes: SmallVec<[Axis; 4]> =
        batch_sizes.iter().enumerate().map(|(a, &size)| Axis::new(size, a).ordered()).collect();
    axes.push(Axis::new(m, at.m));
    axes.push(Axis::new(n, *n_at).grain(4));
    Ok(Nest {
        kernel: Arc::new(Kernel::Contract(own)),
        strided: None,
        words,
        axes,
        accesses,
        buffers: bindings.buffers,
        patches: smallvec![(place + 1, block as u32), (place + 2, n as u32), (place + 3, n as u32)],
    })
}

fn attentions(kernel: &AttentionKernel, words: &[i64]) -> Result<Nest> {
    let words = words.get(..attention::word_count(kernel)).ok_or_else(|| few("attention"))?;
    let &[batch, queries, keys, heads, kv_heads, width, v_width, ..] = words else { return Err(few("attention")) };
    let group = if kv_heads > 0 { heads / kv_heads } else { 0 };
    let mut accesses = Vec::new();
    // Axes: batch, query, key head, query head of a key head.
    let mut operand = |binding: usize, dtype, at: usize, strides: [i64; 4], inner: &[(i64, i64)]| {
        let mut access = elements(dtype, Some(binding), Offset::Word(at), words[at], &strides);
        access.extent = extent(inner.iter().copied());
        accesses.push(access);
    };
    let of = |at: usize| [words[at + 1], words[at + 2], words[at + 3]];
    let [b, t, h] = of(attention::Q);
    operand(0, kernel.dtype, attention::Q, [b, t, h.saturating_mul(group), h], &[(width, 1)]);
    let [b, s, h] = of(attention::K);
    operand(1, kernel.kv_dtype, attention::K, [b, 0, h, 0], &[(keys, s), (width, 1)]);
    let [b, s, h] = of(attention::V);
    operand(2, kernel.kv_dtype, attention::V, [b, 0, h, 0], &[(keys, s), (v_width, 1)]);
    let mut buffers: SmallVec<[usize; 8]> = smallvec![0, 1, 2];
    if kernel.mask {
        let [b, h, t] = of(attention::MASK);
        let s = words[attention::MASK + 4];
        operand(3, DType::F32, attention::MASK, [b, t, h.saturating_mul(group), h], &[(keys, s)]);
        buffers.push(3);
    }
    let output = buffers.len();
    buffers.push(output);
    let place = attention::place(kernel);
    let out = contiguous(&[batch, queries, heads, v_width]);
    let strides = [out[0], out[1], out[2].saturating_mul(group), out[2]];
    operand(output, kernel.dtype, 0, strides, &[(v_width, 1)]);
    if let Some(access) = accesses.last_mut() {
        access.offset = Offset::Patch(place);
        access.start = 0;
    }

    let mut query = Axis::new(queries, 1);
    // Query t of a piece is query t + first of the step: it sees that many keys more.
    query.shifted = Some(7);
    let mut kv = Axis::new(kv_heads, 4).ordered();
    kv.sizes.push(3);
    Ok(Nest {
        kernel: Arc::new(Kernel::Attention(kernel.clone())),
        strided: None,
        words: words.to_vec(),
        axes: smallvec![Axis::new(batch, 0), query, kv, Axis::new(group, 3).ordered()],
        accesses,
        buffers,
        patches: smallvec![(place + 1, out[0] as u32), (place + 2, out[1] as u32), (place + 3, out[2] as u32)],
    })
}

fn gathers(kernel: &GatherKernel, words: &[i64]) -> Result<Nest> {
    let words = words.get(..gather::WORDS).ok_or_else(|| few("gather"))?;
    let &[outer, ids, rows, inner, offset, outer_stride, row_stride, ids_offset, ids_stride] = words else {
        return Err(few("gather"));
    };
    // Axes: outer, id, and windows of the source's rows: an id whose row lies elsewhere is another piece's.
    let source = if kernel.source.is_quantized() {
        let whole = |elements: i64| if inner > 0 { elements / inner } else { 0 };
        let mut source = elements(kernel.source, Some(0), Offset::Word(4), whole(offset), &[0, 0, whole(row_stride)]);
        source.bytes = quant::packed_bytes(kernel.source, 1, usize::try_from(inner).unwrap_or(0))?;
        source.scale = inner;
        source
    } else {
        let mut source = elements(kernel.source, Some(0), Offset::Word(4), offset, &[outer_stride, 0, row_stride]);
        source.extent = (0, inner - 1);
        source
    };
    let list = elements(kernel.ids, Some(1), Offset::Word(7), ids_offset, &[0, ids_stride, 0]);
    let place = gather::PLACE;
    let out = [ids.saturating_mul(inner), inner, 0];
    let mut output = elements(kernel.output, Some(2), Offset::Patch(place + 2), 0, &out);
    output.extent = (0, inner - 1);
    // Outputs of less than a word are written by fours.
    let grain = if gather::unit(kernel) == 4 && inner % 4 != 0 { 4 } else { 1 };
    let first = if outer > 1 { Axis::new(outer, 0).ordered().grain(grain) } else { Axis::new(outer, 0).ordered() };
    Ok(Nest {
        kernel: Arc::new(Kernel::Gather(kernel.clone())),
        strided: None,
        words: words.to_vec(),
        axes: smallvec![
            first,
            Axis::new(ids, 1).ordered().grain(grain),
            Axis {
                // No rows at all: every id is a fault, which one piece tells.
                size: rows.max(1),
                grain: 1,
                patches: smallvec![(place, Part::First(1)), (place + 1, Part::Count)],
                ..Axis::default()
            },
        ],
        accesses: vec![source, list, output],
        buffers: smallvec![0, 1, 2],
        patches: SmallVec::new(),
    })
}

fn randoms(kernel: &RandomKernel, words: &[i64]) -> Result<Nest> {
    let words = words.get(..random::WORDS).ok_or_else(|| few("random"))?;
    // Whole blocks of four numbers, and of every alignment of a binding.
    let mut axis = Axis::new(words[0], 0).grain(1024);
    axis.patches.push((random::PLACE, Part::First(4)));
    Ok(Nest {
        kernel: Arc::new(Kernel::Random(kernel.clone())),
        strided: None,
        words: words.to_vec(),
        axes: smallvec![axis],
        accesses: vec![elements(kernel.dtype, Some(0), Offset::None, 0, &[1])],
        buffers: smallvec![0],
        patches: SmallVec::new(),
    })
}
