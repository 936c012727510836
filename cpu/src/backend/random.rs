//! Random numbers by Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

use tallow_graph::kernel::{Distribution, RandomKernel};
use tallow_graph::{DType, Error, Result};

use super::class::Class;
use super::exec::slice_mut;
use super::step::StepRun;
use super::walk::{Words, store};

/// Elements that are worth a thread's while.
const GRAIN: usize = 8 << 10;
/// Elements made at a time: whole blocks.
const PIECE: usize = 256;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &RandomKernel) -> bool {
    kernel.dtype.is_float()
}

/// The four words of a block.
pub(crate) fn philox(key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let ([mut k0, mut k1], [mut c0, mut c1, mut c2, mut c3]) = (key, counter);
    for _ in 0..10 {
        let a = u64::from(c0) * 0xd251_1f53;
        let b = u64::from(c2) * 0xcd9e_8d57;
        (c0, c1, c2, c3) = ((b >> 32) as u32 ^ c1 ^ k0, b as u32, (a >> 32) as u32 ^ c3 ^ k1, a as u32);
        (k0, k1) = (k0.wrapping_add(0x9e37_79b9), k1.wrapping_add(0xbb67_ae85));
    }
    [c0, c1, c2, c3]
}

/// Runs a random step.
pub(crate) fn run(step: &StepRun<'_>, kernel: &RandomKernel) -> Result<()> {
    let mut words = Words(step.words);
    let n = words.size()?;
    let mut word = || -> Result<u32> {
        let word = words.one()?;
        // Unsigned or sign-extended: the low 32 bits are meant.
        u32::try_from(word)
            .or_else(|_| i32::try_from(word).map(|word| word as u32))
            .map_err(|_| Error::msg(format!("{word} is not a 32-bit word of a random key or counter")))
    };
    let (key, counter) = ([word()?, word()?], [word()?, word()?]);
    let (a, b) = (step.scalar(0)?.to_f64(), step.scalar(1)?.to_f64());
    let out = step.output_for(0, kernel.dtype, n)?;
    let size = kernel.dtype.size_in_bytes();
    let block = |block: usize| {
        let block = block as u64;
        philox(key, [block as u32, (block >> 32) as u32, counter[0], counter[1]])
    };
    step.pool.run_ranges(n.div_ceil(PIECE), GRAIN / PIECE, &|pieces| {
        for piece in pieces {
            let first = piece * PIECE;
            let count = PIECE.min(n - first);
            let to = out.at().wrapping_add(first * size);
            let mut raw = [[0u32; 4]; PIECE / 4];
            raw.iter_mut().enumerate().for_each(|(i, raw)| *raw = block(first / 4 + i));
            if kernel.dtype == DType::F64 {
                let mut values = [[0f64; 4]; PIECE / 4];
                for (values, raw) in values.iter_mut().zip(&raw) {
                    *values = match kernel.distribution {
                        Distribution::Uniform => raw.map(|w| a + (b - a) * unit(w)),
                        Distribution::Normal => normal(*raw).map(|z| a + b * z),
                    };
                }
                // SAFETY: the output has room for `n` elements, and each piece is one task's own.
                unsafe { slice_mut::<f64>(to, count) }.copy_from_slice(&values.as_flattened()[..count]);
                continue;
            }
            let (a, b) = (a as f32, b as f32);
            let mut values = [[0f32; 4]; PIECE / 4];
            for (values, raw) in values.iter_mut().zip(&raw) {
                *values = match kernel.distribution {
                    Distribution::Uniform => raw.map(|w| a + (b - a) * unit(w) as f32),
                    Distribution::Normal => normal_f32(*raw).map(|z| a + b * z),
                };
            }
            // SAFETY: as above; `values` holds at least `count` of them.
            unsafe { store(step.isa, Class::F32, kernel.dtype, values.as_ptr().cast(), to, count) };
        }
    });
    Ok(())
}

/// The upper 24 bits as a fraction.
fn unit(word: u32) -> f64 {
    f64::from(word >> 8) / 16_777_216.0
}

/// Box-Muller, two pairs.
fn normal(words: [u32; 4]) -> [f64; 4] {
    let pair = |w0: u32, w1: u32| {
        let r = (-2.0 * ((f64::from(w0 >> 8) + 1.0) / 16_777_216.0).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * unit(w1)).sin_cos();
        [r * cos, r * sin]
    };
    let ([a, b], [c, d]) = (pair(words[0], words[1]), pair(words[2], words[3]));
    [a, b, c, d]
}

/// The same in f32, as devices without f64 compute it.
fn normal_f32(words: [u32; 4]) -> [f32; 4] {
    let pair = |w0: u32, w1: u32| {
        let u0 = ((w0 >> 8) as f32 + 1.0) * (1.0 / 16_777_216.0);
        let r = (-2.0 * u0.ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * unit(w1) as f32).sin_cos();
        [r * cos, r * sin]
    };
    let ([a, b], [c, d]) = (pair(words[0], words[1]), pair(words[2], words[3]));
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        // Known answers of the Random123 distribution.
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 2], [u32::MAX; 4]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0xa409_3822, 0x299f_31d0], [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
