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

impl<M: Module> Module for Option<&M> {
    /// The module's result; without a module, `x` itself.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            Some(module) => module.forward(x),
            None => Ok(x.clone()),
        }
    }
}

/// A layer that behaves differently in training: dropout, batch norm. Every [`Module`] is one that does not.
pub trait ModuleT {
    /// Builds the computation for `x`.
    fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor>;
}

impl<M: Module> ModuleT for M {
    fn forward_t(&self, x: &Tensor, _train: bool) -> Result<Tensor> {
        self.forward(x)
    }
}

impl Tensor {
    /// Applies a module that behaves differently in training: `x.apply_t(&dropout, true)?`.
    pub fn apply_t<M: ModuleT>(&self, module: &M, train: bool) -> Result<Tensor> {
        module.forward_t(self, train)
    }
}
