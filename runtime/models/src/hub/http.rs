//! The hub's protocol for one file, over a blocking HTTP client.
//!
//! What is needed of the hub is small and documented: `GET {endpoint}/{repo}/resolve/{revision}/{file}` with a bearer
//! token answers with the bytes or with a redirect to them. `X-Linked-Etag` (the sha256 of a large file) and
//! `X-Linked-Size` come with the hub's own answer, `X-Error-Code` says why something is refused. Redirects are followed
//! here, not in the client: those headers would be lost, and the token must not follow to another host.
//!
//! Why not the crate hf-hub, as tried and read in November 2026:
//! - 0.5.0 (9 more crates; 0.4.3 differs in its HTTP client alone, and adds 41) was run against a server like that of
//!   `tests/hub_fetch.rs`. It sends the token to the host that a redirect leads to. It lets the server's ETag be an
//!   absolute path, and writes there. A Range that is ignored, or a failed try before a resumed one, gives a file of the
//!   wrong length and `Ok`; a damaged part with a known sha256 too. A part that was complete means 416 for ever. Relative
//!   redirects never end, a 304 panics, a stalled server is waited for without end and cannot be cancelled, a second
//!   process fails after 5 seconds, and `X-Error-Code` is lost.
//! - 1.0.0 was read only: 158 more crates (tokio, reqwest, hf-xet) and a C build (aws-lc) for typed errors and sane
//!   redirects; but a download begins anew each time (`File::create`), its stream of a range hides whether the server
//!   honoured the range, a lock is given up after 10 seconds, and the ETag is a path there as well.

use std::io::Read;

use tallow_graph::{Error, Result};
use ureq::http::{HeaderMap, Uri, header};
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

use super::Options;

const MAX_REDIRECTS: usize = 10;

/// A client for one hub.
pub(super) struct Client {
    agent: ureq::Agent,
    endpoint: String,
    origin: Origin,
    token: Option<String>,
}

/// Scheme, host and port: what a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin(String, String, u16);

/// The part of a file that is asked for.
pub(super) struct Tail<'a> {
    pub from: u64,
    /// Only if the file still has this strong entity tag; else all of it.
    pub if_etag: Option<&'a str>,
}

/// A final answer: not a redirect.
pub(super) struct Reply {
    pub status: u16,
    /// The host that answered last.
    pub host: String,
    /// The last answer's headers.
    headers: HeaderMap,
    /// The hub's own words, from the endpoint's answers only.
    pub linked_sha256: Option<String>,
    pub linked_size: Option<u64>,
    pub error_code: Option<String>,
    pub token_sent: bool,
    pub body: Box<dyn Read>,
}

/// A request without an answer.
pub(super) struct Unanswered {
    pub message: String,
    /// Whether asking again at once is pointless: no such host, no connection, no trust.
    pub lasting: bool,
}

