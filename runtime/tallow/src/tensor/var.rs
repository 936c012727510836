//! Variables: tensors whose value is replaced by training, and where gradients are recorded from.

use super::{Tensor, create::NdArray, track::Version};
use crate::{DType, Device, Element, Error, IntoShape, Result, autograd::TapeNode};
use tallow_graph::{Edge, ops};

/// A tensor whose value can be replaced: a parameter. What is computed from it is recorded, so that [`Tensor::backward`] finds
/// its gradient. Clones, and clones of [`Var::as_tensor`], are the same variable.
///
/// ```
/// use tallow::{Device, Var};
/// let w = Var::new(&[1f32, 2.], &Device::Cpu)?;
/// let grads = w.sqr()?.sum_all()?.backward()?;
/// let step = (grads.get(&w).expect("the sum depends on w") * 0.1)?;
/// w.set(&(w.as_tensor() - step)?)?;
/// assert_eq!(w.to_vec1::<f32>()?, [0.8, 1.6]);
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Var(Tensor);

impl Var {
    /// A variable that starts with the value of `tensor`.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        let start = tensor.detach().copy()?;
        let tape = TapeNode::leaf(start.shape().clone(), start.dtype(), start.device().clone());
        Ok(Self(start.on_tape(tape)))
    }

    /// A variable from a number, a slice, or nested arrays.
    pub fn new<A: NdArray>(array: A, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::new(array, device)?)
    }

    /// Zeros to start with.
    pub fn zeros(shape: impl IntoShape, dtype: DType, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::zeros(shape, dtype, device)?)
    }

    /// Ones to start with.
    pub fn ones(shape: impl IntoShape, dtype: DType, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::ones(shape, dtype, device)?)
    }

    /// Uniform random numbers in low..high to start with.
    pub fn rand<T: Element>(low: T, high: T, shape: impl IntoShape, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::rand(low, high, shape, device)?)
    }

    /// Normal random numbers to start with.
    pub fn randn<T: Element>(mean: T, std: T, shape: impl IntoShape, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::randn(mean, std, shape, device)?)
    }

    /// A variable of this shape from elements in row-major order.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl crate::ShapeWithHole, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::from_vec(values, shape, device)?)
    }

    /// A variable of this shape from elements in row-major order.
    pub fn from_slice<T: Element>(values: &[T], shape: impl crate::ShapeWithHole, device: &Device) -> Result<Self> {
        Self::from_tensor(&Tensor::from_slice(values, shape, device)?)
    }

    /// The value as a tensor: it shows what is set later, and gradients reach it.
    pub fn as_tensor(&self) -> &Tensor {
        &self.0
    }

    /// The value as a tensor that no gradient reaches: it shows what is set later.
    pub fn as_detached_tensor(&self) -> Tensor {
        self.0.detach()
    }

    /// The value as a tensor, which stays this variable.
    pub fn into_inner(self) -> Tensor {
        self.0
    }

    /// Replaces the value. Results that were built before keep the old one, and so do their gradients. No gradient goes from
    /// the new value back into what it was computed from: this is an update, not an operation.
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
        let mut version = self.0.cell.version.lock();
        let Version { node: now, tape, .. } = &mut *version;
        *now = node;
        if let Some(tape) = tape {
            tape.was_set();
        }
        Ok(())
    }
}

impl std::ops::Deref for Var {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        &self.0
    }
}
