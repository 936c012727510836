//! Running results along an axis.

use super::Tensor;
use crate::{Dim, Result, autograd::rules::index as rules};
use tallow_graph::{kernel::ScanOp, ops};

impl Tensor {
    fn scan<T: Dim>(&self, name: &'static str, op: ScanOp, axis: T) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), name)?;
        let x = self.input();
        let running = self.result(ops::scan(op, x.edge(), axis)?);
        rules::scan(running, name, op, &x, axis).reshape(self.shape())
    }

    /// Running sums along `axis`. Integers wrap; floats smaller than F32 are summed in F32.
    pub fn cumsum<T: Dim>(&self, axis: T) -> Result<Tensor> {
        self.scan("cumsum", ScanOp::Sum, axis)
    }

    /// Running products along `axis`. Integers wrap; floats smaller than F32 are multiplied in F32.
    pub fn cumprod<T: Dim>(&self, axis: T) -> Result<Tensor> {
        self.scan("cumprod", ScanOp::Prod, axis)
    }

    /// The largest element so far along `axis`; NaN wins. Of several, the last gets the gradient.
    pub fn cummax<T: Dim>(&self, axis: T) -> Result<Tensor> {
        self.scan("cummax", ScanOp::Max, axis)
    }

    /// The smallest element so far along `axis`; NaN wins. Of several, the last gets the gradient.
    pub fn cummin<T: Dim>(&self, axis: T) -> Result<Tensor> {
        self.scan("cummin", ScanOp::Min, axis)
    }
}
