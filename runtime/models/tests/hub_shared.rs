//! The cache of Hugging Face's own tools: found before the network, checked once, never written.
#![cfg(feature = "hub")]

mod hub_server;

use std::path::{Path, PathBuf};

use hub_server::{Answer, Log, Server, error_line, files, noise, options, sha256};
use tallow_models::hub::{KnownModel, NoProgress, Options, Source, locate, locate_known};

const NAME: &str = "hf:me/my.model/q4/model.gguf";
const REPO: &str = "models--me--my.model";
const FILE: &str = "me/my.model/main/q4/model.gguf";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "fedcba9876543210fedcba9876543210fedcba98";

/// A hub that has `data` too, Tallow's cache, and a shared one.
struct Stage {
    folder: tempfile::TempDir,
    hub: Server,
    options: Options,
}

impl Stage {
    fn new(hub: &'static [u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = Server::new(move |request, _| Answer::file(request, hub, "\"tag\""));
        let mut options = options(&hub.endpoint, &folder.path().join("own"));
        options.shared_cache = Some(folder.path().join("hub"));
        Self { folder, hub, options }
    }

    fn repo(&self) -> PathBuf {
        self.folder.path().join("hub").join(REPO)
    }

    fn own(&self) -> Vec<String> {
        files(&self.folder.path().join("own"))
    }

    /// Lays `data` down as huggingface_hub does: a blob called `tag`, and a link to it in the snapshot of `commit`.
    fn put(&self, commit: &str, tag: &str, data: &[u8]) -> PathBuf {
        let file = self.repo().join("snapshots").join(commit).join("q4").join("model.gguf");
        let blob = self.repo().join("blobs").join(tag);
        write(&blob, data);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(Path::new("../../../blobs").join(tag), &file).unwrap();
        // Where there are no links the file itself lies there.
        #[cfg(not(unix))]
        std::fs::rename(&blob, &file).unwrap();
        file
    }

    fn put_ref(&self, revision: &str, text: &str) {
        write(&self.repo().join("refs").join(revision), text.as_bytes());
    }
}

fn write(path: &Path, data: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, data).unwrap();
}

fn known(data: &[u8]) -> KnownModel {
    KnownModel {
        name: "Test",
        hub: "hf:me/my.model@aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/q4/model.gguf",
        file: "model.gguf",
        bytes: data.len() as u64,
        sha256: Box::leak(sha256(data).into_boxed_str()),
        pip: None,
    }
}

#[test]
fn a_download_of_another_tool_is_used_where_it_lies() {
    let data = noise(200_000, 1);
    let stage = Stage::new(b"the hub's");
    let file = stage.put(COMMIT, &sha256(&data), &data);
    stage.put_ref("main", COMMIT);
    let before = files(&stage.repo());

    let log = Log::default();
    let found = locate(NAME, &stage.options, &log).unwrap();
    assert_eq!((found.path.clone(), found.source), (file.clone(), Source::SharedCache));
    assert_eq!(std::fs::read(&found.path).unwrap(), data);
    assert!(log.said("checking"));
    // Only a seal, and the second time that is enough: by the branch and by the commit.
    assert!(matches!(&stage.own()[..], [seal] if seal.starts_with(".shared/")), "{:?}", stage.own());
    for name in [NAME.to_string(), format!("{NAME}@{COMMIT}")] {
        let log = Log::default();
        let again = locate(&name, &Options { offline: true, ..stage.options.clone() }, &log).unwrap();
        assert_eq!((again.path, again.source), (file.clone(), Source::SharedCache));
        assert!(log.messages.lock().unwrap().is_empty(), "{name}");
    }
    assert!(stage.hub.requests().is_empty());
    assert_eq!(files(&stage.repo()), before);
}

#[test]
fn tallows_own_cache_comes_first() {
    let stage = Stage::new(b"the hub's");
    stage.put(COMMIT, "tag", b"shared");
    stage.put_ref("main", COMMIT);
    assert_eq!(locate(NAME, &stage.options, &NoProgress).unwrap().source, Source::SharedCache);
    // Without a seal, and although the other has one by now.
    let own = stage.folder.path().join("own").join(FILE);
    write(&own, b"by hand");
    let found = locate(NAME, &stage.options, &NoProgress).unwrap();
    assert_eq!((found.path, found.source), (own, Source::Cache));
}

#[test]
fn a_small_file_has_no_sha256_and_is_taken_as_it_is() {
    let stage = Stage::new(b"the hub's");
    stage.put(COMMIT, &"b".repeat(40), b"small");
    stage.put_ref("v1.0", &format!("{COMMIT}\n"));
    let found = locate(&format!("{NAME}@v1.0"), &stage.options, &NoProgress).unwrap();
    assert_eq!(std::fs::read(found.path).unwrap(), b"small");
}

