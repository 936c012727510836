//! Tokenizers against the reference implementations, and against bad vocabularies. text_fixtures/make.py made the
//! vocabularies and the expected ids with PyPI tokenizers 0.23.3 and sentencepiece 0.2.3.
#![cfg(feature = "text")]

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use tallow::text::{Tokenizer, Vocabulary};

type Case = (String, Vec<u32>, Vec<u32>);

#[derive(Deserialize)]
struct ByteLevel {
    tokens: Vec<String>,
    types: Vec<i32>,
    merges: Vec<String>,
    /// By pre-tokenizer: the text, its ids as plain text, its ids with special tokens.
    cases: BTreeMap<String, Vec<Case>>,
}

#[derive(Deserialize)]
struct SentencePiece {
    tokens: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
    space_prefix: bool,
    /// The text, its ids, what they decode to.
    cases: Vec<(String, Vec<u32>, String)>,
}

fn byte_level() -> ByteLevel {
    serde_json::from_str(include_str!("text_fixtures/byte_level.json")).unwrap()
}

fn sentence_piece() -> BTreeMap<String, SentencePiece> {
    serde_json::from_str(include_str!("text_fixtures/sentence_piece.json")).unwrap()
}

fn cows(texts: &[String]) -> Vec<Cow<'_, str>> {
    texts.iter().map(|text| Cow::Borrowed(&**text)).collect()
}

fn gpt2<'a>(file: &'a ByteLevel, pre: &'a str) -> Vocabulary<'a> {
    Vocabulary {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        tokens: cows(&file.tokens),
        token_types: Some(file.types.clone()),
        merges: Some(cows(&file.merges)),
        ..Vocabulary::default()
    }
}

fn llama(file: &SentencePiece) -> Vocabulary<'_> {
    Vocabulary {
        model: "llama".into(),
        tokens: cows(&file.tokens),
        scores: Some(file.scores.clone()),
        token_types: Some(file.types.clone()),
        unk: Some(0),
        bos: Some(1),
        eos: Some(2),
        add_space_prefix: Some(file.space_prefix),
        ..Vocabulary::default()
    }
}

/// Pushes ids one by one, and checks that no piece holds half a character.
fn streamed(tokenizer: &Tokenizer, ids: &[u32], skip_special: bool) -> String {
    let mut stream = tokenizer.decode_stream(skip_special);
    let mut text = String::new();
    for &id in ids {
        if let Some(piece) = stream.push(id).unwrap() {
            assert!(!piece.is_empty() && !piece.contains('\u{FFFD}'), "{piece:?}");
            text.push_str(&piece);
        }
    }
    text + &stream.finish().unwrap().unwrap_or_default()
}

#[test]
fn byte_level_ids_are_the_references() {
    let file = byte_level();
    let mut checked = 0;
    for (pre, cases) in &file.cases {
        let tokenizer = Tokenizer::from_vocabulary(&gpt2(&file, pre)).unwrap();
        assert_eq!(tokenizer.warning(), None);
        for (text, plain, special) in cases {
            assert_eq!(&tokenizer.encode(text, false).unwrap(), plain, "{pre}: {text:?}");
            assert_eq!(&tokenizer.encode_with_special_tokens(text, false).unwrap(), special, "{pre}: {text:?}");
            if pre != "qwen2" {
                // (qwen2 composes characters, so some texts come back in another form.)
                assert_eq!(&tokenizer.decode(plain, false).unwrap(), text);
                assert_eq!(&streamed(&tokenizer, special, false), text);
            }
            checked += plain.len();
        }
    }
    assert!(checked > 2000, "only {checked} ids");
}

#[test]
fn sentence_piece_ids_are_the_references() {
    let mut checked = 0;
    for (name, file) in &sentence_piece() {
        let tokenizer = Tokenizer::from_vocabulary(&llama(file)).unwrap();
        for (text, ids, decoded) in &file.cases {
            assert_eq!(&tokenizer.encode(text, false).unwrap(), ids, "{name}: {text:?}");
            checked += ids.len();
            if name == "no_bytes" {
                continue; // The reference writes unknown pieces in its own way.
            }
            assert_eq!(&tokenizer.decode(ids, false).unwrap(), decoded, "{name}: {text:?}");
            let prefix = if file.space_prefix && !text.is_empty() { " " } else { "" };
            assert_eq!(
                streamed(&tokenizer, ids, false),
                format!("{prefix}{decoded}"),
                "{name}: a stream keeps the space"
            );
        }
    }
    assert!(checked > 2000, "only {checked} ids");
}

