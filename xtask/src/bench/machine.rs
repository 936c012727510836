//! What stands above a table: the machine, the versions, the day.

use std::process::Command;

use serde::Serialize;

/// Where and with what figures were measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name and its widest vector instructions.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// `rustc 1.95.0`.
    pub compiler: String,
    /// The commit, with `, changed` where files differ from it.
    pub commit: String,
    /// The day in UTC.
    pub date: String,
}

impl Machine {
    /// Asks the system; what it does not tell is `unknown`.
    pub fn look(root: &std::path::Path) -> Self {
        let first = |program: &str, arguments: &[&str]| {
            let done = Command::new(program).args(arguments).current_dir(root).output().ok()?;
            let text = String::from_utf8_lossy(&done.stdout).trim().to_owned();
            (done.status.success() && !text.is_empty()).then_some(text)
        };
        let unknown = || "unknown".to_owned();
        let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
        let compiler = first(&rustc, &["--version"])
            .map_or_else(unknown, |version| version.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
        let changed =
            first("git", &["status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/performance.md"])
                .is_some();
        let commit = first("git", &["rev-parse", "--short", "HEAD"])
            .map_or_else(unknown, |commit| if changed { format!("{commit}, changed") } else { commit });
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            processor: processor(&info).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            compiler,
            commit,
            date: first("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(unknown),
        }
    }
}

/// The name and the vector instructions out of Linux's /proc/cpuinfo.
fn processor(info: &str) -> Option<String> {
    let field = |name: &str| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let name = field("model name")?;
    let flags: Vec<&str> = field("flags").unwrap_or_default().split_whitespace().collect();
    let known = [
        ("avx512f", "AVX-512"),
        ("avx512_vnni", "VNNI"),
        ("avx512_bf16", "BF16"),
        ("amx_tile", "AMX"),
        ("avx2", "AVX2"),
    ];
    let found: Vec<&str> = known.iter().filter(|(flag, _)| flags.contains(flag)).map(|(_, name)| *name).collect();
    Some(if found.is_empty() { name.to_owned() } else { format!("{name} ({})", found.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::processor;

    #[test]
    fn the_processor_is_named_with_its_vectors() {
        let info =
            "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 avx512f avx512_vnni\n\nprocessor\t: 1\n";
        assert_eq!(processor(info).as_deref(), Some("AMD EPYC (AVX-512, VNNI, AVX2)"));
        assert_eq!(processor("model name : Z80"), Some("Z80".into()));
        assert_eq!(processor(""), None);
    }
}
