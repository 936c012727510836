//! The order of the steps, and the merging of independent maps into one launch.

use super::{
    draft::Refusal,
    emit::{Emitted, Value},
    recipe::{Recipe, shift_params},
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Dependencies: for each step, the steps that must come first.
pub(crate) type After = Vec<SmallVec<[u32; 4]>>;

/// The values whose buffers a step takes.
fn taken(step: &Emitted) -> impl Iterator<Item = Value> + '_ {
    step.outputs.iter().filter_map(|out| out.takes)
}

/// Dependencies between emitted steps; a write in place comes after all other readers of the value that it takes.
fn dependencies(steps: &[Emitted]) -> After {
    let mut writer: FxHashMap<Value, u32> = FxHashMap::default();
    for (s, step) in steps.iter().enumerate() {
        for &out in &step.outputs {
            writer.insert(out.value, s as u32);
        }
    }
    let mut readers: FxHashMap<Value, SmallVec<[u32; 4]>> = FxHashMap::default();
    for (s, step) in steps.iter().enumerate() {
        for &input in &step.inputs {
            readers.entry(input).or_default().push(s as u32);
        }
    }
    let mut after: After = vec![SmallVec::new(); steps.len()];
    for (s, step) in steps.iter().enumerate() {
        let mut add = |t: u32| {
            if t != s as u32 {
                after[s].push(t);
            }
        };
        for value in step.inputs.iter().copied().chain(taken(step)) {
            if let Some(&w) = writer.get(&value) {
                add(w);
            }
        }
        for value in taken(step) {
            readers.get(&value).into_iter().flatten().for_each(|&r| add(r));
        }
        after[s].sort_unstable();
        after[s].dedup();
    }
    after
}

/// An order that respects the dependencies; or what to give up where they go round in a circle: a write in place (a reader of
/// the old version may depend on the new one), else products in one launch (two such launches may each need a part of the
/// other).
///
/// Steps come in the order in which the program made them (`ages`, of each step's latest node), so that values are alive as
/// long as an eager program would keep them: the gradient of a weight is computed when the activations that it needs are
/// there, and a block that is recomputed for its gradient, just before it. A step that waits for nothing comes when it is
/// first needed.
pub(crate) fn sort(steps: &mut Vec<Emitted>, ages: &[u32]) -> Result<After, Refusal> {
    let after = dependencies(steps);
    let count = steps.len();
    let mut waiting: Vec<usize> = after.iter().map(|a| a.len()).collect();
    let mut next: Vec<SmallVec<[u32; 4]>> = vec![SmallVec::new(); count];
    for (s, list) in after.iter().enumerate() {
        for &t in list {
            next[t as usize].push(s as u32);
        }
    }
    let mut age: Vec<u32> = steps.iter().map(|s| ages.get(s.tail as usize).copied().unwrap_or(u32::MAX)).collect();
    for s in (0..count).filter(|&s| waiting[s] == 0) {
        let first_use = next[s].iter().map(|&t| age[t as usize]).min();
        age[s] = first_use.map_or(age[s], |first| first.max(age[s]));
    }
    let mut ready: std::collections::BinaryHeap<std::cmp::Reverse<(u32, u32)>> =
        (0..count).filter(|&s| waiting[s] == 0).map(|s| std::cmp::Reverse((age[s], s as u32))).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(std::cmp::Reverse((_, s))) = ready.pop() {
        order.push(s);
        for &t in &next[s as usize] {
            waiting[t as usize] -= 1;
            if waiting[t as usize] == 0 {
                ready.push(std::cmp::Reverse((age[t as usize], t)));
            }
        }
    }
    if order.len() < count {
        let stuck = || (0..count).filter(|&s| waiting[s] > 0).map(|s| &steps[s]);
        let in_place = |s: &&Emitted| taken(s).any(|v| matches!(v, Value::Leaf(_) | Value::Node(_)));
        let grouped = |s: &Emitted| match &s.recipe {
            Recipe::Contract { parts, .. } if parts.len() > 1 => parts.last().map(|p| Refusal::Group(p.head)),
            _ => None,
        };
        let give_up = stuck().find(in_place).map(|s| Refusal::InPlace(s.head)).or_else(|| stuck().find_map(grouped));
        return Err(give_up.unwrap_or(Refusal::InPlace(u32::MAX)));
    }
    let mut place = vec![0u32; count];
    for (at, &s) in order.iter().enumerate() {
        place[s as usize] = at as u32;
    }
    let mut old: Vec<Option<Emitted>> = steps.drain(..).map(Some).collect();
    let mut sorted = Vec::with_capacity(count);
    for &s in &order {
        steps.extend(old[s as usize].take());
        sorted.push(after[s as usize].iter().map(|&t| place[t as usize]).collect());
    }
    Ok(sorted)
}

