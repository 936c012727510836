//! `cargo xtask bench size`: what Tallow weighs, and how long it takes to build, beside candle and ONNX Runtime Web. Builds
//! the smallest programs of both (bench/size and bench/peers/candle-size) in empty folders, and weighs what came out.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::machine::Machine;
use super::table::markdown;
use super::{folder, make, page, peers};
use crate::context::Context;
use crate::parts::web;
use crate::process;
use crate::tools;

/// The part of the help text.
pub const HELP: &str = "\
`bench size` builds the smallest programs that use Tallow and candle in empty folders, and compares their sizes and the time
of their builds; weighs the command line and the page's wasm, beside ONNX Runtime Web's. It takes about twenty minutes, and
writes its section of docs/performance.md.

options of bench size:
    --no-page      print only
";

/// Reads the arguments after `size`: whether the page is to be written.
pub fn parse(arguments: &[String]) -> Result<bool, String> {
    match arguments {
        [] => Ok(true),
        [option] if option == "--no-page" => Ok(false),
        [other, ..] => Err(format!("`bench size` has no option `{other}`")),
    }
}

/// A line of the table.
struct Row {
    what: &'static str,
    tallow: Option<f64>,
    peer: Option<f64>,
    show: fn(f64) -> String,
}

/// What a build in an empty folder took.
struct Build {
    program: PathBuf,
    /// Of all processors, as they were at work; where the system does not tell, of the clock.
    seconds: f64,
    crates: usize,
}

/// Measures, prints, and writes the page's section.
pub fn run(context: &Context, write: bool) -> Result<(), String> {
    let base = folder(context)?.join("size");
    let tallow = Program { name: "tallow-size", manifest: context.root.join("Cargo.toml") };
    let candle = Program { name: "candle-size", manifest: context.root.join("bench/peers/candle-size/Cargo.toml") };
    let plain = tallow.build(context, &base.join("tallow"), "")?;
    let gpu = tallow.build(context, &base.join("tallow-wgpu"), "wgpu")?;
    let model = tallow.build(context, &base.join("tallow-llm"), "llm")?;
    // A peer that cannot be had stops nothing: its cells are empty.
    let theirs = present(candle.build(context, &base.join("candle"), ""));
    let their_model = present(candle.build(context, &base.join("candle-llm"), "llm"));
    process::run(&mut context.cargo(["build", "--quiet", "--release", "--package", "tallow-demos"]))?;
    let command_line = context.target.join("release").join(format!("tallow{}", std::env::consts::EXE_SUFFIX));
    let site = web::build_page(context)?;
    let wasm = largest_wasm(&site)?;
    let ort = present(peers::web(context, &folder(context)?).and_then(|packages| {
        let file = packages.join("node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.asyncify.wasm");
        if file.is_file() { Ok(file) } else { Err(format!("there is no {}", file.display())) }
    }));

    let size = |build: Option<&Build>| build.map(|build| bytes(&build.program)).transpose();
    let rows = [
        Row::bytes("a program that multiplies two matrices, CPU only", size(Some(&plain))?, size(theirs.as_ref())?),
        Row::bytes("a program that generates with SmolLM2, CPU only", size(Some(&model))?, size(their_model.as_ref())?),
        Row::bytes("the first program, with WebGPU", size(Some(&gpu))?, None),
        Row::bytes("the command line", Some(bytes(&command_line)?), None),
        Row::bytes(
            "wasm of the page, and of ONNX Runtime Web",
            Some(bytes(&wasm)?),
            ort.as_deref().map(bytes).transpose()?,
        ),
        Row::bytes(
            "the same, gzipped",
            Some(gzipped(context, &wasm)?),
            ort.as_deref().map(|f| gzipped(context, f)).transpose()?,
        ),
        Row::seconds("cold build as a dependency, CPU only", Some(plain.seconds), theirs.as_ref().map(|b| b.seconds)),
        Row::seconds("the same with WebGPU", Some(gpu.seconds), None),
        Row::seconds(
            "the same with language models, CPU only",
            Some(model.seconds),
            their_model.as_ref().map(|b| b.seconds),
        ),
        Row::count("crates of the first, CPU only", Some(plain.crates), theirs.as_ref().map(|b| b.crates)),
        Row::count("crates with WebGPU", Some(gpu.crates), None),
        Row::count("crates with language models", Some(model.crates), their_model.as_ref().map(|b| b.crates)),
    ];
    let table = table(&rows);
    println!("{table}");
    if !write {
        return Ok(());
    }
    let Machine { processor, cores, compiler, commit, date } = Machine::look(&context.root);
    let body = format!(
        "## Small and quick to build\n\nPrograms are built with one release profile (thin LTO, stripped), each in an empty folder. \
         Build times are processor seconds, those of all cores added up, which other work on the machine hardly changes. Tallow's \
         program with a language model has a tokenizer and chat templates; candle's takes ids. The peer of the wasm is the module \
         that ONNX Runtime Web 1.30.0 loads for WebGPU, of all others candle 0.11.0. A ratio is the peer's figure over Tallow's: above 1, Tallow's \
         is smaller.\n\n{table}\n\
         `cargo xtask bench size`, {date}, commit {commit}, {processor}, {cores} cores, {compiler}."
    );
    page::update(&context.root.join("docs/performance.md"), "size", &body)
}

