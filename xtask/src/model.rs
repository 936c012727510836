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

/// Finds or fetches the model, with the command line that the tests have built, if they have.
pub fn locate(context: &Context) -> Model {
    named().unwrap_or_else(|| {
        // The tests of the command line have built it already, unless it has none or they did not build.
        let built = context.tests().executables.iter().find(|file| !file.is_test && file.target == "tallow");
        match built {
            Some(tallow) => pull(Command::new(&tallow.path)),
            None => pull(release(context)),
        }
    })
}

/// Finds or fetches the model where no tests are built.
pub fn locate_without_tests(context: &Context) -> Model {
    named().unwrap_or_else(|| pull(release(context)))
}

fn release(context: &Context) -> Command {
    context.cargo(["run", "--quiet", "--release", "--package", "tallow-demos", "--"])
}

/// What TALLOW_TEST_MODEL says.
fn named() -> Option<Model> {
    let path = std::env::var_os("TALLOW_TEST_MODEL").map(PathBuf::from)?;
    let file = std::path::absolute(&path).ok().filter(|path| path.is_file());
    Some(file.ok_or_else(|| format!("TALLOW_TEST_MODEL names no file: {}", path.display())))
}

fn pull(mut tallow: Command) -> Model {
    tallow.arg("pull");
    println!("$ {}", process::shown(&tallow));
    let printed = process::output(&mut tallow)?;
    let path = printed.lines().last().map(|line| PathBuf::from(line.trim())).unwrap_or_default();
    if path.is_file() { Ok(path) } else { Err(format!("`tallow pull` printed no path of a file but {printed:?}")) }
}
