//! The examples in the documentation, which must run, and rustdoc itself, whose warnings are errors.

use std::time::Duration;

use super::WEB_CRATE;
use crate::context::Context;
use crate::process;
use crate::report::PartReport;
use crate::tally::Tally;

const LIMIT: Duration = Duration::from_secs(30 * 60);

pub fn run(context: &Context, report: &mut PartReport) {
    let mut tally = Tally::default();
    let mut examples = context.cargo(["test", "--doc", "--workspace", "--exclude", WEB_CRATE, "--no-fail-fast"]);
    let end = process::watch(&mut examples, LIMIT, |line| tally.line(line));
    report.add("doc tests", tally, end);
    // The program `tallow` of tallow-demos would overwrite the pages of the library `tallow`.
    let mut rustdoc =
        context.cargo(["doc", "--no-deps", "--workspace", "--exclude", WEB_CRATE, "--exclude", "tallow-demos"]);
    report.check(process::run(rustdoc.env("RUSTDOCFLAGS", "-D warnings")));
}
