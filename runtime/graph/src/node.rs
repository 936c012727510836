//! Nodes: values that are there or that can be computed. Users hold them through tensors' cells; see `tallow::Tensor`.

use crate::{
    Buffer, DType, Engine, Fault, MapOp, Scalar, Shape, View,
    kernel::{Activations, Custom, Distribution, RowOp, ScanOp, ScatterOp},
    locked::Locked,
};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::{Arc, atomic::AtomicU64};

/// What a node computes. Sizes and scalars are not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Data that was given.
    Leaf,
    /// Scalar 0 everywhere.
    Fill,
    /// scalar 0 + scalar 1 * index, along a single axis.
    Iota,
    /// An element-wise operation; every edge's view has the node's shape.
    Map(MapOp),
    /// A reduction or norm over the last `inner` axes of the edge's view. Scalar 0: eps, for norms.
    Row {
        /// What is computed.
        op: RowOp,
        /// How many axes.
        inner: u8,
    },
    /// left [batch..., m, k] x right [batch..., k, n].
    Contract {
        /// For quantized right operands.
        activations: Activations,
    },
    /// Edges: input [samples, groups, channels, spatial...], filter [groups, output channels, channels, spatial...]; gives
    /// [samples, groups, output channels, spatial...]. Scalars: for each spatial axis stride, low, dilation, input dilation.
    /// See [`crate::kernel::ConvKernel`].
    Conv {
        /// Spatial axes, 1 to 3.
        spatial: u8,
    },
    /// Edges: q, k, v as [batch, position, head, width], and a mask [batch, head, query, key] if there is one. Scalars:
    /// scale, softcap, window.
    Attention {
        /// Hide keys after the query.
        causal: bool,
        /// Hide keys older than the window (scalar 2).
        window: bool,
        /// Cap scores (scalar 1).
        softcap: bool,
        /// A fourth edge is added to the scores.
        mask: bool,
    },
    /// Edges: source `[outer, rows, inner]`, ids `[n]`; gives `[outer, n, inner]`.
    Gather,
    /// Edges: source `[outer, rows, inner]`, ids `[outer, n, inner]`; gives `[outer, n, inner]`.
    Pick,
    /// A new version of a value: edge 0 is the old version `[outer, rows, inner]`, contiguous and whole; edges 1 and 2 are ids
    /// and source, `[outer, n, inner]`. See [`crate::kernel::ScatterKernel`].
    Scatter(ScatterOp),
    /// The order along the middle axis of `[outer, n, inner]`, as U32.
    Sort {
        /// Largest first.
        descending: bool,
    },
    /// A running result along the middle axis of `[outer, n, inner]`.
    Scan(ScanOp),
    /// The user's kernel that the node holds ([`Node::custom`]). Scalars: the user's own.
    Custom,
    /// Random numbers. Scalars: two of the distribution, then key low, key high, counter low, counter high.
    Random(Distribution),
    /// A new version of a value: edge 0 is the old version, seen through the window that is written; edge 1 is what is
    /// written, of the window's shape. The node has the old version's shape.
    Write,
    /// The value of a node on another device.
    Transfer,
}

impl Op {
    /// The name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Leaf => "leaf",
            Op::Fill => "full",
            Op::Iota => "arange",
            Op::Map(_) => "map",
            Op::Row { op: RowOp::RmsNorm, .. } => "rms_norm",
            Op::Row { op: RowOp::LayerNorm, .. } => "layer_norm",
            Op::Row { op: RowOp::Softmax, .. } => "softmax",
            Op::Row { .. } => "reduce",
            Op::Contract { .. } => "matmul",
            Op::Conv { .. } => "conv",
            Op::Attention { .. } => "attention",
            Op::Gather => "gather",
            Op::Pick => "pick",
            Op::Scatter(_) => "scatter",
            Op::Sort { .. } => "sort",
            Op::Scan(_) => "scan",
            Op::Custom => "custom",
            Op::Random(_) => "random",
            Op::Write => "write",
            Op::Transfer => "to_device",
        }
    }

    /// The operation as a number, for structural keys.
    pub(crate) fn code(self) -> u32 {
        match self {
            Op::Leaf => 0,
            Op::Fill => 1,
            Op::Iota => 2,
            Op::Gather => 3,
            Op::Write => 4,
            Op::Transfer => 5,
            Op::Random(Distribution::Uniform) => 6,
            Op::Random(Distribution::Normal) => 7,
            Op::Contract { activations } => 8 + activations as u32,
            Op::Pick => 0x10,
            Op::Custom => 0x11,
            Op::Sort { descending } => 0x12 + u32::from(descending),
            Op::Scatter(op) => 0x20 + op as u32,
            Op::Scan(op) => 0x30 + op as u32,
            Op::Map(map) => {
                0x100
                    | match map {
                        MapOp::Unary(op) => 0x1000 | op as u32,
                        MapOp::Binary(op) => 0x2000 | op as u32,
                        MapOp::Compare(op) => 0x3000 | op as u32,
                        MapOp::BinaryScalar(op) => 0x4000 | op as u32,
                        MapOp::Where => 0x5000,
                        MapOp::Cast => 0x5001,
                        MapOp::Affine => 0x5002,
                        MapOp::Copy => 0x5003,
                    }
            }
            Op::Row { op, inner } => 0x200 | (op as u32) << 12 | u32::from(inner) << 20,
            Op::Conv { spatial } => 0x400 | u32::from(spatial) << 12,
            Op::Attention { causal, window, softcap, mask } => {
                0x300
                    | u32::from(causal) << 12
                    | u32::from(window) << 13
                    | u32::from(softcap) << 14
                    | u32::from(mask) << 15
            }
        }
    }
}

