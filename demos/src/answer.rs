//! One answer of a model, token by token, with the times and counts that the reports need.

use crate::{
    failure::{Failure, Outcome},
    interrupt::Watch,
};
use std::{
    io,
    time::{Duration, Instant},
};
use tallow::Counters;
use tallow_models::{Finish, GenerationOptions, LanguageModel};

/// Counts are taken from the third token on: the first comes from the prompt, the second meets a decode step's plan for the
/// first time.
const WARM_FROM: usize = 2;

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The model or a limit ended it.
    Finished(Finish),
    /// The user did.
    Interrupted,
}

impl End {
    /// One word, as `--json` has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Finished(Finish::End) => "end",
            Self::Finished(Finish::MaxTokens) => "max_tokens",
            Self::Finished(Finish::ContextFull) => "context_full",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What happened between the third token and the end.
#[derive(Debug, Clone, Copy)]
pub struct Warm {
    /// Steps: tokens, an end token too.
    pub steps: usize,
    /// Counts over these steps (`bytes` and `peak_bytes` mean nothing here).
    pub counters: Counters,
    /// How often the cache's capacity doubled.
    pub cache_growths: usize,
}

/// An answer and how it came about.
pub struct Answer {
    /// The tokens, without the one that ended it.
    pub ids: Vec<u32>,
    /// Their text.
    pub text: String,
    /// Why it ended.
    pub end: End,
    /// The tokens that the model's cache holds now.
    pub held: Vec<u32>,
    /// Prompt tokens that were computed: those that the cache held already are not counted.
    pub prompt_tokens: usize,
    /// From the start to the first token; `None` where none came.
    pub first_token: Option<Duration>,
    /// Steps after the first token, and their time.
    pub decode_steps: usize,
    /// Their time.
    pub decode: Duration,
    /// Counts of warm steps, where there were any.
    pub warm: Option<Warm>,
}

/// The tokens of an answer and their text, shown as it comes.
struct Shown<'a> {
    ids: Vec<u32>,
    text: String,
    show: &'a mut dyn FnMut(&str) -> io::Result<()>,
}

impl Shown<'_> {
    fn add(&mut self, piece: Option<String>) -> Outcome {
        if let Some(piece) = piece {
            self.text.push_str(&piece);
            (self.show)(&piece)?;
        }
        Ok(())
    }
}

/// Answers `prompt`, of which the model's cache holds the first `cached` tokens, and gives each piece of text to `show`.
/// Ctrl-C, seen between two tokens, ends the answer.
pub fn answer(
    model: &mut LanguageModel,
    prompt: &[u32],
    cached: usize,
    options: GenerationOptions,
    watch: &Watch,
    show: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Outcome<Answer> {
    let mut stream = model.tokenizer.decode_stream(true);
    let backend = model.decoder.device().engine().backend().clone();
    let mut shown = Shown { ids: Vec::new(), text: String::new(), show };
    let mut generation = model.generate(prompt, cached, options)?;
    let start = Instant::now();
    let mut first_token = None;
    let mut last = start;
    let mut steps = 0;
    let mut warm_start = None;
    let end = loop {
        if watch.pressed() {
            break End::Interrupted;
        }
        if steps == WARM_FROM {
            warm_start = Some((backend.counters(), generation.model().cache_growths()));
        }
        let next = tallow::block_on(generation.next())?;
        // A limit is seen without computing anything.
        if next.is_some() || generation.finish() == Some(Finish::End) {
            steps += 1;
            last = Instant::now();
            first_token.get_or_insert(last - start);
        }
        match next {
            Some(id) => {
                shown.ids.push(id);
                shown.add(stream.push(id)?)?;
            }
            None => match generation.finish() {
                Some(finish) => break End::Finished(finish),
                None => return Err(Failure::Error(tallow::Error::msg("the generation stopped without a reason"))),
            },
        }
    };
    let warm = warm_start.filter(|_| steps > WARM_FROM).map(|(before, growths)| Warm {
        steps: steps - WARM_FROM,
        counters: difference(backend.counters(), before),
        cache_growths: generation.model().cache_growths() - growths,
    });
    let seen = generation.model().position();
    let held = generation.tokens().get(..seen).unwrap_or_default().to_vec();
    shown.add(stream.finish()?)?;
    Ok(Answer {
        ids: shown.ids,
        text: shown.text,
        end,
        held,
        prompt_tokens: prompt.len() - cached,
        first_token,
        decode_steps: steps.saturating_sub(1),
        decode: first_token.map_or(Duration::ZERO, |first| (last - start).saturating_sub(first)),
        warm,
    })
}

fn difference(after: Counters, before: Counters) -> Counters {
    Counters {
        dispatches: after.dispatches.saturating_sub(before.dispatches),
        submits: after.submits.saturating_sub(before.submits),
        pipelines: after.pipelines.saturating_sub(before.pipelines),
        bind_groups: after.bind_groups.saturating_sub(before.bind_groups),
        buffers: after.buffers.saturating_sub(before.buffers),
        writes: after.writes.saturating_sub(before.writes),
        written: after.written.saturating_sub(before.written),
        ..after
    }
}
