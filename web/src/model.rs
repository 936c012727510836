//! A language model: a prompt or a conversation in, text out, piece by piece.

use crate::{
    Device,
    errors::{Result, js_error},
    object::{number, object},
    options::{Request, messages},
    turn::Turn,
};
use js_sys::{Function, Promise};
use std::cell::Cell;
use tallow_models::{Finish, LanguageModel};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** What a model is. */
export interface ModelInfo {
  layers: number;
  hidden: number;
  vocabulary: number;
  /** The most positions, prompt and answer together. */
  context: number;
  /** Whether `chat` works. */
  chat: boolean;
}

/** How a generation went. */
export interface GenerateSummary {
  promptTokens: number;
  /** Tokens generated, the end token not counted. */
  tokens: number;
  /** Why it ended. */
  finish: "end" | "maxTokens" | "contextFull" | "stopped";
}

/** Takes each piece of text (perhaps empty: half a character) with the count of tokens so far. A promise is awaited. */
export type OnText = (text: string, tokens: number) => void | Promise<void>;
"#;

/// Positions of the prompt that are computed at once. On a CPU, where a step cannot be interrupted, fewer.
const CHUNK: usize = 256;
const CHUNK_ON_CPU: usize = 32;

/// A language model on its device. It does one thing at a time.
#[wasm_bindgen]
pub struct Model {
    device: tallow::Device,
    /// Empty while a generation runs.
    inner: Cell<Option<Box<LanguageModel>>>,
}

/// The model while it is in use; it goes back when this is dropped, an error or not.
struct InUse<'a> {
    place: &'a Cell<Option<Box<LanguageModel>>>,
    model: Option<Box<LanguageModel>>,
}

impl InUse<'_> {
    fn model(&mut self) -> Result<&mut LanguageModel> {
        self.model.as_deref_mut().ok_or_else(|| js_error("the model is busy"))
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.place.set(self.model.take());
    }
}

impl Model {
    pub(crate) fn new(model: LanguageModel) -> Self {
        Self { device: model.decoder.device().clone(), inner: Cell::new(Some(Box::new(model))) }
    }

    fn lock(&self) -> Result<InUse<'_>> {
        match self.inner.take() {
            Some(model) => Ok(InUse { place: &self.inner, model: Some(model) }),
            None => Err(js_error("the model is generating: stop it or wait")),
        }
    }
}

#[wasm_bindgen]
impl Model {
    /// What it is. Not while it generates.
    #[wasm_bindgen(unchecked_return_type = "ModelInfo")]
    pub fn info(&self) -> Result<JsValue> {
        let mut model = self.lock()?;
        let model = model.model()?;
        let config = model.decoder.config();
        object(&[
            ("layers", number(config.layers as u64)),
            ("hidden", number(config.hidden as u64)),
            ("vocabulary", number(config.vocab_size as u64)),
            ("context", number(model.decoder.context() as u64)),
            ("chat", model.has_chat_template().into()),
        ])
    }

    /// The device that it computes on.
    pub fn device(&self) -> Device {
        Device { inner: self.device.clone() }
    }

    /// Computes a first token and forgets it, so that the device's programs are compiled before someone waits for them.
    #[wasm_bindgen(js_name = warmUp)]
    pub async fn warm_up(&self) -> Result<()> {
        let mut model = self.lock()?;
        let model = model.model()?;
        let options = Request::from_js(&JsValue::UNDEFINED)?.options;
        let mut ids = model.encode("warm up").map_err(js_error)?;
        // A prompt must leave room for a token.
        ids.truncate(model.decoder.context().saturating_sub(1));
        if ids.is_empty() {
            return Ok(());
        }
        let mut generation = model.generate(&ids, 0, options).map_err(js_error)?;
        for _ in 0..2 {
            generation.next().await.map_err(js_error)?;
        }
        Ok(())
    }

    /// Continues the prompt as it stands.
    #[wasm_bindgen(unchecked_return_type = "GenerateSummary")]
    pub async fn generate(
        &self,
        prompt: String,
        #[wasm_bindgen(unchecked_param_type = "GenerateOptions | undefined")] options: JsValue,
        #[wasm_bindgen(js_name = onText, unchecked_param_type = "OnText")] on_text: Function,
    ) -> Result<JsValue> {
        let mut model = self.lock()?;
        let model = model.model()?;
        let ids = model.encode(&prompt).map_err(js_error)?;
        run(model, &ids, &Request::from_js(&options)?, &on_text).await
    }

    /// Answers the last message of a conversation, in the model's own chat format.
    #[wasm_bindgen(unchecked_return_type = "GenerateSummary")]
    pub async fn chat(
        &self,
        #[wasm_bindgen(unchecked_param_type = "Message[]")] conversation: JsValue,
        #[wasm_bindgen(unchecked_param_type = "GenerateOptions | undefined")] options: JsValue,
        #[wasm_bindgen(js_name = onText, unchecked_param_type = "OnText")] on_text: Function,
    ) -> Result<JsValue> {
        let mut model = self.lock()?;
        let model = model.model()?;
        let ids = model.encode_chat(&messages(&conversation)?).map_err(js_error)?;
        run(model, &ids, &Request::from_js(&options)?, &on_text).await
    }
}

/// Generates after `prompt`, giving the event loop a turn after each step.
async fn run(model: &mut LanguageModel, prompt: &[u32], request: &Request, on_text: &Function) -> Result<JsValue> {
    let turn = Turn::new()?;
    let mut text = model.tokenizer.decode_stream(true);
    // Checks the whole prompt, and empties the cache.
    drop(model.generate(prompt, 0, request.options.clone()).map_err(js_error)?);
    let chunk = if model.decoder.device().is_cpu() { CHUNK_ON_CPU } else { CHUNK };
    let mut cached = 0;
    while prompt.len() - cached > chunk && !request.stopped() {
        let end = cached + chunk;
        let mut part = model.generate(&prompt[..end], cached, request.options.clone()).map_err(js_error)?;
        part.logits().await.map_err(js_error)?;
        cached = end;
        turn.pass().await?;
    }
    if request.stopped() {
        return summary(prompt.len(), 0, "stopped");
    }
    let mut generation = model.generate(prompt, cached, request.options.clone()).map_err(js_error)?;
    let mut finish = None;
    while let Some(id) = generation.next().await.map_err(js_error)? {
        let piece = text.push(id).map_err(js_error)?.unwrap_or_default();
        call(on_text, &piece, generation.stats().generated).await?;
        turn.pass().await?;
        if request.stopped() {
            finish = Some("stopped");
            break;
        }
    }
    let generated = generation.stats().generated;
    if let Some(rest) = text.finish().map_err(js_error)? {
        call(on_text, &rest, generated).await?;
    }
    let finish = finish.unwrap_or(match generation.finish() {
        Some(Finish::MaxTokens) => "maxTokens",
        Some(Finish::ContextFull) => "contextFull",
        Some(Finish::End) | None => "end",
    });
    summary(prompt.len(), generated, finish)
}

/// Hands a piece of text over, and waits where JavaScript asks to.
async fn call(on_text: &Function, piece: &str, tokens: usize) -> Result<()> {
    let answer = on_text.call2(&JsValue::UNDEFINED, &piece.into(), &number(tokens as u64))?;
    if let Ok(promise) = answer.dyn_into::<Promise>() {
        JsFuture::from(promise).await?;
    }
    Ok(())
}

fn summary(prompt: usize, tokens: usize, finish: &str) -> Result<JsValue> {
    object(&[("promptTokens", number(prompt as u64)), ("tokens", number(tokens as u64)), ("finish", finish.into())])
}
