//! Choosing the next token from a model's logits: greedy or at random, with the usual filters, the same on every machine.

mod filter;
mod on_device;
mod philox;
mod processor;

pub use on_device::SampledToken;
pub use philox::Philox;
pub use processor::{LogitsProcessor, Sampling, SamplingConfig, apply_repeat_penalty};
