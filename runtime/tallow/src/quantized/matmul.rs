//! [`QMatMul`]: products with quantized weights.

use super::QTensor;
use crate::{Activations, DType, Module, Result, Tensor};
use std::sync::Arc;

/// x -> x W^T for a weight [out, in], packed or plain.
#[derive(Debug, Clone)]
pub enum QMatMul {
    /// Packed: products read the blocks.
    QTensor(Arc<QTensor>),
    /// Plain.
    Tensor(Tensor),
    /// Plain, in F16: products are made in F16.
    TensorF16(Tensor),
}

impl QMatMul {
    /// Of a weight, which stays packed unless it is F32, F16 or BF16; those become F32.
    ///
    /// # Errors
    /// The weight has no two axes.
    pub fn from_arc(weight: Arc<QTensor>) -> Result<Self> {
        weight.matrix()?;
        if weight.dtype().is_quantized() {
            return Ok(Self::QTensor(weight));
        }
        Ok(Self::Tensor(weight.dequantize(&weight.device())?))
    }

    /// [`QMatMul::from_arc`] of a weight that nobody else holds.
    ///
    /// # Errors
    /// The weight has no two axes.
    pub fn from_qtensor(weight: QTensor) -> Result<Self> {
        Self::from_arc(Arc::new(weight))
    }

    /// An older name of [`QMatMul::from_arc`].
    ///
    /// # Errors
    /// The weight has no two axes.
    pub fn from_weights(weight: Arc<QTensor>) -> Result<Self> {
        Self::from_arc(weight)
    }

    /// The weight in F16.
    ///
    /// # Errors
    /// The device has no room.
    pub fn dequantize_f16(&self) -> Result<Tensor> {
        match self {
            Self::QTensor(weight) => weight.dequantize_f16(&weight.device()),
            Self::Tensor(weight) => weight.to_dtype(DType::F16),
            Self::TensorF16(weight) => Ok(weight.clone()),
        }
    }

    /// The product with the weight and `x` in F16, in `x`'s dtype.
    ///
    /// # Errors
    /// The shapes do not fit.
    pub fn forward_via_f16(&self, x: &Tensor) -> Result<Tensor> {
        x.to_dtype(DType::F16)?.linear(&self.dequantize_f16()?, Activations::F32)?.to_dtype(x.dtype())
    }

    /// The product with a choice of how packed weights take `x`: in F32, or rounded to 8 bits by blocks of 32 as llama.cpp and
    /// candle do on CPUs, which is faster there.
    ///
    /// # Errors
    /// The shapes do not fit.
    pub fn forward_with(&self, x: &Tensor, activations: Activations) -> Result<Tensor> {
        match self {
            Self::QTensor(weight) => x.to_dtype(DType::F32)?.linear(weight.matrix()?, activations)?.to_dtype(x.dtype()),
            Self::Tensor(weight) => x.linear(weight, activations),
            Self::TensorF16(weight) => x.to_dtype(DType::F16)?.linear(weight, activations)?.to_dtype(x.dtype()),
        }
    }
}

impl Module for QMatMul {
    /// x [..., in] -> [..., out], only the weights rounded.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, Activations::F32)
    }
}
