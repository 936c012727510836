//! npy and npz files: what is written is read back, files that NumPy 2.4 made are read, and damaged ones are refused.

use std::io::Write;
use tallow::npy::{self, NpzTensors};
use tallow::{DType, Device, Result, Tensor};

const CPU: Device = Device::Cpu;

/// `numpy.savez_compressed` of a (F32, 2x3), b (big-endian I16, 2x3 in Fortran's order), c (bool).
const DEFLATED: &[u8] = include_bytes!("npy_fixtures/deflated.npz");

/// A file of version 1 with this dictionary and data.
fn file(dict: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(dict.len()).expect("a short header").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], dict.as_bytes(), data].concat()
}

/// As NumPy pads it: the data begins at byte 128.
fn numpy(dict: &str, data: &[u8]) -> Vec<u8> {
    file(&format!("{dict:<117}\n"), data)
}

fn load(bytes: &[u8]) -> Result<Tensor> {
    npy::load_buffer(bytes, &CPU)
}

fn refused(bytes: &[u8], why: &str) {
    let error = load(bytes).expect_err(why);
    assert!(matches!(error, tallow::Error::Format { .. }), "{error:?}");
    assert!(error.to_string().contains(why), "{error} does not say {why:?}");
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn same(got: &Tensor, want: &Tensor) -> Result<()> {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
    assert_eq!(tallow::block_on(got.to_bytes_async())?, tallow::block_on(want.to_bytes_async())?);
    Ok(())
}

/// Of every dtype that NumPy has, and of several shapes.
fn tensors() -> Result<Vec<(String, Tensor)>> {
    let mut all = Vec::new();
    for dtype in DType::PLAIN {
        if matches!(dtype, DType::BF16 | DType::F8E4M3 | DType::F8E5M2) {
            continue;
        }
        let x = Tensor::new([[0f32, 1.5, 2.], [3., 100., 5.]], &CPU)?.to_dtype(dtype)?;
        all.push((format!("layer.0/{dtype}"), x.clone()));
        all.push((format!("view {dtype}"), x.t()?));
        all.push((format!("empty {dtype}"), Tensor::zeros((0, 4, 0), dtype, &CPU)?));
        all.push((format!("scalar {dtype}"), Tensor::new(7f32, &CPU)?.to_dtype(dtype)?));
        all.push((format!("vector {dtype}"), Tensor::zeros(3, dtype, &CPU)?));
    }
    all.push(("eight axes".into(), Tensor::ones((1, 2, 1, 2, 1, 2, 1, 2), DType::U8, &CPU)?));
    all.push(("b\u{e4}r \u{3b1}".into(), Tensor::new(-1i64, &CPU)?));
    Ok(all)
}

#[test]
fn npy_round_trip() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("x.npy");
    for (name, x) in tensors()? {
        x.write_npy(&path)?;
        let read = Tensor::read_npy(&path)?;
        same(&read, &x).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(tallow::block_on(npy::to_bytes_async(&x))?, std::fs::read(&path).expect("the file"), "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1, "a temporary file is left");
    Ok(())
}

#[test]
fn npz_round_trip() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("all.npz");
    std::fs::write(&path, b"old").expect("a file");
    let all = tensors()?;
    Tensor::write_npz(&all, &path)?;
    let read = Tensor::read_npz(&path)?;
    assert_eq!(read.len(), all.len());
    for ((got_name, got), (name, want)) in read.iter().zip(&all) {
        assert_eq!(got_name, name);
        same(got, want)?;
    }
    let lazy = NpzTensors::new(&path)?;
    assert_eq!(lazy.names(), all.iter().map(|(name, _)| name).collect::<Vec<_>>());
    for (name, want) in &all {
        assert_eq!(lazy.get_shape_and_dtype(name)?, (want.shape().clone(), want.dtype()));
        same(&lazy.get(name)?.expect("the array"), want)?;
    }
    assert!(lazy.get("no such array")?.is_none());
    assert!(lazy.get_shape_and_dtype("no such array").expect_err("absent").to_string().contains("no such array"));
    let some = Tensor::read_npz_by_name(&path, &["eight axes", "view F32"])?;
    same(&some[0], &Tensor::ones((1, 2, 1, 2, 1, 2, 1, 2), DType::U8, &CPU)?)?;
    assert_eq!(some[1].to_vec2::<f32>()?, [[0., 3.], [1.5, 100.], [2., 5.]]);
    let absent = Tensor::read_npz_by_name(&path, &["view F32", "nowhere"]).expect_err("absent").to_string();
    assert!(absent.contains("nowhere") && absent.contains("all.npz"), "{absent}");
    // No arrays at all.
    Tensor::write_npz::<&str, Tensor, _>(&[], &path)?;
    assert_eq!(Tensor::read_npz(&path)?.len(), 0);
    Ok(())
}

#[test]
fn files_of_numpy() -> Result<()> {
    let fortran = [0f32, 3., 1., 4., 2., 5.].map(f32::to_le_bytes).concat();
    let x = load(&numpy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", &fortran))?;
    assert_eq!(x.to_vec2::<f32>()?, [[0., 1., 2.], [3., 4., 5.]]);
    let x = load(&numpy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", &2.5f64.to_le_bytes()))?;
    assert_eq!(x.to_vec0::<f64>()?, 2.5);
    let big = [0, 0, 0, 0, 0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFE];
    let x = load(&numpy("{'descr': '>i4', 'fortran_order': False, 'shape': (3,), }", &big))?;
    assert_eq!(x.to_vec1::<i32>()?, [0, 1, -2]);
    let x = load(&numpy("{'descr': '<f2', 'fortran_order': False, 'shape': (0, 3), }", &[]))?;
    assert_eq!((x.dims(), x.dtype()), (&[0, 3][..], DType::F16));
    let x = load(&numpy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", &[1, 0]))?;
    assert_eq!(x.to_vec1::<u8>()?, [1, 0]);
    // Three axes in Fortran's order: element (i, j, k) lies at i + 2 j + 6 k.
    let data: Vec<u8> = (0..24).collect();
    let x = load(&numpy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4), }", &data))?;
    assert_eq!(x.to_vec3::<u8>()?[1], [[1, 7, 13, 19], [3, 9, 15, 21], [5, 11, 17, 23]]);
    // candle's test.npy, byte for byte as it is written here.
    let ten = Tensor::arange(0i64, 10, &CPU)?;
    let data = (0i64..10).flat_map(i64::to_le_bytes).collect::<Vec<_>>();
    let bytes = numpy("{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }", &data);
    same(&load(&bytes)?, &ten)?;
    assert_eq!(tallow::block_on(npy::to_bytes_async(&ten))?, bytes);
    Ok(())
}

#[test]
fn every_spelling_of_a_header() -> Result<()> {
    let dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
    for dict in [
        dict,
        "{\"shape\":(2L,),'descr':'u1','fortran_order':False}",
        "  { 'fortran_order' : False ,\n'shape' : ( 2 , ) , 'descr' : '=u1' }  \n",
    ] {
        assert_eq!(load(&file(dict, &[4, 5]))?.to_vec1::<u8>()?, [4, 5], "{dict}");
    }
    for version in [2, 3] {
        let length = (dict.len() as u32).to_le_bytes();
        let bytes = [b"\x93NUMPY", &[version, 0][..], &length, dict.as_bytes(), &[4, 5]].concat();
        assert_eq!(load(&bytes)?.to_vec1::<u8>()?, [4, 5]);
        let entry = archive("x.npy", &bytes, zip::CompressionMethod::Stored);
        assert_eq!(read(&entry)?[0].1.to_vec1::<u8>()?, [4, 5]);
    }
    Ok(())
}

#[test]
fn hostile_headers_are_refused() {
    let ok = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    refused(b"", "no npy file");
    refused(b"PK\x03\x04", "no npy file");
    refused(b"\x93NUMPY", "truncated");
    refused(b"\x93NUMPY\x01\x00\x10", "truncated");
    refused(b"\x93NUMPY\x04\x00\x10\x00\x00\x00", "version 4");
    refused(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", "65536 is the most");
    refused(b"\x93NUMPY\x01\x00\xff\xff{}", "truncated");
    refused(&file(&ok("(3,)"), &[0; 11]), "truncated");
    refused(&file(&ok("(3,)"), &[0; 13]), "too long");
    refused(&file(&ok("(1099511627776,)"), &[0; 4]), "truncated");
    refused(&file(&ok("(4294967296, 4294967296)"), &[]), "larger than memory");
    refused(&file(&ok("(0, 4294967296, 4294967296)"), &[]), "larger than memory");
    refused(&file(&ok("(2305843009213693952,)"), &[]), "larger than memory");
    refused(&file(&ok("(99999999999999999999999,)"), &[]), "whole number");
    refused(&file(&ok("(-1,)"), &[]), "whole number");
    refused(&file(&ok("(1, 1, 1, 1, 1, 1, 1, 1, 1)"), &[0; 4]), "more than 8 dimensions");
    for shape in ["3", "(3)", "(3,", "(3 4)", "(,)", "[3]", "(3.0,)", "None"] {
        refused(&file(&ok(shape), &[0; 12]), "in the header");
    }
    for dict in [
        "",
        "{",
        "}",
        "{}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'shape': (1,)}",
        "{'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': false, 'shape': (1,)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
        "{'descr': '<f4, fortran_order: False, shape: (1,)}",
        "{'descr': '<\\x664', 'fortran_order': False, 'shape': (1,)}",
    ] {
        refused(&file(dict, &[0; 4]), "the header");
    }
    for (descr, why) in [
        ("'|O'", "convert the array"),
        ("'<c8'", "convert the array"),
        ("'<V2'", "convert the array"),
        ("'<U3'", "convert the array"),
        ("''", "convert the array"),
        ("[('a', '<f4')]", "structured"),
    ] {
        refused(&file(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,)}}"), &[0; 4]), why);
    }
}

#[test]
fn damaged_npy_files_do_not_panic() {
    let whole = numpy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", &[0; 24]);
    load(&whole).expect("sound");
    for end in 0..whole.len() {
        assert!(load(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..70 {
        for value in 0..=u8::MAX {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok(x) = load(&bytes) {
                assert!(x.elem_count() * x.dtype().size_in_bytes() == 24, "byte {at} as {value}");
            }
        }
    }
}

/// Writes the bytes to a file and reads them as an archive.
fn read(bytes: &[u8]) -> Result<Vec<(String, Tensor)>> {
    let folder = folder();
    let path = folder.path().join("x.npz");
    std::fs::write(&path, bytes).expect("a file");
    Tensor::read_npz(path)
}

/// An archive of one entry.
fn archive(name: &str, data: &[u8], method: zip::CompressionMethod) -> Vec<u8> {
    let mut out = std::io::Cursor::new(Vec::new());
    let mut archive = zip::ZipWriter::new(&mut out);
    archive.start_file(name, zip::write::SimpleFileOptions::default().compression_method(method)).expect("an entry");
    archive.write_all(data).expect("data");
    archive.finish().expect("the end");
    out.into_inner()
}

#[test]
fn compressed_archives_of_numpy() -> Result<()> {
    let read = read(DEFLATED)?;
    assert_eq!(read.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(read[0].1.to_vec2::<f32>()?, [[0., 1., 2.], [3., 4., 5.]]);
    assert_eq!(read[1].1.to_vec2::<i16>()?, [[0, 1, 2], [3, 4, 5]]);
    assert_eq!(read[2].1.to_vec1::<u8>()?, [1, 0]);
    Ok(())
}

#[test]
fn hostile_archives_are_refused() {
    let refused = |bytes: &[u8], why: &str| {
        let error = read(bytes).expect_err(why);
        assert!(matches!(error, tallow::Error::Format { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(why) && text.contains("x.npz"), "{text} does not say {why:?}");
    };
    refused(b"", "no sound zip file");
    refused(b"\x93NUMPY", "no sound zip file");
    let deflated = zip::CompressionMethod::Deflated;
    let stored = zip::CompressionMethod::Stored;
    let dict = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    // 64 MiB of zeros in 64 KiB, behind a header that asks for 16 bytes; and a header that asks for what is not there.
    refused(&archive("x.npy", &file(&dict("(4,)"), &vec![0; 64 << 20]), deflated), "too long");
    refused(&archive("x.npy", &file(&dict("(1099511627776,)"), &[0; 64]), deflated), "truncated");
    refused(&archive("x.npy", &file(&dict("(1099511627776,)"), &[0; 64]), stored), "truncated");
    refused(&archive("x.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}", stored), "65536 is the most");
    refused(&archive("x.npy", b"\x93NUMPY\x02\x00\xff\xff\0\0{}", stored), "truncated");
    refused(&archive("x.npy", b"short", stored), "truncated");
    refused(&archive("readme.txt", b"hello, this is text", stored), "no npy file");
    // The last byte of the data, changed: its checksum tells.
    let mut bytes = archive("x.npy", &file(&dict("(1,)"), &[1, 2, 3, 4]), stored);
    let at = bytes.windows(4).position(|four| four == [1, 2, 3, 4]).expect("the data");
    bytes[at + 3] ^= 1;
    refused(&bytes, "array \"x\"");
}

#[test]
fn damaged_archives_do_not_panic() {
    for end in 0..DEFLATED.len() {
        assert!(read(&DEFLATED[..end]).is_err(), "cut at {end}");
    }
    for at in 0..DEFLATED.len() {
        for change in [0x01, 0x80, 0xFF] {
            let mut bytes = DEFLATED.to_vec();
            bytes[at] ^= change;
            if let Ok(read) = read(&bytes) {
                assert!(read.iter().all(|(_, x)| x.elem_count() <= 6), "byte {at} changed by {change}");
            }
        }
    }
}

#[test]
fn what_numpy_has_not_is_not_written() -> Result<()> {
    let folder = folder();
    let path = folder.path().join("x");
    for (dtype, hint) in [
        (DType::BF16, "to_dtype(DType::F32)"),
        (DType::F8E4M3, "to_dtype(DType::F32)"),
        (DType::F8E5M2, "to_dtype(DType::F32)"),
    ] {
        let x = Tensor::zeros(2, dtype, &CPU)?;
        let one = x.write_npy(&path).expect_err("no such type").to_string();
        let many = Tensor::write_npz(&[("weight", &x)], &path).expect_err("no such type").to_string();
        assert!(one.contains(hint) && one.contains(dtype.name()), "{one}");
        assert!(many.contains(hint) && many.contains("weight"), "{many}");
    }
    let x = Tensor::new(1f32, &CPU)?;
    let twice = Tensor::write_npz(&[("x", &x), ("x", &x)], &path).expect_err("twice").to_string();
    assert!(twice.contains("\"x\""), "{twice}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "something is left behind");
    let missing = Tensor::read_npy(&path).expect_err("no file");
    assert!(matches!(missing, tallow::Error::Io { .. }), "{missing:?}");
    Ok(())
}

/// Files that NumPy 2.4 saved, byte for byte.
#[test]
fn files_that_numpy_saved() -> Result<()> {
    let fortran = load(include_bytes!("npy_fixtures/fortran.npy"))?;
    assert_eq!(fortran.to_vec2::<f32>()?, [[0., 1., 2.], [3., 4., 5.]]);
    assert_eq!(fortran.t()?.to_vec2::<f32>()?[2], [2., 5.]);
    assert_eq!(load(include_bytes!("npy_fixtures/big.npy"))?.to_vec1::<i32>()?, [0, 1, 2]);
    assert_eq!(load(include_bytes!("npy_fixtures/bool.npy"))?.to_vec1::<u8>()?, [1, 0]);
    let scalar = include_bytes!("npy_fixtures/scalar.npy");
    assert_eq!(load(scalar)?.to_vec0::<f64>()?, 2.5);
    let empty = include_bytes!("npy_fixtures/empty.npy");
    assert_eq!((load(empty)?.dims(), load(empty)?.dtype()), (&[0, 3][..], DType::F16));
    // What NumPy saved, saved again, is what NumPy saved.
    for bytes in [&scalar[..], empty] {
        assert_eq!(tallow::block_on(npy::to_bytes_async(&load(bytes)?))?, bytes);
    }
    // And one that candle wrote.
    let read = read(include_bytes!("npy_fixtures/candle.npz"))?;
    assert_eq!(read.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["x", "x_plus_one"]);
    assert_eq!(read[0].1.to_vec1::<i64>()?, (0..10).collect::<Vec<_>>());
    assert_eq!(read[1].1.to_vec1::<i64>()?, (1..11).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn archives_in_memory() -> Result<()> {
    let all = tensors()?;
    let bytes = tallow::block_on(npy::npz_to_bytes_async(&all))?;
    let file = NpzTensors::parse(bytes.clone().into())?;
    for (name, want) in &all {
        same(&file.get(name)?.expect("the array"), want)?;
    }
    let folder = folder();
    let path = folder.path().join("x.npz");
    Tensor::write_npz(&all, &path)?;
    assert_eq!(std::fs::read(&path).expect("the file"), bytes);
    Ok(())
}

/// Two entries of one name, two arrays of one name, and an entry whose bytes belong to two.
#[test]
fn ambiguous_archives_are_refused() -> Result<()> {
    let array = numpy("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", &[4, 5]);
    let two = |first: &str, second: &str| {
        let mut out = std::io::Cursor::new(Vec::new());
        let mut archive = zip::ZipWriter::new(&mut out);
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for name in [first, second] {
            archive.start_file(name, options).expect("an entry");
            archive.write_all(&array).expect("data");
        }
        archive.finish().expect("the end");
        out.into_inner()
    };
    let sound = two("a.npy", "b.npy");
    assert_eq!(read(&sound)?.len(), 2);
    // A folder's entry is no array.
    assert_eq!(read(&archive("folder/", &[], zip::CompressionMethod::Stored))?.len(), 0);
    let says = |bytes: &[u8], why: &str| {
        let text = read(bytes).expect_err(why).to_string();
        assert!(text.contains(why), "{text} does not say {why:?}");
    };
    says(&two("a", "a.npy"), "two arrays named \"a\"");
    // b.npy renamed to a.npy, wherever its name stands.
    let mut twice = sound.clone();
    while let Some(at) = twice.windows(5).position(|w| w == b"b.npy") {
        twice[at] = b'a';
    }
    says(&twice, "one name");
    // The second entry of the directory points to where the first one lies.
    let mut shared = sound.clone();
    let second = shared.windows(4).rposition(|w| w == b"PK\x01\x02").expect("the directory");
    shared[second + 42..second + 46].copy_from_slice(&[0; 4]);
    says(&shared, "belong to several entries");
    Ok(())
}
