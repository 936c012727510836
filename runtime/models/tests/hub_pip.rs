//! The default model's last source: a wheel from pip. A script plays pip, and writes whatever wheel the test made.
#![cfg(all(feature = "hub", unix))]

mod hub_server;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hub_server::{Answer, Log, Server, error_line, files, noise, options, sha256};
use tallow_models::hub::{KnownModel, NoProgress, Options, PipPackage, Source, locate_known};
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

const FILE: &str = "me/m/main/model.gguf";
const INNER: &str = "my_package/model.gguf";

fn known(data: &[u8]) -> KnownModel {
    KnownModel {
        name: "Test",
        hub: "hf:me/m/model.gguf",
        file: "model.gguf",
        bytes: data.len() as u64,
        sha256: Box::leak(sha256(data).into_boxed_str()),
        pip: Some(PipPackage { package: "my-package", version: "1.2", path: INNER }),
    }
}

fn wheel(path: &str, data: &[u8], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    zip.start_file("my_package/__init__.py", options).unwrap();
    zip.write_all(b"raise SystemExit('the package must not run')").unwrap();
    zip.start_file(path, options).unwrap();
    zip.write_all(data).unwrap();
    zip.finish().unwrap().into_inner()
}

/// A pip in `folder` that runs `body`, where `$dest` is the folder that was asked for and `$0.whl` lies beside it.
fn pip(folder: &Path, wheel: &[u8], body: &str) -> PathBuf {
    let path = folder.join("pip");
    std::fs::write(folder.join("pip.whl"), wheel).unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> \"$0.log\"\nwhile [ $# -gt 0 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n{body}\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

const GIVE: &str = "cp \"$0.whl\" \"$dest/my_package-1.2-py3-none-any.whl\"";

struct Stage {
    folder: tempfile::TempDir,
    hub: Server,
    options: Options,
}

impl Stage {
    /// A hub that has nothing, a cache, and a pip.
    fn new(wheel: &[u8], body: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hub = Server::new(|_, _| Answer::new(404, ""));
        let mut options = options(&hub.endpoint, &folder.path().join("cache"));
        options.pip = Some(vec![pip(folder.path(), wheel, body).into()]);
        Self { folder, hub, options }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn runs(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("pip.log")).unwrap_or_default();
        log.lines().map(str::to_string).collect()
    }
}

#[test]
fn takes_the_file_out_of_the_wheel_when_the_hub_has_it_not() {
    let data = noise(300_000, 1);
    for method in [CompressionMethod::Deflated, CompressionMethod::Stored] {
        let stage = Stage::new(&wheel(INNER, &data, method), GIVE);
        let log = Log::default();
        let found = locate_known(&known(&data), &stage.options, &log).unwrap();
        assert_eq!(found.source, Source::Pip("my-package==1.2".into()));
        assert!(std::fs::read(&found.path).unwrap() == data);
        assert_eq!(*log.bytes.lock().unwrap(), 300_000);
        assert_eq!(stage.hub.requests().len(), 1, "the hub comes first");
        let runs = stage.runs();
        assert_eq!(runs.len(), 1);
        assert!(runs[0].starts_with("download --no-deps --no-cache-dir --only-binary :all:"), "{runs:?}");
        assert!(runs[0].ends_with(" my-package==1.2"), "{runs:?}");
        assert_eq!(files(&stage.cache()), [FILE.to_string(), format!("{FILE}.verified.json")]);

        assert_eq!(locate_known(&known(&data), &stage.options, &NoProgress).unwrap().source, Source::Cache);
        assert_eq!((stage.hub.requests().len(), stage.runs().len()), (1, 1));
    }
}

/// All sources have the file; one after the other is taken away.
#[test]
fn the_sources_come_in_order() {
    let data = noise(20_000, 6);
    let mut stage = Stage::new(&wheel(INNER, &data, CompressionMethod::Deflated), GIVE);
    let body = data.clone();
    let hub = Server::new(move |request, _| Answer::file(request, &body, "\"t\""));
    let nothing = std::mem::replace(&mut stage.options.endpoint, hub.endpoint.clone());
    let shared = stage.folder.path().join("hub");
    stage.options.shared_cache = Some(shared.clone());
    let snapshot = shared.join("models--me--m").join("snapshots").join("a".repeat(40));
    for file in [snapshot.join("model.gguf"), stage.cache().join(FILE)] {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, &data).unwrap();
    }
    let source = |stage: &Stage| {
        let found = locate_known(&known(&data), &stage.options, &NoProgress).map(|found| found.source);
        std::fs::remove_dir_all(stage.cache()).unwrap();
        found
    };
    assert_eq!(source(&stage).unwrap(), Source::Cache);
    assert_eq!(source(&stage).unwrap(), Source::SharedCache);
    std::fs::remove_dir_all(shared).unwrap();
    assert!(hub.requests().is_empty());
    assert_eq!(source(&stage).unwrap(), Source::Hub(hub.endpoint.clone()));
    assert!(stage.runs().is_empty());
    stage.options.endpoint = nothing;
    assert_eq!(source(&stage).unwrap(), Source::Pip("my-package==1.2".into()));
    stage.options.pip = Some(vec!["/nonexistent/pip".into()]);
    let error = error_line(source(&stage));
    assert!(error.contains("(1) hf:") && error.contains("(2) pip") && error.contains("give its path"), "{error}");
}

