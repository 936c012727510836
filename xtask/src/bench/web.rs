//! `cargo xtask bench web`: Tallow in wasm beside ONNX Runtime Web and TensorFlow.js, on WebGPU, in one page of one headless
//! Chromium. The page and its driver are in bench/web; this side builds, fetches, starts, and makes tables of what they
//! found.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::statistics::Summary;
use super::table::{EQUAL, digits, markdown, time};
use super::{folder, page, peers};
use crate::context::Context;
use crate::parts::WASM;
use crate::{process, tools};

/// How long the page may take.
const LIMIT: Duration = Duration::from_secs(60 * 60);
const SECTION: &str = "web";

/// What stands above the tables on the page.
const ABOUT: &str = "\
Tallow in wasm beside ONNX Runtime Web and TensorFlow.js, all on WebGPU, in one page of one headless Chromium, in turns whose
order shifts every round. Results are compared first. Inputs are on the GPU; a time is from the call until the device's queue
says that the work is done, whichever library's it is. Weights are constants of ONNX Runtime's model, so that it may prepare
them when it loads; images and attention are in the layout that each library likes best. A ratio in brackets is Tallow's speed
over the peer's, and *met* says whether Tallow is slower than nobody. On a software adapter times say little about GPUs.
";

/// What the columns of the second table mean.
const COUNTED: &str = "\
What one run asks of WebGPU, counted by wrapping the browser's own functions: *bound* are the bytes of the storage buffers that
are bound at each dispatch, added up: what kernels can read and write; *uploaded* is what comes from the host; *copied* goes from
buffer to buffer or back to the host; *host* is the time that the page's own thread takes until the work is submitted.
";

/// The part of the help text.
pub const HELP: &str = "\
`bench web` measures Tallow in wasm beside ONNX Runtime Web and TensorFlow.js, all on WebGPU, in one headless Chromium, and
counts what each asks of WebGPU. It writes its section of docs/performance.md.

options of bench web:
    --case TEXT    only cases whose name holds TEXT; prints only
    --seconds S    time for each case (10)
    --no-page      print only
";

/// What `bench web` was asked for.
#[derive(Debug, PartialEq)]
pub struct Options {
    case: String,
    seconds: f64,
    write: bool,
}

/// Reads the arguments after `web`; `None` where help was asked for.
pub fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut options = Options { case: String::new(), seconds: 10., write: true };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("`{argument}` needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--case" => options.case.clone_from(value()?),
            "--seconds" => {
                let seconds = value()?.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds > 0.);
                options.seconds = seconds.ok_or("`--seconds` needs a positive number")?;
            }
            "--no-page" => options.write = false,
            other => return Err(format!("`bench web` has no option `{other}`")),
        }
    }
    options.write &= options.case.is_empty();
    Ok(Some(options))
}

/// What the page found.
#[derive(Debug, Deserialize, Serialize)]
struct Found {
    adapter: String,
    features: Vec<String>,
    participants: Vec<Party>,
    absent: Vec<(String, String)>,
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Party {
    key: String,
    version: String,
}

#[derive(Debug, Deserialize, Serialize)]
struct Outcome {
    name: String,
    tolerance: f64,
    seats: Vec<Seat>,
}

/// One participant's part in a case.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Seat {
    key: String,
    /// Nanoseconds until the work was done.
    times: Vec<f64>,
    /// Nanoseconds until it was submitted.
    #[serde(default)]
    host: Vec<f64>,
    /// How its result is another than Tallow's.
    differs: Option<String>,
    failed: Option<String>,
    /// How results of ways to compute were wrong that it had before the one that is measured.
    #[serde(default)]
    passed: Vec<String>,
    counts: Option<Counts>,
}

/// What one run asks of WebGPU: see bench/web/page/counts.js.
#[derive(Debug, Deserialize, Serialize)]
struct Counts {
    dispatches: u64,
    submits: u64,
    bound: f64,
    uploaded: f64,
    copied: f64,
    read: f64,
}

impl Outcome {
    fn seat(&self, key: &str) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.key == key)
    }
}

impl Seat {
    fn summary(&self) -> Option<Summary> {
        summary(&self.times)
    }
}

fn summary(nanoseconds: &[f64]) -> Option<Summary> {
    Summary::of(&nanoseconds.iter().map(|&time| time as u64).collect::<Vec<_>>())
}

