//! `inspect`: both formats, by content.

use crate::support::{model::Tiny, run};
use serde_json::json;

#[test]
fn a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let bytes = Tiny::default().bytes();
    std::fs::write(&path, &bytes).unwrap();
    let path = path.to_str().unwrap();
    let said = run(folder.path(), ["inspect", path]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    let has = |words: &str| {
        let squeezed = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed.contains(words), "{words}: {}", said.stdout);
    };
    has("GGUF version 3, alignment 32");
    has("general.architecture \"llama\"");
    has("258 in all]");
    has("blk.1.ffn_down.weight Q8_0 [64, 128] 8704");
    has("output_norm.weight F32 [64] 256");
    has("total: 20 tensors (F32 x5, Q8_0 x15)");
    assert!(said.stdout.lines().all(|line| line.len() < 400), "long arrays are cut: {}", said.stdout);

    let said = run(folder.path(), ["inspect", path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(json["metadata"]["llama.embedding_length"], 64);
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["len"], 258);
    assert_eq!(json["metadata"]["tokenizer.ggml.tokens"]["first"].as_array().unwrap().len(), 8);
    assert_eq!(json["totals"]["file_bytes"], bytes.len());
    let tensor = &json["tensors"][0];
    assert_eq!((&tensor["name"], &tensor["shape"]), (&json!("token_embd.weight"), &json!([258, 64])));
    assert_eq!(tensor["bytes"], 258 * 64 / 32 * 34);
}

#[test]
fn a_safetensors_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.gguf");
    let header = r#"{"__metadata__":{"format":"p\nt"},"a\u001b[31m":{"dtype":"F16","shape":[3,2],"data_offsets":[0,12]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[12,13]}}"#;
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 13]].concat();
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    let said = run(folder.path(), ["inspect", path]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    for words in ["safetensors\n", "\"p\\nt\"", "F16      [3, 2]", "total: 2 tensors (BOOL x1, F16 x1), 7 elements"] {
        assert!(said.stdout.contains(words), "{words}: {}", said.stdout);
    }
    assert!(!said.stdout.contains('\u{1b}'), "a name cannot command the terminal");
    let said = run(folder.path(), ["inspect", path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(json["tensors"][0]["name"], "a\u{1b}[31m");
    assert_eq!(json["totals"]["tensor_bytes"], 13);
    assert_eq!(json["metadata"]["format"], "p\nt");
}
