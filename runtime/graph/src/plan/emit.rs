//! From drafts to recipes: numbers each step's inputs and outputs, and builds its expressions.

use super::{
    collect::{Collected, Target},
    conv::ConvRecipe,
    draft::{Draft, Drafts, Path, Refusal, Role, norm_weights},
    express::{Express, Operand, Tables, compute},
    recipe::{ContractPartRecipe, MapRecipe, Reads, Recipe, Space, shift_params},
};
use crate::{DType, Expr, Inst, Shape, kernel::RowOp, locked::Token, node::Op};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A value in memory during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Value {
    /// It was there before.
    Leaf(u32),
    /// What a step stores for a node.
    Node(u32),
    /// A contiguous copy of an edge's view.
    Copy(u32, u8),
    /// The old version of a value, copied because a write may not take its buffer.
    Base(u32),
}

/// A step with its recipe.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub recipe: Recipe,
    pub inputs: SmallVec<[Value; 6]>,
    pub outputs: SmallVec<[Output; 2]>,
    /// Scalars of the expressions: (node, which).
    pub params: Vec<(u32, u8)>,
    /// For ordering: the latest node it computes.
    pub tail: u32,
    /// The node that names the step in faults and debug output.
    pub head: u32,
}

/// What a step stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Output {
    pub value: Value,
    /// It takes the buffer of this value: a write in place.
    pub takes: Option<Value>,
}

impl From<Value> for Output {
    fn from(value: Value) -> Self {
        Self { value, takes: None }
    }
}

/// What the planner has learned so far from refusals: which operands to copy.
#[derive(Default)]
pub(crate) struct Learned {
    pub refused: FxHashSet<Refusal>,
    pub copies: FxHashSet<(u32, u8)>,
}

pub(crate) struct Emitter<'a> {
    c: &'a Collected,
    token: &'a Token,
    drafts: &'a Drafts,
    learned: &'a Learned,
    fuse: bool,
    steps: Vec<Emitted>,
    /// Values whose buffer a write has taken already.
    taken: FxHashSet<Value>,
    /// Leaves that a later plan reads again, to compute what this one fuses away although somebody holds it.
    pinned: FxHashSet<u32>,
    /// The contractions (by step number, ascending) that have a value as their left operand.
    sharers: FxHashMap<Target, Vec<u32>>,
}

/// How far apart (in nodes) two contractions may stand to be launched together, and how many are looked at for it: far ones
/// would keep memory busy, and planning must not grow with the square of a plan.
const NEAR: u32 = 1024;
const NEIGHBOURS: usize = 32;

impl<'a> Emitter<'a> {
    pub(crate) fn new(
        c: &'a Collected,
        token: &'a Token,
        drafts: &'a Drafts,
        learned: &'a Learned,
        fuse: bool,
    ) -> Self {
        let pinned = pinned(c, token, &drafts.roles);
        let mut sharers: FxHashMap<Target, Vec<u32>> = FxHashMap::default();
        for (s, draft) in drafts.steps.iter().enumerate().filter(|(_, draft)| !draft.dead) {
            if let Op::Contract { .. } = c.nodes[draft.head as usize].op {
                sharers.entry(c.target(c.edge(token, draft.head, 0))).or_default().push(s as u32);
            }
        }
        Self { c, token, drafts, learned, fuse, steps: Vec::new(), taken: FxHashSet::default(), pinned, sharers }
    }

    pub(crate) fn run(mut self) -> Vec<Emitted> {
        let mut grouped: FxHashSet<u32> = FxHashSet::default();
        for s in 0..self.drafts.steps.len() as u32 {
            let draft = &self.drafts.steps[s as usize];
            if draft.dead || grouped.contains(&s) {
                continue;
            }
            match self.c.nodes[draft.head as usize].op {
                Op::Fill | Op::Iota | Op::Map(_) => self.map(draft),
                Op::Write => self.write(draft),
                Op::Row { op, .. } => self.row(draft, op),
                Op::Contract { .. } => {
                    let group = self.group(s);
                    grouped.extend(group.iter().copied());
                    self.contract(&group);
                }
                Op::Conv { .. } => self.conv(draft),
                Op::Attention { .. } | Op::Gather | Op::Pick | Op::Sort { .. } | Op::Scan(_) | Op::Custom => {
                    self.fixed(draft);
                }
                Op::Scatter(_) => self.scatter(draft),
                Op::Random(_) => self.push(draft, Recipe::Random { head: draft.head }, SmallVec::new(), Vec::new()),
                Op::Leaf | Op::Transfer => {}
            }
        }
        self.steps
    }

