//! Writes: new versions of a value beside the old ones, in place where nobody can tell.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{Buffer, DType, Engine, Options, UnaryOp};

const F32: f64 = 1e-6;

fn buffer(engine: &Engine, t: &T) -> Buffer {
    engine.buffer(t.node()).expect("a value")
}

fn leaf(engine: &Arc<Engine>, n: usize) -> T {
    T::new(engine, DType::F32, &[n], (0..n).map(|i| i as f64).collect())
}

fn value(engine: &Arc<Engine>, v: f64) -> T {
    T::new(engine, DType::F32, &[1], vec![v])
}

fn both(test: impl Fn(&Arc<Engine>)) {
    for fuse in [true, false] {
        test(&engine(Options { fuse, ..options() }).0);
    }
}

#[test]
fn a_write_is_in_place_when_nobody_holds_the_old_version() {
    both(|engine| {
        let x = leaf(engine, 8);
        let place = buffer(engine, &x);
        let old = Arc::as_ptr(&place);
        drop(place);
        let y = x.write(&[(2, 3)], &value(engine, 50.0));
        drop(x);
        y.check(0.0);
        assert!(std::ptr::addr_eq(old, Arc::as_ptr(&buffer(engine, &y))), "in place");
        // Again, from a pending version: both in the one buffer.
        let z = y.write(&[(0, 1)], &value(engine, 51.0)).write(&[(7, 1)], &value(engine, 52.0));
        drop(y);
        z.check(0.0);
        assert!(std::ptr::addr_eq(old, Arc::as_ptr(&buffer(engine, &z))));
    });
}

#[test]
fn a_held_old_version_is_copied() {
    both(|engine| {
        let x = leaf(engine, 8);
        let y = x.write(&[(2, 3)], &value(engine, 50.0));
        y.check(0.0);
        x.check(0.0);
        assert!(!Arc::ptr_eq(&buffer(engine, &x), &buffer(engine, &y)));
    });
}

#[test]
fn a_result_built_before_a_write_keeps_the_old_numbers() {
    both(|engine| {
        let x = leaf(engine, 8);
        let before = x.affine(2.0, 0.0);
        let flipped = x.flip(0).affine(1.0, 0.5);
        let y = x.write(&[(0, 4)], &value(engine, 9.0));
        drop(x);
        let after = y.affine(2.0, 0.0);
        realize(&[&after]).unwrap();
        before.check(F32);
        flipped.check(F32);
        after.check(F32);
        y.check(0.0);
    });
}

#[test]
fn a_view_taken_before_a_write_shows_the_old_version() {
    both(|engine| {
        let x = leaf(engine, 8);
        let view = x.narrow(0, 1, 4).flip(0);
        let y = x.write(&[(0, 4)], &value(engine, 9.0));
        drop(x);
        realize(&[&y]).unwrap();
        view.check(0.0);
        y.check(0.0);
        view.affine(1.0, 1.0).check(F32);
    });
}

#[test]
fn readers_inside_and_outside_the_plan_get_the_old_version() {
    both(|engine| {
        let x = leaf(engine, 8).affine(1.0, 1.0);
        let inside = x.unary(UnaryOp::Sin);
        let outside = x.unary(UnaryOp::Cos);
        let y = x.write(&[(3, 2)], &value(engine, -1.0));
        drop(x);
        let sum = inside.add(&y);
        drop(inside);
        realize(&[&sum]).unwrap();
        sum.check(F32);
        outside.check(F32);
        y.check(F32);
    });
}

#[test]
fn a_reader_inside_the_plan_comes_before_the_write() {
    both(|engine| {
        let x = leaf(engine, 8);
        let old = Arc::as_ptr(&buffer(engine, &x));
        let sum = x.reduce(tallow_graph::kernel::RowOp::Sum, 1);
        let y = x.write(&[(0, 8)], &value(engine, 2.0));
        drop(x);
        realize(&[&y, &sum]).unwrap();
        assert!(std::ptr::addr_eq(old, Arc::as_ptr(&buffer(engine, &y))), "readers go first, then in place");
        sum.check(F32);
        y.check(0.0);
    });
}

