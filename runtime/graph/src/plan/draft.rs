//! Fusion: which nodes become one step. Five rules, see docs/architecture.md:
//! (1) a map into the map that reads it, (2) a map into the reduction, norm or write that reads it, (3) maps after a
//! reduction, norm, contraction or convolution as its epilogue, (4) contractions with one left operand together, (5) named patterns:
//! a norm into the projections that read it, gate and up of one contraction with their activation.
//!
//! Nodes are visited once, operands first; every node gets a [`Role`].

use super::{
    collect::{Collected, Target},
    recipe::is_one_row,
};
use crate::{
    MapOp, View,
    kernel::RowOp,
    locked::Token,
    node::{Node, Op},
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Most operations of one expression, without what loads operands and scalars.
const MAX_INSTS: u32 = 48;

/// Most operands of one expression: loads through different views stay apart, so a repeated value may multiply them.
const MAX_OPERANDS: usize = 16;

/// What became of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Computed anew by each step that reads it.
    Inline,
    /// What a step stores.
    Tail(u32),
    /// Swallowed by a step: its value never exists in memory.
    Inside(u32),
}

/// A way from a step to one of its operands: edges, from the step's own node down through inlined maps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path(pub SmallVec<[(u32, u8); 2]>);

impl Path {
    pub(crate) fn then(&self, node: u32, edge: u8) -> Path {
        let mut hops = self.0.clone();
        hops.push((node, edge));
        Path(hops)
    }
}

/// A step in the making.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    /// The node that gives the step its kind (a map: the map itself).
    pub head: u32,
    /// The node whose value is stored.
    pub tail: u32,
    /// The contraction's columns come in pairs.
    pub paired: bool,
    /// A norm step that this contraction swallowed.
    pub norm: Option<u32>,
    /// Swallowed by another step.
    pub dead: bool,
}

/// A fusion that a backend refused for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// (contraction) without a norm before it.
    Norm(u32),
    /// (contraction) without pairs.
    Pair(u32),
    /// (contraction) not together with others.
    Group(u32),
    /// (head) without an epilogue.
    Epilogue(u32),
    /// (map, write, reduction or norm) without a map in its operands.
    Operand(u32),
    /// (write) by a copy, because of a cycle through a reader of the old version.
    InPlace(u32),
}

/// Limits and switches of fusion.
pub(crate) struct Rules<'a> {
    /// `TALLOW_FUSE=0` sets it to false.
    pub fuse: bool,
    /// Distinct buffers a step may bind.
    pub max_bindings: usize,
    /// Words a map part may need.
    pub max_words: usize,
    pub refused: &'a FxHashSet<Refusal>,
}

/// The result: roles and steps.
pub(crate) struct Drafts {
    pub roles: Vec<Role>,
    pub steps: Vec<Draft>,
}

pub(crate) struct Drafter<'a> {
    pub c: &'a Collected,
    pub token: &'a Token,
    pub rules: &'a Rules<'a>,
    /// (user, edge) of each node.
    users: Vec<SmallVec<[(u32, u8); 2]>>,
    roles: Vec<Role>,
    steps: Vec<Draft>,
    /// Instructions of an inlined node's expression.
    size: Vec<u32>,
}

/// What a map reads once the inlined maps below it are dissolved.
pub(crate) struct Load {
    /// `None`: an inlined range, whose value is the address that the view gives.
    pub target: Option<Target>,
    pub path: Path,
}

impl<'a> Drafter<'a> {
    pub(crate) fn new(c: &'a Collected, token: &'a Token, rules: &'a Rules<'a>) -> Self {
        let mut users = vec![SmallVec::new(); c.nodes.len()];
        for n in 0..c.nodes.len() as u32 {
            for (e, edge) in c.edges(token, n).iter().enumerate() {
                if let Target::Node(t) = c.target(edge) {
                    users[t as usize].push((n, e as u8));
                }
            }
        }
        let size = vec![1; c.nodes.len()];
        Self { c, token, rules, users, roles: Vec::with_capacity(c.nodes.len()), steps: Vec::new(), size }
    }

    pub(crate) fn run(mut self) -> Drafts {
        for n in 0..self.c.nodes.len() as u32 {
            let role = self.role(n);
            self.roles.push(role);
        }
        self.norms_into_contractions();
        Drafts { roles: self.roles, steps: self.steps }
    }

    fn node(&self, n: u32) -> &Node {
        &self.c.nodes[n as usize]
    }

