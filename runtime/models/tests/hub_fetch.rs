//! Fetching from a hub that misbehaves in every way that one can, played by a server in the test.
#![cfg(feature = "hub")]

mod hub_server;

use hub_server::{Answer, Log, Server, error_line, files, noise, options, sha256};
use tallow_models::hub::{NoProgress, Source, locate};

const NAME: &str = "hf:me/my-model/q4/model.gguf";
const PATH: &str = "/me/my-model/resolve/main/q4/model.gguf";
const FILE: &str = "me/my-model/main/q4/model.gguf";
const TAG: &str = "\"tag-1\"";

fn part(cache: &std::path::Path) -> std::path::PathBuf {
    cache.join(format!("{FILE}.part"))
}

#[test]
fn fetches_once_and_then_serves_from_the_cache() {
    let data = noise(300_000, 1);
    let sha = sha256(&data);
    let body = data.clone();
    let server =
        Server::new(move |request, _| Answer::file(request, &body, TAG).with("X-Linked-Etag", format!("\"{sha}\"")));
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&server.endpoint, cache.path());
    options.endpoint.push('/');
    options.token = Some("hf_secret".into());
    let log = Log::default();

    let found = locate(NAME, &options, &log).unwrap();
    assert_eq!(found.path, cache.path().join(FILE));
    assert_eq!(found.source, Source::Hub(server.endpoint.clone()));
    assert_eq!(std::fs::read(&found.path).unwrap(), data);
    assert_eq!(*log.starts.lock().unwrap(), [(Some(300_000), 0)]);
    assert_eq!(*log.bytes.lock().unwrap(), 300_000);
    assert_eq!(*log.finishes.lock().unwrap(), 1);
    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].path, PATH);
    assert_eq!(requests[0].header("authorization"), Some("Bearer hf_secret"));
    assert_eq!(requests[0].header("range"), None);
    assert_eq!(files(cache.path()), [FILE.to_string(), format!("{FILE}.verified.json")]);

    let again = locate(NAME, &options, &NoProgress).unwrap();
    assert_eq!((again.path, again.source), (found.path, Source::Cache));
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn asks_for_the_revision() {
    let server = Server::new(|request, _| Answer::file(request, b"x", TAG));
    let cache = tempfile::tempdir().unwrap();
    let found = locate("hf:me/m/a b.gguf@v1", &options(&server.endpoint, cache.path()), &NoProgress).unwrap();
    assert_eq!(server.requests()[0].path, "/me/m/resolve/v1/a%20b.gguf");
    assert_eq!(found.path, cache.path().join("me/m/v1/a b.gguf"));
    assert_eq!(server.requests()[0].header("authorization"), None);
}

#[test]
fn the_token_does_not_follow_a_redirect_to_another_host() {
    let data = noise(50_000, 2);
    let (body, sha) = (data.clone(), sha256(&data));
    let store = Server::new(move |request, _| Answer::file(request, &body, TAG));
    let target = format!("{}/blob?signature=s", store.endpoint);
    // First to another path of the same host, which keeps the token, then to another port, which is another origin.
    let hub = Server::new(move |request, _| match request.path.as_str() {
        PATH => Answer::new(307, "").with("Location", "/moved/model").with("X-Linked-Etag", format!("\"{sha}\"")),
        _ => Answer::new(302, "see there").with("Location", target.clone()),
    });
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&hub.endpoint, cache.path());
    options.token = Some("hf_secret".into());

    let found = locate(NAME, &options, &NoProgress).unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), data);
    let tokens: Vec<_> = hub.requests().iter().map(|r| r.header("authorization").map(str::to_string)).collect();
    assert_eq!(tokens, [Some("Bearer hf_secret".to_string()), Some("Bearer hf_secret".to_string())]);
    assert_eq!(store.requests().len(), 1);
    assert_eq!(store.requests()[0].path, "/blob?signature=s");
    assert_eq!(store.requests()[0].header("authorization"), None);
}

#[test]
fn redirects_end() {
    let server = Server::new(|_, n| Answer::new(302, "").with("Location", format!("/again/{n}")));
    let cache = tempfile::tempdir().unwrap();
    let error = error_line(locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress));
    assert!(error.contains("redirects more than 10 times"), "{error}");
    assert_eq!(server.requests().len(), 11);
}

