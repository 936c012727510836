//! Tensors put together: concatenation, stacking, repetition.
//!
//! All of it is one thing: parts are written into windows of a fresh value, one kernel a part.

use super::Tensor;
use crate::{
    Dim, Error, IntoShape, Result, Shape, View,
    autograd::{self, Input, Keep},
};
use tallow_graph::{Edge, MAX_RANK, Scalar, ops};

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

impl AsRef<Tensor> for crate::Var {
    fn as_ref(&self) -> &Tensor {
        self.as_tensor()
    }
}

/// What lies where no part does.
#[derive(Clone, Copy)]
pub(super) enum Ground<'a> {
    /// A number.
    Number(Scalar),
    /// The elements of a tensor of the result's shape.
    Tensor(&'a Tensor),
}

/// A tensor of this shape with each part at its place: its first element lies at the position given, one number an axis.
/// Parts do not overlap, have the dtype and device of the first, and lie inside: callers have checked it.
pub(super) fn assemble(
    op: &'static str,
    shape: &Shape,
    ground: Ground,
    parts: &[(&Tensor, Vec<usize>)],
) -> Result<Tensor> {
    let Some((first, _)) = parts.first() else { return Err(Error::op(op, "there is nothing to put together")) };
    if shape.elem_count() > isize::MAX as usize {
        return Err(Error::op(op, format!("{shape:?} has too many elements")));
    }
    let mut inputs: Vec<Input<'_>> = Vec::with_capacity(parts.len() + 1);
    let mut node = match ground {
        Ground::Number(value) => ops::full(first.device().engine(), shape.clone(), first.dtype(), value)?,
        Ground::Tensor(tensor) => {
            let old = tensor.input();
            let Edge { node, view } = old.edge();
            inputs.push(old);
            let whole = view.is_whole(node.shape().elem_count()) && node.shape() == shape;
            if whole { node } else { ops::copy(Edge { node, view })? }
        }
    };
    let grounded = inputs.len();
    let mut windows: Vec<View> = Vec::with_capacity(parts.len());
    for (part, starts) in parts {
        let places = starts.iter().zip(part.dims()).enumerate();
        let window =
            places.fold(View::contiguous(shape.clone()), |view, (axis, (&at, &len))| view.narrow(axis, at, len));
        let new = part.input();
        if part.elem_count() > 0 {
            node = ops::write(&node, window.clone(), new.edge())?;
        }
        windows.push(window);
        inputs.push(new);
    }
    let inputs: Vec<&Input<'_>> = inputs.iter().collect();
    let keep = vec![Keep::NOTHING; inputs.len()];
    // The gradient of a part is what lies in its window; that of the ground is what lies in none.
    Ok(first.result(node).recorded(op, &inputs, &keep, move |saved, grad| {
        saved.each(|i| match i.checked_sub(grounded).and_then(|part| windows.get(part)) {
            Some(window) => Ok(grad.whole()?.viewed(op, |_| window.clone())),
            None => {
                let zero = Tensor::constant(Scalar::F(0.0), grad.dtype(), Shape::new(&[]), grad.device())?;
                let mut ground = grad.clone();
                for window in windows.iter().filter(|window| window.shape.elem_count() > 0) {
                    ground = autograd::overwrite(&ground, window, &zero)?;
                }
                Ok(ground)
            }
        })
    }))
}

/// An error unless all have one dtype and one device.
fn alike(op: &'static str, tensors: &[&Tensor]) -> Result<()> {
    let Some(first) = tensors.first() else { return Err(Error::op(op, "there are no tensors to put together")) };
    for other in tensors {
        if other.dtype() != first.dtype() {
            let message = format!("dtypes {} and {} differ: convert one with to_dtype", first.dtype(), other.dtype());
            return Err(Error::op(op, message));
        }
        if !other.device().same_device(first.device()) {
            let message = format!("tensors on {:?} and {:?}: move one with to_device", first.device(), other.device());
            return Err(Error::op(op, message));
        }
    }
    Ok(())
}

