//! Builds every native test executable once. Unit, conformance and shader tests then run from the same build: asking
//! cargo for one package at a time would resolve other features (naga's writers are a dev-dependency of one crate), and
//! build wgpu again for each.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::context::Context;
use crate::process;
use crate::report::PartReport;
use crate::tally::Tally;

/// How long one test program may take before it counts as hanging.
const TEST_LIMIT: Duration = Duration::from_secs(30 * 60);

/// One executable that cargo built.
#[derive(Debug, Clone, PartialEq)]
pub struct Executable {
    /// The package it belongs to, as the folder that holds its Cargo.toml.
    pub package_dir: PathBuf,
    /// The target's name: `shaders` for tests/shaders.rs, the crate's name for its unit tests.
    pub target: String,
    /// Whether it is a test program (else a binary that the tests call).
    pub is_test: bool,
    /// The file.
    pub path: PathBuf,
}

/// The outcome of the build.
pub struct TestBuild {
    /// What was built; not empty even when something else failed to build.
    pub executables: Vec<Executable>,
    /// Whether everything was built.
    pub result: Result<(), String>,
}

impl TestBuild {
    /// The test programs of the package in `folder` below the root, those whose target is accepted.
    pub fn programs<'a>(
        &'a self,
        context: &'a Context,
        accept: impl Fn(&str, &str) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Executable> {
        self.executables.iter().filter(move |executable| {
            let folder = executable.package_dir.strip_prefix(&context.root).unwrap_or(&executable.package_dir);
            executable.is_test && accept(&folder.to_string_lossy().replace('\\', "/"), &executable.target)
        })
    }
}

/// Builds the test programs of all packages except the browser crate.
pub fn build_tests(context: &Context) -> TestBuild {
    let mut command = context.cargo(["test", "--no-run", "--workspace", "--exclude", "tallow-web"]);
    command.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    println!("$ {}", process::shown(&command));
    match command.output() {
        Ok(done) => {
            let text = String::from_utf8_lossy(&done.stdout);
            let executables = text.lines().filter_map(parse_artifact).collect();
            let result =
                if done.status.success() { Ok(()) } else { Err("the tests do not build; see above".to_owned()) };
            TestBuild { executables, result }
        }
        Err(error) => TestBuild { executables: Vec::new(), result: Err(format!("cargo did not start: {error}")) },
    }
}

/// Reads one line of cargo's JSON messages.
fn parse_artifact(line: &str) -> Option<Executable> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" {
        return None;
    }
    Some(Executable {
        package_dir: Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf(),
        target: message["target"]["name"].as_str()?.to_owned(),
        is_test: message["profile"]["test"].as_bool()?,
        path: PathBuf::from(message["executable"].as_str()?),
    })
}

/// Runs the accepted test programs (by package folder and target name) in their package's folder, as cargo would.
pub fn run_programs(
    context: &Context,
    report: &mut PartReport,
    environment: &[(&str, String)],
    accept: impl Fn(&str, &str) -> bool,
) {
    let build = context.tests();
    if let Err(error) = &build.result {
        report.fail(error.clone());
    }
    for program in build.programs(context, accept) {
        let mut command = Command::new(&program.path);
        command.arg("--show-output").current_dir(&program.package_dir);
        command.env("CARGO_MANIFEST_DIR", &program.package_dir);
        if context.full {
            command.env("TALLOW_TEST_FULL", "1");
        }
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        let mut tally = Tally::default();
        let end = process::watch(&mut command, TEST_LIMIT, |line| tally.line(line));
        report.add(&program.target, tally, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_read_from_cargo_s_messages() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///r/shaders#tallow-wgpu@0.1.0",
            "manifest_path":"/r/shaders/Cargo.toml","target":{"kind":["test"],"name":"shaders"},
            "profile":{"opt_level":"1","test":true},"executable":"/r/target/debug/deps/shaders-1f"}"#;
        let expected = Executable {
            package_dir: "/r/shaders".into(),
            target: "shaders".into(),
            is_test: true,
            path: "/r/target/debug/deps/shaders-1f".into(),
        };
        assert_eq!(parse_artifact(&line.replace('\n', "")), Some(expected));
    }

    #[test]
    fn libraries_and_other_messages_are_passed_over() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/r/Cargo.toml","target":{"name":"x"},
            "profile":{"test":false},"executable":null}"#;
        assert_eq!(parse_artifact(&library.replace('\n', "")), None);
        assert_eq!(parse_artifact(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(parse_artifact("no JSON"), None);
    }
}
