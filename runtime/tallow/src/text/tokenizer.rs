//! [`Tokenizer`]: text to token ids and back, whatever file it came from.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tallow_graph::Result;

use super::byte_level::ByteLevel;
use super::decode_stream::DecodeStream;
use super::json::{Facts, Json};
use super::pieces::{Pieces, Spelling};
use super::pretokenizer::PreTokenizer;
use super::sentence_piece::SentencePiece;
use super::special::{Fragment, Specials};
use super::vocabulary::{TokenType, Vocabulary, bad};

/// Texts of tokens that end an answer, in the chat formats in use. They count only where they are not ordinary tokens.
const END_TOKENS: [&str; 13] = [
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|eot|>",
    "<|return|>",
    "<end_of_turn>",
    "<|END_OF_TURN_TOKEN|>",
    "<EOT>",
    "<eos>",
    "</s>",
];

/// Turns text into token ids and back. A clone is cheap and shares the tables.
///
/// Three kinds are known: byte-level BPE and SentencePiece BPE from a [`Vocabulary`] (what a GGUF file carries), and
/// anything that a `tokenizer.json` describes.
#[derive(Clone)]
pub struct Tokenizer {
    pub(crate) inner: Arc<Inner>,
    ends: Vec<u32>,
}

pub(crate) struct Inner {
    encoder: Encoder,
    pub(crate) decoder: Decoder,
    /// What is recognised in any text: user-defined tokens. (Unused by a tokenizer.json, which brings its own rules.)
    plain: Specials,
    /// What is recognised where special tokens are wanted: those and the control tokens.
    special: Specials,
    ids: HashMap<String, u32>,
    texts: HashMap<u32, String>,
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    warning: Option<String>,
}

enum Encoder {
    ByteLevel(ByteLevel),
    SentencePiece(SentencePiece),
    Json(Json),
}

pub(crate) enum Decoder {
    /// A table of each token's bytes.
    Pieces(Pieces),
    /// The decoder of the tokenizer.json.
    File,
}

impl Inner {
    /// An error for an id that is no token.
    pub(crate) fn check(&self, id: u32) -> Result<()> {
        if self.texts.contains_key(&id) { Ok(()) } else { Err(bad(format!("there is no token {id}"))) }
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.inner.texts.len()).field("ends", &self.ends).finish()
    }
}

