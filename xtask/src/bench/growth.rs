//! `cargo xtask bench growth`: how cost grows with size. Builds and runs the program of bench/growth, and puts its curves
//! into docs/performance.md as pictures and figures.

use std::process::{Command, Stdio};

use super::machine::Machine;
use super::page;
use crate::context::Context;
use crate::{model, process};

/// Where the pictures are, below docs.
const FOLDER: &str = "growth";

/// The part of the help text.
pub const HELP: &str = "\
`bench growth` measures how cost grows: planning by nodes, memory of attention by keys, products by size, decoding by context
and by batch, a first run beside a warm one. It writes its section of docs/performance.md, with pictures in docs/growth.

options of bench growth:
    --device D     Tallow's device (cpu, wgpu, wgpu:1)
    --no-page      print only
";

/// What `bench growth` was asked for.
#[derive(Debug, PartialEq)]
pub struct Options {
    device: String,
    write: bool,
}

/// Reads the arguments after `growth`.
pub fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { device: "cpu".into(), write: true };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--device" => options.device = rest.next().cloned().ok_or("`--device` needs a value")?,
            "--no-page" => options.write = false,
            other => return Err(format!("`bench growth` has no option `{other}`")),
        }
    }
    Ok(options)
}

/// Measures, prints, and writes the page's section.
pub fn run(context: &Context, options: &Options) -> Result<(), String> {
    process::run(&mut context.cargo(["build", "--quiet", "--release", "--package", "tallow-growth"]))?;
    let model = model::locate_without_tests(context)?;
    let docs = context.root.join("docs");
    let pictures = if options.write { docs.join(FOLDER) } else { context.target.join("bench").join(FOLDER) };
    std::fs::create_dir_all(&pictures).map_err(|error| format!("{} cannot be made: {error}", pictures.display()))?;
    let program = context.target.join("release").join(format!("tallow-growth{}", std::env::consts::EXE_SUFFIX));
    let done = Command::new(&program)
        .arg(&options.device)
        .arg(&pictures)
        .arg(&model)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{} does not start: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&done.stdout);
    println!("{text}");
    if !done.status.success() {
        return Err("tallow-growth failed".into());
    }
    if !options.write {
        return Ok(());
    }
    let section = match options.device.as_str() {
        "cpu" => "growth".to_owned(),
        device => format!("growth-{}", device.replace(':', "-")),
    };
    let Machine { processor, cores, compiler, commit, date } = Machine::look(&context.root);
    let body = format!(
        "## How cost grows ({})\n\n{}\n`cargo xtask bench growth --device {}`, {date}, commit {commit}, {processor}, \
         {cores} cores, {compiler}.",
        options.device, text, options.device
    );
    page::update(&docs.join("performance.md"), &section, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let words = |line: &str| parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
        assert_eq!(words(""), Ok(Options { device: "cpu".into(), write: true }));
        assert_eq!(words("--device wgpu --no-page"), Ok(Options { device: "wgpu".into(), write: false }));
        assert!(words("--device").unwrap_err().contains("needs a value"));
        assert!(words("--peers").unwrap_err().contains("`--peers`"));
    }
}
