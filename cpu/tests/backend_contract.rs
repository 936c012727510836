//! Products against the reference: shapes, batches, layouts, dtypes, epilogues, pairs, prologues, quantized weights.

mod backend_common;

use backend_common::*;
use smallvec::smallvec;
use std::sync::Arc;
use tallow_cpu::{CpuBackend, Isa, quant};
use tallow_graph::kernel::{Activations, ContractKernel, ContractPart, Layout, Prologue, RightUnit, RowClass, RowOp};
use tallow_graph::{Backend, BinaryOp, DType, Expr, Inst, Kernel, Scalar, UnaryOp};

fn part(right: DType, input: u8, epilogue: Expr) -> ContractPart {
    ContractPart { right: (input, right), right_unit: RightUnit::K, paired: false, operands: smallvec![], epilogue }
}

fn contract(batch: u8, left: DType, m: usize, parts: Vec<ContractPart>) -> ContractKernel {
    ContractKernel {
        batch,
        left: (0, left),
        left_rows: true,
        rows: RowClass::of(m),
        vector: false,
        prologue: None,
        activations: Activations::F32,
        parts: parts.into(),
    }
}

#[test]
fn shapes_batches_and_layouts() {
    let mut noise = Noise(21);
    let shapes = [
        (1, 1, 1),
        (1, 64, 100),
        (1, 300, 7),
        (2, 33, 17),
        (4, 100, 65),
        (5, 64, 64),
        (37, 19, 53),
        (100, 70, 130),
        (3, 0, 4),
    ];
    for (case, &(m, k, n)) in shapes.iter().enumerate() {
        for unit in [RightUnit::K, RightUnit::N] {
            for transposed in [false, true] {
                for batch in [vec![], vec![3], vec![2, 2]] {
                    let backend = CpuBackend::with_threads(1 + case % 3).unwrap();
                    let count: i64 = batch.iter().product();
                    let (mi, ki, ni) = (m as i64, k as i64, n as i64);
                    let f = DType::F32;
                    let mut p = part(f, 1, acc(f));
                    p.right_unit = unit;
                    let mut kernel = contract(batch.len() as u8, f, m, vec![p]);
                    kernel.left_rows = !transposed;
                    let left_tail = if transposed { [1, mi] } else { [ki, 1] };
                    let right_tail = if unit == RightUnit::K { [1, ki] } else { [ni, 1] };
                    // The last batch axis of the right operand is shared.
                    let (left_b, right_b) = match batch.len() {
                        0 => (vec![], vec![]),
                        1 => (vec![mi * ki], vec![0]),
                        _ => (vec![2 * mi * ki, mi * ki], vec![ki * ni, 0]),
                    };
                    let words =
                        [&batch[..], &[mi, ki, 1], &left_b, &left_tail, &[ni, 2], &right_b, &right_tail].concat();
                    let a = bytes(&noise.floats(m * k * count as usize + 1));
                    let b = bytes(&noise.floats(k * n * count as usize + 2));
                    let what = format!("{m} x {k} x {n} {unit:?} {transposed} {batch:?}");
                    let out = [(f, m * n * count as usize)];
                    check(&backend, &what, &Kernel::Contract(kernel), &[a, b], &out, &words, &[], 1e-5);
                }
            }
        }
    }
}

