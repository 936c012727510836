//! `cargo xtask`: every chore of the repository. This file reads the command line and hands over; `parts` holds what
//! `test` runs, `bench` measures, `tools` finds or installs what a part needs, `report` adds up.

mod args;
mod artifacts;
mod bench;
mod bench_gpu;
mod context;
mod lockfile;
mod model;
mod ops;
mod parts;
mod process;
mod report;
mod tally;
mod tools;
mod wasm_module;

use std::process::ExitCode;

use args::Command;
use context::Context;
use report::Report;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match args::parse(&arguments) {
        Ok(Command::Help) => {
            print!("{}", args::help());
            ExitCode::SUCCESS
        }
        Ok(Command::Test(options)) => match Context::new(options.full, options.install) {
            Ok(context) => {
                let mut report = Report::default();
                for part in options.parts {
                    report.parts.push(part.run(&context));
                }
                print!("{report}");
                if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => fail(&error),
        },
        Ok(Command::Ops) => chore(ops::write),
        Ok(Command::Bench(options)) => chore(|context| bench::run(context, &options)),
        Ok(Command::BenchGrowth(options)) => chore(|context| bench::growth::run(context, &options)),
        Ok(Command::BenchWeb(options)) => chore(|context| bench::web::run(context, &options)),
        Ok(Command::BenchSize(write)) => chore(|context| bench::size::run(context, write)),
        Ok(Command::BenchGpu(arguments)) => chore(|context| bench_gpu::run(context, &arguments)),
        Err(error) => fail(&format!("{error}\n`cargo xtask --help` lists what there is.")),
    }
}

/// Does what is no test: tools may be installed for it.
fn chore(work: impl FnOnce(&Context) -> Result<(), String>) -> ExitCode {
    match Context::new(false, true).and_then(|context| work(&context)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("xtask: {message}");
    ExitCode::from(2)
}
