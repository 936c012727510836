//! Joins, padding, windows, diagonals, statistics and Einstein summation.

use crate::check::{Row, check};
use tallow::{D, Result, Tensor};

fn one(name: &'static str, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Row {
    // The square makes the derivative depend on the place.
    Row::new(name, &[&[3, 4]], -2.0..2.0, move |x| f(&x[0])?.sqr())
}

fn two(name: &'static str, f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'static) -> Row {
    Row::new(name, &[&[3, 4], &[3, 2]], -2.0..2.0, move |x| f(&x[0], &x[1])?.sqr())
}

#[test]
fn joins_and_padding() {
    check(&[
        two("cat", |x, y| Tensor::cat(&[x, y, x], 1)),
        two("cat of views", |x, y| Tensor::cat(&[&x.t()?.flip(0)?, &y.t()?], 0)),
        one("stack", |x| Tensor::stack(&[x, &x.sqr()?], D::Minus1)),
        one("repeat", |x| x.repeat((2, 3))),
        one("roll", |x| x.roll(3, 1)),
        one("pad_with_zeros", |x| x.pad_with_zeros(0, 1, 2)),
        one("pad_with_value", |x| x.pad_with_value(1, 2, 0, 3.0)),
        one("pad_with_same", |x| x.pad_with_same(1, 2, 3)),
        one("pad_with_reflection", |x| x.pad_with_reflection(1, 3, 2)),
        two("slice_assign", |x, y| x.slice_assign(&[0..3, 1..3], y)),
        two("slice_scatter", |x, y| x.slice_scatter(&y.narrow(1, 0, 1)?, 1, 3)),
    ]);
}

#[test]
fn windows_diagonals_and_triangles() {
    check(&[
        one("unfold", |x| x.unfold(1, 3, 1)),
        one("unfold with gaps", |x| x.unfold(1, 1, 2)),
        one("unfold twice", |x| x.unfold(0, 2, 1)?.unfold(1, 2, 2)),
        one("diagonal", |x| x.diagonal(1, 0, 1)),
        one("trace", |x| x.narrow(1, 0, 3)?.trace()),
        one("diag", |x| x.narrow(0, 1, 1)?.squeeze(0)?.diag(-1)),
        one("tril", |x| x.tril(-1)),
        one("triu", |x| x.triu(1)),
        one("split and movedim", |x| {
            let parts = x.movedim(0, 1)?.split(&[1, 3], 0)?;
            parts[0].broadcast_mul(&parts[1])
        }),
    ]);
}

#[test]
fn functions_and_statistics() {
    check(&[
        one("expm1", |x| x.expm1()),
        Row::new("log1p", &[&[3, 4]], -0.8..2.0, |x| x[0].log1p()),
        Row::new("tan", &[&[3, 4]], -1.0..1.0, |x| x[0].tan()),
        one("elu", |x| x.elu(0.7)),
        one("masked_fill", |x| x.masked_fill(&x.gt(0.5)?, 2.0)),
        Row::new("lerp", &[&[3, 4], &[3, 4], &[4]], 0.1..0.9, |x| x[0].lerp(&x[1], &x[2])),
        one("var", |x| x.var(1)),
        one("std", |x| x.std(1)),
        one("norm", |x| x.norm()),
        one("log_sum_exp", |x| x.log_sum_exp(1)),
        one("log_sum_exp of all", |x| x.log_sum_exp((0, 1))),
    ]);
}

#[test]
fn products() {
    check(&[
        two("einsum", |x, y| Tensor::einsum("ij,ik->jk", &[x, y])),
        two("einsum of three", |x, y| Tensor::einsum("ij,ik,ij->k", &[x, y, x])),
        one("einsum of a diagonal", |x| Tensor::einsum("ii->i", &[x.narrow(1, 1, 3)?])),
        two("outer", |x, y| x.narrow(0, 0, 1)?.squeeze(0)?.outer(&y.narrow(0, 1, 1)?.squeeze(0)?)),
        one("dot", |x| x.narrow(0, 0, 1)?.squeeze(0)?.dot(&x.narrow(0, 1, 1)?.squeeze(0)?)),
        one("mv", |x| x.mv(&x.narrow(0, 0, 1)?.squeeze(0)?)),
    ]);
}
