//! What every part of a run shares: the folders, the options, and the two things that are made at most once a run, the
//! test executables and the model file.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::artifacts::{self, TestBuild};
use crate::model::{self, Model};

/// The surroundings of one run.
pub struct Context {
    /// The repository's root folder.
    pub root: PathBuf,
    /// Cargo's target folder.
    pub target: PathBuf,
    /// Run every conformance case.
    pub full: bool,
    /// Whether a missing tool may be installed.
    pub install: bool,
    cargo: OsString,
    tests: OnceCell<TestBuild>,
    model: OnceCell<Model>,
}

impl Context {
    /// Finds the folders; the repository is the parent of this crate.
    pub fn new(full: bool, install: bool) -> Result<Self, String> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .map(Path::to_path_buf)
            .filter(|root| root.join("Cargo.lock").is_file())
            .ok_or_else(|| format!("no Cargo.lock above {}; run this as `cargo xtask`", manifest.display()))?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Ok(Self { root, target, full, install, cargo, tests: OnceCell::new(), model: OnceCell::new() })
    }

    /// A `cargo` call in the root, with these arguments.
    pub fn cargo<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args(arguments).current_dir(&self.root);
        // The variables of `cargo run` describe xtask; a build script below must not take them for its own.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO_BIN_NAME" {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Every test executable of the native crates, built on the first call.
    pub fn tests(&self) -> &TestBuild {
        self.tests.get_or_init(|| artifacts::build_tests(self))
    }

    /// The model file that the tests on real weights use, fetched on the first call.
    pub fn model(&self) -> &Model {
        self.model.get_or_init(|| model::locate(self))
    }

    /// The folder of the Node scripts.
    pub fn web_tests(&self) -> PathBuf {
        self.root.join("tests").join("web")
    }

    /// Where xtask puts tools that would overwrite the user's own version of them.
    pub fn tools_dir(&self) -> PathBuf {
        self.target.join("xtask-tools")
    }
}
