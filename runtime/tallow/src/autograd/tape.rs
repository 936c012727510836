//! The tape: for each tracked tensor, from which tensors it was computed and how its gradient goes back to them. A tape node
//! holds its inputs' nodes, so the tape lives as long as a tensor downstream of it, and the values that gradients need.

use crate::{DType, Device, Error, Result, Shape, Tensor};
use smallvec::SmallVec;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tallow_graph::{Edge, Node};

/// Names a tensor among all: clones have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TensorId(pub(crate) u64, pub(crate) u64);

/// One gradient an input, in the order of the inputs; `None` where there is none.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 2]>;

type Rule = Box<dyn Fn(&Saved<'_>, &Tensor) -> Result<Grads> + Send + Sync>;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A number that was not given before: later ones are larger.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

/// Which values a gradient needs: a set of inputs and the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keep(u32);

impl Keep {
    /// None.
    pub(crate) const NOTHING: Keep = Keep(0);
    /// The result.
    pub(crate) const OUTPUT: Keep = Keep(1 << 31);

    /// Input `i`.
    pub(crate) const fn input(i: usize) -> Keep {
        // Only the first few inputs of an operation are ever kept.
        if i < 31 { Keep(1 << i) } else { Keep::NOTHING }
    }

    /// Both.
    pub(crate) const fn and(self, other: Keep) -> Keep {
        Keep(self.0 | other.0)
    }

    fn has(self, other: Keep) -> bool {
        self.0 & other.0 != 0
    }
}

/// An operand as an operation reads it: the value as it is now, and its tape.
pub(crate) struct Input<'a> {
    tensor: &'a Tensor,
    node: Arc<Node>,
    tape: Option<Arc<TapeNode>>,
}

impl<'a> Input<'a> {
    /// `node`: the tensor's value, as it is now.
    pub(crate) fn new(tensor: &'a Tensor, node: Arc<Node>, tape: Option<Arc<TapeNode>>) -> Self {
        // Integers have no gradient; a variable may be one.
        let tape = tape.filter(|_| node.dtype().is_float());
        Self { tensor, node, tape }
    }

    /// The operand for a graph node.
    pub(crate) fn edge(&self) -> Edge {
        Edge { node: self.node.clone(), view: self.tensor.layout().clone() }
    }

    /// The same, where nothing else is wanted of the operand.
    pub(crate) fn into_edge(self) -> Edge {
        Edge { node: self.node, view: self.tensor.layout().clone() }
    }

    /// Its dtype.
    pub(crate) fn dtype(&self) -> DType {
        self.node.dtype()
    }

    /// Its tape.
    pub(crate) fn tape(&self) -> Option<&Arc<TapeNode>> {
        self.tape.as_ref()
    }

    /// As an input on the tape, with its value or without.
    pub(crate) fn on_tape(&self, kept: bool) -> TapeInput {
        TapeInput {
            tape: self.tape.clone(),
            shape: self.tensor.shape().clone(),
            dtype: self.dtype(),
            device: self.tensor.device().clone(),
            value: kept.then(|| self.edge()),
        }
    }
}

/// An input of a recorded operation.
pub(crate) struct TapeInput {
    pub(crate) tape: Option<Arc<TapeNode>>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    /// Kept if a gradient needs it.
    pub(crate) value: Option<Edge>,
}

/// What is recorded of a tensor.
pub(crate) struct TapeNode {
    id: u64,
    name: &'static str,
    /// The count of tracked writes of the tensor's cell when this was recorded. See `Tensor::tape`.
    writes: u32,
    shape: Shape,
    dtype: DType,
    device: Device,
    inputs: SmallVec<[TapeInput; 2]>,
    /// The result, kept if a gradient needs it.
    output: Option<Edge>,
    /// None: a leaf, a variable.
    rule: Option<Rule>,
    /// Of a leaf: how often its value was replaced.
    sets: AtomicU64,
}

impl TapeNode {
    /// A leaf.
    pub(crate) fn leaf(shape: Shape, dtype: DType, device: Device) -> Arc<Self> {
        Arc::new(Self {
            id: next_id(),
            name: "variable",
            writes: 0,
            shape,
            dtype,
            device,
            inputs: SmallVec::new(),
            output: None,
            rule: None,
            sets: AtomicU64::new(0),
        })
    }

