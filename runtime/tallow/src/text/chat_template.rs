//! Chat templates: the Jinja program in a model's file that turns messages into the prompt which the model was trained on.
//!
//! A template is code from a stranger. It runs with fuel, which bounds its time and memory; the engine bounds recursion;
//! and assignments to namespaces go through a filter that keeps values shallow (see [`prepare`]). It reads no files and
//! no other templates.

use std::borrow::Cow;
use std::time::Duration;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error as JinjaError, ErrorKind, Value};
use tallow_graph::{Error, Result};

use super::date;
use super::python;

/// Longest template source, in bytes; published ones stay under a tenth of it.
const MAX_SOURCE: usize = 1 << 18;

/// Fuel of one rendering: one fuel pays for an instruction or for 64 bytes, so this bounds memory to some 32 MiB and time
/// to a fraction of a second.
const FUEL: u64 = 500_000;

/// Depth of macros and recursive loops; small, for a browser's stack is.
const MAX_RECURSION: usize = 100;

const NAME: &str = "chat template";

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the model knows.
    pub role: String,
    /// What they say.
    pub content: String,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }

    /// A message that tells the model how to behave.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// A message of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }
}

/// A compiled template.
///
/// ```
/// use tallow::text::{ChatTemplate, Message};
///
/// # fn main() -> tallow_graph::Result<()> {
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content.strip() }}\n{% endfor %}";
/// let template = ChatTemplate::new(source, None, None)?;
/// assert_eq!(template.render(&[Message::user(" Hi ")], true)?, "<user>Hi\n");
/// # Ok(())
/// # }
/// ```
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("bos", &self.bos).field("eos", &self.eos).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of the model's special tokens, which templates may print.
    ///
    /// # Errors
    /// A template that does not parse, or is longer than 256 KiB.
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            return Err(bad(format!("the source has {} bytes; at most {MAX_SOURCE} are read", source.len())));
        }
        // The settings of the `transformers` library, which the templates are written for.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| describe(&e))?;
        let source = prepare(source, &syntax).map_err(|e| describe(&e))?.into_owned();
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment.set_recursion_limit(MAX_RECURSION);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(python::method);
        environment.add_filter("tojson", python::to_json);
        environment.add_filter(KEEP, python::keep);
        environment.add_function("raise_exception", |message: String| -> Result<Value, JinjaError> {
            Err(JinjaError::new(ErrorKind::InvalidOperation, format!("the template refuses the messages: {message}")))
        });
        environment.add_function("strftime_now", |format: String| {
            date::format(date::now(), &format).map_err(|e| JinjaError::new(ErrorKind::InvalidOperation, e))
        });
        environment.add_template_owned(NAME, source).map_err(|e| describe(&e))?;
        Ok(Self { environment, bos: bos.map(str::to_owned), eos: eos.map(str::to_owned) })
    }

    /// Sets the clock that `strftime_now` shows, as time since 1970 in UTC, instead of the present.
    pub fn set_now(&mut self, now: Duration) {
        let now = now.as_secs();
        self.environment.add_function("strftime_now", move |format: String| {
            date::format(now, &format).map_err(|e| JinjaError::new(ErrorKind::InvalidOperation, e))
        });
    }

    /// The prompt for a conversation; with `add_generation_prompt`, up to where the model's answer begins. Encode it with
    /// [`Tokenizer::encode_with_special_tokens`](super::Tokenizer::encode_with_special_tokens), without special tokens
    /// added: the template writes those itself.
    ///
    /// # Errors
    /// A template that refuses the messages, fails, or needs more work than the fuel pays for (it loops).
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let message = |m: &Message| Value::from_pairs([("role", &*m.role), ("content", &*m.content)]);
        let mut context = vec![
            ("messages", messages.iter().map(message).collect::<Value>()),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        for (name, text) in [("bos_token", &self.bos), ("eos_token", &self.eos)] {
            context.extend(text.as_ref().map(|text| (name, Value::from(&**text))));
        }
        // Long conversations need more: what every message costs, and several copies of each text.
        let bytes: usize = messages.iter().map(|m| m.content.len() + m.role.len()).sum();
        let extra = messages.len() as u64 * 2_000 + bytes as u64;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add(extra)));
        let template = environment.get_template(NAME).map_err(|e| describe(&e))?;
        template.render(Value::from_pairs(context)).map_err(|e| describe(&e))
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::format(NAME, message)
}

/// The engine's error in one line, with what led to it.
fn describe(error: &JinjaError) -> Error {
    if error.kind() == ErrorKind::OutOfFuel {
        return bad("it needs more work than any real template does, so it was stopped: it probably loops");
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    bad(text)
}

/// Name of the filter that bounds what a namespace keeps. Templates can't redefine filters.
const KEEP: &str = "tallow_keep";

/// Two changes to the source, found with the engine's own lexer so that nothing can be hidden from them:
/// - `{% set ns.x = E %}` becomes `{% set ns.x = (E)|tallow_keep %}`;
/// - `{% generation %}`, a mark for training that the engine does not know, becomes a block that is always rendered.
fn prepare<'s>(source: &'s str, syntax: &SyntaxConfig) -> Result<Cow<'s, str>, JinjaError> {
    // What to put where: (from, to, text), in order.
    let mut edits: Vec<(usize, usize, Cow<'static, str>)> = Vec::new();
    let mut tokens = tokenize(source, false, syntax.clone());
    while let Some(token) = tokens.next() {
        if !matches!(token?.0, Token::BlockStart) {
            continue;
        }
        let Some(keyword) = tokens.next() else { break };
        let (keyword, span) = keyword?;
        let here = (span.start_offset as usize, span.end_offset as usize);
        let is_set = match keyword {
            Token::Ident("generation") => {
                edits.push((here.0, here.1, "if true".into()));
                false
            }
            Token::Ident("endgeneration") => {
                edits.push((here.0, here.1, "endif".into()));
                false
            }
            Token::Ident(word) => word == "set",
            _ => false,
        };
        if !is_set {
            continue;
        }
        let (mut dotted, mut filtered, mut value_from, mut value_to) = (false, false, None, here.1);
        for token in tokens.by_ref() {
            match token? {
                (Token::BlockEnd, _) => break,
                (token, span) => {
                    match token {
                        Token::Dot if value_from.is_none() => dotted = true,
                        Token::Pipe if value_from.is_none() => filtered = true,
                        Token::Assign if value_from.is_none() => value_from = Some(span.end_offset as usize),
                        _ => {}
                    }
                    value_to = span.end_offset as usize;
                }
            }
        }
        match (dotted, value_from) {
            (true, Some(from)) => {
                edits.push((from, from, "(".into()));
                edits.push((value_to, value_to, format!(")|{KEEP}").into()));
            }
            (true, None) if filtered => {
                return Err(JinjaError::new(
                    ErrorKind::SyntaxError,
                    "a filtered set block can't assign to an attribute; use a plain set after it",
                ));
            }
            _ => {}
        }
    }
    if edits.is_empty() {
        return Ok(Cow::Borrowed(source));
    }
    let mut out = String::with_capacity(source.len() + 32 * edits.len());
    let mut at = 0;
    for (from, to, text) in edits {
        out.push_str(source.get(at..from).unwrap_or_default());
        out.push_str(&text);
        at = to;
    }
    out.push_str(source.get(at..).unwrap_or_default());
    Ok(Cow::Owned(out))
}
