//! Element-wise operations. Operands broadcast as in numpy.

use super::{refuse_packed, same_engine};
use crate::{BinaryOp, CompareOp, DType, Edge, Edges, Error, MapOp, Node, Op, Result, Scalar, Shape, UnaryOp};
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

fn map(op: MapOp, dtype: DType, edges: Edges, scalars: SmallVec<[Scalar; 2]>) -> Result<Arc<Node>> {
    let engine = edges[0].node.engine.clone();
    let shape = edges[0].view.shape.clone();
    engine.into_node(Op::Map(op), dtype, shape, edges, scalars, None)
}

/// Broadcasts both operands to one shape; they must have one dtype. In place, since edges are large.
fn broadcast(op: &'static str, edges: &mut [Edge]) -> Result<()> {
    let [a, b] = edges else { return Ok(()) };
    same_engine(op, &[a, b])?;
    refuse_packed(op, &[a, b])?;
    if a.node.dtype != b.node.dtype {
        let message = format!("dtypes {} and {} differ: convert one with to_dtype", a.node.dtype, b.node.dtype);
        return Err(Error::op(op, message));
    }
    if a.view.shape == b.view.shape {
        return Ok(());
    }
    let shape = a.view.shape.broadcast(&b.view.shape);
    let shape = shape
        .ok_or_else(|| Error::op(op, format!("shapes {:?} and {:?} do not broadcast", a.view.shape, b.view.shape)))?;
    stretch(op, a, &shape)?;
    stretch(op, b, &shape)
}

fn stretch(op: &'static str, edge: &mut Edge, shape: &Shape) -> Result<()> {
    let view = edge.view.broadcast_to(shape);
    edge.view = view.ok_or_else(|| Error::op(op, format!("{:?} does not broadcast to {shape:?}", edge.view.shape)))?;
    Ok(())
}

/// f(a, b), in their dtype.
pub fn binary(op: BinaryOp, a: Edge, b: Edge) -> Result<Arc<Node>> {
    let mut edges = Edges::from_buf([a, b]);
    broadcast(op.name(), &mut edges)?;
    let dtype = edges[0].node.dtype;
    check_bitwise(op, dtype)?;
    map(MapOp::Binary(op), dtype, edges, SmallVec::new())
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
    let mut edges = Edges::from_buf([a, b]);
    broadcast("cmp", &mut edges)?;
    map(MapOp::Compare(op), DType::U8, edges, SmallVec::new())
}

/// Elements of `then` where `condition` (an integer dtype) is not zero, of `otherwise` elsewhere.
pub fn where_cond(condition: Edge, then: Edge, otherwise: Edge) -> Result<Arc<Node>> {
    same_engine("where_cond", &[&condition, &then, &otherwise])?;
    if !condition.node.dtype.is_int() {
        let message = format!("the condition must be of an integer dtype, not {}", condition.node.dtype);
        return Err(Error::op("where_cond", message));
    }
    let mut edges: Edges = smallvec![condition, then, otherwise];
    broadcast("where_cond", &mut edges[1..])?;
    let (condition, then) = (&edges[0].view.shape, &edges[1].view.shape);
    let shape = condition
        .broadcast(then)
        .ok_or_else(|| Error::op("where_cond", format!("shapes {condition:?} and {then:?} do not broadcast")))?;
    for edge in &mut edges {
        stretch("where_cond", edge, &shape)?;
    }
    let dtype = edges[1].node.dtype;
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
