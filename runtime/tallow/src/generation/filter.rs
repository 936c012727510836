//! The filters of sampling, on candidates that are kept in the order of their ids, so that sums are the same everywhere.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A token that may be chosen, with its weight: its probability times a factor that all candidates share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) id: u32,
    pub(crate) weight: f64,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    /// The better candidate is greater: more weight, and of equals the lower id.
    fn cmp(&self, other: &Self) -> Ordering {
        self.weight.total_cmp(&other.weight).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// 1 / n! for n from 0.
const INVERSE_FACTORIALS: [f64; 14] = {
    let mut list = [1.0; 14];
    let mut factorial = 1.0;
    let mut n = 1;
    while n < list.len() {
        factorial *= n as f64;
        list[n] = 1.0 / factorial;
        n += 1;
    }
    list
};

/// e^x for x <= 0, made of additions and multiplications alone: a platform's own `exp` differs from others in the last
/// bit, and the chosen token may hang on it. Relative error under 1e-15 (tested); 0 below -708.
pub(crate) fn exp(x: f64) -> f64 {
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    if x < -708.0 {
        return 0.0;
    }
    // x = k ln 2 + r with |r| <= ln 2 / 2; then e^r by its series, whose 14th term is under 1e-17.
    let k = (x * std::f64::consts::LOG2_E - 0.5).ceil();
    let r = (x - k * LN2_HIGH) - k * LN2_LOW;
    let sum = INVERSE_FACTORIALS.iter().rev().fold(0.0, |sum, coefficient| sum * r + coefficient);
    sum * f64::from_bits((((k as i64) + 1023) as u64) << 52)
}

/// Keeps the `k` best. O(n): a partial selection finds the last that stays.
pub(crate) fn top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k == 0 || k >= candidates.len() {
        return;
    }
    let mut order = candidates.clone();
    let (_, &mut last, _) = order.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
    candidates.retain(|candidate| *candidate >= last);
}

/// Keeps the smallest set of best candidates whose weights sum to at least `p` of the whole; at least one.
///
/// Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020. O(n) and O(log n) for each that stays.
pub(crate) fn top_p(candidates: &mut Vec<Candidate>, p: f64) {
    if p >= 1.0 || candidates.len() < 2 {
        return;
    }
    let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    // Candidates under this share can't be needed: all of them together have less than 1 - p.
    let least = total * (1.0 - p) / candidates.len() as f64 * (1.0 - 1e-9);
    let likely: Vec<Candidate> = candidates.iter().copied().filter(|candidate| candidate.weight >= least).collect();
    let mut heap = BinaryHeap::from(likely);
    let mut sum = 0.0;
    let mut last = None;
    while let Some(best) = heap.pop() {
        sum += best.weight;
        last = Some(best);
        if sum >= p * total {
            break;
        }
    }
    if let Some(last) = last {
        candidates.retain(|candidate| *candidate >= last);
    }
}

/// Keeps candidates whose weight is at least `p` of the best one's.
///
/// Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024.
pub(crate) fn min_p(candidates: &mut Vec<Candidate>, p: f64) {
    let best = candidates.iter().map(|candidate| candidate.weight).fold(0.0, f64::max);
    candidates.retain(|candidate| candidate.weight >= p * best);
}

/// The candidate at the share `u`, of [0, 1), of the summed weights.
pub(crate) fn pick(candidates: &[Candidate], u: f64) -> Option<u32> {
    let total: f64 = candidates.iter().map(|candidate| candidate.weight).sum();
    let mut left = u * total;
    let mut chosen = None;
    for candidate in candidates.iter().filter(|candidate| candidate.weight > 0.0) {
        chosen = Some(candidate.id);
        left -= candidate.weight;
        if left < 0.0 {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::{Candidate, exp, min_p, pick, top_k, top_p};

    fn random(n: usize, seed: u32, levels: f64) -> Vec<Candidate> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1u32 << 24)
        };
        (0..n as u32).map(|id| Candidate { id, weight: (next() * levels).floor() / levels + 1e-3 }).collect()
    }

    fn ids(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|candidate| candidate.id).collect()
    }

    #[test]
    fn exp_is_exact_enough() {
        let mut worst: f64 = 0.0;
        for i in 0..=70_000 {
            let x = -f64::from(i) * 0.010_1;
            let expected = x.exp();
            worst = worst.max(((exp(x) - expected) / expected).abs());
        }
        assert!(worst < 1e-15, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e9), 0.0);
    }

    #[test]
    fn filters_equal_their_definition_by_sorting() {
        for (seed, n, levels) in [(1, 1, 10.0), (2, 50, 5.0), (3, 1000, 1e6), (4, 1000, 8.0)] {
            let all = random(n, seed, levels);
            let mut sorted = all.clone();
            sorted.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id)));
            let in_order = |mut part: Vec<u32>| {
                part.sort_unstable();
                part
            };
            for k in [1, 2, 7, 40, 999, 5000] {
                let mut kept = all.clone();
                top_k(&mut kept, k);
                assert_eq!(ids(&kept), in_order(ids(&sorted[..k.min(n)])), "k = {k}");
            }
            let total: f64 = all.iter().map(|c| c.weight).sum();
            for p in [0.0, 0.1, 0.5, 0.9, 0.999] {
                let mut sum = 0.0;
                let mut count = 0;
                while count == 0 || sum < p * total {
                    sum += sorted[count].weight;
                    count += 1;
                }
                let mut kept = all.clone();
                top_p(&mut kept, p);
                assert_eq!(ids(&kept), in_order(ids(&sorted[..count])), "p = {p}");
                let mut kept = all.clone();
                min_p(&mut kept, p);
                let expected =
                    all.iter().filter(|c| c.weight >= p * sorted[0].weight).map(|c| c.id).collect::<Vec<_>>();
                assert_eq!(ids(&kept), expected, "min_p = {p}");
            }
        }
    }

    #[test]
    fn pick_walks_the_weights() {
        let candidates = [(3, 1.0), (5, 0.0), (9, 3.0)].map(|(id, weight)| Candidate { id, weight });
        let at = |u| pick(&candidates, u);
        assert_eq!([at(0.0), at(0.249), at(0.25), at(0.999_999)], [Some(3), Some(3), Some(9), Some(9)]);
        assert_eq!(pick(&[], 0.5), None);
    }
}
