//! GGUF: what the writer writes, the reader reads; and every lie a file can tell is refused in words.

use tallow::formats::Bytes;
use tallow::formats::gguf::{GgmlType, Gguf, Header, HeaderReader, OwnedValue, ValueType, Writer};
use tallow_graph::{DType, Error};

fn parse(bytes: &[u8]) -> Result<Gguf, Error> {
    Gguf::parse(Bytes::from(bytes))
}

/// The message of the error that `bytes` give.
#[track_caller]
fn refused(bytes: &[u8]) -> String {
    match parse(bytes) {
        Err(error @ Error::Format { format: "GGUF", .. }) => error.to_string(),
        Err(other) => panic!("an error of another kind: {other:?}"),
        Ok(file) => panic!("accepted: {file:?}"),
    }
}

#[track_caller]
fn assert_refused(bytes: &[u8], words: &[&str]) {
    let message = refused(bytes);
    for word in words {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
    // The stream reader must agree; without the file's size it may be unable to tell, but must not finish.
    for size in [Some(bytes.len() as u64), None] {
        let mut reader = HeaderReader::new(size);
        let pushed = bytes.chunks(5).try_for_each(|chunk| reader.push(chunk).map(|header| assert!(header.is_none())));
        assert!(pushed.and_then(|()| reader.finish()).is_err());
    }
}

fn every_value() -> Vec<(&'static str, OwnedValue)> {
    let nested = |values: Vec<OwnedValue>| OwnedValue::Array(ValueType::Array, values);
    vec![
        ("u8", 200u8.into()),
        ("i8", (-100i8).into()),
        ("u16", 60_000u16.into()),
        ("i16", (-30_000i16).into()),
        ("u32", 4_000_000_000u32.into()),
        ("i32", (-2_000_000_000i32).into()),
        ("u64", u64::MAX.into()),
        ("i64", i64::MIN.into()),
        ("f32", 1.5f32.into()),
        ("f64", (-2.5e300f64).into()),
        ("bool", true.into()),
        ("str", "naïve \u{1F980} \"quoted\"".into()),
        ("empty string", "".into()),
        ("u8s", vec![0u8, 255].into()),
        ("i8s", vec![-128i8, 127].into()),
        ("u16s", vec![1u16, 65_535].into()),
        ("i16s", vec![-1i16].into()),
        ("u32s", vec![0u32, 1, u32::MAX].into()),
        ("i32s", vec![i32::MIN, 7].into()),
        ("u64s", vec![u64::MAX].into()),
        ("i64s", vec![i64::MIN, 1].into()),
        ("f32s", vec![0.25f32, -1.0].into()),
        ("f64s", vec![1e-300f64].into()),
        ("bools", vec![true, false, true].into()),
        ("strs", vec!["<s>", "", "\u{2581}the"].into()),
        ("none", Vec::<f32>::new().into()),
        ("no strs", Vec::<String>::new().into()),
        (
            "nested",
            nested(vec![vec![1i32, 2].into(), Vec::<u8>::new().into(), vec!["a", "bc"].into(), nested(vec![]), {
                nested(vec![vec![true].into()])
            }]),
        ),
        ("after", 7u32.into()),
    ]
}

/// Bytes that differ from place to place.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn stored() -> Vec<DType> {
    DType::PLAIN.into_iter().chain(DType::QUANTIZED).filter(|&d| GgmlType::from_dtype(d).is_some()).collect()
}

fn every_tensor() -> Vec<u8> {
    let mut writer = Writer::new().metadata("general.architecture", "test");
    for (i, dtype) in stored().into_iter().enumerate() {
        let dims = [3, dtype.block_elements() * 2];
        let bytes = dtype.bytes_for(dims[0] * dims[1]).unwrap();
        writer = writer.tensor(format!("blk.{i}.{dtype}"), dtype, &dims, pattern(bytes, i as u8));
    }
    writer.to_bytes().unwrap()
}

/// A small file with all that a parser has to meet.
fn small() -> Vec<u8> {
    Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("flag", true)
        .metadata("tokens", vec!["a", "bc", "def"])
        .metadata("scores", vec![1.0f32, 2.0])
        .metadata("deep", (ValueType::Array, vec![vec![1u8, 2].into(), vec!["x"].into()]))
        .tensor("first", DType::F32, &[2, 3], pattern(24, 1))
        .tensor("second", DType::Q8_0, &[2, 32], pattern(68, 2))
        .to_bytes()
        .unwrap()
}

