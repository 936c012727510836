//! Finds the model file of the tests on real weights: TALLOW_TEST_MODEL, else what `tallow pull` prints, which fetches
//! the file on first use. The product's own way of fetching is used, so that there is only one.

use std::path::PathBuf;
use std::process::Command;

use crate::context::Context;
use crate::process;

/// What a skip line calls the model.
pub const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The file, or why there is none.
pub type Model = Result<PathBuf, String>;

/// Finds or fetches the model.
pub fn locate(context: &Context) -> Model {
    if let Some(path) = std::env::var_os("TALLOW_TEST_MODEL").map(PathBuf::from) {
        return std::path::absolute(&path)
            .ok()
            .filter(|path| path.is_file())
            .ok_or_else(|| format!("TALLOW_TEST_MODEL names no file: {}", path.display()));
    }
    // The tests of the command line have built it already, unless it has none or they did not build.
    let built = context.tests().executables.iter().find(|file| !file.is_test && file.target == "tallow");
    let mut command = match built {
        Some(tallow) => Command::new(&tallow.path),
        None => context.cargo(["run", "--quiet", "--release", "--package", "tallow-demos", "--"]),
    };
    command.arg("pull");
    println!("$ {}", process::shown(&command));
    let printed = process::output(&mut command)?;
    let path = printed.lines().last().map(|line| PathBuf::from(line.trim())).unwrap_or_default();
    if path.is_file() { Ok(path) } else { Err(format!("`tallow pull` printed no path of a file but {printed:?}")) }
}
