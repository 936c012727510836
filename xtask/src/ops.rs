//! `cargo xtask ops`: docs/ops.md, written by the tests that hold the devices against it.

use crate::{context::Context, process, tools};

/// Runs the tests with the switch that makes them write. One at a time: each writes its own part of the page.
pub fn write(context: &Context) -> Result<(), String> {
    tools::software_vulkan(context)?;
    let test = ["test", "--package", "tallow-tests", "--test", "conformance", "documented", "--", "--test-threads=1"];
    process::run(context.cargo(test).env("TALLOW_WRITE_OPS", "1"))
}
