//! `run`: text, summary, `--json`.

use crate::support::{Said, model::Tiny, run, tallow};
use std::io::Read;
use std::path::PathBuf;
use tempfile::TempDir;

fn tiny() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, Tiny::default().bytes()).unwrap();
    (folder, path)
}

fn generate(folder: &TempDir, path: &std::path::Path, more: &[&str]) -> Said {
    let args = ["run", "Hi there", "--device", "cpu", "--json", "-m", path.to_str().unwrap()];
    let said = run(folder.path(), args.iter().chain(more));
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

#[test]
fn text_then_a_summary_then_json() {
    let (folder, path) = tiny();
    let said = generate(&folder, &path, &["-n", "16"]);
    let json = said.json();
    let ids: Vec<u64> = json["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert_eq!(ids.len(), 16);
    let prompt: Vec<u64> = b"Hi there".iter().map(|&byte| byte.into()).collect();
    assert_eq!(json["prompt_ids"], serde_json::json!(prompt));
    let text: String = ids.iter().map(|&id| char::from(u8::try_from(id).unwrap())).collect();
    assert_eq!(json["text"], text.as_str());
    assert!(said.stdout.starts_with(&format!("{text}\n{{")), "{said:?}");
    assert_eq!(said.stdout.lines().count(), 2, "{said:?}");

    assert_eq!(json["device"], "cpu");
    assert_eq!(json["activations"], "q8", "the CPU's default");
    assert_eq!(json["finish"], "max_tokens");
    for key in ["prefill_tok_s", "decode_tok_s", "first_token_ms", "peak_memory_bytes", "dispatches_per_token"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{key}: {json}");
    }
    assert_eq!(json["warm_tokens"], 14);

    let summary: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(summary.len(), 1, "{said:?}");
    assert!(summary[0].starts_with("cpu (") && summary[0].contains("prompt 8 tokens, "), "{said:?}");
    assert!(summary[0].contains("decode 15 tokens, ") && summary[0].ends_with(" tokens/s"), "{said:?}");
}

#[test]
fn warm_steps_create_nothing_until_the_cache_doubles() {
    let (folder, path) = tiny();
    let created = ["pipelines_created_warm", "bind_groups_created_warm", "buffers_created_warm"];
    let short = generate(&folder, &path, &["-n", "100"]).json();
    assert_eq!(short["cache_growths_warm"], 0);
    for key in created {
        assert_eq!(short[key], 0, "{key}: {short}");
    }
    // 8 + 200 positions are more than the first 128.
    let long = generate(&folder, &path, &["-n", "200"]).json();
    assert_eq!(long["cache_growths_warm"], 1, "{long}");
    let ids = |json: &serde_json::Value| json["ids"].as_array().unwrap().clone();
    assert_eq!(ids(&long)[..100], ids(&short)[..], "a longer run begins like a shorter one");
}

#[test]
fn too_few_tokens_have_no_warm_counts() {
    let (folder, path) = tiny();
    for (n, decode) in [("0", false), ("1", false), ("2", true)] {
        let json = generate(&folder, &path, &["-n", n]).json();
        assert!(json["dispatches_per_token"].is_null() && json["buffers_created_warm"].is_null(), "{json}");
        assert_eq!(json["decode_tok_s"].is_number(), decode, "{json}");
        assert_eq!(json["ids"].as_array().unwrap().len().to_string(), n);
    }
}

#[test]
fn options_reach_the_model() {
    let (folder, path) = tiny();
    let ids = |more: &[&str]| generate(&folder, &path, &[&["-n", "24"], more].concat()).json()["ids"].clone();
    let greedy = ids(&["--activations", "f32"]);
    assert_eq!(greedy, ids(&["--activations", "f32", "--temperature", "0"]));
    let hot = ["--temperature", "3", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--seed"];
    let seeded = |seed| ids(&[&hot[..], &[seed]].concat());
    assert_eq!(seeded("5"), seeded("5"));
    assert_ne!(seeded("5"), seeded("6"));
    assert_ne!(seeded("5"), greedy);
    assert_eq!(ids(&["--activations", "f32", "--temperature", "3", "--top-k", "1"]), greedy);
    assert_ne!(ids(&["--activations", "f32", "--repeat-penalty", "100"]), greedy);
    let full = generate(&folder, &path, &["--context", "20", "-n", "100"]);
    assert_eq!(full.json()["finish"], "context_full");
    assert!(full.stderr.contains("the context is full"), "{full:?}");
    let chat = generate(&folder, &path, &["--chat", "-n", "4"]).json();
    assert_eq!(chat["prompt_ids"].as_array().unwrap().len(), "user\nHi there".len() + "assistant\n".len() + 3);
    assert_eq!(generate(&folder, &path, &["--activations", "f32"]).json()["activations"], "f32");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (folder, path) = tiny();
    let mut command = tallow(folder.path());
    command.args(["run", "Hi", "--device", "cpu", "-n", "50000", "-m"]).arg(&path);
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 4]).unwrap();
    drop(stdout);
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
}

#[test]
fn the_help_states_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), ["run", "--help"]);
    assert_eq!(said.code, Some(0));
    let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[default: q8 on the CPU, as llama.cpp does; f32 on a GPU]"), "{words}");
    assert!(words.contains("[default: SmolLM2-135M-Instruct-Q4_1]"), "{words}");
}
