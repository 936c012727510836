//! Work so small that only overhead shows.

use tallow_bench_protocol::Op;

use super::Entry;
use super::build::{case, uniform};

/// The cases.
pub fn entries() -> Vec<Entry> {
    let part = |name: &str| uniform(name, &[2, 2]);
    let length = 100;
    vec![
        case("small", "2 x 2 add, read back", Op::Add, vec![part("x"), part("y")], 4).targets(&[("torch", 1.)]),
        case(
            "small",
            "chain of 100 on 2 x 2, read back",
            Op::Chain { length },
            vec![part("x"), part("f"), part("t")],
            4,
        )
        .targets(&[("torch", 3.)]),
    ]
}
