//! f16 and bf16 to and from f32, rounding to nearest even. NaNs stay NaNs.

use half::{bf16, f16};

use crate::Isa;

multiversion! {
    fn widen_f16(x: &[f16], out: &mut [f32]) = widen_f16_body;
    fn narrow_f16(x: &[f32], out: &mut [f16]) = narrow_f16_body;
    fn widen_bf16(x: &[bf16], out: &mut [f32]) = widen_bf16_body;
    fn narrow_bf16(x: &[f32], out: &mut [bf16]) = narrow_bf16_body;
}

#[inline(always)]
fn widen_f16_body<const FMA: bool>(x: &[f16], out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = crate::quant::format::half_to_f32(x.to_bits());
    }
}

#[inline(always)]
fn narrow_f16_body<const FMA: bool>(x: &[f32], out: &mut [f16]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f16::from_bits(f32_to_half(*x));
    }
}

#[inline(always)]
fn widen_bf16_body<const FMA: bool>(x: &[bf16], out: &mut [f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = f32::from_bits(u32::from(x.to_bits()) << 16);
    }
}

#[inline(always)]
fn narrow_bf16_body<const FMA: bool>(x: &[f32], out: &mut [bf16]) {
    for (out, x) in out.iter_mut().zip(x) {
        let bits = x.to_bits();
        let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
        let quiet = ((bits >> 16) as u16) | 0x40;
        *out = bf16::from_bits(if x.is_nan() { quiet } else { rounded });
    }
}

/// Three cases, all computed and one picked, so that it vectorises: too large (infinity or NaN), normal (rounding by
/// adding half of the last place, less a bit for ties to even), and subnormal (an addition puts the bits in place).
#[inline(always)]
fn f32_to_half(x: f32) -> u16 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let large = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
    let normal = magnitude.wrapping_add(0xfff).wrapping_add((magnitude >> 13) & 1).wrapping_sub(112 << 23) >> 13;
    // 0.5: its last place is f16's smallest subnormal.
    let small = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let half = if magnitude >= 0x4780_0000 {
        large
    } else if magnitude < 113 << 23 {
        small
    } else {
        normal
    };
    (half | ((bits >> 16) & 0x8000)) as u16
}

/// Converts as many elements as the shorter slice has.
pub fn f16_to_f32(isa: Isa, x: &[f16], out: &mut [f32]) {
    widen_f16(isa, x, out);
}

/// Converts as many elements as the shorter slice has; beyond 65,504 (rounded) is infinity.
pub fn f32_to_f16(isa: Isa, x: &[f32], out: &mut [f16]) {
    narrow_f16(isa, x, out);
}

/// Converts as many elements as the shorter slice has.
pub fn bf16_to_f32(isa: Isa, x: &[bf16], out: &mut [f32]) {
    widen_bf16(isa, x, out);
}

/// Converts as many elements as the shorter slice has.
pub fn f32_to_bf16(isa: Isa, x: &[f32], out: &mut [bf16]) {
    narrow_bf16(isa, x, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_halves_there_and_back() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        for isa in Isa::supported() {
            let (mut wide, mut back) = (vec![0.0; all.len()], vec![f16::ZERO; all.len()]);
            f16_to_f32(isa, &all, &mut wide);
            f32_to_f16(isa, &wide, &mut back);
            for (a, b) in all.iter().zip(&back) {
                assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{isa:?} {a} {b}");
            }
        }
    }

    #[test]
    fn rounding_matches_half() {
        let mut x: Vec<f32> = (0..2_000_000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761))).collect();
        // Around every tie between neighbours of f16.
        for bits in 0..0x7c00u16 {
            let (a, b) = (f16::from_bits(bits).to_f32(), f16::from_bits(bits + 1).to_f32());
            if b.is_finite() {
                let middle = (a + b) / 2.0;
                x.extend([middle, middle.next_up(), middle.next_down(), -middle]);
            }
        }
        x.extend([65519.9, 65520.0, 65536.0, f32::MAX, f32::INFINITY, f32::NAN, -0.0]);
        for isa in Isa::supported() {
            let (mut h, mut b) = (vec![f16::ZERO; x.len()], vec![bf16::ZERO; x.len()]);
            f32_to_f16(isa, &x, &mut h);
            f32_to_bf16(isa, &x, &mut b);
            for ((x, h), b) in x.iter().zip(&h).zip(&b) {
                let (wh, wb) = (f16::from_f32(*x), bf16::from_f32(*x));
                assert!(h.to_bits() == wh.to_bits() || (h.is_nan() && x.is_nan()), "{isa:?} {x:e} {h} {wh}");
                assert!(b.to_bits() == wb.to_bits() || (b.is_nan() && x.is_nan()), "{isa:?} {x:e} {b} {wb}");
            }
        }
    }
}
