//! The one error type of Tallow: every crate returns it, so that `?` works from a kernel up to the command line.

use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Messages name the operation or file, the shapes and dtypes at hand, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes, dtypes, devices or arguments that an operation cannot take. Found when the operation is built.
    #[error("{op}: {message}")]
    Op {
        /// The operation's name, as in the API.
        op: &'static str,
        /// What does not fit, with the shapes or dtypes, and what would.
        message: String,
    },
    /// A kernel met something it cannot compute (an index out of range, for instance). Found at the read of what was
    /// computed from it.
    #[error("{op}: {message}")]
    Fault {
        /// The operation whose kernel failed.
        op: String,
        /// What it met.
        message: String,
    },
    /// The device has no room for an allocation.
    #[error("out of memory on {device}: {bytes} bytes were asked for. {hint}")]
    OutOfMemory {
        /// The device's name.
        device: String,
        /// Size of the allocation that failed.
        bytes: u64,
        /// What may help.
        hint: &'static str,
    },
    /// The device is gone (driver reset, tab in the background, unplugged). Nothing on it can be read any more.
    #[error("the device {device} was lost: {message}. Open it again and load the data anew")]
    DeviceLost {
        /// The device's name.
        device: String,
        /// The driver's words.
        message: String,
    },
    /// A device that cannot be opened, or that lacks what was asked for.
    #[error("{0}")]
    Device(String),
    /// A call that would have to block where blocking is impossible (a browser's thread).
    #[error("{call} would block, which a browser does not allow: use {instead} and await it")]
    WouldBlock {
        /// The call that was made.
        call: &'static str,
        /// The asynchronous twin.
        instead: &'static str,
    },
    /// A file or byte stream that does not hold what its format demands.
    #[error("{format}: {message}")]
    Format {
        /// The format's name: `GGUF`, `safetensors`, `tokenizer`, ...
        format: &'static str,
        /// What is wrong, where, and what was expected.
        message: String,
    },
    /// The operating system refused something.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Another error, with words about what was being done.
    #[error("{context}: {source}")]
    Context {
        /// What was being done.
        context: String,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Msg(String),
}

impl Error {
    /// An [`Error::Op`].
    pub fn op(op: &'static str, message: impl Into<String>) -> Self {
        Self::Op { op, message: message.into() }
    }

    /// An [`Error::Format`].
    pub fn format(format: &'static str, message: impl Into<String>) -> Self {
        Self::Format { format, message: message.into() }
    }

    /// An [`Error::Io`] about `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), source }
    }

    /// An [`Error::Context`] about any error.
    pub fn wrap(context: impl std::fmt::Display, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Context { context: context.to_string(), source: source.into() }
    }

    /// An [`Error::Msg`].
    pub fn msg(message: impl Into<String>) -> Self {
        Self::Msg(message.into())
    }
}
