//! Reads what test runners print. Rust's own runner prints `test NAME ... ok` and `test result: ok. 3 passed; ...`; the
//! Node scripts in tests/web print the same. A test that could not run for want of a device or a file passes, as far
//! as the runner knows, but prints `skipped: NAME: reason`; such a test must never be counted as passed, so it is taken
//! out here.

use std::collections::BTreeSet;

/// Something that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skip {
    /// What was left out: a device, a file, a test.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// The count of one test program's results.
#[derive(Debug, Default)]
pub struct Tally {
    /// Tests that ran and passed.
    pub passed: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests that were left out.
    pub skipped: usize,
    /// The names of the failed tests.
    pub failures: Vec<String>,
    /// What was left out, each reason once.
    pub skips: BTreeSet<Skip>,
    /// Whether a `test result:` line was seen.
    pub finished: bool,
    /// The test whose captured output is being read, and whether it passed.
    section: Option<String>,
    in_successes: bool,
    /// Tests of the present program that passed and printed a skip line.
    not_really_passed: BTreeSet<String>,
}

impl Tally {
    /// Takes one line; returns whether it is worth showing. The captured output of tests that passed is not.
    pub fn line(&mut self, line: &str) -> bool {
        if let Some(skip) = skip_line(line) {
            match &self.section {
                Some(test) if self.in_successes => drop(self.not_really_passed.insert(test.clone())),
                // Inside a failed test the failure is what counts.
                Some(_) => {}
                None => self.skipped += 1,
            }
            self.skips.insert(skip);
            return self.section.is_none();
        }
        match line {
            "successes:" => {
                (self.in_successes, self.section) = (true, None);
                return false;
            }
            "failures:" => (self.in_successes, self.section) = (false, None),
            _ => {}
        }
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.section = Some(test.to_owned());
        } else if let Some(counts) = result_line(line) {
            let moved = self.not_really_passed.len().min(counts.passed);
            self.passed += counts.passed - moved;
            self.skipped += moved + counts.ignored;
            self.failed += counts.failed;
            self.finished = true;
            self.not_really_passed.clear();
            (self.in_successes, self.section) = (false, None);
        } else if self.section.is_none() && !self.in_successes {
            self.test_line(line);
        }
        !self.in_successes
    }

    fn test_line(&mut self, line: &str) {
        let Some((name, outcome)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) else {
            return;
        };
        if outcome.starts_with("FAILED") {
            self.failures.push(name.to_owned());
        } else if let Some(reason) = outcome.strip_prefix("ignored") {
            let reason = reason.trim_start_matches([',', ' ']);
            let reason = if reason.is_empty() { "ignored" } else { reason };
            self.skips.insert(Skip { name: name.to_owned(), reason: reason.to_owned() });
        }
    }
}

struct Counts {
    passed: usize,
    failed: usize,
    ignored: usize,
}

/// `skipped: NAME: reason`.
fn skip_line(line: &str) -> Option<Skip> {
    let (name, reason) = line.trim().strip_prefix("skipped: ")?.split_once(": ")?;
    Some(Skip { name: name.to_owned(), reason: reason.to_owned() })
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn result_line(line: &str) -> Option<Counts> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count =
        |word: &str| counts.split(';').find_map(|item| item.trim().strip_suffix(word)?.trim().parse::<usize>().ok());
    Some(Counts { passed: count("passed")?, failed: count("failed")?, ignored: count("ignored").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Tally, String) {
        let mut tally = Tally::default();
        let shown: Vec<&str> = text.lines().filter(|line| tally.line(line)).collect();
        (tally, shown.join("\n"))
    }

    #[test]
    fn counts_add_up_over_programs() {
        let (tally, _) = read(
            "running 2 tests\ntest a ... ok\ntest b ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             running 1 test\ntest c ... FAILED\n\nfailures:\n\n---- c stdout ----\nboom\n\nfailures:\n    c\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (2, 1, 0));
        assert_eq!(tally.failures, ["c"]);
        assert!(tally.finished);
    }

    #[test]
    fn a_skip_inside_a_passed_test_is_not_a_pass() {
        let (tally, shown) = read(
            "test softmax_wgpu ... ok\ntest softmax_cpu ... ok\n\nsuccesses:\n\n---- softmax_wgpu stdout ----\n\
             skipped: wgpu: no adapter was found\nskipped: wgpu: no adapter was found\n\n\nsuccesses:\n    softmax_cpu\n\
             \n    softmax_wgpu\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 0, 1));
        let skip = Skip { name: "wgpu".into(), reason: "no adapter was found".into() };
        assert_eq!(tally.skips.into_iter().collect::<Vec<_>>(), [skip]);
        assert!(!shown.contains("no adapter"), "captured output of a passed test was shown:\n{shown}");
        assert!(shown.ends_with("0 filtered out"));
    }

    #[test]
    fn a_skip_inside_a_failed_test_stays_a_failure() {
        let (tally, shown) = read(
            "test a ... FAILED\nfailures:\n\n---- a stdout ----\nskipped: wgpu: none\nbroken\n\nfailures:\n    a\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!((tally.passed, tally.failed, tally.skipped), (0, 1, 0));
        assert!(shown.contains("broken"));
    }

    #[test]
    fn loose_skips_and_ignored_tests_are_named() {
        let (tally, _) = read(
            "skipped: a model: cannot be fetched: offline\ntest slow ... ignored, takes an hour\n\
             test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!((tally.passed, tally.skipped), (0, 2));
        let names: Vec<_> = tally.skips.iter().map(|skip| (&*skip.name, &*skip.reason)).collect();
        assert_eq!(names, [("a model", "cannot be fetched: offline"), ("slow", "takes an hour")]);
    }

    #[test]
    fn what_only_looks_like_a_result_is_left_alone() {
        let (tally, _) = read("the test result: ok. 7 passed; 0 failed\ntest result: nothing");
        assert_eq!((tally.passed, tally.finished), (0, false));
    }
}
