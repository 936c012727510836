//! What a fetch tells its caller. The library prints nothing: a command line draws a bar, a test counts calls.

/// Hears how a fetch goes on, and may stop it.
///
/// Every method has a default that does nothing. Numbers are bytes.
pub trait Progress {
    /// A transfer begins: `total` bytes if the size is known, of which `already` are there from an earlier run.
    /// A transfer that broke off, or that has to begin anew, calls this again.
    fn start(&self, _total: Option<u64>, _already: u64) {}

    /// `bytes` more have arrived.
    fn advance(&self, _bytes: u64) {}

    /// One line for the user, without a newline: what is being tried, why something is tried again, what is awaited.
    fn message(&self, _text: &str) {}

    /// The last transfer is complete and verified.
    fn finish(&self) {}

    /// Asked between chunks and while waiting: `true` ends the fetch with an error and keeps what has arrived, so that
    /// a later run resumes. For programs that catch Ctrl-C; others simply die, which is as safe.
    fn cancelled(&self) -> bool {
        false
    }
}

/// A [`Progress`] that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
