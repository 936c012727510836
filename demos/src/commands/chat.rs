//! `tallow chat`: a conversation in the terminal.

use crate::{
    answer::{Answer, End, answer},
    failure::Outcome,
    interrupt::Watch,
    model_source,
    options::{ModelArgs, SamplingArgs},
    output::{Stream, note},
    report,
};
use clap::Args;
use std::io::{self, BufRead, IsTerminal, Write};
use tallow::{Error, generation::SamplingConfig, text::Message};
use tallow_models::{Finish, GenerationOptions, LanguageModel};

const TEMPERATURE: f64 = 0.7;

/// Talks with a model: /clear forgets the conversation, /exit or the end of input leaves, Ctrl-C stops an answer
#[derive(Args)]
pub struct Chat {
    #[command(flatten)]
    model: ModelArgs,
    /// Most tokens of one answer [default: as many as the context holds]
    #[arg(long, short = 'n', value_name = "N")]
    max_tokens: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Tells the model how to behave
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

impl Chat {
    /// Runs the command.
    pub fn execute(self) -> Outcome {
        let sampling = self.sampling.config(TEMPERATURE)?;
        let model = model_source::open(&self.model)?;
        if !model.has_chat_template() {
            return Err(Error::msg("this model has no chat template: use `tallow run` with plain text").into());
        }
        let device = model.decoder.device();
        note(&format!("{} on {device:?}. /clear forgets, /exit leaves, Ctrl-C stops an answer.", self.model.model));
        let mut talk = Conversation {
            model,
            messages: self.system.map(Message::system).into_iter().collect(),
            system: 0,
            held: Vec::new(),
            sampling,
            max_tokens: self.max_tokens,
        };
        talk.system = talk.messages.len();
        while let Some(line) = read_line()? {
            match line.trim() {
                "" => {}
                "/exit" | "/quit" => break,
                "/clear" => {
                    talk.clear();
                    note("The conversation is forgotten.");
                }
                command if command.starts_with('/') => {
                    note(&format!("{} is no command: there are /clear and /exit", crate::failure::one_line(command)))
                }
                text => talk.say(text)?,
            }
        }
        Ok(())
    }
}

/// The next line of standard input; `None` at its end. Where a person types, they are asked.
fn read_line() -> tallow::Result<Option<String>> {
    if io::stdin().is_terminal() {
        let mut prompt = io::stderr();
        // Nobody is left to be told that this failed.
        let _ = write!(prompt, "> ").and_then(|()| prompt.flush());
    }
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(line)),
        Err(error) => Err(Error::msg(format!("standard input cannot be read: {error}"))),
    }
}

struct Conversation {
    model: LanguageModel,
    messages: Vec<Message>,
    /// How many messages at the beginning are not forgotten.
    system: usize,
    /// The tokens that the model's cache holds.
    held: Vec<u32>,
    sampling: SamplingConfig,
    max_tokens: Option<usize>,
}

impl Conversation {
    fn clear(&mut self) {
        self.messages.truncate(self.system);
    }

    /// Says something, and shows the answer. What fails for good ends the program; a full context does not.
    fn say(&mut self, text: &str) -> Outcome {
        self.messages.push(Message::user(text));
        let prompt = self.model.encode_chat(&self.messages)?;
        let context = self.model.decoder.context();
        if prompt.len() >= context {
            self.messages.pop();
            let tokens = prompt.len();
            let what = match self.messages.len() == self.system {
                true => format!("This message takes {tokens} tokens, the context holds {context}: shorten it."),
                false => format!(
                    "The conversation would take {tokens} tokens, the context holds {context}: /clear begins anew, or \
                     shorten the message."
                ),
            };
            note(&what);
            return Ok(());
        }
        let answer = self.answer(&prompt)?;
        note(&report::summary(self.model.decoder.device(), &answer));
        if answer.end == End::Finished(Finish::ContextFull) {
            note(&format!("The context of {context} tokens is full: /clear begins anew."));
        }
        self.messages.push(Message::assistant(answer.text));
        Ok(())
    }

    /// The cache goes on from where it is if the conversation does; the template may also have changed what came before,
    /// or an answer may read back as other tokens than it was made of. Then all is computed anew.
    fn answer(&mut self, prompt: &[u32]) -> Outcome<Answer> {
        let held = std::mem::take(&mut self.held);
        let cached = if prompt.len() > held.len() && prompt.starts_with(&held) { held.len() } else { 0 };
        // The same seed in each turn would repeat its choices.
        self.sampling.seed = self.sampling.seed.wrapping_add(1);
        let options = GenerationOptions {
            sampling: self.sampling.clone(),
            max_tokens: self.max_tokens,
            ..GenerationOptions::default()
        };
        let watch = Watch::start();
        let mut stream = Stream::default();
        let answered = answer(&mut self.model, prompt, cached, options, &watch, &mut |text| stream.show(text));
        stream.end()?;
        let mut answer = answered?;
        self.held = std::mem::take(&mut answer.held);
        Ok(answer)
    }
}
