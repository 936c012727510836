//! Model families for [`tallow`]: a few shared blocks, and configurations over them.
//!
//! A LLaMA, Mistral or Qwen2 checkpoint is a [`DecoderConfig`]; [`LanguageModel`] adds what turns text into ids and back.

pub mod blocks;
mod chat;
mod config;
mod decoder;
mod generation;
#[cfg(feature = "hub")]
pub mod hub;
mod language_model;
mod loading;

pub use config::{DecoderConfig, MlpKind, NormKind, RopeConfig, RopePairing, RopeScaling};
pub use decoder::{Decoder, DecoderOptions};
pub use generation::{Finish, Generation, GenerationOptions, Stats};
pub use language_model::{LanguageModel, LoadOptions, Streaming};
pub use loading::{DecoderBuilder, RawTensor};
