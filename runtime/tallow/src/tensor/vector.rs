//! Products of vectors.

use super::Tensor;
use crate::{Error, Result};

impl Tensor {
    /// The sum of products of two vectors of one length: a scalar.
    pub fn dot(&self, rhs: &Tensor) -> Result<Tensor> {
        let (m, n) = (self.dims1()?, rhs.dims1()?);
        if m != n {
            return Err(Error::op("dot", format!("vectors of {m} and {n} elements")));
        }
        self.reshape((1, n))?.matmul(&rhs.reshape((n, 1))?)?.reshape(())
    }

    /// This matrix `[m, k]` times a vector `[k]`: `[m]`.
    pub fn mv(&self, rhs: &Tensor) -> Result<Tensor> {
        let ((_, k), n) = (self.dims2()?, rhs.dims1()?);
        if k != n {
            return Err(Error::op("mv", format!("a matrix {:?} and a vector of {n} elements", self.shape())));
        }
        self.matmul(&rhs.unsqueeze(1)?)?.squeeze(1)
    }

    /// All products of two vectors' elements: `[m]` and `[n]` give `[m, n]`.
    pub fn outer(&self, rhs: &Tensor) -> Result<Tensor> {
        let (m, n) = (self.dims1()?, rhs.dims1()?);
        self.reshape((m, 1))?.broadcast_mul(&rhs.reshape((1, n))?)
    }
}