    /// An operation: `of` names the result's shape, dtype and device.
    pub(crate) fn op(
        name: &'static str,
        writes: u32,
        of: (Shape, DType, Device),
        inputs: SmallVec<[TapeInput; 2]>,
        output: Option<Edge>,
        rule: impl Fn(&Saved<'_>, &Tensor) -> Result<Grads> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (shape, dtype, device) = of;
        let rule: Option<Rule> = Some(Box::new(rule));
        Arc::new(Self {
            id: next_id(),
            name,
            writes,
            shape,
            dtype,
            device,
            inputs,
            output,
            rule,
            sets: AtomicU64::new(0),
        })
    }

    /// Later nodes have larger numbers: an operation's is above those of its inputs.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn writes(&self) -> u32 {
        self.writes
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn inputs(&self) -> &[TapeInput] {
        &self.inputs
    }

    /// Whether it is a variable's.
    pub(crate) fn is_leaf(&self) -> bool {
        self.rule.is_none()
    }

    /// How often a leaf's value was replaced.
    pub(crate) fn sets(&self) -> u64 {
        self.sets.load(Ordering::Relaxed)
    }

    /// A leaf's value is another one now.
    pub(crate) fn was_set(&self) {
        self.sets.fetch_add(1, Ordering::Relaxed);
    }

    /// The gradients of the inputs for the gradient of the result. `wanted` says which inputs; `graph`: kept values are
    /// attached to the tape.
    pub(crate) fn gradients(self: &Arc<Self>, grad: &Tensor, wanted: &[bool], graph: bool) -> Result<Grads> {
        let Some(rule) = &self.rule else { return Ok(Grads::new()) };
        let grads = rule(&Saved { node: self, wanted, graph }, grad)?;
        if grads.len() != self.inputs.len() {
            let message = format!("{} gradients for {} inputs; this is a bug", grads.len(), self.inputs.len());
            return Err(Error::op(self.name, message));
        }
        Ok(grads)
    }
}

impl Drop for TapeNode {
    /// Takes a long chain apart one node at a time: it must not recurse.
    fn drop(&mut self) {
        let mut pending = vec![std::mem::take(&mut self.inputs)];
        while let Some(inputs) = pending.pop() {
            for input in inputs {
                if let Some(mut node) = input.tape.and_then(Arc::into_inner)
                    && !node.inputs.is_empty()
                {
                    pending.push(std::mem::take(&mut node.inputs));
                }
            }
        }
    }
}

/// What an operation's gradient is computed from, beside the gradient of its result.
pub(crate) struct Saved<'a> {
    node: &'a Arc<TapeNode>,
    wanted: &'a [bool],
    graph: bool,
}

impl Saved<'_> {
    fn of(&self, i: usize) -> Result<&TapeInput> {
        self.node.inputs.get(i).ok_or_else(|| Error::op(self.node.name, format!("there is no input {i}")))
    }

    fn missing<T>(&self, what: &str) -> Result<T> {
        Err(Error::op(self.node.name, format!("its {what} was not kept for the gradient; this is a bug")))
    }

    /// Input `i` as it was.
    pub(crate) fn input(&self, i: usize) -> Result<Tensor> {
        let input = self.of(i)?;
        let Some(edge) = &input.value else { return self.missing("input") };
        let tape = if self.graph { input.tape.clone() } else { None };
        Ok(Tensor::at(edge.clone(), &input.device, tape))
    }

    /// Input `i` as it was, attached to its tape whether that is asked for or not.
    pub(crate) fn attached(&self, i: usize) -> Result<Tensor> {
        let input = self.of(i)?;
        let Some(edge) = &input.value else { return self.missing("input") };
        Ok(Tensor::at(edge.clone(), &input.device, input.tape.clone()))
    }

    /// The inputs on the tape.
    pub(crate) fn inputs(&self) -> &[TapeInput] {
        &self.node.inputs
    }

    /// The result as it was.
    pub(crate) fn output(&self) -> Result<Tensor> {
        let Some(edge) = &self.node.output else { return self.missing("result") };
        let tape = self.graph.then(|| self.node.clone());
        Ok(Tensor::at(edge.clone(), &self.node.device, tape))
    }

    /// The shape of input `i`.
    pub(crate) fn shape(&self, i: usize) -> Result<&Shape> {
        Ok(&self.of(i)?.shape)
    }

    /// The dtype of input `i`.
    pub(crate) fn dtype(&self, i: usize) -> Result<DType> {
        Ok(self.of(i)?.dtype)
    }

    /// Whether the gradient of input `i` is asked for.
    pub(crate) fn wants(&self, i: usize) -> bool {
        self.wanted.get(i).copied().unwrap_or(false)
    }

    /// Whether the gradient is to be differentiable itself.
    pub(crate) fn graph(&self) -> bool {
        self.graph
    }

    /// One gradient an input that is wanted.
    pub(crate) fn each(&self, f: impl Fn(usize) -> Result<Tensor>) -> Result<Grads> {
        (0..self.node.inputs.len()).map(|i| if self.wants(i) { f(i).map(Some) } else { Ok(None) }).collect()
    }
}

