//! The walk over the tape, from the results back to what they were computed from.

use super::{
    mode,
    tape::{TapeInput, TapeNode, TensorId},
};
use crate::{Error, Result, Shape, Tensor};
use smallvec::SmallVec;
use std::{
    collections::{BinaryHeap, HashMap, HashSet},
    sync::Arc,
};

/// Gradients, by tensor.
#[derive(Debug, Default)]
pub struct GradStore(HashMap<TensorId, Tensor>);

impl GradStore {
    /// The gradient of a tensor: of a variable, what [`Tensor::backward`] found. `None` where the result does not depend on
    /// it.
    pub fn get(&self, tensor: &Tensor) -> Option<&Tensor> {
        self.get_id(tensor.id())
    }

    /// The gradient of the tensor that `id` names.
    pub fn get_id(&self, id: TensorId) -> Option<&Tensor> {
        self.0.get(&id)
    }

    /// Sets the gradient of a tensor, and gives the one before.
    pub fn insert(&mut self, tensor: &Tensor, grad: Tensor) -> Option<Tensor> {
        self.insert_id(tensor.id(), grad)
    }

    /// Sets the gradient of the tensor that `id` names, and gives the one before.
    pub fn insert_id(&mut self, id: TensorId, grad: Tensor) -> Option<Tensor> {
        self.0.insert(id, grad)
    }

    /// Takes the gradient of a tensor out.
    pub fn remove(&mut self, tensor: &Tensor) -> Option<Tensor> {
        self.remove_id(tensor.id())
    }

    /// Takes out the gradient of the tensor that `id` names.
    pub fn remove_id(&mut self, id: TensorId) -> Option<Tensor> {
        self.0.remove(&id)
    }

    /// The tensors that have a gradient here.
    pub fn get_ids(&self) -> impl Iterator<Item = &TensorId> {
        self.0.keys()
    }
}

/// Nodes by number: the largest comes first.
struct Latest(Arc<TapeNode>);

impl PartialEq for Latest {
    fn eq(&self, other: &Self) -> bool {
        self.0.id() == other.0.id()
    }
}

impl Eq for Latest {}

impl PartialOrd for Latest {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Latest {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.id().cmp(&other.0.id())
    }
}

/// Of which nodes the gradient is asked for.
pub(crate) struct Targets {
    /// Their numbers.
    pub(crate) ids: HashSet<u64>,
    /// The gradient does not go on behind a target.
    pub(crate) stop: bool,
}

impl Targets {
    /// The nodes from which a target is reached, the targets included.
    fn leading(&self, roots: &[(Arc<TapeNode>, Tensor)]) -> HashSet<u64> {
        let mut all: HashMap<u64, &Arc<TapeNode>> = HashMap::new();
        let mut stack: Vec<&Arc<TapeNode>> = roots.iter().map(|(node, _)| node).collect();
        while let Some(node) = stack.pop() {
            if all.insert(node.id(), node).is_none() && !(self.stop && self.ids.contains(&node.id())) {
                stack.extend(node.inputs().iter().filter_map(|input| input.tape.as_ref()));
            }
        }
        // Inputs have smaller numbers than what is computed from them.
        let mut order: Vec<&Arc<TapeNode>> = all.into_values().collect();
        order.sort_unstable_by_key(|node| node.id());
        let mut leading = HashSet::new();
        for node in order {
            let through = || node.inputs().iter().filter_map(|i| i.tape.as_ref()).any(|t| leading.contains(&t.id()));
            if self.ids.contains(&node.id()) || through() {
                leading.insert(node.id());
            }
        }
        leading
    }
}