#[test]
fn every_dtype() {
    let mut noise = Noise(22);
    let pairs = DType::PLAIN
        .into_iter()
        .filter(|d| !matches!(d, DType::F8E4M3 | DType::F8E5M2))
        .map(|d| (d, d))
        .chain([(DType::F32, DType::F16), (DType::F32, DType::BF16), (DType::F16, DType::F32)]);
    for (left, right) in pairs {
        for (m, k, n) in [(1, 65, 40), (3, 40, 33), (20, 31, 45)] {
            for unit in [RightUnit::K, RightUnit::N] {
                let backend = CpuBackend::with_threads(2).unwrap();
                let class = if left == DType::F64 || left.is_int() { left } else { DType::F32 };
                let epilogue =
                    if class == left { acc(left) } else { expr(&[(Inst::Acc(0), DType::F32), (Inst::Cast(0), left)]) };
                let mut p = part(right, 1, epilogue);
                p.right_unit = unit;
                let kernel = contract(0, left, m, vec![p]);
                let (a, b) = (noise_of(&mut noise, left, m * k), noise_of(&mut noise, right, k * n));
                let right_tail = if unit == RightUnit::K { [1, k as i64] } else { [n as i64, 1] };
                let words = [&[m as i64, k as i64, 0, k as i64, 1, n as i64, 0][..], &right_tail].concat();
                let tolerance = match left {
                    DType::F64 => 1e-12,
                    DType::F16 => 2e-3,
                    DType::BF16 => 1e-2,
                    _ => 1e-5,
                };
                let what = format!("{left} by {right} {m} x {k} x {n} {unit:?}");
                check(&backend, &what, &Kernel::Contract(kernel), &[a, b], &[(left, m * n)], &words, &[], tolerance);
            }
        }
    }
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let mut noise = Noise(27);
    let f = DType::F32;
    // Tiles, few rows by columns, few rows by pieces of the depth, batches.
    let cases = [(1, 1100, 500, 0), (3, 600, 900, 0), (70, 600, 60, 0), (5, 40, 50, 0), (30, 70, 20, 9)];
    for (m, k, n, batch) in cases {
        for unit in [RightUnit::K, RightUnit::N] {
            let rights = [f, DType::BF16, DType::F16, DType::F8E4M3];
            for &right in &rights[..if k > 100 { 2 } else { 4 }] {
                let (mi, ki, ni, b) = (m as i64, k as i64, n as i64, batch as i64);
                let silu = expr(&[
                    (Inst::Acc(0), f),
                    (Inst::Acc(1), f),
                    (Inst::Unary(UnaryOp::Silu, 0), f),
                    (Inst::Binary(BinaryOp::Mul, 2, 1), f),
                ]);
                let mut pair = part(right, 1, silu);
                (pair.paired, pair.right_unit) = (true, unit);
                let mut plain = part(right, 1, acc(f));
                plain.right_unit = unit;
                let axes = usize::from(batch > 0);
                let kernel = Kernel::Contract(contract(axes as u8, f, m, vec![pair, plain]));
                let tail = if unit == RightUnit::K { [1, ki] } else { [2 * ni, 1] };
                let right_words = |n: i64| [&[n, 0][..], &[2 * ki * ni][..axes], &tail].concat();
                let words =
                    [&[b][..axes], &[mi, ki, 0], &[mi * ki][..axes], &[ki, 1], &right_words(ni), &right_words(2 * ni)]
                        .concat();
                let count = batch.max(1);
                // Sums of about 1, so that a product of two is as exact as each.
                let size = (k as f32).sqrt() * if right == DType::F8E4M3 { 128.0 } else { 1.0 };
                let left: Vec<f32> = noise.floats(count * m * k).iter().map(|x| x / size).collect();
                let inputs = [bytes(&left), noise_of(&mut noise, right, count * 2 * k * n)];
                let sizes = [count * m * n * 4, count * m * n * 8];
                let of = |threads| {
                    let backend = CpuBackend::with_threads(threads).unwrap();
                    run(&backend, kernel.clone(), &inputs, &sizes, &words, &[])
                };
                let first = of(1);
                assert!(of(2) == first && of(3) == first, "{m} x {k} x {n} {unit:?} {right}");
                let out = [(f, count * m * n), (f, count * m * n * 2)];
                let backend = CpuBackend::with_threads(2).unwrap();
                let what = format!("{batch} of {m} x {k} x {n} {unit:?} {right}");
                check(&backend, &what, &kernel, &inputs, &out, &words, &[], 2e-5);
            }
        }
    }
}

/// gelu(acc * scalar + bias[j]) + residual[i, j]
fn gelu_epilogue(first_scalar: u16) -> Expr {
    let f = DType::F32;
    expr(&[
        (Inst::Acc(0), f),
        (Inst::Param(first_scalar), f),
        (Inst::Binary(BinaryOp::Mul, 0, 1), f),
        (Inst::Load(0), f),
        (Inst::Binary(BinaryOp::Add, 2, 3), f),
        (Inst::Unary(UnaryOp::Gelu, 4), f),
        (Inst::Load(1), f),
        (Inst::Binary(BinaryOp::Add, 5, 6), f),
    ])
}