#[test]
fn a_reader_of_the_old_version_that_needs_the_new_one_forces_a_copy() {
    both(|engine| {
        let x = leaf(engine, 8);
        let y = x.write(&[(0, 2)], &value(engine, 7.0));
        // Reads both: the old version must outlive the write.
        let sum = x.add(&y);
        drop((x, y));
        sum.check(F32);
        // Through another kernel between the two.
        let x = leaf(engine, 8);
        let y = x.write(&[(0, 2)], &value(engine, 7.0));
        let total = y.reduce(tallow_graph::kernel::RowOp::Sum, 1);
        let z = x.add(&total);
        drop((x, y, total));
        z.check(F32);
    });
}

#[test]
fn two_versions_of_one_value_do_not_meet() {
    both(|engine| {
        let x = leaf(engine, 8);
        let a = x.write(&[(0, 4)], &value(engine, 20.0));
        let b = x.write(&[(4, 4)], &value(engine, 30.0));
        drop(x);
        realize(&[&a, &b]).unwrap();
        a.check(0.0);
        b.check(0.0);
        // And from a pending value.
        let x = leaf(engine, 8).affine(1.0, 0.5);
        let a = x.write(&[(0, 4)], &value(engine, 20.0));
        let b = x.write(&[(4, 4)], &value(engine, 30.0));
        let both = a.add(&b);
        drop((a, b, x));
        both.check(F32);
    });
}

#[test]
fn a_write_of_what_it_reads_is_right() {
    both(|engine| {
        let x = leaf(engine, 8);
        let y = x.write(&[(0, 8)], &x.flip(0).affine(1.0, 0.25));
        drop(x);
        y.check(F32);
        let z = y.write(&[(1, 3)], &y.narrow(0, 2, 3));
        drop(y);
        z.check(F32);
    });
}

#[test]
fn a_held_value_that_is_fused_away_still_sees_the_old_version() {
    both(|engine| {
        let x = leaf(engine, 8);
        let held = x.affine(3.0, 0.0);
        let root = held.unary(UnaryOp::Tanh);
        let y = x.write(&[(0, 8)], &value(engine, 0.0));
        drop(x);
        realize(&[&root, &y]).unwrap();
        // `held` was fused into `root`: it is computed now, from the version that it was built on.
        held.check(F32);
        root.check(F32);
        y.check(0.0);
    });
}

#[test]
fn a_write_takes_any_window_and_what_broadcasts_to_it() {
    both(|engine| {
        let rng = &mut Rng(3);
        let x = T::random(engine, DType::F32, &[3, 4, 5], rng);
        let row = T::random(engine, DType::F32, &[1, 2], rng);
        x.write(&[(1, 2), (0, 3), (2, 2)], &row).check(0.0);
        x.write(&[(0, 3), (0, 0), (0, 5)], &value(engine, 1.0)).check(0.0);
        let turned = T::random(engine, DType::F32, &[2, 4, 3], rng).permute(&[2, 1, 0]).unary(UnaryOp::Exp);
        x.write(&[(0, 3), (0, 4), (3, 2)], &turned).check(F32);
        // A value of the same elements in another shape.
        let flat = T::random(engine, DType::F32, &[40], rng).unary(UnaryOp::Exp).reshape(&[2, 4, 5]);
        x.write(&[(1, 2), (0, 4), (0, 5)], &flat).check(F32);
        for dtype in [DType::F16, DType::U8, DType::I64] {
            let x = T::new(engine, dtype, &[6], vec![1.0; 6]);
            x.write(&[(2, 3)], &T::new(engine, dtype, &[3], vec![2.0, 3.0, 4.0])).check(0.0);
        }
    });
}
