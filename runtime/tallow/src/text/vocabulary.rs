//! The plain description of a tokenizer as model files carry it, and its checks. It is separate from any file format, so
//! that a GGUF header, a test or another program can fill it in.

use std::borrow::Cow;
use std::collections::HashMap;

use tallow_graph::{Error, Result};

/// A tokenizer's vocabulary, as the `tokenizer.ggml.*` keys of a GGUF file state it.
///
/// Nothing is checked until [`Tokenizer::from_vocabulary`](super::Tokenizer::from_vocabulary) reads it.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary<'a> {
    /// The kind: `gpt2` (byte-level BPE with merges) or `llama` (SentencePiece BPE with scores).
    pub model: Cow<'a, str>,
    /// Name of the pre-tokenizer, byte-level BPE only. Without it the GPT-2 one is used.
    pub pre: Option<Cow<'a, str>>,
    /// The text of each token; its index is its id. Byte-level vocabularies write bytes as GPT-2's printable characters.
    pub tokens: Vec<Cow<'a, str>>,
    /// One score a token (`llama` only): the higher, the earlier a pair is merged into it.
    pub scores: Option<Vec<f32>>,
    /// One type a token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte (0 counts as normal).
    pub token_types: Option<Vec<i32>>,
    /// Merges in order of priority (`gpt2` only), each `left right` with one space between.
    pub merges: Option<Vec<Cow<'a, str>>>,
    /// Id of the token that begins a text.
    pub bos: Option<u32>,
    /// Id of the token that ends a text.
    pub eos: Option<u32>,
    /// Id of the token that ends a turn of a chat.
    pub eot: Option<u32>,
    /// Id of the token that ends a message (it may ask for a tool's answer).
    pub eom: Option<u32>,
    /// Id of the token that stands for what the vocabulary cannot express.
    pub unk: Option<u32>,
    /// Id of the padding token.
    pub pad: Option<u32>,
    /// Whether a text begins with `bos`. Default: yes for `llama` and for the Llama 3 pre-tokenizer, else no.
    pub add_bos: Option<bool>,
    /// Whether a text ends with `eos`. Default: no.
    pub add_eos: Option<bool>,
    /// Whether a space is put before a text (`llama` only). Default: yes.
    pub add_space_prefix: Option<bool>,
}

/// What a token is for. The numbers are those of SentencePiece and GGUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenType {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl TokenType {
    /// Whether the token has no text of its own: a decoder that skips special tokens leaves it out.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

/// An error about the vocabulary.
pub(crate) fn bad(message: impl Into<String>) -> Error {
    Error::format("tokenizer", message)
}

impl Vocabulary<'_> {
    /// Checks that the parts fit each other, and gives the type of each token and the map from text to id.
    ///
    /// Empty tokens are allowed, since some published files pad with them: they are in no text, so they are left out of
    /// the map. Any other duplicate is an error, for the same text must not have two ids.
    pub(crate) fn check(&self) -> Result<(Vec<TokenType>, HashMap<&str, u32>)> {
        let n = self.tokens.len();
        if n == 0 {
            return Err(bad("the vocabulary has no tokens: this file carries no usable tokenizer"));
        }
        if u32::try_from(n).is_err() {
            return Err(bad(format!("{n} tokens are more than 32-bit ids can name")));
        }
        let ids = [
            ("bos", self.bos),
            ("eos", self.eos),
            ("eot", self.eot),
            ("eom", self.eom),
            ("unknown", self.unk),
            ("padding", self.pad),
        ];
        for (name, id) in ids {
            if let Some(id) = id.filter(|&id| id as usize >= n) {
                return Err(bad(format!("the {name} token id is {id}, but the vocabulary has only {n} tokens")));
            }
        }
        for (name, len) in
            [("scores", self.scores.as_ref().map(Vec::len)), ("types", self.token_types.as_ref().map(Vec::len))]
        {
            if let Some(len) = len.filter(|&len| len != n) {
                return Err(bad(format!("{len} token {name} for {n} tokens: there must be one a token")));
            }
        }
        if self.add_bos == Some(true) && self.bos.is_none() {
            return Err(bad("texts are to begin with a bos token, but no bos token id is given"));
        }
        if self.add_eos == Some(true) && self.eos.is_none() {
            return Err(bad("texts are to end with an eos token, but no eos token id is given"));
        }
        let types = self.types()?;
        let mut map = HashMap::with_capacity(n);
        for (id, token) in self.tokens.iter().enumerate().filter(|(_, token)| !token.is_empty()) {
            if let Some(first) = map.insert(&**token, id as u32) {
                return Err(bad(format!("tokens {first} and {id} are both {token:?}: each text needs one id")));
            }
        }
        Ok((types, map))
    }

    /// The type of each token; where the file gives none, the special ids and the form `<0xNN>` decide.
    fn types(&self) -> Result<Vec<TokenType>> {
        if let Some(types) = &self.token_types {
            let convert = |(id, &kind): (usize, &i32)| match kind {
                0 | 1 => Ok(TokenType::Normal),
                2 => Ok(TokenType::Unknown),
                3 => Ok(TokenType::Control),
                4 => Ok(TokenType::UserDefined),
                5 => Ok(TokenType::Unused),
                6 => Ok(TokenType::Byte),
                _ => Err(bad(format!("token {id} has the type {kind}; known are 1 to 6"))),
            };
            return types.iter().enumerate().map(convert).collect();
        }
        let bytes = self.model == "llama";
        let mut types: Vec<TokenType> = self
            .tokens
            .iter()
            .map(|token| if bytes && parse_byte(token).is_some() { TokenType::Byte } else { TokenType::Normal })
            .collect();
        let mut mark = |id: Option<u32>, kind| {
            if let Some(slot) = id.and_then(|id| types.get_mut(id as usize)) {
                *slot = kind;
            }
        };
        mark(self.unk, TokenType::Unknown);
        for id in [self.bos, self.eos, self.eot, self.eom, self.pad] {
            mark(id, TokenType::Control);
        }
        Ok(types)
    }
}

/// The byte that a token of the form `<0xNN>` stands for.
pub(crate) fn parse_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
        .then(|| u8::from_str_radix(digits, 16).ok())
        .flatten()
}
