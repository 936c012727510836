//! The choice of instruction set, at run time.
//!
//! An [`Isa`] can only be had for what this processor supports, so holding one is the proof that the `unsafe` calls
//! into `#[target_feature]` functions rely on. `TALLOW_CPU_ISA` or [`Isa::set_current`] forces a lower one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use tallow_graph::{Error, Result};

/// The instruction sets that kernels are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// What the build's target has in any case.
    Scalar = 0,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and DQ.
    Avx512,
    /// `Avx512` and its 8-bit dot product.
    Avx512Vnni,
    /// AArch64's baseline.
    Neon,
    /// NEON with its 8-bit dot product.
    NeonDot,
    /// WebAssembly's 128-bit vectors, fixed when the module was built.
    Simd128,
}

impl Level {
    /// All levels, lowest first within one architecture.
    pub const ALL: [Level; 7] =
        [Level::Scalar, Level::Avx2, Level::Avx512, Level::Avx512Vnni, Level::Neon, Level::NeonDot, Level::Simd128];

    /// The name that `TALLOW_CPU_ISA` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Avx512Vnni => "avx512vnni",
            Level::Neon => "neon",
            Level::NeonDot => "neondot",
            Level::Simd128 => "simd128",
        }
    }

    fn is_supported(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("lzcnt")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Vnni => Level::Avx512.is_supported() && is_x86_feature_detected!("avx512vnni"),
            #[cfg(target_arch = "aarch64")]
            Level::Neon => true,
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Level::Simd128 => true,
            _ => false,
        }
    }
}

/// An instruction set that this processor is known to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Isa(Level);

/// Set by [`Isa::set_current`]; `UNSET` before.
static CURRENT: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = u8::MAX;

impl Isa {
    /// Plain code, on every machine.
    pub const SCALAR: Isa = Isa(Level::Scalar);

    /// Which level this is.
    #[inline]
    pub fn level(self) -> Level {
        self.0
    }

    /// Its name, as `TALLOW_CPU_ISA` takes it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// What this processor supports, lowest first.
    pub fn supported() -> Vec<Isa> {
        Level::ALL.into_iter().filter(|level| level.is_supported()).map(Isa).collect()
    }

    /// The best that this processor supports.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::supported().last().copied().unwrap_or(Isa::SCALAR))
    }

    /// The level called `name`.
    ///
    /// # Errors
    /// An unknown name, or a level that this processor lacks; the message lists the valid ones.
    pub fn from_name(name: &str) -> Result<Isa> {
        let wanted = name.trim().to_ascii_lowercase();
        if let Some(isa) = Isa::supported().into_iter().find(|isa| isa.name() == wanted) {
            return Ok(isa);
        }
        let valid: Vec<_> = Isa::supported().into_iter().map(Isa::name).collect();
        let why = if Level::ALL.iter().any(|level| level.name() == wanted) {
            "is an instruction set that this processor or build lacks"
        } else {
            "is no instruction set"
        };
        Err(Error::Device(format!("TALLOW_CPU_ISA: {name:?} {why}. Use one of: {}", valid.join(", "))))
    }

    /// The level to use: the one that was forced by [`Isa::set_current`], else `TALLOW_CPU_ISA`, else the best.
    ///
    /// # Errors
    /// `TALLOW_CPU_ISA` holds a name that [`Isa::from_name`] refuses.
    pub fn current() -> Result<Isa> {
        let stored = CURRENT.load(Ordering::Relaxed);
        if let Some(&level) = Level::ALL.get(usize::from(stored)) {
            // Only `set_current` stores here, and it was given an `Isa`.
            return Ok(Isa(level));
        }
        static ENV: OnceLock<Option<String>> = OnceLock::new();
        match ENV.get_or_init(|| std::env::var("TALLOW_CPU_ISA").ok().filter(|name| !name.is_empty())) {
            Some(name) => Isa::from_name(name),
            None => Ok(Isa::best()),
        }
    }

    /// Forces `isa` from now on, for the whole process; `None` lifts it.
    pub fn set_current(isa: Option<Isa>) {
        CURRENT.store(isa.map_or(UNSET, |isa| isa.0 as u8), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_wrong_ones_are_explained() {
        assert_eq!(Isa::from_name("scalar").unwrap(), Isa::SCALAR);
        for isa in Isa::supported() {
            assert_eq!(Isa::from_name(isa.name()).unwrap(), isa);
        }
        let text = Isa::from_name("sse9").unwrap_err().to_string();
        assert!(text.contains("sse9") && text.contains("scalar"), "{text}");
        let absent = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
        assert!(Isa::from_name(absent).unwrap_err().to_string().contains("lacks"));
    }

    #[test]
    fn a_forced_level_is_current() {
        Isa::set_current(Some(Isa::SCALAR));
        assert_eq!(Isa::current().unwrap(), Isa::SCALAR);
        Isa::set_current(None);
    }
}
