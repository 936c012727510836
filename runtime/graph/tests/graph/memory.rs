//! What is kept and what is freed: chains of a million nodes, loops that never read, values fused away while held, kept
//! outputs of replayed steps.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{Backend, BinaryOp, DType, Edge, Engine, Node, Options, Scalar, Shape, UnaryOp, ops};

const F32: f64 = 1e-6;

fn small(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(64 << 10).spawn(test).unwrap().join().unwrap();
}

fn next(x: Arc<Node>) -> Arc<Node> {
    ops::binary_scalar(BinaryOp::Add, x.whole(), Scalar::F(1.0)).unwrap()
}

#[test]
fn a_million_unread_nodes_are_dropped_on_a_small_stack() {
    let (engine, _) = engine(Options { max_pending: usize::MAX, max_pending_bytes: u64::MAX, ..options() });
    let mut x = engine.upload(DType::F32, Shape::new(&[2]), &[0; 8]).unwrap();
    for _ in 0..1_000_000 {
        x = next(x);
    }
    small(move || drop(x));
    assert_eq!(engine.plan_counters().rounds, 0);
}

#[test]
fn a_long_pending_chain_is_computed_on_a_small_stack() {
    let (engine, _) = engine(Options { max_pending: usize::MAX, ..options() });
    let x = engine.upload(DType::F32, Shape::new(&[2]), &[0; 8]).unwrap();
    small(move || {
        let x = (0..20_000).fold(x, |x, _| next(x));
        assert_eq!(read(&x), [20_000.0; 2]);
    });
}

#[test]
fn a_loop_that_never_reads_does_not_grow() {
    let (engine, device) = engine(options());
    let mut x = engine.upload(DType::F32, Shape::new(&[4]), &[0; 16]).unwrap();
    let mut live = Vec::new();
    for i in 0..100_000 {
        x = next(x);
        if i % 10_000 == 9_999 {
            live.push(device.live());
        }
    }
    assert!(engine.plan_counters().rounds >= 9);
    assert!(live.iter().max() <= Some(&4), "{live:?}");
    assert_eq!(read(&x), [100_000.0; 4]);
    assert!(engine.plan_counters().planned <= 3, "{:?}", engine.plan_counters());
}

#[test]
fn a_loop_over_a_written_value_does_not_grow() {
    let (engine, device) = engine(Options { max_pending: 500, ..options() });
    let mut x = T::new(&engine, DType::F32, &[8], vec![0.0; 8]);
    for i in 0..2_000 {
        let next = x.write(&[(i % 8, 1)], &T::new(&engine, DType::F32, &[1], vec![i as f64]));
        x = next;
    }
    x.check(0.0);
    drop(x);
    engine.trim();
    assert_eq!(device.live(), 0);
}

#[test]
fn many_pending_bytes_start_a_computation() {
    let (engine, _) = engine(Options { max_pending_bytes: 1 << 20, ..options() });
    let x = engine.upload(DType::F32, Shape::new(&[1]), &[0; 4]).unwrap();
    let wide = Edge { view: x.whole().view.broadcast_to(&Shape::new(&[1 << 16])).unwrap(), node: x };
    let y = ops::unary(UnaryOp::Exp, wide).unwrap();
    let kept: Vec<_> =
        (0..8).map(|i| ops::binary_scalar(BinaryOp::Add, y.whole(), Scalar::F(i as f64)).unwrap()).collect();
    assert!(engine.plan_counters().rounds >= 1);
    assert!(kept.iter().any(|n| engine.buffer(n).is_some()));
}

#[test]
fn outputs_that_are_kept_are_not_touched_by_a_replay() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(5);
    let w = T::random(&engine, DType::F32, &[4, 4], rng);
    let kept: Vec<T> = (0..50)
        .map(|_| {
            let x = T::random(&engine, DType::F32, &[3, 4], rng);
            let h = x.linear(&w).unary(UnaryOp::Tanh);
            let y = h.norm(tallow_graph::kernel::RowOp::Softmax, 0.0).matmul(&w).add(&h);
            realize(&[&y]).unwrap();
            y
        })
        .collect();
    assert_eq!(engine.plan_counters().planned, 1);
    kept.iter().for_each(|y| y.check(F32));
}

#[test]
fn a_value_fused_away_is_recomputed_once_and_then_stored() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(6);
    let x = T::random(&engine, DType::F32, &[6], rng);
    let y = x.unary(UnaryOp::Exp);
    y.affine(1.0, 1.0).check(F32);
    assert!(engine.buffer(y.node()).is_none(), "fused away");
    y.affine(1.0, 2.0).check(F32);
    assert!(engine.buffer(y.node()).is_some(), "asked for again: stored");
    device.take_programs();
    y.affine(1.0, 3.0).check(F32);
    let programs = device.take_programs();
    assert_eq!((programs.len(), programs[0].steps.len()), (1, 1));
}

#[test]
fn everything_is_freed_with_its_handles() {
    let (engine, device) = engine(options());
    let rng = &mut Rng(7);
    let x = T::random(&engine, DType::F32, &[6, 6], rng);
    let y = x.matmul(&x).norm(tallow_graph::kernel::RowOp::RmsNorm, 0.1).matmul(&x).unary(UnaryOp::Exp);
    y.check(F32);
    drop((x, y));
    engine.trim();
    assert_eq!(device.live(), 0);
    let alive: std::sync::Weak<Engine> = Arc::downgrade(&engine);
    drop(engine);
    assert!(alive.upgrade().is_none(), "no cycle keeps the engine");
    assert!(device.counters().submits > 0);
}

#[test]
fn scratch_is_reused_inside_a_plan() {
    let (engine, device) = engine(Options { fuse: false, ..options() });
    let x = engine.upload(DType::F32, Shape::new(&[256]), &[0; 1024]).unwrap();
    let y = (0..100).fold(x, |x, _| next(x));
    read(&y);
    assert!(device.counters().buffers <= 4, "{:?}", device.counters());
}
