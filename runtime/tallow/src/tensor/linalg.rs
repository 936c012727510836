//! Matrix products and attention.

use super::Tensor;
use crate::{
    Activations, Error, Result,
    autograd::{Input, rules},
};
use smallvec::SmallVec;
use tallow_graph::ops;
pub use tallow_graph::ops::Attention;

impl Tensor {
    /// [..., m, k] x [..., k, n] -> [..., m, n]; leading axes must be equal.
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let lead = |t: &Tensor| t.dims()[..t.rank().saturating_sub(2)].to_vec();
        if lead(self) != lead(rhs) {
            let message =
                format!("leading axes of {:?} and {:?} differ: use broadcast_matmul", self.shape(), rhs.shape());
            return Err(Error::op("matmul", message));
        }
        self.broadcast_matmul(rhs)
    }

    /// [..., m, k] x [..., k, n] -> [..., m, n]; leading axes are stretched.
    pub fn broadcast_matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.input(), rhs.input());
        Ok(rules::linalg::matmul(self.result(ops::matmul(a.edge(), b.edge())?), &a, &b))
    }

    /// x [..., k] times the transpose of a weight [n, k], plain or packed -> [..., n].
    pub fn linear(&self, weight: &Tensor, activations: Activations) -> Result<Tensor> {
        let (x, w) = (self.input(), weight.input());
        let product = self.result(ops::linear(x.edge(), w.edge(), activations)?);
        let shape: crate::Shape = self.dims()[..self.rank() - 1].iter().copied().chain([weight.dims()[0]]).collect();
        rules::linalg::linear(product, &x, &w).reshape(shape)
    }

    /// Scaled dot-product attention: this is q [batch, queries, heads, width]; k and v are [batch, keys, kv heads, width]. See
    /// [`Attention`] for masks; gives [batch, queries, heads, width].
    pub fn attention(&self, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, options: Attention) -> Result<Tensor> {
        let (query, key, value, mask) = (self.input(), k.input(), v.input(), mask.map(Tensor::input));
        let node =
            ops::attention(query.edge(), key.edge(), value.edge(), mask.as_ref().map(|mask| mask.edge()), options)?;
        let inputs: SmallVec<[&Input<'_>; 4]> = [&query, &key, &value].into_iter().chain(&mask).collect();
        Ok(rules::attention::attention(self.result(node), &inputs, options))
    }
}