    fn express<'b>(&'b self, head: Option<u32>, paired: Option<&'b Shape>, accumulator: DType) -> Express<'b> {
        Express { c: self.c, token: self.token, roles: &self.drafts.roles, head, paired, accumulator }
    }

    fn push(&mut self, draft: &Draft, recipe: Recipe, inputs: SmallVec<[Value; 6]>, params: Vec<(u32, u8)>) {
        let outputs = smallvec::smallvec![Value::Node(draft.tail).into()];
        self.steps.push(Emitted { recipe, inputs, outputs, params, tail: draft.tail, head: draft.head });
    }

    fn map(&mut self, draft: &Draft) {
        let mut tables = Tables::default();
        let expr = self.express(None, None, DType::F32).tail(draft.tail, &mut tables);
        let mut inputs = SmallVec::new();
        let operands = reads(&tables.operands, &mut inputs);
        let part = MapRecipe { space: Space::Node(draft.tail), operands, expr, into: None };
        self.push(draft, Recipe::Map { parts: vec![part] }, inputs, tables.params);
    }

    /// A new version of a value, in the window that edge 0 shows of the old one.
    fn write(&mut self, draft: &Draft) {
        let n = draft.head;
        let dtype = self.c.edge(self.token, n, 0).node.dtype;
        let mut tables = Tables::default();
        let expr = self.express(None, None, DType::F32).edge(n, 1, Some(dtype), &mut tables);
        let mut inputs = SmallVec::new();
        let operands = reads(&tables.operands, &mut inputs);
        let takes = self.version(n, &inputs);
        let into = Some(Path::default().then(n, 0));
        let part = MapRecipe { space: Space::Edge(n, 0), operands, expr, into };
        self.push(draft, Recipe::Map { parts: vec![part] }, inputs, tables.params);
        self.take(takes);
    }

    /// What node `n`'s new version of its edge 0 is written over: the old version's own buffer where nobody else needs it,
    /// else a copy.
    fn version(&mut self, n: u32, inputs: &[Value]) -> Value {
        let base = self.c.edge(self.token, n, 0);
        let target = self.c.target(base);
        let old = value(target);
        let free = match target {
            Target::Leaf(l) => self.c.leaf_free[l as usize] && !self.pinned.contains(&l),
            Target::Node(t) => !self.c.wanted[t as usize].keep,
        };
        // No step reads the buffer that it writes, and of several new versions one takes the old one's place.
        let in_place = free
            && !inputs.contains(&old)
            && !self.learned.refused.contains(&Refusal::InPlace(n))
            && self.taken.insert(old);
        if in_place {
            return old;
        }
        // The whole old version, not only the window that edge 0 shows.
        let read = Reads { input: Some(0), dtype: base.node.dtype, path: Path::default(), copied: true };
        self.copy(n, Space::Node(n), read, old, Value::Base(n));
        Value::Base(n)
    }

    /// The last step writes over this value.
    fn take(&mut self, takes: Value) {
        if let Some(out) = self.steps.last_mut().and_then(|step| step.outputs.first_mut()) {
            out.takes = Some(takes);
        }
    }

