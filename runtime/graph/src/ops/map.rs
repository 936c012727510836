//! Element-wise operations. Operands broadcast as in numpy.

use super::{refuse_packed, same_engine};
use crate::{BinaryOp, CompareOp, DType, Edge, Error, MapOp, Node, Op, Result, Scalar, Shape, UnaryOp};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Bitwise operations are for integers.
fn check_bitwise(op: BinaryOp, dtype: DType) -> Result<()> {
    if op.is_bitwise() && !dtype.is_int() {
        return Err(Error::op(op.name(), format!("needs an integer dtype, not {dtype}: convert with to_dtype")));
    }
    Ok(())
}

/// f(x), in x's dtype and shape.
pub fn unary(op: UnaryOp, x: Edge) -> Result<Arc<Node>> {
    refuse_packed(op.name(), &[&x])?;
    let dtype = x.node.dtype;
    let integer = matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Sqr | UnaryOp::Relu);
    if !dtype.is_float() && !integer {
        let message = format!("needs a floating-point dtype, not {dtype}: convert with to_dtype");
        return Err(Error::op(op.name(), message));
    }
    map(MapOp::Unary(op), dtype, smallvec![x], SmallVec::new())
}

fn map(op: MapOp, dtype: DType, edges: crate::Edges, scalars: SmallVec<[Scalar; 2]>) -> Result<Arc<Node>> {
    let engine = edges[0].node.engine.clone();
    let shape = edges[0].view.shape.clone();
    engine.into_node(Op::Map(op), dtype, shape, edges, scalars, None)
}

/// Both operands, broadcast to one shape; they must have one dtype.
fn broadcast(op: &'static str, a: Edge, b: Edge) -> Result<(Edge, Edge)> {
    same_engine(op, &[&a, &b])?;
    refuse_packed(op, &[&a, &b])?;
    if a.node.dtype != b.node.dtype {
        let message = format!("dtypes {} and {} differ: convert one with to_dtype", a.node.dtype, b.node.dtype);
        return Err(Error::op(op, message));
    }
    if a.view.shape == b.view.shape {
        return Ok((a, b));
    }
    let shape = a.view.shape.broadcast(&b.view.shape);
    let shape = shape
        .ok_or_else(|| Error::op(op, format!("shapes {:?} and {:?} do not broadcast", a.view.shape, b.view.shape)))?;
    Ok((stretch(op, a, &shape)?, stretch(op, b, &shape)?))
}

fn stretch(op: &'static str, edge: Edge, shape: &Shape) -> Result<Edge> {
    let view = edge.view.broadcast_to(shape);
    let view = view.ok_or_else(|| Error::op(op, format!("{:?} does not broadcast to {shape:?}", edge.view.shape)))?;
    Ok(Edge { node: edge.node, view })
}

/// f(a, b), in their dtype.
pub fn binary(op: BinaryOp, a: Edge, b: Edge) -> Result<Arc<Node>> {
    let (a, b) = broadcast(op.name(), a, b)?;
    let dtype = a.node.dtype;
    check_bitwise(op, dtype)?;
    map(MapOp::Binary(op), dtype, smallvec![a, b], SmallVec::new())
}

/// f(x, scalar), in x's dtype.
pub fn binary_scalar(op: BinaryOp, x: Edge, scalar: Scalar) -> Result<Arc<Node>> {
    refuse_packed(op.name(), &[&x])?;
    let dtype = x.node.dtype;
    check_bitwise(op, dtype)?;
    map(MapOp::BinaryScalar(op), dtype, smallvec![x], smallvec![scalar])
}

/// x * factor + term, in x's dtype.
pub fn affine(x: Edge, factor: Scalar, term: Scalar) -> Result<Arc<Node>> {
    refuse_packed("affine", &[&x])?;
    let dtype = x.node.dtype;
    map(MapOp::Affine, dtype, smallvec![x], smallvec![factor, term])
}

/// a < b and its kind: U8, 0 or 1.
pub fn compare(op: CompareOp, a: Edge, b: Edge) -> Result<Arc<Node>> {
    let (a, b) = broadcast("cmp", a, b)?;
    map(MapOp::Compare(op), DType::U8, smallvec![a, b], SmallVec::new())
}

/// Elements of `then` where `condition` (an integer dtype) is not zero, of `otherwise` elsewhere.
pub fn where_cond(condition: Edge, then: Edge, otherwise: Edge) -> Result<Arc<Node>> {
    same_engine("where_cond", &[&condition, &then, &otherwise])?;
    if !condition.node.dtype.is_int() {
        let message = format!("the condition must be of an integer dtype, not {}", condition.node.dtype);
        return Err(Error::op("where_cond", message));
    }
    let (then, otherwise) = broadcast("where_cond", then, otherwise)?;
    let shape = condition.view.shape.broadcast(&then.view.shape).ok_or_else(|| {
        let message = format!("shapes {:?} and {:?} do not broadcast", condition.view.shape, then.view.shape);
        Error::op("where_cond", message)
    })?;
    let dtype = then.node.dtype;
    let edges = smallvec![
        stretch("where_cond", condition, &shape)?,
        stretch("where_cond", then, &shape)?,
        stretch("where_cond", otherwise, &shape)?
    ];
    map(MapOp::Where, dtype, edges, SmallVec::new())
}

/// x in another dtype. A packed weight becomes plain by its rows' gather; see [`super::gather`].
pub fn cast(x: Edge, dtype: DType) -> Result<Arc<Node>> {
    refuse_packed("to_dtype", &[&x])?;
    if dtype.is_quantized() {
        return Err(Error::op("to_dtype", format!("{dtype} is a packed type: packed weights come from files")));
    }
    x.node.engine.backend().check_dtype(dtype)?;
    map(MapOp::Cast, dtype, smallvec![x], SmallVec::new())
}

/// x, contiguous in memory of its own.
pub fn copy(x: Edge) -> Result<Arc<Node>> {
    refuse_packed("contiguous", &[&x])?;
    let dtype = x.node.dtype;
    map(MapOp::Copy, dtype, smallvec![x], SmallVec::new())
}
