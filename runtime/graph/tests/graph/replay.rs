//! What may differ between two rounds of one structure, and must then be noticed: a fusion that was right for the first
//! round's sizes by chance.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{DType, Engine, UnaryOp, kernel::RowOp};

const F32: f64 = 1e-6;

fn twice(test: impl Fn(&Arc<Engine>, &mut Rng, usize)) {
    for order in [[0, 1, 0], [1, 0, 1]] {
        let (engine, _) = engine(options());
        order.into_iter().for_each(|i| test(&engine, &mut Rng(9), i));
    }
}

#[test]
fn products_of_one_value_in_two_shapes_are_not_grouped() {
    twice(|engine, rng, i| {
        let x = T::random(engine, DType::F32, &[6], rng);
        let (rows, cols) = [(2, 3), (3, 2)][i];
        let a = x.reshape(&[2, 3]).matmul(&T::random(engine, DType::F32, &[3, 4], rng));
        let b = x.reshape(&[rows, cols]).matmul(&T::random(engine, DType::F32, &[cols, 4], rng));
        realize(&[&a, &b]).unwrap();
        a.check(F32);
        b.check(F32);
    });
}

#[test]
fn a_norm_whose_weight_is_scattered_stays_alone() {
    twice(|engine, rng, i| {
        let x = T::random(engine, DType::F32, &[3, 8], rng);
        let w = T::random(engine, DType::F32, &[8, [1, 3][i]], rng).narrow(1, 0, 1).squeeze(1);
        let y = x.norm(RowOp::RmsNorm, 1e-5).mul(&w).linear(&T::random(engine, DType::F32, &[5, 8], rng));
        y.check(F32);
    });
}

#[test]
fn two_thirds_of_the_columns_are_no_gate_and_up() {
    twice(|engine, rng, i| {
        let x = T::random(engine, DType::F32, &[3, 8], rng);
        let both = x.linear(&T::random(engine, DType::F32, &[[8, 12][i], 8], rng));
        let y = both.narrow(1, 0, 4).unary(UnaryOp::Silu).mul(&both.narrow(1, 4, 4));
        drop(both);
        y.check(F32);
    });
}

#[test]
fn gate_and_up_may_change_places() {
    twice(|engine, rng, i| {
        let x = T::random(engine, DType::F32, &[3, 8], rng);
        let both = x.linear(&T::random(engine, DType::F32, &[8, 8], rng));
        let (gate, up) = [(0, 4), (4, 0)][i];
        let y = both.narrow(1, gate, 4).unary(UnaryOp::Silu).mul(&both.narrow(1, up, 4));
        drop(both);
        y.check(F32);
    });
}

#[test]
fn a_reshape_that_needs_a_copy_in_one_round_only() {
    twice(|engine, rng, i| {
        // Columns of a wider value, flattened: affine only when they are all of it.
        let x = T::random(engine, DType::F32, &[3, [4, 6][i]], rng);
        let y = x.affine(1.0, 0.0).narrow(1, 0, 4).unary(UnaryOp::Exp).reshape(&[12]).affine(1.0, 1.0);
        y.check(F32);
        let z = x.permute(&[1, 0]).unary(UnaryOp::Exp).reshape(&[3 * [4, 6][i]]).affine(1.0, 1.0);
        z.check(F32);
    });
}

#[test]
fn launches_that_need_a_part_of_each_other_are_split() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(4);
    let [x, y] = [(); 2].map(|()| T::random(&engine, DType::F32, &[3, 4], rng));
    let [v, w] = [(); 2].map(|()| T::random(&engine, DType::F32, &[4, 5], rng));
    let c = y.matmul(&v);
    let a = x.matmul(&v).add(&c);
    let b = x.matmul(&w);
    let d = y.matmul(&w).add(&b);
    drop((b, c));
    realize(&[&a, &d]).unwrap();
    a.check(F32);
    d.check(F32);
}
