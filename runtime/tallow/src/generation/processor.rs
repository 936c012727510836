//! [`LogitsProcessor`]: from the logits of one position to one token. Names and constructors are candle's; min-p and the
//! repeat penalty come on top, in [`SamplingConfig`].

use tallow_graph::{Error, Result};

use super::filter::{Candidate, exp, min_p, pick, top_k, top_p};
use super::philox::Philox;

/// A temperature under this is taken as 0: the most likely token is chosen.
const GREEDY_BELOW: f64 = 1e-7;

/// How to choose a token, in candle's words.
#[derive(Clone, Debug, PartialEq)]
pub enum Sampling {
    /// The most likely token; of equals the one with the lowest id.
    ArgMax,
    /// Any token, by its probability.
    All {
        /// Divides the logits: above 1 flattens, below 1 sharpens.
        temperature: f64,
    },
    /// Among the `k` most likely.
    TopK {
        /// How many; 0 means all.
        k: usize,
        /// As for `All`.
        temperature: f64,
    },
    /// Among the smallest set of likely tokens whose probabilities sum to `p`.
    TopP {
        /// A share of 0 to 1; 1 means all.
        p: f64,
        /// As for `All`.
        temperature: f64,
    },
    /// `TopK`, then `TopP` of what is left, its probabilities scaled to sum to 1 again.
    TopKThenTopP {
        /// As for `TopK`.
        k: usize,
        /// As for `TopP`.
        p: f64,
        /// As for `All`.
        temperature: f64,
    },
}

/// Every knob of sampling. The order is: repeat penalty, temperature, top-k, top-p, min-p; each filter sees the
/// probabilities of what the one before left, scaled to sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingConfig {
    /// Divides the logits; 0 chooses the most likely token, whatever the filters say. Default 0.8.
    pub temperature: f64,
    /// Keep the so many most likely tokens; 0 keeps all. Default 40.
    pub top_k: usize,
    /// Keep the most likely tokens that together have this probability; 1 keeps all. Default 0.95.
    pub top_p: f64,
    /// Keep tokens that are at least so likely as this share of the most likely one; 0 keeps all. Default 0.05.
    pub min_p: f64,
    /// Makes tokens that occurred lately less likely; 1 leaves them. Default 1.
    pub repeat_penalty: f32,
    /// How many of the last tokens the penalty looks at; 0 is none. Default 64.
    pub repeat_last_n: usize,
    /// Seed of the random choice. Default 299792458.
    pub seed: u64,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            seed: 299_792_458,
        }
    }
}

impl SamplingConfig {
    /// Always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks every knob.
    ///
    /// # Errors
    /// A temperature that is negative or no finite number; a share outside 0 to 1; a penalty that is not above 0.
    pub fn validate(&self) -> Result<()> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(bad(format!(
                "temperature is {}; it must be 0 (greedy) or a positive number",
                self.temperature
            )));
        }
        for (name, share) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(bad(format!("{name} is {share}; it must lie between 0 and 1")));
            }
        }
        check_penalty(self.repeat_penalty)
    }
}

impl From<Sampling> for SamplingConfig {
    /// The same choice, with no min-p and no penalty.
    fn from(sampling: Sampling) -> Self {
        let (temperature, top_k, top_p) = match sampling {
            Sampling::ArgMax => (0.0, 0, 1.0),
            Sampling::All { temperature } => (temperature, 0, 1.0),
            Sampling::TopK { k, temperature } => (temperature, k, 1.0),
            Sampling::TopP { p, temperature } => (temperature, 0, p),
            Sampling::TopKThenTopP { k, p, temperature } => (temperature, k, p),
        };
        Self { temperature, top_k, top_p, min_p: 0.0, repeat_penalty: 1.0, ..Self::default() }
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::op("sample", message)
}

fn check_penalty(penalty: f32) -> Result<()> {
    if penalty > 0.0 && penalty.is_finite() {
        return Ok(());
    }
    Err(bad(format!("the repeat penalty is {penalty}; it must be a positive number (1 is none)")))
}

/// Chooses tokens. The same seed, settings and logits give the same tokens on every platform.
///
/// ```
/// use tallow::generation::{LogitsProcessor, Sampling};
///
/// # fn main() -> tallow_graph::Result<()> {
/// let mut logits = [0.5, 2.0, -1.0];
/// assert_eq!(LogitsProcessor::new(42, None, None).sample_slice(&mut logits)?, 1);
/// let mut top_2 = LogitsProcessor::from_sampling(42, Sampling::TopK { k: 2, temperature: 1.0 });
/// assert!(top_2.sample_slice(&mut logits)? < 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LogitsProcessor {
    config: SamplingConfig,
    random: Philox,
}

