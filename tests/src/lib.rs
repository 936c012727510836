//! What the conformance tests share: the devices, fixtures, and how results are compared.

use std::{path::PathBuf, sync::Arc};
use tallow::{Device, Tensor, formats::SafeTensors};
use tallow_graph::reference::Reference;

/// A device under test.
pub struct Candidate {
    /// Its name in messages.
    pub name: String,
    /// The device.
    pub device: Device,
}

/// The devices that this machine has. Absent ones are reported by name on standard error, as skipped.
///
/// `TALLOW_TEST_DEVICES` (comma-separated: reference, cpu, wgpu) restricts them.
pub fn devices() -> Vec<Candidate> {
    let wanted = std::env::var("TALLOW_TEST_DEVICES").unwrap_or_else(|_| "reference,cpu,wgpu".into());
    let mut found = Vec::new();
    for name in wanted.split(',') {
        found.extend(device(name));
    }
    found
}

/// One device by name; `None`, with a line that says so, where it is absent. `wgpu:pieces` is a GPU that is opened with
/// bindings of [`SMALL_BINDING`] bytes at most, so that larger tensors are computed in pieces.
pub fn device(name: &str) -> Option<Candidate> {
    let device = match name {
        "reference" => Ok(Device::from_backend(Arc::new(Reference::default()))),
        "cpu" => Ok(Device::Cpu),
        "wgpu:pieces" => pieces(),
        other => tallow::block_on(Device::by_name(other)),
    };
    match device {
        Ok(device) => Some(Candidate { name: name.into(), device }),
        Err(error) => {
            eprintln!("skipped: {name}: {error}");
            None
        }
    }
}

/// The most bytes that `wgpu:pieces` binds at once.
pub const SMALL_BINDING: u64 = 20 << 10;

fn pieces() -> tallow::Result<Device> {
    let options = tallow_wgpu::Options { max_binding: Some(SMALL_BINDING), ..tallow_wgpu::Options::default() };
    let backend = tallow::block_on(tallow_wgpu::WgpuBackend::open(0, options))?;
    Ok(Device::from_backend(Arc::new(backend)))
}

/// The folder of a golden fixture.
pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

/// A tensor of a fixture's expected.safetensors, on the CPU.
pub fn expected(fixture: &str, name: &str) -> Tensor {
    let path = self::fixture(fixture).join("expected.safetensors");
    let file = SafeTensors::open(path).expect("the fixture opens");
    let (dtype, dims, bytes) = file.tensor(name).expect("the fixture has the tensor");
    Tensor::from_bytes(&bytes, dtype, dims.as_slice(), &Device::Cpu).expect("the tensor loads")
}

/// The largest difference, relative to the root mean square of what was expected.
pub fn error_to_rms(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let rms = (want.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / want.len().max(1) as f64).sqrt();
    let worst = got.iter().zip(want).map(|(&g, &w)| f64::from(g - w).abs()).fold(0.0, |worst: f64, d| {
        // A NaN is the worst error there is; max would drop it.
        if d.is_nan() { f64::INFINITY } else { worst.max(d) }
    });
    worst / rms.max(1e-30)
}

/// The documents' examples, run as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    pub struct Readme;
    #[doc = include_str!("../../docs/guide.md")]
    pub struct Guide;
}
