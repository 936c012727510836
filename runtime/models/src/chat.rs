//! A conversation as ids. A template's output is read with its control tokens, and messages are written by people: where one
//! spells a control token, it must not end a turn or speak for another role. Such spellings go through the template as
//! private characters, and become plain text afterwards.

use std::collections::BTreeSet;
use tallow::{
    Error, Result,
    text::{ChatTemplate, Message, Tokenizer},
};

/// Characters for private use, of which no text should have any.
const PRIVATE: std::ops::RangeInclusive<char> = '\u{f0000}'..='\u{ffffd}';

/// The ids of a conversation up to where the assistant answers. Messages that spell no control token give exactly what
/// [`Tokenizer::encode_with_special_tokens`] makes of the rendered template.
pub(crate) fn encode(tokenizer: &Tokenizer, template: &ChatTemplate, messages: &[Message]) -> Result<Vec<u32>> {
    let mut guard = Guard::new(tokenizer, messages);
    let mut safe = Vec::with_capacity(messages.len());
    for message in messages {
        safe.push(Message::new(guard.hide(&message.role)?, guard.hide(&message.content)?));
    }
    guard.encode(&template.render(&safe, true)?)
}

/// Hides spellings behind private characters, and shows them again.
struct Guard<'t> {
    tokenizer: &'t Tokenizer,
    /// Private characters that the messages have themselves.
    used: BTreeSet<char>,
    /// What each private character stands for.
    hidden: Vec<(char, String)>,
}

impl<'t> Guard<'t> {
    fn new(tokenizer: &'t Tokenizer, messages: &[Message]) -> Self {
        let texts = messages.iter().flat_map(|message| [&message.role, &message.content]);
        let used = texts.flat_map(|text| text.chars()).filter(|c| PRIVATE.contains(c)).collect();
        Self { tokenizer, used, hidden: Vec::new() }
    }

    /// The text with a private character in place of each control token that it spells.
    fn hide(&mut self, text: &str) -> Result<String> {
        let mut safe = text.to_string();
        loop {
            let with = self.tokenizer.encode_with_special_tokens(&safe, false)?;
            if with == self.tokenizer.encode(&safe, false)? {
                return Ok(safe);
            }
            let spelled: BTreeSet<&str> = with.iter().filter_map(|&id| self.control(id)).collect();
            // The longest first: one may be a part of another.
            let mut spelled: Vec<&str> = spelled.into_iter().filter(|token| safe.contains(token)).collect();
            spelled.sort_by_key(|token| std::cmp::Reverse(token.len()));
            if spelled.is_empty() {
                // Spelled in a way of the tokenizer's own, in another case say: the whole text is kept from the template.
                return Ok(self.mark(text)?.to_string());
            }
            for token in spelled {
                let mark = self.mark(token)?;
                safe = safe.replace(token, mark.encode_utf8(&mut [0; 4]));
            }
        }
    }

    /// The token's text, where it is a token only for those who ask for control tokens.
    fn control(&self, id: u32) -> Option<&'t str> {
        let text = self.tokenizer.id_to_token(id).filter(|text| !text.is_empty())?;
        let plain = self.tokenizer.encode(text, false).ok()?;
        (plain != [id]).then_some(text)
    }

    /// The private character that stands for `text`.
    fn mark(&mut self, text: &str) -> Result<char> {
        if let Some((mark, _)) = self.hidden.iter().find(|(_, hidden)| hidden == text) {
            return Ok(*mark);
        }
        let free =
            |c: &char| !self.used.contains(c) && self.tokenizer.token_to_id(c.encode_utf8(&mut [0; 4])).is_none();
        let mark = PRIVATE.into_iter().find(free);
        let mark = mark.ok_or_else(|| Error::msg("the messages use all private characters: leave some out"))?;
        self.used.insert(mark);
        self.hidden.push((mark, text.to_string()));
        Ok(mark)
    }

    /// The ids of the template's output: what was hidden as plain text, the rest with its control tokens.
    fn encode(&self, rendered: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        let mut rest = rendered;
        let hidden = |c: char| self.hidden.iter().find(|(mark, _)| *mark == c);
        while let Some((at, (mark, text))) = rest.char_indices().find_map(|(at, c)| Some((at, hidden(c)?))) {
            if at > 0 {
                ids.extend(self.tokenizer.encode_with_special_tokens(&rest[..at], false)?);
            }
            ids.extend(self.tokenizer.encode(text, false)?);
            rest = &rest[at + mark.len_utf8()..];
        }
        if !rest.is_empty() || ids.is_empty() {
            ids.extend(self.tokenizer.encode_with_special_tokens(rest, false)?);
        }
        Ok(ids)
    }
}