impl LogitsProcessor {
    /// candle's short form: without a temperature (or with one under 1e-7) greedy, else `All` or `TopP`.
    ///
    /// Settings out of range are reported by the first sampling, as for [`from_sampling`](Self::from_sampling).
    pub fn new(seed: u64, temperature: Option<f64>, top_p: Option<f64>) -> Self {
        let sampling = match (temperature, top_p) {
            (None, _) => Sampling::ArgMax,
            (Some(temperature), None) => Sampling::All { temperature },
            (Some(temperature), Some(p)) => Sampling::TopP { p, temperature },
        };
        Self::from_sampling(seed, sampling)
    }

    /// The choice that `sampling` describes.
    pub fn from_sampling(seed: u64, sampling: Sampling) -> Self {
        Self { config: SamplingConfig { seed, ..sampling.into() }, random: Philox::new(seed) }
    }

    /// All knobs.
    ///
    /// # Errors
    /// Those of [`SamplingConfig::validate`].
    pub fn from_config(config: SamplingConfig) -> Result<Self> {
        config.validate()?;
        Ok(Self { random: Philox::new(config.seed), config })
    }

    /// The settings.
    pub fn config(&self) -> &SamplingConfig {
        &self.config
    }

    /// Whether the choice needs no random numbers, so that a device may take the argmax itself.
    pub fn is_greedy(&self) -> bool {
        self.config.temperature < GREEDY_BELOW
    }

    /// The next random share, of [0, 1).
    pub(super) fn draw(&mut self) -> f64 {
        self.random.next_f64()
    }

    /// Chooses among `logits`, one a token. A logit of minus infinity rules its token out.
    ///
    /// # Errors
    /// No logits, one that is NaN or plus infinity, none above minus infinity; settings out of range.
    pub fn sample_slice(&mut self, logits: &mut [f32]) -> Result<u32> {
        if self.is_greedy() {
            self.config.validate()?;
            return best_of(logits).map(|best| best.0);
        }
        self.sample_slice_f(logits, |_| {})
    }

    /// Like [`sample_slice`](Self::sample_slice), after `f` changed the probabilities. They are those at the temperature,
    /// before any filter; where the choice is greedy, the plain ones.
    ///
    /// # Errors
    /// Those of `sample_slice`; a probability that `f` made negative or no number.
    pub fn sample_slice_f(&mut self, logits: &mut [f32], f: impl FnOnce(&mut [f64])) -> Result<u32> {
        self.config.validate()?;
        let best = best_of(logits)?;
        let temperature = if self.is_greedy() { 1.0 } else { self.config.temperature };
        let mut probabilities: Vec<f64> =
            logits.iter().map(|&logit| exp((f64::from(logit) - f64::from(best.1)) / temperature)).collect();
        let total: f64 = probabilities.iter().sum();
        probabilities.iter_mut().for_each(|probability| *probability /= total);
        f(&mut probabilities);
        if let Some(id) = probabilities.iter().position(|probability| !(*probability >= 0.0 && probability.is_finite()))
        {
            return Err(bad(format!("the probability of token {id} is {}", probabilities[id])));
        }
        let mut candidates: Vec<Candidate> =
            (0u32..).zip(&probabilities).map(|(id, &weight)| Candidate { id, weight }).collect();
        if self.is_greedy() {
            let best = candidates.iter().max().map(|candidate| candidate.id);
            return best.ok_or_else(|| bad("there are no logits"));
        }
        candidates.retain(|candidate| candidate.weight > 0.0);
        top_k(&mut candidates, self.config.top_k);
        top_p(&mut candidates, self.config.top_p);
        min_p(&mut candidates, self.config.min_p);
        pick(&candidates, self.draw()).ok_or_else(|| bad("every token has probability 0"))
    }

