//! Decoding as tokens come: text is given out as soon as it is sure, never half a character, with its spaces.

use tallow_graph::Result;

use super::tokenizer::{Decoder, Tokenizer};

/// How many tokens may wait for the rest of a character, where only the file's own decoder can tell: no character has more
/// than four bytes, and a replacement character that is still there after as many tokens is meant.
const MOST_WAITING: usize = 4;

/// The state of one stream. Made by [`Tokenizer::decode_stream`].
///
/// ```
/// # use tallow::text::{Tokenizer, Vocabulary};
/// # fn main() -> tallow_graph::Result<()> {
/// # let vocabulary = Vocabulary {
/// #     model: "gpt2".into(),
/// #     tokens: ["Ã", "©", "Ġ"].map(Into::into).to_vec(),
/// #     merges: Some(vec![]),
/// #     ..Vocabulary::default()
/// # };
/// # let tokenizer = Tokenizer::from_vocabulary(&vocabulary)?;
/// let mut stream = tokenizer.decode_stream(true);
/// assert_eq!(stream.push(0)?, None); // the first byte of é
/// assert_eq!(stream.push(1)?.as_deref(), Some("é"));
/// assert_eq!(stream.push(2)?.as_deref(), Some(" "));
/// assert_eq!(stream.finish()?, None);
/// # Ok(())
/// # }
/// ```
pub struct DecodeStream {
    tokenizer: Tokenizer,
    skip_special: bool,
    /// Bytes that are not yet a character (table decoder).
    bytes: Vec<u8>,
    /// Tokens that the next ones are decoded with (the file's own decoder): first those whose text is out, then the rest.
    window: Vec<u32>,
    /// How many tokens of the window have their text out.
    out: usize,
}

impl DecodeStream {
    pub(crate) fn new(tokenizer: Tokenizer, skip_special: bool) -> Self {
        Self { tokenizer, skip_special, bytes: Vec::new(), window: Vec::new(), out: 0 }
    }

    /// Takes the next token, and gives the text that became sure with it.
    ///
    /// # Errors
    /// An id that is no token.
    pub fn push(&mut self, id: u32) -> Result<Option<String>> {
        if let Decoder::Pieces(pieces) = &self.tokenizer.inner.decoder {
            self.bytes.extend_from_slice(pieces.get(id, self.skip_special)?);
            return Ok(some(drain_valid(&mut self.bytes)));
        }
        self.tokenizer.inner.check(id)?;
        self.window.push(id);
        let waiting = self.window.len() - self.out;
        self.advance(|new| !new.ends_with(char::REPLACEMENT_CHARACTER) || waiting > MOST_WAITING)
    }

    /// Ends the stream: what is left of a character that never became whole, as U+FFFD.
    ///
    /// # Errors
    /// Those of the file's own decoder.
    pub fn finish(&mut self) -> Result<Option<String>> {
        if let Decoder::Pieces(_) = &self.tokenizer.inner.decoder {
            let rest = std::mem::take(&mut self.bytes);
            return Ok(some(String::from_utf8_lossy(&rest).into_owned()));
        }
        let rest = self.advance(|_| true);
        self.window.clear();
        self.out = 0;
        rest
    }

    /// Decodes the window with and without its new tokens; the difference is the new text.
    fn advance(&mut self, sure: impl FnOnce(&str) -> bool) -> Result<Option<String>> {
        let (old, _) = self.window.split_at(self.out.min(self.window.len()));
        let before = self.tokenizer.decode(old, self.skip_special)?;
        let after = self.tokenizer.decode(&self.window, self.skip_special)?;
        // A decoder may change the text that is out (drop a space before a comma): then give what follows the common part.
        let common = before.chars().zip(after.chars()).take_while(|(a, b)| a == b).count();
        let new: String = after.chars().skip(common).collect();
        if new.is_empty() {
            // Skipped special tokens: nothing waits.
            self.out = self.window.len();
            return Ok(None);
        }
        if !sure(&new) {
            return Ok(None);
        }
        self.window.drain(..self.out.min(self.window.len()));
        self.out = self.window.len();
        Ok(Some(new))
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// Takes from `bytes` everything up to the last whole character; what cannot become a character turns into U+FFFD.
fn drain_valid(bytes: &mut Vec<u8>) -> String {
    let mut keep = 0;
    if let Some(chunk) = bytes.utf8_chunks().last() {
        let tail = chunk.invalid();
        if std::str::from_utf8(tail).is_err_and(|e| e.error_len().is_none()) {
            keep = tail.len();
        }
    }
    let rest = bytes.split_off(bytes.len() - keep);
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}

#[cfg(test)]
mod tests {
    use super::drain_valid;

    #[test]
    fn only_a_tail_that_can_still_become_a_character_is_kept() {
        for (bytes, text, rest) in [
            (&b"abc"[..], "abc", &b""[..]),
            (b"a\xF0\x9F\x98", "a", b"\xF0\x9F\x98"),
            (b"a\xF0\x9F\x98\x80b", "a\u{1F600}b", b""),
            (b"\xFFa", "\u{FFFD}a", b""),
            (b"a\xFF", "a\u{FFFD}", b""),
            (b"\xE2\x82z", "\u{FFFD}z", b""),
            (b"\xE2\x82\xE2", "\u{FFFD}", b"\xE2"),
            (b"\xED\xA0\x80", "\u{FFFD}\u{FFFD}\u{FFFD}", b""),
        ] {
            let mut buffer = bytes.to_vec();
            assert_eq!(drain_valid(&mut buffer), text, "{bytes:?}");
            assert_eq!(buffer, rest, "{bytes:?}");
        }
    }
}