    fn step(&mut self, head: u32) -> Role {
        self.steps.push(Draft { head, tail: head, paired: false, norm: None, dead: false });
        Role::Tail(self.steps.len() as u32 - 1)
    }

    fn role(&mut self, n: u32) -> Role {
        let stored = self.c.wanted[n as usize].store;
        match self.node(n).op {
            Op::Fill | Op::Iota => {
                if !stored && self.users_can_inline(n) {
                    self.size[n as usize] = 4;
                    return Role::Inline;
                }
                self.step(n)
            }
            Op::Map(_) => {
                self.limit_operands(n);
                if !self.rules.fuse {
                    return self.step(n);
                }
                if let Some(role) = self.try_epilogue(n) {
                    return role;
                }
                let size = self.size_with(n);
                self.size[n as usize] = size;
                if !stored && size <= MAX_INSTS / 2 && self.users_can_inline(n) {
                    return Role::Inline;
                }
                self.step(n)
            }
            _ => self.step(n),
        }
    }

    fn inline_operands(&self, n: u32) -> SmallVec<[u32; 3]> {
        let mut found = SmallVec::new();
        for edge in self.c.edges(self.token, n) {
            if let Target::Node(p) = self.c.target(edge)
                && self.roles[p as usize] == Role::Inline
                && !found.contains(&p)
            {
                found.push(p);
            }
        }
        found
    }

    /// Stores inlined operands until what `n` reads and computes stays within the limits.
    fn limit_operands(&mut self, n: u32) {
        loop {
            let inlined = self.inline_operands(n);
            let loads = self.loads(n);
            // One binding is the output's.
            let fits = self.size_with(n) <= MAX_INSTS
                && distinct(&loads) < self.rules.max_bindings
                && self.operands(&loads) <= self.max_operands();
            let largest = inlined.iter().copied().max_by_key(|&p| self.size[p as usize]);
            match largest {
                Some(p) if !fits => self.roles[p as usize] = self.step(p),
                _ => return,
            }
        }
    }

    /// Operands that an expression of these loads has: those that are the whole of one value are one; of the others,
    /// each counts.
    fn operands(&self, loads: &[Load]) -> usize {
        let mut whole: SmallVec<[Option<Target>; 8]> = SmallVec::new();
        let mut parts = 0;
        for load in loads {
            if !self.hops_are_whole(&load.path) {
                parts += 1;
            } else if !whole.contains(&load.target) {
                whole.push(load.target);
            }
        }
        whole.len() + parts
    }

    /// How many of them an expression may have: a map part has a size for each axis and, for its output and each operand,
    /// an offset and a stride for each axis.
    fn max_operands(&self) -> usize {
        let most = (self.rules.max_words / (crate::MAX_RANK + 1)).saturating_sub(2);
        most.clamp(3, MAX_OPERANDS)
    }

    /// Whether every user of map `n` can compute it in place: they take expressions, their views compose with what `n`
    /// reads, and the work is done once or is cheap.
    fn users_can_inline(&self, n: u32) -> bool {
        let users = &self.users[n as usize];
        let constant = matches!(self.node(n).op, Op::Fill | Op::Iota);
        if users.is_empty() || !(self.rules.fuse || constant) {
            return false;
        }
        let loads = self.loads(n);
        let cheap = self.is_cheap(n) && distinct(&loads) <= 1;
        let elements = self.node(n).shape.elem_count();
        users.iter().all(|&(user, e)| {
            let takes = match self.node(user).op {
                Op::Map(_) | Op::Row { .. } => true,
                Op::Write => e == 1,
                _ => false,
            };
            if !takes || self.rules.refused.contains(&Refusal::Operand(user)) {
                return false;
            }
            let view = &self.c.edge(self.token, user, e).view;
            let repeated = view.shape.elem_count() > elements;
            if (users.len() > 1 || repeated) && !cheap {
                return false;
            }
            if self.node(n).op == Op::Iota {
                return true;
            }
            loads.iter().all(|load| self.view(&load.path).is_some_and(|inner| view.compose(&inner).is_some()))
        })
    }

    /// Whether repeating a map costs next to nothing.
    fn is_cheap(&self, n: u32) -> bool {
        let own = match self.node(n).op {
            Op::Fill | Op::Iota => true,
            Op::Map(MapOp::Unary(op)) => op.is_cheap(),
            Op::Map(MapOp::Binary(op) | MapOp::BinaryScalar(op)) => {
                !matches!(op, crate::BinaryOp::Pow | crate::BinaryOp::Rem)
            }
            Op::Map(_) => true,
            _ => false,
        };
        own && self.size[n as usize] <= 8 && self.inline_operands(n).iter().all(|&p| self.is_cheap(p))
    }