#[test]
fn epilogues_pairs_and_several_parts() {
    let mut noise = Noise(23);
    let f = DType::F32;
    for (m, k, n) in [(1, 96, 40), (3, 32, 70), (50, 64, 33), (300, 64, 600)] {
        let backend = CpuBackend::with_threads(2).unwrap();
        let mut first = part(f, 1, gelu_epilogue(0));
        first.operands = smallvec![operand(2, f, Layout::Strided), operand(3, f, Layout::Linear)];
        // silu(gate) * up, of columns j and j + n.
        let silu = expr(&[
            (Inst::Acc(0), f),
            (Inst::Acc(1), f),
            (Inst::Unary(UnaryOp::Silu, 0), f),
            (Inst::Binary(BinaryOp::Mul, 2, 1), f),
        ]);
        let mut second = part(f, 4, silu);
        second.paired = true;
        let third = part(f, 1, expr(&[(Inst::Acc(0), f), (Inst::Cast(0), DType::F16)]));
        let kernel = Kernel::Contract(contract(0, f, m, vec![first, second, third]));
        let (mi, ki, ni) = (m as i64, k as i64, n as i64);
        let half = n / 2;
        let words =
            [&[mi, ki, 0, ki, 1][..], &[ni, 0, 1, ki, 0, 0, 1, 0, ni, 1], &[half as i64, 0, 1, ki], &[ni, 0, 1, ki]]
                .concat();
        let mut noise = |count: usize| bytes(&noise.floats(count));
        let inputs = [noise(m * k), noise(n * k), noise(n), noise(m * n), noise(2 * half * k)];
        let out = [(f, m * n), (f, m * half), (DType::F16, m * n)];
        check(&backend, &format!("{m} x {k} x {n}"), &kernel, &inputs, &out, &words, &[Scalar::F(0.25)], 2e-3);
    }
}

/// Weights of a quantized type: n rows of k.
fn quantized(noise: &mut Noise, dtype: DType, n: usize, k: usize) -> (Vec<u8>, Vec<f32>) {
    let x = noise.floats(n * k);
    let row = dtype.bytes_for(k).unwrap();
    let mut packed = vec![];
    for x in x.chunks(k) {
        quant::quantize_row(dtype, x, &mut packed).unwrap();
    }
    let mut back = vec![0.0; n * k];
    for (packed, out) in packed.chunks(row).zip(back.chunks_mut(k)) {
        quant::dequantize_row(dtype, packed, out).unwrap();
    }
    (packed, back)
}

