//! `tallow run`: continues a prompt.

use crate::{
    answer::{End, answer},
    failure::{Failure, Outcome},
    interrupt::Watch,
    model_source,
    options::{ModelArgs, SamplingArgs},
    output::{Stream, note, print_line},
    report,
};
use clap::Args;
use tallow::{Error, text::Message};
use tallow_models::GenerationOptions;

/// Where a prompt that asks for nothing else ends.
const DEFAULT_MAX_TOKENS: usize = 128;

/// Continues a prompt: prints the text as it comes, then one line with device and speed
#[derive(Args)]
pub struct Run {
    /// The text to continue
    prompt: String,
    #[command(flatten)]
    model: ModelArgs,
    /// Most tokens to generate
    #[arg(long, short = 'n', value_name = "N", default_value_t = DEFAULT_MAX_TOKENS)]
    max_tokens: usize,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Take the prompt as a message, in the model's chat format
    #[arg(long)]
    chat: bool,
    /// Print one last line of JSON with ids, times and counts
    #[arg(long)]
    json: bool,
}

impl Run {
    /// Runs the command.
    pub fn execute(self) -> Outcome {
        if self.prompt.is_empty() {
            return Err(Error::msg("the prompt is empty: give at least one word").into());
        }
        let sampling = self.sampling.config(0.0)?;
        let mut model = model_source::open(&self.model)?;
        let prompt = match self.chat {
            true => model.encode_chat(&[Message::user(self.prompt)])?,
            false => model.encode(&self.prompt)?,
        };
        let options = GenerationOptions { sampling, max_tokens: Some(self.max_tokens), ..GenerationOptions::default() };
        let watch = Watch::start();
        let mut stream = Stream::default();
        let answered = answer(&mut model, &prompt, 0, options, &watch, &mut |text| stream.show(text));
        // What follows begins on a line of its own, an error too.
        stream.end()?;
        let answer = answered?;
        let device = model.decoder.device();
        note(&report::summary(device, &answer));
        if self.json {
            print_line(&report::json(device, self.model.activations_on(device), &prompt, &answer)?)?;
        }
        match answer.end {
            End::Interrupted => Err(Failure::Interrupted(None)),
            End::Finished(_) => Ok(()),
        }
    }
}
