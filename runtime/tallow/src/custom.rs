//! Operations that users write: a closure for the CPU, WGSL, CUDA C, whichever they have, with a gradient if they give one.

use crate::{
    DType, Error, Result, Shape, Tensor,
    autograd::{Grads, Input, Keep, no_grad},
};
use std::{borrow::Borrow, sync::Arc};
use tallow_graph::{
    kernel::{Custom, HostView, HostViewMut, Wgsl},
    ops,
};

type ShapeRule = dyn Fn(&[&Shape]) -> Result<Shape> + Send + Sync;
type Backward = dyn Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync;

/// An operation of your own, on any number of tensors. It is lazy and planned like any other; a device runs the source of its
/// language, and an operation without one is refused with an error when it is applied.
///
/// ```
/// use tallow::{CustomOp, Device, Tensor};
///
/// let cube = CustomOp::new("cube")
///     .cpu(|inputs, _, out| {
///         let x = inputs[0].as_slice::<f32>()?;
///         out.as_mut_slice::<f32>()?.iter_mut().zip(x).for_each(|(out, x)| *out = x * x * x);
///         Ok(())
///     })
///     .wgsl_elements("fn element(i: u32) { out[i] = in0[i] * in0[i] * in0[i]; }")
///     .backward(|inputs, _, grad| Ok(vec![Some((grad * (inputs[0].sqr()? * 3.0)?)?)]))
///     .build();
/// let x = Tensor::new(&[1f32, 2., 3.], &Device::Cpu)?;
/// assert_eq!(x.apply_op1(&cube)?.to_vec1::<f32>()?, [1., 8., 27.]);
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Clone)]
pub struct CustomOp(Arc<Definition>);

struct Definition {
    kernel: Arc<Custom>,
    shape: Option<Box<ShapeRule>>,
    dtype: Option<DType>,
    backward: Option<Arc<Backward>>,
}

/// A [`CustomOp`] in the making.
#[must_use = "nothing is made before build"]
pub struct CustomOpBuilder {
    kernel: Custom,
    shape: Option<Box<ShapeRule>>,
    dtype: Option<DType>,
    backward: Option<Arc<Backward>>,
}

impl CustomOpBuilder {
    /// The shape of the result for the shapes of the operands. Without this, it is that of the first operand.
    pub fn shape(mut self, rule: impl Fn(&[&Shape]) -> Result<Shape> + Send + Sync + 'static) -> Self {
        self.shape = Some(Box::new(rule));
        self
    }