#[test]
fn resumes_within_a_run() {
    let data = noise(500_000, 3);
    let (body, sha) = (data.clone(), sha256(&data));
    let server = Server::new(move |request, n| {
        let answer = Answer::file(request, &body, TAG).with("X-Linked-Etag", sha.clone());
        if n < 2 { answer.cut(150_000) } else { answer }
    });
    let cache = tempfile::tempdir().unwrap();
    let log = Log::default();
    let found = locate(NAME, &options(&server.endpoint, cache.path()), &log).unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), data);
    let asked: Vec<_> = server
        .requests()
        .iter()
        .map(|r| (r.header("range").map(str::to_string), r.header("if-range").map(str::to_string)))
        .collect();
    let tail = |from: u64| (Some(format!("bytes={from}-")), Some(TAG.to_string()));
    assert_eq!(asked, [(None, None), tail(150_000), tail(300_000)]);
    assert_eq!(*log.bytes.lock().unwrap(), 500_000);
    assert!(log.said("broke off after 150000 of 500000 bytes"));
    assert!(log.said("resuming"));
}

#[test]
fn resumes_in_a_later_run() {
    let data = noise(400_000, 4);
    let body = data.clone();
    let server = Server::new(move |request, n| {
        let answer = Answer::file(request, &body, TAG);
        if n == 0 { answer.cut(100_000) } else { answer }
    });
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&server.endpoint, cache.path());
    options.retries = 0;
    let error = error_line(locate(NAME, &options, &NoProgress));
    assert!(error.contains("broke off") && error.contains("run again to resume"), "{error}");
    assert_eq!(files(cache.path()), [format!("{FILE}.part"), format!("{FILE}.part.json")]);
    assert_eq!(std::fs::metadata(part(cache.path())).unwrap().len(), 100_000);

    let log = Log::default();
    let found = locate(NAME, &options, &log).unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), data);
    assert_eq!(*log.starts.lock().unwrap(), [(Some(400_000), 100_000)]);
    assert_eq!(server.requests()[1].header("range"), Some("bytes=100000-"));
    assert_eq!(files(cache.path()), [FILE.to_string(), format!("{FILE}.verified.json")]);
}

#[test]
fn a_cancelled_fetch_is_resumed() {
    let data = noise(900_000, 5);
    let body = data.clone();
    let server = Server::new(move |request, _| Answer::file(request, &body, TAG));
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    let stop = Log { cancel_after: Some(200_000), ..Log::default() };
    let error = error_line(locate(NAME, &options, &stop));
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(files(cache.path()), [format!("{FILE}.part"), format!("{FILE}.part.json")]);

    let log = Log::default();
    assert_eq!(std::fs::read(locate(NAME, &options, &log).unwrap().path).unwrap(), data);
    assert!(log.starts.lock().unwrap()[0].1 >= 200_000);
}

#[test]
fn a_changed_file_or_a_server_without_range_means_a_clean_start() {
    let (old, new) = (noise(200_000, 6), noise(250_000, 7));
    for ignores_range in [false, true] {
        let (first, second) = (old.clone(), if ignores_range { old.clone() } else { new.clone() });
        let expected = second.clone();
        let server = Server::new(move |request, n| match (n, ignores_range) {
            (0, _) => Answer::file(request, &first, TAG).cut(90_000),
            (_, false) => Answer::file(request, &second, "\"tag-2\""),
            (_, true) => Answer::new(200, &*second).with("ETag", TAG),
        });
        let cache = tempfile::tempdir().unwrap();
        let found = locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress).unwrap();
        assert!(std::fs::read(found.path).unwrap() == expected, "ignores_range: {ignores_range}");
        assert_eq!(server.requests().len(), 2);
        assert_eq!(server.requests()[1].header("range"), Some("bytes=90000-"));
    }
}

