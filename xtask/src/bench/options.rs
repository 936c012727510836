//! The command line of `cargo xtask bench`.

use std::time::Duration;

use super::cases::GROUPS;

/// What is to be measured.
#[derive(Debug, PartialEq)]
pub struct Options {
    /// The groups, in the page's order.
    pub groups: Vec<&'static str>,
    /// Tallow's device.
    pub device: String,
    /// Whether peers are measured too.
    pub peers: bool,
    /// Only cases whose names contain this.
    pub case: Option<String>,
    /// Only so many threads.
    pub threads: Option<usize>,
    /// Time for the runs of one case, all participants together.
    pub budget: Duration,
    /// Whether docs/performance.md is written.
    pub write: bool,
    /// The command as the page shows it.
    pub command: String,
}

/// Reads the arguments after `cargo xtask bench`; `None` asks for the help text.
pub fn parse(arguments: &[String]) -> Result<Option<Options>, String> {
    let mut wanted: Vec<&str> = Vec::new();
    let mut options = Options {
        groups: Vec::new(),
        device: "cpu".into(),
        peers: false,
        case: None,
        threads: None,
        budget: Duration::from_secs(3),
        write: true,
        command: format!("cargo xtask bench {}", arguments.join(" ")).trim_end().to_owned(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("`{argument}` needs a value"));
        match argument.as_str() {
            "-h" | "--help" => return Ok(None),
            "--peers" => options.peers = true,
            "--no-page" => options.write = false,
            "--device" => options.device = value()?,
            "--case" => options.case = Some(value()?),
            "--threads" => options.threads = Some(number(argument, &value()?)?),
            "--seconds" => options.budget = Duration::from_secs(number(argument, &value()?)? as u64),
            option if option.starts_with('-') => return Err(format!("`bench` has no option `{option}`")),
            name if GROUPS.iter().any(|group| group.name == name) => wanted.push(name),
            name => return Err(format!("`bench` has no group `{name}`; the groups are {}", names())),
        }
    }
    if options.peers && options.device != "cpu" {
        return Err("the peers run on the CPU: `--peers` goes with `--device cpu` only".into());
    }
    options.groups =
        GROUPS.iter().map(|group| group.name).filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    // A part of a group is no section of the page, and without peers there is nothing to compare.
    options.write &= options.peers && options.case.is_none() && options.threads.is_none();
    Ok(Some(options))
}

fn number(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=3600) => Ok(number),
        _ => Err(format!("`{option}` takes a whole number from 1 to 3600, not `{text}`")),
    }
}

fn names() -> String {
    GROUPS.iter().map(|group| group.name).collect::<Vec<_>>().join(", ")
}

/// The part of the help text about `bench`.
pub fn help() -> String {
    let mut groups = String::new();
    for group in &GROUPS {
        groups += &format!("    {:<12} {}\n", group.name, group.about);
    }
    format!(
        "\
`bench` measures Tallow, and with --peers the other frameworks beside it in the same run, in turns. Results are compared
before anything is timed. Without a GROUP it measures all:
{groups}
options of bench:
    --peers        build or download the peers into target/bench, measure them too, and write the group's section of
                   docs/performance.md
    --device D     Tallow's device (cpu, wgpu, wgpu:1); peers run on the CPU only
    --case TEXT    only cases whose names contain TEXT; the page is left alone
    --threads N    only N threads; the page is left alone
    --seconds S    time for the runs of one case, all participants together (3)
    --no-page      leave docs/performance.md alone
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Option<Options>, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn groups_are_all_or_those_named() {
        assert_eq!(parse_words("").unwrap().unwrap().groups.len(), GROUPS.len());
        let options = parse_words("map matmul --peers --seconds 5").unwrap().unwrap();
        assert_eq!(options.groups, ["matmul", "map"]);
        assert!(options.peers && options.write);
        assert_eq!(options.budget, Duration::from_secs(5));
        assert_eq!(options.command, "cargo xtask bench map matmul --peers --seconds 5");
    }

    #[test]
    fn the_page_is_written_only_for_whole_groups_with_peers() {
        for line in ["map", "map --peers --case gelu", "map --peers --threads 1", "map --peers --no-page"] {
            assert!(!parse_words(line).unwrap().unwrap().write, "{line}");
        }
    }

    #[test]
    fn wrong_words_are_named() {
        assert!(parse_words("mapp").unwrap_err().contains("`mapp`"));
        assert!(parse_words("--fast").unwrap_err().contains("`--fast`"));
        assert!(parse_words("--seconds").unwrap_err().contains("needs a value"));
        assert!(parse_words("--seconds soon").unwrap_err().contains("`soon`"));
        assert!(parse_words("--threads 0").unwrap_err().contains("`0`"));
        assert!(parse_words("--device wgpu --peers").unwrap_err().contains("CPU"));
        assert_eq!(parse_words("map --help"), Ok(None));
    }
}
