//! Philox 4x32-10, the counter-based random generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
//! SC 2011: four words are a keyed permutation of a counter, so that any element of the stream costs the same.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// Weyl increments of the key: the golden ratio and the square root of 3, less 1, in 32 bits.
const INCREMENTS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// A stream of random numbers, the same for a seed on every platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
    counter: u64,
    block: [u32; 4],
    used: usize,
}

impl Philox {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], counter: 0, block: [0; 4], used: 4 }
    }

    /// The permutation: four random words for a counter and a key.
    pub fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
        let [mut c0, mut c1, mut c2, mut c3] = counter;
        let [mut k0, mut k1] = key;
        for _ in 0..ROUNDS {
            let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c0);
            let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c2);
            (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
            k0 = k0.wrapping_add(INCREMENTS[0]);
            k1 = k1.wrapping_add(INCREMENTS[1]);
        }
        [c0, c1, c2, c3]
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used >= self.block.len() {
            self.block = Self::block([self.counter as u32, (self.counter >> 32) as u32, 0, 0], self.key);
            self.counter = self.counter.wrapping_add(1);
            self.used = 0;
        }
        let word = self.block[self.used & 3];
        self.used += 1;
        word
    }

    /// The next number of [0, 1), with 53 random bits.
    pub fn next_f64(&mut self) -> f64 {
        let (low, high) = (u64::from(self.next_u32()), u64::from(self.next_u32()));
        ((high << 32 | low) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::Philox;

    /// The known-answer vectors `philox4x32 10` of the authors' Random123 library (kat_vectors).
    #[test]
    fn known_answers() {
        let pi = ([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        for ((counter, key), expected) in [
            (([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            (([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ] {
            assert_eq!(Philox::block(counter, key), expected);
        }
    }

    #[test]
    fn the_stream_is_the_blocks_in_order_and_the_floats_are_uniform() {
        let mut stream = Philox::new(0x0123_4567_89AB_CDEF);
        let words: Vec<u32> = (0..12).map(|_| stream.next_u32()).collect();
        for (n, block) in (0u32..).zip(words.chunks(4)) {
            assert_eq!(block, Philox::block([n, 0, 0, 0], [0x89AB_CDEF, 0x0123_4567]));
        }
        let n = 100_000;
        let mut bins = [0u32; 16];
        for _ in 0..n {
            let x = stream.next_f64();
            assert!((0.0..1.0).contains(&x));
            bins[(x * 16.0) as usize] += 1;
        }
        let expected = f64::from(n) / 16.0;
        let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
        assert!(chi2 < 37.7, "chi-squared with 15 degrees of freedom, 0.1 % level: {chi2}");
    }
}
