//! The seal of a file: its size, time and sha256 when it was last read from end to end, so that a later start need not
//! read it again.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tallow_graph::{Error, Result};

use super::{Progress, interrupted};

/// Bytes moved at a time: large enough for few system calls, small enough that Ctrl-C is heard at once.
pub(super) const CHUNK: usize = 128 * 1024;

/// What was true of a file when its sha256 was last computed.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Record {
    size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    modified_ns: u64,
    sha256: String,
}

/// A file and the place of its seal.
pub(super) struct Seal {
    pub file: PathBuf,
    pub record: PathBuf,
}

/// What reading a file told.
pub(super) enum Check {
    Absent,
    Whole,
    /// `found` is the file's sha256, `expected` the right one.
    Wrong {
        found: String,
        expected: String,
    },
}

impl Seal {
    /// Whether the file is there and known to be whole without reading it.
    pub fn fits(&self, sha256: Option<&str>) -> bool {
        let (Some(record), Some((size, modified_ns))) = (read_json::<Record>(&self.record), stamp(&self.file)) else {
            return false;
        };
        record.size == size && record.modified_ns == modified_ns && sha256.is_none_or(|sha256| sha256 == record.sha256)
    }

    /// Whether the file is there and whole, reading it if its seal is missing or does not fit. Without a `sha256` the
    /// one of the old seal counts; without that too, the file is taken as it is.
    pub fn check(&self, sha256: Option<&str>, progress: &dyn Progress) -> Result<Check> {
        if self.fits(sha256) {
            return Ok(Check::Whole);
        }
        let Some((size, modified_ns)) = stamp(&self.file) else { return Ok(Check::Absent) };
        progress.message(&format!("checking {}", self.file.display()));
        let mut file = File::open(&self.file).map_err(|e| Error::io(&self.file, e))?;
        let mut hasher = Sha256::new();
        hash_exactly(&mut file, u64::MAX, &mut hasher, progress).map_err(|e| Error::io(&self.file, e))?;
        if progress.cancelled() {
            return Err(interrupted());
        }
        let found = hex(&hasher.finalize());
        let recorded = read_json::<Record>(&self.record).map(|record| record.sha256);
        if let Some(expected) = sha256.map(str::to_string).or(recorded)
            && found != expected
        {
            return Ok(Check::Wrong { found, expected });
        }
        // A cache that cannot be written still serves: the file is then checked at each start.
        if let Err(e) = write_json(&self.record, &Record { size, modified_ns, sha256: found }) {
            log::debug!("no seal for {}: {e}", self.file.display());
        }
        Ok(Check::Whole)
    }

    /// Seals the file with what is true of `source`, which will be renamed to it: renaming keeps the time.
    pub fn write(&self, source: &Path, sha256: &str) -> io::Result<()> {
        let (size, modified_ns) =
            stamp(source).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the file has disappeared"))?;
        write_json(&self.record, &Record { size, modified_ns, sha256: sha256.into() })
    }
}

/// Feeds up to `limit` bytes of `file`, from its start, to `hasher`; stops early when cancelled. Returns the count.
pub(super) fn hash_exactly(
    file: &mut File,
    limit: u64,
    hasher: &mut Sha256,
    progress: &dyn Progress,
) -> io::Result<u64> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = Read::take(&*file, limit);
    let mut buffer = vec![0; CHUNK];
    let mut done = 0;
    while !progress.cancelled() {
        let n = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        hasher.update(buffer.get(..n).unwrap_or_default());
        done += n as u64;
    }
    Ok(done)
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}

/// A name for a side file, made of any bytes: 32 hex digits.
pub(super) fn key(bytes: &[u8]) -> String {
    let mut key = hex(&Sha256::digest(bytes));
    key.truncate(32);
    key
}

/// Size and time of a regular file.
fn stamp(path: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let modified = meta.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some((meta.len(), u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX)))
}

/// A side file, if it is there and sane: what cannot be read counts as absent, and is written anew.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = String::new();
    File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes a side file by renaming, so that no reader ever sees half of one.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    builder.prefix(".side-");
    // Other users of a shared cache must read it; a temporary file is private unless told otherwise.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}
