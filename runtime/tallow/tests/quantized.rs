//! Quantized weights under candle's names: blocks as the `gguf` package of PyPI reads and writes them
//! (`quantized_fixtures/make.py`), products against f64 sums, and files.

use std::{io::Cursor, sync::LazyLock};
use tallow::formats::{Gguf, gguf};
use tallow::quantized::{GgmlDType, QMatMul, QStorage, QTensor, ggml_file, gguf_file};
use tallow::{Activations, DType, Device, Module, Result, Tensor};

const CPU: Device = Device::Cpu;
const BLOCKS: &[u8] = include_bytes!("quantized_fixtures/blocks.gguf");

/// Opened once for all tests.
fn devices() -> &'static [Device] {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        let gpu = Device::new_wgpu(0).ok();
        if gpu.is_none() {
            println!("skipped on wgpu: there is no adapter");
        }
        [CPU].into_iter().chain(gpu).collect()
    });
    &DEVICES
}

/// Numbers from -1 to 1, some larger.
fn noise(rows: usize, cols: usize) -> Result<Tensor> {
    let mut state = 9u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values = (0..rows * cols).map(|_| next() * if next() > 0.9 { 3.0 } else { 1.0 }).collect::<Vec<_>>();
    Tensor::from_vec(values, (rows, cols), &CPU)
}

