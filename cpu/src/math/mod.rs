//! Element-wise f32 functions over slices: `function(isa, x, out)` over the shorter length.
//!
//! Each is a branch-free scalar function in [`scalar`] that the compiler vectorises, in a copy for each instruction
//! set. Errors: `sqrt`, `recip` and the arithmetic are exact to rounding; the transcendental functions stay within
//! 4 ulp (measured in the tests), `sin` and `cos` for arguments of any size; `erf` and the GELUs within 1e-6 of the
//! size of their argument. NaN, infinities and subnormal numbers are treated as in IEEE 754.
//!
//! - [`scalar`]: exp, ln, tanh, sigmoid, erf and what is made of them;
//! - [`trig`]: sin and cos;
//! - [`pow`]: powf, in f64 inside.

pub mod pow;
pub mod scalar;
#[cfg(test)]
mod tests;
pub mod trig;

pub use pow::powf;
pub use trig::{cos, sin};

macro_rules! unary {
    ($($(#[$meta:meta])* $name:ident, $body:ident = |$x:ident, $fma:ident| $value:expr;)*) => {
        multiversion! { $($(#[$meta])* pub fn $name(x: &[f32], out: &mut [f32]) = $body;)* }
        $(
            #[inline(always)]
            fn $body<const $fma: bool>(x: &[f32], out: &mut [f32]) {
                for (out, &$x) in out.iter_mut().zip(x) {
                    *out = $value;
                }
            }
        )*
    };
}

macro_rules! binary {
    ($($(#[$meta:meta])* $name:ident, $body:ident = |$a:ident, $b:ident| $value:expr;)*) => {
        multiversion! { $($(#[$meta])* pub fn $name(a: &[f32], b: &[f32], out: &mut [f32]) = $body;)* }
        $(
            #[inline(always)]
            fn $body<const FMA: bool>(a: &[f32], b: &[f32], out: &mut [f32]) {
                for ((out, &$a), &$b) in out.iter_mut().zip(a).zip(b) {
                    *out = $value;
                }
            }
        )*
    };
}

unary! {
    /// e^x.
    exp, exp_body = |x, FMA| scalar::exp::<FMA>(x);
    /// The natural logarithm.
    ln, ln_body = |x, FMA| scalar::ln::<FMA>(x);
    /// The hyperbolic tangent.
    tanh, tanh_body = |x, FMA| scalar::tanh::<FMA>(x);
    /// 1 / (1 + e^-x).
    sigmoid, sigmoid_body = |x, FMA| scalar::sigmoid::<FMA>(x);
    /// x / (1 + e^-x).
    silu, silu_body = |x, FMA| scalar::silu::<FMA>(x);
    /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    gelu, gelu_body = |x, FMA| scalar::gelu::<FMA>(x);
    /// x (1 + erf(x / sqrt 2)) / 2.
    gelu_erf, gelu_erf_body = |x, FMA| scalar::gelu_erf::<FMA>(x);
    /// The error function.
    erf, erf_body = |x, FMA| scalar::erf::<FMA>(x);
    /// The square root.
    sqrt, sqrt_body = |x, FMA| x.sqrt();
    /// 1 / sqrt x, as a square root and a division.
    rsqrt, rsqrt_body = |x, FMA| 1.0 / x.sqrt();
    /// 1 / x.
    recip, recip_body = |x, FMA| 1.0 / x;
    /// -x.
    neg, neg_body = |x, FMA| -x;
    /// |x|.
    abs, abs_body = |x, FMA| x.abs();
    /// x * x.
    sqr, sqr_body = |x, FMA| x * x;
    /// 1, 0 or -1; NaN stays NaN.
    sign, sign_body = |x, FMA| scalar::sign(x);
    /// max(x, 0); NaN stays NaN.
    relu, relu_body = |x, FMA| if x < 0.0 { 0.0 } else { x };
    /// The next integer below.
    floor, floor_body = |x, FMA| scalar::floor::<FMA>(x);
    /// The next integer above.
    ceil, ceil_body = |x, FMA| -scalar::floor::<FMA>(-x);
    /// The nearest integer, halves away from zero.
    round, round_body = |x, FMA| scalar::round::<FMA>(x);
}

binary! {
    /// a + b.
    add, add_body = |a, b| a + b;
    /// a - b.
    sub, sub_body = |a, b| a - b;
    /// a * b.
    mul, mul_body = |a, b| a * b;
    /// a / b.
    div, div_body = |a, b| a / b;
    /// The larger; NaN wins, as in PyTorch.
    maximum, maximum_body = |a, b| if b > a || b.is_nan() { b } else { a };
    /// The smaller; NaN wins, as in PyTorch.
    minimum, minimum_body = |a, b| if b < a || b.is_nan() { b } else { a };
}

multiversion! {
    /// a * b + c, fused where the processor does that in one instruction.
    pub fn mul_add(a: &[f32], b: &[f32], c: &[f32], out: &mut [f32]) = mul_add_body;
    /// out_i = x_i * scale + offset.
    pub fn affine(x: &[f32], scale: f32, offset: f32, out: &mut [f32]) = affine_body;
}

#[inline(always)]
fn mul_add_body<const FMA: bool>(a: &[f32], b: &[f32], c: &[f32], out: &mut [f32]) {
    for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
        *out = crate::multiversion::fma::<FMA>(a, b, c);
    }
}

#[inline(always)]
fn affine_body<const FMA: bool>(x: &[f32], scale: f32, offset: f32, out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = crate::multiversion::fma::<FMA>(x, scale, offset);
    }
}