/// Sums over the axes along which an operation had stretched an operand of shape `shape`.
fn unbroadcast(name: &'static str, grad: Tensor, shape: &Shape) -> Result<Tensor> {
    if grad.shape() == shape {
        return Ok(grad);
    }
    let lead = grad.rank().checked_sub(shape.rank());
    let fits = lead.filter(|&lead| grad.dims()[lead..].iter().zip(shape.dims()).all(|(g, s)| g == s || *s == 1));
    let Some(lead) = fits else {
        let message = format!("the gradient has shape {:?}, the input {shape:?}; this is a bug", grad.shape());
        return Err(Error::op(name, message));
    };
    let stretched = |a: usize| a < lead || grad.dims()[a] != shape[a - lead];
    let axes: Vec<usize> = (0..grad.rank()).filter(|&a| stretched(a)).collect();
    grad.sum(axes.as_slice())?.reshape(shape)
}

/// The gradients, by node number, of the sum of `roots` weighted by their gradients. Of all leaves, where there are no
/// targets. With `graph`, they are tracked themselves.
pub(crate) fn run(
    roots: Vec<(Arc<TapeNode>, Tensor)>,
    targets: Option<&Targets>,
    graph: bool,
) -> Result<HashMap<u64, Tensor>> {
    mode::with_recording(graph, || {
        let leading = targets.map(|targets| targets.leading(&roots));
        let leads = |node: &TapeNode| leading.as_ref().is_none_or(|leading| leading.contains(&node.id()));
        let is_target = |node: &TapeNode| match targets {
            Some(targets) => targets.ids.contains(&node.id()),
            None => node.is_leaf(),
        };
        let mut grads: HashMap<u64, Tensor> = HashMap::new();
        let mut heap: BinaryHeap<Latest> = BinaryHeap::new();
        let add = |heap: &mut BinaryHeap<Latest>, node: &Arc<TapeNode>, grad: Tensor, grads: &mut HashMap<_, _>| {
            let sum = match grads.remove(&node.id()) {
                Some(before) => (before + grad)?,
                None => {
                    heap.push(Latest(node.clone()));
                    grad
                }
            };
            grads.insert(node.id(), sum);
            Ok::<(), Error>(())
        };
        for (node, grad) in roots {
            if leads(&node) {
                add(&mut heap, &node, grad, &mut grads)?;
            }
        }
        while let Some(Latest(node)) = heap.pop() {
            // All that reads the node has a larger number: its gradient is complete.
            let target = is_target(&node);
            if target && (node.is_leaf() || targets.is_some_and(|targets| targets.stop)) {
                continue;
            }
            let grad = if target { grads.get(&node.id()).cloned() } else { grads.remove(&node.id()) };
            let Some(grad) = grad else { continue };
            let leads_on = |input: &TapeInput| input.tape.as_ref().is_some_and(|tape| leads(tape));
            let wanted: SmallVec<[bool; 4]> = node.inputs().iter().map(leads_on).collect();
            if !wanted.contains(&true) {
                continue;
            }
            let of_inputs = node.gradients(&grad, &wanted, graph)?;
            for ((input, grad), wanted) in node.inputs().iter().zip(of_inputs).zip(wanted) {
                let (Some(tape), Some(grad), true) = (&input.tape, grad, wanted) else { continue };
                if grad.dtype() != input.dtype {
                    let message = format!("the gradient is {}, the input {}; this is a bug", grad.dtype(), input.dtype);
                    return Err(Error::op(node.name(), message));
                }
                add(&mut heap, tape, unbroadcast(node.name(), grad, &input.shape)?, &mut grads)?;
            }
        }
        Ok(grads)
    })
}

fn tape_of(op: &'static str, tensor: &Tensor) -> Result<Arc<TapeNode>> {
    tensor.tape().ok_or_else(|| {
        let message = format!(
            "the tensor {:?} {} depends on no variable: it was computed from none, detached, inside no_grad, or through an \
             integer dtype",
            tensor.shape(),
            tensor.dtype()
        );
        Error::op(op, message)
    })
}

