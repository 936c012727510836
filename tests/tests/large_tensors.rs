//! Tensors that are many times larger than one binding of the device may be, against the CPU: what a user does with an
//! embedding table or activations of more than 128 MB on a device with WebGPU's default limits, on small data.

use tallow::{DType, Device, Result, Tensor};
use tallow_tests::{SMALL_BINDING, device, error_to_rms};

/// A tensor with values in about [-1, 1), the same on every device.
fn noise(dims: &[usize], seed: u64, device: &Device) -> Tensor {
    let n: usize = dims.iter().product();
    let mut state = seed;
    let values: Vec<f32> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_vec(values, dims, device).unwrap()
}

/// Computes on the CPU and in pieces, and compares.
fn same(name: &str, bound: f64, compute: impl Fn(&Device) -> Result<Tensor>) {
    let Some(candidate) = device("wgpu:pieces") else { return };
    let values = |device: &Device| -> Result<Vec<f32>> {
        compute(device)?.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()
    };
    let want = values(&Device::Cpu).unwrap();
    let got = values(&candidate.device).unwrap_or_else(|error| panic!("{name}: {error}"));
    let error = error_to_rms(&got, &want);
    assert!(error <= bound, "{name}: error {error:.2e} of the rms");
}

/// 1 MiB of f32.
const DIMS: [usize; 2] = [512, 512];

#[test]
fn element_by_element() {
    assert!(DIMS[0] * DIMS[1] * 4 > 50 * SMALL_BINDING as usize);
    same("a * b + tanh(a)", 1e-5, |d| {
        let (a, b) = (noise(&DIMS, 1, d), noise(&DIMS, 2, d));
        (&a * &b)? + a.tanh()?
    });
    same("broadcast, transposed", 1e-6, |d| noise(&DIMS, 3, d).t()?.broadcast_add(&noise(&[1, 512], 4, d)));
    same("two windows of one tensor", 1e-6, |d| {
        let a = noise(&DIMS, 5, d);
        a.narrow(0, 200, 300)?.sub(&a.narrow(0, 7, 300)?)
    });
    same("to f16 and back", 0.0, |d| noise(&DIMS, 6, d).to_dtype(DType::F16)?.affine(2.0, 1.0));
    same("to u8", 0.0, |d| noise(&DIMS, 7, d).affine(100.0, 100.0)?.to_dtype(DType::U8));
}

#[test]
fn rows() {
    same("softmax", 1e-5, |d| noise(&DIMS, 10, d).softmax_last_dim());
    same("sum of rows", 1e-5, |d| noise(&DIMS, 11, d).sum(1));
    same("maximum of rows", 0.0, |d| noise(&DIMS, 12, d).max(1));
    same("sum over the leading axis", 1e-5, |d| noise(&DIMS, 14, d).sum(0));
    same("sum of all", 1e-4, |d| noise(&DIMS, 15, d).affine(1.0, 0.5)?.sum_all());
    same("mean of all", 1e-5, |d| noise(&DIMS, 16, d).affine(1.0, 0.5)?.mean_all());
    same("argmax of rows", 0.0, |d| noise(&DIMS, 13, d).argmax(1));
}

#[test]
fn products() {
    same("x w^t, one row", 1e-5, |d| noise(&[1, 512], 20, d).matmul(&noise(&DIMS, 21, d).t()?));
    same("x w^t, many rows", 1e-5, |d| noise(&[90, 512], 22, d).matmul(&noise(&DIMS, 23, d).t()?));
    same("batches", 1e-5, |d| noise(&[40, 30, 64], 24, d).matmul(&noise(&[40, 64, 30], 25, d)));
}

#[test]
fn gathers() {
    same("rows by index", 0.0, |d| {
        let ids = Tensor::from_vec((0..300u32).map(|i| i * 331 % 512).collect::<Vec<_>>(), 300, d)?;
        noise(&DIMS, 30, d).index_select(&ids, 0)
    });
}

/// A norm of one row needs all of it at once.
#[test]
fn refusals_name_the_limit() {
    let Some(candidate) = device("wgpu:pieces") else { return };
    let row = noise(&[1, 50_000], 40, &candidate.device);
    let error = row.softmax_last_dim().unwrap().to_vec2::<f32>().unwrap_err().to_string();
    assert!(error.contains("max_storage_buffer_binding_size") && error.contains("20480"), "{error}");
    // The device goes on.
    assert_eq!(row.narrow(1, 0, 2).unwrap().to_vec2::<f32>().unwrap()[0].len(), 2);
}