#[test]
fn what_is_not_there_is_fetched() {
    let good = noise(1000, 2);
    type Prepare<'a> = &'a dyn Fn(&Stage);
    let cases: [(&str, Prepare<'_>); 7] = [
        ("nothing", &|_| ()),
        ("no ref", &|s| drop(s.put(COMMIT, "tag", b"x"))),
        ("another branch", &|s| {
            s.put(COMMIT, "tag", b"x");
            s.put_ref("dev", COMMIT);
        }),
        ("another commit", &|s| {
            s.put(COMMIT, "tag", b"x");
            s.put_ref("main", OTHER);
        }),
        ("a link to nothing", &|s| {
            let file = s.put(COMMIT, "tag", b"x");
            s.put_ref("main", COMMIT);
            std::fs::remove_file(file.canonicalize().unwrap()).unwrap();
        }),
        ("a folder", &|s| {
            let file = s.put(COMMIT, "tag", b"x");
            s.put_ref("main", COMMIT);
            std::fs::remove_file(&file).unwrap();
            std::fs::create_dir(file).unwrap();
        }),
        ("an unfinished download", &|s| {
            write(&s.repo().join("blobs").join(format!("{}.incomplete", sha256(&good))), b"x");
            s.put_ref("main", COMMIT);
        }),
    ];
    for (what, prepare) in cases {
        let stage = Stage::new(b"the hub's");
        prepare(&stage);
        let found = locate(NAME, &stage.options, &NoProgress).unwrap();
        assert_eq!(found.source, Source::Hub(stage.hub.endpoint.clone()), "{what}");
        assert_eq!(std::fs::read(found.path).unwrap(), b"the hub's", "{what}");
    }
}

/// A ref becomes part of a path.
#[test]
fn a_ref_cannot_lead_out_of_the_snapshots() {
    let stage = Stage::new(b"the hub's");
    let outside = stage.folder.path().join("outside");
    write(&outside.join("q4").join("model.gguf"), b"outside");
    std::fs::create_dir_all(stage.repo().join("snapshots")).unwrap();
    for text in [outside.to_str().unwrap(), "../../../outside", "", ".", &"../".repeat(100_000)] {
        stage.put_ref("main", text);
        let found = locate(NAME, &stage.options, &NoProgress).unwrap();
        assert_eq!(std::fs::read(found.path).unwrap(), b"the hub's", "{:.30}", text);
        std::fs::remove_dir_all(stage.folder.path().join("own")).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_damaged_blob_is_not_used_and_left_alone() {
    let data = noise(200_000, 3);
    let mut damaged = data.clone();
    damaged[77] ^= 1;
    let stage = Stage::new(b"the hub's");
    let file = stage.put(COMMIT, &sha256(&data), &damaged);
    stage.put_ref("main", COMMIT);
    let log = Log::default();
    let found = locate(NAME, &stage.options, &log).unwrap();
    assert_eq!(found.source, Source::Hub(stage.hub.endpoint.clone()));
    assert!(log.said("is not used: its sha256 is"));
    assert!(std::fs::read(&file).unwrap() == damaged);

    // Whole once, and damaged later: the seal does not fit any more.
    let stage = Stage::new(b"the hub's");
    let file = stage.put(COMMIT, &sha256(&data), &data);
    stage.put_ref("main", COMMIT);
    assert_eq!(locate(NAME, &stage.options, &NoProgress).unwrap().source, Source::SharedCache);
    std::fs::write(file, &damaged[1..]).unwrap();
    assert_eq!(locate(NAME, &stage.options, &NoProgress).unwrap().source, Source::Hub(stage.hub.endpoint.clone()));
}

/// The sha256 decides, not the commit.
#[test]
fn a_known_model_is_found_in_any_snapshot() {
    let data = noise(50_000, 4);
    let stage = Stage::new(b"the hub's");
    // The same size, but other bytes.
    stage.put(COMMIT, "first", &noise(50_000, 5));
    let right = stage.put(OTHER, "second", &data);
    let log = Log::default();
    let found = locate_known(&known(&data), &stage.options, &log).unwrap();
    assert_eq!((found.path, found.source), (right, Source::SharedCache));
    assert!(log.said("is not used"));
    let log = Log::default();
    assert_eq!(locate_known(&known(&data), &stage.options, &log).unwrap().source, Source::SharedCache);
    assert!(log.messages.lock().unwrap().is_empty());

    // One of another size is not even read.
    let stage = Stage::new(b"the hub's");
    stage.put(COMMIT, "first", b"short");
    let log = Log::default();
    let error = error_line(locate_known(&known(&data), &stage.options, &log));
    assert!(error.contains("9 bytes instead of 50000"), "{error}");
    assert!(!log.said("checking"));
}

#[test]
fn checking_can_be_cancelled() {
    let data = noise(100_000, 6);
    let stage = Stage::new(b"the hub's");
    stage.put(COMMIT, &sha256(&data), &data);
    stage.put_ref("main", COMMIT);
    let stop = Log { cancel_after: Some(0), ..Log::default() };
    let error = error_line(locate(NAME, &stage.options, &stop));
    assert!(error.contains("interrupted"), "{error}");
    assert_eq!(stage.own(), Vec::<String>::new());
    assert!(stage.hub.requests().is_empty());
}

/// Where Tallow's cache cannot be written there is no seal, and the file is checked each time.
#[test]
fn a_closed_cache_is_no_hindrance() {
    let data = noise(1000, 7);
    let mut stage = Stage::new(b"the hub's");
    let file = stage.put(COMMIT, &sha256(&data), &data);
    stage.put_ref("main", COMMIT);
    let closed = stage.folder.path().join("a file");
    std::fs::write(&closed, "").unwrap();
    stage.options.cache = Some(closed);
    for _ in 0..2 {
        let log = Log::default();
        let found = locate(NAME, &stage.options, &log).unwrap();
        assert_eq!((found.path, found.source), (file.clone(), Source::SharedCache));
        assert!(log.said("checking"));
    }
}