    /// A step that stores `source`, as `read` shows it, contiguously as `copy`.
    fn copy(&mut self, n: u32, space: Space, read: Reads, source: Value, copy: Value) {
        let mut expr = Expr::default();
        expr.push(Inst::Load(0), compute(read.dtype));
        if compute(read.dtype) != read.dtype {
            expr.push(Inst::Cast(0), read.dtype);
        }
        let part = MapRecipe { space, operands: vec![read], expr, into: None };
        self.steps.push(Emitted {
            recipe: Recipe::Map { parts: vec![part] },
            inputs: smallvec::smallvec![source],
            outputs: smallvec::smallvec![copy.into()],
            params: Vec::new(),
            tail: n,
            head: n,
        });
    }

    fn row(&mut self, draft: &Draft, op: RowOp) {
        let mut tables = Tables::default();
        let plain = self.express(None, None, DType::F32);
        let before = plain.edge(draft.head, 0, None, &mut tables);
        let accumulator = match op {
            RowOp::ArgMax | RowOp::ArgMin => DType::U32,
            _ => before.dtype().unwrap_or(DType::F32),
        };
        let after = self.express(Some(draft.head), None, accumulator).tail(draft.tail, &mut tables);
        let mut inputs = SmallVec::new();
        let operands = reads(&tables.operands, &mut inputs);
        let mut recipe = Recipe::Row { head: draft.head, op, operands, before, after, accumulator };
        let shift = recipe.own_scalars();
        if let Recipe::Row { before, after, .. } = &mut recipe {
            shift_params(before, shift);
            shift_params(after, shift);
        }
        self.push(draft, recipe, inputs, tables.params);
    }

    /// Rule 4: contractions (by step number) that share their left operand and do not depend on one another.
    fn group(&self, s: u32) -> SmallVec<[u32; 3]> {
        let draft = &self.drafts.steps[s as usize];
        let mut group: SmallVec<[u32; 3]> = smallvec::smallvec![s];
        if !self.fuse || self.learned.refused.contains(&Refusal::Group(draft.head)) {
            return group;
        }
        let left = self.c.edge(self.token, draft.head, 0);
        let own_right = self.c.edge(self.token, draft.head, 1);
        let sharers = self.sharers.get(&self.c.target(left)).map_or(&[][..], |sharers| sharers);
        let later = sharers.partition_point(|&t| t <= s);
        for &t in sharers[later..].iter().take(NEIGHBOURS) {
            if group.len() == 3 {
                break;
            }
            let other = &self.drafts.steps[t as usize];
            if other.tail.abs_diff(draft.tail) > NEAR {
                continue;
            }
            if other.dead
                || other.norm != draft.norm
                || self.c.nodes[other.head as usize].op != self.c.nodes[draft.head as usize].op
            {
                continue;
            }
            let its_left = self.c.edge(self.token, other.head, 0);
            let its_right = self.c.edge(self.token, other.head, 1);
            let same = left.view == its_left.view
                // Equal by structure, not by chance of this round's sizes.
                && left.view.is_whole(left.node.shape.elem_count())
                && own_right.node.dtype == its_right.node.dtype;
            if !same || self.learned.refused.contains(&Refusal::Group(other.head)) {
                continue;
            }
            let apart = group.iter().all(|&g| {
                let g = &self.drafts.steps[g as usize];
                !self.reaches(other.tail, g.tail) && !self.reaches(g.tail, other.tail)
            });
            if apart {
                group.push(t);
            }
        }
        group
    }

    /// Whether node `from` depends on node `to`.
    fn reaches(&self, from: u32, to: u32) -> bool {
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut stack = vec![from];
        while let Some(n) = stack.pop() {
            if n == to {
                return true;
            }
            // Operands have lower numbers.
            if n < to || !seen.insert(n) {
                continue;
            }
            for edge in self.c.edges(self.token, n) {
                if let Target::Node(t) = self.c.target(edge) {
                    stack.push(t);
                }
            }
        }
        false
    }

