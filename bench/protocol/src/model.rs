//! Language models as participants run them: the same prompts, greedy, and the same moments of the clock.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::case::Op;
use crate::serve::{Prepared, Refusal, peak_bytes, timed};

/// A loaded model. Both calls begin with an empty cache.
pub trait Model {
    /// The logits after the prompt.
    fn logits(&mut self, prompt: &[u32]) -> Result<Vec<f32>, Refusal>;
    /// Generates `count` tokens after the prompt, each the likeliest, and hands over each as soon as it is known.
    fn generate(&mut self, prompt: &[u32], count: usize, token: &mut dyn FnMut(u32)) -> Result<(), Refusal>;
}

/// How many tokens must be the same: later ones hang on ties that rounding decides.
const COMPARED: usize = 4;

/// Makes a case of a loaded model ready; see [`Op::LlmPrefill`] and [`Op::LlmDecode`].
pub fn prepare_model(mut model: Box<dyn Model>, op: &Op, prompt: Vec<u32>) -> Result<Prepared, Refusal> {
    match *op {
        Op::LlmPrefill => {
            let values = model.logits(&prompt)?;
            let dims = vec![values.len()];
            Ok(Prepared { values, dims, run: Box::new(move || timed(|| model.logits(&prompt))) })
        }
        Op::LlmDecode { tokens } => {
            let mut ids = Vec::new();
            model.generate(&prompt, COMPARED, &mut |id| ids.push(id as f32))?;
            let run = move || {
                // The prompt is not measured: the clock starts with the first token.
                let mut start = None;
                model.generate(&prompt, tokens + 1, &mut |_| {
                    start.get_or_insert_with(Instant::now);
                })?;
                start.map(|start| start.elapsed()).ok_or_else(|| Refusal::Failed("no token came".into()))
            };
            Ok(Prepared { dims: vec![ids.len()], values: ids, run: Box::new(run) })
        }
        ref op => Err(Refusal::Failed(format!("{op:?} is none of a model's"))),
    }
}

/// What a process that only generates one token prints: a line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FirstToken {
    /// The token.
    pub id: u32,
    /// The most memory that the process has had, in bytes.
    pub peak: u64,
}

/// The argument that asks for it, followed by the model's path and the ids of the prompt, separated by commas.
pub const FIRST_TOKEN: &str = "--first-token";

/// Serves [`FIRST_TOKEN`], if the process was started for that: loads, generates one token, prints it with the memory that
/// it took.
pub fn first_token(load: impl FnOnce(&Path) -> Result<Box<dyn Model>, Refusal>) -> Option<Result<(), String>> {
    let mut arguments = std::env::args().skip_while(|argument| argument != FIRST_TOKEN).skip(1);
    let (path, ids) = (arguments.next()?, arguments.next()?);
    let work = || -> Result<(), Refusal> {
        let prompt: Vec<u32> = ids.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let mut first = None;
        load(Path::new(&path))?.generate(&prompt, 1, &mut |id| first = Some(id))?;
        let id = first.ok_or_else(|| Refusal::Failed("no token came".into()))?;
        let peak = peak_bytes().ok_or_else(|| Refusal::Failed("the system does not tell peak memory".into()))?;
        println!("{}", serde_json::to_string(&FirstToken { id, peak })?);
        Ok(())
    };
    Some(work().map_err(|refusal| match refusal {
        Refusal::Unsupported(message) | Refusal::Failed(message) => message,
    }))
}

/// The place of the largest logit, the first of equals.
pub fn greedy(logits: &[f32]) -> u32 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&logit| logit == largest).unwrap_or(0) as u32
}
