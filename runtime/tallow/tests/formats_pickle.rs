//! PyTorch's files: those that PyTorch 2.15 made (`pickle_fixtures/make.py`) are read, and hostile ones are refused.

use std::io::{Cursor, Write};
use tallow::pickle::{self, PthTensors};
use tallow::{DType, Device, Result, Tensor};

const CPU: Device = Device::Cpu;

/// Files of the same tensors.
const TENSORS: [&[u8]; 4] = [
    include_bytes!("pickle_fixtures/tensors_zip.pth"),
    include_bytes!("pickle_fixtures/tensors_plain.pth"),
    include_bytes!("pickle_fixtures/tensors_protocol_4.pth"),
    include_bytes!("pickle_fixtures/tensors_plain_protocol_5.pth"),
];
const CHECKPOINTS: [&[u8]; 2] =
    [include_bytes!("pickle_fixtures/checkpoint_zip.pth"), include_bytes!("pickle_fixtures/checkpoint_plain.pth")];

fn open(bytes: &[u8], key: Option<&str>) -> Result<PthTensors> {
    PthTensors::parse(bytes.into(), key)
}

fn get(file: &PthTensors, name: &str) -> Result<Tensor> {
    Ok(file.get(name)?.unwrap_or_else(|| panic!("{name} is missing among {:?}", file.names())))
}

/// The tensor as f32, flat.
fn flat(x: &Tensor) -> Result<Vec<f32>> {
    x.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

/// 0, 1, 2, ... minus 5.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32 - 5.).collect()
}

#[test]
fn tensors_of_every_dtype_and_layout() -> Result<()> {
    for bytes in TENSORS {
        let file = open(bytes, None)?;
        for (name, dtype) in [
            ("float32", DType::F32),
            ("float16", DType::F16),
            ("bfloat16", DType::BF16),
            ("float64", DType::F64),
            ("int64", DType::I64),
            ("int32", DType::I32),
            ("int16", DType::I16),
            ("int8", DType::I8),
        ] {
            let x = get(&file, name)?;
            assert_eq!((x.dtype(), x.dims()), (dtype, &[2, 3][..]), "{name}");
            assert_eq!(flat(&x)?, numbers(6), "{name}");
        }
        assert_eq!(get(&file, "uint8")?.to_vec1::<u8>()?, [0, 7, 255]);
        assert_eq!(get(&file, "bool")?.to_vec1::<u8>()?, [1, 0, 1]);
        let base = Tensor::from_vec(numbers(24), (4, 6), &CPU)?;
        for (name, want) in [
            ("shared", base.clone()),
            ("transposed", base.t()?),
            ("part", base.narrow(0, 1, 2)?.narrow(1, 2, 3)?),
            ("every", Tensor::from_vec(numbers(24).into_iter().step_by(2).collect(), (4, 3), &CPU)?),
            ("expanded", Tensor::new([[2.5f32, 2.5, 2.5], [-1., -1., -1.]], &CPU)?),
            ("scalar", Tensor::new(3.5f32, &CPU)?),
            ("empty", Tensor::zeros((0, 4), DType::F32, &CPU)?),
            ("parameter", Tensor::from_vec(numbers(4), (2, 2), &CPU)?),
        ] {
            let x = get(&file, name)?;
            assert_eq!((x.dims(), x.dtype()), (want.dims(), want.dtype()), "{name}");
            assert_eq!(flat(&x)?, flat(&want)?, "{name}");
        }
        assert!(file.get("nowhere")?.is_none());
        let info = &file.tensor_infos()["transposed"];
        assert_eq!((info.layout.shape.dims(), &info.layout.strides[..]), (&[6, 4][..], &[1, 6][..]));
        assert_eq!((info.dtype, info.storage_size), (DType::F32, 24));
        assert_eq!(info.path, file.tensor_infos()["shared"].path);
        assert_eq!(file.names().len(), 18);
        assert_eq!(file.names()[0], "float32");
    }
    Ok(())
}