impl Tokenizer {
    /// Reads a tokenizer.json.
    ///
    /// The file does not say which tokens end an answer: well-known names count, and [`add_end`](Self::add_end) adds what
    /// config.json or generation_config.json say.
    ///
    /// # Errors
    /// A file that is no tokenizer.json, or whose ids lie far apart.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let (json, Facts { ids, added, pieces }) = Json::new(bytes)?;
        let named = |names: &[&str]| {
            let mut ids = names.iter().filter_map(|&name| ids.get(name).copied());
            ids.find(|id| added.get(id) == Some(&true))
        };
        let bos = named(&["<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>"]);
        let eos = named(&["</s>", "<|end_of_text|>", "<eos>", "<|endoftext|>"]);
        let special = |id: u32| added.contains_key(&id);
        let ends = known_ends(&ids, special, [eos]);
        let inner = Inner {
            encoder: Encoder::Json(json),
            decoder: pieces.map_or(Decoder::File, Decoder::Pieces),
            plain: Specials::new(std::iter::empty())?,
            special: Specials::new(std::iter::empty())?,
            texts: ids.iter().map(|(text, &id)| (id, text.clone())).collect(),
            bos,
            eos,
            unk: named(&["<unk>", "[UNK]"]),
            pad: named(&["<pad>", "[PAD]", "<|pad|>"]),
            ids,
            // The file's own post-processor adds them.
            add_bos: false,
            add_eos: false,
            warning: None,
        };
        Ok(Self { inner: Arc::new(inner), ends })
    }

    /// Builds the tokenizer of a vocabulary.
    ///
    /// # Errors
    /// An unknown kind; no tokens; two tokens with one text; a special id, merge, score or type that does not fit.
    pub fn from_vocabulary(vocabulary: &Vocabulary<'_>) -> Result<Self> {
        let (types, map) = vocabulary.check()?;
        let mut warning = None;
        let mut bos = vocabulary.bos;
        let (encoder, spelling, strip, default_bos) = match &*vocabulary.model {
            "gpt2" => {
                let (rule, unknown) = PreTokenizer::new(vocabulary.pre.as_deref())?;
                warning = unknown;
                let add_bos = rule.add_bos;
                let encoder = ByteLevel::new(vocabulary, &types, &map, rule)?;
                (Encoder::ByteLevel(encoder), Spelling::ByteLevel, false, add_bos)
            }
            "llama" => {
                bos = bos.or_else(|| map.get("<s>").copied().filter(|&id| id == 1));
                let encoder = SentencePiece::new(vocabulary, &types)?;
                let strip = encoder.space_prefix();
                (Encoder::SentencePiece(encoder), Spelling::SentencePiece, strip, true)
            }
            other => {
                return Err(bad(format!(
                    "the tokenizer kind {other:?} is not supported; known are \"gpt2\" and \"llama\""
                )));
            }
        };
        let tokens = || (0u32..).zip(&vocabulary.tokens).zip(&types).map(|((id, token), &kind)| (id, &**token, kind));
        let of = |kinds: &'static [TokenType]| {
            tokens().filter(|(_, _, kind)| kinds.contains(kind)).map(|(id, token, _)| (id, token))
        };
        // SentencePiece finds user-defined pieces by itself, behind the space prefix.
        let plain: &'static [TokenType] = if spelling == Spelling::ByteLevel { &[TokenType::UserDefined] } else { &[] };
        let all: &'static [TokenType] = match spelling {
            Spelling::ByteLevel => &[TokenType::UserDefined, TokenType::Control, TokenType::Unknown],
            Spelling::SentencePiece => &[TokenType::Control, TokenType::Unknown],
        };
        let ids: HashMap<String, u32> = map.iter().map(|(&text, &id)| (text.to_owned(), id)).collect();
        let special = |id: u32| types.get(id as usize).is_some_and(|kind| *kind != TokenType::Normal);
        let ends = known_ends(&ids, special, [vocabulary.eos, vocabulary.eot, vocabulary.eom]);
        let inner = Inner {
            encoder,
            decoder: Decoder::Pieces(Pieces::new(spelling, strip, tokens())?),
            plain: Specials::new(of(plain))?,
            special: Specials::new(of(all))?,
            texts: tokens().map(|(id, text, _)| (id, text.to_owned())).collect(),
            ids,
            bos,
            eos: vocabulary.eos,
            unk: vocabulary.unk,
            pad: vocabulary.pad,
            add_bos: vocabulary.add_bos.unwrap_or(default_bos) && bos.is_some(),
            add_eos: vocabulary.add_eos.unwrap_or(false),
            warning,
        };
        Ok(Self { inner: Arc::new(inner), ends })
    }

    /// The ids of a text that a user wrote: the names of control tokens in it are plain text. `add_special` puts the
    /// tokens around it that the model expects around a text (a bos token, say).
    ///
    /// # Errors
    /// A character that the vocabulary has no way to express.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        self.encode_with(text, add_special, false)
    }

    /// The ids of a text in which the names of control tokens mean these tokens: what a chat template rendered. With
    /// `add_special`, a bos token is added only where the text does not begin with one.
    ///
    /// # Errors
    /// A character that the vocabulary has no way to express.
    pub fn encode_with_special_tokens(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        self.encode_with(text, add_special, true)
    }

    fn encode_with(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>> {
        let inner = &*self.inner;
        if let Encoder::Json(json) = &inner.encoder {
            let mut ids = json.encode(text, add_special, parse_special)?;
            if add_special
                && parse_special
                && ids.len() > 1
                && inner.bos.is_some_and(|bos| ids.starts_with(&[bos, bos]))
            {
                ids.remove(0);
            }
            return Ok(ids);
        }
        let mut ids = Vec::with_capacity(text.len() / 3 + 2);
        let fragments = if parse_special { &inner.special } else { &inner.plain };
        fragments.split(text, |fragment| {
            match (fragment, &inner.encoder) {
                (Fragment::Token(id), _) => ids.push(id),
                (Fragment::Text(text), Encoder::ByteLevel(encoder)) => encoder.encode(text, &mut ids),
                (Fragment::Text(text), Encoder::SentencePiece(encoder)) => encoder.encode(text, &mut ids)?,
                (Fragment::Text(_), Encoder::Json(_)) => {}
            }
            Ok(())
        })?;
        if add_special {
            if let Some(bos) = inner.bos.filter(|&bos| inner.add_bos && !(parse_special && ids.first() == Some(&bos))) {
                ids.insert(0, bos);
            }
            if let Some(eos) = inner.eos.filter(|&eos| inner.add_eos && !(parse_special && ids.last() == Some(&eos))) {
                ids.push(eos);
            }
        }
        Ok(ids)
    }

    /// The text of `ids`, taken as a whole text: the space that the encoder put in front is taken away. Bytes that are no
    /// UTF-8 become U+FFFD. With `skip_special`, control tokens leave nothing.
    ///
    /// # Errors
    /// An id that is no token.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        match (&self.inner.decoder, &self.inner.encoder) {
            (Decoder::Pieces(pieces), _) => {
                let mut bytes = Vec::new();
                for &id in ids {
                    bytes.extend_from_slice(pieces.get(id, skip_special)?);
                }
                let bytes = if pieces.strip_space { bytes.strip_prefix(b" ").unwrap_or(&bytes) } else { &bytes };
                Ok(String::from_utf8_lossy(bytes).into_owned())
            }
            (Decoder::File, Encoder::Json(json)) => {
                ids.iter().try_for_each(|&id| self.inner.check(id))?;
                json.decode(ids, skip_special)
            }
            (Decoder::File, _) => Err(bad("this tokenizer has no decoder")),
        }
    }

    /// A decoder for tokens that come one by one and continue a text: a first space is kept.
    pub fn decode_stream(&self, skip_special: bool) -> DecodeStream {
        DecodeStream::new(self.clone(), skip_special)
    }

    /// Whether the token ends an answer: the end of text, of a turn, or of a message.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// All tokens that [`is_end`](Self::is_end) knows, in order.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// Makes `id` one of the tokens that end an answer.
    ///
    /// # Errors
    /// An id that is no token.
    pub fn add_end(&mut self, id: u32) -> Result<()> {
        self.inner.check(id)?;
        if let Err(at) = self.ends.binary_search(&id) {
            self.ends.insert(at, id);
        }
        Ok(())
    }

    /// The id of the token with exactly this text (in the vocabulary's own spelling).
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.ids.get(token).copied()
    }

    /// The token's text in the vocabulary's own spelling.
    pub fn id_to_token(&self, id: u32) -> Option<&str> {
        self.inner.texts.get(&id).map(String::as_str)
    }

    /// How many tokens there are.
    pub fn vocab_size(&self) -> usize {
        self.inner.texts.len()
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.inner.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.inner.eos
    }

    /// The token that stands for what cannot be expressed.
    pub fn unk(&self) -> Option<u32> {
        self.inner.unk
    }

    /// The padding token.
    pub fn pad(&self) -> Option<u32> {
        self.inner.pad
    }

    /// What a caller should tell the user: a pre-tokenizer that is not known and was replaced by the default one.
    pub fn warning(&self) -> Option<&str> {
        self.inner.warning.as_deref()
    }
}

/// The ids that the file names as ends, and those whose names are known and that `special` says are no ordinary tokens.
fn known_ends<const N: usize>(
    ids: &HashMap<String, u32>,
    special: impl Fn(u32) -> bool,
    given: [Option<u32>; N],
) -> Vec<u32> {
    let named = END_TOKENS.iter().filter_map(|&name| ids.get(name).copied()).filter(|&id| special(id));
    let set: HashSet<u32> = given.into_iter().flatten().chain(named).collect();
    let mut ends: Vec<u32> = set.into_iter().collect();
    ends.sort_unstable();
    ends
}
