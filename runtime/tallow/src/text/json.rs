//! tokenizer.json, the format of the `tokenizers` crate: that crate encodes; decoding is by our own table where the file's
//! decoder is one of the two usual kinds, since that streams exactly, and else by the crate as well.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use tallow_graph::Result;

use super::pieces::{Pieces, Spelling};
use super::vocabulary::bad;

/// The crate's tokenizer. Whether special tokens are recognised is a state of it, hence the lock.
pub(crate) struct Json(Mutex<tokenizers::Tokenizer>);

/// What else the file says.
pub(crate) struct Facts {
    /// Every token's id by its text.
    pub(crate) ids: HashMap<String, u32>,
    /// The added tokens' ids, and whether each is special.
    pub(crate) added: HashMap<u32, bool>,
    /// The decoding table, where one fits.
    pub(crate) pieces: Option<Pieces>,
}

/// The part of the file that the crate does not show.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    decoder: Option<Value>,
}

/// How the file's decoder spells tokens: the spelling, whether a first space is stripped, whether `<0xNN>` is a byte.
fn spelling(decoder: &Value) -> Option<(Spelling, bool, bool)> {
    let kind = |value: &Value| value.get("type").and_then(Value::as_str).map(str::to_owned);
    let is_space = |value: Option<&Value>| value.and_then(Value::as_str) == Some(" ");
    match &*kind(decoder)? {
        "ByteLevel" => Some((Spelling::ByteLevel, false, false)),
        "Metaspace" if decoder.get("replacement").and_then(Value::as_str) == Some("\u{2581}") => {
            let never = decoder.get("prepend_scheme").and_then(Value::as_str) == Some("never")
                || decoder.get("add_prefix_space").and_then(Value::as_bool) == Some(false);
            Some((Spelling::SentencePiece, !never, false))
        }
        "Sequence" => {
            let (mut replaced, mut strip, mut bytes) = (false, false, false);
            for step in decoder.get("decoders")?.as_array()? {
                match &*kind(step)? {
                    "Replace" => {
                        let pattern = step.get("pattern").and_then(|p| p.get("String")).and_then(Value::as_str);
                        if pattern != Some("\u{2581}") || !is_space(step.get("content")) {
                            return None;
                        }
                        replaced = true;
                    }
                    "ByteFallback" => bytes = true,
                    "Fuse" => {}
                    "Strip" => {
                        let count = |key: &str| step.get(key).and_then(Value::as_u64);
                        if !is_space(step.get("content")) || count("start") != Some(1) || count("stop") != Some(0) {
                            return None;
                        }
                        strip = true;
                    }
                    _ => return None,
                }
            }
            replaced.then_some((Spelling::SentencePiece, strip, bytes))
        }
        _ => None,
    }
}

impl Json {
    /// Parses the file. Truncation and padding that it may ask for are switched off: they would drop text in silence.
    pub(crate) fn new(bytes: &[u8]) -> Result<(Self, Facts)> {
        let file: File = serde_json::from_slice(bytes).map_err(|e| bad(format!("tokenizer.json: {e}")))?;
        let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(|e| bad(format!("tokenizer.json: {e}")))?;
        inner.with_truncation(None).map_err(|e| bad(format!("tokenizer.json: {e}")))?;
        inner.with_padding(None);
        let ids: HashMap<String, u32> = inner.get_vocab(true).into_iter().collect();
        if ids.is_empty() {
            return Err(bad("tokenizer.json holds no tokens"));
        }
        let added = inner.get_added_tokens_decoder().into_iter().map(|(id, token)| (id, token.special)).collect();
        let pieces = file.decoder.as_ref().and_then(spelling);
        let pieces = pieces.map(|(spelling, strip, bytes)| Pieces::from_map(spelling, strip, bytes, &ids, &added));
        let facts = Facts { pieces: pieces.transpose()?, ids, added };
        Ok((Self(Mutex::new(inner)), facts))
    }

    /// The ids of `text`.
    pub(crate) fn encode(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        // A panic of another thread inside the crate left nothing half-done that matters: the flag is set anew.
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.set_encode_special_tokens(!parse_special);
        let encoding = inner.encode_fast(text, add_special).map_err(|e| bad(format!("cannot encode: {e}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`, by the file's own decoder.
    pub(crate) fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.decode(ids, skip_special).map_err(|e| bad(format!("cannot decode: {e}")))
    }
}
