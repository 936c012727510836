//! Reductions, norms and softmax against the reference: every operation, dtypes, layouts, sizes, fused expressions.

mod backend_common;

use backend_common::*;
use smallvec::smallvec;
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{Layout, RowKernel, RowOp};
use tallow_graph::{BinaryOp, DType, Expr, Inst, Kernel, Scalar, UnaryOp};

const REDUCTIONS: [RowOp; 7] =
    [RowOp::Sum, RowOp::Prod, RowOp::Mean, RowOp::Max, RowOp::Min, RowOp::ArgMax, RowOp::ArgMin];

fn is_arg(op: RowOp) -> bool {
    matches!(op, RowOp::ArgMax | RowOp::ArgMin)
}

/// The dtype that a reduction of `dtype` accumulates in.
fn accumulator(op: RowOp, dtype: DType) -> DType {
    match dtype {
        _ if is_arg(op) => DType::U32,
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

fn kernel(op: RowOp, outer: u8, inner: u8, dtype: DType, layout: Layout, before: Expr, after: Expr) -> RowKernel {
    let operands = smallvec![operand(0, dtype, layout)];
    RowKernel { op, outer, inner, operands, before, after, accumulator: accumulator(op, dtype) }
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F16 => 1e-3,
        DType::BF16 => 1e-2,
        _ => 3e-6,
    }
}

#[test]
fn reductions_of_every_dtype_and_layout() {
    let mut noise = Noise(11);
    let dtypes = DType::PLAIN.into_iter().filter(|d| !matches!(d, DType::F8E4M3 | DType::F8E5M2));
    for dtype in dtypes {
        for op in REDUCTIONS {
            if op == RowOp::Mean && !dtype.is_float() {
                continue;
            }
            let backend = CpuBackend::with_threads(2).unwrap();
            for (outer, inner) in
                [(1, 1), (1, 37), (5, 3), (7, 64), (33, 100), (3, 2500), (3, 9001), (2100, 7), (300, 2)]
            {
                let x = noise_of(&mut noise, dtype, outer * inner);
                let result = if is_arg(op) { DType::U32 } else { dtype };
                let after = || acc(result);
                let (o, i) = (outer as i64, inner as i64);
                // Rows in order, then side by side.
                for words in [[o, i, 0, i, 1], [o, i, 0, 1, o]] {
                    let layout = if words[3] == i { Layout::Linear } else { Layout::Strided };
                    let k = kernel(op, 1, 1, dtype, layout, load(dtype), after());
                    let what = format!("{op:?} of {dtype} {outer} x {inner}");
                    let out = [(result, outer)];
                    check(
                        &backend,
                        &what,
                        &Kernel::Row(k),
                        std::slice::from_ref(&x),
                        &out,
                        &words,
                        &[],
                        tolerance(dtype),
                    );
                }
            }
        }
    }
}

#[test]
fn ranks_flips_broadcasts_and_expressions() {
    let mut noise = Noise(12);
    for case in 0..300 {
        let backend = CpuBackend::with_threads(1 + case % 3).unwrap();
        let op = [RowOp::Sum, RowOp::Mean, RowOp::Max, RowOp::Min, RowOp::ArgMax][noise.below(5)];
        let (outer, inner) = (noise.below(4), noise.below(3) + usize::from(case % 7 != 0));
        let rank = outer + inner;
        let sizes: Vec<i64> = (0..rank).map(|_| 1 + noise.below([1, 3000, 60, 14, 8, 5, 4][rank]) as i64).collect();
        let mut words = contiguous(&sizes);
        // Another order of axes in memory, and some flipped or broadcast.
        if rank > 1 && noise.below(2) == 0 {
            let (a, b) = (noise.below(rank), noise.below(rank));
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(a, b);
            let mut step = 1;
            for &axis in order.iter().rev() {
                words[axis + 1] = step;
                step *= sizes[axis];
            }
        }
        for axis in 0..rank {
            match noise.below(8) {
                0 => words[axis + 1] = 0,
                1 => {
                    words[0] += (sizes[axis] - 1) * words[axis + 1];
                    words[axis + 1] *= -1;
                }
                _ => {}
            }
        }
        let n = (sizes.iter().product::<i64>()) as usize;
        // before: x * x + scalar 0 * bias[last inner axis]; after: acc - other[outer] (bias and other are one buffer).
        let x = noise.floats(n);
        let y = noise.floats(4000);
        let f = DType::F32;
        let before = expr(&[
            (Inst::Load(0), f),
            (Inst::Load(1), f),
            (Inst::Unary(UnaryOp::Sqr, 0), f),
            (Inst::Param(0), f),
            (Inst::Binary(BinaryOp::Mul, 1, 3), f),
            (Inst::Binary(BinaryOp::Add, 2, 4), f),
        ]);
        let after = if is_arg(op) {
            acc(DType::U32)
        } else {
            expr(&[(Inst::Acc(0), f), (Inst::Load(2), f), (Inst::Binary(BinaryOp::Sub, 0, 1), f)])
        };
        let k = RowKernel {
            op,
            outer: outer as u8,
            inner: inner as u8,
            operands: smallvec![
                operand(0, f, Layout::Strided),
                operand(1, f, Layout::Strided),
                operand(1, f, Layout::Strided)
            ],
            before,
            after,
            accumulator: accumulator(op, f),
        };
        let mut bias = vec![0; rank + 1];
        if inner > 0 {
            bias[rank] = 1;
        }
        let mut other = vec![0; rank + 1];
        if outer > 0 {
            other[outer] = 1;
        }
        let words = [&sizes[..], &words, &bias, &other].concat();
        let rows: i64 = sizes[..outer].iter().product();
        let out = [(if is_arg(op) { DType::U32 } else { f }, rows as usize)];
        let what = format!("case {case}: {op:?}");
        check(&backend, &what, &Kernel::Row(k), &[bytes(&x), bytes(&y)], &out, &words, &[Scalar::F(0.5)], 1e-5);
    }
}

#[test]
fn long_rows_do_not_depend_on_the_number_of_threads() {
    let mut noise = Noise(13);
    let n = 300_001;
    let x = bytes(&noise.floats(n));
    for op in REDUCTIONS.into_iter().filter(|&op| op != RowOp::Prod) {
        let result = accumulator(op, DType::F32);
        let k = || Kernel::Row(kernel(op, 0, 1, DType::F32, Layout::Linear, load(DType::F32), acc(result)));
        let words = [n as i64, 0, 1];
        let backend = CpuBackend::with_threads(3).unwrap();
        check(&backend, "long", &k(), std::slice::from_ref(&x), &[(result, 1)], &words, &[], 1e-5);
        let one = run(&CpuBackend::with_threads(1).unwrap(), k(), std::slice::from_ref(&x), &[4], &words, &[]);
        for _ in 0..20 {
            assert_eq!(run(&backend, k(), std::slice::from_ref(&x), &[4], &words, &[]), one);
        }
    }
}

#[test]
fn nan_wins_and_nothing_reduces_to_the_neutral_element() {
    let backend = CpuBackend::with_threads(1).unwrap();
    let mut x = vec![1.0f32; 100];
    x[41] = f32::INFINITY;
    x[70] = f32::NAN;
    x[71] = f32::NAN;
    for op in REDUCTIONS {
        // In a row, and as a column among others.
        for (words, layout) in [(vec![1, 100, 0, 100, 1], Layout::Linear), (vec![10, 10, 0, 1, 10], Layout::Strided)] {
            let result = accumulator(op, DType::F32);
            let k = Kernel::Row(kernel(op, 1, 1, DType::F32, layout, load(DType::F32), acc(result)));
            check(&backend, "nan", &k, &[bytes(&x)], &[(result, words[0] as usize)], &words, &[], 1e-6);
        }
    }
    for (op, want) in [(RowOp::Sum, 0.0f32), (RowOp::Prod, 1.0)] {
        let k = Kernel::Row(kernel(op, 1, 1, DType::F32, Layout::Linear, load(DType::F32), acc(DType::F32)));
        let got = run(&backend, k, &[vec![]], &[12], &[3, 0, 0, 0, 1], &[]);
        assert_eq!(values::<f32>(&got[0]), [want; 3]);
    }
}

#[test]
fn norms_and_softmax() {
    let mut noise = Noise(14);
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        for op in [RowOp::RmsNorm, RowOp::LayerNorm, RowOp::Softmax] {
            for (rows, n) in [(1, 1), (3, 5), (4, 64), (70, 33), (2, 3000)] {
                let backend = CpuBackend::with_threads(2).unwrap();
                let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
                let after = expr(&[
                    (Inst::Acc(0), wide),
                    (Inst::Load(1), wide),
                    (Inst::Binary(BinaryOp::Mul, 0, 1), wide),
                    (Inst::Cast(2), dtype),
                ]);
                let (r, c) = (rows as i64, n as i64);
                let x = noise_of(&mut noise, dtype, rows * n);
                let w = noise_of(&mut noise, DType::F32, n);
                let w64 = noise_of(&mut noise, DType::F64, n);
                let (w, weight) = if wide == DType::F64 { (w64, DType::F64) } else { (w, DType::F32) };
                for (strides, layout) in [([c, 1], Layout::Linear), ([1, r], Layout::Strided)] {
                    let k = RowKernel {
                        op,
                        outer: 1,
                        inner: 1,
                        operands: smallvec![operand(0, dtype, layout), operand(1, weight, Layout::Strided)],
                        before: expr(&[(Inst::Load(0), wide)]),
                        after: after.clone(),
                        accumulator: wide,
                    };
                    let words = [r, c, 0, strides[0], strides[1], 0, 0, 1];
                    let what = format!("{op:?} of {dtype} {rows} x {n}");
                    let out = [(dtype, rows * n)];
                    let inputs = [x.clone(), w.clone()];
                    check(
                        &backend,
                        &what,
                        &Kernel::Row(k),
                        &inputs,
                        &out,
                        &words,
                        &[Scalar::F(1e-5)],
                        tolerance(dtype),
                    );
                }
                // Side by side in two groups, straight to the output.
                let k = kernel(op, 2, 1, wide, Layout::Strided, load(wide), acc(wide));
                let x = noise_of(&mut noise, wide, 2 * rows * n);
                let out = [(wide, 2 * rows * n)];
                let words = [2, r, c, 0, r * c, 1, r];
                check(&backend, "turned", &Kernel::Row(k), &[x], &out, &words, &[Scalar::F(1e-5)], 3e-6);
                // Straight to the output.
                let k = kernel(op, 1, 1, wide, Layout::Linear, load(wide), acc(wide));
                let x = noise_of(&mut noise, wide, rows * n);
                let out = [(wide, rows * n)];
                check(&backend, "plain", &Kernel::Row(k), &[x], &out, &[r, c, 0, c, 1], &[Scalar::F(1e-5)], 3e-6);
            }
        }
    }
}
