//! safetensors: files that the reference crate writes are read; lies are refused in words.

use std::collections::HashMap;

use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use tallow::formats::{Bytes, SafeTensors};
use tallow_graph::{DType, Error};

fn parse(bytes: &[u8]) -> Result<SafeTensors, Error> {
    SafeTensors::parse(Bytes::from(bytes))
}

/// A file with this JSON header and `data` bytes of data.
fn file(json: &str, data: usize) -> Vec<u8> {
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend(json.bytes());
    out.extend((0..data).map(|i| i as u8));
    out
}

#[track_caller]
fn assert_refused(bytes: &[u8], words: &[&str]) {
    let message = match parse(bytes) {
        Err(error @ Error::Format { format: "safetensors", .. }) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    for word in words {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
}

const TYPES: [(Dtype, DType, usize); 15] = [
    (Dtype::BOOL, DType::U8, 1),
    (Dtype::U8, DType::U8, 1),
    (Dtype::I8, DType::I8, 1),
    (Dtype::U16, DType::U16, 2),
    (Dtype::I16, DType::I16, 2),
    (Dtype::U32, DType::U32, 4),
    (Dtype::I32, DType::I32, 4),
    (Dtype::U64, DType::U64, 8),
    (Dtype::I64, DType::I64, 8),
    (Dtype::F8_E4M3, DType::F8E4M3, 1),
    (Dtype::F8_E5M2, DType::F8E5M2, 1),
    (Dtype::BF16, DType::BF16, 2),
    (Dtype::F16, DType::F16, 2),
    (Dtype::F32, DType::F32, 4),
    (Dtype::F64, DType::F64, 8),
];

/// A tensor of each type, as the reference crate writes it.
fn every_type() -> Vec<u8> {
    let data: Vec<u8> = (0..48).collect();
    let views = TYPES.map(|(theirs, _, size)| {
        let shape = if size == 4 { vec![3, 2] } else { vec![2, 3] };
        (format!("t.{theirs:?}"), TensorView::new(theirs, shape, &data[..6 * size]).unwrap())
    });
    let info = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize(views, Some(info)).unwrap()
}

#[test]
fn files_of_the_reference_crate_are_read() {
    let bytes = every_type();
    let ours = parse(&bytes).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(ours.names().len(), TYPES.len());
    assert_eq!(ours.metadata().collect::<Vec<_>>(), [("format", "pt")]);
    for (theirs_type, ours_type, _) in TYPES {
        let name = format!("t.{theirs_type:?}");
        let (dtype, shape, data) = ours.tensor(&name).unwrap();
        let view = theirs.tensor(&name).unwrap();
        assert_eq!((dtype, shape.as_slice(), &*data), (ours_type, view.shape(), view.data()));
    }
}

#[test]
fn a_file_on_disk_is_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    std::fs::write(&path, every_type()).unwrap();
    let file = SafeTensors::open(&path).unwrap();
    assert!(file.tensor("t.F32").unwrap().2.is_mapped());
    std::fs::write(&path, b"PK").unwrap();
    let message = SafeTensors::open(&path).unwrap_err().to_string();
    assert!(message.contains("model.safetensors") && message.contains("truncated"), "{message}");
}

#[test]
fn scalars_empty_tensors_and_escapes_are_read() {
    let json = r#"{"\u0061\n":{"dtype":"F32","shape":[],"data_offsets":[0,4],"more":[1,{}]},
        "empty":{"shape":[3,0],"data_offsets":[4,4],"dtype":"F16"},"__metadata__":{"x":"\"y\"","z":""}}   "#;
    let read = parse(&file(json, 4)).unwrap();
    assert_eq!(read.names().collect::<Vec<_>>(), ["a\n", "empty"]);
    assert_eq!(read.metadata().collect::<Vec<_>>(), [("x", "\"y\""), ("z", "")]);
    let (dtype, shape, data) = read.tensor("a\n").unwrap();
    assert_eq!((dtype, shape.len(), &*data), (DType::F32, 0, &[0u8, 1, 2, 3][..]));
    assert_eq!(read.tensor("empty").unwrap().1, [3, 0]);
    assert!(parse(&file("{}", 0)).unwrap().names().next().is_none());
}

