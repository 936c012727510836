//! Each operation on its own, and the short chains that fuse, against the plain model.

use crate::common::*;
use tallow_graph::{
    BinaryOp, DType, Edge, Scalar, Shape, UnaryOp, View,
    kernel::{Kernel, RowOp},
    ops,
};

const F32: f64 = 1e-6;

#[test]
fn a_chain_of_maps_is_one_kernel() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(1);
    let a = T::random(&engine, DType::F32, &[3, 4], rng);
    let b = T::random(&engine, DType::F32, &[4], rng);
    let c = a.unary(UnaryOp::Exp).add(&b).affine(2.0, -1.0).unary(UnaryOp::Tanh).scalar(BinaryOp::Mul, 3.0);
    c.check(F32);
    let programs = device.take_programs();
    assert_eq!(programs.iter().map(|p| p.steps.len()).collect::<Vec<_>>(), [1]);
}

#[test]
fn operands_broadcast_as_in_numpy() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(2);
    for (a, b) in [(&[3, 1][..], &[1, 4][..]), (&[2, 3, 4], &[4]), (&[2, 3, 4], &[3, 1]), (&[], &[5]), (&[0, 2], &[1])]
    {
        let (a, b) = (T::random(&engine, DType::F32, a, rng), T::random(&engine, DType::F32, b, rng));
        for op in [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Maximum, BinaryOp::Minimum, BinaryOp::Div] {
            a.binary(op, &b).check(F32);
        }
        a.less(&b).pick_where(&a, &b).check(F32);
    }
}

#[test]
fn views_launch_nothing_by_themselves() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(3);
    let x = T::random(&engine, DType::F32, &[4, 6, 2], rng);
    let views = [
        x.permute(&[2, 0, 1]),
        x.narrow(1, 2, 3),
        x.flip(0),
        x.flip(1).narrow(1, 1, 4).permute(&[1, 0, 2]),
        x.reshape(&[24, 2]).flip(0).reshape(&[4, 6, 2]),
        x.narrow(0, 1, 1).squeeze(0).unsqueeze(1).broadcast(&[6, 5, 2]),
    ];
    for view in &views {
        view.affine(2.0, 1.0).check(F32);
        view.copy().check(0.0);
    }
    let steps: usize = device.take_programs().iter().map(|p| p.steps.len()).sum();
    assert_eq!(steps, 2 * views.len());
    // A reshape that no affine map expresses is a copy, and its reader one more kernel, or none where they fuse.
    x.permute(&[2, 1, 0]).reshape(&[48]).affine(1.0, 1.0).check(F32);
}

#[test]
fn reductions_go_over_any_axes() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(4);
    let x = T::random(&engine, DType::F32, &[3, 4, 5], rng);
    for axes in 1..8 {
        use RowOp::*;
        for op in [Sum, Prod, Mean, Max, Min, ArgMax, ArgMin] {
            x.reduce(op, axes).check(F32);
            x.permute(&[1, 2, 0]).flip(1).reduce(op, axes).check(F32);
        }
        // With a map before and a map after it.
        let around = x.unary(UnaryOp::Exp).reduce(Sum, axes).affine(0.5, 1.0);
        around.check(F32);
    }
    x.reduce(RowOp::Sum, 0).affine(2.0, 0.0).check(F32);
    T::new(&engine, DType::F32, &[2, 0], vec![]).reduce(RowOp::Sum, 2).check(0.0);
    T::new(&engine, DType::F32, &[2, 0], vec![]).reduce(RowOp::Prod, 2).check(0.0);
    let empty = T::new(&engine, DType::F32, &[2, 0], vec![]);
    assert!(ops::reduce(RowOp::Max, empty.edge, 2).is_err());
}

#[test]
fn a_reduction_takes_maps_before_and_after() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(5);
    let x = T::random(&engine, DType::F32, &[3, 8], rng);
    let y = T::random(&engine, DType::F32, &[3], rng);
    let z = x.unary(UnaryOp::Sqr).reduce(RowOp::Mean, 2).affine(1.0, 1e-5).mul(&y);
    z.check(F32);
    assert_eq!(device.take_programs().iter().map(|p| p.steps.len()).collect::<Vec<_>>(), [1]);
}

