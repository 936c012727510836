//! Corners that a review found: shapes under which a fusion is wrong, ranges seen through odd views, empty values,
//! expressions that grow by repetition, values lost by a failed write in place, and rows that see nothing.

use crate::common::*;
use tallow_graph::{
    BinaryOp, DType, Edge, Engine, Kernel, Options, Scalar, Shape, UnaryOp, View,
    kernel::{Activations, RowOp},
    ops,
};

const F32: f64 = 1e-6;

fn range(engine: &std::sync::Arc<Engine>, n: usize) -> T {
    let node = ops::arange(engine, n, DType::F32, Scalar::F(0.0), Scalar::F(1.0)).unwrap();
    T::of(node, (0..n).map(|i| i as f64).collect())
}

#[test]
fn a_norm_of_narrower_rows_than_the_products_stays_alone() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(1);
    for op in [RowOp::RmsNorm, RowOp::LayerNorm] {
        let x = T::random(&engine, DType::F32, &[2, 3, 4], rng);
        let (w, b) = (T::random(&engine, DType::F32, &[12], rng), T::random(&engine, DType::F32, &[12], rng));
        let right = T::random(&engine, DType::F32, &[5, 12], rng);
        x.norm(op, 1e-5).reshape(&[2, 12]).mul(&w).linear(&right).check(F32);
        x.norm(op, 1e-5).reshape(&[2, 12]).mul(&w).add(&b).linear(&right).check(F32);
        // Weights of another width than the rows: of the tail's and the head's widths, one each time.
        let w = T::random(&engine, DType::F32, &[4], rng);
        x.norm(op, 1e-5).mul(&w).reshape(&[2, 12]).add(&b).linear(&right).check(F32);
        let wide = T::random(&engine, DType::F32, &[6, 4], rng);
        let back = x.norm(op, 1e-5).reshape(&[2, 12]).mul(&b).reshape(&[6, 4]);
        back.linear(&T::random(&engine, DType::F32, &[5, 4], rng)).check(F32);
        back.mul(&wide).check(F32);
    }
}

#[test]
fn a_replayed_norm_must_still_have_the_products_rows() {
    for order in [[0, 1, 0], [1, 0, 1]] {
        let (engine, _) = engine(options());
        let rng = &mut Rng(2);
        for i in order {
            let (rows, cols) = [(8, 4), (4, 8)][i];
            let x = T::random(&engine, DType::F32, &[8, 4], rng);
            let y = x.norm(RowOp::RmsNorm, 1e-5).reshape(&[rows, cols]);
            y.linear(&T::random(&engine, DType::F32, &[5, cols], rng)).check(F32);
            let w = T::random(&engine, DType::F32, &[cols], rng);
            let y = x.norm(RowOp::RmsNorm, 1e-5).reshape(&[rows, cols]).mul(&w);
            y.linear(&T::random(&engine, DType::F32, &[5, cols], rng)).check(F32);
        }
    }
}

#[test]
fn a_range_is_stored_where_no_view_shows_it_inside_what_reads_it() {
    for fuse in [true, false] {
        let (engine, _) = engine(Options { fuse, ..options() });
        let rng = &mut Rng(3);
        let b = range(&engine, 6).reshape(&[2, 3]).permute(&[1, 0]).affine(2.0, 0.0);
        let y = b.reshape(&[6]).add(&T::random(&engine, DType::F32, &[6], rng));
        drop(b);
        y.check(F32);
        // Not affine over the product's own axes: [3, 2] in [2, 3].
        let product =
            T::random(&engine, DType::F32, &[2, 4], rng).matmul(&T::random(&engine, DType::F32, &[4, 3], rng));
        let y = product.reshape(&[3, 2]).add(&range(&engine, 2));
        drop(product);
        y.check(F32);
        let b = range(&engine, 6).reshape(&[2, 3]).permute(&[1, 0]).affine(2.0, 0.0);
        b.reshape(&[6]).reduce(RowOp::Sum, 1).check(F32);
        let sums = T::random(&engine, DType::F32, &[2, 3, 4], rng).reduce(RowOp::Max, 4);
        let y = sums.reshape(&[3, 2]).add(&range(&engine, 2));
        drop(sums);
        y.check(F32);
        let base = T::random(&engine, DType::F32, &[6], rng);
        base.write(&[(0, 6)], &b.reshape(&[6])).check(F32);
    }
}

#[test]
fn maps_that_a_backend_refuses_are_taken_apart() {
    let refuse = |k: &Kernel| matches!(k, Kernel::Map(m) if m.parts.iter().any(|p| p.operands.len() > 2));
    let device = std::sync::Arc::new(tallow_graph::reference::Reference::refusing(refuse));
    let engine = Engine::new(device, options());
    let rng = &mut Rng(4);
    let parts: Vec<T> = (0..5).map(|_| T::random(&engine, DType::F32, &[3, 4], rng)).collect();
    let sum = parts[1..].iter().fold(parts[0].clone(), |sum, p| sum.add(p).unary(UnaryOp::Tanh));
    sum.check(F32);
}

#[test]
fn views_of_empty_values_compose() {
    let inner = View::contiguous(Shape::new(&[4, 0])).permute(&[1, 0]);
    let outer = View::contiguous(Shape::new(&[0, 4])).permute(&[1, 0]);
    let both = outer.compose(&inner).unwrap();
    assert_eq!((both.shape.dims(), both.offset), (&[4, 0][..], 0));
    let inner = View::contiguous(Shape::new(&[4, 5, 0])).permute(&[1, 2, 0]);
    assert!(View::contiguous(Shape::new(&[0, 20])).compose(&inner).is_some());
    let (engine, _) = engine(options());
    let x = T::new(&engine, DType::F32, &[4, 0], vec![]);
    let y = x.permute(&[1, 0]).unary(UnaryOp::Exp).permute(&[1, 0]).affine(2.0, 1.0);
    y.check(F32);
    y.permute(&[1, 0]).affine(1.0, 1.0).reshape(&[2, 0, 3]).affine(1.0, 1.0).check(F32);
}

