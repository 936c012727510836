//! Standard output for what was asked for, standard error for the rest. Neither panics when its reader has gone.

use std::io::{self, Write};

/// Says one line on standard error.
pub fn note(line: &str) {
    // Nobody is left to be told that this failed.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Text that appears as it comes.
#[derive(Default)]
pub struct Stream {
    /// Whether the line that was begun waits for its end.
    open: bool,
}

impl Stream {
    /// Shows a piece of text at once.
    pub fn show(&mut self, text: &str) -> io::Result<()> {
        self.open = true;
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Ends the text's last line, if text was shown.
    pub fn end(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.open) { print_line("") } else { Ok(()) }
    }
}

/// Writes one line to standard output.
pub fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
