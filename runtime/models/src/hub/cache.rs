//! The cache folder: where a file lies, how it is known to be whole, and who may write it.
//!
//! Next to `NAME` lie `NAME.verified.json` (the *seal*: size, time and sha256 of the verified file, so that a later
//! start need not hash it again) and, while it is fetched, `NAME.part` with `NAME.part.json`. `NAME` itself appears
//! only by renaming a complete, verified `.part`: a process that dies at any moment leaves no broken file. Lock files
//! are empty, live in `.locks`, and stay: removing one while another process waits for it would let two writers in.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tallow_graph::{Error, Result};

use super::name::{HubName, PART, PART_INFO, SEAL};
use super::{Progress, interrupted};

/// Bytes moved at a time: large enough for few system calls, small enough that Ctrl-C is heard at once.
pub(super) const CHUNK: usize = 128 * 1024;

/// What was true of a file when its sha256 was last computed.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
struct Seal {
    size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    modified_ns: u64,
    sha256: String,
}

/// What the server said about the file that a `.part` is the beginning of.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct PartInfo {
    /// The strong entity tag, with its quotes.
    pub etag: Option<String>,
    pub sha256: Option<String>,
    pub size: Option<u64>,
}

/// One file's places in the cache.
pub(super) struct Slot {
    root: PathBuf,
    pub file: PathBuf,
    pub part: PathBuf,
    part_info: PathBuf,
    seal: PathBuf,
    lock: PathBuf,
    name: String,
}

/// Held while a slot is written; other processes wait.
pub(super) struct Guard {
    // `None` where the file system has no locks.
    _file: Option<File>,
}

impl Slot {
    pub fn new(root: &Path, name: &HubName) -> Self {
        let file = root.join(name.cache_path());
        let beside = |ending: &str| {
            let mut path = file.clone().into_os_string();
            path.push(ending);
            PathBuf::from(path)
        };
        let key = hex(&Sha256::digest(name.cache_path().as_os_str().as_encoded_bytes()));
        let lock = root.join(".locks").join(format!("{}.lock", key.get(..32).unwrap_or(&key)));
        Self {
            root: root.into(),
            part: beside(PART),
            part_info: beside(PART_INFO),
            seal: beside(SEAL),
            lock,
            name: name.to_string(),
            file,
        }
    }

    /// Whether the file is there and known to be whole without reading it.
    pub fn is_sealed(&self, sha256: Option<&str>) -> bool {
        let (Some(seal), Some((size, modified_ns))) = (read_json::<Seal>(&self.seal), stamp(&self.file)) else {
            return false;
        };
        seal.size == size && seal.modified_ns == modified_ns && sha256.is_none_or(|sha256| sha256 == seal.sha256)
    }

    /// Whether the file is there and whole, reading it if its seal is missing or does not fit. A file whose sha256 is
    /// wrong is removed. A file of which nobody knows the sha256 (put there by hand) is taken as it is.
    pub fn verify(&self, sha256: Option<&str>, progress: &dyn Progress) -> Result<bool> {
        if self.is_sealed(sha256) {
            return Ok(true);
        }
        let Some((size, modified_ns)) = stamp(&self.file) else { return Ok(false) };
        progress.message(&format!("checking {}", self.file.display()));
        let mut file = File::open(&self.file).map_err(|e| Error::io(&self.file, e))?;
        let mut hasher = Sha256::new();
        hash_exactly(&mut file, u64::MAX, &mut hasher, progress).map_err(|e| Error::io(&self.file, e))?;
        if progress.cancelled() {
            return Err(interrupted());
        }
        let found = hex(&hasher.finalize());
        let recorded = read_json::<Seal>(&self.seal).map(|seal| seal.sha256);
        if let Some(expected) = sha256.map(str::to_string).or(recorded)
            && found != expected
        {
            progress.message(&format!(
                "{} is damaged (sha256 {found}, expected {expected}) and will be fetched again",
                self.file.display()
            ));
            self.remove(&self.file)?;
            self.remove(&self.seal)?;
            return Ok(false);
        }
        // A cache that cannot be written still serves: the file is then checked at each start.
        if let Err(e) = write_json(&self.seal, &Seal { size, modified_ns, sha256: found }) {
            log::debug!("no seal for {}: {e}", self.file.display());
        }
        Ok(true)
    }

