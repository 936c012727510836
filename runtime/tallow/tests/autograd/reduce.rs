//! Reductions, norms and softmax.

use crate::check::{Row, check, gradient_at};
use tallow::{D, Device, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn one(name: &'static str, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Row {
    Row::new(name, &[&[2, 3, 4]], -2.0..2.0, move |x| f(&x[0]))
}

#[test]
fn reductions() {
    check(&[
        one("sum", |x| x.sum((0, 2))?.sqr()),
        one("sum_keepdim", |x| x.sum_keepdim(1)?.sqr()),
        one("sum_all", |x| x.sum_all()?.sqr()),
        one("mean", |x| x.mean(D::Minus1)?.sqr()),
        one("mean_keepdim", |x| x.mean_keepdim((0, 1))?.sqr()),
        one("mean_all", |x| x.mean_all()?.sqr()),
        one("sum over no axis", |x| x.sum(())?.sqr()),
    ]);
}

/// Only where no two elements are equal do the largest and smallest have a derivative: not stretched layouts.
#[test]
fn largest_and_smallest() -> Result<()> {
    let of = |f: fn(&Tensor) -> Result<Tensor>| {
        gradient_at(&Var::new([[1f64, 5., 2.], [5., 5., -1.]], CPU).expect("a variable"), f)
    };
    assert_eq!(of(|x| x.max(1))?, [0., 1., 0., 1., 0., 0.]);
    assert_eq!(of(|x| x.max_keepdim(0))?, [0., 1., 1., 1., 0., 0.]);
    assert_eq!(of(|x| x.min(0))?, [1., 1., 0., 0., 0., 1.]);
    assert_eq!(of(|x| x.min_keepdim(1))?, [1., 0., 0., 0., 0., 1.]);
    let third = 1. / 3.;
    assert_eq!(of(Tensor::max_all)?, [0., third, 0., third, third, 0.]);
    assert_eq!(of(|x| x.max((0, 1)))?, [0., third, 0., third, third, 0.]);
    assert_eq!(of(|x| x.min_keepdim((0, 1)))?, [0., 0., 0., 0., 0., 1.]);
    let nan = Var::new([1f64, f64::NAN], CPU)?;
    assert_eq!(gradient_at(&nan, Tensor::max_all)?, [0., 1.]);
    assert_eq!(gradient_at(&nan, |x| x.max(0))?, [0., 1.]);
    // A second derivative, and a weight for each result.
    check(&[Row::new("max", &[&[7]], -2.0..2.0, |x| (x[0].max(0)? * x[0].min_all()?)?.sqr())]);
    Ok(())
}

#[test]
fn norms() {
    check(&[
        one("rms_norm", |x| x.rms_norm(1e-2)),
        one("layer_norm", |x| (x * x)?.layer_norm(1e-1)),
        one("softmax_last_dim", Tensor::softmax_last_dim),
        Row::new("softmax of one", &[&[3, 1]], -2.0..2.0, |x| x[0].softmax_last_dim()).first_only(),
        Row::new("norm of nothing", &[&[0, 4]], -2.0..2.0, |x| x[0].layer_norm(1e-2)).first_only(),
    ]);
}
