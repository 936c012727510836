//! The four ways of installing: apt-get, cargo install, npm, and a command that the caller brings. Each says what it is
//! about to do and how long it took.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::find;
use crate::context::Context;
use crate::process;

/// Runs an installing command between two lines: what is being installed, and how long it took.
pub fn timed(what: &str, command: &mut Command) -> Result<(), String> {
    println!("installing {what}");
    let start = Instant::now();
    process::run(command)?;
    println!("installed {what} in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Installs Debian packages, where that is allowed and possible.
pub fn apt(context: &Context, what: &str, packages: &[&str]) -> Result<(), String> {
    let advice =
        format!("{what} is missing: run `sudo apt-get install -y --no-install-recommends {}`", packages.join(" "));
    if !context.install || !is_root_on_debian() {
        return Err(advice);
    }
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    // A fresh container has no package lists.
    timed("the package lists (seconds)", apt_get().args(["update", "-q"]))?;
    let mut install = apt_get();
    install.args(["install", "-q", "-y", "--no-install-recommends"]).args(packages);
    timed(&format!("{what}: {} (about a minute)", packages.join(" ")), &mut install)
        .map_err(|error| format!("{error}; {advice}"))
}

fn is_root_on_debian() -> bool {
    let id = || process::output(Command::new("id").arg("-u"));
    Path::new("/etc/debian_version").is_file() && id().is_ok_and(|id| id.trim() == "0")
}

/// A program that cargo installs, at one version.
pub struct Program {
    /// The package's name.
    pub package: &'static str,
    /// The program that is wanted.
    pub name: &'static str,
    /// The exact version.
    pub version: String,
    /// Whether the package's own Cargo.lock is used.
    pub locked: bool,
    /// How long it takes to build on two cores.
    pub minutes: u32,
}

/// Finds or builds a program. Another version that the user has stays: ours then goes into xtask's own folder.
pub fn cargo_install(context: &Context, program: &Program) -> Result<PathBuf, String> {
    let Program { package, name, version, locked, minutes } = program;
    let present = find(context, name);
    if let Some(path) = present.as_ref().filter(|path| has_version(path, version)) {
        return Ok(path.clone());
    }
    let mut command = context.cargo(["install", package, "--version", version]);
    if *locked {
        command.arg("--locked");
    }
    if !context.install {
        return Err(format!("{package} {version} is missing: run `{}`", process::shown(&command)));
    }
    if present.is_some() {
        command.arg("--root").arg(context.tools_dir());
    }
    // Their flags and their target folder are the workspace's, not this program's.
    command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    timed(&format!("{package} {version} (about {minutes} minutes on two cores)"), &mut command)?;
    find(context, name)
        .filter(|path| has_version(path, version))
        .ok_or_else(|| format!("{package} {version} was installed but `{name}` is not where cargo puts programs"))
}

fn has_version(path: &Path, version: &str) -> bool {
    process::output(Command::new(path).arg("--version").env_remove("NO_COLOR"))
        .is_ok_and(|text| text.split_whitespace().nth(1) == Some(version))
}

/// The packages of tests/web/package.json, in the versions of its lock file.
pub fn npm_packages(context: &Context) -> Result<(), String> {
    let folder = context.web_tests();
    let lock = std::fs::read(folder.join("package-lock.json"))
        .map_err(|error| format!("tests/web/package-lock.json cannot be read: {error}"))?;
    // A copy of the lock file marks what was installed.
    let mark = folder.join("node_modules").join(".tallow-lock");
    if std::fs::read(&mark).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    if !context.install {
        return Err("the packages of tests/web are missing: run `npm ci` in that folder".to_owned());
    }
    let npm = find(context, "npm").ok_or("npm is not on PATH")?;
    let mut command = Command::new(npm);
    command.args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder);
    timed("the packages of tests/web (about 150 MB unpacked, seconds)", &mut command)?;
    std::fs::write(&mark, lock).map_err(|error| format!("{} cannot be written: {error}", mark.display()))
}
