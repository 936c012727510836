//! Who takes part, and where they come from: Tallow is built by cargo, its peers are built or downloaded on demand into one
//! folder, in pinned versions. A peer that cannot be had is named as absent and stops nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::participant::Spec;
use crate::context::Context;
use crate::process;
use crate::tools::{find, install};

/// Keys, as targets and raw results name participants, and titles, as tables do.
const TITLES: [(&str, &str); 9] = [
    ("tallow", "Tallow"),
    ("candle", "candle"),
    ("torch", "PyTorch"),
    ("numpy", "numpy"),
    ("onnxruntime", "ONNX Runtime"),
    ("llama", "llama.cpp"),
    ("candle-llm", "candle"),
    ("ort", "ONNX Runtime Web"),
    ("tfjs", "TensorFlow.js"),
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
    Ok(Spec { starts: true, ..spec("tallow", program, &[device.as_ref()]) })
}

/// Where a run's peers come from: language models have peers of their own.
pub fn peers(context: &Context, folder: &Path, models: bool) -> (Vec<Spec>, Vec<(String, String)>) {
    let python = || python(context, folder);
    let script = context.root.join("bench/peers/python/participant.py");
    // Each library brings threads of its own, and is a process of its own.
    let scripted = |key: &str| python().map(|python| spec(key, python, &[script.as_os_str(), key.as_ref()]));
    let found = if models {
        vec![
            ("llama", llama(context, folder)),
            ("candle-llm", candle(context, folder, "candle-llm").map(|spec| Spec { starts: true, ..spec })),
        ]
    } else {
        let mut found = vec![("candle", candle(context, folder, "candle"))];
        found.extend(["torch", "numpy", "onnxruntime"].map(|key| (key, scripted(key))));
        found
    };
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for (key, result) in found {
        match result {
            Ok(spec) => there.push(spec),
            Err(error) => absent.push((key.to_owned(), error)),
        }
    }
    (there, absent)
}

fn spec(key: &str, program: PathBuf, arguments: &[&std::ffi::OsStr]) -> Spec {
    let arguments = arguments.iter().map(|argument| argument.to_os_string()).collect();
    Spec { key: key.to_owned(), program, arguments, starts: false }
}

fn executable(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// candle, for this very processor: as it builds by default it is far slower, and Tallow chooses its instructions when it
/// runs. `key` is a folder of bench/peers.
fn candle(context: &Context, folder: &Path, key: &str) -> Result<Spec, String> {
    let program = build(context, folder, key, "-C target-cpu=native")?;
    Ok(spec(key, program, &[]))
}

/// Builds the Rust program of bench/peers/`key`, in full: a faster build of Tallow is nobody else's business.
fn build(context: &Context, folder: &Path, key: &str, flags: &str) -> Result<PathBuf, String> {
    let target = folder.join(key);
    let mut command = context.cargo(["build", "--quiet", "--release", "--locked"]);
    command.arg("--manifest-path").arg(context.root.join("bench/peers").join(key).join("Cargo.toml"));
    command.arg("--target-dir").arg(&target).env("RUSTFLAGS", flags);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PROFILE_") {
            command.env_remove(name);
        }
    }
    if !target.join("release").is_dir() {
        println!("building the peer {key} (some minutes, once)");
    }
    process::run(&mut command)?;
    Ok(target.join("release").join(executable(&format!("bench-{key}"))))
}

/// llama.cpp: the libraries of an npm package, and a small program that calls them.
fn llama(context: &Context, folder: &Path) -> Result<Spec, String> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err("its package holds libraries for Linux on x86-64 only".into());
    }
    let program = build(context, folder, "llama", "")?;
    let packages = packages(context, folder, "llama", "llama.cpp's libraries (30 MB unpacked, seconds)")?;
    let libraries = packages.join("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64");
    Ok(Spec { starts: true, ..spec("llama", program, &[libraries.as_os_str()]) })
}

/// The folder of ONNX Runtime Web and TensorFlow.js.
pub fn web(context: &Context, folder: &Path) -> Result<PathBuf, String> {
    packages(context, folder, "web", "ONNX Runtime Web and TensorFlow.js (220 MB unpacked, seconds)")
}

/// A folder with the npm packages of bench/peers/`key`, in the versions of its lock file.
fn packages(context: &Context, folder: &Path, key: &str, what: &str) -> Result<PathBuf, String> {
    let packages = folder.join(format!("{key}-packages"));
    let source = context.root.join("bench/peers").join(key);
    let lock = std::fs::read(source.join("package-lock.json"))
        .map_err(|error| format!("bench/peers/{key}/package-lock.json cannot be read: {error}"))?;
    // A copy of the lock file marks what was installed.
    let mark = packages.join("tallow-lock.json");
    if std::fs::read(&mark).is_ok_and(|installed| installed == lock) {
        return Ok(packages);
    }
    let cannot = |error: std::io::Error| format!("{} cannot be filled: {error}", packages.display());
    std::fs::create_dir_all(&packages).map_err(cannot)?;
    for name in ["package.json", "package-lock.json"] {
        std::fs::copy(source.join(name), packages.join(name)).map_err(cannot)?;
    }
    let npm = find(context, "npm").ok_or("npm is missing: install Node 20 or newer with npm")?;
    let mut command = Command::new(npm);
    // Scripts are not needed for files that lie in the packages.
    command.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&packages);
    install::timed(what, &mut command)?;
    std::fs::write(&mark, lock).map_err(cannot)?;
    Ok(packages)
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
