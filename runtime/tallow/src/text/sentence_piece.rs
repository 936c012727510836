//! SentencePiece's BPE: the whole text is one run of characters, with spaces written as U+2581, and the adjacent pair whose
//! concatenation is the piece of the highest score is merged first. What no piece covers falls back to byte tokens.
//! Kudo and Richardson, "SentencePiece: A simple and language independent subword tokenizer", 2018.

use std::collections::HashMap;

use aho_corasick::AhoCorasick;
use tallow_graph::Result;

use super::merge::merge;
use super::special::automaton;
use super::vocabulary::{TokenType, Vocabulary, bad, parse_byte};

/// The character that stands for a space.
pub(crate) const SPACE: char = '\u{2581}';

/// A stretch of the text, by byte offsets, and what it is.
#[derive(Clone, Copy, PartialEq)]
struct Symbol {
    start: usize,
    end: usize,
    /// A user-defined piece: nothing is merged into it.
    frozen: bool,
}

#[derive(Clone, Copy)]
struct Piece {
    id: u32,
    /// 0 is the highest score; equal scores share a rank.
    rank: u32,
    unused: bool,
}

/// The encoder.
pub(crate) struct SentencePiece {
    pieces: HashMap<Box<str>, Piece>,
    bytes: [Option<u32>; 256],
    unk: Option<u32>,
    space_prefix: bool,
    /// Finds user-defined pieces in a text.
    user: Option<AhoCorasick>,
}

impl SentencePiece {
    /// Reads scores and types. A score that is no number is an error.
    pub(crate) fn new(vocabulary: &Vocabulary<'_>, types: &[TokenType]) -> Result<Self> {
        let Some(scores) = &vocabulary.scores else {
            return Err(bad("a llama vocabulary needs a score for each token, and this one has none"));
        };
        if let Some(id) = scores.iter().position(|score| score.is_nan()) {
            return Err(bad(format!("the score of token {id} is not a number")));
        }
        let mut distinct: Vec<f32> = scores.iter().map(|score| score + 0.0).collect();
        distinct.sort_unstable_by(|a, b| b.total_cmp(a));
        distinct.dedup();
        let mut bytes = [None; 256];
        let mut pieces = HashMap::with_capacity(vocabulary.tokens.len());
        let mut user = Vec::new();
        for (id, ((token, &kind), score)) in (0u32..).zip(vocabulary.tokens.iter().zip(types).zip(scores)) {
            match kind {
                TokenType::Byte => {
                    let byte =
                        parse_byte(token).ok_or_else(|| bad(format!("byte token {id} is {token:?}, not <0xNN>")))?;
                    if let Some(slot) = bytes.get_mut(usize::from(byte)) {
                        *slot = Some(id);
                    }
                }
                TokenType::Normal | TokenType::UserDefined | TokenType::Unused if !token.is_empty() => {
                    let rank = distinct.partition_point(|other| *other > *score) as u32;
                    pieces.insert((&**token).into(), Piece { id, rank, unused: kind == TokenType::Unused });
                    if kind == TokenType::UserDefined {
                        user.push(&**token);
                    }
                }
                _ => {}
            }
        }
        let user = automaton(&user)?;
        let space_prefix = vocabulary.add_space_prefix.unwrap_or(true);
        Ok(Self { pieces, bytes, unk: vocabulary.unk, space_prefix, user })
    }

    /// Whether a text gets a space in front, which a decoder of the whole text takes away again.
    pub(crate) fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// Appends the ids of `text`. An error where the vocabulary has neither bytes nor an unknown token for a character.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut normalized = String::with_capacity(text.len() + text.len() / 2);
        if self.space_prefix {
            normalized.push(SPACE);
        }
        normalized.extend(text.chars().map(|c| if c == ' ' { SPACE } else { c }));
        let text = &*normalized;

        let mut symbols = Vec::with_capacity(text.len());
        let characters = |from: usize, to: usize, symbols: &mut Vec<Symbol>| {
            symbols.extend(text[from..to].char_indices().map(|(at, c)| Symbol {
                start: from + at,
                end: from + at + c.len_utf8(),
                frozen: false,
            }));
        };
        let mut at = 0;
        for found in self.user.iter().flat_map(|user| user.find_iter(text)) {
            characters(at, found.start(), &mut symbols);
            symbols.push(Symbol { start: found.start(), end: found.end(), frozen: true });
            at = found.end();
        }
        characters(at, text.len(), &mut symbols);

        // Unused pieces take part in merging, but are taken apart again in the end: remember of what they were made.
        let mut parts: HashMap<&str, (Symbol, Symbol)> = HashMap::new();
        merge(&mut symbols, |left: Symbol, right: Symbol| {
            if left.frozen || right.frozen {
                return None;
            }
            let joined = &text[left.start..right.end];
            let piece = self.pieces.get(joined)?;
            if piece.unused {
                parts.insert(joined, (left, right));
            }
            Some((piece.rank, Symbol { start: left.start, end: right.end, frozen: false }))
        });

        let mut unknown = false;
        let mut stack = Vec::new();
        for &symbol in &symbols {
            stack.push(symbol);
            while let Some(symbol) = stack.pop() {
                let part = &text[symbol.start..symbol.end];
                if let Some(piece) = self.pieces.get(part) {
                    if piece.unused
                        && let Some(&(left, right)) = parts.get(part)
                    {
                        stack.extend([right, left]);
                        continue;
                    }
                    out.push(piece.id);
                    unknown = false;
                } else {
                    unknown = self.fall_back(part, unknown, out)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the byte tokens of `part`, or the unknown token where some are missing; one for a run of unknowns.
    fn fall_back(&self, part: &str, after_unknown: bool, out: &mut Vec<u32>) -> Result<bool> {
        let ids: Option<Vec<u32>> =
            part.bytes().map(|byte| self.bytes.get(usize::from(byte)).copied().flatten()).collect();
        match (ids, self.unk) {
            (Some(ids), _) => {
                out.extend_from_slice(&ids);
                Ok(false)
            }
            (None, Some(unk)) => {
                if !after_unknown {
                    out.push(unk);
                }
                Ok(true)
            }
            (None, None) => Err(bad(format!(
                "the vocabulary can't express {part:?}: it has neither a piece nor byte tokens for it, and no unknown token"
            ))),
        }
    }
}