    /// What map `n` reads, below inlined maps. Fills read nothing; ranges bind no buffer, but have a view.
    pub(crate) fn loads(&self, n: u32) -> SmallVec<[Load; 4]> {
        let mut loads = SmallVec::new();
        self.gather_loads(n, &Path::default(), &mut loads);
        loads
    }

    fn gather_loads(&self, n: u32, path: &Path, loads: &mut SmallVec<[Load; 4]>) {
        for (e, edge) in self.c.edges(self.token, n).iter().enumerate() {
            let target = self.c.target(edge);
            let path = path.then(n, e as u8);
            match target {
                Target::Node(p) if self.roles.get(p as usize) == Some(&Role::Inline) => match self.node(p).op {
                    Op::Iota => loads.push(Load { target: None, path }),
                    _ => self.gather_loads(p, &path, loads),
                },
                _ => loads.push(Load { target: Some(target), path }),
            }
        }
    }

    fn view(&self, path: &Path) -> Option<View> {
        resolve(self.c, self.token, path)
    }

    /// Rule 3 and gate-and-up: map `n` as the epilogue of a step it reads.
    fn try_epilogue(&mut self, n: u32) -> Option<Role> {
        let loads = self.loads(n);
        // Latest first: its operands are then all there.
        let mut candidates: SmallVec<[u32; 4]> = loads
            .iter()
            .filter_map(|load| match load.target {
                Some(Target::Node(t)) => match self.roles[t as usize] {
                    Role::Tail(s) if self.steps[s as usize].tail == t => Some(s),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        candidates.sort_unstable_by_key(|&s| std::cmp::Reverse(self.steps[s as usize].tail));
        candidates.dedup();
        candidates.into_iter().find_map(|s| self.take_as_epilogue(s, n, &loads))
    }

    fn take_as_epilogue(&mut self, s: u32, n: u32, loads: &[Load]) -> Option<Role> {
        let draft = self.steps[s as usize].clone();
        let tail = draft.tail;
        if self.rules.refused.contains(&Refusal::Epilogue(draft.head)) || self.c.wanted[tail as usize].store {
            return None;
        }
        if !matches!(self.node(draft.head).op, Op::Row { .. } | Op::Contract { .. } | Op::Conv { .. }) {
            return None;
        }
        let mine: SmallVec<[&Load; 4]> = loads.iter().filter(|l| l.target == Some(Target::Node(tail))).collect();
        // Everybody who reads the tail must be part of this map.
        if !self.users[tail as usize].iter().all(|&(user, _)| self.is_part_of(user, n)) {
            return None;
        }
        let elements = self.node(n).shape.elem_count();
        let size = self.size_with(n) + if draft.head == tail { 1 } else { self.size[tail as usize] };
        let outer = self.step_loads(&draft);
        let bindings = distinct(&outer) + distinct(loads);
        let operands = self.operands(&outer) + self.operands(loads);
        if size > MAX_INSTS || bindings + 1 > self.rules.max_bindings || operands > self.max_operands().max(8) {
            return None;
        }
        let whole = |view: &View| view.is_whole(self.node(tail).shape.elem_count());
        if elements == self.node(tail).shape.elem_count() {
            let all_whole =
                mine.iter().all(|l| self.hops_are_whole(&l.path) && self.view(&l.path).is_some_and(|v| whole(&v)));
            // The other operands must be affine over the step's axes too.
            let space = self.space(&draft);
            let fit = loads.iter().all(|l| self.view(&l.path).is_some_and(|v| v.reshape(&space).is_some()));
            if all_whole && fit {
                return Some(self.grow(s, n, size));
            }
        } else if draft.head == tail && self.halves(tail, n, &mine) {
            self.steps[s as usize].paired = true;
            return Some(self.grow(s, n, size));
        }
        None
    }

    /// The axes over which a step's epilogue runs.
    fn space(&self, draft: &Draft) -> crate::Shape {
        let shape = &self.node(draft.head).shape;
        match shape.split_last() {
            Some((&columns, rows)) if draft.paired => rows.iter().copied().chain([columns / 2]).collect(),
            _ => shape.clone(),
        }
    }

    fn grow(&mut self, s: u32, n: u32, size: u32) -> Role {
        let draft = &mut self.steps[s as usize];
        self.roles[draft.tail as usize] = Role::Inside(s);
        draft.tail = n;
        self.size[n as usize] = size;
        Role::Tail(s)
    }

    /// Operations of map `n`'s expression. An operand that is read twice as a whole is computed once.
    fn size_with(&self, n: u32) -> u32 {
        let mut whole: SmallVec<[u32; 3]> = SmallVec::new();
        let mut size = 1u32;
        for edge in self.c.edges(self.token, n) {
            if let Target::Node(p) = self.c.target(edge)
                && self.roles[p as usize] == Role::Inline
                && !whole.contains(&p)
            {
                size = size.saturating_add(self.size[p as usize]);
                if edge.view.is_whole(edge.node.shape.elem_count()) {
                    whole.push(p);
                }
            }
        }
        size
    }

    /// What a step reads without its tail's further epilogue.
    fn step_loads(&self, draft: &Draft) -> SmallVec<[Load; 4]> {
        let mut loads = self.loads(draft.head);
        let mut at = draft.tail;
        while at != draft.head {
            let more = self.loads(at);
            let next = more.iter().find_map(|l| match l.target {
                Some(Target::Node(t)) if matches!(self.roles[t as usize], Role::Inside(_)) => Some(t),
                _ => None,
            });
            loads.extend(more);
            match next {
                Some(t) => at = t,
                None => break,
            }
        }
        loads
    }

    /// Whether `user` is `n` or a map inlined into it and nothing else.
    fn is_part_of(&self, user: u32, n: u32) -> bool {
        user == n
            || (self.roles.get(user as usize) == Some(&Role::Inline)
                && self.users[user as usize].iter().all(|&(u, _)| u <= n && self.is_part_of(u, n)))
    }

    fn hops_are_whole(&self, path: &Path) -> bool {
        path.0.iter().all(|&(n, e)| {
            let edge = self.c.edge(self.token, n, e);
            edge.view.is_whole(edge.node.shape.elem_count())
        })
    }

    /// Whether map `n` reads the two halves of contraction `t`'s columns, each as a whole.
    fn halves(&self, t: u32, n: u32, mine: &[&Load]) -> bool {
        if self.rules.refused.contains(&Refusal::Pair(t)) || !matches!(self.node(t).op, Op::Contract { .. }) {
            return false;
        }
        let shape = &self.node(t).shape;
        let Some((&columns, rows)) = shape.split_last() else { return false };
        let count = self.node(n).shape.elem_count();
        if columns % 2 != 0 || self.node(n).shape.last() != Some(&(columns / 2)) || count * 2 != shape.elem_count() {
            return false;
        }
        let space: crate::Shape = rows.iter().copied().chain([columns / 2]).collect();
        let half = |l: &Load| self.view(&l.path).and_then(|v| v.reshape(&space)).and_then(|v| half_of(&v, columns));
        let sides: Option<SmallVec<[u8; 4]>> = mine.iter().map(|l| half(l)).collect();
        let fit = self.loads(n).iter().all(|l| self.view(&l.path).is_some_and(|v| v.reshape(&space).is_some()));
        sides.is_some_and(|s| s.contains(&0) && s.contains(&1)) && fit
    }

    /// Rule 5: a norm whose only readers are contractions that take it as their left operand moves into them, if its own
    /// operand is stored as it is and its epilogue is a product with a weight (and a sum with a bias).
    fn norms_into_contractions(&mut self) {
        if !self.rules.fuse {
            return;
        }
        let living = self.steps.iter().enumerate().filter(|(_, draft)| !draft.dead);
        let step_of: FxHashMap<u32, u32> = living.map(|(s, draft)| (draft.head, s as u32)).collect();
        for s in 0..self.steps.len() {
            let draft = self.steps[s].clone();
            let Op::Row { op: RowOp::RmsNorm | RowOp::LayerNorm, inner: 1 } = self.node(draft.head).op else {
                continue;
            };
            if self.c.wanted[draft.tail as usize].store || self.norm_weights(&draft).is_none() {
                continue;
            }
            let users = &self.users[draft.tail as usize];
            let readers: SmallVec<[u32; 4]> = users
                .iter()
                .filter(|&&(user, e)| e == 0 && matches!(self.node(user).op, Op::Contract { .. }))
                .map(|&(user, _)| user)
                .filter(|user| !self.rules.refused.contains(&Refusal::Norm(*user)))
                .filter(|&user| {
                    let view = &self.c.edge(self.token, user, 0).view;
                    view.is_whole(self.node(draft.tail).shape.elem_count())
                        // The rows that are normalised, not those of a reshaped tail.
                        && view.shape.last() == self.node(draft.head).shape.last()
                        && self.c.edge(self.token, draft.head, 0).view.reshape(&view.shape).is_some()
                })
                .collect();
            if readers.is_empty() || readers.len() != users.len() || readers.len() > 3 {
                continue;
            }
            let steps: SmallVec<[u32; 4]> = readers.iter().filter_map(|r| step_of.get(r).copied()).collect();
            if steps.len() != readers.len() {
                continue;
            }
            for step in steps {
                self.steps[step as usize].norm = Some(s as u32);
            }
            self.steps[s].dead = true;
            self.roles[draft.tail as usize] = Role::Inside(s as u32);
        }
    }

    /// The paths to weight and bias of a norm step that can become a prologue.
    pub(crate) fn norm_weights(&self, draft: &Draft) -> Option<(Option<Path>, Option<Path>)> {
        norm_weights(self.c, self.token, &self.roles, draft)
    }
}

/// The paths to weight and bias of a norm whose epilogue is `* weight` and `+ bias`, with operands that are rows of the
/// norm's width; `None` where it is anything else.
pub(crate) fn norm_weights(
    c: &Collected,
    token: &Token,
    roles: &[Role],
    draft: &Draft,
) -> Option<(Option<Path>, Option<Path>)> {
    let operand = c.edge(token, draft.head, 0);
    if let Target::Node(t) = c.target(operand)
        && roles[t as usize] == Role::Inline
    {
        return None;
    }
    let (mut weight, mut bias) = (None, None);
    let mut at = draft.tail;
    while at != draft.head {
        if c.nodes[at as usize].shape.last() != c.nodes[draft.head as usize].shape.last() {
            return None;
        }
        let edges = c.edges(token, at);
        let inner = edges.iter().position(|e| match c.target(e) {
            Target::Node(t) => matches!(roles[t as usize], Role::Inside(_)) && t >= draft.head,
            Target::Leaf(_) => false,
        })?;
        let other = edges.get(1 - inner.min(1))?;
        if let Target::Node(t) = c.target(other)
            && matches!(roles[t as usize], Role::Inline | Role::Inside(_))
        {
            return None;
        }
        if !is_one_row(&other.view) {
            return None;
        }
        let path = Path::default().then(at, 1 - inner as u8);
        match c.nodes[at as usize].op {
            Op::Map(MapOp::Binary(crate::BinaryOp::Mul)) if weight.is_none() => weight = Some(path),
            Op::Map(MapOp::Binary(crate::BinaryOp::Add)) if bias.is_none() && weight.is_none() => bias = Some(path),
            _ => return None,
        }
        match c.target(&edges[inner]) {
            Target::Node(t) => at = t,
            Target::Leaf(_) => return None,
        }
    }
    Some((weight, bias))
}

/// Which half of rows of `columns` a view covers: 0, 1, or neither.
pub(crate) fn half_of(view: &View, columns: usize) -> Option<u8> {
    let (&width, rows) = view.shape.split_last()?;
    let mut step = columns as isize;
    for (axis, &dim) in rows.iter().enumerate().rev() {
        if dim != 1 && view.strides[axis] != step {
            return None;
        }
        step = step.wrapping_mul(dim as isize);
    }
    if width * 2 != columns || (width != 1 && view.strides[rows.len()] != 1) {
        return None;
    }
    match view.offset {
        0 => Some(0),
        o if o == width => Some(1),
        _ => None,
    }
}

/// The view of the value at the end of a path, over the axes of its first edge. `None` where it is not affine. Composed
/// from the value upwards, as fusion goes: not every order finds an affine map that exists.
pub(crate) fn resolve(c: &Collected, token: &Token, path: &Path) -> Option<View> {
    let (&(n, e), rest) = path.0.split_last()?;
    let mut view = c.edge(token, n, e).view.clone();
    for &(n, e) in rest.iter().rev() {
        let outer = &c.edge(token, n, e).view;
        // Most maps read the whole of what they read.
        if outer.offset != 0 || outer.shape != view.shape || !outer.is_dense() {
            view = outer.compose(&view)?;
        }
    }
    Some(view)
}

/// Distinct buffers among loads.
fn distinct(loads: &[Load]) -> usize {
    let mut seen: SmallVec<[Target; 8]> = SmallVec::new();
    for target in loads.iter().filter_map(|l| l.target) {
        if !seen.contains(&target) {
            seen.push(target);
        }
    }
    seen.len()
}
