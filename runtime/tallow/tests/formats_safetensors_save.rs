//! Writing safetensors files, read back here and by the reference implementation.

use std::collections::HashMap;
use tallow::{
    DType, Device, Result, Tensor,
    safetensors::{self, Load},
};

fn tensors() -> Result<HashMap<String, Tensor>> {
    let mut all = HashMap::new();
    for dtype in DType::PLAIN {
        let x = Tensor::arange(0f32, 6., &Device::Cpu)?.to_dtype(dtype)?.reshape((2, 3))?;
        all.insert(format!("x.{dtype}"), x);
    }
    all.insert("a \"quoted\" name\n".into(), Tensor::new(7i64, &Device::Cpu)?);
    all.insert("empty".into(), Tensor::zeros((0, 4), DType::F16, &Device::Cpu)?);
    let view = Tensor::arange(0u8, 12, &Device::Cpu)?.reshape((3, 4))?.t()?;
    all.insert("view".into(), view);
    Ok(all)
}

fn values(x: &Tensor) -> Result<Vec<f64>> {
    x.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()
}

#[test]
fn what_is_saved_is_loaded() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("all.safetensors");
    let saved = tensors()?;
    // Over an older file.
    std::fs::write(&path, b"old").expect("a file");
    safetensors::save(&saved, &path)?;
    let bytes = std::fs::read(&path).expect("the file");
    assert_eq!(tallow::block_on(safetensors::to_bytes_async(&saved))?, bytes);
    let mapped = safetensors::MmapedSafetensors::new(&path)?;
    for loaded in [safetensors::load(&path, &Device::Cpu)?, safetensors::load_buffer(&bytes, &Device::Cpu)?] {
        assert_eq!(loaded.len(), saved.len());
        for (name, want) in &saved {
            for got in [&loaded[name], &mapped.load(name, &Device::Cpu)?] {
                assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{name}");
                assert_eq!(values(got)?, values(want)?, "{name}");
            }
        }
    }
    assert_eq!(mapped.names().count(), saved.len());
    let (slice, owned) =
        (safetensors::SliceSafetensors::new(&bytes)?, safetensors::BufferedSafetensors::new(bytes.clone())?);
    let views = [slice.tensors(), owned.tensors(), mapped.tensors()];
    for (name, view) in views.iter().flatten() {
        let want = &saved[name];
        assert_eq!((view.shape(), view.dtype()?, view.info().name()), (want.dims(), want.dtype(), name.as_str()));
        let got = [view.load(&Device::Cpu)?, slice.load(name, &Device::Cpu)?, owned.load(name, &Device::Cpu)?];
        for got in got {
            assert_eq!(values(&got)?, values(want)?, "{name}");
        }
        assert_eq!(view.data(), slice.get(name)?.data());
    }
    assert!(views.iter().all(|views| views.len() == saved.len()));
    for error in [slice.get("none").err(), owned.get("none").err(), mapped.get("none").err()] {
        assert!(error.expect("no such tensor").to_string().contains("none"));
    }
    assert!(safetensors::SliceSafetensors::new(&bytes[..bytes.len() - 1]).is_err());
    let reference = ::safetensors::SafeTensors::deserialize(&bytes).expect("the reference reads it");
    assert_eq!(reference.len(), saved.len());
    assert_eq!(reference.tensor("view").expect("the view").shape(), [4, 3]);
    assert_eq!(reference.tensor("view").expect("the view").data()[..3], [0, 4, 8]);
    Ok(())
}

#[test]
fn what_cannot_be_saved_leaves_nothing_behind() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.safetensors");
    let x = Tensor::new([1f32, 2.], &Device::Cpu)?;
    // An index out of range comes up at the read.
    let bad = x.index_select(&Tensor::new([5u32], &Device::Cpu)?, 0)?;
    let error = bad.save_safetensors("bad", &path).expect_err("the value cannot be computed");
    assert!(error.to_string().contains('5'), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    assert!(x.save_safetensors("__metadata__", &path).is_err());
    let error = safetensors::load(&path, &Device::Cpu).expect_err("there is no file");
    assert!(error.to_string().contains("bad.safetensors"), "{error}");
    Ok(())
}
