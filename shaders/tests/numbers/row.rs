//! Reductions and norms: every operation, lengths around the workgroup's, axes in any order.

use super::harness::*;
use smallvec::smallvec;
use tallow_graph::{
    BinaryOp, DType, Inst, Kernel, Scalar,
    kernel::{Layout, RowKernel, RowOp},
};

fn kernel(op: RowOp, outer: u8, inner: u8, dtype: DType, weight: bool) -> Kernel {
    let arg = matches!(op, RowOp::ArgMax | RowOp::ArgMin);
    let accumulator = if arg { DType::U32 } else { dtype };
    let after = if weight {
        expr(&[(Inst::Acc(0), dtype), (Inst::Load(1), dtype), (Inst::Binary(BinaryOp::Mul, 0, 1), dtype)])
    } else {
        expr(&[(Inst::Acc(0), accumulator)])
    };
    Kernel::Row(RowKernel {
        op,
        outer,
        inner,
        operands: smallvec![operand(0, dtype, Layout::Strided), operand(1, dtype, Layout::Strided)],
        before: expr(&[(Inst::Load(0), dtype)]),
        after,
        accumulator,
    })
}

const ALL: [RowOp; 10] = [
    RowOp::Sum,
    RowOp::Prod,
    RowOp::Mean,
    RowOp::Max,
    RowOp::Min,
    RowOp::ArgMax,
    RowOp::ArgMin,
    RowOp::RmsNorm,
    RowOp::LayerNorm,
    RowOp::Softmax,
];

fn tolerance(op: RowOp, dtype: DType) -> Tolerance {
    match dtype {
        DType::F16 => Tolerance { relative: 2e-3, absolute: 1e-6, scaled: 1e-3 },
        DType::BF16 => Tolerance { relative: 1e-2, absolute: 1e-6, scaled: 5e-3 },
        DType::F32 if matches!(op, RowOp::Max | RowOp::Min) => EXACT,
        DType::F32 => Tolerance { relative: 2e-6, absolute: 1e-7, scaled: 3e-6 },
        _ => EXACT,
    }
}

#[test]
fn rows_of_any_length() {
    let mut noise = Noise(10);
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::U8, DType::I64, DType::U32] {
        for op in ALL {
            let norm = !op.reduces();
            if !dtype.is_float() && (norm || op == RowOp::Mean) {
                continue;
            }
            for (rows, length) in [(1i64, 1i64), (70, 7), (3, 300), (1, 5000)] {
                if op == RowOp::Prod && length > 100 && dtype.is_float() {
                    continue;
                }
                let arg = matches!(op, RowOp::ArgMax | RowOp::ArgMin);
                let kernel = kernel(op, 1, 1, dtype, norm);
                let x = noise.elements(dtype, (rows * length) as usize);
                let w = noise.elements(dtype, length as usize);
                let words = [rows, length, 0, length, 1, 0, 0, 1];
                let n = if norm { rows * length } else { rows } as usize;
                let out = if arg { DType::U32 } else { dtype };
                let inputs = [Input::Plain(x), Input::Plain(w)];
                let name = format!("{op:?} {dtype} {rows}x{length}");
                check(&name, &kernel, &inputs, &[(out, n)], &words, &[Scalar::F(1e-5)], tolerance(op, dtype));
            }
        }
    }
}

#[test]
fn leading_axes_and_broken_rows() {
    let mut noise = Noise(11);
    let x = noise.elements(DType::F32, 6 * 40 * 37);
    for op in ALL {
        let norm = !op.reduces();
        // Over the first axis of [40, 37].
        let kernel1 = kernel(op, 1, 1, DType::F32, false);
        let out = if matches!(op, RowOp::ArgMax | RowOp::ArgMin) { DType::U32 } else { DType::F32 };
        let words = [37, 40, 0, 1, 37, 0, 0, 0];
        let inputs = [Input::Plain(x.clone()), Input::Plain(x.clone())];
        let n = if norm { 37 * 40 } else { 37 };
        check(
            &format!("{op:?} columns"),
            &kernel1,
            &inputs,
            &[(out, n)],
            &words,
            &[Scalar::F(1e-5)],
            tolerance(op, DType::F32),
        );
        if norm {
            continue;
        }
        // Over the first and last of [6, 40, 37], and over all.
        let kernel2 = kernel(op, 1, 2, DType::F32, false);
        let words = [40, 6, 37, 0, 37, 40 * 37, 1, 0, 0, 0, 0];
        check(&format!("{op:?} two"), &kernel2, &inputs, &[(out, 40)], &words, &[], tolerance(op, DType::F32));
        let kernel0 = kernel(op, 0, 1, DType::F32, false);
        let words = [37, 5, -0, 0, 0];
        check(&format!("{op:?} all"), &kernel0, &inputs, &[(out, 1)], &words, &[], tolerance(op, DType::F32));
        let kernel3 = kernel(op, 2, 1, DType::F32, false);
        let words = [6, 40, 37, 36, 40 * 37, 37, -1, 0, 0, 0, 0];
        check(&format!("{op:?} flipped"), &kernel3, &inputs, &[(out, 240)], &words, &[], tolerance(op, DType::F32));
    }
}

