//! Finds special tokens inside a text: control tokens only where the caller asks for them (a rendered chat template), for
//! text that a user typed must not be able to end a turn or to speak for another role.

use aho_corasick::{AhoCorasick, MatchKind};
use tallow_graph::Result;

use super::vocabulary::bad;

/// A searcher for `words` that takes the leftmost and there the longest match; none where there are no words.
pub(crate) fn automaton(words: &[&str]) -> Result<Option<AhoCorasick>> {
    if words.is_empty() {
        return Ok(None);
    }
    let build = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(words);
    build.map(Some).map_err(|e| bad(format!("cannot index the special tokens: {e}")))
}

/// A text is either special tokens or what lies between.
#[derive(Debug, PartialEq)]
pub(crate) enum Fragment<'t> {
    Text(&'t str),
    Token(u32),
}

/// A set of tokens that are recognised by their text.
pub(crate) struct Specials {
    searcher: Option<AhoCorasick>,
    ids: Vec<u32>,
}

impl Specials {
    /// The set of these tokens. Empty texts are left out.
    pub(crate) fn new<'t>(tokens: impl Iterator<Item = (u32, &'t str)>) -> Result<Self> {
        let (ids, words): (Vec<u32>, Vec<&str>) = tokens.filter(|(_, word)| !word.is_empty()).unzip();
        Ok(Self { searcher: automaton(&words)?, ids })
    }

    /// Calls `f` with the fragments of `text` in order; no text fragment is empty.
    pub(crate) fn split<'t>(&self, text: &'t str, mut f: impl FnMut(Fragment<'t>) -> Result<()>) -> Result<()> {
        let mut at = 0;
        for found in self.searcher.iter().flat_map(|searcher| searcher.find_iter(text)) {
            if found.start() > at {
                f(Fragment::Text(&text[at..found.start()]))?;
            }
            if let Some(&id) = self.ids.get(found.pattern().as_usize()) {
                f(Fragment::Token(id))?;
            }
            at = found.end();
        }
        if at < text.len() { f(Fragment::Text(&text[at..])) } else { Ok(()) }
    }
}