    /// The dtype of the result. Without this, it is that of the first operand.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// For the CPU: a closure that gets the operands, contiguous, and the scalars, and fills the result, whose contents are
    /// undefined before. Its errors and panics come up as errors where the result is read. It runs while the device is at
    /// work, so it must not use tensors.
    pub fn cpu(
        mut self,
        run: impl Fn(&[HostView<'_>], &[f64], &mut HostViewMut<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.kernel = self.kernel.with_cpu(Box::new(run));
        self
    }

    /// For WebGPU: WGSL with a `fn element(i: u32)` that stores `out[i]`, called once for each element of the result. See
    /// [`CustomOpBuilder::wgsl_kernel`] for what the source may use.
    pub fn wgsl_elements(mut self, source: impl Into<String>) -> Self {
        self.kernel = self.kernel.with_wgsl(Wgsl::Elements(source.into()));
        self
    }

    /// For WebGPU: WGSL with an entry point `main` (`@compute @workgroup_size(..)`), launched over as many workgroups along x, y
    /// and z as `grid` gives for the sizes of the operands and of the result.
    ///
    /// The operands are `in0`, `in1`, ... (`array<f32>`, `array<i32>` or `array<u32>`), contiguous; the result is `out`. There are
    /// functions `in0_dim(axis)`, `in0_len()`, `out_dim(axis)`, `out_len()`, and `param(i)`: scalar i as f32.
    pub fn wgsl_kernel(
        mut self,
        source: impl Into<String>,
        grid: impl Fn(&[&[usize]], &[usize]) -> [u32; 3] + Send + Sync + 'static,
    ) -> Self {
        self.kernel = self.kernel.with_wgsl(Wgsl::Kernel(source.into(), Box::new(grid)));
        self
    }

    /// For CUDA: source in CUDA C.
    pub fn cuda(mut self, source: impl Into<String>) -> Self {
        self.kernel = self.kernel.with_cuda(source);
        self
    }

    /// The gradients of the operands, one each, `None` where there is none, from the operands, the result, and the gradient of
    /// the result. Each must have its operand's shape (or one that the operand stretches to) and dtype. Without this, the
    /// operation has no gradient, and [`Tensor::backward`] fails where it would need one.
    pub fn backward(
        mut self,
        rule: impl Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        self.backward = Some(Arc::new(rule));
        self
    }

    /// The operation.
    pub fn build(self) -> CustomOp {
        let Self { kernel, shape, dtype, backward } = self;
        CustomOp(Arc::new(Definition { kernel: Arc::new(kernel), shape, dtype, backward }))
    }
}

impl CustomOp {
    /// Begins an operation; its name appears in messages.
    #[allow(clippy::new_ret_no_self, reason = "a builder: nothing can be applied before a source is given")]
    pub fn new(name: impl Into<String>) -> CustomOpBuilder {
        CustomOpBuilder { kernel: Custom::new(name), shape: None, dtype: None, backward: None }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.kernel.name()
    }

    fn error(&self, message: &str) -> Error {
        Error::op("custom", format!("'{}' {message}", self.name()))
    }

    /// The result for these operands, at least one, and scalars, which the sources get as they are (in WGSL as f32).
    pub fn apply(&self, operands: &[&Tensor], scalars: &[f64]) -> Result<Tensor> {
        let first = operands.first().ok_or_else(|| self.error("needs an operand, which names the device"))?;
        let shapes: Vec<&Shape> = operands.iter().map(|t| t.shape()).collect();
        let shape = match &self.0.shape {
            Some(rule) => rule(&shapes)?,
            None => first.shape().clone(),
        };
        if shape.rank() > tallow_graph::MAX_RANK || shape.elem_count() > isize::MAX as usize {
            return Err(self.error(&format!("gives {shape:?}, which has too many axes or elements")));
        }
        let dtype = self.0.dtype.unwrap_or_else(|| first.dtype());
        let inputs: Vec<Input<'_>> = operands.iter().map(|t| t.input()).collect();
        let edges: Vec<_> = inputs.iter().map(Input::edge).collect();
        let y = first.result(ops::custom(&self.0.kernel, &edges, scalars, dtype, shape)?);
        let inputs: Vec<&Input<'_>> = inputs.iter().collect();
        let op = self.clone();
        let Some(backward) = self.0.backward.clone() else {
            let keep = vec![Keep::NOTHING; inputs.len()];
            return Ok(y.recorded("custom", &inputs, &keep, move |_, _| {
                Err(op.error("has no gradient: give it one with backward, or detach its operands"))
            }));
        };
        let all = (0..inputs.len()).fold(Keep::OUTPUT, |all, i| all.and(Keep::input(i)));
        let keep = vec![all; inputs.len()];
        Ok(y.recorded("custom", &inputs, &keep, move |saved, grad| {
            let count = saved.inputs().len();
            let inputs: Vec<Tensor> = (0..count).map(|i| saved.input(i)).collect::<Result<_>>()?;
            let grads = backward(&inputs, &saved.output()?, grad)?;
            if grads.len() != count {
                return Err(op.error(&format!("gives {} gradients for {count} operands", grads.len())));
            }
            for (i, (grad, input)) in grads.iter().zip(&inputs).enumerate() {
                let Some(grad) = grad else { continue };
                let stretched = input.shape().broadcast(grad.shape()).is_some_and(|shape| shape == *grad.shape());
                let same = grad.dtype() == input.dtype() && grad.device().same_device(input.device());
                if !(stretched && same) {
                    let message = format!("gives operand {i}, which is {input:?}, the gradient {grad:?}");
                    return Err(op.error(&message));
                }
            }
            Ok(grads.into_iter().collect::<Grads>())
        }))
    }
}

impl std::fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.kernel)
    }
}

macro_rules! arities {
    ($($apply:ident $no_bwd:ident $inplace:ident ($($rhs:ident),*);)+) => { impl Tensor { $(
        /// The operation of this tensor and the operands that are given, without scalars. See [`CustomOp::apply`].
        pub fn $apply(&self, $($rhs: &Tensor,)* op: impl Borrow<CustomOp>) -> Result<Tensor> {
            op.borrow().apply(&[self, $($rhs),*], &[])
        }

        /// The same, not recorded for gradients.
        pub fn $no_bwd(&self, $($rhs: &Tensor,)* op: impl Borrow<CustomOp>) -> Result<Tensor> {
            no_grad(|| self.$apply($($rhs,)* op))
        }

        /// Writes the operation's result, which must have this tensor's shape and dtype, into this tensor.
        pub fn $inplace(&self, $($rhs: &Tensor,)* op: impl Borrow<CustomOp>) -> Result<()> {
            let result = self.$apply($($rhs,)* op.borrow())?;
            if result.shape() != self.shape() {
                let message = format!("gives {:?}, which cannot replace {:?}", result.shape(), self.shape());
                return Err(op.borrow().error(&message));
            }
            self.assign(&result)
        }
    )+ } };
}

arities! {
    apply_op1 apply_op1_no_bwd inplace_op1 ();
    apply_op2 apply_op2_no_bwd inplace_op2 (second);
    apply_op3 apply_op3_no_bwd inplace_op3 (second, third);
}
