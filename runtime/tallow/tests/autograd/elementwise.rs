//! Maps of one, two and three operands.

use crate::check::{Row, check, gradient_at};
use tallow::{DType, Device, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn one(name: &'static str, range: std::ops::Range<f64>, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Row {
    Row::new(name, &[&[3, 4]], range, move |x| f(&x[0]))
}

#[test]
fn maps_of_one_operand() {
    check(&[
        one("neg", -2.0..2.0, Tensor::neg).first_only(),
        one("abs", -2.0..2.0, Tensor::abs).first_only(),
        one("sign", -2.0..2.0, Tensor::sign).first_only(),
        one("sqr", -2.0..2.0, Tensor::sqr),
        one("sqrt", 0.3..3.0, Tensor::sqrt),
        one("rsqrt", 0.3..3.0, Tensor::rsqrt),
        one("recip", 0.3..3.0, Tensor::recip),
        one("exp", -2.0..2.0, Tensor::exp),
        one("log", 0.3..3.0, Tensor::log),
        one("sin", -4.0..4.0, Tensor::sin),
        one("cos", -4.0..4.0, Tensor::cos),
        one("tanh", -2.0..2.0, Tensor::tanh),
        one("erf", -2.0..2.0, Tensor::erf),
        one("gelu", -3.0..3.0, Tensor::gelu),
        one("gelu_erf", -3.0..3.0, Tensor::gelu_erf),
        one("relu", -2.0..2.0, Tensor::relu).first_only(),
        one("silu", -3.0..3.0, Tensor::silu),
        one("sigmoid", -3.0..3.0, Tensor::sigmoid),
        one("floor", -3.0..3.1, Tensor::floor).first_only(),
        one("ceil", -3.0..3.1, Tensor::ceil).first_only(),
        one("round", -3.0..3.1, Tensor::round).first_only(),
    ]);
}

#[test]
fn maps_with_scalars() {
    check(&[
        one("affine", -2.0..2.0, |x| x.affine(3.0, 1.0)?.sqr()),
        one("powf", 0.3..3.0, |x| x.powf(2.5)),
        one("powf of a negative base", -3.0..-0.3, |x| x.powf(3.0)).gpu_tolerance(1e-2),
        one("clamp", -2.0..2.0, |x| x.clamp(-1.0, 1.5)?.sqr()),
        one("scalars on the right", 0.3..3.0, |x| (((x + 1.0)? * 2.0)? - 3.0)? / 4.0).first_only(),
        one("scalars on the left", 0.3..3.0, |x| 3.0 - (2.0 / (1.5 * (1.0 + x)?)?)?),
        one("to_dtype", 0.3..3.0, |x| {
            if x.dtype() == DType::F64 {
                x.to_dtype(DType::F64)?.sqr()
            } else {
                x.to_dtype(DType::F16)?.to_dtype(x.dtype())?.sqr()
            }
        })
        .gpu_tolerance(2e-3),
    ]);
}

#[test]
fn maps_of_two_operands() {
    let f = |name, shapes: &[&[usize]], range, f: fn(&Tensor, &Tensor) -> Result<Tensor>| {
        Row::new(name, shapes, range, move |x| f(&x[0], &x[1]))
    };
    let same: &[&[usize]] = &[&[2, 3], &[2, 3]];
    check(&[
        f("add", same, -2.0..2.0, |a, b| (a + b)?.sqr()),
        f("sub", same, -2.0..2.0, |a, b| (a - b)?.sqr()),
        f("mul", same, -2.0..2.0, |a, b| a * b),
        f("div", same, 0.3..2.0, |a, b| a / b),
        f("maximum", same, -2.0..2.0, |a, b| a.maximum(b)?.sqr()),
        f("minimum", same, -2.0..2.0, |a, b| a.minimum(b)?.sqr()),
        f("pow", same, 0.3..2.0, Tensor::pow),
        f("broadcast_add", &[&[2, 1, 3], &[4, 1]], -2.0..2.0, |a, b| a.broadcast_add(b)?.sqr()),
        f("broadcast_sub", &[&[3], &[2, 3]], -2.0..2.0, |a, b| a.broadcast_sub(b)?.sqr()),
        f("broadcast_mul", &[&[2, 3], &[1]], -2.0..2.0, Tensor::broadcast_mul),
        f("broadcast_div", &[&[3, 1], &[1, 4]], 0.3..2.0, Tensor::broadcast_div),
        f("broadcast_pow", &[&[3, 1], &[4]], 0.3..2.0, Tensor::broadcast_pow),
        f("broadcast_maximum", &[&[3, 1], &[4]], -2.0..2.0, |a, b| a.broadcast_maximum(b)?.sqr()),
        f("broadcast_minimum", &[&[3, 1], &[4]], -2.0..2.0, |a, b| a.broadcast_minimum(b)?.sqr()),
        f("mul of nothing", &[&[0, 3], &[3]], -2.0..2.0, Tensor::broadcast_mul).first_only(),
        f("one operand twice", &[&[2, 3], &[2, 3]], 0.5..2.0, |a, b| ((a * a)? / b)? * (b - a)?),
    ]);
}

#[test]
fn choices() {
    check(&[Row::new("where_cond", &[&[2, 3], &[3]], -2.0..2.0, |x| {
        let condition = Tensor::new([[1u8, 0, 0], [0, 1, 0]], CPU)?.to_device(x[0].device())?;
        condition.where_cond(&x[0].sqr()?, &x[1].exp()?)
    })]);
}

#[test]
fn ties_and_edges_follow_pytorch() -> Result<()> {
    let x = Var::new([-1f64, 0., 1.], CPU)?;
    let zero = Tensor::zeros(3, DType::F64, CPU)?;
    assert_eq!(gradient_at(&x, Tensor::abs)?, [-1., 0., 1.]);
    assert_eq!(gradient_at(&x, Tensor::relu)?, [0., 0., 1.]);
    assert_eq!(gradient_at(&x, |x| x.maximum(&zero))?, [0., 0.5, 1.]);
    assert_eq!(gradient_at(&x, |x| zero.minimum(x))?, [1., 0.5, 0.]);
    assert_eq!(gradient_at(&x, |x| x.clamp(-1., 0.))?, [1., 1., 0.]);
    assert_eq!(gradient_at(&x, |x| x.powf(0.))?, [0., 0., 0.]);
    assert_eq!(gradient_at(&x, |x| x.powf(1.))?, [1., 1., 1.]);
    assert_eq!(gradient_at(&x, |x| x.pow(&zero))?, [0., 0., 0.]);
    assert_eq!(gradient_at(&x, |x| zero.pow(&x.abs()?))?, [0., 0., 0.]);
    let nan = Var::new([f64::NAN], CPU)?;
    assert_eq!(gradient_at(&nan, |x| x.clamp(0., 1.))?, [1.]);
    Ok(())
}
