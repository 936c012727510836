//! Adds up what the parts did, and prints the end of the run.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::tally::{Skip, Tally};

/// Prints a line, except in this file's own tests: xtask reads their output too, and would count it.
fn say(line: &str) {
    if !cfg!(test) {
        println!("{line}");
    }
}

/// What one part did.
#[derive(Debug)]
pub struct PartReport {
    name: &'static str,
    passed: usize,
    failed: usize,
    skipped: usize,
    failures: Vec<String>,
    skips: BTreeSet<Skip>,
    start: Instant,
    time: Duration,
}

impl PartReport {
    /// A part begins.
    pub fn begin(name: &'static str) -> Self {
        say(&format!("\n== {name}"));
        Self {
            name,
            passed: 0,
            failed: 0,
            skipped: 0,
            failures: Vec::new(),
            skips: BTreeSet::new(),
            start: Instant::now(),
            time: Duration::ZERO,
        }
    }

    /// One check that passes or fails as a whole.
    pub fn check(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => self.fail(error),
        }
    }

    /// Something failed that no test runner counts.
    pub fn fail(&mut self, error: impl Into<String>) {
        let error = error.into();
        say(&format!("failed: {error}"));
        self.failed += 1;
        self.failures.push(error);
    }

    /// Something was left out.
    pub fn skip(&mut self, name: &str, reason: &str) {
        say(&format!("skipped: {name}: {reason}"));
        self.skipped += 1;
        self.skips.insert(Skip { name: name.to_owned(), reason: reason.to_owned() });
    }

    /// The results of one test program called `program`, and how it ended.
    pub fn add(&mut self, program: &str, tally: Tally, end: Result<(), String>) {
        self.passed += tally.passed;
        self.failed += tally.failed;
        self.skipped += tally.skipped;
        self.failures.extend(tally.failures.iter().map(|test| format!("{program}: {test}")));
        self.skips.extend(tally.skips);
        match end {
            // It broke off (a crash, a time limit): no runner has counted that.
            Err(error) if tally.failed == 0 => self.fail(error),
            Ok(()) if !tally.finished => self.fail(format!("{program} ended without a `test result:` line")),
            _ => {}
        }
    }

    /// A part that ran nothing has not passed.
    pub fn finish(mut self) -> Self {
        if self.passed + self.failed + self.skipped == 0 {
            self.fail("nothing was run");
        }
        self.time = self.start.elapsed();
        self
    }
}

/// The whole run.
#[derive(Debug, Default)]
pub struct Report {
    /// The parts, in the order in which they ran.
    pub parts: Vec<PartReport>,
}

impl Report {
    fn sum(&self, count: impl Fn(&PartReport) -> usize) -> usize {
        self.parts.iter().map(count).sum()
    }

    /// How many checks failed.
    pub fn failed(&self) -> usize {
        self.sum(|part| part.failed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<12} {:>7} {:>7} {:>8} {:>9}", "part", "passed", "failed", "skipped", "time")?;
        for part in &self.parts {
            let time = format!("{:.1} s", part.time.as_secs_f64());
            writeln!(f, "{:<12} {:>7} {:>7} {:>8} {time:>9}", part.name, part.passed, part.failed, part.skipped)?;
        }
        for part in &self.parts {
            for skip in &part.skips {
                writeln!(f, "skipped: {}: {}: {}", part.name, skip.name, skip.reason)?;
            }
        }
        for part in &self.parts {
            for failure in &part.failures {
                writeln!(f, "failed: {}: {failure}", part.name)?;
            }
        }
        write!(f, "{} passed, {} failed", self.sum(|part| part.passed), self.failed())?;
        match self.sum(|part| part.skipped) {
            0 => writeln!(f),
            skipped => writeln!(f, ", {skipped} skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(passed: usize, failed: usize) -> Tally {
        let mut tally = Tally::default();
        tally.line(&format!("test result: ok. {passed} passed; {failed} failed; 0 ignored"));
        tally
    }

    fn last_line(part: PartReport) -> String {
        let report = Report { parts: vec![part.finish()] };
        report.to_string().lines().last().unwrap().to_owned()
    }

    #[test]
    fn the_last_line_sums_up() {
        let mut part = PartReport::begin("unit");
        part.check(Ok(()));
        part.add("a", counted(3, 1), Err("ended with 101".into()));
        assert_eq!(last_line(part), "4 passed, 1 failed");
    }

    #[test]
    fn a_crash_and_a_silent_end_are_failures() {
        let mut part = PartReport::begin("unit");
        part.add("a", counted(3, 0), Err("ended with a signal".into()));
        part.add("b", Tally::default(), Ok(()));
        part.skip("wgpu", "no adapter");
        assert_eq!(last_line(part), "3 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn an_empty_part_fails() {
        assert_eq!(last_line(PartReport::begin("unit")), "0 passed, 1 failed");
    }
}