#[test]
fn every_metadata_type_round_trips() {
    let mut writer = Writer::new();
    for (key, value) in every_value() {
        writer = writer.metadata(key, value);
    }
    let file = parse(&writer.to_bytes().unwrap()).unwrap();
    assert_eq!(file.version(), 3);
    assert!(file.tensors().is_empty());
    let read: Vec<_> = file.metadata().iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let written: Vec<_> = every_value().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    assert_eq!(read, written);
    for (key, value) in every_value() {
        assert_eq!(file.metadata().get(key).unwrap().to_owned(), value, "{key}");
    }
    assert!(file.metadata().get("absent").is_none());
}

#[test]
fn every_tensor_type_round_trips() {
    let bytes = every_tensor();
    let file = parse(&bytes).unwrap();
    assert_eq!(file.tensors().len(), stored().len());
    for (i, (dtype, info)) in stored().into_iter().zip(file.tensors().iter()).enumerate() {
        let name = format!("blk.{i}.{dtype}");
        assert_eq!((info.name, info.dtype(), info.offset % 32), (name.as_str(), Some(dtype), 0));
        let (read, dims, data) = file.load(&name).unwrap();
        assert_eq!((read, dims.as_slice()), (dtype, &[3, dtype.block_elements() * 2][..]));
        assert_eq!(&*data, pattern(info.bytes as usize, i as u8));
        assert_eq!(data.as_ptr(), file.file()[info.offset as usize..].as_ptr(), "a copy was made");
    }
}

#[test]
fn ranks_zero_to_four_round_trip() {
    let shapes: [&[usize]; 6] = [&[], &[5], &[2, 3], &[2, 3, 4], &[1, 2, 3, 4], &[3, 0]];
    let mut writer = Writer::new();
    for (i, dims) in shapes.iter().enumerate() {
        let n = dims.iter().product::<usize>() * 4;
        writer = writer.tensor(format!("t{i}"), DType::I32, dims, pattern(n, 9));
    }
    let file = parse(&writer.to_bytes().unwrap()).unwrap();
    for (i, dims) in shapes.iter().enumerate() {
        assert_eq!(file.tensor(&format!("t{i}")).unwrap().dims(), *dims);
    }
}

#[test]
fn a_larger_alignment_is_kept() {
    let writer = Writer::new().metadata("general.alignment", 256u32);
    let writer = writer.tensor("a", DType::U8, &[3], pattern(3, 1));
    assert!(writer.to_bytes().unwrap_err().to_string().contains("no type for U8"));
    let writer = Writer::new().metadata("general.alignment", 256u32);
    let writer = writer.tensor("a", DType::I8, &[3], pattern(3, 1)).tensor("b", DType::I8, &[2], pattern(2, 2));
    let file = parse(&writer.to_bytes().unwrap()).unwrap();
    assert_eq!(file.alignment(), 256);
    for (name, want) in [("a", pattern(3, 1)), ("b", pattern(2, 2))] {
        assert_eq!(file.tensor(name).unwrap().offset % 256, 0);
        assert_eq!(&*file.tensor_bytes(name).unwrap(), want);
    }
}

#[test]
fn a_file_on_disk_is_mapped_and_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let with = |value: u32| Writer::new().metadata("n", value).tensor("t", DType::F32, &[2], pattern(8, value as u8));
    with(1).write(&path).unwrap();
    let first = Gguf::open(&path).unwrap();
    let data = first.tensor_bytes("t").unwrap();
    assert!(data.is_mapped());
    with(2).write(&path).unwrap();
    assert_eq!(&*data, pattern(8, 1), "the mapped file was overwritten");
    assert_eq!(Gguf::open(&path).unwrap().metadata().get_u32("n").unwrap(), 2);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "a temporary file was left");
    let missing = with(3).write(folder.path().join("no/folder.gguf")).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }));
}

#[test]
fn an_error_of_open_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken.gguf");
    for (bytes, words) in [(&b""[..], "truncated"), (&b"PK\x03\x04 and so on"[..], "no GGUF file")] {
        std::fs::write(&path, bytes).unwrap();
        let message = Gguf::open(&path).unwrap_err().to_string();
        assert!(message.contains("broken.gguf") && message.contains(words), "{message}");
    }
}