    /// Applies the repeat penalty for the tokens so far (prompt and answer; only the last `repeat_last_n` count), then
    /// chooses. `logits` keeps the penalised values.
    ///
    /// # Errors
    /// Those of [`sample_slice`](Self::sample_slice) and of [`apply_repeat_penalty`].
    pub fn sample_with_history(&mut self, logits: &mut [f32], history: &[u32]) -> Result<u32> {
        let from = history.len().saturating_sub(self.config.repeat_last_n);
        apply_repeat_penalty(logits, self.config.repeat_penalty, history.get(from..).unwrap_or_default())?;
        self.sample_slice(logits)
    }
}

/// The best logit, after a check of all of them.
fn best_of(logits: &[f32]) -> Result<(u32, f32)> {
    let mut best: Option<(u32, f32)> = None;
    for (id, &logit) in (0u32..).zip(logits) {
        if logit.is_nan() || logit == f32::INFINITY {
            return Err(bad(format!("logit {id} is {logit}: the model's computation went wrong before sampling")));
        }
        if best.is_none_or(|(_, value)| logit > value) {
            best = Some((id, logit));
        }
    }
    match best {
        None => Err(bad("there are no logits")),
        Some((_, f32::NEG_INFINITY)) => Err(bad("every logit is minus infinity, so no token can be chosen")),
        Some(best) => Ok(best),
    }
}