#[test]
fn bos_and_eos_are_added_once() {
    let files = sentence_piece();
    let mut vocabulary = llama(&files["llama"]);
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    let plain = tokenizer.encode("the answer", false).unwrap();
    let with = |ends: &[u32]| [&[1], &*plain, ends].concat();
    assert_eq!(tokenizer.encode("the answer", true).unwrap(), with(&[]), "llama begins with bos unless told otherwise");
    assert_eq!(tokenizer.encode_with_special_tokens("<s>the answer", true).unwrap(), with(&[]), "and only once");
    assert_eq!(tokenizer.encode_with_special_tokens("<s>the answer</s>", false).unwrap(), with(&[2]));
    assert_eq!(tokenizer.decode(&with(&[2]), true).unwrap(), "the answer");
    assert_eq!(tokenizer.decode(&with(&[2]), false).unwrap(), "<s> the answer</s>");
    vocabulary.add_eos = Some(true);
    assert_eq!(Tokenizer::from_vocabulary(&vocabulary).unwrap().encode("the answer", true).unwrap(), with(&[2]));
    vocabulary.add_bos = Some(false);
    let none = Tokenizer::from_vocabulary(&vocabulary).unwrap().encode("the answer", true).unwrap();
    assert_eq!(none, [&*plain, &[2]].concat());
}

#[test]
fn ends_are_the_named_ids_and_the_known_names() {
    let file = byte_level();
    let mut vocabulary = gpt2(&file, "gpt-2");
    let n = file.tokens.len() as u32;
    vocabulary.tokens.extend(["<|im_end|>".into(), "</s>".into(), "<|eot_id|>".into()]);
    vocabulary.token_types.as_mut().unwrap().extend([3, 1, 4]);
    vocabulary.eos = Some(5);
    vocabulary.eot = Some(6);
    let mut tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    // <|end|> is n - 1; an ordinary token that reads </s> is no end.
    assert_eq!(tokenizer.end_ids(), [5, 6, n - 1, n, n + 2]);
    assert!(tokenizer.is_end(n) && !tokenizer.is_end(n + 1));
    tokenizer.add_end(7).unwrap();
    assert!(tokenizer.is_end(7));
    assert!(tokenizer.add_end(n + 3).is_err());
}

#[test]
fn a_tokenizer_json_gives_the_same_ids_and_texts() {
    let file = byte_level();
    let tokenizer = Tokenizer::from_json(include_bytes!("text_fixtures/tokenizer_byte_level.json")).unwrap();
    let own = Tokenizer::from_vocabulary(&gpt2(&file, "smollm")).unwrap();
    assert_eq!(tokenizer.end_ids(), own.end_ids());
    assert_eq!(tokenizer.vocab_size(), own.vocab_size());
    for (text, plain, special) in &file.cases["smollm"] {
        assert_eq!(&tokenizer.encode(text, false).unwrap(), plain, "{text:?}");
        assert_eq!(&tokenizer.encode_with_special_tokens(text, false).unwrap(), special, "{text:?}");
        assert_eq!(&tokenizer.decode(special, false).unwrap(), text);
        assert_eq!(tokenizer.decode(special, true).unwrap(), own.decode(special, true).unwrap());
        assert_eq!(&streamed(&tokenizer, special, false), text);
    }
    assert!(tokenizer.decode(&[1 << 30], false).is_err());
    assert!(tokenizer.decode_stream(false).push(1 << 30).is_err());
}

