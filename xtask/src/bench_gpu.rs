//! `cargo xtask bench gpu`: builds the program that measures a GPU, lays it into one folder with the Vulkan loader, so that
//! the folder alone can be taken to a machine without a network, and runs it here.

use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::process;

/// What starts the program on any Linux machine. A container may have NVIDIA's driver without the file that tells the
/// loader of it.
const START: &str = r#"#!/bin/sh
# Measures this machine's GPU: sh run.sh [--minutes 8] [--out FILE]. Needs nothing but a Vulkan driver.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -z "$VK_DRIVER_FILES$VK_ICD_FILENAMES" ] &&
    ! ls /usr/share/vulkan/icd.d/*nvidia* /etc/vulkan/icd.d/*nvidia* > /dev/null 2>&1; then
    for library in libGLX_nvidia.so.0 libEGL_nvidia.so.0; do
        if ldconfig -p 2> /dev/null | grep -q "$library"; then
            printf '{"file_format_version": "1.0.1", "ICD": {"library_path": "%s", "api_version": "1.3.0"}}\n' "$library" \
                > "$here/nvidia_icd.json"
            export VK_DRIVER_FILES="$here/nvidia_icd.json" VK_ICD_FILENAMES="$here/nvidia_icd.json"
            break
        fi
    done
fi
exec "$here/tallow-bench-gpu" "$@"
"#;

/// Builds, lays together and runs; the arguments are the program's own.
pub fn run(context: &Context, arguments: &[String]) -> Result<(), String> {
    process::run(&mut context.cargo(["build", "--quiet", "--release", "--package", "tallow-bench-gpu"]))?;
    let name = format!("tallow-bench-gpu{}", std::env::consts::EXE_SUFFIX);
    let folder = std::path::absolute(context.target.join("bench").join("gpu"))
        .map_err(|error| format!("the target folder has no path: {error}"))?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
    copy(&context.target.join("release").join(&name), &folder.join(&name))?;
    if cfg!(target_os = "linux") {
        let script = folder.join("run.sh");
        std::fs::write(&script, START).map_err(|error| format!("{}: {error}", script.display()))?;
        match loader() {
            Some(library) => copy(&library, &folder.join("libvulkan.so.1"))?,
            None => println!("no libvulkan.so.1 to take along: the other machine needs its own"),
        }
        println!("{} can be taken to another machine: `sh run.sh`", folder.display());
    }
    let mut command = std::process::Command::new(folder.join(&name));
    command.args(arguments).current_dir(&folder);
    if cfg!(target_os = "linux") {
        let mut path = folder.clone().into_os_string();
        if let Some(own) = std::env::var_os("LD_LIBRARY_PATH").filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        command.env("LD_LIBRARY_PATH", path);
    }
    process::run(&mut command)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    // A program that is running cannot be written, but replaced.
    let _ = std::fs::remove_file(to);
    std::fs::copy(from, to).map(drop).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

/// The Vulkan loader of this machine.
fn loader() -> Option<PathBuf> {
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let usual = ["/usr/lib", "/usr/lib64", "/lib", "/usr/local/lib"].map(PathBuf::from);
    let machine = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    std::env::split_paths(&own)
        .chain([PathBuf::from(machine)])
        .chain(usual)
        .map(|folder| folder.join("libvulkan.so.1"))
        .find(|file| file.is_file())
}