#[test]
fn tensors_on_a_gpu() -> Result<()> {
    let Ok(device) = Device::new_wgpu(0) else {
        println!("skipped on wgpu: there is no adapter");
        return Ok(());
    };
    for bytes in TENSORS {
        let file = open(bytes, None)?;
        for name in ["float16", "int8", "transposed", "expanded", "every"] {
            let (there, here) = (file.load(name, &device)?.expect("the tensor"), get(&file, name)?);
            assert!(there.device().is_wgpu());
            assert_eq!(flat(&there)?, flat(&here)?, "{name}");
        }
    }
    Ok(())
}

#[test]
fn checkpoints() -> Result<()> {
    for bytes in CHECKPOINTS {
        let all = open(bytes, None)?;
        assert_eq!(get(&all, "state_dict.conv.weight")?.dims(), [3, 2, 1]);
        assert_eq!(flat(&get(&all, "optimizer.state.0.step")?)?, [1.]);
        assert_eq!(flat(&get(&all, "pair.0")?)?, [1.]);
        assert_eq!(flat(&get(&all, "pair.1.0")?)?, [0., 0.]);
        assert_eq!(get(&all, "3")?.to_vec1::<i64>()?, [3]);
        assert!(all.get("epoch")?.is_none() && all.get("note")?.is_none());
        // Not built, and no hindrance; whoever asks for it is told.
        let device = all.get("device").expect_err("no tensor").to_string();
        assert!(device.contains("torch.device"), "{device}");
        let model = open(bytes, Some("state_dict"))?;
        let names = [
            "conv.weight",
            "conv.bias",
            "norm.weight",
            "norm.bias",
            "norm.running_mean",
            "norm.running_var",
            "norm.num_batches_tracked",
            "out.weight",
        ];
        assert_eq!(model.names(), names);
        assert_eq!(flat(&get(&model, "out.weight")?)?, numbers(6).iter().map(|x| x + 4.).collect::<Vec<_>>());
        let text = open(bytes, Some("model")).expect_err("no such key").to_string();
        assert!(text.contains("\"model\"") && text.contains("\"state_dict\""), "{text}");
        let text = open(bytes, Some("epoch")).map(|file| file.names().len());
        assert_eq!(text?, 0);
        let loaded = pickle::load_buffer(bytes, Some("state_dict"), &CPU)?;
        assert_eq!(loaded.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), names);
    }
    Ok(())
}

#[test]
fn newer_types_and_odd_objects() -> Result<()> {
    let file = open(include_bytes!("pickle_fixtures/newer_types.pth"), None)?;
    for (name, dtype) in [("e4m3", DType::F8E4M3), ("e5m2", DType::F8E5M2)] {
        let x = get(&file, name)?;
        assert_eq!((x.dtype(), flat(&x)?), (dtype, numbers(6)));
    }
    assert_eq!(get(&file, "uint16")?.to_vec1::<u16>()?, [0, 65535]);
    assert_eq!(flat(&get(&file, "fine")?)?, numbers(3));
    for (name, why) in [("fnuz", "float8_e4m3fnuz"), ("complex", "view_as_real"), ("sparse", "_rebuild_sparse_tensor")]
    {
        let text = file.get(name).expect_err(name).to_string();
        assert!(text.contains(why) && text.contains(name), "{text}");
    }
    let one = open(include_bytes!("pickle_fixtures/one.pth"), None)?;
    assert_eq!(get(&one, "")?.dims(), [2, 3]);
    let list = open(include_bytes!("pickle_fixtures/list.pth"), None)?;
    assert_eq!((list.names(), get(&list, "1")?.dims()), (&["0".to_string(), "1".into()][..], &[3][..]));
    let big = open(include_bytes!("pickle_fixtures/big_endian_deflated.pth"), None)?;
    assert_eq!(flat(&get(&big, "x")?)?, numbers(6));
    assert_eq!(flat(&get(&big, "y")?)?, numbers(2));
    let whole = open(include_bytes!("pickle_fixtures/whole_model.pth"), None).expect_err("a model").to_string();
    assert!(whole.contains("Sequential") && whole.contains("state_dict()"), "{whole}");
    Ok(())
}