/// A tokenizer.json whose decoder is only known to the `tokenizers` crate.
#[test]
fn other_decoders_of_a_tokenizer_json_stream_too() {
    let json = r####"{"version":"1.0","truncation":{"direction":"Right","max_length":2,"strategy":"LongestFirst","stride":0},
        "padding":null,"added_tokens":[{"id":0,"content":"[UNK]","single_word":false,"lstrip":false,"rstrip":false,
        "normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,
        "decoder":{"type":"WordPiece","prefix":"##","cleanup":false},"model":{"type":"WordPiece","unk_token":"[UNK]",
        "continuing_subword_prefix":"##","max_input_chars_per_word":100,
        "vocab":{"[UNK]":0,"play":1,"##ing":2,"a":3,"game":4,"�":5}}}"####;
    let tokenizer = Tokenizer::from_json(json.as_bytes()).unwrap();
    let ids = tokenizer.encode("playing a game", true).unwrap();
    assert_eq!(ids, [1, 2, 3, 4], "the file's truncation to 2 tokens must not drop text");
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "playing a game");
    assert_eq!(streamed(&tokenizer, &ids, true), "playing a game");
    assert_eq!(streamed(&tokenizer, &[1, 0, 0, 2, 3], true), "playing a");
    let mut stream = tokenizer.decode_stream(true);
    let mut text = String::new();
    for id in [3, 5, 5, 5, 5, 5, 5, 4] {
        text.push_str(&stream.push(id).unwrap().unwrap_or_default());
    }
    text.push_str(&stream.finish().unwrap().unwrap_or_default());
    assert_eq!(text, "a � � � � � � game", "a replacement character that is meant does not block the stream");
}

/// SentencePiece's decoder steps, as LLaMA's tokenizer.json spells them: a first space is stripped from a whole text, and
/// kept in a stream.
#[test]
fn a_sentence_piece_tokenizer_json_keeps_spaces_in_a_stream() {
    let json = r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],"normalizer":{"type":"Sequence",
        "normalizers":[{"type":"Prepend","prepend":"▁"},{"type":"Replace","pattern":{"String":" "},"content":"▁"}]},
        "pre_tokenizer":null,"post_processor":null,"decoder":{"type":"Sequence","decoders":[{"type":"Replace",
        "pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ",
        "start":1,"stop":0}]},"model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,
        "end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":{"<unk>":0,"<0xC3>":1,
        "<0xA9>":2,"▁":3,"a":4,"▁a":5},"merges":["▁ a"]}}"#;
    let tokenizer = Tokenizer::from_json(json.as_bytes()).unwrap();
    let ids = tokenizer.encode("a aé", false).unwrap();
    assert_eq!(ids, [5, 5, 1, 2]);
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "a aé");
    assert_eq!(streamed(&tokenizer, &ids, false), " a aé");
}

#[test]
fn broken_tokenizer_json_is_an_error() {
    let good = include_bytes!("text_fixtures/tokenizer_byte_level.json");
    for cut in (0..good.len()).step_by(97) {
        assert!(Tokenizer::from_json(&good[..cut]).is_err(), "cut at {cut}");
    }
    let text = String::from_utf8(good.to_vec()).unwrap();
    let wide = text.replace("\"zzz\"", "").replace(":419,", ":4000000000,");
    assert_ne!(wide, text);
    assert!(Tokenizer::from_json(wide.as_bytes()).unwrap_err().to_string().contains("4000000000"));
    let orphan = text.replacen("\"merges\":[", "\"merges\":[[\"qq\",\"zz\"],", 1);
    assert_ne!(orphan, text);
    assert!(Tokenizer::from_json(orphan.as_bytes()).is_err());
    // Bytes flipped here and there: an error or a tokenizer, never a panic.
    let mut state = 7u32;
    for _ in 0..300 {
        let mut bytes = good.to_vec();
        for _ in 0..3 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (state >> 8) as usize % bytes.len();
            bytes[at] = (state >> 3) as u8;
        }
        if let Ok(tokenizer) = Tokenizer::from_json(&bytes) {
            let _ = tokenizer
                .encode_with_special_tokens("The answer <|end|> é 12", true)
                .map(|ids| tokenizer.decode(&ids, true));
        }
    }
}

