//! Rotary position embedding (Su et al., 2021) of one head's row, by given cosines and sines of its angles.

use crate::multiversion::fma;

/// Which elements make a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// Element i with i + half: GPT-NeoX, and LLaMA in Hugging Face's layout.
    HalfSplit,
    /// Element 2 i with 2 i + 1: the paper, and LLaMA in GGUF's layout.
    Interleaved,
}

multiversion! {
    fn half_split(x: &mut [f32], cos: &[f32], sin: &[f32]) = half_split_body;
    fn interleaved(x: &mut [f32], cos: &[f32], sin: &[f32]) = interleaved_body;
}

#[inline(always)]
fn half_split_body<const FMA: bool>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let (low, high) = x.split_at_mut(cos.len());
    for (((a, b), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
        (*a, *b) = (fma::<FMA>(*a, *c, -(*b * s)), fma::<FMA>(*b, *c, *a * s));
    }
}

#[inline(always)]
fn interleaved_body<const FMA: bool>(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (([a, b], c), s) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
        (*a, *b) = (fma::<FMA>(*a, *c, -(*b * s)), fma::<FMA>(*b, *c, *a * s));
    }
}

/// Rotates the pairs of the first `2 * cos.len()` elements of `x`: (a, b) becomes (a cos - b sin, b cos + a sin).
/// Further elements stay (partial rotary embedding). `cos` and `sin` are cut to what `x` and each other have.
pub fn rope(isa: crate::Isa, pairing: RopePairing, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len().min(sin.len()).min(x.len() / 2);
    let (x, cos, sin) = (&mut x[..2 * half], &cos[..half], &sin[..half]);
    match pairing {
        RopePairing::HalfSplit => half_split(isa, x, cos, sin),
        RopePairing::Interleaved => interleaved(isa, x, cos, sin),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::quant::tests::Random;

    #[test]
    fn rotations_match_f64() {
        let mut random = Random(3);
        for isa in Isa::supported() {
            for (width, half) in [(64usize, 32usize), (64, 16), (6, 3), (2, 1), (130, 65), (5, 2)] {
                let x = random.vec(width, 3.0);
                let angle = random.vec(half, 3.0);
                let (cos, sin): (Vec<f32>, Vec<f32>) = angle.iter().map(|a| (a.cos(), a.sin())).unzip();
                for pairing in [RopePairing::HalfSplit, RopePairing::Interleaved] {
                    let mut got = x.clone();
                    rope(isa, pairing, &mut got, &cos, &sin);
                    let mut want: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
                    for i in 0..half {
                        let (a, b) = if pairing == RopePairing::HalfSplit { (i, i + half) } else { (2 * i, 2 * i + 1) };
                        let (c, s) = (f64::from(cos[i]), f64::from(sin[i]));
                        (want[a], want[b]) = (want[a] * c - want[b] * s, want[b] * c + want[a] * s);
                    }
                    for (got, want) in got.iter().zip(&want) {
                        assert!((f64::from(*got) - want).abs() < 1e-6, "{isa:?} {pairing:?} {got} {want}");
                    }
                }
            }
        }
    }
}