#[test]
fn getters_take_any_width_and_name_the_key() {
    let writer = Writer::new()
        .metadata("small", 7u8)
        .metadata("signed", 7i64)
        .metadata("negative", -1i32)
        .metadata("half", 0.5f64)
        .metadata("yes", 1u8)
        .metadata("name", "x")
        .metadata("types", vec![1u8, 2])
        .metadata("merges", vec!["a b", "b c"]);
    let file = parse(&writer.to_bytes().unwrap()).unwrap();
    let meta = file.metadata();
    assert_eq!(meta.get_u32("small").unwrap(), 7);
    assert_eq!(meta.get_u32("signed").unwrap(), 7);
    assert_eq!(meta.get_usize("signed").unwrap(), 7);
    assert_eq!(meta.get_i32("negative").unwrap(), -1);
    assert_eq!(meta.get_f32("half").unwrap(), 0.5);
    assert_eq!(meta.get_f32("small").unwrap(), 7.0);
    assert!(meta.get_bool("yes").unwrap());
    assert_eq!(meta.get_i32s("types").unwrap(), [1, 2]);
    assert_eq!(meta.get_strings("merges").unwrap().len(), 2);
    assert_eq!(meta.get_strings("merges").unwrap().collect::<Vec<_>>(), ["a b", "b c"]);
    assert_eq!(meta.read_opt::<u32>("absent").unwrap(), None);
    assert_eq!(meta.read::<Vec<&str>>("merges").unwrap(), ["a b", "b c"]);
    for (error, words) in [
        (meta.get_u32("absent").unwrap_err(), ["\"absent\"", "missing"]),
        (meta.get_u32("negative").unwrap_err(), ["\"negative\"", "-1"]),
        (meta.get_u32("name").unwrap_err(), ["\"name\"", "the string \"x\""]),
        (meta.get_str("small").unwrap_err(), ["\"small\"", "expected a string"]),
        (meta.get_bool("small").unwrap_err(), ["\"small\"", "expected a bool"]),
        (meta.get_strings("types").map(|_| ()).unwrap_err(), ["\"types\"", "array of strings"]),
        (meta.get_f32s("merges").unwrap_err(), ["\"merges\"", "a number"]),
    ] {
        let message = error.to_string();
        assert!(words.iter().all(|w| message.contains(w)), "{message} lacks one of {words:?}");
    }
}

#[test]
fn a_truncation_at_any_byte_is_refused() {
    for bytes in [small(), every_tensor()] {
        let end = parse(&bytes).unwrap().data_end() as usize;
        assert!(end <= bytes.len());
        for n in 0..end {
            let message = refused(&bytes[..n]);
            assert!(message.contains("truncated"), "at {n}: {message}");
        }
        // What is left is padding.
        for n in end..bytes.len() {
            parse(&bytes[..n]).unwrap();
        }
    }
}

fn same(a: &Header, b: &Header) -> bool {
    a.metadata().iter().eq(b.metadata().iter())
        && a.tensors().iter().eq(b.tensors().iter())
        && (a.version(), a.alignment(), a.data_start()) == (b.version(), b.alignment(), b.data_start())
}

#[test]
fn a_header_in_pieces_is_the_same_header() {
    let bytes = small();
    let whole = parse(&bytes).unwrap();
    for size in [None, Some(bytes.len() as u64)] {
        for step in [1, 2, 3, 7, 64, bytes.len()] {
            let mut reader = HeaderReader::new(size);
            let mut pushed = 0;
            let header = bytes.chunks(step).find_map(|chunk| {
                assert!(reader.wanted() <= whole.header_bytes());
                pushed += chunk.len();
                reader.push(chunk).unwrap()
            });
            let header = header.unwrap();
            assert!(same(&header, whole.header()), "step {step}");
            assert!(pushed < whole.header_bytes() as usize + step, "ready as soon as the header is there");
            assert!(reader.push(b"x").is_err());
        }
    }
}