#[test]
fn hostile_vocabularies_are_errors_that_name_the_fault() {
    let file = byte_level();
    let n = file.tokens.len();
    let base = || gpt2(&file, "gpt-2");
    let fails = |vocabulary: Vocabulary<'_>, part: &str| {
        let error = Tokenizer::from_vocabulary(&vocabulary).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} does not name {part:?}");
    };
    fails(Vocabulary { tokens: vec![], token_types: None, ..base() }, "no tokens");
    fails(Vocabulary { model: "bert".into(), ..base() }, "bert");
    fails(Vocabulary { merges: None, ..base() }, "merges");
    fails(Vocabulary { merges: Some(vec!["Ġ qqq".into()]), ..base() }, "qqq");
    fails(Vocabulary { merges: Some(vec!["a Ġzzz".into()]), ..base() }, "Ġzzz");
    fails(Vocabulary { merges: Some(vec!["x z".into()]), ..base() }, "xz");
    fails(Vocabulary { merges: Some(vec!["ab".into()]), ..base() }, "two parts");
    fails(Vocabulary { merges: Some(vec!["".into()]), ..base() }, "two parts");
    fails(Vocabulary { merges: Some(vec!["a ".into()]), ..base() }, "not a token");
    fails(Vocabulary { merges: Some(vec![" a".into()]), ..base() }, "two parts");
    fails(Vocabulary { token_types: Some(vec![1]), ..base() }, "types");
    fails(Vocabulary { token_types: Some(vec![9; n]), ..base() }, "type 9");
    fails(Vocabulary { scores: Some(vec![0.0]), ..base() }, "scores");
    fails(Vocabulary { eos: Some(n as u32), ..base() }, "eos");
    fails(Vocabulary { bos: Some(u32::MAX), ..base() }, "bos");
    fails(Vocabulary { add_bos: Some(true), ..base() }, "bos");
    fails(Vocabulary { add_eos: Some(true), ..base() }, "eos");
    let mut twice = base();
    twice.tokens[7] = twice.tokens[8].clone();
    fails(twice, "tokens 7 and 8");
    let words = vec!["hello".into(), "world".into()];
    fails(Vocabulary { tokens: words, token_types: None, merges: Some(vec![]), ..base() }, "single byte");

    let files = sentence_piece();
    let base = || llama(&files["llama"]);
    fails(Vocabulary { scores: None, ..base() }, "score");
    let mut nan = base();
    nan.scores.as_mut().unwrap()[9] = f32::NAN;
    fails(nan, "token 9");
    let mut byte = base();
    byte.tokens[20] = "<0xZZ>".into();
    fails(byte, "<0xZZ>");

    // No byte tokens and no unknown token: the text can't be expressed, and that is said.
    let mut bare = llama(&files["no_bytes"]);
    bare.unk = None;
    let error = Tokenizer::from_vocabulary(&bare).unwrap().encode("日", false).unwrap_err().to_string();
    assert!(error.contains('日'), "{error}");
}

#[test]
fn empty_tokens_are_allowed_and_never_produced() {
    let file = byte_level();
    let mut vocabulary = gpt2(&file, "gpt-2");
    let n = file.tokens.len() as u32;
    vocabulary.tokens.extend(["".into(), "".into()]);
    vocabulary.token_types.as_mut().unwrap().extend([3, 4]);
    let tokenizer = Tokenizer::from_vocabulary(&vocabulary).unwrap();
    for (text, _, special) in &file.cases["gpt-2"] {
        assert_eq!(&tokenizer.encode_with_special_tokens(text, true).unwrap(), special);
    }
    assert_eq!(tokenizer.decode(&[n, n + 1], false).unwrap(), "");
    assert!(tokenizer.decode(&[n + 2], false).is_err());
}

#[test]
fn long_inputs_take_no_quadratic_time() {
    let file = byte_level();
    let files = sentence_piece();
    for tokenizer in
        [Tokenizer::from_vocabulary(&gpt2(&file, "llama-bpe")), Tokenizer::from_vocabulary(&llama(&files["llama"]))]
    {
        let tokenizer = tokenizer.unwrap();
        let text = "the".repeat(100_000);
        let ids = tokenizer.encode(&text, false).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}
