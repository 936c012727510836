//! Options that several commands take.

use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use tallow::{Activations, Device, generation::SamplingConfig};
use tallow_models::hub;

/// Which model, where, and how.
#[derive(Args)]
pub struct ModelArgs {
    /// The model: the path of a GGUF file, or of a folder with config.json, tokenizer.json and model.safetensors;
    /// hf:owner/repo/file; or a known name
    #[arg(long, short, value_name = "REF", default_value = hub::DEFAULT.name)]
    pub model: String,
    /// The device: best (the first hardware GPU, else the CPU), cpu, wgpu, or wgpu:N (see `tallow devices`)
    #[arg(long, short, default_value = "best")]
    pub device: String,
    /// How packed weights take their inputs: f32 as they are, q8 rounded to 8 bits in blocks of 32 [default: q8 on the
    /// CPU, as llama.cpp does; f32 on a GPU]
    #[arg(long)]
    pub activations: Option<ActivationKind>,
    /// Most tokens that prompt and answer have together [default: what the model was made for]
    #[arg(long, value_name = "N")]
    pub context: Option<NonZeroUsize>,
}

/// `--activations`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "described at the option")]
pub enum ActivationKind {
    F32,
    Q8,
}

impl ModelArgs {
    /// What was asked for, or the device's default. A CPU multiplies bytes several times as fast as floats; a GPU waits for
    /// the weights either way.
    pub fn activations_on(&self, device: &Device) -> Activations {
        match self.activations {
            Some(ActivationKind::F32) => Activations::F32,
            Some(ActivationKind::Q8) => Activations::Q8,
            None if device.is_cpu() => Activations::Q8,
            None => Activations::F32,
        }
    }
}

/// How tokens are chosen.
#[derive(Args)]
pub struct SamplingArgs {
    /// How freely tokens are chosen; 0 takes the most likely one [default: 0 for run, 0.7 for chat]
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Choose among the so many most likely tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = SamplingConfig::default().top_k)]
    pub top_k: usize,
    /// Choose among the most likely tokens that together have this probability; 1 is all
    #[arg(long, value_name = "P", default_value_t = SamplingConfig::default().top_p, allow_negative_numbers = true)]
    pub top_p: f64,
    /// Leave out tokens that are less likely than this share of the most likely one; 0 is none
    #[arg(long, value_name = "P", default_value_t = SamplingConfig::default().min_p, allow_negative_numbers = true)]
    pub min_p: f64,
    /// Makes tokens of the last 64 less likely; 1 leaves them
    #[arg(long, value_name = "X", default_value_t = SamplingConfig::default().repeat_penalty, allow_negative_numbers = true)]
    pub repeat_penalty: f32,
    /// Seed of the choice: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = SamplingConfig::default().seed)]
    pub seed: u64,
}

impl SamplingArgs {
    /// As the sampler takes it, checked, so that a wrong value is told before a model is fetched.
    pub fn config(&self, temperature: f64) -> tallow::Result<SamplingConfig> {
        let config = SamplingConfig {
            temperature: self.temperature.unwrap_or(temperature),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            seed: self.seed,
            ..SamplingConfig::default()
        };
        config.validate()?;
        Ok(config)
    }
}
