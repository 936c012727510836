//! Finds the tools that a part needs, or installs them. Each function returns only when the tool is there; its error
//! says exactly what to install.

pub mod install;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::context::Context;
use crate::{lockfile, process};
use install::{Program, apt, cargo_install};

/// trunk's version: the newest that builds with the rustc that the workspace is developed with.
const TRUNK: &str = "0.21.14";

/// Looks a program up in xtask's own tools folder, PATH, and cargo's bin folder.
pub fn find(context: &Context, name: &str) -> Option<PathBuf> {
    search_path(context).into_iter().find_map(|folder| {
        ["", ".exe", ".cmd"].iter().map(|ending| folder.join(format!("{name}{ending}"))).find(|file| file.is_file())
    })
}

fn search_path(context: &Context) -> Vec<PathBuf> {
    let mut folders = vec![context.tools_dir().join("bin")];
    folders.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    folders.extend(cargo_home.map(|home| home.join("bin")));
    folders
}

/// Makes `command` find what `find` finds.
pub fn with_search_path(context: &Context, command: &mut Command) -> Result<(), String> {
    let path = std::env::join_paths(search_path(context)).map_err(|error| format!("PATH cannot be used: {error}"))?;
    command.env("PATH", path);
    Ok(())
}

/// A Vulkan device in software (lavapipe), so that the WebGPU backend can be tested without a GPU. Needed on Linux
/// only: elsewhere the system brings an adapter, or the tests say that there is none.
pub fn software_vulkan(context: &Context) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let driver = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"].iter().any(|folder| {
        std::fs::read_dir(folder).is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("lvp_icd"))
        })
    });
    let loader = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
        .iter()
        .any(|folder| Path::new(folder).join("libvulkan.so.1").exists());
    if driver && loader {
        return Ok(());
    }
    apt(context, "a Vulkan device in software", &["mesa-vulkan-drivers", "libvulkan1"])
}

/// Chromium or Chrome.
pub fn chromium(context: &Context) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("CHROMIUM").map(PathBuf::from) {
        return if path.is_file() { Ok(path) } else { Err(format!("CHROMIUM names no file: {}", path.display())) };
    }
    let look = || {
        let known = Path::new("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome");
        ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"]
            .iter()
            .find_map(|name| find(context, name))
            .or_else(|| known.is_file().then(|| known.to_path_buf()))
    };
    if let Some(path) = look() {
        return Ok(path);
    }
    apt(context, "Chromium (elsewhere than on Debian: set CHROMIUM to the path of a Chrome)", &["chromium"])?;
    look().ok_or_else(|| "chromium was installed but is not on PATH".to_owned())
}

/// Node, and the packages of tests/web/package.json.
pub fn node(context: &Context) -> Result<PathBuf, String> {
    let missing: Vec<&str> = [("node", "nodejs"), ("npm", "npm")]
        .iter()
        .filter(|(program, _)| find(context, program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        apt(context, "Node 18 or newer with npm", &missing)?;
    }
    let node = find(context, "node").ok_or("nodejs was installed but `node` is not on PATH")?;
    let version = process::output(Command::new(&node).arg("--version"))?;
    let major = version.trim().trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < 18) {
        return Err(format!("{} is version {}; install Node 18 or newer", node.display(), version.trim()));
    }
    install::npm_packages(context)?;
    Ok(node)
}

/// The standard library for another target.
pub fn rust_target(context: &Context, triple: &str) -> Result<(), String> {
    let library = || -> Result<bool, String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let sysroot = process::output(Command::new(rustc).args(["--print", "sysroot"]).current_dir(&context.root))?;
        Ok(Path::new(sysroot.trim()).join("lib/rustlib").join(triple).join("lib").is_dir())
    };
    if library()? {
        return Ok(());
    }
    let advice = format!("Rust's library for {triple} is missing: run `rustup target add {triple}`");
    let Some(rustup) = find(context, "rustup").filter(|_| context.install) else { return Err(advice) };
    let mut command = Command::new(rustup);
    command.args(["target", "add", triple]).current_dir(&context.root);
    install::timed(&format!("Rust's library for {triple} (seconds)"), &mut command)?;
    if library()? { Ok(()) } else { Err(advice) }
}

/// wasm-bindgen's command line, of the version in Cargo.lock.
pub fn wasm_bindgen(context: &Context) -> Result<PathBuf, String> {
    let lock = std::fs::read_to_string(context.root.join("Cargo.lock"))
        .map_err(|error| format!("Cargo.lock cannot be read: {error}"))?;
    let version = lockfile::version(&lock, "wasm-bindgen").ok_or("Cargo.lock does not hold one wasm-bindgen")?;
    let program = Program { package: "wasm-bindgen-cli", name: "wasm-bindgen", version, locked: false, minutes: 4 };
    cargo_install(context, &program)
}

/// trunk.
pub fn trunk(context: &Context) -> Result<PathBuf, String> {
    let program = Program { package: "trunk", name: "trunk", version: TRUNK.to_owned(), locked: true, minutes: 8 };
    cargo_install(context, &program)
}
