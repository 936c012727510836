//! `tallow devices`: what there is to compute on.

use crate::{failure::Outcome, failure::one_line, output::print_line};
use clap::Args;
use indicatif::BinaryBytes;
use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write};
use tallow::{Device, Info};

/// Lists the devices: name, backend, features, limits, memory
#[derive(Args)]
pub struct Devices {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A device as it is listed.
#[derive(Serialize)]
struct Listed {
    /// What `--device` takes.
    device: String,
    name: String,
    backend: &'static str,
    driver: String,
    /// Whether a CPU does a GPU's work.
    software: bool,
    /// Whether `--device best` means this one.
    best: bool,
    memory_bytes: Option<u64>,
    features: Vec<&'static str>,
    limits: BTreeMap<&'static str, u64>,
    /// Why it cannot be used.
    error: Option<String>,
}

impl Listed {
    fn new(device: String, info: &Info) -> Self {
        Self {
            device,
            name: info.name.clone(),
            backend: info.backend,
            driver: info.driver.clone(),
            software: info.software,
            best: false,
            memory_bytes: info.memory,
            features: info.features.clone(),
            limits: info.limits.iter().copied().collect(),
            error: None,
        }
    }

    fn text(&self) -> String {
        let mut marks = String::new();
        if self.best {
            marks.push_str("  [best]");
        }
        if self.software {
            marks.push_str("  [software: slow, never best]");
        }
        let mut out = format!("{:<8} {}{marks}\n", self.device, one_line(&self.name));
        let mut line = |name: &str, value: &str| {
            if !value.is_empty() {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{:<8} {name:<9} {value}", "");
            }
        };
        line("backend", self.backend);
        line("driver", &one_line(&self.driver));
        line("memory", &self.memory_bytes.map_or("not known".into(), |bytes| BinaryBytes(bytes).to_string()));
        line("features", &self.features.join(", "));
        let limits: Vec<String> = self.limits.iter().map(|(name, value)| format!("{name} {value}")).collect();
        line("limits", &limits.join(", "));
        line("error", &one_line(self.error.as_deref().unwrap_or_default()));
        out
    }
}

impl Devices {
    /// Runs the command.
    pub fn execute(self) -> Outcome {
        let devices = list()?;
        if self.json {
            let json = serde_json::to_string_pretty(&devices)
                .map_err(|error| tallow::Error::msg(format!("the list cannot be written: {error}")))?;
            return Ok(print_line(&json)?);
        }
        for device in &devices {
            print_line(&device.text())?;
        }
        if devices.iter().all(|device| device.backend == "cpu") {
            print_line("No GPU can be reached through WebGPU (Vulkan, Metal or DX12) here.")?;
        }
        Ok(())
    }
}

/// The CPU, then the adapters by number. Best is what [`Device::best`] takes: the first hardware adapter, if it opens.
fn list() -> tallow::Result<Vec<Listed>> {
    let mut devices = vec![Listed::new("cpu".into(), Device::Cpu.info())];
    let adapters = tallow::block_on(async { Ok(Device::list_wgpu().await) })?;
    let hardware = adapters.iter().position(|adapter| !adapter.software);
    let mut best = 0;
    for (index, adapter) in adapters.into_iter().enumerate() {
        let name = format!("wgpu:{index}");
        match Device::new_wgpu(index) {
            Ok(device) => {
                if hardware == Some(index) {
                    best = devices.len();
                }
                devices.push(Listed::new(name, device.info()));
            }
            Err(error) => devices.push(Listed {
                device: name,
                name: adapter.name,
                backend: "wgpu",
                driver: format!("{} {}", adapter.api, adapter.driver),
                software: adapter.software,
                best: false,
                memory_bytes: None,
                features: Vec::new(),
                limits: BTreeMap::new(),
                error: Some(error.to_string()),
            }),
        }
    }
    if let Some(device) = devices.get_mut(best) {
        device.best = true;
    }
    Ok(devices)
}
