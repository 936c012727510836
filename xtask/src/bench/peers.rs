//! Who takes part, and where they come from: Tallow is built by cargo, its peers are built or downloaded on demand into one
//! folder, in pinned versions. A peer that cannot be had is named as absent and stops nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::participant::Spec;
use crate::context::Context;
use crate::process;
use crate::tools::{find, install};

/// Keys, as targets and raw results name participants, and titles, as tables do.
const TITLES: [(&str, &str); 5] = [
    ("tallow", "Tallow"),
    ("candle", "candle"),
    ("torch", "PyTorch"),
    ("numpy", "numpy"),
    ("onnxruntime", "ONNX Runtime"),
];

/// The title of a key.
pub fn title(key: &str) -> Option<&'static str> {
    TITLES.iter().find(|(name, _)| *name == key).map(|(_, title)| *title)
}

/// Builds Tallow's participant with the workspace's release profile.
pub fn tallow(context: &Context, device: &str) -> Result<Spec, String> {
    let mut command = context.cargo(["build", "--quiet", "--release", "--package", "tallow-bench"]);
    process::run(&mut command)?;
    let program = context.target.join("release").join(executable("tallow-bench"));
    Ok(spec("tallow", program, &[device.as_ref()]))
}

/// The peers that can be had, and those that cannot, with why.
pub fn peers(context: &Context, folder: &Path) -> (Vec<Spec>, Vec<(String, String)>) {
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    match candle(context, folder) {
        Ok(spec) => there.push(spec),
        Err(error) => absent.push(("candle".to_owned(), error)),
    }
    match python(context, folder) {
        Ok(python) => {
            let script = context.root.join("bench/peers/python/participant.py");
            // PyTorch and numpy bring thread pools of their own; each is a process of its own.
            for key in ["torch", "numpy", "onnxruntime"] {
                there.push(spec(key, python.clone(), &[script.as_os_str(), key.as_ref()]));
            }
        }
        Err(error) => {
            absent.extend(["torch", "numpy", "onnxruntime"].map(|key| (key.to_owned(), error.clone())));
        }
    }
    (there, absent)
}

fn spec(key: &str, program: PathBuf, arguments: &[&std::ffi::OsStr]) -> Spec {
    let arguments = arguments.iter().map(|argument| argument.to_os_string()).collect();
    Spec { key: key.to_owned(), program, arguments, environment: Vec::new() }
}

fn executable(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// candle, for this very processor: as it builds by default it is far slower, and Tallow chooses its instructions when it
/// runs.
fn candle(context: &Context, folder: &Path) -> Result<Spec, String> {
    let target = folder.join("candle");
    let mut command = context.cargo(["build", "--quiet", "--release", "--locked"]);
    command.arg("--manifest-path").arg(context.root.join("bench/peers/candle/Cargo.toml"));
    command.arg("--target-dir").arg(&target).env("RUSTFLAGS", "-C target-cpu=native");
    // A faster build of Tallow is nobody else's business.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            command.env_remove(name);
        }
    }
    if !target.join("release").is_dir() {
        println!("building candle (about five minutes on two cores, once)");
    }
    process::run(&mut command)?;
    Ok(spec("candle", target.join("release").join(executable("bench-candle")), &[]))
}

/// A Python with the packages of requirements.txt.
fn python(context: &Context, folder: &Path) -> Result<PathBuf, String> {
    let wanted = context.root.join("bench/peers/python/requirements.txt");
    let requirements = std::fs::read_to_string(&wanted)
        .map_err(|error| format!("bench/peers/python/requirements.txt cannot be read: {error}"))?;
    let environment = folder.join("python");
    let python = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    // A copy of the list marks what was installed.
    let mark = environment.join("tallow-requirements.txt");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == requirements) {
        return Ok(python);
    }
    if !python.is_file() {
        let system =
            find(context, "python3").ok_or("Python 3 with venv is missing: install python3 and python3-venv")?;
        process::run(Command::new(system).args(["-m", "venv"]).arg(&environment))?;
    }
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&wanted);
    install::timed("PyTorch, numpy and ONNX Runtime (about 6 GB unpacked, minutes)", &mut command)?;
    std::fs::write(&mark, requirements).map_err(|error| format!("{} cannot be written: {error}", mark.display()))?;
    Ok(python)
}
