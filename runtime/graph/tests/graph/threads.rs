//! Several threads on one engine, and several engines in one graph.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{BinaryOp, DType, Options, UnaryOp, kernel::RowOp, ops};

const F32: f64 = 1e-6;

#[test]
fn threads_realise_overlapping_graphs() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(1);
    for round in 0..30 {
        let x = T::random(&engine, DType::F32, &[8, 8], rng);
        let shared = x.matmul(&x).unary(UnaryOp::Tanh);
        let held = shared.scalar(BinaryOp::Mul, 2.0);
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for t in 0..4 {
                let (shared, held, barrier) = (shared.clone(), held.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let own = if t % 2 == 0 { shared } else { held };
                    let y = own.norm(RowOp::Softmax, 0.0).affine(1.0, f64::from(t));
                    y.check(F32);
                    own.reduce(RowOp::Sum, 2).check(F32);
                });
            }
        });
        if round % 2 == 0 {
            shared.check(F32);
        }
        held.check(F32);
    }
}

#[test]
fn threads_write_their_own_versions() {
    let (engine, _) = engine(Options { max_pending: 40, ..options() });
    std::thread::scope(|scope| {
        for t in 0..4 {
            let engine = engine.clone();
            scope.spawn(move || {
                let mut x = T::new(&engine, DType::F32, &[6], vec![f64::from(t); 6]);
                for i in 0..200 {
                    let v = x.narrow(0, i % 5, 2).affine(0.5, 1.0);
                    x = x.write(&[(i % 4, 2)], &v);
                    if i % 17 == 0 {
                        x.check(F32);
                    }
                }
                x.check(F32);
            });
        }
    });
}

#[test]
fn values_go_to_another_device_and_back() {
    let ((a, _), (b, _)) = (engine(options()), engine(options()));
    let rng = &mut Rng(2);
    let x = T::random(&a, DType::F32, &[4, 4], rng).unary(UnaryOp::Exp);
    let there = T::of(ops::transfer(&b, x.node()).unwrap(), x.want.clone());
    let y = there.matmul(&there).affine(0.1, 0.0);
    let back = T::of(ops::transfer(&a, y.node()).unwrap(), y.want.clone());
    let z = back.add(&x);
    assert!(!a.try_realize(&[z.node().clone()]).unwrap(), "must fetch first");
    z.check(F32);
    there.check(F32);
    y.check(F32);
    // Unread chains across devices are freed too.
    let mut far = x.node().clone();
    for i in 0..1_000 {
        far = ops::transfer(if i % 2 == 0 { &b } else { &a }, &far).unwrap();
    }
    drop(far);
}

#[test]
fn a_transfer_does_not_stop_the_budget_of_other_work() {
    let ((a, _), (b, device)) = (engine(options()), engine(Options { max_pending: 100, ..options() }));
    let x = T::new(&a, DType::F32, &[2], vec![1.0, 2.0]);
    let there = T::of(ops::transfer(&b, x.node()).unwrap(), x.want.clone());
    let waiting = there.affine(2.0, 0.0);
    let mut y = T::new(&b, DType::F32, &[2], vec![0.0; 2]);
    for _ in 0..1_000 {
        y = y.affine(1.0, 1.0);
    }
    assert!(b.plan_counters().rounds >= 9, "{:?}", b.plan_counters());
    assert!(device.live() < 10);
    y.check(0.0);
    waiting.check(0.0);
}

#[test]
fn an_engine_refuses_roots_of_another() {
    let ((a, _), (b, _)) = (engine(options()), engine(options()));
    let x = T::new(&a, DType::F32, &[2], vec![1.0, 2.0]);
    let y = x.affine(1.0, 0.0);
    assert!(block_on(b.realize(&[y.node().clone()])).is_err());
    assert!(block_on(b.read(&y.node().clone())).is_err());
    let nodes = [Arc::clone(y.node())];
    block_on(a.realize(&nodes)).unwrap();
}
