//! The measuring of implementations on a real (software) device: what is chosen is kept, read back and used; what cannot be
//! read is ignored and written anew.
#![cfg(not(target_arch = "wasm32"))]

#[allow(dead_code, reason = "shared with other tests")]
mod kernels;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tallow_graph::{Backend, DType, Engine, Kernel, Result, Shape, ops};
use tallow_wgpu::{
    Options, Tune, WgpuBackend,
    library::{self, Shader, Target},
};

/// Implementations of products that were compiled.
static COMPILED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

fn shader(kernel: &Kernel, implementation: u32, target: &Target) -> Result<Shader> {
    if matches!(kernel, Kernel::Contract(_)) {
        COMPILED.lock().unwrap().push(implementation);
    }
    library::shader(kernel, implementation, target)
}

/// With the compiled products told in [`COMPILED`], or not.
fn open(folder: &Path, tune: Tune, told: bool) -> Option<WgpuBackend> {
    let Some(index) = tallow_wgpu::adapters_blocking().len().checked_sub(1) else {
        eprintln!("skipped: wgpu: no adapter");
        return None;
    };
    let mut options = Options { tune, tune_folder: Some(folder.to_owned()), ..Options::default() };
    if told {
        options.library.shader = shader;
    }
    Some(WgpuBackend::open_blocking(index, options).unwrap())
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "one file, and nothing half-written beside it");
    file
}

/// The choices of the file as they stand there.
fn choices(file: &Path) -> serde_json::Map<String, serde_json::Value> {
    let json: serde_json::Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    json["choices"].as_object().unwrap().clone()
}

#[test]
fn a_choice_is_measured_once_kept_read_back_and_used() {
    let folder = std::env::temp_dir().join(format!("tallow-tune-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let Some(backend) = open(&folder, Tune::Always, true) else { return };
    let (m, k, n) = (70, 64, 40);
    let data = |count: usize| (0..count).flat_map(|i| ((i % 7) as f32 - 3.0).to_le_bytes()).collect::<Vec<u8>>();
    let product = |backend: WgpuBackend| {
        COMPILED.lock().unwrap().clear();
        let engine = Engine::new(Arc::new(backend), tallow_graph::Options::default());
        let a = engine.upload(DType::F32, Shape::new(&[m, k]), &data(m * k)).unwrap();
        let b = engine.upload(DType::F32, Shape::new(&[k, n]), &data(k * n)).unwrap();
        let c = ops::matmul(a.whole(), b.whole()).unwrap();
        let bytes = pollster::block_on(engine.read(&c)).unwrap();
        let compiled = std::mem::take(&mut *COMPILED.lock().unwrap());
        (bytes, compiled)
    };
    let (want, compiled) = product(backend);
    assert!(compiled.len() > 1, "several ways were measured: {compiled:?}");
    let file = only_file(&folder);
    let kept = choices(&file);
    assert_eq!(kept.len(), 1, "{kept:?}");

    // Another choice in the file: it is the one that is used, and nothing is measured.
    let (key, id) = kept.iter().next().unwrap();
    let id = id.as_u64().unwrap();
    let other = if id == 1 { 3 } else { 1 };
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!(": {id}\n"), &format!(": {other}\n"))).unwrap();
    assert_eq!(choices(&file)[key].as_u64(), Some(other));
    let (got, compiled) = product(open(&folder, Tune::Always, true).unwrap());
    assert_eq!(compiled, [other as u32]);
    let values = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    // Whole numbers: every way gives the same.
    assert_eq!(values(&got), values(&want));

    // Half a file, and another device's: ignored, measured anew and replaced.
    for wrong in [text[..text.len() / 2].to_string(), text.replace("\"device\": \"", "\"device\": \"another ")] {
        fs::write(&file, wrong).unwrap();
        let (got, compiled) = product(open(&folder, Tune::Always, true).unwrap());
        assert!(compiled.len() > 1, "{compiled:?}");
        assert_eq!(values(&got), values(&want));
        assert_eq!(only_file(&folder), file);
        assert_eq!(choices(&file).len(), 1);
    }

    // Unless asked for, a software device is not measured.
    let before = fs::read_to_string(&file).unwrap();
    let backend = open(&folder, Tune::Hardware, true).unwrap();
    let software = backend.info().software;
    let (_, compiled) = product(backend);
    assert!(!software || compiled.len() == 1, "{compiled:?}");
    let (_, compiled) = product(open(&folder, Tune::Never, true).unwrap());
    assert_eq!(compiled.len(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    fs::remove_dir_all(&folder).unwrap();
}

/// Whatever can be measured is, and the choice is one that is offered.
#[test]
fn every_kind_of_kernel_gets_a_choice() {
    let folder = std::env::temp_dir().join(format!("tallow-tune-all-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let Some(backend) = open(&folder, Tune::Always, false) else { return };
    for name in ["matmul_Many_Q4_1_K_true_false_true_false", "attention_Many_F32_F32_1", "row_Softmax_F32_1_1"] {
        let all = kernels::all();
        let found = all.iter().find(|case| case.0.eq_ignore_ascii_case(name));
        let (_, kernel, words) = found.unwrap_or_else(|| panic!("{name} is there"));
        let choice = backend.choose(kernel, words).unwrap();
        assert!(backend.lower(kernel, words).contains(&choice), "{name}");
        assert!(backend.counters().dispatches > 0, "{name}");
    }
    let _ = fs::remove_dir_all(&folder);
}
