//! What a layer is.

use crate::{Result, Tensor};

/// Something that maps a tensor to a tensor.
pub trait Module {
    /// Builds the computation for `x`.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;
}

impl<F: Fn(&Tensor) -> Result<Tensor>> Module for F {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self(x)
    }
}
