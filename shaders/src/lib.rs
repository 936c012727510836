//! Tallow on WebGPU: the WGSL kernel library, the device layouts of quantized weights, and the backend that runs both
//! through wgpu, natively (Vulkan, Metal, DX12) and in browsers.
//!
//! [`library`] turns a kernel's structure into WGSL and a run's data into a uniform block; it knows no device. [`quant`]
//! turns blocks of a file into aligned sections. [`host`] owns the device: memory, pipelines, submits, reads.

pub mod host;
pub mod library;
pub mod quant;

#[cfg(not(target_arch = "wasm32"))]
pub use host::adapters_blocking;
pub use host::{AdapterDescription, Options, Tier, Tune, WgpuBackend, WgpuBuffer, adapters};