#[test]
fn norms_and_softmax_are_one_kernel_with_their_weight() {
    for decompose in [false, true] {
        let (engine, device) = engine(tallow_graph::Options { decompose, ..options() });
        let rng = &mut Rng(6);
        let x = T::random(&engine, DType::F32, &[2, 3, 8], rng);
        let w = T::random(&engine, DType::F32, &[8], rng);
        for op in [RowOp::RmsNorm, RowOp::LayerNorm, RowOp::Softmax] {
            x.norm(op, 1e-5).check(F32);
            x.affine(2.0, 1.0).norm(op, 1e-5).mul(&w).add(&w).check(F32);
            x.permute(&[1, 0, 2]).norm(op, 1e-5).check(F32);
            x.narrow(2, 3, 1).norm(op, 1e-5).check(F32);
        }
        let counts: Vec<usize> = device.take_programs().iter().map(|p| p.steps.len()).collect();
        if !decompose {
            assert_eq!(counts, [1; 12]);
        }
    }
}

#[test]
fn products_take_any_layout() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(7);
    let a = T::random(&engine, DType::F32, &[3, 4, 8], rng);
    let b = T::random(&engine, DType::F32, &[8, 5], rng);
    a.matmul(&b).check(F32);
    a.narrow(1, 0, 1).matmul(&b).check(F32);
    a.linear(&b.permute(&[1, 0]).copy()).check(F32);
    let bt = T::random(&engine, DType::F32, &[5, 8], rng);
    a.matmul(&bt.permute(&[1, 0])).check(F32);
    a.permute(&[0, 2, 1]).matmul(&T::random(&engine, DType::F32, &[4, 6], rng)).check(F32);
    let batched = T::random(&engine, DType::F32, &[2, 1, 8, 5], rng);
    a.matmul(&batched).check(F32);
    a.matmul(&batched.flip(2)).check(F32);
    // Neither axis of the right operand has stride 1.
    let odd = T::random(&engine, DType::F32, &[8, 5, 2], rng).narrow(2, 1, 1).squeeze(2);
    a.matmul(&odd).check(F32);
    // Three batch axes that do not collapse.
    let x = T::random(&engine, DType::F32, &[2, 3, 2, 4, 8], rng).permute(&[2, 1, 0, 3, 4]);
    let y = T::random(&engine, DType::F32, &[2, 3, 2, 8, 5], rng).permute(&[1, 0, 2, 3, 4]).reshape(&[2, 3, 2, 8, 5]);
    x.matmul(&y).check(F32);
    x.matmul(&y).unary(UnaryOp::Tanh).add(&T::random(&engine, DType::F32, &[3, 1, 4, 5], rng)).check(F32);
    for (m, k, n) in [(1, 1, 1), (0, 3, 2), (2, 0, 3), (1, 7, 1)] {
        let (a, b) = (T::random(&engine, DType::F32, &[m, k], rng), T::random(&engine, DType::F32, &[k, n], rng));
        a.matmul(&b).affine(1.0, 2.0).check(F32);
    }
}

#[test]
fn a_product_takes_its_epilogue() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(8);
    let [a, b, d] = [[3, 4], [4, 5], [3, 5]].map(|dims| T::random(&engine, DType::F32, &dims, rng));
    let c = T::random(&engine, DType::F32, &[5], rng);
    a.matmul(&b).add(&c).unary(UnaryOp::Gelu).mul(&d).check(F32);
    let counts: Vec<usize> = device.take_programs().iter().map(|p| p.steps.len()).collect();
    assert_eq!(counts, [1], "gelu(a.matmul(b) + c) * d");
}

#[test]
fn gate_and_up_are_one_paired_product() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(9);
    let x = T::random(&engine, DType::F32, &[2, 3, 8], rng);
    let w = T::random(&engine, DType::F32, &[12, 8], rng);
    let both = x.linear(&w);
    let out = both.narrow(2, 0, 6).unary(UnaryOp::Silu).mul(&both.narrow(2, 6, 6));
    drop(both);
    out.check(F32);
    let programs = device.take_programs();
    assert_eq!(programs[0].steps.len(), 1);
    assert!(matches!(&*programs[0].steps[0].kernel, Kernel::Contract(c) if c.parts[0].paired));
}

#[test]
fn rows_are_gathered_along_any_axis() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(10);
    let x = T::random(&engine, DType::F32, &[4, 3, 5], rng);
    for (axis, ids) in [(0, vec![3.0, 0.0, 3.0]), (1, vec![2.0]), (2, vec![4.0, 4.0, 0.0, 1.0])] {
        for dtype in [DType::U32, DType::U8, DType::I64] {
            let ids = T::new(&engine, dtype, &[ids.len()], ids.clone());
            x.gather(&ids, axis).check(0.0);
            x.flip(axis).permute(&[0, 2, 1]).gather(&ids, [0, 2, 1][axis]).affine(1.0, 1.0).check(F32);
            x.gather(&ids, axis).affine(2.0, 1.0).check(F32);
        }
    }
    let ids = T::new(&engine, DType::U32, &[2], vec![1.0, 9.0]);
    let bad = ops::gather(x.edge.clone(), ids.edge.clone(), 0).unwrap();
    let error = block_on(engine.read(&bad)).unwrap_err().to_string();
    assert!(error.contains("index 9 is outside 0..4"), "{error}");
    x.affine(1.0, 1.0).check(F32);
}

