//! What is assumed of a GPU by its maker, where WebGPU does not tell: how many workgroups run at once. A measurement
//! (tune.rs of the host) knows better; these numbers choose before there is one, and in browsers.

/// Makers of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Vendor {
    /// Anybody else.
    #[default]
    Other,
    /// NVIDIA: 20 to 170 multiprocessors.
    Nvidia,
    /// AMD: 12 (integrated) to 96 compute units.
    Amd,
    /// Intel: 8 (integrated) to 32 Xe cores.
    Intel,
    /// Apple: 8 to 80 cores.
    Apple,
    /// Arm's Mali, Qualcomm's Adreno, Imagination's PowerVR: a few cores.
    Mobile,
}

impl Vendor {
    /// By PCI number (0 where there is none), and by the words that browsers and drivers give.
    pub fn of(pci: u32, words: &str) -> Self {
        let words = words.to_lowercase();
        let has = |names: &[&str]| names.iter().any(|name| words.contains(name));
        match pci {
            0x10de => Vendor::Nvidia,
            0x1002 | 0x1022 => Vendor::Amd,
            0x8086 => Vendor::Intel,
            0x106b => Vendor::Apple,
            0x13b5 | 0x5143 | 0x1010 => Vendor::Mobile,
            _ if has(&["nvidia", "geforce"]) => Vendor::Nvidia,
            _ if has(&["apple"]) => Vendor::Apple,
            _ if has(&["amd", "radeon"]) => Vendor::Amd,
            _ if has(&["intel"]) => Vendor::Intel,
            _ if has(&["mali", "adreno", "powervr", "qualcomm", "img-tec"]) => Vendor::Mobile,
            _ => Vendor::Other,
        }
    }

    /// Workgroups of 256 that run at once: two a core of a GPU of the middle class.
    pub const fn resident(self) -> f32 {
        match self {
            Vendor::Nvidia => 120.0,
            Vendor::Amd => 100.0,
            Vendor::Intel => 48.0,
            Vendor::Apple => 40.0,
            Vendor::Mobile => 16.0,
            Vendor::Other => 64.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_by_number_and_by_words() {
        for (pci, words, vendor) in [
            (0x10de, "", Vendor::Nvidia),
            (0, "NVIDIA GeForce RTX 4090", Vendor::Nvidia),
            (0, "apple common-3", Vendor::Apple),
            (0, "AMD Radeon 780M", Vendor::Amd),
            (0x8086, "llvmpipe", Vendor::Intel),
            (0, "Qualcomm Adreno 740", Vendor::Mobile),
            (0x10005, "llvmpipe (LLVM 15)", Vendor::Other),
        ] {
            assert_eq!(Vendor::of(pci, words), vendor, "{pci:x} {words}");
        }
    }
}