#[test]
fn ranges_are_enough_to_read_a_header() {
    let bytes = small();
    let mut reader = HeaderReader::new(Some(bytes.len() as u64));
    let header = loop {
        let range = reader.buffered() as usize..reader.wanted() as usize;
        assert!(!range.is_empty());
        if let Some(header) = reader.push(&bytes[range]).unwrap() {
            break header;
        }
    };
    let info = header.tensor("second").unwrap();
    assert_eq!(&bytes[info.offset as usize..][..info.bytes as usize], pattern(68, 2));
    // The header alone says that a shorter file lacks data.
    assert!(header.check_size(header.data_end()).is_ok());
    assert!(header.check_size(header.data_end() - 1).unwrap_err().to_string().contains("\"second\""));
}

#[test]
fn a_stream_that_ends_early_or_grows_too_large_is_refused() {
    let bytes = small();
    let mut reader = HeaderReader::new(None);
    assert!(reader.push(&bytes[..50]).unwrap().is_none());
    assert!(reader.finish().unwrap_err().to_string().contains("truncated"));
    let mut reader = HeaderReader::with_limit(Some(1 << 40), 100);
    let error = reader.push(&bytes).unwrap_err().to_string();
    assert!(error.contains("100 bytes"), "{error}");
    let mut short = HeaderReader::new(Some(bytes.len() as u64 - 64));
    assert!(short.push(&bytes).unwrap_err().to_string().contains("ends at byte"));
}

/// A file put together by hand, with room for lies.
struct Raw(Vec<u8>);

impl Raw {
    fn new(version: u32, tensors: u64, entries: u64) -> Self {
        Raw(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }
    fn u32(mut self, v: u32) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.0.extend(v.to_le_bytes());
        self
    }
    fn bytes(mut self, v: &[u8]) -> Self {
        self.0.extend(v);
        self
    }
    fn str(self, v: &str) -> Self {
        self.u64(v.len() as u64).bytes(v.as_bytes())
    }
    fn tensor(self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let head = self.str(name).u32(dims.len() as u32);
        dims.iter().fold(head, |raw, &d| raw.u64(d)).u32(kind).u64(offset)
    }
    /// Padding to 32, and `n` bytes of data.
    fn data(mut self, n: usize) -> Vec<u8> {
        let len = self.0.len().next_multiple_of(32) + n;
        self.0.resize(len, 0);
        self.0
    }
}

#[test]
fn the_hand_made_file_is_sound() {
    let file = parse(&Raw::new(2, 1, 1).str("k").u32(4).u32(9).tensor("t", &[3, 2], 0, 0).data(24)).unwrap();
    assert_eq!((file.version(), file.metadata().get_u32("k").unwrap()), (2, 9));
    assert_eq!(file.tensor("t").unwrap().dims(), &[2, 3]);
    parse(&Raw::new(3, 0, 0).0).unwrap();
}

#[test]
fn wrong_magic_and_versions_are_refused() {
    assert_refused(&Raw::new(3, 0, 0).0.iter().rev().copied().collect::<Vec<_>>(), &["no GGUF file", "byte 0"]);
    assert_refused(b"<!DOCTYPE html>", &["no GGUF file", "<!DO"]);
    assert_refused(&Raw::new(1, 0, 0).0, &["version 1", "convert", "byte 4"]);
    assert_refused(&Raw::new(4, 0, 0).0, &["version 4", "byte 4"]);
    assert_refused(&Raw::new(0, 0, 0).0, &["version 0"]);
    assert_refused(&Raw::new(3u32.swap_bytes(), 0, 0).0, &["big-endian"]);
}

#[test]
fn huge_counts_and_lengths_are_refused() {
    for n in [1 << 63, u64::MAX, 1 << 40, 1000] {
        assert_refused(&Raw::new(3, n, 0).0, &["truncated or lying", "tensors", "byte 8"]);
        assert_refused(&Raw::new(3, 0, n).0, &["truncated or lying", "metadata entries"]);
        assert_refused(&Raw::new(3, n, n).data(100), &["truncated or lying"]);
    }
    for n in [1 << 60, u64::MAX, 1 << 32, 500] {
        assert_refused(&Raw::new(3, 0, 1).u64(n).data(100), &["key", "byte 24"]);
        assert_refused(&Raw::new(3, 0, 1).str("k").u32(8).u64(n).data(100), &["a string", &n.to_string(), "\"k\""]);
        let array = |kind| Raw::new(3, 0, 1).str("k").u32(9).u32(kind).u64(n).data(100);
        for kind in 0..13 {
            assert_refused(&array(kind), &["an array of", "\"k\""]);
        }
        assert_refused(&Raw::new(3, 1, 0).u64(n).data(100), &["tensor", "byte 24"]);
    }
    assert_refused(&Raw::new(3, 0, 1).str("").u32(0).bytes(&[1; 64]).0, &["0 bytes", "byte 24"]);
}