/// Builds, fetches, measures, prints, and writes the page's section.
pub fn run(context: &Context, options: &Options) -> Result<(), String> {
    let folder = folder(context)?;
    let module = build(context)?;
    let node = tools::node(context)?;
    let chromium = tools::chromium(context)?;
    let packages = peers::web(context, &folder);
    let mut drive = Command::new(node);
    drive.arg(context.root.join("bench/web/drive.mjs")).current_dir(context.web_tests());
    drive.arg("--module").arg(&module).arg("--chromium").arg(&chromium);
    drive.args(["--case", &options.case, "--seconds", &options.seconds.to_string()]);
    if let Ok(packages) = &packages {
        drive.arg("--packages").arg(packages);
    }
    let mut last = String::new();
    process::watch(&mut drive, LIMIT, |line| {
        last = line.to_owned();
        !line.starts_with('{')
    })?;
    let mut found: Found =
        serde_json::from_str(&last).map_err(|error| format!("drive.mjs ended with `{last}`: {error}"))?;
    if let Err(error) = packages {
        found.absent.extend(["ort", "tfjs"].map(|key| (key.to_owned(), error.clone())));
    }
    let json = serde_json::to_string_pretty(&found).map_err(|error| error.to_string())?;
    page::write_whole(&folder.join("raw").join("web.json"), &json)?;
    let tables = tables(&found);
    println!("\n{tables}");
    if !options.write {
        return Ok(());
    }
    let browser = process::output(Command::new(&chromium).arg("--version"))?;
    // What follows the number is the distribution's name.
    let browser = browser.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let Machine { processor, cores, compiler, commit, date } = Machine::look(&context.root);
    let versions: Vec<String> =
        found.participants.iter().map(|Party { key, version }| format!("{} {version}", title(key))).collect();
    let features = if found.features.iter().any(|name| name == "shader-f16") { "with" } else { "without" };
    let body = format!(
        "## In a browser\n\n{ABOUT}\n{tables}\n`cargo xtask bench web`, {date}, commit {commit}, {processor}, {cores} cores, \
         {compiler}.\n{}; {browser}, headless, on the adapter {} ({features} f16).\n",
        versions.join("; "),
        found.adapter,
    );
    page::update(&context.root.join("docs/performance.md"), SECTION, &body)
}

/// Tallow's module, optimised and with its bindings.
fn build(context: &Context) -> Result<PathBuf, String> {
    tools::rust_target(context, WASM)?;
    let bindgen = tools::wasm_bindgen(context)?;
    let mut build = context.cargo(["build", "--quiet", "--release", "--package", "tallow-bench-web", "--target", WASM]);
    // RUSTFLAGS would replace simd128.
    process::run(build.env_remove("RUSTFLAGS"))?;
    let module = context.target.join(WASM).join("release").join("tallow_bench_web.wasm");
    let site = context.target.join("bench-web");
    process::run(Command::new(bindgen).args(["--target", "web", "--out-dir"]).arg(&site).arg(&module))?;
    Ok(site)
}

fn title(key: &str) -> &str {
    peers::title(key).unwrap_or(key)
}

/// Times, counts, and what neither can say.
fn tables(found: &Found) -> String {
    let mut text = format!("{}\n{COUNTED}\n{}", times(found), counts(found));
    for (key, reason) in &found.absent {
        text += &format!("\nAbsent: {}: {reason}\n", title(key));
    }
    for outcome in &found.outcomes {
        for seat in &outcome.seats {
            let who = title(&seat.key);
            if let Some(how) = &seat.differs {
                text += &format!("\n{}: {who} has another result: {how}\n", outcome.name);
            }
            for how in &seat.passed {
                text += &format!(
                    "\n{}: {who} is measured in another way than its first, whose result differs: {how}\n",
                    outcome.name
                );
            }
            if let Some(how) = &seat.failed {
                text += &format!("\n{}: {who} failed: {how}\n", outcome.name);
            }
        }
    }
    text
}

