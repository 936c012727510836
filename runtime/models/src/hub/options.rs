//! Where to look and how long to try, as given by the program or by the hub's usual environment variables.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The public hub.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// How [`locate`](super::locate) works. [`Options::from_env`] is what a command line wants.
#[derive(Clone)]
pub struct Options {
    /// The cache folder; without one only local paths can be had.
    pub cache: Option<PathBuf>,
    /// The folder where Hugging Face's own tools keep what they fetch: read, never written.
    pub shared_cache: Option<PathBuf>,
    /// The hub's address, `http://` or `https://`, without a path after the host unless the hub has one.
    pub endpoint: String,
    /// The access token. It is sent to the endpoint's own host and nowhere else.
    pub token: Option<String>,
    /// Use no network: local paths and the cache only.
    pub offline: bool,
    /// The command that is pip, with its first arguments, for instance `["python3", "-m", "pip"]`. `None` looks for one.
    pub pip: Option<Vec<OsString>>,
    /// How often a request that failed for a passing reason is repeated without any progress in between.
    pub retries: u32,
    /// The wait before the first repetition; it doubles each time.
    pub backoff: Duration,
    /// The longest time for resolving the host's name, and then for connecting.
    pub connect_timeout: Duration,
    /// The longest silence of a server that is connected.
    pub read_timeout: Duration,
}

impl Default for Options {
    /// The public hub without a token or cache folders, whatever the environment says.
    fn default() -> Self {
        Self {
            cache: None,
            shared_cache: None,
            endpoint: DEFAULT_ENDPOINT.into(),
            token: None,
            offline: false,
            pip: None,
            retries: 4,
            backoff: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// Reads `TALLOW_CACHE` (else `tallow/models` in the user's cache folder), and what the hub's own tools read:
    /// `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, `HF_HUB_CACHE` (else `hub` in `HF_HOME`, else in the user's
    /// `huggingface` cache folder) and, where no token is set, the token file (`HF_TOKEN_PATH`, else `token` beside that
    /// `hub`). `HF_HUB_DISABLE_IMPLICIT_TOKEN` switches the token off.
    pub fn from_env() -> Self {
        Self::from_vars(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// [`Options::from_env`] over any set of variables, so that tests need not touch the process's own.
    fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name: &str| var(name).and_then(|value| value.into_string().ok());
        let on = |name: &str| {
            text(name).is_some_and(|value| {
                ["1", "on", "yes", "true"].iter().any(|yes| value.trim().eq_ignore_ascii_case(yes))
            })
        };
        let cache = var("TALLOW_CACHE")
            .map(PathBuf::from)
            .or_else(|| dirs::cache_dir().map(|folder| folder.join("tallow").join("models")));
        // The hub's tools use ~/.cache on every system, not the system's own cache folder.
        let home = var("HF_HOME").map(PathBuf::from).or_else(|| {
            let base = var("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(dirs::home_dir()?.join(".cache")));
            Some(base?.join("huggingface"))
        });
        let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
        let shared_cache =
            var("HF_HUB_CACHE").or_else(|| var("HUGGINGFACE_HUB_CACHE")).map(PathBuf::from).or_else(|| in_home("hub"));
        let token = if on("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            None
        } else {
            text("HF_TOKEN")
                .or_else(|| text("HUGGING_FACE_HUB_TOKEN"))
                .or_else(|| {
                    let file = var("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| in_home("token"));
                    // No file, or one that cannot be read, means: no token. A private repository then says so.
                    file.and_then(|file| std::fs::read_to_string(file).ok())
                })
                .map(|token| token.trim().to_string())
                .filter(|token| !token.is_empty())
        };
        Self {
            cache,
            shared_cache,
            endpoint: text("HF_ENDPOINT").map_or_else(|| DEFAULT_ENDPOINT.into(), |e| e.trim().to_string()),
            token,
            offline: on("HF_HUB_OFFLINE"),
            ..Self::default()
        }
    }
}

impl fmt::Debug for Options {
    /// Everything but the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("cache", &self.cache)
            .field("shared_cache", &self.shared_cache)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "(hidden)"))
            .field("offline", &self.offline)
            .field("pip", &self.pip)
            .field("retries", &self.retries)
            .field("backoff", &self.backoff)
            .field("connect_timeout", &self.connect_timeout)
            .field("read_timeout", &self.read_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(vars: &[(&str, &str)]) -> Options {
        Options::from_vars(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into()))
    }

    #[test]
    fn reads_the_environment() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), " hf_file\n").unwrap();
        let home = home.path().to_str().unwrap();

        let set = options(&[
            ("TALLOW_CACHE", "/c"),
            ("HF_ENDPOINT", "http://h:1"),
            ("HF_TOKEN", "hf_env"),
            ("HF_HOME", home),
            ("HF_HUB_OFFLINE", "YES"),
        ]);
        assert_eq!(set.cache, Some(PathBuf::from("/c")));
        assert_eq!(set.endpoint, "http://h:1");
        assert_eq!(set.token.as_deref(), Some("hf_env"));
        assert!(set.offline);
        assert!(!format!("{set:?}").contains("hf_env"));
        assert_eq!(set.shared_cache, Some(PathBuf::from(home).join("hub")));

        assert_eq!(options(&[("HF_HOME", home)]).token.as_deref(), Some("hf_file"));
        let path = format!("{home}/token");
        assert_eq!(options(&[("HF_TOKEN_PATH", &path), ("HF_HOME", "/none")]).token.as_deref(), Some("hf_file"));
        assert_eq!(options(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]).token, None);

        let shared = |vars: &[_]| options(vars).shared_cache.unwrap();
        assert_eq!(shared(&[("HF_HUB_CACHE", "/h"), ("HF_HOME", home)]), PathBuf::from("/h"));
        assert_eq!(shared(&[("XDG_CACHE_HOME", "/x")]), PathBuf::from("/x/huggingface/hub"));

        let bare = options(&[("HF_HOME", "/none"), ("HF_HUB_OFFLINE", "0")]);
        assert_eq!(bare.endpoint, DEFAULT_ENDPOINT);
        assert_eq!(bare.token, None);
        assert!(!bare.offline);
        assert!(bare.cache.is_none_or(|folder| folder.ends_with("tallow/models")));
    }
}
