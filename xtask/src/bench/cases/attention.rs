//! Attention of a prompt: as many queries as keys, causal.

use tallow_bench_protocol::{Fill, Input, Op};

use super::Entry;
use super::build::case;

/// The cases.
pub fn entries() -> Vec<Entry> {
    [1024, 4096].into_iter().map(causal).collect()
}

fn causal(positions: usize) -> Entry {
    let (heads, width) = (8, 64);
    // Scores spread over several units, so that some keys weigh much more than others.
    let part = |name: &str| Input {
        name: name.into(),
        dims: vec![1, positions, heads, width],
        fill: Fill::Uniform { scale: 2. },
    };
    let op = Op::Attention { heads, width, causal: true };
    // Two products of width, for each head and each pair of a query and a key that it sees.
    let pairs = (positions * (positions + 1) / 2 * heads) as f64;
    let name = format!("8 heads of 64, {positions} keys, causal");
    case("attention", name, op, vec![part("q"), part("k"), part("v")], positions * heads * width)
        .flops(4. * width as f64 * pairs)
        .targets(&[("candle", 2.), ("torch", 1.)])
}
