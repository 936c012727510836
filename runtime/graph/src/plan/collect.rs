//! The pending nodes below the roots, in topological order, and the structural key under which their plan is cached.

use crate::{
    Error, Result,
    locked::Token,
    node::{Edge, Node, Op},
};
use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

/// Where an edge leads: to a value that is there, or to a node of this plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Target {
    Leaf(u32),
    Node(u32),
}

/// What the rest of the program wants of a node, beside its consumers in the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    /// It was asked for, or is asked for again after having been fused away: it must be stored.
    pub store: bool,
    /// Somebody outside the plan holds it: if it is stored, it keeps its buffer.
    pub keep: bool,
}

/// The part of the graph that a plan computes.
#[derive(Default)]
pub(crate) struct Collected {
    /// Pending nodes, operands before users.
    pub nodes: Vec<Arc<Node>>,
    /// Values that are there.
    pub leaves: Vec<Arc<Node>>,
    /// Edges of the plan that lead to each node, and to each leaf.
    pub uses: Vec<u32>,
    pub leaf_uses: Vec<u32>,
    pub wanted: Vec<Wanted>,
    /// Nobody outside the plan holds the leaf: a write may take its buffer.
    pub leaf_free: Vec<bool>,
    /// Transfers whose value must be fetched from another device first; the plan is incomplete if there are any.
    pub transfers: Vec<Arc<Node>>,
    /// The structure: equal keys mean equal plans, up to layout classes that filling checks.
    pub key: Vec<u64>,
    /// Why there can be no plan.
    error: Option<Error>,
    stack: Vec<(Arc<Node>, usize)>,
}

/// Bits of a mark below the round: a flag for leaves, and the position. Rounds get the other 40, which last for years.
const POSITION_BITS: u32 = 24;
const LEAF: u64 = 1 << (POSITION_BITS - 1);

/// Nodes, and leaves, that one plan may have.
const MAX_NODES: usize = LEAF as usize;

/// Rounds that marks can tell apart.
pub(crate) const MAX_ROUNDS: u64 = 1 << (64 - POSITION_BITS);

/// Whether a round (in its place above the position) has met a node.
fn seen(node: &Node, round: u64) -> bool {
    node.mark.load(Ordering::Relaxed) >> POSITION_BITS == round >> POSITION_BITS
}

impl Collected {
    /// The target of an edge of a collected node.
    pub(crate) fn target(&self, edge: &Edge) -> Target {
        let mark = edge.node.mark.load(Ordering::Relaxed);
        let at = (mark & (LEAF - 1)) as u32;
        if mark & LEAF != 0 { Target::Leaf(at) } else { Target::Node(at) }
    }

    /// Edge `e` of node `n`.
    pub(crate) fn edge<'a>(&'a self, token: &'a Token, n: u32, e: u8) -> &'a Edge {
        &self.nodes[n as usize].state.get(token).edges[e as usize]
    }

    /// Edges of node `n`.
    pub(crate) fn edges<'a>(&'a self, token: &'a Token, n: u32) -> &'a [Edge] {
        &self.nodes[n as usize].state.get(token).edges
    }

    /// Walks down from the roots. `round` must be new, above 0 and below [`MAX_ROUNDS`].
    pub(crate) fn collect(&mut self, token: &Token, round: u64, roots: &[Arc<Node>]) -> Result<()> {
        let round = round << POSITION_BITS;
        for root in roots {
            self.visit(token, round, root.clone());
            while let Some((node, next)) = self.stack.last_mut() {
                let edges = &node.state.get(token).edges;
                if let Some(edge) = edges.get(*next) {
                    *next += 1;
                    // Looked at before it is cloned: most operands were seen.
                    if !seen(&edge.node, round) {
                        let child = edge.node.clone();
                        self.visit(token, round, child);
                    }
                } else if let Some((node, _)) = self.stack.pop() {
                    self.finish(token, round, node);
                }
            }
        }
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.transfers.is_empty() {
            self.weigh(token, roots);
        }
        Ok(())
    }

    fn visit(&mut self, token: &Token, round: u64, node: Arc<Node>) {
        if self.error.is_some() || seen(&node, round) {
            return;
        }
        let state = node.state.get(token);
        if let Some(why) = &state.lost {
            self.error = Some(Error::msg(format!("{node:?} is lost, a run failed that was writing into it: {why}")));
            return;
        }
        if self.leaves.len().max(self.nodes.len()) + self.stack.len() >= MAX_NODES {
            let message = format!("more than {MAX_NODES} operations are pending at once: realize some of them earlier");
            self.error = Some(Error::msg(message));
            return;
        }
        if state.buffer.is_some() {
            node.mark.store(round | LEAF | self.leaves.len() as u64, Ordering::Relaxed);
            self.leaves.push(node);
            self.leaf_uses.push(0);
            return;
        }
        node.mark.store(round, Ordering::Relaxed);
        if node.op == Op::Transfer {
            self.transfers.push(node);
            return;
        }
        self.stack.push((node, 0));
    }