#[test]
fn nan_wins_and_ties_take_the_first() {
    let f = |values: &[f32]| Input::Plain(values.iter().flat_map(|v| v.to_le_bytes()).collect());
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let rows = [[1.0, 5.0, 5.0, 2.0], [1.0, nan, 7.0, nan], [-inf, -inf, -inf, -inf], [inf, 0.0, -inf, inf]].concat();
    for op in [RowOp::Max, RowOp::Min, RowOp::ArgMax, RowOp::ArgMin, RowOp::Sum, RowOp::Softmax] {
        let out = if matches!(op, RowOp::ArgMax | RowOp::ArgMin) { DType::U32 } else { DType::F32 };
        let n = if op.reduces() { 4 } else { 16 };
        let words = [4, 4, 0, 4, 1, 0, 0, 0];
        let inputs = [f(&rows), f(&[0.0])];
        check(
            &format!("{op:?} special"),
            &kernel(op, 1, 1, DType::F32, false),
            &inputs,
            &[(out, n)],
            &words,
            &[Scalar::F(0.0)],
            relative(1e-6, 1e-7),
        );
    }
}

#[test]
fn variance_survives_a_large_mean() {
    let mut noise = Noise(12);
    let x: Vec<u8> = (0..1000).flat_map(|_| ((1000.0 + noise.float()) as f32).to_le_bytes()).collect();
    let words = [1, 1000, 0, 1000, 1, 0, 0, 0];
    let inputs = [Input::Plain(x.clone()), Input::Plain(x)];
    check(
        "layer norm",
        &kernel(RowOp::LayerNorm, 1, 1, DType::F32, false),
        &inputs,
        &[(DType::F32, 1000)],
        &words,
        &[Scalar::F(1e-5)],
        scaled(2e-4),
    );
}

#[test]
fn more_rows_than_one_grid_axis() {
    let n = 70_001usize;
    let x: Vec<u8> = (0..2 * n).flat_map(|i| ((i % 97) as f32).to_le_bytes()).collect();
    let words = [n as i64, 2, 0, 2, 1, 0, 0, 0];
    let inputs = [Input::Plain(x.clone()), Input::Plain(x)];
    check("many rows", &kernel(RowOp::Sum, 1, 1, DType::F32, false), &inputs, &[(DType::F32, n)], &words, &[], EXACT);
}

/// llvmpipe ends loops after 65,535 turns: what is chosen for a long row must not be one invocation's walk.
#[test]
fn the_choice_for_a_long_row_is_right() {
    let Some(device) = device() else { return };
    let n = 300_001usize;
    let kernel = Kernel::Row(RowKernel {
        op: RowOp::Sum,
        outer: 1,
        inner: 1,
        operands: smallvec![operand(0, DType::I32, Layout::Strided)],
        before: expr(&[(Inst::Load(0), DType::I32)]),
        after: expr(&[(Inst::Acc(0), DType::I32)]),
        accumulator: DType::I32,
    });
    let words = [1, n as i64, 0, n as i64, 1];
    let offered = tallow_graph::Backend::lower(device, &kernel, &words);
    let best = offered.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap().id;
    let inputs = [Input::Plain(Noise(5).elements(DType::I32, n))];
    let before = [vec![0; 4]];
    let reference = tallow_graph::reference::Reference::default();
    let want = run(&reference, 0, &kernel, &inputs, &before, &words, &[]).unwrap();
    assert_eq!(run(device, best, &kernel, &inputs, &before, &words, &[]).unwrap(), want, "#{best}");
}
