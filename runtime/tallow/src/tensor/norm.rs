//! Norms and softmax along the last axis.

use super::Tensor;
use crate::Result;
use tallow_graph::ops;

impl Tensor {
    /// x / sqrt(mean(x^2) + eps) along the last axis (Zhang and Sennrich, 2019); multiply by the weight afterwards, it is
    /// fused.
    pub fn rms_norm(&self, eps: f64) -> Result<Tensor> {
        Ok(self.result(ops::rms_norm(self.edge(), eps)?))
    }

    /// (x - mean) / sqrt(var + eps) along the last axis (Ba et al., 2016), without weight and bias.
    pub fn layer_norm(&self, eps: f64) -> Result<Tensor> {
        Ok(self.result(ops::layer_norm(self.edge(), eps)?))
    }

    /// exp(x - max) / sum(exp(x - max)) along the last axis.
    pub fn softmax_last_dim(&self) -> Result<Tensor> {
        Ok(self.result(ops::softmax(self.edge())?))
    }
}
