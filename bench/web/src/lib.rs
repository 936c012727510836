//! Tallow as a participant of `cargo xtask bench web`: the page (bench/web/page) gives it inputs, and has it compute.

mod cases;

use tallow::{Device, Error, Tensor};
use wasm_bindgen::prelude::*;

type Result<T> = std::result::Result<T, JsError>;

fn message(error: Error) -> JsError {
    JsError::new(&error.to_string())
}

/// An open WebGPU device, and the inputs of the next case.
#[wasm_bindgen]
pub struct Bench {
    device: Device,
    inputs: Vec<Tensor>,
}

/// One operation on inputs that are on the device.
#[wasm_bindgen]
pub struct Case {
    inputs: Vec<Tensor>,
    work: cases::Work,
}

#[wasm_bindgen]
impl Bench {
    /// Opens the browser's GPU, one in software too.
    pub async fn open() -> Result<Bench> {
        let device = Device::by_name("wgpu").await.map_err(message)?;
        Ok(Bench { device, inputs: Vec::new() })
    }

    /// The version that is measured.
    pub fn version() -> String {
        env!("CARGO_PKG_VERSION").into()
    }

    /// Adds an input to the next case.
    pub async fn input(&mut self, dims: Vec<u32>, values: Vec<f32>) -> Result<()> {
        let dims: Vec<usize> = dims.iter().map(|&size| size as usize).collect();
        let input = Tensor::from_vec(values, dims.as_slice(), &self.device).map_err(message)?;
        input.realize_async().await.map_err(message)?;
        self.inputs.push(input);
        Ok(())
    }

    /// The operation of that name on the inputs added since the last call.
    pub fn prepare(&mut self, op: &str) -> Result<Case> {
        let inputs = std::mem::take(&mut self.inputs);
        let work = cases::find(op).ok_or_else(|| JsError::new(&format!("there is no operation '{op}'")))?;
        Ok(Case { inputs, work })
    }
}

#[wasm_bindgen]
impl Case {
    /// Computes once: when this returns, the work is submitted, not done.
    pub async fn run(&self) -> Result<()> {
        let result = (self.work)(&self.inputs).map_err(message)?;
        result.realize_async().await.map_err(message)
    }

    /// Computes once and reads the result.
    pub async fn values(&self) -> Result<Vec<f32>> {
        let result = (self.work)(&self.inputs).map_err(message)?;
        result.flatten_all().map_err(message)?.to_vec_async::<f32>().await.map_err(message)
    }
}