    fn contract(&mut self, group: &[u32]) {
        let first = &self.drafts.steps[group[0] as usize];
        let Op::Contract { activations } = self.c.nodes[first.head as usize].op else { return };
        let mut inputs: SmallVec<[Value; 6]> = SmallVec::new();
        let mut params = Vec::new();
        let norm = first.norm.map(|s| &self.drafts.steps[s as usize]);
        let left_path = match norm {
            Some(norm) => Path::default().then(norm.head, 0),
            None => Path::default().then(first.head, 0),
        };
        let left = self.read(left_path, &mut inputs);
        let prologue = norm.and_then(|norm| {
            let Op::Row { op, .. } = self.c.nodes[norm.head as usize].op else { return None };
            let (weight, bias) = norm_weights(self.c, self.token, &self.drafts.roles, norm)?;
            let weight = weight.map(|p| self.read(p, &mut inputs));
            let bias = bias.map(|p| self.read(p, &mut inputs));
            Some((op, norm.head, weight, bias))
        });
        let own = usize::from(prologue.is_some());
        let mut parts = Vec::new();
        for &s in group {
            let draft = &self.drafts.steps[s as usize];
            let shape = &self.c.nodes[draft.head as usize].shape;
            let right = self.read(Path::default().then(draft.head, 1), &mut inputs);
            let space: Option<Shape> = draft.paired.then(|| {
                let rank = shape.rank();
                shape[..rank - 1].iter().copied().chain([shape[rank - 1] / 2]).collect()
            });
            let accumulator = compute(self.c.nodes[draft.head as usize].dtype);
            let mut tables = Tables { operands: Vec::new(), params: std::mem::take(&mut params) };
            let mut epilogue =
                self.express(Some(draft.head), space.as_ref(), accumulator).tail(draft.tail, &mut tables);
            shift_params(&mut epilogue, own);
            params = tables.params;
            let operands = reads(&tables.operands, &mut inputs);
            let halves = if draft.paired { self.halves(draft) } else { Vec::new() };
            parts.push(ContractPartRecipe {
                head: draft.head,
                right,
                paired: draft.paired,
                halves,
                operands,
                epilogue,
            });
        }
        let outputs = group.iter().map(|&s| Value::Node(self.drafts.steps[s as usize].tail).into()).collect();
        let tail = group.iter().map(|&s| self.drafts.steps[s as usize].tail).max().unwrap_or(first.tail);
        let head = first.head;
        let recipe = Recipe::Contract { left, prologue, activations, parts };
        self.steps.push(Emitted { recipe, inputs, outputs, params, tail, head });
    }

    /// Every way from a paired contraction's tail to the contraction, with the half that it reads.
    fn halves(&self, draft: &Draft) -> Vec<(Path, u8)> {
        let mut found = Vec::new();
        let mut stack = vec![(draft.tail, Path::default())];
        let columns = self.c.nodes[draft.head as usize].shape.last().copied().unwrap_or(0);
        while let Some((n, path)) = stack.pop() {
            for (e, edge) in self.c.edges(self.token, n).iter().enumerate() {
                let path = path.then(n, e as u8);
                let Target::Node(t) = self.c.target(edge) else { continue };
                if t == draft.head {
                    let shape = &self.c.nodes[draft.head as usize].shape;
                    let space: Shape = shape[..shape.rank() - 1].iter().copied().chain([columns / 2]).collect();
                    let view = super::draft::resolve(self.c, self.token, &path).and_then(|v| v.reshape(&space));
                    if let Some(half) = view.and_then(|v| super::draft::half_of(&v, columns)) {
                        found.push((path, half));
                    }
                } else {
                    match self.drafts.roles[t as usize] {
                        Role::Inline => stack.push((t, path)),
                        Role::Inside(_) => stack.push((t, Path::default())),
                        Role::Tail(_) => {}
                    }
                }
            }
        }
        found
    }

    fn conv(&mut self, draft: &Draft) {
        let mut inputs: SmallVec<[Value; 6]> = SmallVec::new();
        let [input, filter] = [0, 1].map(|e| self.read(Path::default().then(draft.head, e), &mut inputs));
        let accumulator = compute(self.c.nodes[draft.head as usize].dtype);
        let mut tables = Tables::default();
        let epilogue = self.express(Some(draft.head), None, accumulator).tail(draft.tail, &mut tables);
        let operands = reads(&tables.operands, &mut inputs);
        let recipe = Recipe::Conv(ConvRecipe { head: draft.head, input, filter, operands, epilogue });
        self.push(draft, recipe, inputs, tables.params);
    }

