//! Normalisation with its weights.

use crate::config::NormKind;
use tallow::{Result, Tensor};

/// A norm over the last axis, with a weight and perhaps a bias.
#[derive(Clone)]
pub struct Norm {
    kind: NormKind,
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Norm {
    /// A norm whose weight (and bias) have the width of the last axis.
    pub fn new(kind: NormKind, weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { kind, weight, bias }
    }

    /// Same shape in and out.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let normed = match self.kind {
            NormKind::Rms { eps } => x.rms_norm(eps)?,
            NormKind::Layer { eps } => x.layer_norm(eps)?,
        };
        let scaled = normed.broadcast_mul(&self.weight)?;
        match &self.bias {
            Some(bias) => scaled.broadcast_add(bias),
            None => Ok(scaled),
        }
    }
}