impl Client {
    pub fn new(options: &Options) -> Result<Self> {
        let endpoint = options.endpoint.trim_end_matches('/').to_string();
        let bad = |why: &str| {
            Error::msg(format!("the hub's address {endpoint:?} (HF_ENDPOINT) {why}: write https://HOST or http://HOST"))
        };
        let uri: Uri = endpoint.parse().map_err(|_| bad("is not an address"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(bad("is not http or https"));
        }
        if uri.query().is_some() || uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(bad("holds a user or a query"));
        }
        let origin = Origin::of(&uri).ok_or_else(|| bad("has no host"))?;
        if let Some(token) = &options.token
            && !token.bytes().all(|b| b.is_ascii_graphic())
        {
            return Err(Error::msg("the hub's token (HF_TOKEN or the token file) holds characters that no token has"));
        }
        // Windows and macOS bring TLS with the system; elsewhere it is rustls. Both trust what the system trusts.
        let provider =
            if cfg!(any(windows, target_vendor = "apple")) { TlsProvider::NativeTls } else { TlsProvider::Rustls };
        let tls = TlsConfig::builder().provider(provider).root_certs(RootCerts::PlatformVerifier).build();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_resolve(Some(options.connect_timeout))
            .timeout_connect(Some(options.connect_timeout))
            .timeout_recv_response(Some(options.read_timeout))
            .timeout_per_read(Some(options.read_timeout))
            .tls_config(tls)
            .user_agent(concat!("tallow/", env!("CARGO_PKG_VERSION")))
            // Compressed bytes could be neither resumed nor hashed as they come.
            .accept_encoding("identity");
        // A proxy is for the world outside: a server on this machine is always reached directly.
        let loopback = matches!(origin.1.as_str(), "localhost" | "127.0.0.1" | "[::1]");
        let config = if loopback { config.proxy(None) } else { config };
        Ok(Self { agent: config.build().into(), endpoint, origin, token: options.token.clone() })
    }

    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Asks for `url`, which must lie under the endpoint, and follows redirects.
    pub fn get(&self, url: &str, tail: Option<&Tail<'_>>) -> Result<Reply, Unanswered> {
        let mut url = url.to_string();
        let (mut linked_sha256, mut linked_size, mut error_code) = (None, None, None);
        let mut at_home = true;
        for _ in 0..=MAX_REDIRECTS {
            let uri: Uri = url.parse().map_err(|_| lasting("the address is not valid".into()))?;
            let origin = Origin::of(&uri).ok_or_else(|| lasting("the address has no host".into()))?;
            // Once a redirect has left the hub, the token stays behind even if another one leads back.
            at_home &= origin == self.origin;
            if self.origin.0 == "https" && origin.0 != "https" {
                return Err(lasting(format!("{} redirects from https to plain {}", self.origin.1, origin.0)));
            }
            let mut request = self.agent.get(&url);
            let token = self.token.as_ref().filter(|_| at_home);
            if let Some(token) = token {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            if let Some(tail) = tail {
                request = request.header(header::RANGE, format!("bytes={}-", tail.from));
                if let Some(etag) = tail.if_etag {
                    request = request.header(header::IF_RANGE, etag);
                }
            }
            let answer = request.call().map_err(|e| unanswered(&origin.1, &e))?;
            let (head, body) = answer.into_parts();
            if at_home {
                let text = |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
                linked_sha256 = text("x-linked-etag").and_then(as_sha256).or(linked_sha256);
                linked_size = text("x-linked-size").and_then(|v| v.parse().ok()).or(linked_size);
                error_code = text("x-error-code").map(str::to_string).or(error_code);
            }
            if matches!(head.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                let location = head.headers.get(header::LOCATION).and_then(|v| v.to_str().ok());
                url = location
                    .and_then(|location| join(&uri, location))
                    .ok_or_else(|| lasting(format!("{} redirects to nowhere", origin.1)))?;
                continue;
            }
            return Ok(Reply {
                status: head.status.as_u16(),
                host: origin.1,
                headers: head.headers,
                linked_sha256,
                linked_size,
                error_code,
                token_sent: token.is_some(),
                body: Box::new(body.into_reader()),
            });
        }
        Err(lasting(format!("{} redirects more than {MAX_REDIRECTS} times", self.origin.1)))
    }
}

impl Reply {
    fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim)
    }

    pub fn content_length(&self) -> Option<u64> {
        self.header(header::CONTENT_LENGTH)?.parse().ok()
    }

    /// The entity tag, if it is a strong one: only such a tag promises the same bytes.
    pub fn strong_etag(&self) -> Option<&str> {
        self.header(header::ETAG).filter(|tag| tag.len() <= 256 && tag.starts_with('"'))
    }

    /// Whether the body is something else than the file's own bytes.
    pub fn is_encoded(&self) -> bool {
        self.header(header::CONTENT_ENCODING).is_some_and(|e| !e.is_empty() && !e.eq_ignore_ascii_case("identity"))
    }

    /// `bytes FIRST-LAST/TOTAL` as (first, total).
    pub fn content_range(&self) -> Option<(u64, Option<u64>)> {
        let (span, total) = self.header(header::CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
        let first = span.split_once('-')?.0.trim().parse().ok()?;
        Some((first, total.trim().parse().ok()))
    }

    /// Seconds of `Retry-After`, if given as a number.
    pub fn retry_after(&self) -> Option<u64> {
        self.header(header::RETRY_AFTER)?.parse().ok()
    }
}

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        Some(Self(scheme, host, port))
    }
}

