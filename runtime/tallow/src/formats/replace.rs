//! Writing a file in one step: it is complete under a temporary name before it takes its own, so that a reader never sees
//! half of it, and one that has the old file mapped keeps it.

use std::{
    io::{BufWriter, Result, Write},
    path::Path,
};
use tallow_graph::Error;

/// Writes the file at `path` with `put`, replacing what was there. After an error nothing is left behind.
pub(crate) fn replace(path: &Path, put: impl FnOnce(&mut dyn Write) -> Result<()>) -> tallow_graph::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let write = || {
        let mut out = BufWriter::new(temporary(folder)?);
        put(&mut out)?;
        let file = out.into_inner().map_err(|e| e.into_error())?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|e| e.error)
    };
    write().map(|_| ()).map_err(|e| Error::io(path, e))
}

/// A new file with the permissions that a plain `File::create` gives (temporary files are for the owner only).
fn temporary(folder: &Path) -> Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tallow-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}
