//! `tallow pull`: fetches a model into the cache.

use crate::{failure::Outcome, model_source, output::print_line};
use clap::Args;
use tallow_models::hub;

/// Fetches a model into the user's cache and prints the path of its file
#[derive(Args)]
pub struct Pull {
    /// hf:owner/repo/file, or a known name
    #[arg(value_name = "REF", default_value = hub::DEFAULT.name)]
    model: String,
}

impl Pull {
    /// Runs the command.
    pub fn execute(self) -> Outcome {
        let path = model_source::locate(&self.model)?;
        Ok(print_line(&path.display().to_string())?)
    }
}