#[test]
fn files_by_path() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.pth");
    std::fs::write(&path, CHECKPOINTS[0]).expect("a file");
    let all = pickle::read_all_with_key(&path, Some("state_dict"))?;
    assert_eq!((all.len(), &*all[0].0, all[0].1.dims()), (8, "conv.weight", &[3, 2, 1][..]));
    assert_eq!(pickle::read_pth_tensor_info(&path, false, Some("state_dict"))?[7].name, "out.weight");
    let text = pickle::read_all(&path).map(|all| all.len());
    assert!(text? > 8);
    let text = PthTensors::new(&path, None)?.get("device").expect_err("no tensor").to_string();
    assert!(text.contains("model.pth"), "{text}");
    assert!(matches!(PthTensors::new(folder.path().join("none"), None), Err(tallow::Error::Io { .. })));
    Ok(())
}

/// A zip file with this pickle, and 24 bytes as storage "0".
fn archive(pickle: &[u8], large: bool) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    let mut archive = zip::ZipWriter::new(&mut out);
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, data) in [("m/data.pkl", pickle), ("m/byteorder", b"little"), ("m/data/0", &[0; 24])] {
        archive.start_file(name, options.large_file(large)).expect("an entry");
        archive.write_all(data).expect("data");
    }
    archive.finish().expect("the end");
    out.into_inner()
}

fn word(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8], text.as_bytes()].concat()
}

fn global(name: &str) -> Vec<u8> {
    let (module, name) = name.rsplit_once('.').expect("a dot");
    [b"c", module.as_bytes(), b"\n", name.as_bytes(), b"\n"].concat()
}

fn number(n: i64) -> Vec<u8> {
    [&[0x8a, 8][..], &n.to_le_bytes()].concat()
}

fn tuple(parts: &[Vec<u8>]) -> Vec<u8> {
    [b"(".to_vec(), parts.concat(), b"t".to_vec()].concat()
}

/// `{"x": tensor}` of this window onto `elements` of `class`.
fn window(class: &str, elements: i64, offset: i64, sizes: &[i64], strides: &[i64]) -> Vec<u8> {
    let id = [tuple(&[word("storage"), global(class), word("0"), word("cpu"), number(elements)]), b"Q".to_vec()];
    let row = |row: &[i64]| tuple(&row.iter().map(|&n| number(n)).collect::<Vec<_>>());
    let arguments = tuple(&[id.concat(), number(offset), row(sizes), row(strides), b"\x89".to_vec(), b"N".to_vec()]);
    [b"\x80\x02}".to_vec(), word("x"), global("torch._utils._rebuild_tensor_v2"), arguments, b"Rs.".to_vec()].concat()
}

