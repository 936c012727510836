//! Arithmetic element by element: one pass over memory when it is fused, several when not.

use tallow_bench_protocol::Op;

use super::Entry;
use super::build::{case, uniform};

/// The cases.
pub fn entries() -> Vec<Entry> {
    let dims = [4096, 4096];
    let inputs = vec![uniform("x", &dims), uniform("c", &dims)];
    let op = Op::GeluAffineMul { a: 1.7, b: 0.3 };
    vec![
        case("map", "gelu(x * a + b) * c, 16 M", op, inputs, 4096 * 4096)
            // By the tanh form: a polynomial, and an exponential of about fifteen operations.
            .flops(30. * (4096. * 4096.))
            .targets(&[("candle", 4.), ("torch", 1.5)]),
    ]
}
