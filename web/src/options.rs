//! Options of a generation, from a JavaScript object.

use crate::{
    errors::{Result, js_error},
    object::{count_property, number_property, property, string_property},
};
use js_sys::Array;
use tallow::{Activations, generation::SamplingConfig, text::Message};
use tallow_models::{GenerationOptions, LoadOptions};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** How to generate. Everything may be left out. */
export interface GenerateOptions {
  /** Divides the logits; 0 always takes the most likely token. Default 0.8. */
  temperature?: number;
  /** Keep the so many most likely tokens; 0 keeps all. Default 40. */
  topK?: number;
  /** Keep the most likely tokens that together have this probability; 1 keeps all. Default 0.95. */
  topP?: number;
  /** Keep tokens that are at least so likely as this share of the most likely one; 0 keeps all. Default 0.05. */
  minP?: number;
  /** Makes tokens that occurred lately less likely; 1 leaves them. Default 1. */
  repeatPenalty?: number;
  /** Seed of the random choice: a whole number. */
  seed?: number;
  /** The most tokens to generate. Default: until the model ends or its context is full. */
  maxTokens?: number;
  /** Stops the generation when it is aborted; what was generated stays, and no error is thrown. */
  signal?: AbortSignal;
}

/** How to load a model. Everything may be left out. */
export interface LoadOptions {
  /** The most positions (prompt and answer) to keep room for; at most the model's own, which is the default. */
  context?: number;
  /** How packed weights take their inputs: "f32" is exact, "q8" rounds to 8 bits and is faster on CPUs. Default "f32". */
  activations?: "f32" | "q8";
}

/** One message of a conversation. */
export interface Message {
  role: "system" | "user" | "assistant" | string;
  content: string;
}
"#;

/// A count as large as this machine can take: WebAssembly's are of 32 bits, JavaScript's of 53.
fn clamped(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The options of a generation, and its stop signal.
pub(crate) struct Request {
    pub options: GenerationOptions,
    pub signal: Option<web_sys::AbortSignal>,
}

impl Request {
    pub fn from_js(options: &JsValue) -> Result<Self> {
        let default = SamplingConfig::default();
        let number = |name: &str, default: f64| Ok::<f64, JsValue>(number_property(options, name)?.unwrap_or(default));
        let sampling = SamplingConfig {
            temperature: number("temperature", default.temperature)?,
            top_k: count_property(options, "topK")?.map_or(default.top_k, clamped),
            top_p: number("topP", default.top_p)?,
            min_p: number("minP", default.min_p)?,
            repeat_penalty: number("repeatPenalty", default.repeat_penalty.into())? as f32,
            seed: count_property(options, "seed")?.unwrap_or(default.seed),
            ..default
        };
        let max_tokens = count_property(options, "maxTokens")?.map(clamped);
        let signal = match property(options, "signal")? {
            Some(value) => Some(value.dyn_into().map_err(|_| js_error("signal must be an AbortSignal"))?),
            None => None,
        };
        Ok(Self { options: GenerationOptions { sampling, max_tokens, ..GenerationOptions::default() }, signal })
    }

    pub fn stopped(&self) -> bool {
        self.signal.as_ref().is_some_and(web_sys::AbortSignal::aborted)
    }
}

/// How to load, from a JavaScript object.
pub(crate) fn load_options(options: &JsValue) -> Result<LoadOptions> {
    let mut wanted = LoadOptions::default();
    if let Some(name) = string_property(options, "activations")? {
        wanted.activations = match name.as_str() {
            "f32" => Activations::F32,
            "q8" => Activations::Q8,
            other => return Err(js_error(format!("activations must be \"f32\" or \"q8\", not \"{other}\""))),
        };
    }
    wanted.context = count_property(options, "context")?.map(clamped);
    Ok(wanted)
}

/// A conversation, from an array of {role, content}.
pub(crate) fn messages(list: &JsValue) -> Result<Vec<Message>> {
    if !Array::is_array(list) {
        return Err(js_error("the messages must be an array of {role, content}"));
    }
    let message = |value: JsValue| -> Result<Message> {
        match (string_property(&value, "role")?, string_property(&value, "content")?) {
            (Some(role), Some(content)) => Ok(Message::new(role, content)),
            _ => Err(js_error("each message must have a role and a content, both strings")),
        }
    };
    Array::from(list).iter().map(message).collect()
}
