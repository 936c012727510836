//! What the tests of the command line share: running it, and tiny but complete models to run it on.

#[path = "../../../../runtime/models/tests/common/model.rs"]
pub mod model;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The binary with a cache folder of its own and no way to the network.
pub fn tallow(cache: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tallow"));
    command
        .env("TALLOW_CACHE", cache)
        .env("HF_HUB_CACHE", cache.join("none"))
        .env("HF_HUB_OFFLINE", "1")
        .env_remove("HF_ENDPOINT")
        .env_remove("TALLOW_DEBUG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// How a run ended and what it said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Said {
    /// The last line of standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Fails unless the run said exactly one line, an error with these words, and gave status 1.
    pub fn assert_error(&self, words: &str) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("error: ") && self.stderr.contains(words), "{words}: {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}

/// Runs to the end.
pub fn run(cache: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Said {
    tallow(cache).args(args).output().unwrap().into()
}

/// Runs to the end with `input` as standard input.
pub fn run_with_input(cache: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &str) -> Said {
    let mut child = tallow(cache).args(args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap().into()
}

/// Sends SIGINT, as Ctrl-C does.
#[cfg(unix)]
pub fn interrupt(child: &Child) {
    let sent = Command::new("sh").args(["-c", &format!("kill -INT {}", child.id())]).status().unwrap();
    assert!(sent.success());
}
