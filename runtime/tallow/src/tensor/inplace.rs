//! Writes into a value: they install a new version, which clones and views of the tensor see. Results that were built before
//! keep the old one.

use super::Tensor;
use crate::{Dim, Error, Result};
use tallow_graph::{Edge, Scalar, ops};

impl Tensor {
    /// Writes `source` at positions `start..` of `axis`. Other axes must have equal sizes.
    pub fn slice_set<T: Dim>(&self, source: &Tensor, axis: T, start: usize) -> Result<()> {
        let axis = axis.to_index(self.shape(), "slice_set")?;
        let fits = source.rank() == self.rank()
            && self.dims().iter().zip(source.dims()).enumerate().all(|(a, (d, s))| a == axis || d == s);
        if !fits {
            let message = format!("{:?} does not fit into {:?} along axis {axis}", source.shape(), self.shape());
            return Err(Error::op("slice_set", message));
        }
        let window = self.narrow(axis, start, source.dims()[axis])?;
        window.assign(source)
    }

    /// Sets all elements (of what this view shows) to a value.
    pub fn const_set(&self, value: f64) -> Result<()> {
        let shape = crate::Shape::new(&[]);
        self.assign(&Tensor::constant(Scalar::F(value), self.dtype(), shape, self.device())?)
    }

    /// Sets all elements to 0.
    pub fn zero_set(&self) -> Result<()> {
        self.const_set(0.0)
    }

    /// Sets all elements to 1.
    pub fn one_set(&self) -> Result<()> {
        self.const_set(1.0)
    }

    /// Writes `source` (which broadcasts) over all that this view shows, and installs the result as the new version.
    pub fn assign(&self, source: &Tensor) -> Result<()> {
        if self.view.strides.iter().zip(self.dims()).any(|(&s, &d)| s == 0 && d > 1) {
            return Err(Error::op("slice_set", "a broadcast view shows elements more than once and cannot be written"));
        }
        let source = source.edge();
        // The version is read and replaced under one lock, so that no other write is lost.
        let mut version = self.cell.version.lock();
        let node = ops::write(&version, self.view.clone(), source)?;
        *version = node;
        Ok(())
    }
}

/// A tensor whose value can be replaced: a parameter.
#[derive(Clone)]
pub struct Var(Tensor);

impl Var {
    /// A variable that starts with the value of `tensor`.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        Ok(Self(tensor.copy()?))
    }

    /// The value as a tensor: it shows what is set later.
    pub fn as_tensor(&self) -> &Tensor {
        &self.0
    }

    /// Replaces the value. Results that were built before keep the old one.
    pub fn set(&self, source: &Tensor) -> Result<()> {
        if !source.device().same_device(self.0.device()) {
            let message = format!(
                "the variable is on {:?}, the value on {:?}: move it with to_device",
                self.0.device(),
                source.device()
            );
            return Err(Error::op("set", message));
        }
        if source.shape() != self.0.shape() || source.dtype() != self.0.dtype() {
            let (to, from) = (self.0.shape(), source.shape());
            let message = format!("cannot set {to:?} {} to {from:?} {}", self.0.dtype(), source.dtype());
            return Err(Error::op("set", message));
        }
        let Edge { node, view } = source.edge();
        // A whole value is shared; a view is copied.
        let node = if view.is_whole(node.shape().elem_count()) && node.shape() == self.0.shape() {
            node
        } else {
            ops::copy(Edge { node, view })?
        };
        *self.0.cell.version.lock() = node;
        Ok(())
    }
}

impl std::ops::Deref for Var {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.0
    }
}
