//! Reductions and norms.

use super::{binary, binary_scalar, map, refuse_packed};
use crate::{BinaryOp, DType, Edge, Error, MAX_RANK, Node, Op, Result, Scalar, UnaryOp, kernel::RowOp};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Reduces the axes whose bit is set in `axes`; the result has the other axes.
///
/// Max, min and their positions of nothing are an error; the sum of nothing is 0, its product 1, its mean NaN.
pub fn reduce(op: RowOp, x: Edge, axes: u8) -> Result<Arc<Node>> {
    refuse_packed("reduce", &[&x])?;
    let rank = x.view.shape.rank();
    if rank > MAX_RANK {
        return Err(Error::op("reduce", format!("{rank} axes are more than a tensor may have, {MAX_RANK}")));
    }
    if op == RowOp::Mean && !x.node.dtype.is_float() {
        return Err(Error::op("mean", format!("{} has no mean: convert with to_dtype", x.node.dtype)));
    }
    let order: SmallVec<[usize; 8]> =
        (0..rank).filter(|a| axes & (1 << a) == 0).chain((0..rank).filter(|a| axes & (1 << a) != 0)).collect();
    let shape = x.view.shape.without(axes);
    let inner = rank - shape.rank();
    let nothing = order[rank - inner..].iter().any(|&a| x.view.shape[a] == 0);
    if nothing && matches!(op, RowOp::Max | RowOp::Min | RowOp::ArgMax | RowOp::ArgMin) && shape.elem_count() != 0 {
        return Err(Error::op("reduce", format!("{op:?} over no elements of {:?}", x.view.shape)));
    }
    let dtype = match op {
        RowOp::ArgMax | RowOp::ArgMin => DType::U32,
        _ => x.node.dtype,
    };
    let view = x.view.permute(&order);
    let engine = x.node.engine.clone();
    let edge = Edge { node: x.node, view };
    engine.node(Op::Row { op, inner: inner as u8 }, dtype, shape, smallvec![edge], SmallVec::new())
}

fn norm(op: RowOp, name: &'static str, x: Edge, eps: f64) -> Result<Arc<Node>> {
    refuse_packed(name, &[&x])?;
    let dtype = x.node.dtype;
    if !dtype.is_float() {
        return Err(Error::op(name, format!("needs a floating-point dtype, not {dtype}")));
    }
    if x.view.shape.rank() == 0 {
        return Err(Error::op(name, "a scalar has no axis to go along"));
    }
    let node_op = Op::Row { op, inner: 1 };
    let engine = x.node.engine.clone();
    if engine.options().decompose || !engine.runs(node_op, dtype) {
        return decomposed(op, x, eps);
    }
    let shape = x.view.shape.clone();
    engine.node(node_op, dtype, shape, smallvec![x], smallvec![Scalar::F(eps)])
}

/// x / sqrt(mean(x^2) + eps) along the last axis (Zhang and Sennrich, 2019), without a weight.
pub fn rms_norm(x: Edge, eps: f64) -> Result<Arc<Node>> {
    norm(RowOp::RmsNorm, "rms_norm", x, eps)
}

/// (x - mean) / sqrt(var + eps) along the last axis (Ba et al., 2016), without weight and bias.
pub fn layer_norm(x: Edge, eps: f64) -> Result<Arc<Node>> {
    norm(RowOp::LayerNorm, "layer_norm", x, eps)
}

/// exp(x - max) / sum(exp(x - max)) along the last axis.
pub fn softmax(x: Edge) -> Result<Arc<Node>> {
    norm(RowOp::Softmax, "softmax", x, 0.0)
}

/// The norms from primitives, computed in f32 (f64 for F64) whatever the dtype.
fn decomposed(op: RowOp, x: Edge, eps: f64) -> Result<Arc<Node>> {
    let dtype = x.node.dtype;
    if !matches!(dtype, DType::F32 | DType::F64) {
        let wide = decomposed(op, Edge::from(&map::cast(x, DType::F32)?), eps)?;
        return map::cast(Edge::from(&wide), dtype);
    }
    let last = x.view.shape.rank() - 1;
    let along = 1u8 << last;
    // A reduction's result, with the axis back as size 1 so that it broadcasts.
    let kept = |node: Arc<Node>| {
        let edge = Edge::from(&node);
        Edge { view: edge.view.unsqueeze(last), node: edge.node }
    };
    match op {
        RowOp::Softmax => {
            let top = kept(reduce(RowOp::Max, x.clone(), along)?);
            let exp = map::unary(UnaryOp::Exp, Edge::from(&binary(BinaryOp::Sub, x, top)?))?;
            let total = kept(reduce(RowOp::Sum, Edge::from(&exp), along)?);
            binary(BinaryOp::Div, Edge::from(&exp), total)
        }
        _ => {
            let centred = if op == RowOp::LayerNorm {
                let mean = kept(reduce(RowOp::Mean, x.clone(), along)?);
                Edge::from(&binary(BinaryOp::Sub, x, mean)?)
            } else {
                x
            };
            let square = map::unary(UnaryOp::Sqr, centred.clone())?;
            let mean = kept(reduce(RowOp::Mean, Edge::from(&square), along)?);
            let safe = binary_scalar(BinaryOp::Add, mean, Scalar::F(eps))?;
            let scale = map::unary(UnaryOp::Rsqrt, Edge::from(&safe))?;
            binary(BinaryOp::Mul, centred, Edge::from(&scale))
        }
    }
}
