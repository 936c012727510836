//! A fault belongs to the values that are computed from it: each read of one is an error, and no other value is touched.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{BinaryOp, DType, Engine, Error, Node, Options, Scalar, kernel::ScatterOp, ops};

/// An engine, a table of four rows, and the pending gather of its row 9.
fn faulty(options: Options) -> (Arc<Engine>, T, Arc<Node>) {
    let (engine, _) = engine(options);
    let table = T::new(&engine, DType::F32, &[4, 2], (0..8).map(f64::from).collect());
    let ids = T::new(&engine, DType::U32, &[2], vec![1.0, 9.0]);
    let bad = ops::gather(table.edge.clone(), ids.edge.clone(), 0).unwrap();
    (engine, table, bad)
}

fn assert_fault(engine: &Arc<Engine>, node: &Arc<Node>) {
    let error = block_on(engine.read(node)).unwrap_err();
    assert!(matches!(&error, Error::Fault { .. }), "{error}");
    assert!(error.to_string().contains("index 9 is outside 0..4"), "{error}");
}

#[test]
fn each_read_of_a_faulty_value_tells_and_no_other_read_does() {
    for fuse in [true, false] {
        let (engine, table, bad) = faulty(Options { fuse, ..options() });
        let (before, inside) = (table.affine(2.0, 0.0), table.affine(3.0, 0.0));
        // In one run with an innocent value, which is read first.
        block_on(engine.realize(&[before.node().clone(), bad.clone(), inside.node().clone()])).unwrap();
        before.check(0.0);
        inside.check(0.0);
        assert_fault(&engine, &bad);
        assert_fault(&engine, &bad);
        table.affine(4.0, 1.0).check(0.0);
        table.check(0.0);
    }
}

#[test]
fn a_fault_goes_with_what_is_computed_from_it_in_later_runs() {
    let (engine, table, bad) = faulty(options());
    block_on(engine.realize(std::slice::from_ref(&bad))).unwrap();
    let double = ops::affine(bad.whole(), Scalar::F(2.0), Scalar::F(0.0)).unwrap();
    block_on(engine.realize(std::slice::from_ref(&double))).unwrap();
    drop(bad);
    let sum = ops::binary(BinaryOp::Add, double.whole(), table.narrow(0, 0, 2).edge).unwrap();
    assert_fault(&engine, &sum);
    assert_fault(&engine, &double);
}

#[test]
fn a_write_in_place_keeps_the_fault_of_what_stays() {
    let (engine, _) = engine(options());
    let at = |id: f64| T::new(&engine, DType::U32, &[1, 1, 1], vec![id]).edge;
    let one = || T::new(&engine, DType::F32, &[1, 1, 1], vec![7.0]).edge;
    let x = T::new(&engine, DType::F32, &[1, 4, 1], vec![0.0; 4]);
    let version = ops::scatter(ScatterOp::Set, x.edge.clone(), at(9.0), one(), 1).unwrap();
    drop(x);
    assert_fault(&engine, &version);
    let next = ops::scatter(ScatterOp::Set, version.whole(), at(2.0), one(), 1).unwrap();
    drop(version);
    assert_fault(&engine, &next);
}

#[test]
fn memory_that_held_a_faulty_value_is_used_again() {
    // Scratch slots: the faulty value and the good ones after it share memory, in one run and in the next.
    let (engine, table, bad) = faulty(Options { fuse: false, ..options() });
    let lost = ops::affine(bad.whole(), Scalar::F(2.0), Scalar::F(0.0)).unwrap();
    drop(bad);
    let good = table.affine(2.0, 1.0).affine(3.0, 0.0).affine(0.5, 0.0);
    block_on(engine.realize(&[lost.clone(), good.node().clone()])).unwrap();
    good.check(1e-6);
    assert_fault(&engine, &lost);
    table.affine(2.0, 1.0).affine(3.0, 0.0).affine(0.25, 0.0).check(1e-6);
}

#[test]
fn pending_faults_do_not_stop_a_loop_that_never_reads() {
    let (engine, table, bad) = faulty(Options { max_pending: 8, ..options() });
    let mut kept = Vec::new();
    for i in 0..600 {
        kept.push(table.affine(1.0, f64::from(i)));
    }
    kept.iter().for_each(|t| t.check(1e-6));
    assert_fault(&engine, &bad);
}

#[test]
fn the_thread_with_the_bad_index_is_the_one_that_is_told() {
    let (engine, table, bad) = faulty(options());
    std::thread::scope(|scope| {
        let innocent = || {
            for i in 0..200 {
                table.affine(1.0, f64::from(i)).check(1e-6);
            }
        };
        scope.spawn(innocent);
        scope.spawn(innocent);
        for _ in 0..200 {
            assert_fault(&engine, &bad);
        }
    });
}