impl Tensor {
    /// This tensor as the result of an operation on `inputs`: see the head of [`crate::autograd`]. `keep` has one entry an
    /// input.
    pub(crate) fn recorded(
        self,
        name: &'static str,
        inputs: &[&Input<'_>],
        keep: &[Keep],
        rule: impl Fn(&Saved<'_>, &Tensor) -> Result<Grads> + Send + Sync + 'static,
    ) -> Tensor {
        if inputs.iter().all(|input| input.tape.is_none()) || !self.dtype().is_float() {
            return self;
        }
        // Only what the gradients of tracked inputs need.
        let tracked = inputs.iter().zip(keep).filter(|(input, _)| input.tape.is_some());
        let needs = tracked.fold(Keep::NOTHING, |all, (_, &keep)| all.and(keep));
        let kept = inputs.iter().enumerate().map(|(i, input)| input.on_tape(needs.has(Keep::input(i)))).collect();
        let output = needs.has(Keep::OUTPUT).then(|| self.edge());
        let of = (self.shape().clone(), self.dtype(), self.device().clone());
        self.on_tape(TapeNode::op(name, 0, of, kept, output, rule))
    }

    /// This tensor as the result of an operation that has no gradient: `backward` fails there, and names it.
    pub(crate) fn without_gradient(self, name: &'static str, inputs: &[&Input<'_>]) -> Tensor {
        let keep = vec![Keep::NOTHING; inputs.len()];
        self.recorded(name, inputs, &keep, move |_, _| {
            let message = "has no gradient: detach its operands, or compute this with other operations";
            Err(Error::op(name, message))
        })
    }

    /// The result of a graph node that was built outside this crate from `operands` ([`Tensor::as_edge`]). It has no gradient:
    /// where an operand is tracked, [`Tensor::backward`] fails and names the operation.
    pub fn from_operation(name: &'static str, node: Arc<tallow_graph::Node>, operands: &[&Tensor]) -> Result<Tensor> {
        let first = operands.first().ok_or_else(|| Error::op(name, "an operation of no operands: use from_node"))?;
        let inputs: Vec<Input<'_>> = operands.iter().map(|t| t.input()).collect();
        let inputs: Vec<&Input<'_>> = inputs.iter().collect();
        Ok(first.result(node).without_gradient(name, &inputs))
    }

    /// Names the tensor: clones have the same number, other tensors another.
    pub fn id(&self) -> TensorId {
        match self.tape() {
            Some(tape) => TensorId(tape.id(), 0),
            None => self.untracked_id(),
        }
    }

    /// Whether it is a [`Var`](crate::Var)'s value.
    pub fn is_variable(&self) -> bool {
        self.tape().is_some_and(|tape| tape.is_leaf())
    }

    /// Whether [`Tensor::backward`] of what is computed from it reaches it: it is a variable, or was computed from one.
    pub fn is_tracked(&self) -> bool {
        self.tape().is_some()
    }
}
