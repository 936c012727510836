//! Model files: what they hold, and where each tensor's bytes lie. Nothing here computes or copies weights; a reader
//! checks a header completely, and then hands out slices of the file.
//!
//! Files are hostile: every count, length and offset is checked before it is used, memory is never reserved on a
//! file's word, and each failure is an [`Error::Format`] that says what was wrong and at which byte.

mod archive;
pub mod gguf;
pub mod npy;
pub mod pickle;
mod replace;
pub mod safetensors;
pub mod source;

use crate::Error;
use std::{fmt::Display, path::Path};

pub use gguf::Gguf;
pub(crate) use replace::Failed;
#[cfg(not(target_family = "wasm"))]
pub(crate) use replace::replace;
pub use safetensors::SafeTensors;
pub use source::Bytes;

/// Puts the path in front of a format error.
pub(crate) fn in_file(path: &Path, error: Error) -> Error {
    inside(path.display(), error)
}

/// Puts a place (a file, a part of it) in front of a format error.
pub(crate) fn inside(place: impl Display, error: Error) -> Error {
    match error {
        Error::Format { format, message } => Error::format(format, format!("{place}: {message}")),
        other => other,
    }
}

/// A name from a file, fit for an error message: escaped, and cut where it is long.
pub(crate) fn quoted(name: &str) -> String {
    const LONGEST: usize = 80;
    match name.char_indices().nth(LONGEST) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}... ({} bytes)", name.get(..end).unwrap_or_default(), name.len()),
    }
}
