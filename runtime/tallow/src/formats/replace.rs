//! Writing a file in one step: it is complete under a temporary name before it takes its own, so that a reader never sees
//! half of it, and one that has the old file mapped keeps it.

use std::io;
use tallow_graph::Error;

/// Why a file was not written: the writing itself, or what was to be written.
pub(crate) enum Failed {
    Write(io::Error),
    Value(Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Value(error)
    }
}

#[cfg(not(target_family = "wasm"))]
pub(crate) use native::replace;

#[cfg(not(target_family = "wasm"))]
mod native {
    use super::Failed;
    use std::{
        io::{self, BufWriter},
        path::Path,
    };
    use tallow_graph::Error;
    use tempfile::NamedTempFile;

    /// Writes the file at `path` with `put`, replacing what was there. After an error nothing is left behind.
    pub(crate) fn replace(
        path: &Path,
        put: impl FnOnce(&mut BufWriter<NamedTempFile>) -> Result<(), Failed>,
    ) -> tallow_graph::Result<()> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let write = || -> Result<(), Failed> {
            let mut out = BufWriter::new(temporary(folder)?);
            put(&mut out)?;
            let file = out.into_inner().map_err(|e| e.into_error())?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|e| e.error)?;
            Ok(())
        };
        write().map_err(|failed| match failed {
            Failed::Write(error) => Error::io(path, error),
            Failed::Value(error) => error,
        })
    }

    /// A new file with the permissions that a plain `File::create` gives (temporary files are for the owner only).
    fn temporary(folder: &Path) -> io::Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".tallow-");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(folder)
    }
}
