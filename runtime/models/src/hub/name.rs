//! Hub names: `hf:owner/repo/file`, checked so strictly that no name can leave the cache folder or the hub's own paths.

use std::fmt;
use std::path::PathBuf;

use tallow_graph::{Error, Result};

/// The revision of a name that gives none.
const DEFAULT_REVISION: &str = "main";

/// Endings that the cache keeps for itself, next to the file.
pub(super) const PART: &str = ".part";
pub(super) const PART_INFO: &str = ".part.json";
pub(super) const SEAL: &str = ".verified.json";

/// A file in a repository of the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubName {
    owner: String,
    repo: String,
    revision: Option<String>,
    file: String,
}

impl HubName {
    /// Reads `hf:owner/repo/path/to/file`, with an optional revision (branch, tag or commit) either as
    /// `hf:owner/repo@revision/file` or as `hf:owner/repo/file@revision`. In the first form a `@` in the file's name
    /// belongs to the name.
    ///
    /// # Errors
    /// If a part is empty, `.` or `..`, or holds a character that no repository needs.
    pub fn parse(text: &str) -> Result<Self> {
        let refuse = |why: String| {
            Error::msg(format!(
                "{text:?} is not a hub name: {why}. Write hf:owner/repo/file, for instance hf:me/my-model/model.gguf"
            ))
        };
        let rest = text.strip_prefix("hf:").ok_or_else(|| refuse("it does not begin with hf:".into()))?;
        let mut parts = rest.splitn(3, '/');
        let (Some(owner), Some(repo), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(refuse("owner, repository and file are needed".into()));
        };
        let (repo, mut revision) = match repo.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (repo, None),
        };
        let mut file = file;
        if revision.is_none()
            && let Some((before, after)) = file.rsplit_once('@')
            && !after.contains('/')
        {
            (file, revision) = (before, Some(after));
        }
        check_id("the owner", owner).map_err(&refuse)?;
        check_id("the repository", repo).map_err(&refuse)?;
        if let Some(revision) = revision {
            check_id("the revision", revision).map_err(&refuse)?;
        }
        if file.len() > 1000 {
            return Err(refuse("the file's path is longer than 1000 bytes".into()));
        }
        for part in file.split('/') {
            check_part(part).map_err(&refuse)?;
        }
        if let Some(ending) = [PART, PART_INFO, SEAL].iter().find(|ending| file.ends_with(**ending)) {
            return Err(refuse(format!("the cache keeps the ending {ending} for itself")));
        }
        Ok(Self { owner: owner.into(), repo: repo.into(), revision: revision.map(Into::into), file: file.into() })
    }

    /// `owner/repo`.
    pub fn repo_id(&self) -> String {
        format!("{}/{}", self.owner, self.repo)
    }

    /// The branch, tag or commit: `main` unless the name gave one.
    pub fn revision(&self) -> &str {
        self.revision.as_deref().unwrap_or(DEFAULT_REVISION)
    }

    /// Whether the name gave a revision itself.
    pub fn has_revision(&self) -> bool {
        self.revision.is_some()
    }

    /// The file's path inside the repository, with `/` between folders.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The address of the file's bytes under `endpoint` (no slash at its end), as the hub's `resolve` route defines it.
    pub fn url(&self, endpoint: &str) -> String {
        let file: Vec<String> = self.file.split('/').map(percent_encode).collect();
        format!("{endpoint}/{}/{}/resolve/{}/{}", self.owner, self.repo, self.revision(), file.join("/"))
    }

    /// Where the file lies, below the cache folder: `owner/repo/revision/file`.
    pub(super) fn cache_path(&self) -> PathBuf {
        let mut path = PathBuf::from(&self.owner);
        path.push(&self.repo);
        path.push(self.revision());
        path.extend(self.file.split('/'));
        path
    }

    /// Whether both mean the same file of the same repository, whatever the revision.
    pub(super) fn same_file(&self, other: &Self) -> bool {
        self.owner == other.owner && self.repo == other.repo && self.file == other.file
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.revision {
            Some(revision) => write!(f, "hf:{}/{}@{revision}/{}", self.owner, self.repo, self.file),
            None => write!(f, "hf:{}/{}/{}", self.owner, self.repo, self.file),
        }
    }
}