/// An operand: a node, seen through a view.
#[derive(Clone)]
pub struct Edge {
    /// Whose value.
    pub node: Arc<Node>,
    /// Which elements of it.
    pub view: View,
}

/// Edges of a node.
pub type Edges = SmallVec<[Edge; 2]>;

/// The part of a node that changes, under the engine's lock.
pub(crate) struct State {
    /// What it is computed from; empty once the value is there.
    pub edges: Edges,
    /// The value, once it is there.
    pub buffer: Option<Buffer>,
    /// It was fused away once while somebody held it; the next time it is stored.
    pub fused: bool,
    /// Why the value is lost: a run failed that may have written into its buffer already.
    pub lost: Option<Arc<str>>,
    /// What a step met, on the way to the value that lies in the buffer: it is no number to read.
    pub fault: Option<Arc<Fault>>,
}

/// A value: there already, or with all that is needed to compute it.
pub struct Node {
    pub(crate) engine: Arc<Engine>,
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) scalars: SmallVec<[Scalar; 2]>,
    pub(crate) custom: Option<Arc<Custom>>,
    /// (planning round << 24) | position in that round; meaningless in other rounds. Written under the engine's lock. See
    /// `plan::collect`.
    pub(crate) mark: AtomicU64,
    /// How many nodes the engine had made before: operands have smaller numbers.
    pub(crate) number: u64,
    pub(crate) state: Locked<State>,
}

impl Node {
    /// The engine that computes it.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What it computes.
    pub fn op(&self) -> Op {
        self.op
    }

    /// The user's kernel of an [`Op::Custom`].
    pub fn custom(&self) -> Option<&Arc<Custom>> {
        self.custom.as_ref()
    }

    /// The dtype of its elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of its value. Packed weights are [rows, cols].
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes of its value in contiguous storage (of packed weights: in the file's layout).
    pub fn bytes(&self) -> u64 {
        self.dtype.bytes_for(self.shape.elem_count()).map_or(u64::MAX, |b| b as u64)
    }

    /// The whole value as an operand.
    pub fn whole(self: &Arc<Self>) -> Edge {
        Edge { node: self.clone(), view: View::contiguous(self.shape.clone()) }
    }
}

thread_local! {
    /// Nodes that this thread has let go of while it takes others apart.
    static FALLING: RefCell<Falling> = const { RefCell::new(Falling { nodes: Vec::new(), busy: false }) };
}

struct Falling {
    nodes: Vec<Arc<Node>>,
    /// Somebody further up is taking them apart.
    busy: bool,
}

impl Drop for Node {
    /// Takes a chain apart one node at a time: a million pending nodes must not recurse.
    fn drop(&mut self) {
        let edges = &mut self.state.owned().edges;
        if edges.is_empty() {
            return;
        }
        let add = |falling: &RefCell<Falling>| {
            let mut falling = falling.borrow_mut();
            falling.nodes.extend(edges.drain(..).map(|edge| edge.node));
            !std::mem::replace(&mut falling.busy, true)
        };
        let next = || {
            FALLING.with(|falling| {
                let mut falling = falling.borrow_mut();
                let node = falling.nodes.pop();
                falling.busy = node.is_some();
                node
            })
        };
        match FALLING.try_with(add) {
            Ok(false) => {}
            // Each may add its own operands.
            Ok(true) => while next().is_some() {},
            // The thread is ending, and its list is gone already.
            Err(_) => fall(std::mem::take(edges)),
        }
    }
}

/// The same with a list of its own.
#[cold]
fn fall(edges: Edges) {
    let mut nodes: Vec<Arc<Node>> = edges.into_iter().map(|edge| edge.node).collect();
    while let Some(node) = nodes.pop() {
        if let Some(mut node) = Arc::into_inner(node) {
            nodes.extend(node.state.owned().edges.drain(..).map(|edge| edge.node));
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {:?}", self.op.name(), self.dtype, self.shape)
    }
}