#[test]
fn quantized_weights_with_prologue_pairs_and_batches() {
    let mut noise = Noise(24);
    let f = DType::F32;
    for dtype in DType::QUANTIZED {
        for (m, k, n) in [(1, 256, 40), (3, 512, 33), (12, 256, 40), (1, 512, 500)] {
            for activations in [Activations::F32, Activations::Q8] {
                for prologue in [None, Some(RowOp::RmsNorm), Some(RowOp::LayerNorm)] {
                    for batch in [1, 2] {
                        let backend = CpuBackend::with_threads(2).unwrap();
                        let (packed, plain) = quantized(&mut noise, dtype, 2 * n + 1, k);
                        let silu = expr(&[
                            (Inst::Acc(0), f),
                            (Inst::Acc(1), f),
                            (Inst::Unary(UnaryOp::Silu, 0), f),
                            (Inst::Binary(BinaryOp::Mul, 2, 1), f),
                        ]);
                        let mut pair = part(dtype, 1, silu);
                        pair.paired = true;
                        let mut kernel = contract(1, f, m, vec![pair, part(dtype, 1, acc(f))]);
                        kernel.activations = activations;
                        kernel.prologue =
                            prologue.map(|op| Prologue { op, weight: Some((2, f)), bias: Some((3, DType::F16)) });
                        let (mi, ki, ni, b) = (m as i64, k as i64, n as i64, batch as i64);
                        let norm: &[i64] = if prologue.is_some() { &[1, 0] } else { &[] };
                        // Offsets of the weights: row 1 of 2 n + 1, and row n + 1, in rows or (as f32) in elements.
                        let words = |unit: i64| {
                            let (first, second) = ([ni, unit, 0, 1, ki], [ni, (1 + ni) * unit, 0, 1, ki]);
                            [&[b, mi, ki, 0, mi * ki, ki, 1][..], norm, &first, &second].concat()
                        };
                        let left = bytes(&noise.floats(batch * m * k));
                        let extra = [bytes(&noise.floats(k + 1)), noise_of(&mut noise, DType::F16, k)];
                        let inputs = vec![left.clone(), packed.clone(), extra[0].clone(), extra[1].clone()];
                        let total = batch * m * n;
                        let scalars = [Scalar::F(1e-5)];
                        let got = run(
                            &backend,
                            Kernel::Contract(kernel.clone()),
                            &inputs,
                            &[total * 4; 2],
                            &words(1),
                            &scalars,
                        );
                        // The same weights, as f32.
                        let mut dense = kernel.clone();
                        dense.parts.iter_mut().for_each(|part| part.right.1 = f);
                        let inputs = vec![left, bytes(&plain), extra[0].clone(), extra[1].clone()];
                        let want = reference(Kernel::Contract(dense), &inputs, &[total * 4; 2], &words(ki), &scalars);
                        for (got, want) in got.iter().zip(&want) {
                            let (got, want) = (values::<f32>(got), values::<f32>(want));
                            let rms = |x: &mut dyn Iterator<Item = f64>| {
                                (x.map(|x| x * x).sum::<f64>() / total as f64).sqrt()
                            };
                            let size = rms(&mut want.iter().map(|&w| f64::from(w)));
                            let error = rms(&mut got.iter().zip(&want).map(|(g, w)| f64::from(g - w))) / size;
                            let limit = if activations == Activations::Q8 { 0.02 } else { 1e-5 };
                            assert!(error < limit, "{dtype} {m} x {k} x {n} {activations:?} {prologue:?}: {error}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn packed_weights_are_not_copied_and_stream_and_come_back() {
    let backend = CpuBackend::with_threads(1).unwrap();
    let mut noise = Noise(25);
    let (packed, plain) = quantized(&mut noise, DType::Q4_1, 6, 64);
    let mut file = vec![9; 3];
    file.extend(&packed);
    let before = backend.counters().bytes;
    let whole = backend.pack(DType::Q4_1, 6, 64, Arc::new(file), 3..3 + packed.len()).unwrap();
    assert_eq!(backend.counters().bytes, before);
    let parts = backend.allocate(backend.packed_bytes(DType::Q4_1, 6, 64).unwrap()).unwrap();
    let row = packed.len() / 6;
    for rows in [0..2, 2..6] {
        let bytes = &packed[rows.start * row..rows.end * row];
        backend.pack_rows(&parts, DType::Q4_1, 6, 64, rows.start, bytes).unwrap();
    }
    assert!(backend.pack_rows(&parts, DType::Q4_1, 6, 64, 5, &packed[..2 * row]).is_err());
    assert!(backend.pack_rows(&whole, DType::Q4_1, 6, 64, 0, &packed[..row]).is_err());
    assert!(backend.packed_bytes(DType::Q4_1, 6, 63).is_err());
    let x = noise.floats(64);
    for weight in [whole, parts] {
        assert_eq!(now(backend.unpack(&weight, DType::Q4_1, 6, 64)).unwrap(), packed);
        let kernel = Kernel::Contract(contract(0, DType::F32, 1, vec![part(DType::Q4_1, 1, acc(DType::F32))]));
        let out = backend.allocate(24).unwrap();
        let words = vec![1, 64, 0, 64, 1, 6, 0, 1, 64];
        let single = Single::new(kernel, vec![buffer(&backend, &bytes(&x)), weight], vec![out.clone()], words, vec![]);
        let prepared = backend.prepare(&single.program).unwrap();
        backend.submit(&*prepared, single.run()).unwrap();
        let got = values::<f32>(&now(backend.read(&out, 0..24)).unwrap());
        for (got, row) in got.iter().zip(plain.chunks(64)) {
            let want: f64 = row.iter().zip(&x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!(close(f64::from(*got), want, 1e-5));
        }
    }
}

#[test]
fn every_instruction_set_gives_the_same_products() {
    let mut noise = Noise(26);
    let (packed, _) = quantized(&mut noise, DType::Q4K, 30, 256);
    let left = bytes(&noise.floats(5 * 256));
    let mut all = vec![];
    for isa in Isa::supported() {
        Isa::set_current(Some(isa));
        let backend = CpuBackend::with_threads(1).unwrap();
        let kernel = Kernel::Contract(contract(0, DType::F32, 5, vec![part(DType::Q4K, 1, acc(DType::F32))]));
        let words = [5, 256, 0, 256, 1, 30, 0, 1, 256];
        all.push(values::<f32>(&run(&backend, kernel, &[left.clone(), packed.clone()], &[600], &words, &[])[0]));
    }
    Isa::set_current(None);
    for got in &all[1..] {
        assert!(got.iter().zip(&all[0]).all(|(a, b)| close(f64::from(*a), f64::from(*b), 1e-4)));
    }
}