    fn finish(&mut self, token: &Token, round: u64, node: Arc<Node>) {
        if self.error.is_some() || !self.transfers.is_empty() {
            // There will be no plan this time: at most, more transfers are looked for.
            return;
        }
        let edges = &node.state.get(token).edges;
        node.mark.store(round | self.nodes.len() as u64, Ordering::Relaxed);
        let head = u64::from(node.op.code())
            | (node.dtype as u64) << 32
            | (node.shape.rank() as u64) << 40
            | (edges.len() as u64) << 48;
        self.key.push(head);
        if let Some(custom) = &node.custom {
            self.key.extend([custom.id(), node.scalars.len() as u64]);
        }
        for edge in edges {
            let (class, at) = match self.target(edge) {
                Target::Leaf(i) => {
                    self.leaf_uses[i as usize] += 1;
                    (1u64 << 31 | (edge.node.dtype as u64) << 56, i)
                }
                Target::Node(i) => {
                    self.uses[i as usize] += 1;
                    (0, i)
                }
            };
            let view = &edge.view;
            let mut axes = 0u64;
            let mut step = 1isize;
            let mut dense = true;
            for (&dim, &stride) in view.shape.iter().zip(&view.strides).rev() {
                axes = axes << 2 | u64::from(dim == 1) | u64::from(stride == 0) << 1;
                dense &= dim == 1 || stride == step;
                step = step.wrapping_mul(dim as isize);
            }
            let whole = dense && view.offset == 0 && step as usize == edge.node.shape.elem_count();
            let flags = u64::from(dense) << 53 | u64::from(whole) << 54;
            self.key.push(class | u64::from(at) | axes << 32 | (view.shape.rank() as u64) << 48 | flags);
        }
        if edges.is_empty() {
            self.key.push(node.shape.iter().fold(0, |bits, &d| bits << 1 | u64::from(d == 1)));
        }
        self.uses.push(0);
        self.nodes.push(node);
    }

    /// Who else holds the nodes. Reference counts are exact enough: whoever could make a new reference holds one.
    fn weigh(&mut self, token: &Token, roots: &[Arc<Node>]) {
        for (node, &uses) in self.nodes.iter().zip(&self.uses) {
            let keep = Arc::strong_count(node) > uses as usize + 1;
            self.wanted.push(Wanted { keep, store: keep && node.state.get(token).fused });
        }
        for (leaf, &uses) in self.leaves.iter().zip(&self.leaf_uses) {
            let shared = leaf.state.get(token).buffer.as_ref().is_none_or(|b| Arc::strong_count(b) > 1);
            self.leaf_free.push(!shared && Arc::strong_count(leaf) == uses as usize + 1);
        }
        // The counts were read relaxed: what those who let go did before happens before what the plan will do.
        fence(Ordering::Acquire);
        for root in roots {
            if root.state.get(token).buffer.is_none() && root.op != Op::Transfer {
                let at = (root.mark.load(Ordering::Relaxed) & (LEAF - 1)) as usize;
                self.wanted[at] = Wanted { store: true, keep: true };
            }
        }
        let bits = |out: &mut Vec<u64>, flags: &mut dyn Iterator<Item = u64>, width: u32| {
            let (mut word, mut used) = (0u64, 0);
            for flag in flags {
                word |= flag << used;
                used += width;
                if used + width > 64 {
                    out.push(word);
                    (word, used) = (0, 0);
                }
            }
            out.push(word);
        };
        bits(&mut self.key, &mut self.wanted.iter().map(|w| u64::from(w.store) | u64::from(w.keep) << 1), 2);
        bits(&mut self.key, &mut self.leaf_free.iter().map(|&f| u64::from(f)), 1);
    }

    /// For each node, its place in the order in which the nodes were made.
    pub(crate) fn ages(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).collect();
        order.sort_unstable_by_key(|&n| self.nodes[n as usize].number);
        let mut ages = vec![0; order.len()];
        for (age, n) in order.into_iter().enumerate() {
            ages[n as usize] = age as u32;
        }
        ages
    }

    /// Empties it for the next round, keeping capacity.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.leaves.clear();
        self.uses.clear();
        self.leaf_uses.clear();
        self.wanted.clear();
        self.leaf_free.clear();
        self.transfers.clear();
        self.key.clear();
        self.error = None;
        self.stack.clear();
    }
}