fn flat(x: &Tensor) -> Result<Vec<f32>> {
    x.to_device(&CPU)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

/// The root of the mean square of the difference, relative to that of `want`.
fn relative(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f64| x * x;
    let error: f64 = got.iter().zip(want).map(|(&g, w)| square(f64::from(g) - w)).sum();
    (error / want.iter().map(|&w| square(w)).sum::<f64>()).sqrt()
}

/// What the `gguf` package made.
#[test]
fn blocks_of_the_gguf_package() -> Result<()> {
    let mut file = Cursor::new(BLOCKS);
    let content = gguf_file::Content::read(&mut file)?;
    let x = content.tensor(&mut file, "x", &CPU)?.dequantize(&CPU)?;
    let (mut quantized, mut read) = (0, 0);
    for kind in GgmlDType::ALL {
        if content.tensor_infos.contains_key(&format!("quantized.{kind}")) {
            let want = content.tensor(&mut file, &format!("quantized.{kind}"), &CPU)?;
            assert_eq!(want.dtype(), kind);
            assert!(QTensor::quantize(&x, kind)?.data()? == want.data()?, "{kind}");
            quantized += 1;
        }
        if content.tensor_infos.contains_key(&format!("random.{kind}")) {
            let want = flat(&content.tensor(&mut file, &format!("values.{kind}"), &CPU)?.dequantize(&CPU)?)?;
            for device in devices() {
                let packed = content.tensor(&mut file, &format!("random.{kind}"), device)?;
                let got = flat(&packed.dequantize(&CPU)?)?;
                for (at, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!((got - want).abs() <= 1e-6 * want.abs().max(0.1), "{kind} {at}: {got} {want}");
                }
                let blocks = Gguf::parse(BLOCKS.into())?.tensor_bytes(&format!("random.{kind}"))?;
                assert!(*packed.data()? == *blocks, "{kind}: the blocks come back");
            }
            read += 1;
        }
    }
    assert_eq!((quantized, read), (5, 10));
    Ok(())
}

#[test]
fn quantizing_loses_little() -> Result<()> {
    let x = noise(6, 512)?;
    let want: Vec<f64> = flat(&x)?.into_iter().map(f64::from).collect();
    for (kind, most) in [
        (GgmlDType::F32, 1e-9),
        (GgmlDType::F16, 4e-4),
        (GgmlDType::BF16, 3e-3),
        (GgmlDType::Q4_0, 0.12),
        (GgmlDType::Q4_1, 0.1),
        (GgmlDType::Q5_0, 0.06),
        (GgmlDType::Q5_1, 0.05),
        (GgmlDType::Q8_0, 0.007),
        (GgmlDType::Q8_1, 0.007),
        (GgmlDType::Q2K, 0.32),
        (GgmlDType::Q3K, 0.2),
        (GgmlDType::Q4K, 0.09),
        (GgmlDType::Q5K, 0.045),
        (GgmlDType::Q6K, 0.025),
        (GgmlDType::Q8K, 0.011),
    ] {
        for device in devices() {
            let packed = QTensor::quantize_onto(&x, kind, device)?;
            assert_eq!(packed.storage_size_in_bytes(), kind.bytes_for(6 * 512).expect("whole blocks"));
            assert_eq!(packed.data()?.len(), packed.storage_size_in_bytes());
            assert_eq!((packed.shape().dims(), packed.rank(), packed.dtype()), (&[6, 512][..], 2, kind));
            let error = relative(&flat(&packed.dequantize(device)?)?, &want);
            println!("{kind}: {error:.4}");
            assert!(error < most && error >= most / 4.0 || kind == GgmlDType::F32, "{kind}: {error}");
            assert_eq!(packed.dequantize_f16(device)?.dtype(), DType::F16);
            let zeros = QTensor::quantize_onto(&x.zeros_like()?, kind, device)?;
            assert!(flat(&zeros.dequantize(device)?)?.iter().all(|&x| x == 0.0), "{kind}");
        }
    }
    Ok(())
}

/// Columns that count lose less, and the bytes are still blocks of the type.
#[test]
fn importances_move_the_error_away() -> Result<()> {
    let x = noise(6, 512)?;
    let important = |j: usize| j % 7 == 3;
    let importance: Vec<f32> = (0..512).map(|j| if important(j) { 50.0 } else { 0.5 }).collect();
    let kinds = [GgmlDType::Q2K, GgmlDType::Q3K, GgmlDType::Q4K, GgmlDType::Q5K, GgmlDType::Q6K];
    for (kind, device) in kinds.into_iter().flat_map(|kind| devices().iter().map(move |device| (kind, device))) {
        let (want, plain) = (flat(&x)?, QTensor::quantize(&x, kind)?);
        let weighed = QTensor::quantize_imatrix_onto(&x, &importance, kind, device)?;
        assert_eq!(weighed.data()?.len(), plain.data()?.len(), "{kind}");
        let loss = |packed: &QTensor| -> Result<f32> {
            let got = flat(&packed.dequantize(device)?)?;
            let terms = got.iter().zip(&want).enumerate().filter(|(i, _)| important(i % 512));
            Ok(terms.map(|(_, (got, want))| (got - want).powi(2)).sum())
        };
        let (weighed_loss, plain_loss) = (loss(&weighed)?, loss(&plain)?);
        println!("{kind}: {weighed_loss} of {plain_loss}");
        assert!(weighed_loss < 0.9 * plain_loss, "{kind}: {weighed_loss} of {plain_loss}");
        // No importance at all is no reason for zeros.
        let none = QTensor::quantize_imatrix(&x, &[0.0; 512], kind)?;
        assert!(
            relative(&flat(&none.dequantize(&CPU)?)?, &want.iter().map(|&x| f64::from(x)).collect::<Vec<_>>()) < 0.6,
            "{kind}"
        );
    }
    let refused = |importance: &[f32], kind, word: &str| {
        let error = QTensor::quantize_imatrix(&x, importance, kind).expect_err("refused").to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(&importance[..256], GgmlDType::Q4K, "256 importances for the 512 columns");
    refused(&importance, GgmlDType::Q4_0, "Q4K");
    let mut bad = importance.clone();
    bad[9] = f32::NAN;
    refused(&bad, GgmlDType::Q4K, "column 9 is NaN");
    bad[9] = -1.0;
    refused(&bad, GgmlDType::Q4K, "column 9 is -1");
    Ok(())
}

#[test]
fn products_of_every_type() -> Result<()> {
    let (w, x) = (noise(9, 512)?, noise(5, 512)?);
    for kind in GgmlDType::ALL {
        let plain = flat(&QTensor::quantize(&w, kind)?.dequantize(&CPU)?)?;
        let rows = flat(&x)?;
        let dot = |i: usize, j: usize| -> f64 {
            rows[i * 512..][..512].iter().zip(&plain[j * 512..]).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum()
        };
        let want: Vec<f64> = (0..5).flat_map(|i| (0..9).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect();
        for device in devices() {
            let product = QMatMul::from_qtensor(QTensor::quantize_onto(&w, kind, device)?)?;
            let x = x.to_device(device)?;
            let y = product.forward(&x)?;
            assert_eq!(y.dims(), [5, 9]);
            let error = relative(&flat(&y)?, &want);
            assert!(error < 2e-6, "{kind}: {error}");
            let error = relative(&flat(&product.forward_with(&x, Activations::Q8)?)?, &want);
            assert!(error < 0.02, "{kind} with 8-bit inputs: {error}");
            let error = relative(&flat(&product.forward_via_f16(&x)?)?, &want);
            assert!(error < 3e-3, "{kind} via F16: {error}");
            // More axes in front, and halves in and out.
            let y = product.forward(&x.to_dtype(DType::F32)?.reshape((5, 1, 512))?)?;
            assert_eq!(y.dims(), [5, 1, 9]);
        }
    }
    Ok(())
}

#[test]
fn rows_by_index_and_more_axes() -> Result<()> {
    let w = noise(8, 256)?;
    for device in devices() {
        for kind in [GgmlDType::Q4_0, GgmlDType::Q5_1, GgmlDType::Q3K, GgmlDType::F16] {
            let packed = QTensor::quantize_onto(&w, kind, device)?;
            let ids = Tensor::new([[3u32, 0], [7, 3]], device)?;
            let rows = packed.embedding(&ids)?;
            assert_eq!((rows.dims(), rows.dtype()), (&[2, 2, 256][..], DType::F32));
            let all = packed.dequantize(device)?;
            assert_eq!(flat(&rows.get(0)?.get(1)?)?, flat(&all.get(0)?)?);
            let cube = QTensor::quantize_onto(&w.reshape((2, 4, 256))?, kind, device)?;
            assert_eq!(cube.dequantize(device)?.dims(), [2, 4, 256]);
            assert_eq!(flat(&cube.dequantize(device)?)?, flat(&all)?);
            let text = QMatMul::from_qtensor(cube).expect_err("no matrix").to_string();
            assert!(text.contains("no matrix"), "{text}");
        }
    }
    let short = QTensor::quantize(&noise(2, 48)?, GgmlDType::Q4_0).expect_err("48 is no multiple of 32").to_string();
    assert!(short.contains("Q4_0") && short.contains("32"), "{short}");
    assert!(QStorage::from_data(vec![0; 19].into(), &CPU, GgmlDType::Q4_0).is_err());
    let one = QStorage::from_data(vec![0; 18].into(), &CPU, GgmlDType::Q4_0)?;
    assert!(QTensor::new(one, (2, 32)).is_err());
    Ok(())
}

#[test]
fn gguf_files_round_trip() -> Result<()> {
    let x = noise(4, 256)?;
    let packed: Vec<(String, QTensor)> = GgmlDType::ALL
        .into_iter()
        .map(|kind| Ok((format!("w.{kind}"), QTensor::quantize(&x, kind)?)))
        .collect::<Result<_>>()?;
    let tensors: Vec<(&str, &QTensor)> = packed.iter().map(|(name, tensor)| (&**name, tensor)).collect();
    let (name, count): (gguf_file::Value, gguf_file::Value) = ("tiny".into(), 3u32.into());
    let list = gguf_file::Value::from(vec![1u8, 2]);
    let metadata = [("general.name", &name), ("count", &count), ("list", &list)];
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(&mut file, &metadata, &tensors)?;
    assert_eq!(*file.get_ref(), tallow::block_on(gguf_file::to_bytes_async(&metadata, &tensors))?);
    let content = gguf_file::Content::read(&mut file)?;
    assert_eq!(content.magic, gguf_file::VersionedMagic::GgufV3);
    assert_eq!(content.metadata["general.name"].to_string()?, "tiny");
    assert_eq!((content.metadata["count"].to_u32()?, content.metadata["count"].to_u64()?), (3, 3));
    assert_eq!(content.metadata["list"].to_vec()?.len(), 2);
    assert!(content.metadata["count"].to_f32().is_err());
    assert_eq!(content.tensor_infos.len(), tensors.len());
    for device in devices() {
        for (name, tensor) in &tensors {
            let read = content.tensor(&mut file, name, device)?;
            assert_eq!((read.dtype(), read.shape()), (tensor.dtype(), tensor.shape()));
            assert!(read.data()? == tensor.data()?, "{name}");
        }
    }
    let text = content.tensor(&mut file, "nowhere", &CPU).expect_err("absent").to_string();
    assert!(text.contains("nowhere"), "{text}");
    // Types that no QTensor has are no hindrance to the others.
    let other = gguf::Writer::new().tensor("i", DType::I32, &[2], vec![0; 8]).tensor("f", DType::F32, &[1], vec![0; 4]);
    let mut file = Cursor::new(other.to_bytes()?);
    let content = gguf_file::Content::read(&mut file)?;
    assert_eq!(content.tensor_infos.len(), 1);
    assert!(content.tensor(&mut file, "i", &CPU).expect_err("I32").to_string().contains("I32"));
    Ok(())
}

#[test]
fn damaged_gguf_files_are_refused() {
    for end in (0..BLOCKS.len()).step_by(97) {
        assert!(gguf_file::Content::read(&mut Cursor::new(&BLOCKS[..end])).is_err(), "cut at {end}");
    }
    let mut file = Cursor::new(BLOCKS);
    let content = gguf_file::Content::read(&mut file).expect("sound");
    let mut cut = Cursor::new(&BLOCKS[..content.tensor_data_offset as usize + 100]);
    let text = content.tensor(&mut cut, "x", &CPU).expect_err("cut").to_string();
    assert!(text.contains("truncated") && text.contains("\"x\""), "{text}");
}

/// A file of two tokens and these tensors: name, type, dimensions outermost first, data.
fn ggml(magic: &[u8; 4], version: Option<u32>, tensors: &[(&str, GgmlDType, &[u32], &[u8])]) -> Vec<u8> {
    let mut out: Vec<u8> = magic.iter().rev().copied().collect();
    let put = |out: &mut Vec<u8>, n: u32| out.extend(n.to_le_bytes());
    version.into_iter().for_each(|version| put(&mut out, version));
    [2, 32, 1, 4, 5, 6, 7].into_iter().for_each(|n| put(&mut out, n));
    for token in ["a", "bc"] {
        put(&mut out, token.len() as u32);
        out.extend(token.bytes());
        version.into_iter().for_each(|_| put(&mut out, 0.5f32.to_bits()));
    }
    for (name, kind, dims, data) in tensors {
        put(&mut out, dims.len() as u32);
        put(&mut out, name.len() as u32);
        put(&mut out, *kind as u32);
        dims.iter().rev().for_each(|&dim| put(&mut out, dim));
        out.extend(name.bytes());
        if magic == b"ggjt" {
            out.resize(out.len().next_multiple_of(32), 0);
        }
        out.extend(*data);
    }
    out
}

#[test]
fn older_files() -> Result<()> {
    let w = noise(2, 32)?;
    let (plain, packed) = (QTensor::quantize(&w, GgmlDType::F16)?, QTensor::quantize(&w, GgmlDType::Q5_0)?);
    let f16: (&str, _, &[u32], &[u8]) = ("f", GgmlDType::F16, &[2, 32], &plain.data()?);
    let q5: (&str, _, &[u32], &[u8]) = ("q", GgmlDType::Q5_0, &[2, 32], &packed.data()?);
    for (magic, version) in [(b"ggml", None), (b"ggmf", Some(1)), (b"ggjt", Some(1)), (b"ggjt", Some(3))] {
        for device in devices() {
            let file = ggml(magic, version, &[f16]);
            let mut content = ggml_file::Content::read(&mut Cursor::new(&file), device)?;
            assert_eq!((content.hparams.n_vocab, content.hparams.n_rot, content.hparams.ftype), (2, 6, 7));
            let score = if version.is_some() { 0.5 } else { 0.0 };
            assert_eq!(content.vocab.token_score_pairs, [(b"a".to_vec(), score), (b"bc".to_vec(), score)]);
            assert!(content.remove("f")?.data()? == plain.data()?);
            assert!(content.remove("f").is_err());
            let file = ggml(magic, version, &[q5, f16]);
            match ggml_file::Content::read(&mut Cursor::new(&file), device) {
                Ok(content) => {
                    assert_eq!(version, Some(3));
                    assert!(content.tensors["q"].data()? == packed.data()?);
                }
                Err(error) => assert!(version != Some(3) && error.to_string().contains("GGUF"), "{error}"),
            }
        }
    }
    let file = ggml(b"ggjt", Some(3), &[q5, f16]);
    let sound = |bytes: &[u8]| ggml_file::Content::read(&mut Cursor::new(bytes), &CPU).is_ok();
    assert!(sound(&file));
    for end in 0..file.len() {
        // Between two tensors a file may end.
        assert!(!sound(&file[..end]) || end == ggml(b"ggjt", Some(3), &[q5]).len() || end < 60, "cut at {end}");
    }
    for at in 0..file.len() {
        for change in [1, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] ^= change;
            sound(&damaged);
        }
    }
    Ok(())
}
