//! Neural networks on any GPU that WebGPU reaches, in any browser, and on plain CPUs.
//!
//! ```
//! use tallow::{Device, Tensor};
//!
//! let device = Device::Cpu;
//! let a = Tensor::randn(0f32, 1., (2, 3), &device)?;
//! let b = Tensor::randn(0f32, 1., (3, 4), &device)?;
//! let c = a.matmul(&b)?;
//! println!("{c}");
//! assert_eq!(c.dims(), [2, 4]);
//! # Ok::<(), tallow::Error>(())
//! ```

mod autograd;
mod block_on;
mod context;
mod custom;
mod device;
mod dims;
pub mod fft;
pub mod formats;
pub mod generation;
#[cfg(feature = "linalg")]
pub mod linalg;
mod module;
pub mod quantized;
mod tensor;
#[cfg(feature = "text")]
pub mod text;
pub mod utils;

pub use autograd::{GradStore, TensorId, checkpoint, grad, grad_of, no_grad};
pub use block_on::block_on;
pub use context::Context;
pub use custom::{CustomOp, CustomOpBuilder};
pub use device::Device;
pub use dims::{D, Dim, Dims, IntoShape, ShapeWithHole};
pub use formats::{npy, pickle, safetensors};
pub use module::{Module, ModuleT};
/// candle's name of [`Element`].
pub use tallow_graph::Element as WithDType;
pub use tallow_graph::{
    Backend, Counters, DType, Element, Error, F8E4M3, F8E5M2, Info, Options, Result, Shape, View,
    kernel::{Activations, HostView, HostViewMut},
};
pub use tensor::{
    Attention, CmpOp, IndexOp, PrintOptions, StridedIndex, Tensor, TensorIndexer, TensorOrScalar, TensorScalar,
    ToUsize2, Var, display, set_print_options,
};

/// The traits and types that most programs use.
pub mod prelude {
    pub use crate::{D, DType, Device, IndexOp, Module, ModuleT, Result, Tensor, Var};
}
