//! The bytes that each token stands for, in one block of memory: what decoding reads.

use std::collections::HashMap;

use tallow_graph::Result;

use super::byte_level;
use super::sentence_piece::SPACE;
use super::vocabulary::{TokenType, bad, parse_byte};

/// How tokens spell bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's characters for bytes.
    ByteLevel,
    /// U+2581 for a space, `<0xNN>` for a byte.
    SentencePiece,
}

/// The table. Ids without a token hold nothing and are refused.
pub(crate) struct Pieces {
    bytes: Vec<u8>,
    /// For each id: where its bytes lie, whether it is special, whether it exists.
    entries: Vec<Option<Entry>>,
    /// Whether the first space of a whole text was put there by the encoder.
    pub(crate) strip_space: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    start: usize,
    end: usize,
    special: bool,
}

impl Pieces {
    /// The table of a dense vocabulary.
    pub(crate) fn new<'t>(
        spelling: Spelling,
        strip_space: bool,
        tokens: impl Iterator<Item = (u32, &'t str, TokenType)>,
    ) -> Result<Self> {
        let mut table = Self { bytes: Vec::new(), entries: Vec::new(), strip_space };
        for (id, token, kind) in tokens {
            let index = id as usize;
            if index >= table.entries.len() {
                table.entries.resize(index + 1, None);
            }
            let start = table.bytes.len();
            match (kind, spelling) {
                (TokenType::Normal | TokenType::Unused, Spelling::ByteLevel) => {
                    byte_level::token_bytes(token, &mut table.bytes)
                }
                (TokenType::Byte, _) if parse_byte(token).is_some() => table.bytes.extend(parse_byte(token)),
                (TokenType::Normal | TokenType::Unused | TokenType::UserDefined, Spelling::SentencePiece) => {
                    table.bytes.extend_from_slice(token.replace(SPACE, " ").as_bytes());
                }
                _ => table.bytes.extend_from_slice(token.as_bytes()),
            }
            if let Some(slot) = table.entries.get_mut(index) {
                *slot = Some(Entry { start, end: table.bytes.len(), special: kind.is_special() });
            }
        }
        Ok(table)
    }

    /// The table of a tokenizer.json's vocabulary, whose ids may have gaps, though not wide ones.
    pub(crate) fn from_map(
        spelling: Spelling,
        strip_space: bool,
        byte_fallback: bool,
        tokens: &HashMap<String, u32>,
        added: &HashMap<u32, bool>,
    ) -> Result<Self> {
        if let Some((token, id)) = tokens.iter().find(|&(_, &id)| id as usize > 4 * tokens.len() + 4096) {
            return Err(bad(format!("token {token:?} has the id {id}, though there are only {} tokens", tokens.len())));
        }
        let kind = |token: &str, id: u32| match added.get(&id) {
            Some(true) => TokenType::Control,
            Some(false) => TokenType::UserDefined,
            None if byte_fallback && parse_byte(token).is_some() => TokenType::Byte,
            None => TokenType::Normal,
        };
        Self::new(spelling, strip_space, tokens.iter().map(|(token, &id)| (id, &**token, kind(token, id))))
    }

    /// The bytes of a token; none for a special one that is to be skipped.
    pub(crate) fn get(&self, id: u32, skip_special: bool) -> Result<&[u8]> {
        let entry = self.entries.get(id as usize).copied().flatten();
        let entry = entry.ok_or_else(|| {
            bad(format!("there is no token {id}: ids go up to {}", self.entries.len().saturating_sub(1)))
        })?;
        if entry.special && skip_special {
            return Ok(&[]);
        }
        Ok(self.bytes.get(entry.start..entry.end).unwrap_or_default())
    }
}
