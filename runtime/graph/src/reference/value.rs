//! Scalars of the reference backend: floating-point values in f64, integers exactly.

use crate::{BinaryOp, CompareOp, DType, Element, Expr, Inst, Scalar, UnaryOp};
use half::{bf16, f16};

/// One element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum V {
    F(f64),
    I(i128),
}

impl V {
    pub(super) fn f(self) -> f64 {
        match self {
            V::F(v) => v,
            V::I(v) => v as f64,
        }
    }

    pub(super) fn i(self) -> i128 {
        match self {
            V::F(v) => v as i128,
            V::I(v) => v,
        }
    }

    pub(super) fn from_scalar(scalar: Scalar, dtype: DType) -> V {
        let v = match scalar {
            Scalar::F(v) => V::F(v),
            Scalar::I(v) => V::I(i128::from(v)),
            Scalar::U(v) => V::I(i128::from(v)),
        };
        if dtype.is_float() { V::F(v.f()) } else { cast(v, dtype) }
    }
}

/// Bounds of an integer dtype.
fn bounds(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::U8 => (0, 255),
        DType::I8 => (-128, 127),
        DType::U16 => (0, 65_535),
        DType::I16 => (-32_768, 32_767),
        DType::U32 => (0, u32::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U64 => (0, u64::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    }
}

fn wrap(v: i128, dtype: DType) -> i128 {
    let (low, high) = bounds(dtype);
    (v - low).rem_euclid(high - low + 1) + low
}

/// Conversion: floats to integers truncate and saturate, NaN gives 0; integers to integers wrap.
pub(super) fn cast(v: V, dtype: DType) -> V {
    match (v, dtype) {
        (V::F(x), DType::F16) => V::F(f16::from_f64(x).to_f64()),
        (V::F(x), DType::BF16) => V::F(bf16::from_f64(x).to_f64()),
        (V::F(x), DType::F8E4M3 | DType::F8E5M2) => V::F(f8_value(f8_code(x, dtype), dtype)),
        (V::F(_), d) if d.is_float() => v,
        (V::F(x), d) => {
            let (low, high) = bounds(d);
            V::I(if x.is_nan() { 0 } else { (x as i128).clamp(low, high) })
        }
        (V::I(x), d) if d.is_float() => cast(V::F(x as f64), d),
        (V::I(x), d) => V::I(wrap(x, d)),
    }
}

/// Mantissa bits and exponent bias of the 8-bit floats ("FP8 formats for deep learning", Micikevicius et al., 2022).
fn f8_format(dtype: DType) -> (i32, i32) {
    if dtype == DType::F8E4M3 { (3, 7) } else { (2, 15) }
}

/// The value of a code. E5M2 has infinities and NaN as IEEE 754 does; E4M3 has no infinity, and 0x7f and 0xff are NaN.
fn f8_value(code: u8, dtype: DType) -> f64 {
    let (mantissa, bias) = f8_format(dtype);
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(code & 0x7f) >> mantissa, i32::from(code) & ((1 << mantissa) - 1));
    let part = f64::from(fraction) / f64::from(1 << mantissa);
    match (dtype, exponent, fraction) {
        (DType::F8E4M3, 15, 7) => f64::NAN,
        (DType::F8E5M2, 31, 0) => sign * f64::INFINITY,
        (DType::F8E5M2, 31, _) => f64::NAN,
        (_, 0, _) => sign * part * 2f64.powi(1 - bias),
        _ => sign * (1.0 + part) * 2f64.powi(exponent - bias),
    }
}

/// The nearest code, ties to even. What is too large becomes NaN in E4M3 and infinity in E5M2.
fn f8_code(x: f64, dtype: DType) -> u8 {
    let (nan, over) = if dtype == DType::F8E4M3 { (0x7f, 0x7f) } else { (0x7e, 0x7c) };
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return sign | nan;
    }
    // Codes grow with their values: the first of the finite ones (and one step beyond) that is not nearer than the next.
    let (mantissa, bias) = f8_format(dtype);
    let value = |code: i32| match code >> mantissa {
        0 => f64::from(code) * 2f64.powi(1 - bias - mantissa),
        e => (1.0 + f64::from(code & ((1 << mantissa) - 1)) / f64::from(1 << mantissa)) * 2f64.powi(e - bias),
    };
    let x = x.abs();
    let code = (0..over)
        .find(|&c| {
            let middle = (value(c) + value(c + 1)) / 2.0;
            x < middle || (x == middle && c % 2 == 0)
        })
        .unwrap_or(over);
    sign | code as u8
}

