//! The values of inputs: the same on every machine and for every participant, by case and place.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tallow_bench_protocol::{Case, Fill, Input, InputFile};

/// Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014: 64 good bits from a counter.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Writes the inputs of a case into a folder.
pub fn write_inputs(case: &Case, folder: &Path) -> io::Result<Vec<InputFile>> {
    let write = |(place, input): (usize, &Input)| {
        let path: PathBuf = folder.join(format!("{place}-{}", input.name));
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        write_values(input, seed(case, place), &mut file)?;
        file.flush()?;
        Ok(InputFile { dims: input.dims.clone(), fill: input.fill.clone(), path })
    };
    case.inputs.iter().enumerate().map(write).collect()
}

/// FNV-1a of the case's name and the input's place.
fn seed(case: &Case, place: usize) -> u64 {
    let text = format!("{}/{}/{place}", case.group, case.name);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn write_values(input: &Input, seed: u64, out: &mut impl Write) -> io::Result<()> {
    let mut random = SplitMix(seed);
    let elements = input.elements();
    match &input.fill {
        Fill::Listed { ids } if ids.len() == elements => ids.iter().try_for_each(|id| out.write_all(&id.to_le_bytes())),
        Fill::Listed { ids } => {
            let message = format!("{} ids are listed for {elements} elements", ids.len());
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
        Fill::Ones => (0..elements).try_for_each(|_| out.write_all(&1f32.to_le_bytes())),
        Fill::Uniform { scale } => (0..elements).try_for_each(|_| {
            // 24 bits, so that each value is exact in f32.
            let unit = (random.next() >> 40) as f64 / (1 << 23) as f64 - 1.;
            out.write_all(&((unit * scale) as f32).to_le_bytes())
        }),
        Fill::Ids { below } => (0..elements).try_for_each(|_| {
            let id = random.below(u64::from(*below)) as u32;
            out.write_all(&id.to_le_bytes())
        }),
        Fill::Shuffled => {
            let mut values: Vec<u32> = (0..elements as u32).collect();
            for last in (1..elements).rev() {
                values.swap(last, random.below(last as u64 + 1) as usize);
            }
            values.iter().try_for_each(|&value| out.write_all(&(value as f32 / elements as f32).to_le_bytes()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(fill: Fill, elements: usize, seed: u64) -> Vec<f32> {
        let mut bytes = Vec::new();
        let input = Input { name: "x".into(), dims: vec![elements], fill };
        write_values(&input, seed, &mut bytes).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|&word| f32::from_le_bytes(word)).collect()
    }

    #[test]
    fn uniform_values_fill_their_range_evenly() {
        let values = floats(Fill::Uniform { scale: 2. }, 40_000, 1);
        let mean = values.iter().sum::<f32>() / 40_000.;
        let square = values.iter().map(|v| v * v).sum::<f32>() / 40_000.;
        assert!(mean.abs() < 0.02 && (square - 4. / 3.).abs() < 0.02, "{mean} {square}");
        assert!(values.iter().all(|v| (-2. ..2.).contains(v)));
        assert_eq!(values, floats(Fill::Uniform { scale: 2. }, 40_000, 1));
        assert_ne!(values, floats(Fill::Uniform { scale: 2. }, 40_000, 2));
    }

    #[test]
    fn shuffled_values_are_all_there_once() {
        let values = floats(Fill::Shuffled, 1000, 3);
        let mut sorted = values.clone();
        sorted.sort_by(f32::total_cmp);
        assert_ne!(values, sorted);
        assert!(sorted.iter().enumerate().all(|(i, &v)| v == i as f32 / 1000.));
    }

    #[test]
    fn ids_are_below_their_bound() {
        let ids: Vec<u32> = floats(Fill::Ids { below: 10 }, 1000, 4).iter().map(|v| v.to_bits()).collect();
        assert!((0..10).all(|id| ids.contains(&id)) && ids.iter().all(|&id| id < 10));
    }
}