#[track_caller]
fn refused(pickle: &[u8], why: &str) {
    let error = open(&archive(pickle, false), None).and_then(|file| file.get("x")).expect_err(why);
    assert!(matches!(error, tallow::Error::Format { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains(why) && text.len() < 1000, "{text} does not say {why:?}");
}

#[test]
fn windows_stay_within_their_storage() -> Result<()> {
    for large in [false, true] {
        let sound = archive(&window("torch.FloatStorage", 6, 1, &[2, 2], &[3, 1]), large);
        assert_eq!(get(&open(&sound, None)?, "x")?.to_vec2::<f32>()?, [[0., 0.], [0., 0.]]);
    }
    let float = "torch.FloatStorage";
    for (elements, offset, sizes, strides, why) in [
        (7, 0, &[7][..], &[1][..], "24 bytes, too few for 7 elements"),
        (i64::MAX, 0, &[1], &[1], "too few"),
        (6, 0, &[7], &[1], "reach to byte 28"),
        (6, 5, &[2], &[1], "reach to byte 28"),
        (6, 0, &[2, 2], &[5, 1], "reach to byte 28"),
        (6, 7, &[0], &[1], "reach to byte 28"),
        (6, -1, &[1], &[1], "reach to byte 0"),
        (6, 0, &[i64::MAX; 8], &[i64::MAX; 8], "reach to byte"),
        (6, 0, &[1 << 40, 1 << 40], &[0, 0], "larger than memory"),
        (6, 0, &[0, 1 << 40, 1 << 40], &[1, 1, 1], "larger than memory"),
        (6, 0, &[-1], &[1], "whole number"),
        (6, 0, &[2], &[-1], "whole number"),
        (6, 0, &[2, 3], &[1], "2 axes and 1 strides"),
        (6, 0, &[1; 9], &[1; 9], "9 axes"),
    ] {
        refused(&window(float, elements, offset, sizes, strides), why);
    }
    refused(&window("torch.ComplexFloatStorage", 3, 0, &[3], &[1]), "complex64");
    refused(&window("torch.SecretStorage", 3, 0, &[3], &[1]), "_rebuild_tensor_v2");
    // Expanded far, but small: nothing is reserved for it.
    let vast = open(&archive(&window(float, 6, 0, &[1 << 30, 1 << 20], &[0, 0]), false), None)?;
    assert_eq!(vast.get("x")?.expect("a view").elem_count(), 1 << 50);
    Ok(())
}

#[test]
fn nothing_is_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let witness = folder.path().join("witness");
    let command = format!("touch {}", witness.display());
    for name in ["os.system", "posix.system", "subprocess.call", "builtins.eval", "torch.load", "torch.nn.Module"] {
        let call = [global(name), tuple(&[word(&command)]), b"R".to_vec()].concat();
        let [as_value, as_root] = [
            [b"\x80\x02}".to_vec(), word("x"), call.clone(), b"s.".to_vec()].concat(),
            [b"\x80\x02".to_vec(), call.clone(), b".".to_vec()].concat(),
        ];
        refused(&as_value, name);
        refused(&as_root, name);
        // A call within what else would be a tensor.
        let tensor = [global("torch._utils._rebuild_parameter"), tuple(&[call]), b"R".to_vec()].concat();
        refused(&[b"\x80\x02}".to_vec(), word("x"), tensor, b"s.".to_vec()].concat(), name);
    }
    assert!(!witness.exists());
}

#[test]
fn unsound_pickles_are_refused() {
    for (pickle, why) in [
        (&b""[..], "truncated"),
        (b"\x80\x02", "truncated"),
        (b".", "stack is empty"),
        (b"(.", "stack is empty"),
        (b"N(0", "stack is empty"),
        (b"t.", "a mark is missing"),
        (b"}(Nu.", "a key has no value"),
        (b"K\x01Na.", "no elements"),
        (b"K\x01NNs.", "no keys"),
        (b"h\x07.", "nothing was remembered as 7"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "truncated"),
        (b"B\xff\xff\xff\xff", "truncated"),
        (b"ctorch\n", "a line does not end"),
        (b"NN\x93.", "no text"),
        (b"I1\n.", "protocol 0"),
        (b"\x82\x01.", "outside the file"),
        (b"\xff", "0xff is no opcode"),
        (b"ctorch\nFloatStorage\n)R.", "FloatStorage"),
    ] {
        refused(pickle, why);
    }
    // A list that holds itself, and dictionaries that hold the one before twice.
    refused(b"]q\x00h\x00a.", "hold one another");
    let mut bomb = b"}q\x00".to_vec();
    for _ in 0..24 {
        bomb.extend(b"}q\x01(K\x01h\x00K\x02h\x00u0h\x01q\x00");
    }
    bomb.push(b'.');
    refused(&bomb, "hold one another");
    // Deep nesting is only a number to the machine.
    let deep = [&[b'N'; 1][..], &[0x85; 1_000_000], b"."].concat();
    refused(&deep, "deep");
    // No tensors at all is not an error of the file.
    assert_eq!(open(&archive(b"}.", false), None).expect("sound").names().len(), 0);
}

#[test]
fn other_files_are_refused() {
    let refused = |bytes: &[u8], why: &str| {
        let text = open(bytes, None).expect_err(why).to_string();
        assert!(text.contains(why), "{text} does not say {why:?}");
    };
    refused(b"", "no file of torch.save");
    refused(b"hello", "no file of torch.save");
    refused(b"PK\x03\x04", "no sound zip file");
    refused(include_bytes!("npy_fixtures/deflated.npz"), "no data.pkl");
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    refused(&tar, "tar archive");
}
