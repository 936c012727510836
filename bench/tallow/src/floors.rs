//! What the machine can do at most: bandwidth of memory, and arithmetic that stays in registers. The shares in the tables are
//! shares of these.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use tallow_bench_protocol::{Floors, Refusal};

/// Bytes of one array for one thread: several times any cache.
const ARRAY: usize = 192 << 20;
/// Each figure is the best of so many.
const TRIES: usize = 12;
/// Turns of an arithmetic loop: some milliseconds.
const TURNS: u64 = 4_000_000;

/// Measures with `threads` threads at once.
pub fn measure(threads: usize) -> Result<Floors, Refusal> {
    let arrays = (0..threads).map(|_| (vec![1u64; ARRAY / 8], vec![2u64; ARRAY / 8])).collect();
    let mut arrays: Vec<(Vec<u64>, Vec<u64>)> = arrays;
    let bytes = (ARRAY * threads) as f64;
    let read = best(&mut arrays, |(from, _)| {
        // Four sums: the additions must not wait for one another.
        let sums = from.as_chunks::<32>().0.iter().fold([0u64; 32], |mut sums, words| {
            sums.iter_mut().zip(words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
            sums
        });
        black_box(sums);
    });
    let copy = best(&mut arrays, |(from, to)| {
        to.copy_from_slice(from);
        black_box(to);
    });
    drop(arrays);
    let mut nothing = vec![(); threads];
    let (width, fma) = arithmetic::fma();
    let flops = best(&mut nothing, |()| fma(TURNS));
    let int8 = arithmetic::dot().map(|(width, dot)| {
        let seconds = best(&mut nothing, |()| dot(TURNS));
        width * (TURNS * threads as u64) as f64 / seconds
    });
    Ok(Floors {
        read: bytes / read,
        copy: 2. * bytes / copy,
        flops: width * (TURNS * threads as u64) as f64 / flops,
        int8,
    })
}

/// The least seconds of several tries, each with one thread for each item, from the first start to the last end.
fn best<T: Send>(items: &mut [T], work: impl Fn(&mut T) + Sync) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let (work, barrier) = (&work, &Barrier::new(items.len() + 1));
        let seconds = std::thread::scope(|scope| {
            let threads: Vec<_> = items
                .iter_mut()
                .map(|item| {
                    scope.spawn(move || {
                        barrier.wait();
                        let start = Instant::now();
                        work(item);
                        (start, Instant::now())
                    })
                })
                .collect();
            barrier.wait();
            let spans: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
            let (first, last) = (spans.iter().map(|span| span.0).min(), spans.iter().map(|span| span.1).max());
            first.zip(last).map_or(f64::INFINITY, |(first, last)| (last - first).as_secs_f64())
        });
        least = least.min(seconds);
    }
    least
}

/// Loops of independent multiply-adds on registers: twelve chains hide their latency on every core with two units.
#[cfg(target_arch = "x86_64")]
mod arithmetic {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Operations of one turn, and a loop of so many turns.
    type Loop = (f64, fn(u64));

    macro_rules! chains {
        ($name:ident, $features:literal, $zero:expr, $step:expr) => {
            #[target_feature(enable = $features)]
            fn $name(turns: u64) {
                let mut chains = [$zero; 12];
                for _ in 0..turns {
                    for chain in &mut chains {
                        *chain = $step(*chain);
                    }
                }
                black_box(chains);
            }
        };
    }

    chains!(fma512, "avx512f", _mm512_set1_ps(black_box(0.5)), |c| _mm512_fmadd_ps(c, c, c));
    chains!(fma256, "avx2,fma", _mm256_set1_ps(black_box(0.5)), |c| _mm256_fmadd_ps(c, c, c));
    chains!(dot512, "avx512f,avx512vnni", _mm512_set1_epi32(black_box(1)), |c| _mm512_dpbusd_epi32(c, c, c));

    fn fma_scalar(turns: u64) {
        let mut chains = [black_box(0.5f32); 12];
        for _ in 0..turns {
            for chain in &mut chains {
                *chain = *chain * *chain + *chain;
            }
        }
        black_box(chains);
    }

    /// The widest fused multiply-add.
    pub fn fma() -> Loop {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the features were found.
            (12. * 32., |turns| unsafe { fma512(turns) })
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the features were found.
            (12. * 16., |turns| unsafe { fma256(turns) })
        } else {
            (12. * 2., fma_scalar)
        }
    }

    /// The widest 8-bit dot product: 64 products and as many additions.
    pub fn dot() -> Option<Loop> {
        let found = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
        // SAFETY: the features were found.
        found.then_some((12. * 128., |turns| unsafe { dot512(turns) }))
    }
}

/// Elsewhere the compiler's own vectors stand in for hand-written ones.
#[cfg(not(target_arch = "x86_64"))]
mod arithmetic {
    use std::hint::black_box;

    /// Operations of one turn, and a loop of so many turns.
    type Loop = (f64, fn(u64));

    /// Twelve vectors of four.
    pub fn fma() -> Loop {
        fn turns(turns: u64) {
            let mut chains = [[black_box(0.5f32); 4]; 12];
            for _ in 0..turns {
                chains.as_flattened_mut().iter_mut().for_each(|chain| *chain = chain.mul_add(*chain, *chain));
            }
            black_box(chains);
        }
        (12. * 8., turns)
    }

    /// Not measured.
    pub fn dot() -> Option<Loop> {
        None
    }
}
