//! The order of elements: every dtype, ties, NaN and zeros of both signs, rows of all lengths up to many tiles.

use super::{axes::*, harness::*};
use tallow_graph::{DType, Kernel, kernel::SortKernel};

fn check_sort(noise: &mut Noise, dtype: DType, descending: bool, dims: [i64; 3], kind: usize) {
    let source = place(dims, if dims[1] == 0 { 0 } else { kind });
    let words: Vec<i64> = dims.into_iter().chain(source.words).collect();
    let inputs = [Input::Plain(values(noise, dtype, source.elements))];
    let before = vec![0x3c; 4 * dims.iter().product::<i64>() as usize];
    let kernel = Kernel::Sort(SortKernel { dtype, descending });
    let name = format!("sort {dtype} {descending} {dims:?} {kind}");
    agree(&name, &kernel, &inputs, &before, DType::U32, &words, EXACT);
}

#[test]
fn rows_in_order() {
    let mut noise = Noise(70);
    for (d, dtype) in WIDE.into_iter().enumerate() {
        for descending in [false, true] {
            for (s, dims) in [
                [1i64, 1, 1],
                [1, 2, 1],
                [5, 3, 7],
                [1, 0, 3],
                [40, 17, 9],
                [3, 128, 1],
                [2, 1000, 3],
                [1, 1024, 2],
                [2, 1025, 1],
                [1, 2048, 3],
                [3, 5003, 1],
            ]
            .into_iter()
            .enumerate()
            {
                check_sort(&mut noise, dtype, descending, dims, d + s);
            }
        }
    }
}

#[test]
fn long_rows_in_order() {
    let mut noise = Noise(71);
    check_sort(&mut noise, DType::F32, true, [1, (1 << 18) + 37, 1], 0);
    check_sort(&mut noise, DType::I64, false, [1, 70_001, 2], 1);
}

/// Minutes on a CPU: run by name.
#[test]
#[ignore = "slow on software devices"]
fn four_million_in_order() {
    check_sort(&mut Noise(72), DType::F32, false, [1, 1 << 22, 1], 2);
}
