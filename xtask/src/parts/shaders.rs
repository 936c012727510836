//! Every WGSL variant: the test `shaders` of tallow-wgpu puts each through naga and its writers and writes it into the
//! folder TALLOW_WGSL_DUMP; tests/web/tint.mjs then compiles each file with Tint, which is stricter.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::artifacts::run_programs;
use crate::context::Context;
use crate::report::PartReport;
use crate::tally::Tally;
use crate::{process, tools};

const TINT_LIMIT: Duration = Duration::from_secs(10 * 60);

pub fn run(context: &Context, report: &mut PartReport) {
    let folder = context.target.join("wgsl");
    if let Err(error) = empty(&folder) {
        return report.fail(error);
    }
    let environment = [("TALLOW_WGSL_DUMP", folder.to_string_lossy().into_owned())];
    run_programs(context, report, &environment, |folder, target| (folder, target) == ("shaders", "shaders"));
    let node = match tools::node(context) {
        Ok(node) => node,
        Err(error) => return report.fail(error),
    };
    let mut command = Command::new(node);
    command.arg(context.web_tests().join("tint.mjs")).arg(&folder).current_dir(context.web_tests());
    let mut tally = Tally::default();
    let end = process::watch(&mut command, TINT_LIMIT, |line| tally.line(line));
    report.add("tint", tally, end);
}

/// Leaves `folder` empty: variants of an earlier run must not be compiled again.
fn empty(folder: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{} cannot be emptied: {error}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(failed)?;
    }
    std::fs::create_dir_all(folder).map_err(failed)
}
