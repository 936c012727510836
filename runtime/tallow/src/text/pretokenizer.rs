//! How byte-level tokenizers cut a text into words before they merge. Each model family has its own rule; a GGUF file
//! names it (`tokenizer.ggml.pre`), and this table holds the rules, as published in the models' tokenizer.json files.
//!
//! The published rules contain `\s+(?!\S)|\s+`: a run of spaces leaves its last one to the word that follows. A regular
//! expression without look-ahead, and so without backtracking, does the rest; [`Pattern::cut`] does this part by hand.

use std::borrow::Cow;

use regex::Regex;
use tallow_graph::Result;
use unicode_normalization::{UnicodeNormalization, is_nfc};

use super::vocabulary::bad;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const DIGIT: &str = r"\p{N}";
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";

/// One step of cutting: every match becomes a piece, and so does what lies between matches.
struct Pattern {
    regex: Regex,
    /// Whether the rule has the branch `\s*[\r\n]+`: then a run of spaces that ends in a line break is its match, whole.
    line_breaks: bool,
}

impl Pattern {
    /// Appends the pieces of `text` to `out`.
    fn cut<'t>(&self, text: &'t str, out: &mut Vec<&'t str>) {
        let mut at = 0;
        while let Some(found) = self.regex.find_at(text, at).filter(|found| !found.is_empty()) {
            if found.start() > at {
                out.push(&text[at..found.start()]);
            }
            let mut end = found.end();
            let run = found.as_str();
            if end < text.len()
                && !(self.line_breaks && run.ends_with(['\r', '\n']))
                && run.chars().all(char::is_whitespace)
                && let Some((last, _)) = run.char_indices().next_back().filter(|&(last, _)| last > 0)
            {
                end = found.start() + last;
            }
            out.push(&text[found.start()..end]);
            at = end;
        }
        if at < text.len() {
            out.push(&text[at..]);
        }
    }
}

/// A family's rule.
pub(crate) struct PreTokenizer {
    patterns: Vec<Pattern>,
    /// Whether texts are brought to Unicode's normal form C first.
    nfc: bool,
    /// Whether a word that is a token is taken whole, whatever the merges would make of it.
    pub(crate) whole_words: bool,
    /// Whether the family's texts begin with a bos token where the file does not say.
    pub(crate) add_bos: bool,
}

impl PreTokenizer {
    /// The rule of that name, and a warning where the name is not known and GPT-2's rule stands in.
    pub(crate) fn new(name: Option<&str>) -> Result<(Self, Option<String>)> {
        let mut warning = None;
        let (patterns, whole_words): (&[&str], bool) = match name.unwrap_or("default") {
            "default" | "gpt-2" | "gpt2" | "phi-2" | "olmo" | "mpt" => (&[GPT2], false),
            "llama-bpe" | "llama3" | "llama-v3" | "falcon3" => (&[LLAMA3], true),
            "qwen2" | "deepseek-r1-qwen" | "megrez" | "stablelm2" => (&[QWEN2], false),
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" => (&[DIGIT, GPT2], false),
            "tekken" => (&[TEKKEN], true),
            "gpt-4o" | "llama4" => (&[GPT4O], false),
            "dbrx" | "smaug-bpe" | "chatglm-bpe" => (&[LLAMA3], false),
            other => {
                warning = Some(format!(
                    "the pre-tokenizer {other:?} is not known, so GPT-2's is used: some texts may be cut into other \
                     tokens than the model was trained with"
                ));
                (&[GPT2], false)
            }
        };
        let patterns = patterns
            .iter()
            .map(|source| {
                let regex = Regex::new(source).map_err(|e| bad(format!("pre-tokenizer: {e}")))?;
                Ok(Pattern { regex, line_breaks: source.contains(r"\s*[\r\n]+") })
            })
            .collect::<Result<_>>()?;
        let add_bos = matches!(name, Some("llama-bpe" | "llama3" | "llama-v3" | "tekken"));
        Ok((Self { patterns, nfc: name == Some("qwen2"), whole_words, add_bos }, warning))
    }

    /// The text in the form that the family expects.
    pub(crate) fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.nfc && !is_nfc(text) { Cow::Owned(text.nfc().collect()) } else { Cow::Borrowed(text) }
    }

    /// Cuts a normalized text into words. Their concatenation is the text.
    pub(crate) fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut pieces = vec![text];
        for pattern in &self.patterns {
            let mut finer = Vec::with_capacity(pieces.len() * 2);
            for piece in pieces {
                pattern.cut(piece, &mut finer);
            }
            pieces = finer;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::PreTokenizer;

    fn split(name: &str, text: &str) -> Vec<String> {
        let (rule, warning) = PreTokenizer::new(Some(name)).unwrap();
        assert_eq!(warning, None);
        let words: Vec<String> = rule.split(text).into_iter().map(String::from).collect();
        assert_eq!(words.concat(), text);
        words
    }

    /// The expected cuts were made with PyPI tokenizers 0.23 from the published rules, look-ahead included.
    #[test]
    fn words_are_cut_as_published() {
        let text = "I'LL  say it's 12345\tok \n\n  Zoë!!\r\n  ";
        assert_eq!(
            split("gpt-2", text),
            ["I", "'", "LL", " ", " say", " it", "'s", " 12345", "\t", "ok", " \n\n ", " Zoë", "!!", "\r\n  "]
        );
        assert_eq!(
            split("smollm", text),
            [
                "I", "'", "LL", " ", " say", " it", "'s", " ", "1", "2", "3", "4", "5", "\t", "ok", " \n\n ", " Zoë",
                "!!", "\r\n  "
            ]
        );
        assert_eq!(
            split("llama-bpe", text),
            ["I", "'LL", " ", " say", " it", "'s", " ", "123", "45", "\tok", " \n\n", " ", " Zoë", "!!\r\n", "  "]
        );
        assert_eq!(
            split("qwen2", text),
            [
                "I", "'LL", " ", " say", " it", "'s", " ", "1", "2", "3", "4", "5", "\tok", " \n\n", " ", " Zoë",
                "!!\r\n", "  "
            ]
        );
    }

    #[test]
    fn an_unknown_name_warns() {
        let (_, warning) = PreTokenizer::new(Some("nobody")).unwrap();
        assert!(warning.unwrap().contains("nobody"));
    }

    #[test]
    fn a_million_spaces_are_cut_in_linear_time() {
        let text = format!("{}x", " ".repeat(1 << 20));
        assert_eq!(split("llama-bpe", &text).len(), 2);
    }
}
