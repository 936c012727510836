//! Generating token after token.
//!
//! Where the device can choose tokens itself, several steps are under way at once: a step takes the token before it as a
//! tensor that the host has not seen yet, and only ids are read. What was computed beyond the end is forgotten.

use crate::decoder::Decoder;
use std::collections::VecDeque;
use tallow::{
    Error, Result, Tensor,
    generation::{LogitsProcessor, SampledToken, SamplingConfig},
};

/// Steps under way at once on a GPU: enough to hide the time from a token's choice to its reading, 5 to 15 ms in browsers.
const IN_FLIGHT: usize = 4;

/// How to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationOptions {
    /// Sampling.
    pub sampling: SamplingConfig,
    /// Most tokens to generate; `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// Positions computed at once while reading the prompt: bounds memory.
    pub prompt_chunk: usize,
    /// Most tokens that are computed at once where the device chooses them itself; those beyond the end are computed in
    /// vain. `None`: 4 on a GPU, 1 on a software one.
    pub in_flight: Option<usize>,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self { sampling: SamplingConfig::default(), max_tokens: None, prompt_chunk: 512, in_flight: None }
    }
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model chose an end token.
    End,
    /// `max_tokens` were generated.
    MaxTokens,
    /// The context is full.
    ContextFull,
}

/// What a generation has done so far. Times are the caller's: a browser's clock is not Rust's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens generated, an end token not counted.
    pub generated: usize,
}

/// A token on its way from the device.
struct Flight {
    /// What it is chosen from.
    logits: Tensor,
    token: SampledToken,
}

/// A generation under way.
pub struct Generation<'m> {
    model: &'m mut Decoder,
    sampler: LogitsProcessor,
    options: GenerationOptions,
    ends: Vec<u32>,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    /// How many of `tokens` the model has seen; it has seen those in flight too, but for the last.
    seen: usize,
    /// What the model said after the last of them, until it is asked for more.
    last: Option<Tensor>,
    /// Tokens that follow `tokens`, chosen by the device, in order. Empty where it cannot choose.
    flights: VecDeque<Flight>,
    /// How many there may be; 0 where the device cannot choose.
    most: usize,
    stats: Stats,
    finish: Option<Finish>,
}

impl<'m> Generation<'m> {
    /// Starts after `prompt`. What the model's cache already holds of it (`cached` tokens from its beginning) is not computed
    /// again; pass 0 for a fresh start.
    ///
    /// # Errors
    /// An empty prompt, one longer than the context, an id outside the vocabulary, or sampling options that mean nothing.
    pub fn new(
        model: &'m mut Decoder,
        prompt: &[u32],
        cached: usize,
        ends: &[u32],
        options: GenerationOptions,
    ) -> Result<Self> {
        let vocab = model.config().vocab_size;
        if prompt.is_empty() {
            return Err(Error::msg("the prompt is empty: give at least one word"));
        }
        if prompt.len() >= model.context() {
            let message =
                format!("the prompt has {} tokens, the context holds {}: shorten it", prompt.len(), model.context());
            return Err(Error::msg(message));
        }
        if let Some(id) = prompt.iter().find(|&&id| id as usize >= vocab) {
            return Err(Error::msg(format!("token {id} is outside the vocabulary of {vocab}")));
        }
        if cached == 0 {
            model.clear();
        }
        if cached != model.position() || cached >= prompt.len() {
            return Err(Error::msg("the cache does not hold the beginning of the prompt"));
        }
        let sampler = LogitsProcessor::from_config(options.sampling.clone())?;
        let most = match options.in_flight {
            _ if !sampler.runs_on(model.device()) => 0,
            Some(most) => most.max(1),
            None if model.device().info().software => 1,
            None => IN_FLIGHT,
        };
        let stats = Stats { prompt: prompt.len(), generated: 0 };
        Ok(Self {
            model,
            sampler,
            ends: ends.to_vec(),
            tokens: prompt.to_vec(),
            seen: cached,
            last: None,
            flights: VecDeque::new(),
            most,
            stats,
            finish: None,
            options,
        })
    }

