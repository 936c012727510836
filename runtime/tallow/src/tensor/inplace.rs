//! Writes into a value: they install a new version, which clones and views of the tensor see. Results that were built before
//! keep the old one. Gradients go through a write: what was written gets that of the window, the old value that of the rest.

use super::{
    Tensor,
    scalar::exact,
    track::{Track, Version},
};
use crate::{
    Dim, Element, Error, Result,
    autograd::{self, Input, TapeInput, TapeNode},
};
use smallvec::smallvec;
use std::sync::Arc;
use tallow_graph::{Scalar, ops};

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

    /// Sets all elements (of what this view shows) to a value. An integer dtype must hold it exactly.
    pub fn const_set<T: Element>(&self, value: T) -> Result<()> {
        let value = exact("const_set", self.dtype(), Scalar::from_element(value))?;
        self.assign(&Tensor::constant(value, self.dtype(), crate::Shape::new(&[]), self.device())?)
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
        if source.layout().broadcast_to(self.shape()).is_none() {
            let message = format!("{:?} does not stretch to {:?}", source.shape(), self.shape());
            return Err(Error::op("slice_set", message));
        }
        let new = source.input();
        // The version is read and replaced under one lock, so that no other write is lost.
        let mut version = self.cell.version.lock();
        let node = ops::write(&version.node, self.view.clone(), new.edge())?;
        let tape = self.written(&version, &new)?;
        if let Some(tape) = tape {
            version.tape = Some(tape);
            version.writes += 1;
        }
        version.node = node;
        Ok(())
    }

    /// The tape of the whole value after `new` was written into what this tensor shows of it; `None` where it stays as it is.
    fn written(&self, version: &Version, new: &Input<'_>) -> Result<Option<Arc<TapeNode>>> {
        if !autograd::enabled() {
            // Not an operation, but a variable's value is another one now.
            if let Some(leaf) = version.tape.as_ref().filter(|tape| tape.is_leaf()) {
                leaf.was_set();
            }
            return Ok(None);
        }
        match (&version.tape, new.tape()) {
            (Some(old), None) if old.is_leaf() => {
                old.was_set();
                return Ok(None);
            }
            (Some(old), Some(_)) if old.is_leaf() => {
                let message = "a variable is where gradients end, so a value that has one cannot be written into it: detach the \
                               value, or compute a new tensor with slice_assign";
                return Err(Error::op("slice_set", message));
            }
            (None, _) if matches!(self.track, Track::Taped(_)) => {
                let message = "the tensor is a part of a value kept for a gradient: copy it before it is written";
                return Err(Error::op("slice_set", message));
            }
            (None, None) => return Ok(None),
            _ => {}
        }
        let (shape, dtype) = (version.node.shape().clone(), version.node.dtype());
        if !dtype.is_float() {
            return Ok(None);
        }
        let device = self.device().clone();
        let old =
            TapeInput { tape: version.tape.clone(), shape: shape.clone(), dtype, device: device.clone(), value: None };
        let window = self.view.clone();
        let of = (shape.clone(), dtype, device);
        let inputs = smallvec![old, new.on_tape(false)];
        Ok(Some(TapeNode::op("slice_set", version.writes + 1, of, inputs, None, move |saved, grad| {
            autograd::write_gradients(saved, grad, &window, &shape)
        })))
    }
}
