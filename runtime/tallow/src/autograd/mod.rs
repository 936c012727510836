//! Reverse-mode automatic differentiation. The gradient of an operation is more operations on [`Tensor`]s, so forward,
//! backward and optimizer end up in one plan of the graph.
//!
//! # For users
//! A [`Var`](crate::Var) is where gradients start to be recorded; what is computed from it is *tracked*, all else is not, and
//! costs nothing. [`Tensor::backward`] gives the gradients of all variables in a [`GradStore`]; [`grad`] gives those of any
//! tracked tensors, and with `create_graph` they can be differentiated again. [`no_grad`] switches recording off on this
//! thread, [`Tensor::detach`] for one tensor, [`checkpoint`] trades computation for memory.
//!
//! ```
//! use tallow::{Device, Var};
//!
//! let x = Var::new(&[1f64, 2., 3.], &Device::Cpu)?;
//! let loss = (x.sqr()? * 0.5)?.sum_all()?;
//! let grads = loss.backward()?;
//! let of_x = grads.get(&x).expect("the loss depends on x");
//! assert_eq!(of_x.to_vec1::<f64>()?, [1., 2., 3.]);
//! # Ok::<(), tallow::Error>(())
//! ```
//!
//! # For whoever adds an operation
//! - An operation that is written with public methods of `Tensor` (a *composite*) has its gradient already: nothing to do.
//! - An operation that builds a graph node itself takes its operands with `x.input()` (the value as it is now, and its tape),
//!   builds the node from `x.edge()`, and ends with [`Tensor::recorded`]:
//!
//!   ```text
//!   let x = self.input();
//!   let y = self.result(ops::unary(UnaryOp::Exp, x.edge())?);
//!   Ok(y.recorded("exp", &[&x], &[Keep::OUTPUT], |saved, grad| saved.each(|_| grad * saved.output()?)))
//!   ```
//!
//!   `recorded` gives the tensor back unchanged where no input is tracked or the result is of an integer dtype. There is one
//!   [`Keep`] an input: the values that *its* gradient needs, kept only if that input is tracked: `Keep::NOTHING`,
//!   `Keep::OUTPUT`, `Keep::input(1)`, `Keep::input(0).and(Keep::input(1))`. The closure gets the gradient of the result (in
//!   the result's shape and dtype), and returns one gradient an input, `None` where there is none; `saved.each(|i| ...)` asks
//!   for those that are wanted only. [`Saved`] has `input(i)`, `output()` (errors unless kept), `shape(i)`, `dtype(i)`,
//!   `wants(i)`. A gradient whose shape the operation had stretched by broadcasting is summed back by the tape:
//!   return it in the broadcast shape. Its dtype must be the input's. Kept values are attached to the tape again when a graph
//!   of the gradient is wanted, so build gradients from public methods only, `grad` first (`grad * saved`, not `saved * grad`:
//!   the planner walks operands in order, and so recomputed values come late).
//! - Views go through [`Tensor::viewed`], which has one gradient for all of them.
//! - A floating-point result without a gradient ends with [`Tensor::without_gradient`]: `backward` then fails and names it.
//!   Integer results are never tracked.
//! - Tests: add rows to the table of a module of `tests/autograd` (`Row::new(name, shapes, range, function)`); it is checked
//!   against finite differences, twice, and on the GPU against the CPU.

mod backward;
mod checkpoint;
mod mode;
pub(crate) mod rules;
mod tape;
mod views;

pub use backward::{GradStore, grad, grad_of};
pub(crate) use checkpoint::by_way_of;
pub use checkpoint::checkpoint;
pub(crate) use mode::draw;
pub(crate) use mode::enabled;
pub use mode::no_grad;
pub use tape::TensorId;
pub(crate) use tape::{Grads, Input, Keep, Saved, TapeInput, TapeNode, next_id};
pub(crate) use views::{overwrite, view_of, write_gradients};
