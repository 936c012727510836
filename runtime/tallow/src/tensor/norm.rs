//! Norms and softmax along the last axis.

use super::Tensor;
use crate::{Result, autograd::rules::norm as rules};
use tallow_graph::ops;

impl Tensor {
    /// x / sqrt(mean(x^2) + eps) along the last axis (Zhang and Sennrich, 2019); multiply by the weight afterwards, it is
    /// fused.
    pub fn rms_norm(&self, eps: f64) -> Result<Tensor> {
        let x = self.input();
        Ok(rules::rms_norm(self.result(ops::rms_norm(x.edge(), eps)?), &x, eps))
    }

    /// (x - mean) / sqrt(var + eps) along the last axis (Ba et al., 2016), without weight and bias.
    pub fn layer_norm(&self, eps: f64) -> Result<Tensor> {
        let x = self.input();
        Ok(rules::layer_norm(self.result(ops::layer_norm(x.edge(), eps)?), &x, eps))
    }

    /// exp(x - max) / sum(exp(x - max)) along the last axis.
    pub fn softmax_last_dim(&self) -> Result<Tensor> {
        let x = self.input();
        Ok(rules::softmax(self.result(ops::softmax(x.edge())?), &x))
    }
}
