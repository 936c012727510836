//! Moving, picking and sorting.

use tallow_bench_protocol::{Fill, Input, Op};

use super::Entry;
use super::build::{case, uniform};

const WANTED: [(&str, f64); 2] = [("candle", 2.), ("torch", 1.)];

/// The cases.
pub fn entries() -> Vec<Entry> {
    let ids = |dims: &[usize], below: u32| Input { name: "ids".into(), dims: dims.to_vec(), fill: Fill::Ids { below } };
    let shuffled = Input { name: "x".into(), dims: vec![4096, 1024], fill: Fill::Shuffled };
    let (rows, width, picked) = (32_768, 512, 8192);
    let table = || uniform("x", &[rows, width]);
    // What is not picked is not read.
    let picks = |mut entry: Entry, elements: usize| {
        entry.case.bytes = 4. * elements as f64;
        entry
    };
    let entries = vec![
        case("data", "transpose copy, 4096 square", Op::Transpose, vec![uniform("x", &[4096, 4096])], 4096 * 4096),
        case(
            "data",
            "cat of two 4096 x 2048 along columns",
            Op::Cat { axis: 1 },
            vec![uniform("x", &[4096, 2048]), uniform("y", &[4096, 2048])],
            4096 * 4096,
        ),
        picks(
            case(
                "data",
                "gather 1024 of 4096 in each of 4096 rows",
                Op::Gather { axis: 1 },
                vec![uniform("x", &[4096, 4096]), ids(&[4096, 1024], 4096)],
                4096 * 1024,
            ),
            3 * 4096 * 1024,
        ),
        picks(
            case(
                "data",
                "8192 rows of 512 by index",
                Op::IndexSelect,
                vec![table(), ids(&[picked], rows as u32)],
                picked * width,
            ),
            2 * picked * width + picked,
        ),
        case(
            "data",
            "index_add of 8192 rows to 32768 x 512",
            Op::IndexAdd,
            vec![table(), ids(&[picked], rows as u32), uniform("y", &[picked, width])],
            rows * width,
        ),
        case("data", "sort 4096 rows of 1024", Op::Sort, vec![shuffled], 4096 * 1024).tolerance(0.),
    ];
    entries.into_iter().map(|entry| entry.targets(&WANTED)).collect()
}
