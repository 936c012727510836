//! Norms and reductions along rows and columns of a matrix: one pass over 64 MiB each.

use tallow_bench_protocol::{Fill, Input, Op};

use super::Entry;
use super::build::{case, uniform};

const ROWS: usize = 4096;
const COLUMNS: usize = 4096;
const WANTED: [(&str, f64); 2] = [("candle", 2.), ("torch", 1.)];

/// The cases.
pub fn entries() -> Vec<Entry> {
    let (cells, dims) = (ROWS * COLUMNS, [ROWS, COLUMNS]);
    let row = |name: &str| Input { name: name.into(), dims: vec![COLUMNS], fill: Fill::Uniform { scale: 1. } };
    // No two elements are equal: the position of the largest is one.
    let shuffled = || Input { name: "x".into(), dims: dims.to_vec(), fill: Fill::Shuffled };
    let (eps, x) = (1e-5, || uniform("x", &dims));
    let entries = vec![
        case("rows", "softmax", Op::Softmax, vec![x()], cells),
        case("rows", "layer_norm", Op::LayerNorm { eps }, vec![x(), row("weight"), row("bias")], cells),
        case("rows", "rms_norm", Op::RmsNorm { eps }, vec![x(), row("weight")], cells),
        case("rows", "sum over rows", Op::Sum { axis: 1 }, vec![x()], ROWS),
        case("rows", "sum over columns", Op::Sum { axis: 0 }, vec![x()], COLUMNS),
        case("rows", "argmax over rows", Op::Argmax { axis: 1 }, vec![shuffled()], ROWS).tolerance(0.),
        case("rows", "argmax over columns", Op::Argmax { axis: 0 }, vec![shuffled()], COLUMNS).tolerance(0.),
    ];
    entries.into_iter().map(|entry| entry.targets(&WANTED)).collect()
}