#[test]
fn attention_equals_its_decomposition() {
    let rng = &mut Rng(11);
    let data = |n: usize, rng: &mut Rng| (0..n).map(|_| rng.unit()).collect::<Vec<f64>>();
    let (qd, kd, vd) = (data(2 * 3 * 4 * 8, rng), data(2 * 5 * 2 * 8, rng), data(2 * 5 * 2 * 6, rng));
    let md = data(3 * 5, rng);
    let all = [(false, None, None), (true, None, None), (true, Some(2), None), (false, Some(3), Some(0.7))];
    for (causal, window, softcap) in all {
        for with_mask in [false, true] {
            let results: Vec<Vec<f64>> = [(false, true), (true, true), (true, false)]
                .iter()
                .map(|&(decompose, fuse)| {
                    let (engine, _) = engine(tallow_graph::Options { decompose, fuse, ..options() });
                    let q = T::new(&engine, DType::F32, &[2, 3, 4, 8], qd.clone());
                    let k = T::new(&engine, DType::F32, &[2, 5, 2, 8], kd.clone());
                    let v = T::new(&engine, DType::F32, &[2, 5, 2, 6], vd.clone());
                    let mask = with_mask.then(|| T::new(&engine, DType::F32, &[3, 5], md.clone()).edge);
                    let how = ops::Attention { scale: 0.35, causal, window, softcap };
                    read(&ops::attention(q.edge, k.edge, v.edge, mask, how).unwrap())
                })
                .collect();
            assert!(error(&results[1], &results[0]) < F32, "{causal} {window:?} {softcap:?} {with_mask}");
            assert!(error(&results[2], &results[0]) < F32);
        }
    }
}

#[test]
fn ranges_and_constants_fuse_into_what_reads_them() {
    let (engine, device) = engine(options());
    let range = ops::arange(&engine, 6, DType::F32, Scalar::F(1.0), Scalar::F(0.5)).unwrap();
    let range = T::of(range, (0..6).map(|i| 1.0 + 0.5 * f64::from(i)).collect());
    let ones = T::of(ops::full(&engine, Shape::new(&[2, 6]), DType::F32, Scalar::F(3.0)).unwrap(), vec![3.0; 12]);
    let sum = range.flip(0).add(&ones);
    let narrow = range.narrow(0, 2, 3).affine(1.0, 0.0);
    realize(&[&sum, &narrow]).unwrap();
    let programs = device.take_programs();
    assert_eq!(programs[0].steps.len(), 1, "two parts of one launch");
    sum.check(0.0);
    narrow.check(0.0);
    range.check(0.0);
    ones.check(0.0);
    let long = ops::arange(&engine, 5, DType::I64, Scalar::I(-2), Scalar::I(3)).unwrap();
    T::of(long, vec![-2.0, 1.0, 4.0, 7.0, 10.0]).check(0.0);
}

#[test]
fn dtypes_convert_and_narrow_floats_compute_in_f32() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(12);
    let x = T::random(&engine, DType::F32, &[3, 5], rng).scalar(BinaryOp::Mul, 100.0);
    for dtype in [DType::F16, DType::BF16, DType::F64, DType::I32, DType::U8, DType::I64] {
        let y = x.cast(dtype);
        y.check(1e-7);
        y.cast(DType::F32).check(1e-7);
    }
    let h = T::random(&engine, DType::F16, &[4, 4], rng);
    h.matmul(&h).add(&h).check(1e-3);
    h.norm(RowOp::RmsNorm, 1e-5).mul(&h).check(2e-3);
    h.reduce(RowOp::Sum, 1).check(2e-3);
    let x = T::new(&engine, DType::F32, &[4], vec![0.3, -1.9, 100.0, 0.001]);
    for (dtype, want) in [
        (DType::F8E4M3, [0.3125, -1.875, 96.0, 0.001953125 * 0.5]),
        (DType::F8E5M2, [0.3125, -2.0, 96.0, 0.0009765625]),
    ] {
        let y = T {
            edge: ops::cast(ops::cast(x.edge.clone(), dtype).unwrap().whole(), DType::F32).unwrap().whole(),
            want: want.to_vec(),
        };
        y.check(2e-3);
    }
}

