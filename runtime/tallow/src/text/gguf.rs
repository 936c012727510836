//! The text side of a GGUF header: the `tokenizer.*` keys, as the GGUF specification names them.

use std::borrow::Cow;

use tallow_graph::Result;

use super::vocabulary::bad;
use super::{ChatTemplate, Tokenizer, Vocabulary};
use crate::formats::gguf::{Metadata, Strings};

/// Key of the chat template.
const TEMPLATE: &str = "tokenizer.chat_template";

impl<'a> Vocabulary<'a> {
    /// Reads the `tokenizer.ggml.*` keys. The texts stay borrowed from the header.
    ///
    /// # Errors
    /// A header without a tokenizer, or with values of another type than these keys have.
    pub fn from_gguf(metadata: &'a Metadata) -> Result<Self> {
        let key = |name: &str| format!("tokenizer.ggml.{name}");
        let Some(model) = metadata.read_opt::<&str>(&key("model"))? else {
            return Err(bad(
                "the file has no tokenizer (its key tokenizer.ggml.model is missing): use a complete model file",
            ));
        };
        let texts = |name: &str| -> Result<Option<Vec<Cow<'a, str>>>> {
            let strings = metadata.read_opt::<Strings<'a>>(&key(name))?;
            Ok(strings.map(|strings| strings.map(Cow::Borrowed).collect()))
        };
        // Some writers put -1, or its 32 bits, for a token that is not there.
        let id = |name: &str| -> Result<Option<u32>> {
            let id = metadata.read_opt::<i64>(&key(name))?.filter(|&id| id != -1 && id != i64::from(u32::MAX));
            id.map(|id| u32::try_from(id).map_err(|_| bad(format!("{} is {id}, which is no token id", key(name)))))
                .transpose()
        };
        let flag = |name: &str| metadata.read_opt::<bool>(&key(name));
        Ok(Self {
            model: model.into(),
            pre: metadata.read_opt::<&str>(&key("pre"))?.map(Cow::Borrowed),
            tokens: texts("tokens")?.unwrap_or_default(),
            scores: metadata.read_opt(&key("scores"))?,
            token_types: metadata.read_opt(&key("token_type"))?,
            merges: texts("merges")?,
            bos: id("bos_token_id")?,
            eos: id("eos_token_id")?,
            eot: id("eot_token_id")?,
            eom: id("eom_token_id")?,
            unk: id("unknown_token_id")?,
            pad: id("padding_token_id")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
        })
    }
}

impl Tokenizer {
    /// The tokenizer of a GGUF file.
    ///
    /// # Errors
    /// Those of [`Vocabulary::from_gguf`] and of [`from_vocabulary`](Self::from_vocabulary).
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        Self::from_vocabulary(&Vocabulary::from_gguf(metadata)?)
    }
}

impl ChatTemplate {
    /// The chat template of a GGUF file, with the special tokens of its tokenizer; `None` where the file has none.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(source) = metadata.read_opt::<&str>(TEMPLATE)? else { return Ok(None) };
        let text = |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id));
        Self::new(source, text(tokenizer.bos()), text(tokenizer.eos())).map(Some)
    }
}
