//! The command line: `cargo xtask test [PART]... [--full] [--no-install]`, `cargo xtask ops`, `cargo xtask bench`. Read by hand, so that the first build of
//! xtask stays a matter of seconds.

use crate::bench::growth::{self, Options as GrowthOptions};
use crate::bench::options::{self as bench, Options as BenchOptions};
use crate::bench::size;
use crate::bench::web::{self, Options as BenchWebOptions};
use crate::parts::Part;

/// What the user asked for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Print the help text.
    Help,
    /// Run tests.
    Test(TestOptions),
    /// Write docs/ops.md anew.
    Ops,
    /// Measure.
    Bench(BenchOptions),
    /// Measure how cost grows.
    BenchGrowth(GrowthOptions),
    /// Measure in a browser.
    BenchWeb(BenchWebOptions),
    /// Weigh, and write the page if asked.
    BenchSize(bool),
    /// Measure a GPU, with these arguments.
    BenchGpu(Vec<String>),
}

/// The options of `cargo xtask test`.
#[derive(Debug, PartialEq)]
pub struct TestOptions {
    /// The parts to run, in the order of `Part::ALL`, each once.
    pub parts: Vec<Part>,
    /// Run the whole conformance table, not the seeded sample.
    pub full: bool,
    /// Whether a missing tool may be installed.
    pub install: bool,
}

/// Reads the arguments after `cargo xtask`.
pub fn parse(arguments: &[String]) -> Result<Command, String> {
    let Some((command, rest)) = arguments.split_first() else { return Ok(Command::Help) };
    match command.as_str() {
        "help" | "-h" | "--help" => Ok(Command::Help),
        "test" => parse_test(rest),
        "ops" if rest.is_empty() => Ok(Command::Ops),
        "ops" => Err("`ops` takes no options".into()),
        "bench" if rest.first().is_some_and(|group| group == "growth") => {
            if rest.iter().any(|word| word == "-h" || word == "--help") {
                return Ok(Command::Help);
            }
            Ok(Command::BenchGrowth(growth::parse(&rest[1..])?))
        }
        "bench" if rest.first().is_some_and(|group| group == "web") => {
            Ok(web::parse(&rest[1..])?.map_or(Command::Help, Command::BenchWeb))
        }
        "bench" if rest.first().is_some_and(|group| group == "size") => {
            if rest.iter().any(|word| word == "-h" || word == "--help") {
                return Ok(Command::Help);
            }
            Ok(Command::BenchSize(size::parse(&rest[1..])?))
        }
        "bench" if rest.first().is_some_and(|group| group == "gpu") => Ok(Command::BenchGpu(rest[1..].to_vec())),
        "bench" => Ok(bench::parse(rest)?.map_or(Command::Help, Command::Bench)),
        other => Err(format!("there is no command `{other}`")),
    }
}

fn parse_test(arguments: &[String]) -> Result<Command, String> {
    let (mut wanted, mut full, mut install) = (Vec::new(), false, true);
    for argument in arguments {
        match argument.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--full" => full = true,
            "--no-install" => install = false,
            option if option.starts_with('-') => return Err(format!("`test` has no option `{option}`")),
            name => match Part::ALL.into_iter().find(|part| part.name() == name) {
                Some(part) => wanted.push(part),
                None => return Err(format!("`test` has no part `{name}`; the parts are {}", part_names())),
            },
        }
    }
    let parts = Part::ALL.into_iter().filter(|part| wanted.is_empty() || wanted.contains(part)).collect();
    Ok(Command::Test(TestOptions { parts, full, install }))
}

fn part_names() -> String {
    Part::ALL.map(Part::name).join(", ")
}

/// The text of `cargo xtask --help`.
pub fn help() -> String {
    let mut parts = String::new();
    for part in Part::ALL {
        parts += &format!("    {:<12} {}\n", part.name(), part.about());
    }
    format!(
        "\
The chores of the Tallow repository.

usage: cargo xtask test [PART]... [--full] [--no-install]
       cargo xtask ops
       cargo xtask bench [GROUP]... [--peers] [--device D] [--case TEXT] [--threads N] [--seconds S] [--no-page]
       cargo xtask bench growth [--device D] [--no-page]
       cargo xtask bench web [--case TEXT] [--seconds S] [--no-page]
       cargo xtask bench size [--no-page]
       cargo xtask bench gpu [--minutes M] [--device wgpu:N] [--small] [--out FILE]

`bench gpu` builds the program that measures a GPU, each kernel as a share of what the GPU can, lays it beside the Vulkan
loader in target/bench/gpu, so that the folder can be taken to another machine, and runs it here for M minutes (8).

`ops` tries every operation for every dtype on every device, checks gradients, and writes docs/ops.md; the tests fail where
that page is stale.

`test` without a PART runs everything. The parts, in their order:
{parts}
options of test:
    --full         every case of the conformance table, not the seeded sample that covers each operation
                   (the tests see TALLOW_TEST_FULL=1)
    --no-install   install nothing; name what is missing instead
    -h, --help     this text

A part installs what it needs and cannot find: Debian packages through apt-get where the user is root on Debian
(elsewhere it says what to install), Rust targets through rustup, wasm-bindgen-cli and trunk through cargo install,
the packages of tests/web/package.json through npm. Each install says what it does and how long it takes.

{}
{}
{}
{}
A run of `test` ends with a line `N passed, N failed`, with `, N skipped` where something was left out: each of those is
named with its reason above it. The exit code is 0 when nothing failed, 1 when something did, 2 on a wrong call.

environment:
    TALLOW_TEST_MODEL   path of SmolLM2-135M-Instruct.Q4_1.gguf; without it, `tallow pull` is asked for the file
    CHROMIUM            path of the browser to drive
    CARGO_TARGET_DIR    where everything is built, as for cargo itself
    TALLOW_BENCH_DIR    where `bench` keeps peers and raw results, instead of target/bench
",
        bench::help(),
        growth::HELP,
        web::HELP,
        size::HELP
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn no_part_means_every_part() {
        let expected = TestOptions { parts: Part::ALL.to_vec(), full: false, install: true };
        assert_eq!(parse_words("test"), Ok(Command::Test(expected)));
    }

    #[test]
    fn parts_run_once_and_in_their_own_order() {
        let expected = TestOptions { parts: vec![Part::Fmt, Part::Web], full: true, install: false };
        assert_eq!(parse_words("test web fmt --full web --no-install"), Ok(Command::Test(expected)));
    }

    #[test]
    fn wrong_words_are_named() {
        assert!(parse_words("test webb").unwrap_err().contains("`webb`"));
        assert!(parse_words("test --fast").unwrap_err().contains("`--fast`"));
        assert!(parse_words("ops now").is_err());
        assert!(parse_words("tset").unwrap_err().contains("`tset`"));
    }

    #[test]
    fn help_names_every_part() {
        assert_eq!(parse_words("test unit --help"), Ok(Command::Help));
        for part in Part::ALL {
            assert!(help().contains(&format!("\n    {} ", part.name())), "{} is missing", part.name());
        }
    }
}
