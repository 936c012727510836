//! Running results: every operation and dtype, short rows and rows of many blocks, more rows than a grid has along x.

use super::{axes::*, harness::*};
use tallow_graph::{
    DType, Kernel,
    kernel::{ScanKernel, ScanOp},
};

const OPS: [ScanOp; 4] = [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min];

fn check_scan(noise: &mut Noise, op: ScanOp, dtype: DType, dims: [i64; 3], kind: usize) {
    let source = place(dims, if dims[1] == 0 { 0 } else { kind });
    let words: Vec<i64> = dims.into_iter().chain(source.words).collect();
    let mut bytes = Vec::new();
    match (dtype, op) {
        (DType::F32, ScanOp::Sum) => bytes = noise.elements(dtype, source.elements),
        // Near 1, so that products stay in range.
        (DType::F32, ScanOp::Prod) => {
            (0..source.elements).for_each(|_| put(dtype, 1.0 + noise.float() * 0.01, &mut bytes));
        }
        // Odd, so that products do not end in zeros.
        (_, ScanOp::Prod) => {
            let odd = |_| (noise.bits() | 1).to_le_bytes()[..dtype.size_in_bytes()].to_vec();
            bytes = (0..source.elements).flat_map(odd).collect();
        }
        (DType::F32, _) => {
            // A row begins with numbers: else NaN would be all there is.
            bytes = noise.elements(dtype, source.elements);
            let end = values(noise, dtype, source.elements / 3 + 1);
            let at = bytes.len() - (source.elements / 3) * 4;
            let tail = bytes.len() - at;
            bytes[at..].copy_from_slice(&end[..tail]);
        }
        _ => bytes = values(noise, dtype, source.elements),
    }
    let inputs = [Input::Plain(bytes)];
    let before = vec![0x3c; dtype.size_in_bytes() * dims.iter().product::<i64>() as usize];
    let kernel = Kernel::Scan(ScanKernel { op, dtype });
    let tolerance = match op {
        ScanOp::Sum => scaled(1e-5),
        ScanOp::Prod => relative(2e-3, 0.0),
        // Devices may flush subnormal numbers.
        _ => relative(0.0, 1e-37),
    };
    agree(&format!("scan {op:?} {dtype} {dims:?} {kind}"), &kernel, &inputs, &before, dtype, &words, tolerance);
}

#[test]
fn running_results() {
    let mut noise = Noise(80);
    for (o, op) in OPS.into_iter().enumerate() {
        for (d, dtype) in WIDE.into_iter().enumerate() {
            for (s, dims) in [
                [1i64, 1, 1],
                [5, 3, 7],
                [1, 0, 3],
                [2, 100, 33],
                [1, 2048, 1],
                [3, 2049, 1],
                [1, 5003, 2],
                [2, 9000, 1],
            ]
            .into_iter()
            .enumerate()
            {
                check_scan(&mut noise, op, dtype, dims, o + d + s);
            }
        }
    }
}

#[test]
fn many_rows_and_one_long_row() {
    let mut noise = Noise(81);
    // More workgroups than 65,535 along one axis.
    check_scan(&mut noise, ScanOp::Sum, DType::I32, [22_000, 2, 3], 0);
    check_scan(&mut noise, ScanOp::Max, DType::U64, [65_600, 1, 1], 2);
    // More blocks than a workgroup has invocations.
    check_scan(&mut noise, ScanOp::Sum, DType::I64, [1, 600_001, 1], 2);
}
