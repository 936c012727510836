//! tallow-tests on every device. A device that is absent is reported as skipped, by name.

use crate::artifacts::run_programs;
use crate::context::Context;
use crate::report::PartReport;
use crate::{model, tools};

pub fn run(context: &Context, report: &mut PartReport) {
    if let Err(error) = tools::software_vulkan(context) {
        report.fail(error);
    }
    let mut environment = Vec::new();
    match context.model() {
        Ok(path) => environment.push(("TALLOW_TEST_MODEL", path.to_string_lossy().into_owned())),
        Err(error) => report.skip(model::NAME, error),
    }
    run_programs(context, report, &environment, |folder, _| folder == "tests");
}