    /// The next token, or `None` at the end.
    pub async fn next(&mut self) -> Result<Option<u32>> {
        if self.finish.is_some() {
            return Ok(None);
        }
        if self.options.max_tokens.is_some_and(|max| self.stats.generated >= max) {
            self.finish = Some(Finish::MaxTokens);
            return Ok(None);
        }
        if self.tokens.len() > self.model.context() {
            self.finish = Some(Finish::ContextFull);
            return Ok(None);
        }
        let id = self.choose().await?;
        if self.ends.contains(&id) {
            self.land();
            self.finish = Some(Finish::End);
            return Ok(None);
        }
        self.tokens.push(id);
        self.stats.generated += 1;
        if !self.flights.is_empty() {
            // The step after it is under way.
            self.model.settle(1);
            self.seen += 1;
        }
        Ok(Some(id))
    }

    /// The token after all so far.
    async fn choose(&mut self) -> Result<u32> {
        // No more than may be asked for, so that nothing is computed in vain but for an end token.
        let left = self.options.max_tokens.map_or(usize::MAX, |max| max.saturating_sub(self.stats.generated));
        let room = (self.model.context() + 1).saturating_sub(self.tokens.len());
        // One more with each token: the first one need not wait for the steps after it.
        let begun = self.stats.generated + 1;
        while self.flights.len() < self.most.min(left).min(room).min(begun) {
            self.launch().await?;
        }
        let id = match self.flights.front_mut() {
            Some(flight) => flight.token.id().await,
            None => Ok(None),
        };
        let id = id.inspect_err(|_| self.land())?;
        if let Some(flight) = self.flights.pop_front() {
            // As it was before the token: `logits` can be asked, and where the device could not choose, the host says why.
            if self.flights.is_empty() {
                self.last = Some(flight.logits);
            } else if id.is_none_or(|id| self.ends.contains(&id)) {
                self.land();
                self.last = Some(flight.logits);
            }
            if let Some(id) = id {
                return Ok(id);
            }
        }
        let mut logits = self.logits().await?;
        self.sampler.sample_with_history(&mut logits, &self.tokens)
    }

    /// Starts one step more, and the choice after it.
    async fn launch(&mut self) -> Result<()> {
        let logits = match self.flights.back() {
            Some(before) => {
                let ids = before.token.tensor().reshape((1, 1))?;
                self.model.forward_ahead(&ids)?
            }
            None => {
                self.advance().await?;
                self.last.clone().ok_or_else(no_logits)?
            }
        };
        let token = self.sampler.sample_on_device(&logits).await?;
        self.last = None;
        self.flights.push_back(Flight { logits, token });
        Ok(())
    }

    /// Forgets what is in flight.
    fn land(&mut self) {
        self.flights.clear();
        self.model.truncate(self.seen);
    }

    /// Has the model see all tokens so far; `last` is then what it says.
    async fn advance(&mut self) -> Result<()> {
        let chunk = self.options.prompt_chunk.max(1);
        while self.seen < self.tokens.len() {
            // Dropped before the step, which can then have the memory.
            self.last = None;
            let end = self.tokens.len().min(self.seen.saturating_add(chunk));
            let ids = Tensor::from_slice(&self.tokens[self.seen..end], (1, end - self.seen), self.model.device())?;
            let logits = self.model.forward_last(&ids)?;
            if end < self.tokens.len() {
                logits.realize_async().await?;
            }
            self.seen = end;
            self.last = Some(logits);
        }
        Ok(())
    }

    /// The logits after all tokens so far. Without a new token in between, they are the same again.
    pub async fn logits(&mut self) -> Result<Vec<f32>> {
        let logits = match self.flights.front() {
            Some(next) => next.logits.clone(),
            None => {
                self.advance().await?;
                self.last.clone().ok_or_else(no_logits)?
            }
        };
        logits.flatten_all()?.to_vec_async().await
    }

    /// Prompt and generated tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Counts so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Why it ended, once it has.
    pub fn finish(&self) -> Option<Finish> {
        self.finish
    }

    /// The model. Its position does not count tokens in flight: another generation can go on from there.
    pub fn model(&self) -> &Decoder {
        self.model
    }
}

fn no_logits() -> Error {
    Error::msg("this generation has no logits: begin it anew")
}
