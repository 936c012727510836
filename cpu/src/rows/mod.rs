//! Kernels over one row or a small tile, on the calling thread.

pub mod attention;
pub mod norm;
pub mod reduce;
pub mod rope;
pub mod softmax;

pub use attention::{Attention, Mask, Rows, attention_tile};
pub use norm::{layer_norm, layer_norm_in_place, rms_norm, rms_norm_in_place};
pub use reduce::{argmax, argmin, axpy, dot, max, min, sum};
pub use rope::{RopePairing, rope};
pub use softmax::{log_softmax, softmax};