    /// Makes the folders and waits for the lock.
    pub fn lock(&self, progress: &dyn Progress) -> Result<Guard> {
        let folders = [self.lock.parent(), self.file.parent()];
        for folder in folders.into_iter().flatten() {
            fs::create_dir_all(folder).map_err(|e| self.cannot_write(folder, e))?;
        }
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.lock)
            .map_err(|e| self.cannot_write(&self.lock, e))?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Guard { _file: Some(file) }),
                Err(TryLockError::WouldBlock) => {
                    if !told {
                        progress.message(&format!("another process is fetching {}; waiting for it", self.name));
                        told = true;
                    }
                    if progress.cancelled() {
                        return Err(interrupted());
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(TryLockError::Error(e)) => {
                    // Some network file systems have no locks. The rename keeps the result whole even so.
                    log::debug!("no lock on {}: {e}", self.lock.display());
                    return Ok(Guard { _file: None });
                }
            }
        }
    }

    /// Opens the `.part` for reading and writing, as far as it has come.
    pub fn open_part(&self) -> Result<File> {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&self.part)
            .map_err(|e| self.cannot_write(&self.part, e))
    }

    pub fn part_info(&self) -> Option<PartInfo> {
        read_json(&self.part_info)
    }

    pub fn set_part_info(&self, info: &PartInfo) -> Result<()> {
        write_json(&self.part_info, info).map_err(|e| self.cannot_write(&self.part_info, e))
    }

    /// Forgets what has been fetched.
    pub fn discard_part(&self) -> Result<()> {
        self.remove(&self.part)?;
        self.remove(&self.part_info)
    }

    /// Removes a `.part` that holds nothing.
    pub fn tidy(&self) {
        if fs::symlink_metadata(&self.part).is_ok_and(|meta| meta.is_file() && meta.len() == 0) {
            // What cannot be removed is empty, and does no harm.
            let _ = self.discard_part();
        }
    }

    /// Turns the complete, verified `.part` into the file.
    pub fn commit(&self, part: File, sha256: &str) -> Result<()> {
        part.sync_all().map_err(|e| self.cannot_write(&self.part, e))?;
        drop(part);
        let (size, modified_ns) = stamp(&self.part)
            .ok_or_else(|| Error::io(&self.part, io::Error::new(io::ErrorKind::NotFound, "it has disappeared")))?;
        // The seal goes first: renaming keeps the time, and a seal without a file says nothing.
        write_json(&self.seal, &Seal { size, modified_ns, sha256: sha256.into() })
            .map_err(|e| self.cannot_write(&self.seal, e))?;
        fs::rename(&self.part, &self.file).map_err(|e| self.cannot_write(&self.file, e))?;
        self.remove(&self.part_info)?;
        // Makes the rename itself durable; where folders cannot be opened (Windows) it is so already.
        #[cfg(unix)]
        if let Some(folder) = self.file.parent()
            && let Ok(folder) = File::open(folder)
        {
            let _ = folder.sync_all();
        }
        Ok(())
    }

    /// The error for a failed write: a full disk and a closed cache folder have their own words.
    pub fn cannot_write(&self, path: &Path, error: io::Error) -> Error {
        use io::ErrorKind as K;
        let (path, root) = (path.display(), self.root.display());
        match error.kind() {
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge => Error::msg(format!(
                "{path}: the disk is full ({error}). Free some space and run again, or set TALLOW_CACHE to a folder on \
                 another disk"
            )),
            K::PermissionDenied | K::ReadOnlyFilesystem | K::NotADirectory | K::AlreadyExists | K::NotFound => {
                Error::msg(format!(
                    "{path}: the cache folder {root} cannot be written ({error}). Set TALLOW_CACHE to a folder that can"
                ))
            }
            _ => Error::msg(format!("{path}: writing failed ({error})")),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(self.cannot_write(path, e)),
            _ => Ok(()),
        }
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

/// Size and time of a regular file.
fn stamp(path: &Path) -> Option<(u64, u64)> {
    let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let modified = meta.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some((meta.len(), u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX)))
}

/// A side file, if it is there and sane: what cannot be read counts as absent, and is written anew.
fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut text = String::new();
    File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes a side file by renaming, so that no reader ever sees half of one.
fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
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