#[test]
fn random_numbers_are_the_same_however_they_are_computed() {
    let (engine, device) = engine(options());
    let draw = |distribution, counter| {
        ops::random(&engine, Shape::new(&[3, 7]), DType::F32, distribution, [-1.0, 2.0], 42, counter).unwrap()
    };
    use tallow_graph::kernel::Distribution::{Normal, Uniform};
    let (a, b) = (read(&draw(Uniform, 5)), read(&draw(Uniform, 6)));
    assert!(a.iter().all(|v| (-1.0..2.0).contains(v)) && a != b);
    assert_eq!(read(&draw(Uniform, 5)), a);
    // A replay draws by the data of its own node.
    assert_eq!(engine.plan_counters().planned, 1);
    let normal = read(&ops::random(&engine, Shape::new(&[4000]), DType::F64, Normal, [1.0, 2.0], 7, 0).unwrap());
    let mean = normal.iter().sum::<f64>() / 4000.0;
    let var = normal.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 4000.0;
    assert!((mean - 1.0).abs() < 0.1 && (var - 4.0).abs() < 0.4, "{mean} {var}");
    assert!(device.take_programs().len() > 3);
}

#[test]
fn what_does_not_fit_is_an_error_that_names_it() {
    let (engine, _) = engine(options());
    let f = |dims: &[usize]| T::new(&engine, DType::F32, dims, vec![0.0; dims.iter().product()]).edge;
    let message = |r: tallow_graph::Result<std::sync::Arc<tallow_graph::Node>>| r.err().map(|e| e.to_string()).unwrap();
    assert!(message(ops::binary(BinaryOp::Add, f(&[2]), f(&[3]))).contains("[2] and [3]"));
    assert!(message(ops::matmul(f(&[2, 3]), f(&[2, 3]))).contains("[2, 3] x [2, 3]"));
    let wide = T::new(&engine, DType::F64, &[2], vec![0.0; 2]).edge;
    assert!(message(ops::binary(BinaryOp::Add, f(&[2]), wide)).contains("F64"));
    let (other, _) = crate::common::engine(options());
    let far = T::new(&other, DType::F32, &[2], vec![0.0; 2]).edge;
    assert!(message(ops::binary(BinaryOp::Add, f(&[2]), far)).contains("to_device"));
    assert!(engine.upload(DType::F32, Shape::new(&[3]), &[0; 8]).is_err());
    let long = T::new(&engine, DType::F32, &[1; 8], vec![0.0]).unsqueeze(0).edge;
    assert!(message(ops::copy(long.clone())).contains("9 axes"));
    assert!(message(ops::reduce(RowOp::Sum, long, 1)).contains("9 axes"));
    let huge = f(&[1]).view.broadcast_to(&Shape::new(&[1 << 40, 1 << 40])).unwrap();
    assert!(message(ops::reduce(RowOp::Sum, Edge { view: huge, node: f(&[1]).node }, 3)).contains("addressed"));
    let large = ops::full(&engine, Shape::new(&[1 << 50]), DType::F32, Scalar::F(0.0)).unwrap();
    assert!(block_on(engine.read(&large)).unwrap_err().to_string().contains("out of memory"));
    let twice = View::contiguous(Shape::new(&[1])).broadcast_to(&Shape::new(&[2])).unwrap();
    assert!(ops::write(&f(&[4]).node, twice, f(&[1])).is_err());
    assert!(ops::write(&f(&[4]).node, View::contiguous(Shape::new(&[5])), f(&[1])).is_err());
    let q = || f(&[1, 2, 2, 4]);
    let mask = Some(T::new(&other, DType::F32, &[2, 2], vec![0.0; 4]).edge);
    let how = ops::Attention { scale: 1.0, causal: false, window: None, softcap: None };
    assert!(message(ops::attention(q(), q(), q(), mask, how)).contains("to_device"));
    let packed = engine.upload_packed(DType::Q8_0, 2, 64, std::sync::Arc::new(vec![0u8; 136]), 0..136).unwrap();
    let half = Edge { view: packed.whole().view.narrow(1, 0, 32), node: packed.clone() };
    let ids = T::new(&engine, DType::U32, &[1], vec![0.0]).edge;
    assert!(message(ops::gather(half.clone(), ids, 0)).contains("whole rows"));
    let wide = f(&[1, 32]);
    assert!(message(ops::linear(wide, half, tallow_graph::kernel::Activations::F32)).contains("whole rows"));
    assert!(message(ops::copy(packed.whole())).contains("Q8_0"));
    let base = f(&[2, 2]);
    let window = View::contiguous(Shape::new(&[2, 2]));
    let value = Edge { view: View::contiguous(Shape::new(&[3])), node: f(&[3]).node };
    assert!(message(ops::write(&base.node, window, value)).contains("[3]"));
}
