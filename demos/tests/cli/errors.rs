//! Each way to go wrong gives one clear line and a status that is not zero.

use crate::support::{
    model::{LOOPING_TEMPLATE, Tiny},
    run, run_with_input,
};
use std::path::Path;
use tempfile::TempDir;

fn folder_with(bytes: &[u8]) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn fails(cache: &Path, args: &[&str], words: &str) {
    run(cache, args).assert_error(words);
}

#[test]
fn prompts() {
    let (folder, path) = folder_with(&Tiny::default().bytes());
    fails(folder.path(), &["run", "", "-m", &path], "the prompt is empty");
    let args = ["run", "more than nine", "-m", &path, "--device", "cpu", "--context", "9"];
    fails(folder.path(), &args, "the prompt has 14 tokens, the context holds 9");
}

#[test]
fn files() {
    let (folder, path) = folder_with(b"This is a text about models, and not one of them.");
    fails(
        folder.path(),
        &["run", "x", "-m", "nowhere.gguf"],
        "\"nowhere.gguf\" is neither a file here nor a known model",
    );
    fails(folder.path(), &["run", "x", "-m", "hf:nonsense"], "is not a hub name");
    fails(folder.path(), &["run", "x", "-m", &path], "GGUF");
    fails(folder.path(), &["inspect", &path], "neither a GGUF file");
    fails(folder.path(), &["inspect", "nowhere.gguf"], "nowhere.gguf");
    fails(folder.path(), &["inspect", folder.path().to_str().unwrap()], "a folder, not a file");
    let empty = tempfile::tempdir().unwrap();
    fails(folder.path(), &["run", "x", "-m", empty.path().to_str().unwrap()], "config.json");
}

#[test]
fn nothing_to_be_had_says_how_to_pass_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let words = "If you have the file, give its path instead of the name";
    fails(folder.path(), &["run", "x", "--device", "cpu"], words);
    fails(folder.path(), &["pull"], "HF_HUB_OFFLINE");
}

#[test]
fn truncated_files() {
    let whole = Tiny::default().bytes();
    for share in [0, 1, 3, 20, 50, 90, 99] {
        let (folder, path) = folder_with(&whole[..whole.len() * share / 100]);
        let said = run(folder.path(), ["run", "x", "--device", "cpu", "-m", &path]);
        said.assert_error("");
        run(folder.path(), ["inspect", &path]).assert_error(&path);
    }
    let (folder, path) = folder_with(&whole[..whole.len() - 1]);
    fails(folder.path(), &["run", "x", "--device", "cpu", "-m", &path], "GGUF");
}

#[test]
fn lone_safetensors() {
    let header = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
    let (folder, path) = folder_with(&bytes);
    fails(folder.path(), &["run", "x", "--device", "cpu", "-m", &path], "give the folder");
}

#[test]
fn devices() {
    let (folder, path) = folder_with(&Tiny::default().bytes());
    for device in ["gpu", "wgpu:x", "cuda", ""] {
        let said = run(folder.path(), ["run", "x", "-m", &path, "--device", device]);
        said.assert_error("there is no device");
        assert!(said.stderr.contains("tallow devices"), "{said:?}");
    }
    let said = run(folder.path(), ["run", "x", "-m", &path, "--device", "wgpu:99"]);
    said.assert_error("99");
}

#[test]
fn no_tokenizer() {
    let (folder, path) = folder_with(&Tiny { tokenizer: false, ..Tiny::default() }.bytes());
    fails(folder.path(), &["run", "x", "--device", "cpu", "-m", &path], "the file has no tokenizer");
}

#[test]
fn chat_templates() {
    let (folder, path) = folder_with(&Tiny { template: None, ..Tiny::default() }.bytes());
    fails(folder.path(), &["chat", "--device", "cpu", "-m", &path], "no chat template");
    fails(folder.path(), &["run", "x", "--chat", "--device", "cpu", "-m", &path], "no chat template");

    let (folder, path) = folder_with(&Tiny { template: Some(LOOPING_TEMPLATE), ..Tiny::default() }.bytes());
    fails(folder.path(), &["run", "x", "--chat", "--device", "cpu", "-m", &path], "it probably loops");
    let said = run_with_input(folder.path(), ["chat", "--device", "cpu", "-m", &path], "hello\n");
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.lines().last().unwrap().contains("it probably loops"), "{said:?}");

    let (folder, path) = folder_with(&Tiny { template: Some("{% if %}"), ..Tiny::default() }.bytes());
    fails(folder.path(), &["run", "x", "--device", "cpu", "-m", &path], "chat template");
}

#[test]
fn options() {
    let folder = tempfile::tempdir().unwrap();
    fails(folder.path(), &["run", "x", "--temperature", "-1"], "temperature is -1");
    fails(folder.path(), &["run", "x", "--top-p", "1.5"], "top_p is 1.5");
    for usage in [&["run"][..], &["run", "x", "--context", "0"], &["run", "x", "--activations", "q4"], &["walk"], &[]] {
        let said = run(folder.path(), usage);
        assert_eq!(said.code, Some(2), "{said:?}");
    }
}
