//! The merge loop that both kinds of byte-pair encoding share: again and again, the adjacent pair of the best rank (the
//! leftmost of equals) becomes one symbol. A heap of candidates over a linked list makes that O(n log n) for n symbols.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: usize = usize::MAX;

/// Merges `symbols` until no adjacent pair can be merged. `lookup` gives a pair's rank (lower merges earlier) and the
/// symbol it becomes.
pub(crate) fn merge<S: Copy + PartialEq>(symbols: &mut Vec<S>, mut lookup: impl FnMut(S, S) -> Option<(u32, S)>) {
    let n = symbols.len();
    if n < 2 {
        return;
    }
    // next[i] and prev[i] link the symbols that are still there; a symbol that was merged away has next[i] = i.
    let mut next: Vec<usize> = (1..=n).map(|i| if i == n { NONE } else { i }).collect();
    let mut prev: Vec<usize> = (0..n).map(|i| i.wrapping_sub(1)).collect();
    // The pair (left, right) is a candidate only while both hold the symbols they held when it was found.
    let mut found: Vec<(S, S, S)> = Vec::with_capacity(n);
    let mut heap = BinaryHeap::with_capacity(n);
    let mut consider = |symbols: &[S], left: usize, right: usize, heap: &mut BinaryHeap<_>, found: &mut Vec<_>| {
        if let Some((rank, merged)) = lookup(symbols[left], symbols[right]) {
            heap.push(Reverse((rank, left, found.len())));
            found.push((symbols[left], symbols[right], merged));
        }
    };
    for left in 0..n - 1 {
        consider(symbols, left, left + 1, &mut heap, &mut found);
    }
    while let Some(Reverse((_, left, index))) = heap.pop() {
        let (a, b, merged) = found[index];
        let right = next[left];
        if right == NONE || right == left || symbols[left] != a || symbols[right] != b {
            continue;
        }
        symbols[left] = merged;
        next[left] = next[right];
        next[right] = right;
        if next[left] != NONE {
            prev[next[left]] = left;
            consider(symbols, left, next[left], &mut heap, &mut found);
        }
        if prev[left] != NONE {
            consider(symbols, prev[left], left, &mut heap, &mut found);
        }
    }
    let mut kept = 0;
    let mut at = 0;
    while at != NONE {
        symbols[kept] = symbols[at];
        kept += 1;
        at = next[at];
    }
    symbols.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::merge;

    /// The plain loop: find the best pair, merge it, start over.
    fn naive(symbols: &mut Vec<u32>, lookup: impl Fn(u32, u32) -> Option<(u32, u32)>) {
        loop {
            let best = symbols
                .windows(2)
                .enumerate()
                .filter_map(|(i, w)| lookup(w[0], w[1]).map(|(rank, id)| (rank, i, id)))
                .min();
            let Some((_, i, id)) = best else { return };
            symbols[i] = id;
            symbols.remove(i + 1);
        }
    }

    #[test]
    fn the_heap_gives_what_the_plain_loop_gives() {
        // A pseudo-random merge table over few symbols, so that chains and ties are common.
        let lookup = |a: u32, b: u32| {
            let h = a.wrapping_mul(0x9E37_79B9) ^ b.wrapping_mul(0x85EB_CA6B);
            let h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
            (h & 3 != 0 && a + b < 40).then_some(((h >> 8) % 7, a + b))
        };
        let mut state = 1u32;
        let mut merged = 0;
        for len in (0..200).chain([1000]) {
            let symbols: Vec<u32> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    1 + (state >> 29)
                })
                .collect();
            let (mut fast, mut slow) = (symbols.clone(), symbols);
            merge(&mut fast, lookup);
            naive(&mut slow, lookup);
            assert_eq!(fast, slow);
            merged += len as usize - fast.len();
        }
        assert!(merged > 1000, "the table must merge something");
    }
}
