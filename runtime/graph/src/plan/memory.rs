//! Memory of a plan: which buffer each value lies in. Values that outlive the plan get fresh buffers, all others share
//! slots of scratch memory whose sizes are data.

use super::{
    collect::Collected,
    emit::{Emitted, Value},
    order::After,
};
use crate::locked::Token;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Where a buffer of a run comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// The buffer of a leaf.
    Leaf(u32),
    /// Memory of its own, for the nodes that keep it.
    Fresh(Vec<Value>),
    /// Scratch slot of this number, large enough for each of the values.
    Slot(u32, Vec<Value>),
    /// Scratch slot of this number, of the size that the implementation of a step asks for.
    Work(u32, u32),
}

/// The memory plan: places by buffer number, and the buffer number of each value.
#[derive(Default)]
pub(crate) struct Layout {
    pub places: Vec<Place>,
    pub buffer: FxHashMap<Value, u32>,
    pub slots: u32,
}

/// Bytes of a buffer for `exact` bytes: rounded up so that kernels may write whole words.
pub(crate) fn rounded(exact: u64) -> u64 {
    exact.max(4).checked_next_multiple_of(16).unwrap_or(u64::MAX)
}

/// Bytes of a value's buffer.
pub(crate) fn bytes(c: &Collected, token: &Token, value: Value) -> u64 {
    let exact = match value {
        Value::Leaf(l) => c.leaves[l as usize].bytes(),
        Value::Node(n) | Value::Base(n) => c.nodes[n as usize].bytes(),
        Value::Copy(n, e) => {
            let edge = c.edge(token, n, e);
            (edge.view.shape.elem_count() as u64).saturating_mul(edge.node.dtype.size_in_bytes() as u64)
        }
    };
    rounded(exact)
}

/// Values that lie in one buffer, from the first version to the last.
struct Chain {
    values: Vec<Value>,
    leaf: Option<u32>,
    keep: bool,
    first: usize,
    last: usize,
}

/// Assigns places. Adds to `after` what the reuse of slots demands: the new writer waits for the old readers.
pub(crate) fn assign(c: &Collected, token: &Token, steps: &[Emitted], after: &mut After) -> Layout {
    let mut chains: Vec<Chain> = Vec::new();
    let mut chain_of: FxHashMap<Value, usize> = FxHashMap::default();
    let mut users: Vec<Vec<u32>> = Vec::new();
    for (s, step) in steps.iter().enumerate() {
        for &value in step.inputs.iter().chain(step.outputs.iter().filter_map(|o| o.takes.as_ref())) {
            if let Value::Leaf(l) = value {
                chain_of.entry(value).or_insert_with(|| {
                    chains.push(Chain { values: vec![value], leaf: Some(l), keep: false, first: s, last: s });
                    users.push(Vec::new());
                    chains.len() - 1
                });
            }
            if let Some(&chain) = chain_of.get(&value) {
                chains[chain].last = s;
                users[chain].push(s as u32);
            }
        }
        for out in &step.outputs {
            let keep = matches!(out.value, Value::Node(n) if c.wanted[n as usize].keep);
            let chain = match out.takes.and_then(|t| chain_of.get(&t).copied()) {
                Some(chain) => chain,
                None => {
                    chains.push(Chain { values: Vec::new(), leaf: None, keep: false, first: s, last: s });
                    users.push(Vec::new());
                    chains.len() - 1
                }
            };
            chains[chain].values.push(out.value);
            chains[chain].keep |= keep;
            chains[chain].last = s;
            users[chain].push(s as u32);
            chain_of.insert(out.value, chain);
        }
    }
    let mut layout = Layout::default();
    let mut slots = Slots::default();
    let mut by_start: Vec<usize> = (0..chains.len()).collect();
    by_start.sort_by_key(|&i| chains[i].first);
    let mut number = vec![0u32; chains.len()];
    for i in by_start {
        let chain = &chains[i];
        let place = match (chain.leaf, chain.keep) {
            (Some(leaf), _) => Place::Leaf(leaf),
            (None, true) => Place::Fresh(chain.values.clone()),
            (None, false) => {
                let size = chain.values.iter().map(|&v| bytes(c, token, v)).max().unwrap_or(0);
                let (slot, before) = slots.take(chain.first, chain.last, size, i);
                if let Some(before) = before {
                    after[chain.first].extend(users[before].iter().copied().filter(|&s| s as usize != chain.first));
                    after[chain.first].sort_unstable();
                    after[chain.first].dedup();
                    // Chains that share a slot share its buffer number.
                    number[i] = number[before];
                    if let Place::Slot(_, values) = &mut layout.places[number[i] as usize] {
                        values.extend(chain.values.iter().copied());
                    }
                    continue;
                }
                Place::Slot(slot, chain.values.clone())
            }
        };
        number[i] = layout.places.len() as u32;
        layout.places.push(place);
    }
    layout.slots = slots.count;
    for (value, chain) in chain_of {
        layout.buffer.insert(value, number[chain]);
    }
    layout
}

/// Slots by who had them last.
#[derive(Default)]
struct Slots {
    count: u32,
    /// (last step that uses it, slot, its size at planning, the chain that has it), the earliest on top.
    busy: BinaryHeap<Reverse<(usize, u32, u64, usize)>>,
    /// (size, slot, the chain that had it last).
    free: BTreeSet<(u64, u32, usize)>,
}

impl Slots {
    /// A slot for `chain`, which lives from step `first` to step `last`: the free one that is nearest in size, with the chain
    /// that had it before, or a new one. Chains come in the order of their first steps.
    fn take(&mut self, first: usize, last: usize, size: u64, chain: usize) -> (u32, Option<usize>) {
        while let Some(&Reverse((end, slot, size, chain))) = self.busy.peek()
            && end < first
        {
            self.busy.pop();
            self.free.insert((size, slot, chain));
        }
        let above = self.free.range((size, 0, 0)..).next();
        let below = self.free.range(..(size, 0, 0)).next_back();
        let nearest = [above, below].into_iter().flatten().min_by_key(|free| free.0.abs_diff(size)).copied();
        let (slot, size, before) = match nearest {
            Some(free) => {
                self.free.remove(&free);
                (free.1, free.0.max(size), Some(free.2))
            }
            None => {
                self.count += 1;
                (self.count - 1, size, None)
            }
        };
        self.busy.push(Reverse((last, slot, size, chain)));
        (slot, before)
    }
}
