//! Tokenizer and chat template from a GGUF header.
#![cfg(feature = "text")]

use serde::Deserialize;
use tallow::formats::gguf::{Gguf, OwnedValue, ValueType, Writer};
use tallow::text::{ChatTemplate, Message, Tokenizer};

type Case = (String, Vec<u32>, Vec<u32>);

#[derive(Deserialize)]
struct ByteLevel {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
    cases: std::collections::BTreeMap<String, Vec<Case>>,
}

fn strings(texts: &[String]) -> OwnedValue {
    OwnedValue::Array(ValueType::Str, texts.iter().cloned().map(OwnedValue::Str).collect())
}

fn open(writer: Writer<'_>) -> Gguf {
    Gguf::parse(writer.to_bytes().unwrap().into()).unwrap()
}

fn base(file: &ByteLevel) -> Writer<'static> {
    Writer::new()
        .metadata("tokenizer.ggml.model", OwnedValue::Str("gpt2".into()))
        .metadata("tokenizer.ggml.pre", OwnedValue::Str("smollm".into()))
        .metadata("tokenizer.ggml.tokens", strings(&file.tokens))
        .metadata(
            "tokenizer.ggml.token_type",
            OwnedValue::Array(ValueType::I32, file.types.iter().copied().map(OwnedValue::I32).collect()),
        )
        .metadata("tokenizer.ggml.merges", strings(&file.merges))
}

#[test]
fn everything_is_read_from_the_header() {
    let file: ByteLevel = serde_json::from_str(include_str!("text_fixtures/byte_level.json")).unwrap();
    let end = file.tokens.len() as u32 - 1;
    let gguf = open(
        base(&file)
            .metadata("tokenizer.ggml.bos_token_id", OwnedValue::U32(3))
            .metadata("tokenizer.ggml.eos_token_id", OwnedValue::U32(end))
            .metadata("tokenizer.ggml.eot_token_id", OwnedValue::U32(4))
            .metadata("tokenizer.ggml.padding_token_id", OwnedValue::I32(-1))
            .metadata("tokenizer.ggml.add_bos_token", OwnedValue::Bool(true))
            .metadata(
                "tokenizer.chat_template",
                OwnedValue::Str("{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}".into()),
            ),
    );
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    for (text, plain, _) in &file.cases["smollm"] {
        assert_eq!(tokenizer.encode(text, true).unwrap(), [&[3], &**plain].concat());
    }
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.pad()), (Some(3), Some(end), None));
    assert_eq!(tokenizer.end_ids(), [4, end]);
    let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap().unwrap();
    assert_eq!(template.render(&[Message::user("a"), Message::user("b")], false).unwrap(), "a<|end|>b<|end|>");

    let gguf = open(base(&file));
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    assert!(ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap().is_none());
}

#[test]
fn a_header_without_a_tokenizer_or_with_another_type_is_an_error() {
    let fails = |writer: Writer<'_>, part: &str| {
        let error = Tokenizer::from_gguf(open(writer).metadata()).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let file: ByteLevel = serde_json::from_str(include_str!("text_fixtures/byte_level.json")).unwrap();
    fails(Writer::new(), "no tokenizer");
    fails(Writer::new().metadata("tokenizer.ggml.model", OwnedValue::U32(1)), "tokenizer.ggml.model");
    fails(Writer::new().metadata("tokenizer.ggml.model", OwnedValue::Str("gpt2".into())), "no tokens");
    fails(base(&file).metadata("tokenizer.ggml.eos_token_id", OwnedValue::Str("x".into())), "eos_token_id");
    fails(base(&file).metadata("tokenizer.ggml.eos_token_id", OwnedValue::I64(-2)), "eos_token_id");
    fails(base(&file).metadata("tokenizer.ggml.eos_token_id", OwnedValue::U64(1 << 40)), "eos_token_id");
    fails(base(&file).metadata("tokenizer.ggml.scores", OwnedValue::Str("x".into())), "scores");
}