/// The value, or none, with a line that says why.
fn present<T>(result: Result<T, String>) -> Option<T> {
    result.map_err(|error| println!("absent: {error}")).ok()
}

/// A crate whose program is built in several ways.
struct Program {
    name: &'static str,
    manifest: PathBuf,
}

impl Program {
    /// Builds it in an empty folder.
    fn build(&self, context: &Context, folder: &Path, features: &str) -> Result<Build, String> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)
                .map_err(|error| format!("{} cannot be emptied: {error}", folder.display()))?;
        }
        make(folder)?;
        // What is downloaded is not what is built.
        let mut fetch = context.cargo(["fetch", "--quiet", "--locked", "--manifest-path"]);
        process::run(fetch.arg(&self.manifest))?;
        let mut command = context.cargo(["build", "--release", "--locked", "--package", self.name]);
        command.args(["--features", features, "--target-dir"]).arg(folder).arg("--manifest-path").arg(&self.manifest);
        command.env_remove("RUSTFLAGS").env_remove("CARGO_TARGET_DIR");
        let (start, before) = (Instant::now(), children());
        let mut crates = 0;
        process::watch(&mut command, Duration::from_secs(3600), |line| {
            crates += usize::from(line.trim_start().starts_with("Compiling "));
            !line.trim_start().starts_with("Compiling ")
        })?;
        let seconds = match (before, children()) {
            (Some(before), Some(after)) => after - before,
            _ => start.elapsed().as_secs_f64(),
        };
        let program = folder.join("release").join(format!("{}{}", self.name, std::env::consts::EXE_SUFFIX));
        Ok(Build { program, seconds, crates })
    }
}

/// Processor seconds of the programs that this one has waited for, and theirs; known on Linux.
fn children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is a name in brackets, which may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: f64 = fields.get(13)?.parse::<f64>().ok()? + fields.get(14)?.parse::<f64>().ok()?;
    // USER_HZ is 100 on every architecture that Rust runs on.
    Some(ticks / 100.)
}

fn bytes(path: &Path) -> Result<f64, String> {
    let file = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(file.len() as f64)
}

/// The page's module; workers' scripts and the like are no modules.
fn largest_wasm(site: &Path) -> Result<PathBuf, String> {
    let files = std::fs::read_dir(site).map_err(|error| format!("{}: {error}", site.display()))?;
    let modules =
        files.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "wasm"));
    let largest = modules.max_by_key(|path| path.metadata().map_or(0, |file| file.len()));
    largest.ok_or_else(|| format!("there is no wasm in {}", site.display()))
}

/// Bytes after gzip -9, as a server sends them.
fn gzipped(context: &Context, path: &Path) -> Result<f64, String> {
    let gzip = tools::find(context, "gzip").ok_or("gzip is missing: install it")?;
    let mut command = Command::new(gzip);
    let mut child = command
        .args(["-9", "-c"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("gzip does not start: {error}"))?;
    let mut count = 0u64;
    if let Some(mut output) = child.stdout.take() {
        let mut buffer = [0; 1 << 16];
        loop {
            match output.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => count += n as u64,
                Err(error) => return Err(format!("gzip cannot be read: {error}")),
            }
        }
    }
    let status = child.wait().map_err(|error| format!("gzip: {error}"))?;
    if status.success() { Ok(count as f64) } else { Err(format!("gzip failed on {}", path.display())) }
}

impl Row {
    fn bytes(what: &'static str, tallow: Option<f64>, peer: Option<f64>) -> Self {
        Self { what, tallow, peer, show: |bytes| format!("{:.2} MB", bytes / 1e6) }
    }

    fn seconds(what: &'static str, tallow: Option<f64>, peer: Option<f64>) -> Self {
        Self { what, tallow, peer, show: |seconds| format!("{seconds:.0} s") }
    }

    fn count(what: &'static str, tallow: Option<usize>, peer: Option<usize>) -> Self {
        let wide = |count: Option<usize>| count.map(|count| count as f64);
        Self { what, tallow: wide(tallow), peer: wide(peer), show: |count| format!("{count:.0}") }
    }
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![["what", "Tallow", "peer", "ratio"].map(String::from).to_vec()];
    for row in rows {
        let cell = |value: Option<f64>| value.map_or_else(String::new, row.show);
        let ratio = row.tallow.zip(row.peer).map_or_else(String::new, |(tallow, peer)| format!("{:.2}", peer / tallow));
        lines.push(vec![row.what.to_owned(), cell(row.tallow), cell(row.peer), ratio]);
    }
    markdown(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_without_a_peer_have_no_ratio() {
        let text = table(&[
            Row::bytes("one", Some(2e6), Some(3e6)),
            Row::seconds("two", Some(10.), None),
            Row::count("three", Some(4), Some(2)),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "| one   | 2.00 MB | 3.00 MB | 1.50  |");
        assert_eq!(lines[3], "| two   | 10 s    |         |       |");
        assert_eq!(lines[4], "| three | 4       | 2       | 0.50  |");
    }

    #[test]
    fn arguments_are_read() {
        let words = |line: &str| parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
        assert_eq!((words(""), words("--no-page")), (Ok(true), Ok(false)));
        assert!(words("--peers").unwrap_err().contains("--peers"));
    }
}