fn times(found: &Found) -> String {
    let peers: Vec<&str> =
        found.participants.iter().map(|party| party.key.as_str()).filter(|key| *key != "tallow").collect();
    let mut header: Vec<String> = ["case", "Tallow", "best", "spread", "rounds"].map(String::from).to_vec();
    header.extend(peers.iter().map(|key| title(key).to_owned()));
    header.push("met".into());
    let mut rows = vec![header];
    for outcome in &found.outcomes {
        let tallow = outcome.seat("tallow").and_then(Seat::summary);
        let mut row = vec![outcome.name.clone()];
        match &tallow {
            Some(own) => row.extend([
                time(own.median),
                time(own.best),
                format!("{:.0}%", 100. * own.spread()),
                own.runs.to_string(),
            ]),
            None => row.extend(["failed", "-", "-", "-"].map(String::from)),
        }
        let mut slower = Vec::new();
        for key in &peers {
            let seat = outcome.seat(key);
            row.push(match (seat.and_then(Seat::summary), &tallow) {
                (Some(peer), Some(own)) => {
                    let ratio = peer.median / own.median;
                    if ratio < EQUAL {
                        slower.push(title(key));
                    }
                    format!("{} ({ratio:.2})", time(peer.median))
                }
                (Some(peer), None) => time(peer.median),
                (None, _) if seat.is_some_and(|seat| seat.differs.is_some()) => "wrong".into(),
                (None, _) => "failed".into(),
            });
        }
        row.push(match (&tallow, slower.is_empty()) {
            (None, _) => "-".into(),
            (Some(_), true) => "yes".into(),
            (Some(_), false) => format!("not {}", slower.join(", ")),
        });
        rows.push(row);
    }
    markdown(&rows)
}

fn counts(found: &Found) -> String {
    let bytes = |bytes: f64| match bytes {
        0. => "0".to_owned(),
        few if few < 1e3 => format!("{few:.0} B"),
        few if few < 1e6 => format!("{} KB", digits(few / 1e3)),
        many => format!("{} MB", digits(many / 1e6)),
    };
    let header = ["case", "library", "dispatches", "submits", "bound", "uploaded", "copied", "host"];
    let mut rows = vec![header.map(String::from).to_vec()];
    for outcome in &found.outcomes {
        for seat in &outcome.seats {
            let Some(counts) = &seat.counts else { continue };
            rows.push(vec![
                outcome.name.clone(),
                title(&seat.key).to_owned(),
                counts.dispatches.to_string(),
                counts.submits.to_string(),
                bytes(counts.bound),
                bytes(counts.uploaded),
                bytes(counts.copied + counts.read),
                summary(&seat.host).map_or("-".into(), |host| time(host.median)),
            ]);
        }
    }
    markdown(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Option<Options>, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_read() {
        assert_eq!(words(""), Ok(Some(Options { case: String::new(), seconds: 10., write: true })));
        // A part of the table does not take the place of the whole.
        assert_eq!(words("--case conv"), Ok(Some(Options { case: "conv".into(), seconds: 10., write: false })));
        assert_eq!(words("--help"), Ok(None));
        assert!(words("--seconds -1").unwrap_err().contains("positive"));
        assert!(words("--case").unwrap_err().contains("needs a value"));
        assert!(words("--peers").unwrap_err().contains("`--peers`"));
    }

    #[test]
    fn tables_name_who_is_slower_wrong_or_absent() {
        let json = r#"{"adapter": "swift", "features": [],
            "participants": [{"key": "tallow", "version": "1"}, {"key": "ort", "version": "2"}, {"key": "tfjs", "version": "3"}],
            "absent": [["nobody", "no network"]],
            "outcomes": [{"name": "matmul", "tolerance": 1e-4, "seats": [
                {"key": "tallow", "times": [2e6], "differs": null,
                 "counts": {"dispatches": 1, "submits": 2, "bound": 3e6, "uploaded": 256, "copied": 0, "read": 0}},
                {"key": "ort", "times": [1e6], "differs": null},
                {"key": "tfjs", "times": [], "differs": "element 3 is 1, not 2"}]}]}"#;
        let text = tables(&serde_json::from_str(json).unwrap());
        let row: Vec<&str> = text.lines().nth(2).unwrap().trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(row, ["matmul", "2.00 ms", "2.00 ms", "0%", "1", "1.00 ms (0.50)", "wrong", "not ONNX Runtime Web"]);
        let counts = text.lines().find(|line| line.contains("3.00 MB")).unwrap();
        assert!(counts.contains("Tallow") && counts.contains("256 B"), "{counts}");
        assert!(text.contains("Absent: nobody: no network"));
        assert!(text.contains("matmul: TensorFlow.js has another result: element 3 is 1, not 2"));
    }
}
