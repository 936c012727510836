//! Lints: everything that is not the browser crate for this machine, the browser crate for wasm32.

use super::{WASM, WEB_CRATE};
use crate::context::Context;
use crate::report::PartReport;
use crate::{process, tools};

pub fn run(context: &Context, report: &mut PartReport) {
    let native = ["clippy", "--workspace", "--exclude", WEB_CRATE, "--all-targets", "--", "-D", "warnings"];
    report.check(process::run(&mut context.cargo(native)));
    let web = ["clippy", "--package", WEB_CRATE, "--target", WASM, "--all-targets", "--", "-D", "warnings"];
    report.check(tools::rust_target(context, WASM).and_then(|()| process::run(&mut context.cargo(web))));
}
