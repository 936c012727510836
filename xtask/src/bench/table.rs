//! Outcomes as a table, for the terminal and for docs/performance.md alike, and the notes below it.

use tallow_bench_protocol::{Case, Floors, Unit};

use super::cases::Entry;
use super::measure::{Outcome, Verdict};
use super::peers::title;
use super::statistics::Summary;

/// A ratio from which on two speeds count as equal: the noise of a shared machine.
pub const EQUAL: f64 = 0.97;

/// A table as Markdown, its columns padded so that it reads well as text too.
pub fn render(outcomes: &[(Entry, Outcome)], floors: &[(usize, Floors)], keys: &[String]) -> String {
    let peers: Vec<&String> = keys.iter().filter(|key| key.as_str() != "tallow").collect();
    let mut header: Vec<String> =
        ["case", "threads", "Tallow", "best", "spread", "floor"].iter().map(|&name| name.into()).collect();
    header.extend(peers.iter().map(|key| title(key).unwrap_or(key).to_owned()));
    if !peers.is_empty() {
        header.extend(["target".to_owned(), "met".to_owned()]);
    }
    let mut rows = vec![header];
    for (entry, outcome) in outcomes {
        let case = &outcome.case;
        let tallow = outcome.summary("tallow");
        let mut row = vec![case.name.clone(), outcome.threads.to_string()];
        match tallow {
            Some(summary) => {
                let floors = floors.iter().find(|(threads, _)| *threads == outcome.threads).map(|(_, floors)| floors);
                row.push(quantity(case, summary.median));
                row.push(quantity(case, summary.best));
                row.push(format!("{:.0}%", 100. * summary.spread()));
                let share = floors.and_then(|floors| share(case, summary, floors));
                row.push(share.map_or("-".into(), |share| format!("{:.0}%", 100. * share)));
            }
            None => row.extend([word(outcome, "tallow"), "-".into(), "-".into(), "-".into()]),
        }
        for key in &peers {
            row.push(match (outcome.summary(key), tallow) {
                (Some(peer), Some(tallow)) => {
                    format!("{} ({:.2})", quantity(case, peer.median), peer.median / tallow.median)
                }
                (Some(peer), None) => quantity(case, peer.median),
                (None, _) => word(outcome, key),
            });
        }
        if !peers.is_empty() {
            row.push(if entry.targets.is_empty() { "-".into() } else { targets(&entry.targets) });
            row.push(met(entry, outcome));
        }
        rows.push(row);
    }
    markdown(&rows)
}

/// The time of the floor over the time taken: 1 is the machine's limit.
fn share(case: &Case, summary: &Summary, floors: &Floors) -> Option<f64> {
    let peak = match case.unit {
        Unit::Time => floors.flops,
        // Packed weights meet inputs of 8 bits.
        Unit::Tokens(_) => floors.int8.unwrap_or(floors.flops),
        Unit::Bytes => return None,
    };
    let memory = case.bytes / floors.read.max(floors.copy);
    Some(1e9 * memory.max(case.flops / peak) / summary.median)
}

/// A measured value in the case's unit.
fn quantity(case: &Case, nanoseconds: f64) -> String {
    match case.unit {
        Unit::Tokens(tokens) => format!("{}/s", digits(1e9 * tokens as f64 / nanoseconds)),
        Unit::Bytes => format!("{} MB", digits(nanoseconds / 1e6)),
        Unit::Time => time(nanoseconds),
    }
}

/// Nanoseconds in the unit that suits them.
pub fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e3 => format!("{} ns", digits(short)),
        short if short < 1e6 => format!("{} us", digits(short / 1e3)),
        short if short < 1e9 => format!("{} ms", digits(short / 1e6)),
        long => format!("{} s", digits(long / 1e9)),
    }
}

/// Three significant digits.
pub fn digits(value: f64) -> String {
    match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// One word for a participant that has no time.
fn word(outcome: &Outcome, key: &str) -> String {
    let verdict = outcome.verdicts.iter().find(|(name, _)| name == key).map(|(_, verdict)| verdict);
    match verdict {
        Some(Verdict::Differs(_)) => "wrong".into(),
        Some(Verdict::Failed(_)) => "failed".into(),
        Some(Verdict::Unsupported(_) | Verdict::Timed(_)) | None => "-".into(),
    }
}

fn targets(targets: &[(&str, f64)]) -> String {
    let all: Vec<String> =
        targets.iter().map(|(key, ratio)| format!("{} {}", title(key).unwrap_or(key), round(*ratio))).collect();
    all.join(", ")
}

fn round(ratio: f64) -> f64 {
    (100. * ratio).round() / 100.
}

/// Whether the targets are met beside those peers that were timed.
fn met(entry: &Entry, outcome: &Outcome) -> String {
    let Some(tallow) = outcome.summary("tallow") else { return "-".into() };
    let mut seen = false;
    let mut missed = Vec::new();
    for &(key, ratio) in &entry.targets {
        let Some(peer) = outcome.summary(key) else { continue };
        seen = true;
        if !reaches(peer.median / tallow.median, ratio) {
            missed.push(title(key).unwrap_or(key));
        }
    }
    match (seen, missed.is_empty()) {
        (false, _) => "-".into(),
        (true, true) => "yes".into(),
        (true, false) => format!("not {}", missed.join(", ")),
    }
}

/// Being as fast is what noise hides; being twice as fast is not.
fn reaches(ratio: f64, target: f64) -> bool {
    ratio >= if target == 1. { EQUAL } else { target }
}

/// Rows of cells, the first of them the header.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            let lines: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
            text += &format!("| {} |\n", lines.join(" | "));
        }
    }
    text
}

