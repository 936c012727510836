//! Recomputation (Chen et al., 2016, "Training deep nets with sublinear memory cost"): a block keeps its inputs only, and is
//! computed again when its gradient is needed.

use super::{
    Grads, Input, Saved,
    backward::{Targets, run},
    mode,
    tape::{TapeInput, TapeNode, next_id},
};
use crate::{Error, Result, Tensor, View};
use smallvec::SmallVec;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// A tracked tensor under a node of its own: what is computed from it is told apart from what else uses the tensor.
fn alias(tensor: &Tensor) -> Tensor {
    tensor.viewed("checkpoint", View::clone)
}

/// What a block reads beside its inputs: tracked tensors, mostly variables, that its closure holds.
struct Captured {
    tape: Arc<TapeNode>,
    /// Of a variable: how often its value had been replaced.
    sets: u64,
}

/// The tape nodes that were there before `start` and that `output` was computed from, other than by way of `inputs`.
fn captured(output: &Tensor, inputs: &[Tensor], start: u64) -> Vec<Captured> {
    let mut seen: HashSet<u64> = inputs.iter().filter_map(|input| Some(input.tape()?.id())).collect();
    let mut found = Vec::new();
    let mut stack: Vec<Arc<TapeNode>> = output.tape().into_iter().collect();
    while let Some(tape) = stack.pop() {
        if !seen.insert(tape.id()) {
            continue;
        }
        if tape.id() < start {
            found.push(Captured { sets: tape.sets(), tape });
        } else {
            stack.extend(tape.inputs().iter().filter_map(|input| input.tape.clone()));
        }
    }
    found
}

/// `f(inputs)`, without keeping the values inside `f` for the gradient: they are computed again during `backward`. Gradients
/// go to the inputs and to the variables (and other tracked tensors) that `f` holds. Random numbers are the same the second
/// time.
///
/// `f` must compute the same both times: it must not write into tensors that it reads. A variable that is set between the
/// two is an error.
///
/// ```
/// use tallow::{Device, Var, checkpoint};
/// let (x, w) = (Var::new(&[1f32, 2.], &Device::Cpu)?, Var::new(&[3f32, 4.], &Device::Cpu)?);
/// let weight = w.as_tensor().clone();
/// let y = checkpoint(move |x| (&x[0] * &weight)?.tanh(), &[&x])?;
/// let grads = y.backward()?;
/// assert!(grads.get(&x).is_some() && grads.get(&w).is_some());
/// # Ok::<(), tallow::Error>(())
/// ```
pub fn checkpoint(
    f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    if !mode::enabled() {
        let inputs: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
        return f(&inputs);
    }
    let read: Vec<Input<'_>> = inputs.iter().map(|input| input.input()).collect();
    let own: Vec<Tensor> =
        read.iter().zip(inputs).map(|(r, t)| alias(&Tensor::at(r.edge(), t.device(), r.tape().cloned()))).collect();
    // The first run finds out what f holds; its tape goes at once.
    let start = next_id();
    let (output, draws) = mode::writing_draws(|| f(&own));
    let output = output?;
    let held = captured(&output, &own, start);
    let result = Tensor::at(output.edge(), output.device(), None);
    let mut on_tape: SmallVec<[TapeInput; 2]> = read.iter().map(|input| input.on_tape(true)).collect();
    on_tape.extend(held.iter().map(|held| TapeInput {
        tape: Some(held.tape.clone()),
        shape: held.tape.shape().clone(),
        dtype: held.tape.dtype(),
        device: held.tape.device().clone(),
        value: None,
    }));
    if on_tape.iter().all(|input| input.tape.is_none()) || !result.dtype().is_float() {
        return Ok(result);
    }
    let count = inputs.len();
    let sets: Vec<u64> = held.iter().map(|held| held.sets).collect();
    let of = (result.shape().clone(), result.dtype(), result.device().clone());
    let rule = move |saved: &Saved<'_>, grad: &Tensor| -> Result<Grads> {
        let again = || -> Result<(Vec<Tensor>, Tensor)> {
            let own: Vec<Tensor> = (0..count).map(|i| Ok(alias(&saved.attached(i)?))).collect::<Result<_>>()?;
            let output = f(&own)?;
            Ok((own, output))
        };
        let held = &saved.inputs()[count..];
        if held.iter().zip(&sets).any(|(held, &sets)| held.tape.as_ref().is_some_and(|t| t.sets() != sets)) {
            let message =
                "a variable was set between the block and its gradient, which would be computed from the new value";
            return Err(Error::op("checkpoint", message));
        }
        let start = next_id();
        let (own, output) = mode::with_recording(true, || mode::replaying_draws(&draws, again))?;
        gradients(saved, grad, &own, &output, start)
    };
    Ok(result.on_tape(TapeNode::op("checkpoint", 0, of, on_tape, None, rule)))
}

/// The gradients of a block that was computed again.
fn gradients(saved: &Saved<'_>, grad: &Tensor, own: &[Tensor], output: &Tensor, start: u64) -> Result<Grads> {
    if output.shape() != grad.shape() || output.dtype() != grad.dtype() {
        return Err(Error::op("checkpoint", "the block gave a result of another shape or dtype the second time"));
    }
    let known: HashSet<u64> = saved.inputs().iter().filter_map(|i| Some(i.tape.as_ref()?.id())).collect();
    if captured(output, own, start).iter().any(|held| !known.contains(&held.tape.id())) {
        return Err(Error::op("checkpoint", "the block used other tracked tensors the second time"));
    }
    let of_input: Vec<Option<u64>> = (0..saved.inputs().len())
        .map(|i| match own.get(i) {
            _ if !saved.wants(i) => None,
            Some(own) => own.tape().map(|tape| tape.id()),
            None => saved.inputs()[i].tape.as_ref().map(|tape| tape.id()),
        })
        .collect();
    let targets = Targets { ids: of_input.iter().flatten().copied().collect(), stop: true };
    let roots = output.tape().map(|tape| (tape, grad.clone())).into_iter().collect();
    let grads: HashMap<u64, Tensor> = run(roots, Some(&targets), saved.graph())?;
    Ok(of_input.iter().map(|id| id.and_then(|id| grads.get(&id).cloned())).collect())
}

/// The gradients of an operation by way of a `block` that computes the same from its inputs with other operations. The
/// inputs must be kept.
pub(crate) fn by_way_of(
    saved: &Saved<'_>,
    grad: &Tensor,
    block: impl FnOnce(&[Tensor]) -> Result<Tensor>,
) -> Result<Grads> {
    mode::with_recording(true, || {
        let start = next_id();
        let own: Vec<Tensor> =
            (0..saved.inputs().len()).map(|i| Ok(alias(&saved.attached(i)?))).collect::<Result<_>>()?;
        let output = block(&own)?;
        gradients(saved, grad, &own, &output, start)
    })
}
