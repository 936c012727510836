//! Tests of the tensor library inside a browser: tests/web/tensors.mjs loads this module and judges what it measures.

use tallow::{DType, Device, Result, Tensor, Var};
use wasm_bindgen::prelude::*;

/// What is held at one moment.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug, Clone)]
pub struct Usage {
    /// Bytes of the device's live buffers.
    pub bytes: f64,
    /// Buffers that were created so far.
    pub buffers: f64,
    /// Bytes of the module's own memory.
    pub memory: f64,
}

/// What a loop held after its first tenth, and in the end.
#[wasm_bindgen(getter_with_clone)]
#[derive(Debug, Clone)]
pub struct Measured {
    /// What the device is reached through: `wgpu`, `cpu`.
    pub backend: String,
    /// After a tenth of the steps.
    pub warm: Usage,
    /// After all of them.
    pub last: Usage,
}

fn usage(device: &Device) -> Usage {
    let counters = device.engine().backend().counters();
    let memory = wasm_bindgen::memory().dyn_into::<js_sys::WebAssembly::Memory>();
    let memory = memory.ok().and_then(|m| m.buffer().dyn_into::<js_sys::ArrayBuffer>().ok());
    Usage {
        bytes: counters.bytes as f64,
        buffers: counters.buffers as f64,
        memory: memory.map_or(0.0, |m| f64::from(m.byte_length())),
    }
}

fn message(error: tallow::Error) -> JsError {
    JsError::new(&error.to_string())
}

/// Operations that nobody reads: the device must compute them by itself before they pile up.
async fn unread(device: &Device, steps: u32, x: &mut Tensor) -> Result<()> {
    for i in 0..steps {
        *x = if i % 2 == 0 { x.affine(0.5, 1.0)? } else { x.tanh()? };
    }
    device.synchronize_async().await
}

/// Training steps, each with its loss read.
async fn read(steps: u32, weight: &Var, x: &Tensor) -> Result<()> {
    for _ in 0..steps {
        let loss = x.matmul(weight)?.sqr()?.mean_all()?;
        let grads = loss.backward()?;
        let grad = grads.get(weight).ok_or_else(|| tallow::Error::msg("the weight has no gradient"))?;
        weight.set(&(weight.as_detached_tensor() - (grad * 1e-3)?)?)?;
        loss.to_vec_async::<f32>().await?;
    }
    Ok(())
}

/// `steps` operations on `device` that nobody reads.
#[wasm_bindgen]
pub async fn never_reads(device: String, steps: u32) -> std::result::Result<Measured, JsError> {
    let device = Device::by_name(&device).await.map_err(message)?;
    let mut x = Tensor::ones((8, 8), DType::F32, &device).map_err(message)?;
    unread(&device, steps / 10, &mut x).await.map_err(message)?;
    let warm = usage(&device);
    unread(&device, steps - steps / 10, &mut x).await.map_err(message)?;
    Ok(Measured { backend: device.info().backend.into(), warm, last: usage(&device) })
}

/// `steps` training steps on `device`, each with its loss read.
#[wasm_bindgen]
pub async fn reads_each_time(device: String, steps: u32) -> std::result::Result<Measured, JsError> {
    let device = Device::by_name(&device).await.map_err(message)?;
    let weight = Var::ones((4, 4), DType::F32, &device).map_err(message)?;
    let x = Tensor::randn(0f32, 1., (8, 4), &device).map_err(message)?;
    read(steps / 10, &weight, &x).await.map_err(message)?;
    let warm = usage(&device);
    read(steps - steps / 10, &weight, &x).await.map_err(message)?;
    Ok(Measured { backend: device.info().backend.into(), warm, last: usage(&device) })
}

/// A loss of some of the newer operations, and its gradient: numbers that every device must agree on.
async fn sample(device: &Device) -> Result<Vec<f32>> {
    let image = Var::from_tensor(&Tensor::arange(0f32, 64., device)?.reshape((1, 1, 8, 8))?.sin()?)?;
    let kernel = Tensor::arange(0f32, 18., device)?.reshape((2, 1, 3, 3))?.affine(0.1, -0.8)?;
    let features = image.conv2d(&kernel, 1, 1, 1, 1)?.max_pool2d(2)?.gelu()?;
    let rows = features.reshape((4, 8))?;
    let (sorted, order) = rows.sort_last_dim(false)?;
    let ids = Tensor::new([3u32, 0, 3], device)?;
    let mixed = rows.cumsum(1)?.index_add(&ids, &sorted.narrow(0, 0, 3)?, 0)?.softmax_last_dim()?;
    let loss = (mixed.sqr()? * order.to_dtype(DType::F32)?)?.sum_all()?;
    let grads = loss.backward()?;
    let grad = grads.get(&image).ok_or_else(|| tallow::Error::msg("the image has no gradient"))?;
    let mut values = loss.to_vec_async::<f32>().await?;
    values.extend(grad.to_vec_async::<f32>().await?);
    Ok(values)
}

/// Runs the sample on `device`.
#[wasm_bindgen]
pub async fn sample_on(device: String) -> std::result::Result<Vec<f32>, JsError> {
    let device = Device::by_name(&device).await.map_err(message)?;
    sample(&device).await.map_err(message)
}
