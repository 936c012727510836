//! How a command can end other than well, and what the shell and the user then see.

use crate::output::note;
use std::{io, process::ExitCode};
use tallow::Error;

/// The exit status after Ctrl-C, as shells have it: 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong: one line, status 1.
    Error(Error),
    /// The user pressed Ctrl-C: what there is to say, if anything, and status 130.
    Interrupted(Option<Error>),
    /// Who reads our output has gone (`| head`): that is no fault, so nothing is said.
    Closed,
}

/// What a command gives.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Failures of writing the output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Error(Error::msg(format!("standard output cannot be written: {error}"))),
        }
    }
}

impl Failure {
    /// Says it on standard error, and gives the exit status.
    pub fn report(self) -> ExitCode {
        match self {
            Self::Error(error) => {
                note(&format!("error: {}", one_line(&error.to_string())));
                ExitCode::FAILURE
            }
            Self::Interrupted(error) => {
                if let Some(error) = error {
                    note(&one_line(&error.to_string()));
                }
                ExitCode::from(INTERRUPTED)
            }
            Self::Closed => ExitCode::SUCCESS,
        }
    }
}

/// A message without what would break the line or command the terminal: some of its words may come from a hostile file.
pub fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            '\n' => out.push(' '),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_one_harmless_line() {
        assert_eq!(one_line(" a\nb\u{1b}[2Jc\r\n"), "a b\\u{1b}[2Jc");
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)), Failure::Closed));
        assert!(matches!(Failure::from(io::Error::from(io::ErrorKind::StorageFull)), Failure::Error(_)));
    }
}
