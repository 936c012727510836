//! The 8-bit floats: F8E4M3 (4 exponent bits, bias 7, no infinity, NaN is 0x7f) and F8E5M2 (5 exponent bits, bias 15, as
//! IEEE). Rounding is to nearest, ties to even; what is too large becomes NaN in E4M3 and infinity in E5M2.
//! Source: "FP8 Formats for Deep Learning", Micikevicius et al., 2022.

use std::sync::OnceLock;

/// Values of all 256 codes with `mantissa` mantissa bits; `finite`: the top exponent holds numbers, except the last.
fn table(mantissa: i32, bias: i32, finite: bool) -> [f32; 256] {
    std::array::from_fn(|code| {
        let sign = if code & 0x80 != 0 { -1.0f32 } else { 1.0 };
        let field = (code & 0x7f) as i32;
        let (exponent, fraction) = (field >> mantissa, field & ((1 << mantissa) - 1));
        let top = (0x7f >> mantissa) == exponent;
        let one = (1 << mantissa) as f32;
        if finite && field == 0x7f || !finite && top && fraction != 0 {
            f32::NAN
        } else if !finite && top {
            sign * f32::INFINITY
        } else if exponent == 0 {
            sign * fraction as f32 / one * 2f32.powi(1 - bias)
        } else {
            sign * (1.0 + fraction as f32 / one) * 2f32.powi(exponent - bias)
        }
    })
}

/// Values of the F8E4M3 codes.
pub(crate) fn e4m3_values() -> &'static [f32; 256] {
    static TABLE: OnceLock<[f32; 256]> = OnceLock::new();
    TABLE.get_or_init(|| table(3, 7, true))
}

/// Values of the F8E5M2 codes.
pub(crate) fn e5m2_values() -> &'static [f32; 256] {
    static TABLE: OnceLock<[f32; 256]> = OnceLock::new();
    TABLE.get_or_init(|| table(2, 15, false))
}

/// Rounds to `mantissa` bits with the smallest exponent `1 - bias`: the code without sign, perhaps past the largest.
#[inline(always)]
fn round_code(x: f32, mantissa: u32, bias: i32) -> u32 {
    let magnitude = x.to_bits() & 0x7fff_ffff;
    let smallest = ((127 + 1 - bias) as u32) << 23;
    if magnitude < smallest {
        // Subnormal: a count of steps of 2^(1 - bias - mantissa); adding 2^23 steps rounds in the adder.
        let steps = f32::from_bits(magnitude) * f32::from_bits(((127 - 1 + bias + mantissa as i32) as u32) << 23);
        return (steps + 8_388_608.0).to_bits() & 0xff;
    }
    let shift = 23 - mantissa;
    let odd = (magnitude >> shift) & 1;
    let rounded = (magnitude + (1 << (shift - 1)) - 1 + odd) >> shift;
    rounded - (((127 - bias) as u32) << mantissa)
}

/// The nearest F8E4M3 code.
#[inline]
pub(crate) fn to_e4m3(x: f32) -> u8 {
    let code = if x.is_nan() || x.is_infinite() { 0x7f } else { round_code(x, 3, 7).min(0x7f) };
    code as u8 | ((x.to_bits() >> 24) & 0x80) as u8
}

/// The nearest F8E5M2 code.
#[inline]
pub(crate) fn to_e5m2(x: f32) -> u8 {
    let code = if x.is_nan() {
        0x7f
    } else if x.is_infinite() {
        0x7c
    } else {
        round_code(x, 2, 15).min(0x7c)
    };
    code as u8 | ((x.to_bits() >> 24) & 0x80) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f32; 256], to: fn(f32) -> u8, largest: u8) {
        for code in 0..=255u8 {
            let value = values[usize::from(code)];
            if value.is_nan() {
                assert!(values[usize::from(to(value))].is_nan());
            } else {
                assert_eq!(to(value), code, "{value}");
            }
        }
        for code in 0..largest {
            let (low, high) = (values[usize::from(code)], values[usize::from(code) + 1]);
            let middle = (low + high) / 2.0;
            let even = if code % 2 == 0 { code } else { code + 1 };
            assert_eq!(to(middle), even, "between {low} and {high}");
            assert_eq!(to(-middle), even | 0x80);
            assert_eq!(to(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(to(f32::from_bits(middle.to_bits() + 1)), code + 1);
        }
    }

    #[test]
    fn nearest_even_between_all_neighbours() {
        assert_eq!(e4m3_values()[0x7e], 448.0);
        assert_eq!(e5m2_values()[0x7b], 57344.0);
        assert_eq!(e4m3_values()[1], 2f32.powi(-9));
        check(e4m3_values(), to_e4m3, 0x7e);
        check(e5m2_values(), to_e5m2, 0x7b);
        assert_eq!(to_e4m3(1e9), 0x7f);
        assert_eq!(to_e5m2(-1e9), 0xfc);
    }
}
