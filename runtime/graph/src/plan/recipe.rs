//! How the data of a step (its words and scalars) is made from the nodes of a round, and the class that this data must
//! have for the step's kernel to be the right one. One description serves both the first planning, which reads the class
//! and builds the kernel from it, and every replay, which checks it.

use super::{
    collect::Collected,
    conv::ConvRecipe,
    draft::{Path, half_of, resolve},
    express::Operand,
    fixed,
    nest::Nest,
};
use crate::{
    DType, Expr, Inst, Kernel, Scalar, Shape, View,
    kernel::{self, Activations, Layout, RightUnit, RowClass, RowOp},
    locked::Token,
    node::Op,
};
use smallvec::SmallVec;

/// Layout classes of a step, in an order that its recipe knows.
pub(crate) type Class = SmallVec<[u8; 16]>;

/// An operand of an expression.
#[derive(Debug, Clone)]
pub(crate) struct Reads {
    pub input: Option<u8>,
    pub dtype: DType,
    pub path: Path,
    /// The operand is contiguous, with the shape of the path's view: a copy that was made first. With an empty path, it
    /// is contiguous with the shape of the nest.
    pub copied: bool,
}

impl Reads {
    pub(crate) fn of(operand: &Operand, input: Option<u8>) -> Self {
        Self { input, dtype: operand.dtype, path: operand.path.clone(), copied: false }
    }

    pub(crate) fn view(&self, c: &Collected, token: &Token) -> Option<View> {
        let view = resolve(c, token, &self.path)?;
        Some(if self.copied { View::contiguous(view.shape) } else { view })
    }
}

/// One part of a map step.
#[derive(Debug, Clone)]
pub(crate) struct MapRecipe {
    pub space: Space,
    pub operands: Vec<Reads>,
    pub expr: Expr,
    /// Written through this view of an existing buffer.
    pub into: Option<Path>,
}

/// Over which axes a nest runs.
#[derive(Debug, Clone)]
pub(crate) enum Space {
    /// The shape of a node.
    Node(u32),
    /// The shape of an edge's view.
    Edge(u32, u8),
}

