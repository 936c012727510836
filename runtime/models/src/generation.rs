//! Generating token after token.

use crate::decoder::Decoder;
use tallow::{
    Error, Result, Tensor,
    generation::{LogitsProcessor, SamplingConfig},
};

/// How to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerationOptions {
    /// Sampling.
    pub sampling: SamplingConfig,
    /// Most tokens to generate; `None`: until the model ends or the context is full.
    pub max_tokens: Option<usize>,
    /// Positions computed at once while reading the prompt: bounds memory.
    pub prompt_chunk: usize,
}

impl Default for GenerationOptions {
    fn default() -> Self {
        Self { sampling: SamplingConfig::default(), max_tokens: None, prompt_chunk: 512 }
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

/// A generation under way.
pub struct Generation<'m> {
    model: &'m mut Decoder,
    sampler: LogitsProcessor,
    options: GenerationOptions,
    ends: Vec<u32>,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    /// How many of `tokens` the model has seen.
    seen: usize,
    /// What the model said after the last of them, until it is asked for more.
    last: Option<Tensor>,
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
        let stats = Stats { prompt: prompt.len(), generated: 0 };
        Ok(Self {
            model,
            sampler,
            ends: ends.to_vec(),
            tokens: prompt.to_vec(),
            seen: cached,
            last: None,
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
        let mut logits = self.logits().await?;
        let id = self.sampler.sample_with_history(&mut logits, &self.tokens)?;
        if self.ends.contains(&id) {
            self.finish = Some(Finish::End);
            return Ok(None);
        }
        self.tokens.push(id);
        self.stats.generated += 1;
        Ok(Some(id))
    }

    /// The logits after all tokens so far. Without a new token in between, they are the same again.
    pub async fn logits(&mut self) -> Result<Vec<f32>> {
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
        let last = self.last.as_ref().ok_or_else(|| Error::msg("this generation has no logits: begin it anew"))?;
        last.flatten_all()?.to_vec_async().await
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

    /// The model.
    pub fn model(&self) -> &Decoder {
        self.model
    }
}