#[test]
fn expressions_stay_small_however_often_a_value_is_repeated() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(5);
    let x = T::random(&engine, DType::F32, &[3, 1], rng);
    let same = (0..8).fold(x.broadcast(&[3, 4]), |y, _| y.add(&y));
    same.check(F32);
    let flipped = (0..8).fold(x.broadcast(&[3, 4]), |y, _| y.add(&y.flip(0)));
    flipped.check(F32);
    let turned = (0..8).fold(T::random(&engine, DType::F32, &[4, 4], rng), |y, _| y.mul(&y.permute(&[1, 0])));
    turned.check(F32);
    let indices = (0..8).fold(range(&engine, 5), |y, _| y.add(&y.flip(0)).affine(0.5, 0.0));
    indices.check(F32);
    for step in device.take_programs().iter().flat_map(|p| &p.steps) {
        let Kernel::Map(map) = &*step.kernel else { continue };
        for part in &map.parts {
            assert!(part.operands.len() <= 16, "{} operands", part.operands.len());
            assert!(part.expr.code.len() <= 100, "{} instructions", part.expr.code.len());
        }
    }
}

#[test]
fn rows_that_a_mask_hides_wholly_are_zeros() {
    for (decompose, causal) in [(true, false), (false, false), (true, true), (false, true)] {
        let (engine, _) = engine(Options { decompose, ..options() });
        let rng = &mut Rng(6);
        let q = T::random(&engine, DType::F32, &[1, 2, 2, 4], rng);
        let k = T::random(&engine, DType::F32, &[1, 3, 1, 4], rng);
        let v = T::random(&engine, DType::F32, &[1, 3, 1, 4], rng);
        let off = f64::NEG_INFINITY;
        let mask = T::new(&engine, DType::F32, &[2, 3], vec![off, off, off, 0.0, off, 0.5]);
        let how = ops::Attention { scale: 0.5, causal, window: None, softcap: None };
        let masked = read(&ops::attention(q.edge, k.edge, v.edge, Some(mask.edge), how).unwrap());
        assert_eq!(masked[..8], [0.0; 8], "decomposed {decompose}, causal {causal}");
        assert!(masked[8..].iter().all(|x| x.is_finite() && *x != 0.0), "{masked:?}");
        // The second query sees keys 0 and 2: what it gives is between their values.
        for (at, got) in masked[8..].iter().enumerate() {
            let (a, b) = (v.want[at % 4], v.want[8 + at % 4]);
            assert!(*got >= a.min(b) - F32 && *got <= a.max(b) + F32);
        }
    }
}

#[test]
fn a_window_as_wide_as_can_be_hides_nothing() {
    let results: Vec<Vec<f64>> =
        [(None, false), (Some(usize::MAX), false), (Some(1 << 40), false), (Some(usize::MAX), true)]
            .into_iter()
            .map(|(window, decompose)| {
                let (engine, device) = engine(Options { decompose, ..options() });
                let rng = &mut Rng(7);
                let x = T::random(&engine, DType::F32, &[1, 3, 2, 4], rng).edge;
                let how = ops::Attention { scale: 0.5, causal: true, window, softcap: None };
                let y = read(&ops::attention(x.clone(), x.clone(), x, None, how).unwrap());
                drop(device);
                y
            })
            .collect();
    results.iter().for_each(|r| assert!(error(r, &results[0]) < F32));
}

#[test]
fn one_value_serves_as_queries_keys_and_values_or_as_rows_and_ids() {
    let run = |decompose: bool| {
        let (engine, _) = engine(Options { decompose, ..options() });
        // A projection to q, k and v at once, as encoders have it.
        let joined = T::random(&engine, DType::F32, &[1, 3, 3, 2, 4], &mut Rng(8)).affine(2.0, 0.0);
        let [q, k, v] = [0, 1, 2].map(|i| joined.narrow(2, i, 1).squeeze(2).edge);
        let how = ops::Attention { scale: 0.5, causal: false, window: None, softcap: None };
        read(&ops::attention(q, k, v, None, how).unwrap())
    };
    assert!(error(&run(false), &run(true)) < F32);
    let (engine, _) = engine(options());
    let ids = T::new(&engine, DType::U32, &[4], vec![2.0, 0.0, 3.0, 1.0]);
    ids.gather(&ids, 0).check(0.0);
}

#[test]
fn an_integer_times_a_weight_of_floats_is_refused() {
    let (engine, _) = engine(options());
    let x = T::new(&engine, DType::I32, &[2, 3], vec![1.0; 6]);
    let w = T::new(&engine, DType::F32, &[4, 3], vec![0.5; 12]);
    let error = ops::linear(x.edge.clone(), w.edge, Activations::F32).unwrap_err().to_string();
    assert!(error.contains("i32") || error.contains("I32"), "{error}");
    x.linear(&T::new(&engine, DType::I32, &[4, 3], vec![2.0; 12])).check(0.0);
}

#[test]
fn a_binary_of_a_range_and_itself_under_two_views() {
    let (engine, _) = engine(options());
    let r = range(&engine, 12);
    let a = r.reshape(&[3, 4]);
    let y = a.binary(BinaryOp::Sub, &r.reshape(&[4, 3]).permute(&[1, 0]));
    y.check(F32);
    let z = y.reshape(&[12]).add(&r);
    z.check(F32);
    let edge = Edge { node: r.node().clone(), view: r.edge.view.clone() };
    assert_eq!(edge.view.shape.dims(), &[12]);
}
