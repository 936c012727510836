//! Tallow as a participant of `cargo xtask bench`: answers requests on standard input. `tallow-bench DEVICE`.
//! With `--first-token MODEL IDS` behind it, loads a model, generates one token and ends.

mod cases;
mod floors;
mod models;
mod operands;
mod train;

use std::process::ExitCode;

use tallow::Device;
use tallow_bench_protocol::{Floors, Hello, Job, Participant, Prepared, Refusal, first_token, serve};

struct Tallow {
    device: Device,
}

impl Participant for Tallow {
    fn hello(&self) -> Hello {
        let info = self.device.info();
        let isa = if self.device.is_cpu() { tallow::utils::cpu_isa().unwrap_or("unknown") } else { "" };
        let about = format!("{} {} {isa}", info.backend, info.name).trim_end().to_owned();
        Hello { name: "Tallow".into(), version: env!("CARGO_PKG_VERSION").into(), about }
    }

    fn prepare(&mut self, job: &Job) -> Result<Prepared, Refusal> {
        cases::prepare(&self.device, job)
    }

    fn floors(&mut self) -> Result<Floors, Refusal> {
        floors::measure(tallow::utils::get_num_threads())
    }
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cpu".into());
    let outcome = match tallow::block_on(Device::by_name(&name)) {
        Ok(device) => first_token(|path| models::load(&device, path))
            .unwrap_or_else(|| serve(&mut Tallow { device }).map_err(|error| error.to_string())),
        Err(error) => Err(error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tallow-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