#[test]
fn bad_values_are_refused() {
    let value = |kind: u32, body: &[u8]| Raw::new(3, 0, 1).str("k").u32(kind).bytes(body).data(0);
    assert_refused(&value(13, &[0; 16]), &["type", "13", "byte 33"]);
    assert_refused(&value(9999, &[0; 16]), &["9999"]);
    assert_refused(&value(7, &[2]), &["bool", "\"k\""]);
    assert_refused(&Raw::new(3, 0, 1).str("k").u32(9).u32(7).u64(3).bytes(&[0, 1, 9]).0, &["bool is 9", "byte 51"]);
    assert_refused(&Raw::new(3, 0, 1).str("k").u32(8).u64(2).bytes(&[b'a', 0xff]).0, &["UTF-8", "byte 46"]);
    assert_refused(&Raw::new(3, 0, 1).u64(2).bytes(&[0xc3, 0x28]).data(16), &["UTF-8", "byte 32"]);
    assert_refused(&Raw::new(3, 0, 1).str("k").u32(9).u32(77).u64(0).0, &["element type", "77"]);
    let twice = Raw::new(3, 0, 2).str("k").u32(0).bytes(&[1]).str("k").u32(0).bytes(&[2]).0;
    assert_refused(&twice, &["\"k\" appears twice", "bytes 32 and 46"]);
}

#[test]
fn nested_arrays_end_somewhere() {
    let nest = |depth: usize| {
        let raw = Raw::new(3, 0, 1).str("k").u32(9);
        (1..depth).fold(raw, |raw, _| raw.u32(9).u64(1)).u32(0).u64(1).bytes(&[5]).0
    };
    let file = parse(&nest(4)).unwrap();
    assert_eq!(file.metadata().get("k").unwrap().to_string(), "[[[[5]]]]");
    assert_refused(&nest(5), &["nested", "\"k\""]);
    assert_refused(&nest(64), &["nested"]);
    assert_refused(&nest(100_000), &["nested"]);
}

#[test]
fn bad_tensors_are_refused() {
    let one = |dims: &[u64], kind, offset| Raw::new(3, 1, 0).tensor("t", dims, kind, offset).data(256);
    parse(&one(&[8, 8], 0, 0)).unwrap();
    assert_refused(&one(&[1; 100], 0, 0), &["100 dimensions", "byte 33"]);
    assert_refused(&one(&[1; 5], 0, 0), &["5 dimensions"]);
    let lying = Raw::new(3, 1, 0).str("t").u32(u32::MAX).data(256);
    assert_refused(&lying, &["4294967295 dimensions"]);
    for dims in [&[1 << 32, 1 << 32][..], &[u64::MAX], &[1 << 62, 4], &[u64::MAX, u64::MAX, 0], &[0, 1 << 40, 1 << 40]]
    {
        assert_refused(&one(dims, 0, 0), &["dimensions", "more than this machine can address", "byte 37"]);
    }
    assert_refused(&one(&[1 << 61], 0, 0), &["more than this machine can address"]);
    assert_refused(&one(&[31], 2, 0), &["rows of 31", "Q4_0"]);
    assert_refused(&one(&[1], 9999, 0), &["unknown type 9999", "byte 45"]);
    assert_refused(&one(&[32], 4, 0), &["Q4_2", "convert"]);
    assert_refused(&one(&[8], 0, 4), &["\"t\"", "offset 4", "multiple of 32"]);
    assert_refused_late(&one(&[8, 8], 0, 32), &["\"t\"", "truncated"]);
    assert_refused_late(&one(&[8, 8], 0, 1 << 40), &["\"t\"", "truncated"]);
    assert_refused(&one(&[8, 8], 0, u64::MAX - 31), &["2^64"]);
    assert_refused(&one(&[8, 8], 0, (1 << 63) - 32), &["2^63"]);
    let two = |a: &str, b: &str, offset| Raw::new(3, 2, 0).tensor(a, &[16], 0, 0).tensor(b, &[16], 0, offset).data(256);
    parse(&two("a", "b", 64)).unwrap();
    assert_refused(&two("a", "a", 64), &["tensor name \"a\" appears twice"]);
    assert_refused(&two("a", "b", 32), &["\"a\"", "\"b\"", "overlap"]);
    assert_refused(&two("a", "b", 0), &["overlap"]);
    assert_refused(&Raw::new(3, 1, 0).tensor("", &[1], 0, 0).data(64), &["0 bytes"]);
}

