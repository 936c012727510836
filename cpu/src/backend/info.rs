//! What this processor is called and has.

use tallow_graph::Info;

use crate::{Isa, Pool};

/// The processor's own name, where it can be found.
fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let name = brand();
        if !name.is_empty() {
            return name;
        }
    }
    if cfg!(target_os = "linux")
        && let Ok(text) = std::fs::read_to_string("/proc/cpuinfo")
    {
        let field = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        if let Some(name) = field("model name").or_else(|| field("Model")).or_else(|| field("Hardware")) {
            return name;
        }
    }
    std::env::consts::ARCH.to_owned()
}

/// The brand string of CPUID leaves 0x80000002 to 4.
#[cfg(target_arch = "x86_64")]
fn brand() -> String {
    use std::arch::x86_64::__cpuid;
    if __cpuid(0x8000_0000).eax < 0x8000_0004 {
        return String::new();
    }
    let leaves = (0x8000_0002u32..=0x8000_0004).map(__cpuid);
    let bytes: Vec<u8> = leaves.flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx]).flat_map(u32::to_le_bytes).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned()
}

/// Bytes of memory, where the system tells.
fn memory() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The CPU, as a device.
pub(crate) fn info(isa: Isa, pool: &Pool) -> Info {
    let threads = pool.threads();
    let plural = if threads == 1 { "" } else { "s" };
    Info {
        name: format!("{}, {threads} thread{plural}, {}", processor(), isa.name()),
        backend: "cpu",
        driver: String::new(),
        software: false,
        features: Isa::supported().into_iter().map(Isa::name).collect(),
        limits: vec![("threads", threads as u64)],
        memory: memory(),
        max_bindings: 64,
        max_words: 1024,
        can_block: true,
    }
}