#[test]
fn a_hub_with_a_wrong_file_is_followed_by_pip() {
    let data = noise(1000, 2);
    let mut stage = Stage::new(&wheel(INNER, &data, CompressionMethod::Deflated), GIVE);
    let other = noise(1000, 3);
    let hub = Server::new(move |r, _| Answer::file(r, &other, "\"t\""));
    stage.options.endpoint = hub.endpoint.clone();
    let log = Log::default();
    let found = locate_known(&known(&data), &stage.options, &log).unwrap();
    assert_eq!(found.source, Source::Pip("my-package==1.2".into()));
    assert!(log.said("wrong sha256"));
}

#[test]
fn bad_wheels_are_refused_and_leave_nothing() {
    let data = noise(5000, 4);
    let mut wrong = data.clone();
    wrong[100] ^= 1;
    let good = wheel(INNER, &data, CompressionMethod::Stored);
    let deflated = CompressionMethod::Deflated;
    // The data lies uncompressed in the archive: change a byte there, or the sizes that the directory claims.
    let at = good.windows(16).position(|w| *w == data[..16]).unwrap();
    let mut damaged = good.clone();
    damaged[at + 50] ^= 1;
    let mut lying = wheel(INNER, &vec![0; 6_000_000], deflated);
    for i in 0..lying.len() - 4 {
        if lying[i..i + 4] == 6_000_000u32.to_le_bytes() {
            lying[i..i + 4].copy_from_slice(&5000u32.to_le_bytes());
        }
    }
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("without the file", wheel("my_package/other.gguf", &data, deflated), "holds no my_package/model.gguf"),
        ("another size", wheel(INNER, &data[1..], deflated), "4999 bytes instead of 5000"),
        ("wrong bytes", wheel(INNER, &wrong, deflated), "wrong sha256"),
        ("damaged", damaged, "damaged"),
        ("a bomb that claims to be small", lying, "damaged ("),
        ("truncated", good[..good.len() / 2].to_vec(), "not a sound zip"),
        ("empty", Vec::new(), "not a sound zip"),
    ];
    for (what, wheel, words) in cases {
        let stage = Stage::new(&wheel, GIVE);
        let error = error_line(locate_known(&known(&data), &stage.options, &NoProgress));
        assert!(error.contains("(1) hf:") && error.contains("(2) pip") && error.contains(words), "{what}: {error}");
        assert_eq!(files(&stage.cache()), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn a_pip_that_fails_or_is_absent_is_named() {
    let data = noise(1000, 5);
    let cases = [
        ("echo 'ERROR: No matching distribution' >&2; echo 'hint: x' >&2; exit 1", "ERROR: No matching distribution"),
        ("exit 3", "exit status: 3"),
        ("echo 'python3: No module named pip' >&2; exit 1", "pip was not found"),
        ("exit 0", "left no wheel"),
        // More than a pipe holds: pip must not hang on it.
        ("i=0; while [ $i -lt 9000 ]; do echo warning warning >&2; i=$((i+1)); done; echo last >&2; exit 1", "last"),
    ];
    for (body, words) in cases {
        let stage = Stage::new(&[], body);
        let error = error_line(locate_known(&known(&data), &stage.options, &NoProgress));
        assert!(error.contains("404") && error.contains(words), "{body}: {error}");
    }
}

#[test]
fn a_cancelled_pip_is_stopped() {
    struct StopAtPip(std::time::Instant);
    impl tallow_models::hub::Progress for StopAtPip {
        fn cancelled(&self) -> bool {
            self.0.elapsed() > std::time::Duration::from_millis(700)
        }
    }
    let stage = Stage::new(&[], "exec sleep 60");
    let start = std::time::Instant::now();
    let error = error_line(locate_known(&known(b"x"), &stage.options, &StopAtPip(start)));
    assert!(error.contains("interrupted"), "{error}");
    assert!(start.elapsed() < std::time::Duration::from_secs(30));
    assert_eq!(stage.runs().len(), 1);
}