    /// A step that nothing fuses with.
    fn fixed(&mut self, draft: &Draft) {
        let edges = self.c.edges(self.token, draft.head).len() as u8;
        let (reads, inputs) = self.read_apart(draft.head, 0..edges);
        self.push(draft, Recipe::Fixed { head: draft.head, reads }, inputs, Vec::new());
    }

    /// A new version of a value, like a write.
    fn scatter(&mut self, draft: &Draft) {
        let (reads, inputs) = self.read_apart(draft.head, 1..3);
        let takes = self.version(draft.head, &inputs);
        self.push(draft, Recipe::Fixed { head: draft.head, reads }, inputs, Vec::new());
        self.take(takes);
    }

    /// The operands of a kernel that knows its inputs by their order: one buffer seen through several views (q, k and v of
    /// one projection) comes several times.
    fn read_apart(&mut self, n: u32, edges: std::ops::Range<u8>) -> (Vec<Reads>, SmallVec<[Value; 6]>) {
        let mut inputs: SmallVec<[Value; 6]> = SmallVec::new();
        let mut reads = Vec::new();
        for e in edges {
            let mut own = SmallVec::new();
            let read = self.read(Path::default().then(n, e), &mut own);
            reads.push(Reads { input: Some(inputs.len() as u8), ..read });
            inputs.extend(own);
        }
        (reads, inputs)
    }

    /// A stored operand, through a copy where one was asked for.
    fn read(&mut self, path: Path, inputs: &mut SmallVec<[Value; 6]>) -> Reads {
        let (n, e) = path.0.last().copied().unwrap_or_default();
        let edge = self.c.edge(self.token, n, e);
        let dtype = edge.node.dtype;
        let source = value(self.c.target(edge));
        if !self.learned.copies.contains(&(n, e)) {
            return Reads { input: Some(number(source, inputs)), dtype, path, copied: false };
        }
        let copy = Value::Copy(n, e);
        let read = Reads { input: Some(0), dtype, path: path.clone(), copied: false };
        self.copy(n, Space::Edge(n, e), read, source, copy);
        Reads { input: Some(number(copy, inputs)), dtype, path, copied: true }
    }
}

/// Leaves that are needed to compute again, later, what somebody holds but this plan does not keep.
fn pinned(c: &Collected, token: &Token, roles: &[Role]) -> FxHashSet<u32> {
    let kept = |n: u32| c.wanted[n as usize].keep && matches!(roles[n as usize], Role::Tail(_));
    let mut stack: Vec<u32> = (0..c.nodes.len() as u32).filter(|&n| c.wanted[n as usize].keep && !kept(n)).collect();
    let mut seen = vec![false; c.nodes.len()];
    let mut pinned = FxHashSet::default();
    while let Some(n) = stack.pop() {
        if std::mem::replace(&mut seen[n as usize], true) {
            continue;
        }
        for edge in c.edges(token, n) {
            match c.target(edge) {
                Target::Leaf(l) => {
                    pinned.insert(l);
                }
                Target::Node(t) if !kept(t) => stack.push(t),
                Target::Node(_) => {}
            }
        }
    }
    pinned
}

fn value(target: Target) -> Value {
    match target {
        Target::Leaf(i) => Value::Leaf(i),
        Target::Node(i) => Value::Node(i),
    }
}

fn number(value: Value, inputs: &mut SmallVec<[Value; 6]>) -> u8 {
    let at = inputs.iter().position(|&v| v == value).unwrap_or_else(|| {
        inputs.push(value);
        inputs.len() - 1
    });
    at as u8
}

fn reads(operands: &[Operand], inputs: &mut SmallVec<[Value; 6]>) -> Vec<Reads> {
    operands.iter().map(|o| Reads::of(o, o.target.map(|t| number(value(t), inputs)))).collect()
}
