//! sin and cos, for arguments of any size.
//!
//! In f64 inside: x = n pi/2 + r, with pi/2 in three parts whose products with n are exact while |x| < 2^27, then the
//! polynomials of FreeBSD's `k_sinf` and `k_cosf` (good to f64's 2^-37 on |r| <= pi/4), picked by n mod 4. The rare
//! larger arguments go one by one through the standard library's f64 functions, which reduce exactly.

/// Largest argument of the vectorised path.
const LARGE: f32 = 134_217_728.0;
/// 1.5 * 2^52, which rounds an f64 to the nearest integer.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// pi/2 cut after 26 bits, the next 26 bits, and the rest.
const PARTS: [f64; 3] = [f64::from_bits(0x3ff9_21fb_5000_0000), f64::from_bits(0x3e51_10b4_6000_0000), PI_2_REST];
/// pi/2 - PARTS[0] - PARTS[1].
const PI_2_REST: f64 = f64::from_bits(0x3c91_a626_3314_5c07);

multiversion! {
    fn sin_near(x: &[f32], out: &mut [f32]) = sin_body;
    fn cos_near(x: &[f32], out: &mut [f32]) = cos_body;
}

/// sin(x + quarter pi / 2).
#[inline(always)]
fn wave(x: f32, quarter: u64) -> f32 {
    let x = f64::from(x);
    let shifted = x * std::f64::consts::FRAC_2_PI + MAGIC;
    let n = shifted - MAGIC;
    let r = ((x - n * PARTS[0]) - n * PARTS[1]) - n * PARTS[2];
    let z = r * r;
    let sin = r + r
        * z
        * (-0.166_666_666_416_265_24
            + z * (0.008_333_329_385_889_463 + z * (-1.983_933_483_603_66e-4 + z * 2.718_311_493_989_822e-6)));
    let cos = 1.0
        + z * (-0.499_999_997_251_031
            + z * (0.041_666_623_323_739_06 + z * (-0.001_388_676_377_460_993 + z * 2.439_044_879_627_741_5e-5)));
    let quadrant = shifted.to_bits().wrapping_add(quarter);
    let value = if quadrant & 1 == 0 { sin } else { cos };
    f64::from_bits(value.to_bits() ^ ((quadrant & 2) << 62)) as f32
}

#[inline(always)]
fn sin_body<const FMA: bool>(x: &[f32], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        let value = wave(x, 0);
        // Keeps the sign of zero.
        *out = if x == 0.0 { x } else { value };
    }
}

#[inline(always)]
fn cos_body<const FMA: bool>(x: &[f32], out: &mut [f32]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = wave(x, 1);
    }
}

/// Overwrites the results of large arguments (of infinities and NaN too, with NaN).
fn far(x: &[f32], out: &mut [f32], exact: fn(f64) -> f64) {
    for (out, &x) in out.iter_mut().zip(x) {
        if x.abs() >= LARGE || x.is_nan() {
            *out = exact(f64::from(x)) as f32;
        }
    }
}

/// The sine.
pub fn sin(isa: crate::Isa, x: &[f32], out: &mut [f32]) {
    sin_near(isa, x, out);
    far(x, out, f64::sin);
}

/// The cosine.
pub fn cos(isa: crate::Isa, x: &[f32], out: &mut [f32]) {
    cos_near(isa, x, out);
    far(x, out, f64::cos);
}
