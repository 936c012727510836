//! The cache folder: where a file lies, how it is known to be whole, and who may write it.
//!
//! Next to `NAME` lie `NAME.verified.json` (the *seal*: size, time and sha256 of the verified file, so that a later
//! start need not hash it again) and, while it is fetched, `NAME.part` with `NAME.part.json`. `NAME` itself appears
//! only by renaming a complete, verified `.part`: a process that dies at any moment leaves no broken file. Lock files
//! are empty, live in `.locks`, and stay: removing one while another process waits for it would let two writers in.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tallow_graph::{Error, Result};

use super::name::{HubName, PART, PART_INFO, SEAL};
use super::seal::{Check, Seal, key, read_json, write_json};
use super::{Progress, interrupted};

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
    pub part: PathBuf,
    part_info: PathBuf,
    seal: Seal,
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
        let lock = root.join(".locks").join(format!("{}.lock", key(name.cache_path().as_os_str().as_encoded_bytes())));
        Self {
            root: root.into(),
            part: beside(PART),
            part_info: beside(PART_INFO),
            lock,
            name: name.to_string(),
            seal: Seal { record: beside(SEAL), file },
        }
    }

    /// Where the whole file lies, or will.
    pub fn file(&self) -> &Path {
        &self.seal.file
    }

    /// Whether the file is there and known to be whole without reading it.
    pub fn is_sealed(&self, sha256: Option<&str>) -> bool {
        self.seal.fits(sha256)
    }

    /// Whether the file is there and whole, reading it if its seal is missing or does not fit. A file whose sha256 is
    /// wrong is removed. A file of which nobody knows the sha256 (put there by hand) is taken as it is.
    pub fn verify(&self, sha256: Option<&str>, progress: &dyn Progress) -> Result<bool> {
        match self.seal.check(sha256, progress)? {
            Check::Whole => Ok(true),
            Check::Absent => Ok(false),
            Check::Wrong { found, expected } => {
                progress.message(&format!(
                    "{} is damaged (sha256 {found}, expected {expected}) and will be fetched again",
                    self.file().display()
                ));
                self.remove(self.file())?;
                self.remove(&self.seal.record)?;
                Ok(false)
            }
        }
    }

    /// Makes the folders and waits for the lock.
    pub fn lock(&self, progress: &dyn Progress) -> Result<Guard> {
        let folders = [self.lock.parent(), self.file().parent()];
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
        // The seal goes first: a seal without a file says nothing.
        self.seal.write(&self.part, sha256).map_err(|e| self.cannot_write(&self.seal.record, e))?;
        fs::rename(&self.part, self.file()).map_err(|e| self.cannot_write(self.file(), e))?;
        self.remove(&self.part_info)?;
        // Makes the rename itself durable; where folders cannot be opened (Windows) it is so already.
        #[cfg(unix)]
        if let Some(folder) = self.file().parent()
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
