//! What one GPU reaches: first what it can (copying, fused multiply-adds, 8-bit dot products), then kernels and a model,
//! each as a share of that. Needs no network and no files. It obeys its minutes: what no time is left for is named as
//! skipped. `cargo xtask bench gpu` builds it, and lays it beside the Vulkan loader for another machine.

mod ceilings;
mod clock;
mod kernels;
mod model;
mod report;

use clock::Clock;
use report::Report;
use std::{path::PathBuf, process::ExitCode, time::Duration};
use tallow::{Device, Result};

const HELP: &str = "tallow-bench-gpu [--minutes M] [--device wgpu:N] [--small] [--out FILE]

    --minutes M    time for everything (8)
    --device D     the GPU: wgpu (the first that is no software), wgpu:1
    --small        sizes that a software GPU computes; without it such a GPU is refused
    --out FILE     where the figures go (gpu-bench.md)";

struct Options {
    minutes: f64,
    device: String,
    small: bool,
    out: PathBuf,
}

fn options() -> std::result::Result<Option<Options>, String> {
    let mut options = Options { minutes: 8.0, device: "wgpu".into(), small: false, out: "gpu-bench.md".into() };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--small" => options.small = true,
            "--device" => options.device = value()?,
            "--out" => options.out = value()?.into(),
            "--minutes" => {
                let text = value()?;
                let minutes = text.parse().ok().filter(|minutes| (0.05..=600.0).contains(minutes));
                options.minutes = minutes.ok_or_else(|| format!("--minutes takes 0.05 to 600, not {text}"))?;
            }
            other => return Err(format!("there is no option {other}\n{HELP}")),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tallow-bench-gpu: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let device = tallow::block_on(Device::by_name(&options.device))?;
    if !device.is_wgpu() {
        return Err(tallow::Error::msg(format!("{} is no GPU: give --device wgpu or wgpu:N", options.device)));
    }
    if device.info().software && !options.small {
        let message = format!("{} is a software GPU, whose times mean nothing: --small tries it", device.info().name);
        return Err(tallow::Error::msg(message));
    }
    let clock = Clock::new(&device, Duration::from_secs_f64(options.minutes * 60.0), options.small);
    let mut report = Report::new(&device, options.minutes, options.small);
    let outcome = measure(&clock, &mut report);
    if let Err(error) = &outcome {
        report.note(format!("stopped: {error}"));
    }
    let text = report.finish(&clock);
    print!("{text}");
    std::fs::write(&options.out, &text)
        .map_err(|error| tallow::Error::msg(format!("{}: {error}", options.out.display())))?;
    println!("\nwritten to {}", options.out.display());
    outcome
}

/// Everything in the order of what it tells, so that a short run has the most important figures.
fn measure(clock: &Clock, report: &mut Report) -> Result<()> {
    let ceilings = ceilings::measure(clock, report)?;
    model::measure(clock, report, &ceilings)?;
    kernels::measure(clock, report, &ceilings)
}
