//! A fetch as the user sees it: a bar with bytes, rate and time left; where standard error is no terminal, plain lines.

use crate::{failure::one_line, interrupt::Watch, output::note};
use indicatif::{DecimalBytes, HumanDuration, ProgressBar, ProgressStyle};
use std::{cell::RefCell, time::Instant};
use tallow_models::hub::Progress;

const KNOWN_SIZE: &str = "{bar:30} {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left";
const UNKNOWN_SIZE: &str = "{spinner} {decimal_bytes}, {decimal_bytes_per_sec}";

/// Shows a fetch, and stops it on Ctrl-C.
pub struct Bar<'a> {
    watch: &'a Watch,
    transfer: RefCell<Option<Transfer>>,
}

struct Transfer {
    bar: ProgressBar,
    since: Instant,
}

impl<'a> Bar<'a> {
    /// Nothing is shown before something is fetched.
    pub fn new(watch: &'a Watch) -> Self {
        Self { watch, transfer: RefCell::new(None) }
    }

    fn with(&self, f: impl FnOnce(&Transfer)) {
        if let Some(transfer) = &*self.transfer.borrow() {
            f(transfer);
        }
    }
}

impl Progress for Bar<'_> {
    fn start(&self, total: Option<u64>, already: u64) {
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), KNOWN_SIZE),
            None => (ProgressBar::no_length(), UNKNOWN_SIZE),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        if bar.is_hidden() {
            let total = total.map_or("a file of unknown size".into(), |total| DecimalBytes(total).to_string());
            let from = if already > 0 { format!(", from {} on", DecimalBytes(already)) } else { String::new() };
            note(&format!("fetching {total}{from}"));
        }
        // What is there already says nothing about the rate.
        let bar = bar.with_position(already);
        bar.reset_eta();
        self.with(|old| old.bar.finish_and_clear());
        *self.transfer.borrow_mut() = Some(Transfer { bar, since: Instant::now() });
    }

    fn advance(&self, bytes: u64) {
        self.with(|transfer| transfer.bar.inc(bytes));
    }

    fn message(&self, text: &str) {
        let line = one_line(text);
        match &*self.transfer.borrow() {
            Some(transfer) => transfer.bar.suspend(|| note(&line)),
            None => note(&line),
        }
    }

    fn finish(&self) {
        self.with(|transfer| {
            transfer.bar.finish_and_clear();
            let (bytes, time) = (DecimalBytes(transfer.bar.position()), HumanDuration(transfer.since.elapsed()));
            note(&format!("fetched and verified {bytes} in {time}"));
        });
        *self.transfer.borrow_mut() = None;
    }

    fn cancelled(&self) -> bool {
        self.watch.pressed()
    }
}

impl Drop for Bar<'_> {
    /// A fetch that failed leaves no bar behind.
    fn drop(&mut self) {
        self.with(|transfer| transfer.bar.finish_and_clear());
    }
}