/// The address that `location` means when `base` answers with it. Fragments are dropped.
fn join(base: &Uri, location: &str) -> Option<String> {
    let location = location.split('#').next().unwrap_or_default().trim();
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    if location.is_empty() {
        None
    } else if location.starts_with("http://") || location.starts_with("https://") {
        Some(location.into())
    } else if let Some(rest) = location.strip_prefix("//") {
        Some(format!("{scheme}://{rest}"))
    } else if location.starts_with('/') {
        Some(format!("{scheme}://{authority}{location}"))
    } else if location.contains("://") {
        None
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        Some(format!("{scheme}://{authority}{folder}/{location}"))
    }
}

/// A sha256 from an entity tag: large files on the hub have theirs as the tag, small ones a git object name.
fn as_sha256(tag: &str) -> Option<String> {
    let tag = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    (tag.len() == 64 && tag.bytes().all(|b| b.is_ascii_hexdigit())).then(|| tag.to_ascii_lowercase())
}

fn lasting(message: String) -> Unanswered {
    Unanswered { message, lasting: true }
}

fn unanswered(host: &str, error: &ureq::Error) -> Unanswered {
    use std::io::ErrorKind as K;
    use ureq::{Error as E, Timeout as T};
    let lasting = match error {
        E::HostNotFound | E::ConnectionFailed | E::BadUri(_) | E::InvalidProxyUrl | E::ConnectProxyFailed(_) => true,
        E::Tls(_) | E::Timeout(T::Resolve | T::Connect) => true,
        E::Io(e) => {
            // std has no kind for a name that does not resolve.
            let no_name = e.to_string().contains("failed to lookup address");
            let refused = matches!(
                e.kind(),
                K::ConnectionRefused | K::NetworkUnreachable | K::HostUnreachable | K::NetworkDown | K::InvalidData
            );
            no_name || refused
        }
        _ => false,
    };
    Unanswered { message: format!("{host} cannot be reached ({error})"), lasting }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_locations() {
        let base: Uri = "https://h:8/a/b?c=d".parse().unwrap();
        let cases = [
            ("http://x/y", Some("http://x/y")),
            ("//x/y?z", Some("https://x/y?z")),
            ("/y#f", Some("https://h:8/y")),
            ("y", Some("https://h:8/a/y")),
            ("file:///etc/passwd", None),
            ("", None),
        ];
        for (location, expected) in cases {
            assert_eq!(join(&base, location).as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn refuses_addresses_that_are_no_hub() {
        for bad in ["", "hub", "ftp://h", "file:///x", "http://", "http://u:p@h", "http://h?x", "h:1"] {
            let options = Options { endpoint: bad.into(), ..Options::default() };
            assert!(Client::new(&options).is_err(), "{bad}");
        }
        let options = Options { token: Some("two\nlines".into()), ..Options::default() };
        let error = Client::new(&options).err().unwrap().to_string();
        assert!(!error.contains("two"), "{error}");
    }

    #[test]
    fn tells_sha256_from_git_names() {
        let sha = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
        assert_eq!(as_sha256(&format!("\"{sha}\"")).as_deref(), Some(sha));
        assert_eq!(as_sha256("\"ab810cf68114990406fdf996510dd3d3c6adbdf5\""), None);
    }
}