/// Owners, repositories and revisions: letters, digits, `-`, `_` and `.`, not first or last a dot.
fn check_id(what: &str, id: &str) -> Result<(), String> {
    if id.is_empty() {
        return Err(format!("{what} is empty"));
    }
    if id.len() > 100 {
        return Err(format!("{what} is longer than 100 characters"));
    }
    if id.starts_with('.') || id.ends_with('.') {
        return Err(format!("{what} begins or ends with a dot"));
    }
    match id.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '.')) {
        Some(c) => Err(format!("{what} holds {c:?}")),
        None => Ok(()),
    }
}

/// One component of the file's path. The characters refused are those with a meaning in some file system.
fn check_part(part: &str) -> Result<(), String> {
    if part.is_empty() {
        return Err("a part of the file's path is empty".into());
    }
    if part == "." || part == ".." || part.ends_with('.') || part.ends_with(' ') {
        return Err(format!("{part:?} cannot be a part of the file's path"));
    }
    if part.len() > 200 {
        return Err("a part of the file's path is longer than 200 bytes".into());
    }
    match part.chars().find(|c| c.is_control() || "\\:*?\"<>|".contains(*c)) {
        Some(c) => Err(format!("the file's path holds {c:?}")),
        None => Ok(()),
    }
}

fn percent_encode(part: &str) -> String {
    use fmt::Write;
    let mut out = String::with_capacity(part.len());
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names() {
        let plain = HubName::parse("hf:me/my-model/a/b c.gguf").unwrap();
        assert_eq!((plain.repo_id().as_str(), plain.revision(), plain.file()), ("me/my-model", "main", "a/b c.gguf"));
        assert_eq!(plain.url("http://h"), "http://h/me/my-model/resolve/main/a/b%20c.gguf");
        assert_eq!(plain.cache_path(), PathBuf::from("me/my-model/main/a/b c.gguf"));
        let first = HubName::parse("hf:me/m@v1.0/f@x.gguf").unwrap();
        assert_eq!((first.revision(), first.file()), ("v1.0", "f@x.gguf"));
        let last = HubName::parse("hf:me/m/f.gguf@v1.0").unwrap();
        assert_eq!((last.revision(), last.file()), ("v1.0", "f.gguf"));
        assert_eq!(last.to_string(), "hf:me/m@v1.0/f.gguf");
        assert_eq!(HubName::parse(&last.to_string()).unwrap(), last);
    }

    #[test]
    fn refuses_hostile_names() {
        for bad in [
            "me/m/f",
            "hf:",
            "hf:me",
            "hf:me/m",
            "hf:me/m/",
            "hf:/m/f",
            "hf:me//f",
            "hf:../../etc",
            "hf:../../etc/passwd",
            "hf:me/../f",
            "hf:me/m/../../../etc/passwd",
            "hf:me/m/a/./f",
            "hf:me/m//etc/passwd",
            "hf:me/m/a//f",
            "hf:/etc/passwd/x",
            "hf:me/m/..\\..\\f",
            "hf:me/m/C:f",
            "hf:me/m@/f",
            "hf:me/m@../f",
            "hf:me/m/f@..",
            "hf:me/m/f@",
            "hf:me/m/f\0",
            "hf:me/m/f\n",
            "hf:me/m?x/f",
            "hf:m e/m/f",
            "hf:user:pass@host/m/f",
            "hf:me/m/f.part",
            "hf:me/m/f.part.json",
            "hf:me/m/f.verified.json",
            "hf:.locks/m/f",
        ] {
            let error = HubName::parse(bad).expect_err(bad).to_string();
            assert!(error.contains("is not a hub name"), "{bad}: {error}");
            assert!(!error.contains('\n'), "{bad}: {error}");
        }
    }
}
