//! The cache that Hugging Face's own tools share: what they have fetched is used where it lies. Nothing there is ever
//! written or removed.
//!
//! Their layout, as huggingface_hub documents it: the folder `models--OWNER--REPO` holds `blobs/TAG` (the bytes; the tag
//! of a large file is its sha256, that of a small one a git object name), `snapshots/COMMIT/FILE` (a link to a blob, or a
//! copy where there are no links) and `refs/REVISION` (the commit that a branch meant when it was last asked for). A
//! download that is not complete has no snapshot.
//!
//! Those tools do not check a file again. Here it is read once against its sha256, and a seal in Tallow's own cache
//! remembers that.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use tallow_graph::Result;

use super::Progress;
use super::known::KnownModel;
use super::name::HubName;
use super::seal::{Check, Seal, key};

/// The folder of the seals, in Tallow's own cache. No owner's name begins with a dot.
const SEALS: &str = ".shared";

/// Snapshots of one repository that are looked at: more would only be a broken folder.
const MAX_SNAPSHOTS: usize = 1000;

/// A file that may be the one.
pub(super) struct SharedFile {
    seal: Seal,
    /// What its sha256 must be, where that is known.
    sha256: Option<String>,
}

impl SharedFile {
    /// The path inside the snapshot, with the file's own name.
    pub fn path(&self) -> &Path {
        &self.seal.file
    }

    /// Whether the file is there and known to be whole without reading it.
    pub fn is_sealed(&self) -> bool {
        self.seal.fits(self.sha256.as_deref())
    }

    /// Whether the file is whole, reading it if need be. One that is not is left alone.
    ///
    /// # Errors
    /// When cancelled.
    pub fn verify(&self, progress: &dyn Progress) -> Result<bool> {
        let why = match self.seal.check(self.sha256.as_deref(), progress) {
            Ok(Check::Whole) => return Ok(true),
            Ok(Check::Absent) => return Ok(false),
            Ok(Check::Wrong { found, expected }) => format!("its sha256 is {found} instead of {expected}"),
            Err(stopped) if progress.cancelled() => return Err(stopped),
            Err(unreadable) => unreadable.to_string(),
        };
        progress.message(&format!("{} is not used: {why}", self.path().display()));
        Ok(false)
    }
}

/// The files below `shared` that `name` may mean, the surest first. For a known model every snapshot counts, for its
/// sha256 tells whether the file is the right one. `own` is Tallow's cache folder.
pub(super) fn candidates(shared: &Path, own: &Path, name: &HubName, known: Option<&KnownModel>) -> Vec<SharedFile> {
    let repo = shared.join(format!("models--{}", name.repo_id().replace('/', "--")));
    let snapshots = repo.join("snapshots");
    let mut commits: Vec<PathBuf> = commit(&repo, name.revision()).map(PathBuf::from).into_iter().collect();
    if known.is_some() {
        let entries = fs::read_dir(&snapshots).into_iter().flatten().flatten().take(MAX_SNAPSHOTS);
        let mut others: Vec<PathBuf> = entries.map(|entry| entry.file_name().into()).collect();
        others.sort();
        commits.extend(others);
    }
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for commit in commits {
        let mut file = snapshots.join(commit);
        file.extend(name.file().split('/'));
        // No file, or a link to nothing.
        let Ok(blob) = file.canonicalize() else { continue };
        let Ok(meta) = blob.metadata() else { continue };
        if seen.contains(&blob) || !meta.is_file() || known.is_some_and(|known| known.bytes != meta.len()) {
            continue;
        }
        let sha256 = known.map(|known| known.sha256.to_string()).or_else(|| sha256_of(&blob));
        let record = own.join(SEALS).join(format!("{}.json", key(blob.as_os_str().as_encoded_bytes())));
        seen.push(blob);
        found.push(SharedFile { seal: Seal { file, record }, sha256 });
    }
    found
}

/// The commit that `revision` means in this cache.
fn commit(repo: &Path, revision: &str) -> Option<String> {
    if is_hex(revision, 40) {
        return Some(revision.into());
    }
    let mut text = String::new();
    File::open(repo.join("refs").join(revision)).ok()?.take(100).read_to_string(&mut text).ok()?;
    // The text becomes part of a path.
    Some(text.trim().to_string()).filter(|text| is_hex(text, 40))
}

/// The sha256 that a blob's name gives.
fn sha256_of(blob: &Path) -> Option<String> {
    let in_blobs = blob.parent()?.file_name()? == "blobs";
    let name = blob.file_name()?.to_str()?;
    (in_blobs && is_hex(name, 64)).then(|| name.to_string())
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}