pub(super) fn load(bytes: &[u8], dtype: DType) -> V {
    match dtype {
        DType::U8 => V::I(u8::take(bytes).into()),
        DType::I8 => V::I(i8::take(bytes).into()),
        DType::U16 => V::I(u16::take(bytes).into()),
        DType::I16 => V::I(i16::take(bytes).into()),
        DType::U32 => V::I(u32::take(bytes).into()),
        DType::I32 => V::I(i32::take(bytes).into()),
        DType::U64 => V::I(u64::take(bytes).into()),
        DType::I64 => V::I(i64::take(bytes).into()),
        DType::F16 => V::F(f16::take(bytes).to_f64()),
        DType::BF16 => V::F(bf16::take(bytes).to_f64()),
        DType::F64 => V::F(f64::take(bytes)),
        DType::F8E4M3 | DType::F8E5M2 => V::F(f8_value(u8::take(bytes), dtype)),
        _ => V::F(f32::take(bytes).into()),
    }
}

pub(super) fn store(v: V, dtype: DType, out: &mut Vec<u8>) {
    match dtype {
        DType::F16 => f16::from_f64(v.f()).put(out),
        DType::BF16 => bf16::from_f64(v.f()).put(out),
        DType::F32 => (v.f() as f32).put(out),
        DType::F64 => v.f().put(out),
        DType::F8E4M3 | DType::F8E5M2 => out.push(f8_code(v.f(), dtype)),
        d => out.extend_from_slice(&cast(v, d).i().to_le_bytes()[..d.size_in_bytes()]),
    }
}

/// Abramowitz and Stegun 7.1.5 (series) for small arguments, a continued fraction for large ones.
pub(super) fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return a;
    }
    if a < 3.0 {
        let (mut term, mut sum) = (a, a);
        for n in 1..200 {
            term *= -a * a / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        return sum.copysign(x) * 2.0 / std::f64::consts::PI.sqrt();
    }
    let mut fraction = a;
    for n in (1..100).rev() {
        fraction = a + n as f64 / 2.0 / fraction;
    }
    (1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt())).copysign(x)
}

fn unary(op: UnaryOp, v: V, dtype: DType) -> V {
    if let V::I(x) = v {
        let y = match op {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Sign => x.signum(),
            UnaryOp::Sqr => x.wrapping_mul(x),
            UnaryOp::Relu => x.max(0),
            _ => x,
        };
        return V::I(wrap(y, dtype));
    }
    let x = v.f();
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    V::F(match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign if x.is_nan() || x == 0.0 => x,
        UnaryOp::Sign => x.signum(),
        UnaryOp::Sqr => x * x,
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => erf(x),
        UnaryOp::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            x * (1.0 + inner.tanh()) / 2.0
        }
        UnaryOp::GeluErf => x * (1.0 + erf(x / std::f64::consts::SQRT_2)) / 2.0,
        UnaryOp::Relu if x.is_nan() => x,
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::Silu => x * sigmoid(x),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round(),
    })
}

pub(super) fn binary(op: BinaryOp, a: V, b: V, dtype: DType) -> V {
    if let (V::I(x), V::I(y)) = (a, b) {
        let z = match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x.wrapping_mul(y),
            BinaryOp::Div => x.checked_div(y).unwrap_or(0),
            BinaryOp::Maximum => x.max(y),
            BinaryOp::Minimum => x.min(y),
            // 1 / x^|y|, truncated, as a division would be.
            BinaryOp::Pow if y < 0 => match x {
                1 => 1,
                -1 => 1 - 2 * (y & 1),
                _ => 0,
            },
            BinaryOp::Pow => {
                let mut z = 1i128;
                let mut base = wrap(x, dtype);
                let mut n = y;
                while n > 0 {
                    if n & 1 == 1 {
                        z = wrap(z.wrapping_mul(base), dtype);
                    }
                    base = wrap(base.wrapping_mul(base), dtype);
                    n >>= 1;
                }
                z
            }
            BinaryOp::Rem => x.checked_rem(y).unwrap_or(x),
            BinaryOp::BitAnd => x & y,
            BinaryOp::BitOr => x | y,
            BinaryOp::BitXor => x ^ y,
            BinaryOp::Shl | BinaryOp::Shr => {
                let bits = 8 * dtype.size_in_bytes() as i128;
                let inside = (0..bits).contains(&y);
                match (op, inside) {
                    (BinaryOp::Shl, true) => x << y,
                    (BinaryOp::Shl, false) => 0,
                    (_, true) => x >> y,
                    (_, false) => x >> 127,
                }
            }
        };
        return V::I(wrap(z, dtype));
    }
    let (x, y) = (a.f(), b.f());
    let nan = x.is_nan() || y.is_nan();
    V::F(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Maximum | BinaryOp::Minimum if nan => f64::NAN,
        BinaryOp::Maximum => x.max(y),
        BinaryOp::Minimum => x.min(y),
        BinaryOp::Pow => x.powf(y),
        BinaryOp::Rem => x % y,
        // The graph refuses them for floats.
        _ => f64::NAN,
    })
}