#[test]
fn types_that_are_not_loaded_are_listed() {
    let json = r#"{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},"b":{"dtype":"C64","shape":[1],"data_offsets":[3,11]}}"#;
    let read = parse(&file(json, 11)).unwrap();
    assert_eq!(read.tensors().iter().map(|t| t.st_dtype().name()).collect::<Vec<_>>(), ["F4", "C64"]);
    let error = read.tensor("b").unwrap_err().to_string();
    assert!(error.contains("\"b\"") && error.contains("C64"), "{error}");
    let error = read.tensor("c").unwrap_err().to_string();
    assert!(error.contains("no tensor named \"c\""), "{error}");
}

#[test]
fn a_truncation_at_any_byte_is_refused() {
    let bytes = every_type();
    for n in 0..bytes.len() {
        assert_refused(&bytes[..n], &["truncated"]);
    }
    let mut longer = bytes;
    longer.push(0);
    assert_refused(&longer, &["bytes of data"]);
}

#[test]
fn lies_are_refused() {
    let one = |entry: &str, data| file(&format!("{{\"t\":{{{entry}}}}}"), data);
    let with = |dtype: &str, shape: &str, offsets: &str| {
        one(&format!(r#""dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}"#), 8)
    };
    parse(&with("F32", "[2]", "[0,8]")).unwrap();
    for n in [1u64 << 63, u64::MAX, 100_000_001] {
        let mut bytes = with("F32", "[2]", "[0,8]");
        bytes[..8].copy_from_slice(&n.to_le_bytes());
        assert_refused(&bytes, &[&n.to_string(), "byte 0"]);
    }
    let mut bytes = with("F32", "[2]", "[0,8]");
    bytes[..8].copy_from_slice(&1000u64.to_le_bytes());
    assert_refused(&bytes, &["truncated", "1000"]);
    assert_refused(&file("[]", 0), &["'{'"]);
    assert_refused(&file("", 0), &["'{'"]);
    assert_refused(&file(" {}", 0), &["'{'"]);
    assert_refused(&file("{} x", 0), &["trailing"]);
    assert_refused(&file("{\"t\":", 0), &["EOF"]);
    assert_refused(&with("F33", "[2]", "[0,8]"), &["\"t\"", "unknown dtype \"F33\""]);
    assert_refused(&with("F32", "[3]", "[0,8]"), &["\"t\"", "[3] of F32", "8 bytes"]);
    assert_refused(&with("F32", "[-2]", "[0,8]"), &["\"t\"", "-2"]);
    assert_refused(&with("F32", "[2.0]", "[0,8]"), &["\"t\""]);
    assert_refused(&with("F32", "[18446744073709551615,4]", "[0,8]"), &["\"t\"", "does not take"]);
    assert_refused(&with("F32", "[18446744073709551616]", "[0,8]"), &["\"t\""]);
    assert_refused(&with("F32", "[2]", "[8,0]"), &["\"t\"", "[8, 0]"]);
    assert_refused(&with("F32", "[2]", "[0,16]"), &["\"t\"", "lying"]);
    assert_refused(&with("F32", "[1]", "[4,8]"), &["\"t\"", "gap"]);
    assert_refused(&with("F32", "[1]", "[0,4]"), &["take 4 bytes", "8 bytes of data"]);
    assert_refused(&with("F32", "[2]", "[0]"), &["two numbers"]);
    assert_refused(&with("F32", "[2]", "[0,8,9]"), &["more than 2 numbers"]);
    assert_refused(&with("F32", &format!("[{}1]", "1,".repeat(16)), "[0,4]"), &["more than 16"]);
    assert_refused(&one(r#""dtype":"F32","shape":[2]"#, 8), &["data_offsets"]);
    assert_refused(&one(r#""dtype":"F32","dtype":"F32""#, 8), &["duplicate", "dtype"]);
    let entry = |offsets: &str| format!(r#"{{"dtype":"U8","shape":[4],"data_offsets":{offsets}}}"#);
    let two = |a: &str, b: &str, bs: &str| file(&format!(r#"{{"{a}":{},"{b}":{}}}"#, entry("[0,4]"), entry(bs)), 8);
    parse(&two("a", "b", "[4,8]")).unwrap();
    assert_refused(&two("a", "a", "[4,8]"), &["\"a\" twice"]);
    assert_refused(&two("a", "\\u0061", "[4,8]"), &["\"a\" twice"]);
    assert_refused(&two("a", "b", "[2,6]"), &["\"b\"", "overlaps"]);
    assert_refused(&file(r#"{"__metadata__":{"a":1}}"#, 0), &["string"]);
    assert_refused(&file(r#"{"__metadata__":{"a":"1","a":"2"}}"#, 0), &["\"a\" twice"]);
    assert_refused(&file(r#"{"__metadata__":{},"__metadata__":{}}"#, 0), &["__metadata__", "twice"]);
    // Depth must not overflow the stack, neither where values are passed over nor where they are read.
    for key in ["x", "shape"] {
        assert_refused(&file(&format!("{{\"t\":{{\"{key}\":{}", "[".repeat(100_000)), 0), &["\"t\""]);
    }
    // Offsets whose sum wraps around: each tensor is sound by itself.
    let mut parts = Vec::new();
    let step = u64::MAX / 8;
    for i in 0..8 {
        let range = format!("[{},{}]", step * i, step * (i + 1));
        parts.push(format!(r#""t{i}":{{"dtype":"U8","shape":[{step}],"data_offsets":{range}}}"#));
    }
    assert_refused(&file(&format!("{{{}}}", parts.join(",")), 8), &["\"t0\"", "lying"]);
}

#[test]
fn shards_are_found_next_to_their_index() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shard = |name: &str, tensor: &str| {
        let json = format!(r#"{{"{tensor}":{{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}}}"#);
        std::fs::write(at(name), file(&json, 2)).unwrap();
    };
    shard("one.safetensors", "a");
    shard("two.safetensors", "b");
    let index = at("model.safetensors.index.json");
    let open = |json: &str| {
        std::fs::write(&index, json).unwrap();
        SafeTensors::open_sharded(&index)
    };
    let both = r#"{"metadata":{"total_size":4},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}"#;
    let sharded = open(both).unwrap();
    assert_eq!(sharded.names().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(sharded.shards().len(), 2);
    assert_eq!(&*sharded.tensor("b").unwrap().2, &[0, 1]);
    assert!(sharded.tensor("c").unwrap_err().to_string().contains("\"c\""));

    let fails = |json: &str, words: &[&str]| {
        let message = open(json).unwrap_err().to_string();
        assert!(words.iter().all(|w| message.contains(w)), "{message:?} lacks one of {words:?}");
    };
    fails(r#"{"weight_map":{"b":"one.safetensors"}}"#, &["index.json", "\"b\" is not in", "one.safetensors"]);
    fails(r#"{"weight_map":{"a":"three.safetensors"}}"#, &["three.safetensors"]);
    fails("{}", &["weight_map"]);
    fails("[", &["index.json"]);
    // A sound file outside the folder, which no spelling may reach.
    let inner = at("inner");
    std::fs::create_dir(&inner).unwrap();
    let inner = inner.join("model.safetensors.index.json");
    let absolute = at("one.safetensors").display().to_string();
    for path in ["../one.safetensors", &absolute, "./../one.safetensors", "..", ".", "", "x/../../one.safetensors"] {
        std::fs::write(&inner, format!(r#"{{"weight_map":{{"a":{path:?}}}}}"#)).unwrap();
        let message = SafeTensors::open_sharded(&inner).unwrap_err().to_string();
        assert!(message.contains("next to the index"), "{path}: {message}");
    }
}