impl Tensor {
    /// Tensors one after another along an axis. All other axes must have equal sizes.
    ///
    /// ```
    /// use tallow::{DType, Device, Tensor};
    /// let a = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
    /// let b = Tensor::ones((2, 1), DType::F32, &Device::Cpu)?;
    /// assert_eq!(Tensor::cat(&[&a, &b], 1)?.to_vec2::<f32>()?[0], [0., 0., 0., 1.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn cat<A: AsRef<Tensor>, D: Dim>(args: &[A], axis: D) -> Result<Tensor> {
        let args: Vec<&Tensor> = args.iter().map(AsRef::as_ref).collect();
        alike("cat", &args)?;
        let Some(&first) = args.first() else { return Err(Error::op("cat", "there are no tensors to put together")) };
        let axis = axis.to_index(first.shape(), "cat")?;
        let mut sizes = first.dims().to_vec();
        sizes[axis] = 0;
        let mut parts = Vec::with_capacity(args.len());
        for arg in &args {
            let fits = arg.rank() == first.rank()
                && arg.dims().iter().zip(first.dims()).enumerate().all(|(a, (x, y))| a == axis || x == y);
            if !fits {
                let message = format!("{:?} and {:?} differ in more than axis {axis}", first.shape(), arg.shape());
                return Err(Error::op("cat", message));
            }
            let mut starts = vec![0; first.rank()];
            starts[axis] = sizes[axis];
            sizes[axis] = sizes[axis].saturating_add(arg.dims()[axis]);
            parts.push((*arg, starts));
        }
        if let [only] = args[..] {
            return only.fresh("cat");
        }
        assemble("cat", &Shape::new(&sizes), Ground::Number(Scalar::F(0.0)), &parts)
    }

    /// Tensors of one shape along a new axis.
    pub fn stack<A: AsRef<Tensor>, D: Dim>(args: &[A], axis: D) -> Result<Tensor> {
        let args: Vec<&Tensor> = args.iter().map(AsRef::as_ref).collect();
        alike("stack", &args)?;
        let Some(&first) = args.first() else { return Err(Error::op("stack", "there are no tensors to put together")) };
        if let Some(other) = args.iter().find(|a| a.shape() != first.shape()) {
            let message = format!("shapes {:?} and {:?} differ", first.shape(), other.shape());
            return Err(Error::op("stack", message));
        }
        if first.rank() == MAX_RANK {
            return Err(Error::op("stack", format!("{:?} has as many axes as can be", first.shape())));
        }
        let grown: Shape = first.dims().iter().copied().chain([1]).collect();
        let axis = axis.to_index(&grown, "stack")?;
        let args: Vec<Tensor> = args.iter().map(|a| a.unsqueeze(axis)).collect::<Result<_>>()?;
        Tensor::cat(&args, axis)
    }

    /// The whole tensor several times along each axis: `repeats` has one number an axis, from the first on (axes after
    /// those stay). With more numbers than axes, new axes come first.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[1u32, 2], &Device::Cpu)?;
    /// assert_eq!(x.repeat(2)?.to_vec1::<u32>()?, [1, 2, 1, 2]);
    /// assert_eq!(x.repeat((2, 1))?.to_vec2::<u32>()?, [[1, 2], [1, 2]]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn repeat(&self, repeats: impl IntoShape) -> Result<Tensor> {
        let repeats = repeats.into_shape();
        if repeats.rank() > MAX_RANK {
            return Err(Error::op("repeat", format!("{repeats:?} names more than {MAX_RANK} axes")));
        }
        let lead = repeats.rank().saturating_sub(self.rank());
        let sizes: Vec<usize> = std::iter::repeat_n(1, lead).chain(self.dims().iter().copied()).collect();
        let mut result = self.reshape(sizes.as_slice())?;
        for (axis, &times) in repeats.iter().enumerate().filter(|(_, times)| **times != 1) {
            // [before, axis, after] gains an axis that repeats; together the two are the longer axis.
            let dims = result.dims().to_vec();
            let before = Shape::new(&dims[..axis]).elem_count();
            let after = Shape::new(&dims[axis + 1..]).elem_count();
            let mut grown = dims.clone();
            grown[axis] = dims[axis].saturating_mul(times);
            let copies =
                result.reshape((before, 1, dims[axis], after))?.broadcast_as((before, times, dims[axis], after))?;
            result = copies.reshape(grown)?;
        }
        // Nothing repeated, or an axis of 1 only: so far that is a view.
        result.apart_from(self, "repeat")
    }

    /// The whole tensor several times along each axis, as numpy's tile: with fewer numbers than axes, they belong to the last
    /// axes.
    pub fn tile(&self, repeats: impl IntoShape) -> Result<Tensor> {
        let repeats = repeats.into_shape();
        let lead = self.rank().saturating_sub(repeats.rank());
        self.repeat(std::iter::repeat_n(1, lead).chain(repeats.iter().copied()).collect::<Shape>())
    }

    /// Elements moved along an axis by `shift` positions; those that leave at one end come in at the other.
    pub fn roll<D: Dim>(&self, shift: i32, axis: D) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "roll")?;
        let size = self.dims()[axis];
        if size == 0 {
            return self.fresh("roll");
        }
        let shift = i64::from(shift).rem_euclid(i64::try_from(size).unwrap_or(i64::MAX)) as usize;
        if shift == 0 {
            return self.fresh("roll");
        }
        Tensor::cat(&[self.narrow(axis, size - shift, shift)?, self.narrow(axis, 0, size - shift)?], axis)
    }
}
