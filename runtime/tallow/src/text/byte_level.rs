//! Byte-level BPE: words are UTF-8 bytes, written as printable characters, and merged in the order of a list of pairs.
//! Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2), section 2.2.

use std::collections::HashMap;

use tallow_graph::Result;

use super::merge::merge;
use super::pretokenizer::PreTokenizer;
use super::vocabulary::{TokenType, Vocabulary, bad};

/// The character that stands for a byte: itself where it is printable and no space, else one from U+0100 on, in order.
fn byte_to_char(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte - 0x7F),
        0xAD => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that a character stands for, if it stands for one.
fn char_to_byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The bytes of a normal token; a token with other characters than those of the table is its own UTF-8.
pub(crate) fn token_bytes(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        match char_to_byte(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(token.as_bytes());
                return;
            }
        }
    }
}

/// The encoder.
pub(crate) struct ByteLevel {
    pub(crate) rule: PreTokenizer,
    /// The token of each single byte.
    bytes: [Option<u32>; 256],
    /// From a pair of ids to the pair's rank and the id that it becomes.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Whole words, where the rule asks for them, in the spelling of the table.
    words: HashMap<Box<str>, u32>,
}

impl ByteLevel {
    /// Reads merges and byte tokens. A merge whose parts or whole are no tokens is an error.
    pub(crate) fn new(
        vocabulary: &Vocabulary<'_>,
        types: &[TokenType],
        ids: &HashMap<&str, u32>,
        rule: PreTokenizer,
    ) -> Result<Self> {
        let mut bytes = [None; 256];
        let mut buffer = [0u8; 4];
        for (byte, slot) in (0..=u8::MAX).zip(&mut bytes) {
            *slot = ids.get(&*byte_to_char(byte).encode_utf8(&mut buffer)).copied();
        }
        if bytes.iter().all(Option::is_none) {
            return Err(bad("no token stands for a single byte, so this is no byte-level vocabulary"));
        }
        let Some(list) = &vocabulary.merges else {
            return Err(bad("a gpt2 vocabulary needs its list of merges, and this one has none"));
        };
        let mut merges = HashMap::with_capacity(list.len());
        let mut whole = String::new();
        for (rank, line) in list.iter().enumerate() {
            let error = |what: &str| bad(format!("merge {rank}, {line:?}: {what}"));
            // Never at 0, so that a left part may begin with a space.
            let space = line.char_indices().skip(1).find(|&(_, c)| c == ' ').map(|(at, _)| at);
            let (left, right) =
                space.map(|at| line.split_at(at)).ok_or_else(|| error("not two parts with a space between"))?;
            let right = right.strip_prefix(' ').unwrap_or(right);
            whole.clear();
            whole.push_str(left);
            whole.push_str(right);
            let id = |token: &str| ids.get(token).copied().ok_or_else(|| error(&format!("{token:?} is not a token")));
            let rank = u32::try_from(rank).map_err(|_| error("too many merges"))?;
            merges.entry((id(left)?, id(right)?)).or_insert((rank, id(&whole)?));
        }
        let normal = ids.iter().filter(|&(_, &id)| types.get(id as usize) == Some(&TokenType::Normal));
        let words =
            if rule.whole_words { normal.map(|(&word, &id)| (word.into(), id)).collect() } else { HashMap::new() };
        Ok(Self { rule, bytes, merges, words })
    }

    /// Appends the ids of `text`. A byte that the vocabulary has no token for is left out, as the reference does.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let text = self.rule.normalize(text);
        let mut symbols = Vec::new();
        for word in self.rule.split(&text) {
            if !self.words.is_empty() {
                let spelled: String = word.bytes().map(byte_to_char).collect();
                if let Some(&id) = self.words.get(&*spelled) {
                    out.push(id);
                    continue;
                }
            }
            symbols.clear();
            symbols.extend(word.bytes().filter_map(|byte| self.bytes.get(usize::from(byte)).copied().flatten()));
            merge(&mut symbols, |left, right| self.merges.get(&(left, right)).copied());
            out.extend_from_slice(&symbols);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{byte_to_char, char_to_byte};

    #[test]
    fn the_byte_table_is_gpt2s() {
        let all: Vec<char> = (0..=255).map(byte_to_char).collect();
        assert!(all.iter().enumerate().all(|(byte, &c)| char_to_byte(c) == Some(byte as u8)));
        assert_eq!([all[0x20], all[0x0A], all[0x7F], all[0xA0], all[0xAD], all[0xFF]], ['Ġ', 'Ċ', 'ġ', 'ł', 'Ń', 'ÿ']);
        assert_eq!(char_to_byte(' '), None);
    }
}