impl Space {
    fn shape<'a>(&self, c: &'a Collected, token: &'a Token) -> &'a Shape {
        match *self {
            Space::Node(n) => &c.nodes[n as usize].shape,
            Space::Edge(n, e) => &c.edge(token, n, e).view.shape,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ContractPartRecipe {
    pub head: u32,
    pub right: Reads,
    pub paired: bool,
    /// Paths that must lead to the halves of a paired contraction.
    pub halves: Vec<(Path, u8)>,
    pub operands: Vec<Reads>,
    pub epilogue: Expr,
}

/// A norm that a contraction applies to its left operand: what it computes, its node, weight and bias.
pub(crate) type Norm = (RowOp, u32, Option<Reads>, Option<Reads>);

/// The recipe of a step.
#[derive(Debug, Clone)]
pub(crate) enum Recipe {
    Map {
        parts: Vec<MapRecipe>,
    },
    Row {
        head: u32,
        op: RowOp,
        operands: Vec<Reads>,
        before: Expr,
        after: Expr,
        accumulator: DType,
    },
    Contract {
        left: Reads,
        prologue: Option<Norm>,
        activations: Activations,
        parts: Vec<ContractPartRecipe>,
    },
    Conv(ConvRecipe),
    /// A step that nothing fuses with: its node's operation, and its operands in order.
    Fixed {
        head: u32,
        reads: Vec<Reads>,
    },
    Random {
        head: u32,
    },
}

/// Why a recipe does not fit the data.
pub(crate) enum Misfit {
    /// A view is not affine over the nest, or a structural fact no longer holds: plan anew.
    View,
    /// An operand must be copied to a contiguous value first.
    Copy(u32, u8),
    /// An epilogue is in the way.
    Epilogue(u32),
}

impl Recipe {
    /// Appends words; returns the class.
    pub(crate) fn words(&self, c: &Collected, token: &Token, words: &mut Vec<i64>) -> Result<Class, Misfit> {
        let mut class = Class::new();
        match self {
            Recipe::Map { parts } => {
                for part in parts {
                    part.words(c, token, words, &mut class)?;
                }
            }
            Recipe::Row { head, operands, .. } => row_words(c, token, *head, operands, words, &mut class)?,
            Recipe::Contract { left, prologue, parts, .. } => {
                contract_words(c, token, left, prologue.as_ref(), parts, words, &mut class)?;
            }
            Recipe::Conv(conv) => conv.words(c, token, words, &mut class)?,
            Recipe::Fixed { head, reads } => fixed::words(c, token, *head, reads, words, &mut class)?,
            Recipe::Random { head } => {
                let node = &c.nodes[*head as usize];
                words.push(node.shape.elem_count() as i64);
                words.extend(node.scalars.iter().skip(2).map(|s| s.to_i64()));
            }
        }
        Ok(class)
    }

    /// Appends the scalars that come before those of the expressions.
    pub(crate) fn scalars(&self, c: &Collected, scalars: &mut Vec<Scalar>) {
        let of = |n: u32, k: usize| c.nodes[n as usize].scalars.get(k).copied().unwrap_or(Scalar::F(0.0));
        match self {
            Recipe::Row { head, op, .. } if !op.reduces() => scalars.push(of(*head, 0)),
            Recipe::Contract { prologue: Some((_, norm, _, _)), .. } => scalars.push(of(*norm, 0)),
            Recipe::Fixed { head, .. } => scalars.extend(fixed::scalars(&c.nodes[*head as usize])),
            Recipe::Random { head } => scalars.extend([of(*head, 0), of(*head, 1)]),
            _ => {}
        }
    }

    /// How many scalars [`Recipe::scalars`] appends.
    pub(crate) fn own_scalars(&self) -> usize {
        match self {
            Recipe::Row { op, .. } => usize::from(!op.reduces()),
            Recipe::Contract { prologue, .. } => usize::from(prologue.is_some()),
            // Those of steps without expressions need no shift.
            _ => 0,
        }
    }

    /// The kernel for data of this class.
    pub(crate) fn kernel(&self, class: &Class, c: &Collected) -> Kernel {
        let mut class = class.iter().copied();
        let mut next = || class.next().unwrap_or(0);
        match self {
            Recipe::Map { parts } => Kernel::Map(kernel::MapKernel {
                parts: parts
                    .iter()
                    .map(|part| {
                        let (rank, vector, output) = (next(), next() != 0, layout(next()));
                        kernel::MapPart {
                            rank,
                            vector,
                            output,
                            operands: operands(&part.operands, &mut next),
                            expr: part.expr.clone(),
                        }
                    })
                    .collect(),
            }),
            Recipe::Row { op, operands: reads, before, after, accumulator, .. } => {
                let (outer, inner) = (next(), next());
                Kernel::Row(kernel::RowKernel {
                    op: *op,
                    outer,
                    inner,
                    operands: operands(reads, &mut next),
                    before: before.clone(),
                    after: after.clone(),
                    accumulator: *accumulator,
                })
            }
            Recipe::Contract { left, prologue, activations, parts } => {
                let (batch, left_rows, rows, vector) = (next(), next() != 0, row_class(next()), next() != 0);
                let binding = |r: &Option<Reads>| r.as_ref().map(|r| (r.input.unwrap_or(0), r.dtype));
                Kernel::Contract(kernel::ContractKernel {
                    batch,
                    left: (left.input.unwrap_or(0), left.dtype),
                    left_rows,
                    rows,
                    vector,
                    prologue: prologue.as_ref().map(|(op, _, weight, bias)| kernel::Prologue {
                        op: *op,
                        weight: binding(weight),
                        bias: binding(bias),
                    }),
                    activations: *activations,
                    parts: parts
                        .iter()
                        .map(|part| {
                            let right_unit = if next() == 0 { RightUnit::K } else { RightUnit::N };
                            kernel::ContractPart {
                                right: (part.right.input.unwrap_or(0), part.right.dtype),
                                right_unit,
                                paired: part.paired,
                                operands: operands(&part.operands, &mut next),
                                epilogue: part.epilogue.clone(),
                            }
                        })
                        .collect(),
                })
            }
            Recipe::Conv(conv) => {
                let spatial = next();
                Kernel::Conv(conv.kernel(spatial, operands(&conv.operands, &mut next)))
            }
            Recipe::Fixed { head, reads } => fixed::kernel(&c.nodes[*head as usize], reads, &mut next),
            Recipe::Random { head } => {
                let node = &c.nodes[*head as usize];
                let distribution = match node.op {
                    Op::Random(d) => d,
                    _ => kernel::Distribution::Uniform,
                };
                Kernel::Random(kernel::RandomKernel { distribution, dtype: node.dtype })
            }
        }
    }
}

fn operands<const N: usize>(reads: &[Reads], next: &mut impl FnMut() -> u8) -> SmallVec<[kernel::Operand; N]>
where
    [kernel::Operand; N]: smallvec::Array<Item = kernel::Operand>,
{
    reads.iter().map(|r| kernel::Operand { input: r.input, dtype: r.dtype, layout: layout(next()) }).collect()
}

fn layout(code: u8) -> Layout {
    match code {
        0 => Layout::Linear,
        1 => Layout::Scalar,
        _ => Layout::Strided,
    }
}

pub(crate) fn row_class(code: u8) -> RowClass {
    match code {
        0 => RowClass::One,
        1 => RowClass::Few,
        _ => RowClass::Many,
    }
}

fn push_reads(nest: &mut Nest, c: &Collected, token: &Token, reads: &[Reads], space: &Shape) -> Result<(), Misfit> {
    for read in reads {
        // The common case, without a copy of the view: one edge, of the nest's own axes.
        if let [(n, e)] = read.path.0.as_slice()
            && !read.copied
        {
            let view = &c.edge(token, *n, *e).view;
            if &view.shape == space {
                nest.push(view);
                continue;
            }
        }
        if read.path.0.is_empty() {
            nest.push(&View::contiguous(space.clone()));
            continue;
        }
        let view = read.view(c, token).ok_or(Misfit::View)?;
        nest.push(&view.reshape(space).ok_or(Misfit::View)?);
    }
    Ok(())
}

impl MapRecipe {
    fn words(&self, c: &Collected, token: &Token, words: &mut Vec<i64>, class: &mut Class) -> Result<(), Misfit> {
        let space = self.space.shape(c, token);
        let mut nest = Nest::new(space);
        match &self.into {
            Some(path) => nest.push(&resolve(c, token, path).ok_or(Misfit::View)?),
            None => nest.push_contiguous(),
        }
        push_reads(&mut nest, c, token, &self.operands, space)?;
        nest.collapse(0, nest.rank);
        class.push(nest.rank as u8);
        class.push(u8::from(nest.vector()));
        for i in 0..nest.walks.len() {
            class.push(nest.layout(i) as u8);
        }
        nest.put_dims(words);
        for i in 0..nest.walks.len() {
            nest.put_walk(i, words);
        }
        Ok(())
    }
}

fn row_words(
    c: &Collected,
    token: &Token,
    head: u32,
    operands: &[Reads],
    words: &mut Vec<i64>,
    class: &mut Class,
) -> Result<(), Misfit> {
    let Op::Row { op, inner } = c.nodes[head as usize].op else { return Err(Misfit::View) };
    let space = &c.edge(token, head, 0).view.shape;
    let mut nest = Nest::new(space);
    let split = space.rank() - (inner as usize).min(space.rank());
    let outer_space = Shape::new(&space[..split]);
    for read in operands {
        let view = read.view(c, token).ok_or(Misfit::View)?;
        // What a reduction's epilogue reads has the outer axes only.
        let own_inner = !op.reduces() || read.path.0.first().is_some_and(|&(n, _)| n == head);
        let space = if own_inner { space } else { &outer_space };
        nest.push(&view.reshape(space).ok_or(Misfit::View)?);
    }
    // A norm's output is contiguous over both; it takes part in collapsing the outer axes only through the operands.
    let outer = nest.collapse(0, split);
    let to = nest.rank;
    let mut inner = nest.collapse(outer, to);
    if inner == 0 && !op.reduces() {
        // Rows of one element still are rows.
        nest.dims[nest.rank] = 1;
        for walk in &mut nest.walks {
            walk.strides[nest.rank] = 0;
        }
        nest.rank += 1;
        inner = 1;
    }
    class.extend([outer as u8, inner as u8]);
    class.extend((0..operands.len()).map(|i| nest.layout(i) as u8));
    nest.put_dims(words);
    for i in 0..operands.len() {
        nest.put_walk(i, words);
    }
    Ok(())
}

/// Whether all rows of a view are the same contiguous one: a norm's weight or bias.
pub(crate) fn is_one_row(view: &View) -> bool {
    let Some((&stride, rest)) = view.strides.split_last() else { return false };
    let width = view.shape.last().copied().unwrap_or(1);
    (width == 1 || stride == 1) && rest.iter().zip(view.shape.iter()).all(|(&s, &d)| s == 0 || d == 1)
}

fn contract_words(
    c: &Collected,
    token: &Token,
    left: &Reads,
    prologue: Option<&Norm>,
    parts: &[ContractPartRecipe],
    words: &mut Vec<i64>,
    class: &mut Class,
) -> Result<(), Misfit> {
    let head = parts[0].head;
    let left_shape = &c.edge(token, head, 0).view.shape;
    let rank = left_shape.rank();
    if rank < 2 {
        return Err(Misfit::View);
    }
    let left_view = left.view(c, token).and_then(|v| v.reshape(left_shape)).ok_or(Misfit::View)?;
    // Batch axes are collapsed over everything that is read and written; [m, k], [k, n] and [m, n] stay.
    let mut nest = Nest::new(&left_shape[..rank - 2]);
    let (m, k) = (left_shape[rank - 2], left_shape[rank - 1]);
    nest.push(&left_view);
    let mut tails: SmallVec<[[i64; 2]; 6]> = SmallVec::new();
    tails.push([left_view.strides[rank - 2] as i64, left_view.strides[rank - 1] as i64]);
    let mut widths: SmallVec<[i64; 3]> = SmallVec::new();
    for part in parts {
        // One left operand for all: that the views are equal is data.
        if part.head != head && c.edge(token, part.head, 0).view != c.edge(token, head, 0).view {
            return Err(Misfit::View);
        }
        let shape = &c.nodes[part.head as usize].shape;
        let columns = shape[rank - 1];
        let n = if part.paired { columns / 2 } else { columns };
        widths.push(n as i64);
        let right = part.right.view(c, token).ok_or(Misfit::View)?;
        nest.push(&right);
        tails.push([right.strides[rank - 2] as i64, right.strides[rank - 1] as i64]);
        let space: Shape = shape[..rank - 1].iter().copied().chain([n]).collect();
        for (path, half) in &part.halves {
            let view = resolve(c, token, path).and_then(|v| v.reshape(&space)).ok_or(Misfit::View)?;
            if half_of(&view, columns) != Some(*half) {
                return Err(Misfit::View);
            }
        }
        for read in &part.operands {
            let view = read.view(c, token).and_then(|v| v.reshape(&space)).ok_or(Misfit::View)?;
            nest.push(&view);
            tails.push([
                if m == 1 { 0 } else { view.strides[rank - 2] as i64 },
                if n == 1 { 0 } else { view.strides[rank - 1] as i64 },
            ]);
        }
    }
    // The outputs' batch axes are contiguous among themselves, so they never forbid a merge.
    for walk in &mut nest.walks {
        for axis in rank - 2..crate::MAX_RANK {
            walk.strides[axis] = 0;
        }
    }
    let batch = nest.collapse(0, nest.rank);
    if batch > 2 {
        // Contiguous operands collapse to one axis, so some are not: epilogues go first, then the operands are copied.
        if let Some(part) = parts.iter().find(|p| !p.operands.is_empty()) {
            return Err(Misfit::Epilogue(part.head));
        }
        if !left.copied {
            return Err(Misfit::Copy(head, 0));
        }
        let scattered = parts.iter().find(|p| !p.right.copied);
        return Err(scattered.map_or(Misfit::View, |p| Misfit::Copy(p.head, 1)));
    }
    let unit = |stride: i64, size: usize| size == 1 || stride == 1;
    let mut vector = k.is_multiple_of(4);
    let aligned = |walk: &super::nest::Walk, other: i64| {
        walk.offset % 4 == 0 && other % 4 == 0 && walk.strides[..batch].iter().all(|s| s % 4 == 0)
    };
    let [left_m, left_k] = tails[0];
    let left_rows = unit(left_k, k);
    // Strides other than the unit ones; that of an axis of one element is never used.
    let far = |stride: i64, size: usize| if size == 1 { 0 } else { stride };
    vector &= aligned(&nest.walks[0], if left_rows || left_m != 1 { far(left_m, m) } else { 0 });
    vector &= left_rows || left_k % 4 == 0;
    class.extend([batch as u8, u8::from(left_rows), RowClass::of(m) as u8]);
    let vector_at = class.len();
    class.push(0);
    words.extend_from_slice(&nest.dims[..batch]);
    words.extend([m as i64, k as i64]);
    let put = |i: usize, words: &mut Vec<i64>| {
        nest.put_walk(i, words);
        words.extend(tails[i]);
    };
    put(0, words);
    if let Some((_, norm, weight, bias)) = prologue {
        // The norm's rows must be the product's: another shape of the same size is data.
        if c.nodes[*norm as usize].shape.last() != Some(&k) {
            return Err(Misfit::View);
        }
        let row = |view: &View| is_one_row(view) && view.shape.last() == Some(&k);
        for read in [weight, bias] {
            let view = match read {
                Some(read) => Some(read.view(c, token).filter(row).ok_or(Misfit::View)?),
                None => None,
            };
            words.push(view.map_or(0, |v| v.offset as i64));
        }
    }
    let mut at = 1;
    for (part, &n) in parts.iter().zip(&widths) {
        words.push(n);
        let quantized = part.right.dtype.is_quantized();
        let [sk, sn] = tails[at];
        let by_k = unit(sk, k);
        if !by_k && !unit(sn, n as usize) {
            return Err(Misfit::Copy(part.head, 1));
        }
        if quantized {
            // A packed weight is read in whole rows.
            let walk = &nest.walks[at];
            if !by_k
                || sn != k as i64
                || walk.offset % k.max(1) as i64 != 0
                || walk.strides[..batch].iter().any(|&s| s != 0)
            {
                return Err(Misfit::View);
            }
            words.push(walk.offset / k.max(1) as i64);
            words.extend_from_slice(&walk.strides[..batch]);
            words.extend([1, k as i64]);
        } else {
            vector &= aligned(&nest.walks[at], if by_k { far(sn, n as usize) } else { sk });
            put(at, words);
        }
        class.push(u8::from(!by_k));
        at += 1;
        for _ in &part.operands {
            let walk = &nest.walks[at];
            let still = walk.strides[..batch].iter().all(|&s| s == 0);
            let [sm, sn] = tails[at];
            let mut step = (m as i64).wrapping_mul(n);
            let linear = (n == 1 || sn == 1)
                && (m == 1 || sm == n)
                && (0..batch).rev().all(|axis| {
                    let fits = walk.strides[axis] == step;
                    step = step.wrapping_mul(nest.dims[axis]);
                    fits
                });
            class.push(match (linear, still && sm == 0 && sn == 0) {
                (true, _) => 0,
                (_, true) => 1,
                _ => 2,
            });
            put(at, words);
            at += 1;
        }
    }
    class[vector_at] = u8::from(vector);
    Ok(())
}

/// Renumbers an expression's scalars: its step's own come first.
pub(crate) fn shift_params(expr: &mut Expr, by: usize) {
    for inst in &mut expr.code {
        if let Inst::Param(p) = inst {
            *p += by as u16;
        }
    }
}