/// Makes the tokens in `context` less likely: each one's logit, once, is divided by `penalty` where it is above 0 and
/// multiplied by it elsewhere. Keskar et al., "CTRL", 2019, section 4.1.
///
/// # Errors
/// A penalty that is not above 0, or a token that has no logit.
pub fn apply_repeat_penalty(logits: &mut [f32], penalty: f32, context: &[u32]) -> Result<()> {
    check_penalty(penalty)?;
    if penalty == 1.0 {
        return Ok(());
    }
    let mut seen = context.to_vec();
    seen.sort_unstable();
    seen.dedup();
    let n = logits.len();
    for id in seen {
        let logit = logits
            .get_mut(id as usize)
            .ok_or_else(|| bad(format!("token {id} of the context has none of the {n} logits")))?;
        *logit = if *logit >= 0.0 { *logit / penalty } else { *logit * penalty };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{LogitsProcessor, Sampling, SamplingConfig, apply_repeat_penalty};

    const LOGITS: [f32; 6] = [1.0, 3.0, f32::NEG_INFINITY, 2.5, -1.0, 2.0];

    /// Draws often, and holds the counts against the distribution that the settings define, by chi-squared.
    fn check(config: SamplingConfig, kept: &[usize]) {
        let temperature = config.temperature;
        let weights: Vec<f64> = kept.iter().map(|&id| (f64::from(LOGITS[id]) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        let draws = 60_000;
        let mut counts = [0u32; LOGITS.len()];
        let mut processor = LogitsProcessor::from_config(config.clone()).unwrap();
        for _ in 0..draws {
            counts[processor.sample_slice(&mut LOGITS.clone()).unwrap() as usize] += 1;
        }
        assert_eq!(kept.iter().map(|&id| counts[id]).sum::<u32>(), draws, "{config:?}: {counts:?}");
        let chi2: f64 = kept
            .iter()
            .zip(&weights)
            .map(|(&id, weight)| {
                let expected = f64::from(draws) * weight / total;
                (f64::from(counts[id]) - expected).powi(2) / expected
            })
            .sum();
        // The 0.01 % level with 4 degrees of freedom; fewer have less.
        assert!(chi2 < 23.5, "{config:?}: {counts:?}, chi-squared {chi2}");
    }

    #[test]
    fn draws_follow_the_distribution() {
        let plain = SamplingConfig { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingConfig::default() };
        check(plain.clone(), &[0, 1, 3, 4, 5]);
        check(SamplingConfig { temperature: 2.0, seed: 1, ..plain.clone() }, &[0, 1, 3, 4, 5]);
        check(SamplingConfig { temperature: 0.3, seed: 2, ..plain.clone() }, &[0, 1, 3, 4, 5]);
        check(SamplingConfig { top_k: 2, ..plain.clone() }, &[1, 3]);
        check(SamplingConfig { top_k: 3, ..plain.clone() }, &[1, 3, 5]);
        // Probabilities: 3 has 0.466, 2.5 0.283, 2 0.172, 1 0.063, -1 0.009.
        check(SamplingConfig { top_p: 0.47, ..plain.clone() }, &[1, 3]);
        check(SamplingConfig { top_p: 0.9, ..plain.clone() }, &[1, 3, 5]);
        check(SamplingConfig { top_p: 0.95, ..plain.clone() }, &[0, 1, 3, 5]);
        // After top-k the shares are those of what is left: 3 has 0.622 of two.
        check(SamplingConfig { top_k: 2, top_p: 0.6, ..plain.clone() }, &[1]);
        check(SamplingConfig { min_p: 0.5, ..plain.clone() }, &[1, 3]);
        check(SamplingConfig { min_p: 0.36, ..plain }, &[1, 3, 5]);
    }

    #[test]
    fn candles_forms_are_the_same_settings() {
        let draw = |mut processor: LogitsProcessor| -> Vec<u32> {
            (0..50).map(|_| processor.sample_slice(&mut LOGITS.clone()).unwrap()).collect()
        };
        let config = |top_k, top_p| {
            let config =
                SamplingConfig { temperature: 0.9, top_k, top_p, min_p: 0.0, seed: 5, ..SamplingConfig::default() };
            draw(LogitsProcessor::from_config(config).unwrap())
        };
        let form = |sampling| draw(LogitsProcessor::from_sampling(5, sampling));
        let temperature = 0.9;
        assert_eq!(form(Sampling::ArgMax), [1; 50]);
        assert_eq!(form(Sampling::All { temperature }), config(0, 1.0));
        assert_eq!(form(Sampling::TopK { k: 3, temperature }), config(3, 1.0));
        assert_eq!(form(Sampling::TopP { p: 0.9, temperature }), config(0, 0.9));
        assert_eq!(form(Sampling::TopKThenTopP { k: 4, p: 0.8, temperature }), config(4, 0.8));
        assert_eq!(draw(LogitsProcessor::new(5, Some(0.9), Some(0.9))), config(0, 0.9));
        assert_eq!(draw(LogitsProcessor::new(5, Some(0.9), None)), config(0, 1.0));
        assert_eq!(draw(LogitsProcessor::new(5, None, Some(0.9))), [1; 50]);
        assert_eq!(draw(LogitsProcessor::new(5, Some(0.0), None)), [1; 50]);
        assert_ne!(config(0, 1.0), draw(LogitsProcessor::new(6, Some(0.9), None)), "the seed matters");
    }

    /// The numbers of one seed, computed apart in Python from the definitions: every platform must draw these.
    #[test]
    fn a_seed_draws_the_same_everywhere() {
        let mut processor = LogitsProcessor::new(299_792_458, Some(1.0), None);
        let logits: Vec<f32> = (0..1000u32).map(|i| (i * 7919 % 1000) as f32 / 200.0).collect();
        let drawn: Vec<u32> = (0..8).map(|_| processor.sample_slice(&mut logits.clone()).unwrap()).collect();
        assert_eq!(drawn, [856, 976, 499, 102, 229, 963, 953, 609]);
    }

    #[test]
    fn the_penalty_counts_each_token_once() {
        let mut logits = [1.0, -1.0, 2.0, 0.0];
        apply_repeat_penalty(&mut logits, 2.0, &[0, 1, 0, 0, 3]).unwrap();
        assert_eq!(logits, [0.5, -2.0, 2.0, 0.0]);
        assert!(apply_repeat_penalty(&mut logits, 2.0, &[4]).unwrap_err().to_string().contains("token 4"));
        for penalty in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(apply_repeat_penalty(&mut logits, penalty, &[]).is_err());
        }
        let config = SamplingConfig { repeat_penalty: 10.0, repeat_last_n: 2, ..SamplingConfig::greedy() };
        let mut processor = LogitsProcessor::from_config(config).unwrap();
        assert_eq!(processor.sample_with_history(&mut [1.0, 3.0, 2.0], &[1, 0, 0]).unwrap(), 1, "1 is too long ago");
        assert_eq!(processor.sample_with_history(&mut [1.0, 3.0, 2.0], &[0, 1, 0]).unwrap(), 2);
    }

    #[test]
    fn a_function_can_change_the_probabilities() {
        let mut processor = LogitsProcessor::new(1, None, None);
        let ban = |probabilities: &mut [f64]| {
            assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            probabilities[1] = 0.0;
        };
        assert_eq!(processor.sample_slice_f(&mut LOGITS.clone(), ban).unwrap(), 3);
        let mut processor = LogitsProcessor::new(1, Some(1.0), None);
        assert!((0..100).all(|_| processor.sample_slice_f(&mut LOGITS.clone(), ban).unwrap() != 1));
        assert!(processor.sample_slice_f(&mut LOGITS.clone(), |p| p.fill(0.0)).is_err());
        assert!(processor.sample_slice_f(&mut LOGITS.clone(), |p| p[0] = f64::NAN).is_err());
    }

    #[test]
    fn bad_logits_and_settings_are_errors() {
        for sampling in
            [Sampling::ArgMax, Sampling::All { temperature: 1.0 }, Sampling::TopK { k: 0, temperature: 1.0 }]
        {
            let mut processor = LogitsProcessor::from_sampling(1, sampling);
            let mut fails = |logits: &mut [f32], part: &str| {
                let error = processor.sample_slice(logits).unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
            };
            fails(&mut [], "no logits");
            fails(&mut [0.0, f32::NAN], "logit 1 is NaN");
            fails(&mut [f32::INFINITY, 0.0], "logit 0 is inf");
            fails(&mut [f32::NEG_INFINITY; 3], "minus infinity");
            assert_eq!(processor.sample_slice(&mut [f32::NEG_INFINITY, -f32::MAX]).unwrap(), 1);
        }
        for temperature in [-1.0, f64::NAN, f64::INFINITY] {
            let mut processor = LogitsProcessor::new(1, Some(temperature), None);
            assert!(processor.sample_slice(&mut [1.0]).unwrap_err().to_string().contains("temperature"));
        }
        for p in [-0.1, 1.1, f64::NAN] {
            let mut processor = LogitsProcessor::new(1, Some(1.0), Some(p));
            assert!(processor.sample_slice(&mut [1.0]).unwrap_err().to_string().contains("top_p"));
            let config = SamplingConfig { min_p: p, ..SamplingConfig::default() };
            assert!(LogitsProcessor::from_config(config).unwrap_err().to_string().contains("min_p"));
        }
        // An extreme but positive temperature is fine, and so is a nucleus of nothing: the best one stays.
        assert_eq!(LogitsProcessor::new(1, Some(1e-6), None).sample_slice(&mut LOGITS.clone()).unwrap(), 1);
        assert_eq!(LogitsProcessor::new(1, Some(1.0), Some(0.0)).sample_slice(&mut LOGITS.clone()).unwrap(), 1);
    }
}
