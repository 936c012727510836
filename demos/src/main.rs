//! The `tallow` command line: runs language models on any device, fetches them, and shows what devices and files hold.
//!
//! One file a command under `commands`; what they share lies beside it.

mod answer;
mod commands;
mod environment;
mod failure;
mod interrupt;
mod memory;
mod model_source;
mod options;
mod output;
mod progress;
mod report;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Runs language models on GPUs through WebGPU and on plain CPUs.
#[derive(Parser)]
#[command(name = "tallow", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<commands::run::Run>),
    Chat(Box<commands::chat::Chat>),
    Devices(commands::devices::Devices),
    Pull(commands::pull::Pull),
    Inspect(commands::inspect::Inspect),
}

fn main() -> ExitCode {
    environment::quiet_without_display();
    let cli = Cli::parse();
    let done = interrupt::install().and_then(|()| match cli.command {
        Command::Run(run) => run.execute(),
        Command::Chat(chat) => chat.execute(),
        Command::Devices(devices) => devices.execute(),
        Command::Pull(pull) => pull.execute(),
        Command::Inspect(inspect) => inspect.execute(),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
