//! Projections by plain or packed weights.

use tallow::{Activations, Result, Tensor};

/// x -> x W^T + b, for a weight [out, in], plain or packed.
#[derive(Clone)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    activations: Activations,
}

impl Linear {
    /// A projection. `activations` matters for packed weights only.
    pub fn new(weight: Tensor, bias: Option<Tensor>, activations: Activations) -> Self {
        Self { weight, bias, activations }
    }

    /// [..., in] -> [..., out]
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.linear(&self.weight, self.activations)?;
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }

    /// Rows of the output.
    pub fn out_features(&self) -> usize {
        self.weight.dims()[0]
    }

    /// The weight.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }
}

/// Several projections of one input: one weight where their types allow it, else one each (which the planner still launches
/// together where it can).
#[derive(Clone)]
pub struct FusedLinear {
    parts: Vec<Linear>,
    widths: Vec<usize>,
}

impl FusedLinear {
    /// Projections with outputs of these widths: either one part for all, or one part each.
    pub fn new(parts: Vec<Linear>, widths: Vec<usize>) -> Self {
        Self { parts, widths }
    }

    /// [..., in] -> one [..., width] for each projection.
    pub fn forward(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        if let [all] = self.parts.as_slice() {
            let y = all.forward(x)?;
            let last = y.rank() - 1;
            let mut start = 0;
            return self
                .widths
                .iter()
                .map(|&width| {
                    start += width;
                    y.narrow(last, start - width, width)
                })
                .collect();
        }
        self.parts.iter().map(|part| part.forward(x)).collect()
    }
}