/// As [`assert_refused`], where only the file's size shows the lie.
#[track_caller]
fn assert_refused_late(bytes: &[u8], words: &[&str]) {
    let message = refused(bytes);
    assert!(words.iter().all(|w| message.contains(w)), "{message:?} lacks one of {words:?}");
    let header = HeaderReader::new(None).push(bytes).unwrap().unwrap();
    assert!(header.check_size(bytes.len() as u64).is_err());
}

#[test]
fn a_bad_alignment_is_refused() {
    let with = |n: u32| Raw::new(3, 0, 1).str("general.alignment").u32(4).u32(n).data(64);
    parse(&with(64)).unwrap();
    for n in [0, 3, 48, u32::MAX] {
        assert_refused(&with(n), &["general.alignment", &n.to_string()]);
    }
    let text = Raw::new(3, 0, 1).str("general.alignment").u32(8).str("32").data(64);
    assert_refused(&text, &["general.alignment", "string"]);
    let negative = Raw::new(3, 0, 1).str("general.alignment").u32(11).u64(u64::MAX).data(64);
    assert_refused(&negative, &["general.alignment", "-1"]);
}

#[test]
fn types_that_are_not_loaded_are_listed() {
    // Q5_K and IQ4_XS: known to ggml, unknown to Tallow.
    let bytes = Raw::new(3, 2, 0).tensor("a", &[256], 13, 0).tensor("b", &[256], 23, 192).data(512);
    let file = parse(&bytes).unwrap();
    let listed: Vec<_> = file.tensors().iter().map(|t| (t.name, t.ggml_type.name(), t.dtype(), t.bytes)).collect();
    assert_eq!(listed, [("a", "Q5_K", None, 176), ("b", "IQ4_XS", None, 136)]);
    let error = file.load("a").unwrap_err().to_string();
    assert!(error.contains("\"a\"") && error.contains("Q5_K"), "{error}");
    let error = file.load("c").unwrap_err().to_string();
    assert!(error.contains("no tensor named \"c\""), "{error}");
}

#[test]
fn the_writer_refuses_what_the_format_cannot_say() {
    let new = Writer::new;
    for (writer, words) in [
        (new().metadata("k", 1u8).metadata("k", 2u8), "added twice"),
        (new().metadata("", 1u8), "0 bytes"),
        (new().metadata("k", (ValueType::U8, vec![OwnedValue::I8(1)])), "type i8"),
        (new().metadata("general.alignment", 3u32), "power of two"),
        (new().metadata("general.alignment", "x"), "power of two"),
        (new().tensor("t", DType::F32, &[2], vec![0; 7]), "take 8 bytes, but 7"),
        (new().tensor("t", DType::Q4_0, &[31], vec![0; 18]), "whole blocks"),
        (new().tensor("t", DType::Q4_0, &[32, 1], vec![0; 18]), "whole blocks"),
        (new().tensor("t", DType::F32, &[1; 5], vec![0; 4]), "more than 4"),
        (new().tensor("t", DType::F8E4M3, &[1], vec![0]), "no type for F8E4M3"),
        (new().tensor("t", DType::I8, &[1], vec![0]).tensor("t", DType::I8, &[1], vec![0]), "added twice"),
        (new().tensor("t", DType::I8, &[usize::MAX, 2, 0], vec![]), ""),
    ] {
        match writer.to_bytes() {
            Err(error) => assert!(error.to_string().contains(words), "{error}"),
            Ok(bytes) => assert!(words.is_empty() && parse(&bytes).is_err()),
        }
    }
}
