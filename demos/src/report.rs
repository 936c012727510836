//! What is said of an answer when it is done: one line for people, one for programs.

use crate::{
    answer::{Answer, End},
    memory,
};
use serde::Serialize;
use std::time::Duration;
use tallow::Device;
use tallow_models::Finish;

/// Tokens a second; `None` where nothing was measured.
fn rate(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

fn prefill_rate(answer: &Answer) -> Option<f64> {
    answer.first_token.and_then(|time| rate(answer.prompt_tokens, time))
}

fn decode_rate(answer: &Answer) -> Option<f64> {
    rate(answer.decode_steps, answer.decode)
}

/// Device, prompt and decode tokens/s, and why it ended where that is not the usual way.
pub fn summary(device: &Device, answer: &Answer) -> String {
    let per_second = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.1}"));
    let end = match answer.end {
        End::Finished(Finish::End | Finish::MaxTokens) => "",
        End::Finished(Finish::ContextFull) => "; the context is full",
        End::Interrupted => "; interrupted",
    };
    format!(
        "{device:?}: prompt {} tokens, {} tokens/s; decode {} tokens, {} tokens/s{end}",
        answer.prompt_tokens,
        per_second(prefill_rate(answer)),
        answer.decode_steps,
        per_second(decode_rate(answer)),
    )
}

/// The line of `--json`. Counts are `null` where the answer was too short to have warm steps.
#[derive(Serialize)]
struct Line<'a> {
    /// `cpu`, `wgpu`.
    device: &'static str,
    device_name: &'a str,
    device_driver: &'a str,
    device_software: bool,
    activations: &'static str,
    prompt_ids: &'a [u32],
    ids: &'a [u32],
    text: &'a str,
    /// `end`, `max_tokens`, `context_full`, `interrupted`.
    finish: &'static str,
    /// Prompt tokens over the time to the first token.
    prefill_tok_s: Option<f64>,
    /// Tokens after the first over their time.
    decode_tok_s: Option<f64>,
    first_token_ms: Option<f64>,
    /// Of the process, in RAM.
    peak_memory_bytes: Option<u64>,
    /// Of the device, as its backend counts it.
    peak_device_bytes: u64,
    dispatches_per_token: Option<f64>,
    /// From the third token on, as all that is called warm.
    pipelines_created_warm: Option<u64>,
    bind_groups_created_warm: Option<u64>,
    buffers_created_warm: Option<u64>,
    /// How often the cache's capacity doubled meanwhile: each time makes buffers and bind groups anew.
    cache_growths_warm: Option<usize>,
    warm_tokens: usize,
}

/// One line of JSON about `answer`.
pub fn json(
    device: &Device,
    activations: tallow::Activations,
    prompt: &[u32],
    answer: &Answer,
) -> tallow::Result<String> {
    let info = device.info();
    let warm = answer.warm.as_ref();
    let count = |f: fn(&tallow::Counters) -> u64| warm.map(|warm| f(&warm.counters));
    let line = Line {
        device: info.backend,
        device_name: &info.name,
        device_driver: &info.driver,
        device_software: info.software,
        activations: match activations {
            tallow::Activations::F32 => "f32",
            tallow::Activations::Q8 => "q8",
        },
        prompt_ids: prompt,
        ids: &answer.ids,
        text: &answer.text,
        finish: answer.end.word(),
        prefill_tok_s: prefill_rate(answer),
        decode_tok_s: decode_rate(answer),
        first_token_ms: answer.first_token.map(|time| time.as_secs_f64() * 1e3),
        peak_memory_bytes: memory::peak_bytes(),
        peak_device_bytes: device.engine().backend().counters().peak_bytes,
        dispatches_per_token: warm.map(|warm| warm.counters.dispatches as f64 / warm.steps as f64),
        pipelines_created_warm: count(|c| c.pipelines),
        bind_groups_created_warm: count(|c| c.bind_groups),
        buffers_created_warm: count(|c| c.buffers),
        cache_growths_warm: warm.map(|warm| warm.cache_growths),
        warm_tokens: warm.map_or(0, |warm| warm.steps),
    };
    serde_json::to_string(&line).map_err(|error| tallow::Error::msg(format!("the report cannot be written: {error}")))
}