#[test]
fn a_wrong_range_or_416_means_a_clean_start() {
    let data = noise(200_000, 8);
    for status in [206, 416] {
        let body = data.clone();
        let server = Server::new(move |request, n| match n {
            0 => Answer::file(request, &body, TAG).cut(90_000),
            1 if status == 206 => Answer::new(206, &body[10..]).with("Content-Range", "bytes 10-199999/200000"),
            1 => Answer::new(416, ""),
            _ => Answer::file(request, &body, TAG),
        });
        let cache = tempfile::tempdir().unwrap();
        let log = Log::default();
        let found = locate(NAME, &options(&server.endpoint, cache.path()), &log).unwrap();
        assert!(std::fs::read(found.path).unwrap() == data, "{status}");
        assert!(log.said("starting anew"));
        assert_eq!(server.requests()[2].header("range"), None);
    }
}

#[test]
fn a_resumed_file_with_a_wrong_sha256_gets_one_clean_start() {
    let data = noise(200_000, 9);
    let (body, sha) = (data.clone(), sha256(&data));
    // No tag: only the sha256 can tell.
    let server = Server::new(move |request, n| {
        let mut answer = Answer::file(request, &body, TAG).with("X-Linked-Etag", sha.clone());
        answer.headers.retain(|(name, _)| name != "ETag");
        if n == 0 { answer.cut(90_000) } else { answer }
    });
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&server.endpoint, cache.path());
    options.retries = 0;
    error_line(locate(NAME, &options, &NoProgress));
    let mut half = std::fs::read(part(cache.path())).unwrap();
    half[5] ^= 1;
    std::fs::write(part(cache.path()), half).unwrap();
    options.retries = 1;
    let log = Log::default();
    let found = locate(NAME, &options, &log).unwrap();
    assert!(std::fs::read(found.path).unwrap() == data);
    assert!(log.said("wrong sha256"));
}

#[test]
fn a_part_that_was_complete_needs_no_request() {
    let data = noise(200_000, 10);
    let (body, sha) = (data.clone(), sha256(&data));
    let server =
        Server::new(move |request, _| Answer::file(request, &body, TAG).with("X-Linked-Etag", sha.clone()).cut(90_000));
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&server.endpoint, cache.path());
    options.retries = 0;
    error_line(locate(NAME, &options, &NoProgress));
    std::fs::write(part(cache.path()), &data).unwrap();
    let found = locate(NAME, &options, &NoProgress).unwrap();
    assert!(std::fs::read(found.path).unwrap() == data);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_wrong_sha256_is_named_and_nothing_stays() {
    let data = noise(100_000, 11);
    let server = Server::new(move |request, _| Answer::file(request, &data, TAG).with("X-Linked-Etag", "0".repeat(64)));
    let cache = tempfile::tempdir().unwrap();
    let error = error_line(locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress));
    assert!(error.contains("wrong sha256") && error.contains(&"0".repeat(64)), "{error}");
    assert_eq!(files(cache.path()), Vec::<String>::new());
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn refusals_have_clear_words() {
    let cases: &[(u16, &str, bool, &[&str])] = &[
        (401, "", false, &["401", "me/my-model", "private or does not exist", "HF_TOKEN"]),
        (401, "", true, &["401", "does not accept the token"]),
        (401, "GatedRepo", false, &["401", "gated", "Accept its terms"]),
        (403, "GatedRepo", true, &["403", "gated", "Accept its terms"]),
        (403, "", false, &["403", "HF_TOKEN"]),
        (404, "RepoNotFound", false, &["404", "no repository me/my-model"]),
        (404, "RevisionNotFound", false, &["404", "no revision \"main\""]),
        (404, "EntryNotFound", false, &["404", "me/my-model", "no file \"q4/model.gguf\""]),
        (404, "", false, &["404", "me/my-model", "no file \"q4/model.gguf\""]),
        (416, "", false, &["416", "range"]),
        (418, "", false, &["418", "unexpected"]),
    ];
    for (status, code, token, words) in cases {
        let server = Server::new(move |_, _| Answer::new(*status, "<html>no</html>").with("X-Error-Code", *code));
        let cache = tempfile::tempdir().unwrap();
        let mut options = options(&server.endpoint, cache.path());
        options.token = token.then(|| "hf_secret".into());
        let error = error_line(locate(NAME, &options, &NoProgress));
        for word in *words {
            assert!(error.contains(word), "{status} {code}: {word:?} is not in: {error}");
        }
        assert!(!error.contains("hf_secret") && !error.contains("<html>"), "{error}");
        assert_eq!(server.requests().len(), 1, "{status} must not be repeated");
        assert!(!cache.path().join(FILE).exists());
    }
}