/// What a table cannot say in a word: who was wrong or broke and how, one line each.
pub fn notes(outcomes: &[(Entry, Outcome)]) -> Vec<String> {
    let mut notes = Vec::new();
    for (_, outcome) in outcomes {
        for (key, verdict) in &outcome.verdicts {
            let (what, message) = match verdict {
                Verdict::Differs(message) => ("has another result", message),
                Verdict::Failed(message) => ("failed", message),
                Verdict::Unsupported(_) | Verdict::Timed(_) => continue,
            };
            let who = title(key).unwrap_or(key);
            notes.push(format!("{}, {} threads: {who} {what}: {message}", outcome.case.name, outcome.threads));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallow_bench_protocol::{Element, Op};

    fn summary(median: f64) -> Verdict {
        Verdict::Timed(Summary { best: median / 2., median, lower: 0.9 * median, upper: median, runs: 9 })
    }

    fn entry(verdicts: &[(&str, Verdict)], targets: &[(&'static str, f64)]) -> (Entry, Outcome) {
        let case = Case {
            group: "g".into(),
            name: "square".into(),
            op: Op::Matmul,
            dtype: Element::F32,
            inputs: Vec::new(),
            flops: 1e9,
            bytes: 1e6,
            tolerance: 0.,
            unit: Unit::Time,
        };
        let verdicts = verdicts.iter().map(|(key, verdict)| (key.to_string(), verdict.clone())).collect();
        let outcome = Outcome { case: case.clone(), threads: 1, verdicts };
        (Entry { case, targets: targets.to_vec() }, outcome)
    }

    const FLOORS: Floors = Floors { read: 1e10, copy: 2e10, flops: 1e11, int8: None };

    fn cells(text: &str, line: usize) -> Vec<&str> {
        text.lines().nth(line).unwrap().trim_matches('|').split('|').map(str::trim).collect()
    }

    #[test]
    fn a_row_says_times_floor_ratio_and_target() {
        let verdicts = [("tallow", summary(2e7)), ("candle", summary(5e7)), ("torch", summary(1.8e7))];
        let row = entry(&verdicts, &[("candle", 2.), ("torch", 1.)]);
        let keys = ["tallow", "candle", "torch"].map(String::from);
        let text = render(&[row], &[(1, FLOORS)], &keys);
        let header = ["case", "threads", "Tallow", "best", "spread", "floor", "candle", "PyTorch", "target", "met"];
        assert_eq!(cells(&text, 0), header);
        let row = [
            "square",
            "1",
            "20.0 ms",
            "10.0 ms",
            "10%",
            "50%",
            "50.0 ms (2.50)",
            "18.0 ms (0.90)",
            "candle 2, PyTorch 1",
            "not PyTorch",
        ];
        assert_eq!(cells(&text, 2), row);
        assert!(text.lines().all(|line| line.len() == text.lines().next().unwrap().len()), "{text}");
    }

    #[test]
    fn equal_within_noise_is_equal_but_twice_is_twice() {
        assert!(reaches(0.97, 1.) && !reaches(0.96, 1.));
        assert!(!reaches(1.97, 2.) && reaches(0.9, 0.9));
    }

    #[test]
    fn what_was_not_timed_is_said_and_noted() {
        let verdicts = [
            ("tallow", summary(2e3)),
            ("candle", Verdict::Differs("element 3 is 1, not 2".into())),
            ("torch", Verdict::Failed("it ended".into())),
            ("numpy", Verdict::Unsupported("no gelu".into())),
        ];
        let row = entry(&verdicts, &[("candle", 1.)]);
        let keys = ["tallow", "candle", "torch", "numpy"].map(String::from);
        let text = render(std::slice::from_ref(&row), &[], &keys);
        let row_cells = cells(&text, 2);
        assert_eq!(row_cells[2..9], ["2.00 us", "1.00 us", "10%", "-", "wrong", "failed", "-"]);
        assert_eq!(row_cells[10], "-");
        let notes = notes(&[row]);
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("candle has another result: element 3 is 1, not 2"), "{notes:?}");
    }

    #[test]
    fn rates_and_times_have_three_digits() {
        let (entry, _) = entry(&[], &[]);
        let mut case = entry.case;
        let shown = [1.234, 12_345., 9.996e6, 1.5e9].map(|time| quantity(&case, time));
        assert_eq!(shown, ["1.23 ns", "12.3 us", "10.0 ms", "1.50 s"]);
        case.unit = Unit::Tokens(32);
        assert_eq!(quantity(&case, 1e9), "32.0/s");
        case.unit = Unit::Bytes;
        assert_eq!(quantity(&case, 2.5e8), "250 MB");
    }
}