fn compare(op: CompareOp, a: V, b: V) -> V {
    let order = match (a, b) {
        (V::I(x), V::I(y)) => Some(x.cmp(&y)),
        _ => a.f().partial_cmp(&b.f()),
    };
    V::I(i128::from(match op {
        CompareOp::Eq => order.is_some_and(|o| o.is_eq()),
        CompareOp::Ne => !order.is_some_and(|o| o.is_eq()),
        CompareOp::Lt => order.is_some_and(|o| o.is_lt()),
        CompareOp::Le => order.is_some_and(|o| o.is_le()),
        CompareOp::Gt => order.is_some_and(|o| o.is_gt()),
        CompareOp::Ge => order.is_some_and(|o| o.is_ge()),
    }))
}

/// Evaluates an expression for one element. `load` gives operand values, `position` operand addresses.
pub(super) fn evaluate(
    expr: &Expr,
    acc: &[V],
    scalars: &[Scalar],
    load: &dyn Fn(usize) -> V,
    position: &dyn Fn(usize) -> i128,
) -> V {
    let mut values: Vec<V> = Vec::with_capacity(expr.code.len());
    for (inst, &dtype) in expr.code.iter().zip(&expr.dtypes) {
        let at = |i: u16| values[i as usize];
        let value = match *inst {
            Inst::Load(i) => load(i as usize),
            Inst::Position(i) if dtype.is_float() => V::F(position(i as usize) as f64),
            Inst::Position(i) => V::I(position(i as usize)),
            Inst::Acc(i) => acc[i as usize],
            Inst::Param(i) => V::from_scalar(scalars[i as usize], dtype),
            Inst::Unary(op, a) => unary(op, at(a), dtype),
            Inst::Binary(op, a, b) => binary(op, at(a), at(b), dtype),
            Inst::Compare(op, a, b) => compare(op, at(a), at(b)),
            Inst::Where(c, a, b) => {
                if at(c).i() != 0 {
                    at(a)
                } else {
                    at(b)
                }
            }
            Inst::Cast(a) => cast(at(a), dtype),
        };
        values.push(value);
    }
    values.last().copied().unwrap_or(V::F(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f8_code_survives_and_values_round_to_the_nearest() {
        for dtype in [DType::F8E4M3, DType::F8E5M2] {
            for code in 0..=255u8 {
                let value = f8_value(code, dtype);
                let element = match dtype {
                    DType::F8E4M3 => crate::F8E4M3::from_bits(code).to_f64(),
                    _ => crate::F8E5M2::from_bits(code).to_f64(),
                };
                assert!(element == value || (element.is_nan() && value.is_nan()), "{dtype} {code}: {element} {value}");
                if value.is_nan() {
                    assert!(f8_value(f8_code(value, dtype), dtype).is_nan());
                } else {
                    assert_eq!(f8_code(value, dtype), code, "{value}");
                }
            }
        }
        let round = |x: f64, dtype| f8_value(f8_code(x, dtype), dtype);
        assert_eq!(round(448.0, DType::F8E4M3), 448.0);
        assert_eq!(round(463.0, DType::F8E4M3), 448.0);
        assert!(round(465.0, DType::F8E4M3).is_nan());
        assert_eq!(round(57_344.0, DType::F8E5M2), 57_344.0);
        assert_eq!(round(1e9, DType::F8E5M2), f64::INFINITY);
        assert_eq!(round(1.0625, DType::F8E4M3), 1.0);
        assert_eq!(round(-1.1, DType::F8E4M3), -1.125);
    }
}