/// Where the gradient starts: the result's node and its gradient.
fn root(op: &'static str, tensor: &Tensor, grad: Option<&Tensor>) -> Result<(Arc<TapeNode>, Tensor)> {
    let tape = tape_of(op, tensor)?;
    let Some(grad) = grad else { return Ok((tape, tensor.ones_like()?)) };
    if grad.shape() != tensor.shape() || grad.dtype() != tensor.dtype() || !grad.device().same_device(tensor.device()) {
        let message = format!(
            "the result is {:?} {} on {:?}, its gradient {:?} {} on {:?}: they must be alike",
            tensor.shape(),
            tensor.dtype(),
            tensor.device(),
            grad.shape(),
            grad.dtype(),
            grad.device()
        );
        return Err(Error::op(op, message));
    }
    Ok((tape, grad.clone()))
}

impl Tensor {
    /// The gradients of this tensor (of the sum of its elements) with respect to all variables that it was computed from. A
    /// variable that is used several times gets the sum. The gradients are not tracked. An operation without a gradient on
    /// the way is an error that names it, and so is a tensor that depends on no variable.
    ///
    /// ```
    /// use tallow::{Device, Var};
    /// let w = Var::new(3f32, &Device::Cpu)?;
    /// let grads = ((w.sqr()? + w.as_tensor())? * 2.0)?.backward()?;
    /// let of_w = grads.get(&w).expect("the result depends on w");
    /// assert_eq!(of_w.to_scalar::<f32>()?, 14.);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn backward(&self) -> Result<GradStore> {
        self.leaves(false)
    }

    /// [`Tensor::backward`] whose gradients are tracked: what is computed from them has gradients too. See also
    /// [`grad`].
    pub fn backward_with_graph(&self) -> Result<GradStore> {
        self.leaves(true)
    }

    fn leaves(&self, graph: bool) -> Result<GradStore> {
        let grads = run(vec![root("backward", self, None)?], None, graph)?;
        Ok(GradStore(grads.into_iter().map(|(id, grad)| (TensorId(id, 0), grad)).collect()))
    }
}

/// The gradients of the sum of all elements of `outputs` with respect to `inputs`, which may be any tracked tensors. With
/// `create_graph` they are tracked, for higher derivatives. An input on which no output depends is an error.
///
/// ```
/// use tallow::{Device, Var, grad};
/// let x = Var::new(2f64, &Device::Cpu)?;
/// let y = x.powf(3.)?;
/// let first = grad(&[&y], &[&x], true)?;
/// let second = grad(&[&first[0]], &[&x], false)?;
/// assert_eq!(second[0].to_scalar::<f64>()?, 12.);
/// # Ok::<(), tallow::Error>(())
/// ```
pub fn grad(outputs: &[&Tensor], inputs: &[&Tensor], create_graph: bool) -> Result<Vec<Tensor>> {
    let seeds = vec![None; outputs.len()];
    grad_of(outputs, &seeds, inputs, create_graph)
}

/// [`grad`] of outputs that are weighted: `grad_outputs` has one tensor an output, of its shape and dtype; `None` stands for
/// ones. This is a vector-Jacobian product.
pub fn grad_of(
    outputs: &[&Tensor],
    grad_outputs: &[Option<&Tensor>],
    inputs: &[&Tensor],
    create_graph: bool,
) -> Result<Vec<Tensor>> {
    if outputs.len() != grad_outputs.len() {
        let message = format!("{} gradients for {} outputs", grad_outputs.len(), outputs.len());
        return Err(Error::op("grad", message));
    }
    let roots: Vec<_> =
        outputs.iter().zip(grad_outputs).map(|(output, grad)| root("grad", output, *grad)).collect::<Result<_>>()?;
    let wanted: Vec<u64> = inputs.iter().map(|input| Ok(tape_of("grad", input)?.id())).collect::<Result<_>>()?;
    let targets = Targets { ids: wanted.iter().copied().collect(), stop: false };
    let grads = run(roots, Some(&targets), create_graph)?;
    wanted
        .iter()
        .enumerate()
        .map(|(i, id)| {
            let message = || format!("the outputs do not depend on input {i}, {:?}", inputs[i].shape());
            grads.get(id).cloned().ok_or_else(|| Error::op("grad", message()))
        })
        .collect()
}
