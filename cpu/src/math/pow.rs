//! x^y = 2^(y log2 x), in f64 inside, so that the product keeps its digits.

/// 1.5 * 2^52, which rounds an f64 to the nearest integer.
const MAGIC: f64 = 6_755_399_441_055_744.0;

multiversion! {
    fn near(x: &[f32], y: &[f32], out: &mut [f32]) = near_body;
}

/// log2 of a positive, normal f64: x = m 2^e, and ln m = 2 atanh((m - 1) / (m + 1)) by its series, good to 2^-41.
#[inline(always)]
fn log2(x: f64) -> f64 {
    let shifted = x.to_bits().wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64;
    // The exponent is small: through i32, which every instruction set converts.
    let e = (shifted >> 52) as i32;
    let m = f64::from_bits(x.to_bits().wrapping_sub((i64::from(e) << 52) as u64));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut series = 1.0 / 17.0;
    for odd in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        series = series * z + 1.0 / odd;
    }
    f64::from(e) + s * series * (2.0 * std::f64::consts::LOG2_E)
}

/// 2^t for |t| <= 300: the integer part by its bits, the rest by the series of e^(t ln 2), good to 2^-36.
#[inline(always)]
fn exp2(t: f64) -> f64 {
    let shifted = t + MAGIC;
    let r = (t - (shifted - MAGIC)) * std::f64::consts::LN_2;
    let mut series = 1.0 / 362_880.0;
    for factorial in [40_320.0, 5_040.0, 720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0] {
        series = series * r + 1.0 / factorial;
    }
    let n = shifted.to_bits().wrapping_sub(MAGIC.to_bits());
    series * f64::from_bits(n.wrapping_add(1023) << 52)
}

/// Right for finite y and finite x other than 0.
#[inline(always)]
fn near_body<const FMA: bool>(x: &[f32], y: &[f32], out: &mut [f32]) {
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        let (magnitude, y) = (f64::from(x.abs()), f64::from(y));
        let t = y * log2(magnitude);
        let t = if t > 300.0 { 300.0 } else { t };
        let t = if t < -300.0 { -300.0 } else { t };
        let value = exp2(t) as f32;
        // A whole number is what the magic sum does not change, unless it is so large that it is even.
        let size = y.abs();
        let size = if size > 1e15 { 0.0 } else { size };
        let shifted = size + MAGIC;
        let odd = (shifted.to_bits() & 1) as u32;
        let whole = shifted - MAGIC == size;
        let negative = if whole { f32::from_bits(value.to_bits() ^ (odd << 31)) } else { f32::NAN };
        *out = if x < 0.0 { negative } else { value };
    }
}

/// x_i^y_i, with C's `pow` rules for zeros, infinities and NaN.
pub fn powf(isa: crate::Isa, x: &[f32], y: &[f32], out: &mut [f32]) {
    near(isa, x, y, out);
    for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
        if x == 0.0 || !x.is_finite() || !y.is_finite() {
            // The C library lets a signalling NaN through where these rules say 1.
            *out = if y == 0.0 || x == 1.0 { 1.0 } else { x.powf(y) };
        }
    }
}
