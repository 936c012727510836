//! Formatting.

use crate::context::Context;
use crate::process;
use crate::report::PartReport;

pub fn run(context: &Context, report: &mut PartReport) {
    report.check(process::run(&mut context.cargo(["fmt", "--all", "--check"])));
}
