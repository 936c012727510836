//! Quantized weights under candle's names: block types, tensors, products, and the files that hold them.
//!
//! A [`QTensor`] is a weight in llama.cpp's blocks. Q4_0, Q4_1, Q8_0, Q4_K and Q6_K stay packed on the device, and products read the
//! blocks there. Q5_0 and Q8_1 become Q8_0, and Q3_K becomes Q6_K, without a loss. The rest (Q5_1, Q2_K, Q5_K, Q8_K) is
//! unpacked when it is loaded. Either way a tensor gives back the very blocks that it was made from.
//!
//! ```
//! use tallow::quantized::{GgmlDType, QMatMul, QTensor};
//! use tallow::{Device, Module, Tensor};
//!
//! let w = Tensor::randn(0f32, 1., (8, 64), &Device::Cpu)?;
//! let packed = QTensor::quantize(&w, GgmlDType::Q4_0)?;
//! assert_eq!(packed.storage_size_in_bytes(), 8 * 2 * 18);
//! let y = QMatMul::from_qtensor(packed)?.forward(&Tensor::randn(0f32, 1., (3, 64), &Device::Cpu)?)?;
//! assert_eq!(y.dims(), [3, 8]);
//! # Ok::<(), tallow::Error>(())
//! ```

mod blocks;
mod dtype;
pub mod ggml_file;
pub mod gguf_file;
mod matmul;
mod qtensor;

pub use dtype::GgmlDType;
pub use matmul::QMatMul;
pub use qtensor::{QStorage, QTensor};
