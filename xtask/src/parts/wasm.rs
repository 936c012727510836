//! Other targets: the browser crate for wasm32 in release, with its size, and `cargo check` of the native crates for
//! Windows and macOS.

use std::path::Path;
use std::process::Command;

use super::{WASM, WEB_CRATE};
use crate::context::Context;
use crate::report::PartReport;
use crate::{process, tools, wasm_module};

/// Targets to check; the first of a line that rustup can add is taken.
const CHECKED: [&[&str]; 2] = [&["x86_64-pc-windows-msvc", "x86_64-pc-windows-gnu"], &["aarch64-apple-darwin"]];

pub fn run(context: &Context, report: &mut PartReport) {
    report.check(browser(context));
    for choice in CHECKED {
        let mut reason = String::new();
        let found =
            choice.iter().find(|triple| tools::rust_target(context, triple).map_err(|error| reason = error).is_ok());
        match found {
            Some(triple) => report.check(check(context, triple)),
            None => report.skip(&choice.join(" or "), &reason),
        }
    }
}

fn browser(context: &Context) -> Result<(), String> {
    tools::rust_target(context, WASM)?;
    let mut build = context.cargo(["build", "--package", WEB_CRATE, "--target", WASM, "--release"]);
    // A RUSTFLAGS of the caller would replace the flags in .cargo/config.toml, simd128 among them.
    process::run(build.env_remove("RUSTFLAGS"))?;
    let file = context.target.join(WASM).join("release").join(format!("{}.wasm", WEB_CRATE.replace('-', "_")));
    let bytes = std::fs::read(&file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    let vectors = wasm_module::functions_with_vectors(&bytes)
        .ok_or_else(|| format!("{} is not a WebAssembly module", file.display()))?;
    if vectors == 0 {
        return Err(format!("{} was built without simd128", file.display()));
    }
    println!("simd128: {vectors} functions use vectors");
    println!("size: {} KiB as rustc leaves it", bytes.len() / 1024);
    let bindgen = tools::wasm_bindgen(context)?;
    let out = context.target.join("wasm-size");
    process::run(Command::new(bindgen).args(["--target", "web", "--out-dir"]).arg(&out).arg(&file))?;
    report_size(&out)
}

fn report_size(folder: &Path) -> Result<(), String> {
    let name = format!("{}_bg.wasm", WEB_CRATE.replace('-', "_"));
    let file = folder.join(&name);
    let size = std::fs::metadata(&file).map_err(|error| format!("{name} was not written: {error}"))?.len();
    let mut line = format!("size: {} KiB after wasm-bindgen", size / 1024);
    // Only for information: no gzip, no number.
    if let Ok(packed) = Command::new("gzip").args(["-9", "-c"]).arg(&file).output()
        && packed.status.success()
    {
        line += &format!(", {} KiB gzipped", packed.stdout.len() / 1024);
    }
    println!("{line}");
    Ok(())
}

/// Type-checks the native crates for another system. Build scripts that compile C are given a compiler that only
/// writes empty files, since nothing is linked.
fn check(context: &Context, triple: &str) -> Result<(), String> {
    let mut command =
        context.cargo(["check", "--workspace", "--exclude", WEB_CRATE, "--exclude", "xtask", "--target", triple]);
    if cfg!(unix) {
        let compiler = stand_in_compiler(context)?;
        let suffix = triple.replace('-', "_");
        for tool in ["CC", "CXX", "AR"] {
            command.env(format!("{tool}_{suffix}"), &compiler);
        }
    }
    process::run(&mut command)
}

/// A C compiler and archiver that creates the file that it is asked for, empty.
#[cfg(unix)]
fn stand_in_compiler(context: &Context) -> Result<std::path::PathBuf, String> {
    use std::os::unix::fs::PermissionsExt;
    const SCRIPT: &str = "\
#!/bin/sh
# Stands in for a C compiler and archiver in `cargo check` for another system; written by xtask.
previous=
for argument in \"$@\"; do
    case \"$previous\" in -o|cq|crs|rcs) : > \"$argument\" ;; esac
    case \"$argument\" in
        -Fo*) : > \"${argument#-Fo}\" ;;
        -out:*|/out:*|/OUT:*) : > \"${argument#*:}\" ;;
    esac
    previous=$argument
done
";
    let path = context.target.join("xtask-tools").join("stand-in-cc");
    let written = std::fs::create_dir_all(context.tools_dir())
        .and_then(|()| std::fs::write(&path, SCRIPT))
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)));
    written.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    Ok(path)
}

#[cfg(not(unix))]
fn stand_in_compiler(_: &Context) -> Result<std::path::PathBuf, String> {
    Err("not needed here".to_owned())
}
