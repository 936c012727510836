//! The real page: built by trunk, served on localhost, and driven in headless Chromium by tests/web/page.mjs; and the tensor
//! library by itself in the browser (tests/browser), by tests/web/tensors.mjs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::WASM;
use crate::context::Context;
use crate::report::PartReport;
use crate::tally::Tally;
use crate::{model, process, tools};

const LIMIT: Duration = Duration::from_secs(30 * 60);

pub fn run(context: &Context, report: &mut PartReport) {
    for part in [tensors, page] {
        if let Err(error) = part(context, report) {
            report.fail(error);
        }
    }
}

fn tensors(context: &Context, report: &mut PartReport) -> Result<(), String> {
    tools::rust_target(context, WASM)?;
    let bindgen = tools::wasm_bindgen(context)?;
    let node = tools::node(context)?;
    let chromium = tools::chromium(context)?;

    let mut build = context.cargo(["build", "--package", "tallow-browser-tests", "--target", WASM, "--release"]);
    // RUSTFLAGS would replace simd128.
    process::run(build.env_remove("RUSTFLAGS"))?;
    let module = context.target.join(WASM).join("release").join("tallow_browser_tests.wasm");
    let site = context.target.join("browser-tests");
    process::run(Command::new(bindgen).args(["--target", "web", "--out-dir"]).arg(&site).arg(&module))?;
    let index = context.root.join("tests").join("browser").join("index.html");
    std::fs::copy(&index, site.join("index.html"))
        .map_err(|error| format!("{} cannot be copied: {error}", index.display()))?;

    let mut drive = Command::new(node);
    drive.arg(context.web_tests().join("tensors.mjs")).current_dir(context.web_tests());
    drive.arg("--site").arg(&site).arg("--chromium").arg(chromium);
    let mut tally = Tally::default();
    let end = process::watch(&mut drive, LIMIT, |line| tally.line(line));
    report.add("tensors", tally, end);
    Ok(())
}

/// Builds the page as it is released; its folder.
pub fn build_page(context: &Context) -> Result<PathBuf, String> {
    tools::rust_target(context, WASM)?;
    tools::wasm_bindgen(context)?;
    let trunk = tools::trunk(context)?;
    let site = context.target.join("web-dist");
    let mut build = Command::new(trunk);
    build.args(["build", "--release", "--offline", "--dist"]).arg(&site).current_dir(&context.root);
    // trunk reads NO_COLOR as a boolean and refuses the usual `1`; RUSTFLAGS would replace simd128.
    build.env_remove("NO_COLOR").env_remove("RUSTFLAGS");
    tools::with_search_path(context, &mut build)?;
    process::run(&mut build)?;
    Ok(site)
}

fn page(context: &Context, report: &mut PartReport) -> Result<(), String> {
    let node = tools::node(context)?;
    let chromium = tools::chromium(context)?;
    let site = build_page(context)?;
    let path = match context.model() {
        Ok(path) => path,
        Err(error) => {
            report.skip(&format!("the page with {}", model::NAME), error);
            return Ok(());
        }
    };
    let mut drive = Command::new(node);
    drive.arg(context.web_tests().join("page.mjs")).current_dir(context.web_tests());
    drive.arg("--site").arg(&site).arg("--model").arg(path).arg("--chromium").arg(chromium);
    drive.arg("--screenshots").arg(context.target.join("web-screenshots"));
    let mut tally = Tally::default();
    let end = process::watch(&mut drive, LIMIT, |line| tally.line(line));
    report.add("page", tally, end);
    Ok(())
}