#[test]
fn faults_of_the_server_are_repeated_a_few_times() {
    let server = Server::new(|request, n| match n {
        0 => Answer::new(500, ""),
        1 => Answer::new(503, "").with("Retry-After", "0"),
        2 => Answer::new(429, ""),
        _ => Answer::file(request, b"model", TAG),
    });
    let cache = tempfile::tempdir().unwrap();
    let found = locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress).unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), b"model");

    let server = Server::new(|_, _| Answer::new(502, ""));
    let error = error_line(locate("hf:me/m/other", &options(&server.endpoint, cache.path()), &NoProgress));
    assert!(error.contains("502") && error.contains("fault of its own"), "{error}");
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn a_server_that_always_breaks_off_is_given_up() {
    // More than the gain that forgives failures, again and again from the start: this must end all the same.
    let data = noise(3 << 20, 12);
    let server = Server::new(move |_, _| Answer::new(200, &*data).cut(2 << 20));
    let cache = tempfile::tempdir().unwrap();
    let error = error_line(locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress));
    assert!(error.contains("broke off"), "{error}");
    assert_eq!(server.requests().len(), 5);
}

#[test]
fn chunked_bodies_work_and_compressed_ones_are_refused() {
    let server = Server::new(|request, _| match request.path.ends_with("gz") {
        true => Answer::new(200, "abc").with("Content-Encoding", "gzip"),
        false => Answer::new(200, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").with("Transfer-Encoding", "chunked"),
    });
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    assert_eq!(std::fs::read(locate("hf:me/m/plain", &options, &NoProgress).unwrap().path).unwrap(), b"abcde");
    let error = error_line(locate("hf:me/m/gz", &options, &NoProgress));
    assert!(error.contains("compressed"), "{error}");
}

#[test]
fn a_silent_server_is_not_waited_for_for_ever() {
    let data = noise(200_000, 13);
    let body = data.clone();
    // Silence before any answer's body, silence in the middle, then the rest.
    let server = Server::new(move |request, n| match n {
        0 => Answer::file(request, &body, TAG).delay(5_000),
        1 => Answer::file(request, &body, TAG).cut(80_000).stall(5_000),
        _ => Answer::file(request, &body, TAG),
    });
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&server.endpoint, cache.path());
    options.read_timeout = std::time::Duration::from_millis(300);
    let start = std::time::Instant::now();
    let found = locate(NAME, &options, &NoProgress).unwrap();
    assert!(std::fs::read(found.path).unwrap() == data);
    assert!(start.elapsed() < std::time::Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(server.requests()[2].header("range"), Some("bytes=80000-"));
}

#[test]
fn nobody_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let cache = tempfile::tempdir().unwrap();
    let error = error_line(locate(NAME, &options(&endpoint, cache.path()), &NoProgress));
    assert!(error.contains("127.0.0.1 cannot be reached") && error.contains("give its path"), "{error}");
}

#[test]
fn hostile_names_touch_nothing() {
    let server = Server::new(|request, _| Answer::file(request, b"x", TAG));
    let outer = tempfile::tempdir().unwrap();
    let cache = outer.path().join("cache");
    for name in
        ["hf:../../etc", "hf:../../etc/passwd", "hf:/etc/passwd", "hf:a/b/../../../x", "hf:a//b", "hf:a/b/", "hf:"]
    {
        let error = error_line(locate(name, &options(&server.endpoint, &cache), &NoProgress));
        assert!(error.contains("is not a hub name"), "{error}");
    }
    for name in ["", "no-such-file.gguf", "http://h/model.gguf"] {
        let error = error_line(locate(name, &options(&server.endpoint, &cache), &NoProgress));
        assert!(error.contains("SmolLM2-135M-Instruct-Q4_1"), "{error}");
    }
    assert!(server.requests().is_empty());
    assert!(files(outer.path()).is_empty() && !cache.exists());
}

#[test]
fn a_local_path_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.gguf");
    std::fs::write(&file, "x").unwrap();
    let options = tallow_models::hub::Options { offline: true, ..Default::default() };
    let found = locate(file.to_str().unwrap(), &options, &NoProgress).unwrap();
    assert_eq!((found.path, found.source), (file, Source::Local));
}