/// How far apart (in nodes) two maps may stand to be launched together: far ones would only keep memory busy.
const NEAR: u32 = 48;

/// Most parts of one launch.
const MAX_PARTS: usize = 4;

/// Merges maps that do not depend on one another (they have the same depth) into one launch, within the limits.
pub(crate) fn merge_maps(steps: &mut Vec<Emitted>, after: &After, max_bindings: usize, max_words: usize) {
    let mut depth = vec![0u32; steps.len()];
    for s in 0..steps.len() {
        depth[s] = after[s].iter().map(|&t| depth[t as usize] + 1).max().unwrap_or(0);
    }
    let mut open: FxHashMap<u32, usize> = FxHashMap::default();
    let mut dead = vec![false; steps.len()];
    for s in 0..steps.len() {
        if !matches!(steps[s].recipe, Recipe::Map { .. }) {
            continue;
        }
        match open.get(&depth[s]) {
            Some(&host) if can_merge(&steps[host], &steps[s], max_bindings, max_words) => {
                let guest = steps[s].clone();
                merge(&mut steps[host], guest);
                dead[s] = true;
            }
            _ => {
                open.insert(depth[s], s);
            }
        }
    }
    let mut dead = dead.into_iter();
    steps.retain(|_| !dead.next().unwrap_or(false));
}

fn can_merge(host: &Emitted, guest: &Emitted, max_bindings: usize, max_words: usize) -> bool {
    let (Recipe::Map { parts: a }, Recipe::Map { parts: b }) = (&host.recipe, &guest.recipe) else { return false };
    let fresh = guest.inputs.iter().filter(|i| !host.inputs.contains(i)).count();
    let bindings = host.inputs.len() + fresh + host.outputs.len() + guest.outputs.len();
    // Ranks are not known yet: five words an operand is typical, nine the most.
    let words: usize = a.iter().chain(b).map(|p| 9 * (p.operands.len() + 2)).sum();
    // Both must not touch one buffer: one writes it in place, the other reads it.
    let clash = |x: &Emitted, y: &Emitted| taken(x).any(|t| y.inputs.contains(&t) || taken(y).any(|u| u == t));
    a.len() + b.len() <= MAX_PARTS
        && bindings <= max_bindings
        && words <= max_words
        && guest.tail.abs_diff(host.tail) <= NEAR
        && !clash(host, guest)
        && !clash(guest, host)
}

fn merge(host: &mut Emitted, mut guest: Emitted) {
    let renumber: SmallVec<[u8; 6]> = guest
        .inputs
        .iter()
        .map(|&value| {
            let at = host.inputs.iter().position(|&v| v == value).unwrap_or_else(|| {
                host.inputs.push(value);
                host.inputs.len() - 1
            });
            at as u8
        })
        .collect();
    let shift = host.params.len();
    if let (Recipe::Map { parts }, Recipe::Map { parts: more }) = (&mut host.recipe, &mut guest.recipe) {
        for part in more.iter_mut() {
            for read in &mut part.operands {
                read.input = read.input.map(|i| renumber[i as usize]);
            }
            shift_params(&mut part.expr, shift);
        }
        parts.append(more);
    }
    host.params.append(&mut guest.params);
    host.outputs.append(&mut guest.outputs);
    host.tail = host.tail.max(guest.tail);
}
