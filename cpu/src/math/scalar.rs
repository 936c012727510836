//! The functions themselves, one element at a time and without branches: `FMA` says whether a fused multiply-add is
//! one instruction. Polynomials are those of Cephes (Moshier, single precision) unless said otherwise.

#![allow(clippy::excessive_precision, reason = "coefficients keep the digits of their source")]

use crate::multiversion::fma;

/// 1.5 * 2^23: adding it rounds a small f32 to the nearest integer, which then stands in the low bits.
const MAGIC: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has few enough bits that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

#[inline(always)]
fn horner<const FMA: bool, const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for c in &coefficients[1..] {
        sum = fma::<FMA>(sum, x, *c);
    }
    sum
}

/// `magnitude` with the sign of `x`.
#[inline(always)]
fn with_sign(magnitude: f32, x: f32) -> f32 {
    f32::from_bits((magnitude.to_bits() & 0x7fff_ffff) | (x.to_bits() & 0x8000_0000))
}

/// 2^n for n in -126..=127, by its bits.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// e^x = 2^n e^r, where r = x - n ln 2 is at most ln 2 / 2 in size.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    // Past these the result is infinite or rounds to 0. Comparisons with NaN fail, so it passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = shifted - MAGIC;
    let r = fma::<FMA>(n, -LN2_LOW, fma::<FMA>(n, -LN2_HIGH, x));
    let p = horner::<FMA, 6>(
        r,
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_1e-1],
    );
    let p = fma::<FMA>(p, r * r, r) + 1.0;
    // In two steps, since 2^n alone leaves the range of f32 where the result is subnormal or close to the largest.
    let n = shifted.to_bits().wrapping_sub(MAGIC.to_bits()) as i32;
    let half = n >> 1;
    p * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// ln x = e ln 2 + ln m, where x = m 2^e and m lies between sqrt(1/2) and sqrt 2.
#[inline(always)]
pub fn ln<const FMA: bool>(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let (scaled, less) = if tiny { (x * 8_388_608.0, 23.0) } else { (x, 0.0) };
    let shifted = scaled.to_bits().wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits()) as i32;
    let e = shifted >> 23;
    let m = f32::from_bits(scaled.to_bits().wrapping_sub((e << 23) as u32)) - 1.0;
    let e = e as f32 - less;
    let p = horner::<FMA, 9>(
        m,
        [
            7.037_683_6e-2,
            -1.151_461_03e-1,
            1.167_699_87e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_4e-1,
            -2.499_999_4e-1,
            3.333_333_1e-1,
        ],
    );
    let square = m * m;
    let low = fma::<FMA>(e, LN2_LOW, square * m * p);
    let value = fma::<FMA>(e, LN2_HIGH, fma::<FMA>(-0.5, square, low) + m);
    let value = if x == f32::INFINITY { x } else { value };
    let value = if x == 0.0 { f32::NEG_INFINITY } else { value };
    // Also for NaN.
    if x >= 0.0 { value } else { f32::NAN }
}

/// Near 0 a polynomial, else 1 - 2 / (e^2|x| + 1).
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    let square = x * x;
    let p =
        horner::<FMA, 5>(square, [-5.704_988_7e-3, 2.063_908_8e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328_2e-1]);
    let near = fma::<FMA>(p * square, x, x);
    let far = 1.0 - 2.0 / (exp::<FMA>(a + a) + 1.0);
    if a < 0.625 { near } else { with_sign(far, x) }
}

/// By e^-|x|, so that small results keep their digits.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    let e = exp::<FMA>(-x.abs());
    let top = if x < 0.0 { e } else { 1.0 };
    top / (1.0 + e)
}

/// x sigmoid(x); NaN for negative infinity, as in PyTorch.
#[inline(always)]
pub fn silu<const FMA: bool>(x: f32) -> f32 {
    // e^-|x| as a square: its root is far from subnormal, so that small results keep their digits.
    let root = exp::<FMA>(-0.5 * x.abs());
    let top = if x < 0.0 { x * root * root } else { x };
    top / fma::<FMA>(root, root, 1.0)
}

/// The tanh form: (1 + tanh u) / 2 is sigmoid(2 u), which does not cancel for negative x.
#[inline(always)]
pub fn gelu<const FMA: bool>(x: f32) -> f32 {
    let u = 1.595_769_1 * fma::<FMA>(0.044_715 * x * x, x, x);
    x * sigmoid::<FMA>(u)
}

/// The form by the error function.
#[inline(always)]
pub fn gelu_erf<const FMA: bool>(x: f32) -> f32 {
    0.5 * x * (1.0 + erf::<FMA>(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// Near 0 a polynomial in x^2, else 1 - e^q(|x|); coefficients by N. Juffa (minimax, single precision).
#[inline(always)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    // Past 4, erf is 1 to f32's precision; the bound keeps q finite.
    let a = x.abs();
    let a = if a > 4.0 { 4.0 } else { a };
    let square = a * a;
    let q = horner::<FMA, 2>(a, [-1.728_534_7e-5, 3.831_971_3e-4]);
    let q = fma::<FMA>(q, square, horner::<FMA, 2>(a, [-3.883_964_4e-3, 2.425_462_2e-2]));
    let q = horner::<FMA, 4>(a, [q, -1.067_778_8e-1, -6.348_468_7e-1, -1.287_175_1e-1]);
    let far = 1.0 - exp::<FMA>(fma::<FMA>(q, a, -a));
    let p = horner::<FMA, 6>(
        square,
        [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_3e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let near = fma::<FMA>(p, a, a);
    with_sign(if a > 0.921_875 { far } else { near }, x)
}

/// 1, 0 or -1; NaN stays NaN.
#[inline(always)]
pub fn sign(x: f32) -> f32 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

/// `f32::floor` is one instruction where FMA is; elsewhere it calls a function for each element.
#[inline(always)]
pub fn floor<const FMA: bool>(x: f32) -> f32 {
    if FMA || !cfg!(target_arch = "x86_64") {
        return x.floor();
    }
    let nearest = with_sign((x.abs() + 8_388_608.0) - 8_388_608.0, x);
    let below = if nearest > x { nearest - 1.0 } else { nearest };
    if x.abs() < 8_388_608.0 { with_sign_of_zero(below, x) } else { x }
}

/// Halves away from zero.
#[inline(always)]
pub fn round<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    let below = floor::<FMA>(a);
    let near = if a - below >= 0.5 { below + 1.0 } else { below };
    with_sign(near, x)
}

/// A zero result takes the argument's sign (-0.0 stays -0.0).
#[inline(always)]
fn with_sign_of_zero(value: f32, x: f32) -> f32 {
    if value == 0.0 { with_sign(value, x) } else { value }
}
