//! The crates' own tests: all but tallow-tests (conformance) and the shader variants (shaders).

use crate::artifacts::run_programs;
use crate::context::Context;
use crate::report::PartReport;
use crate::tools;

pub fn run(context: &Context, report: &mut PartReport) {
    if let Err(error) = tools::software_vulkan(context) {
        report.fail(error);
    }
    run_programs(context, report, &[], |folder, target| {
        folder != "tests" && (folder, target) != ("shaders", "shaders")
    });
}
