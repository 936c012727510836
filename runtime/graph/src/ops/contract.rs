//! Matrix products.

use super::same_engine;
use crate::{
    BinaryOp, DType, Edge, Error, Node, Op, Result, Shape,
    kernel::{Activations, RowOp},
};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// a [..., m, k] x b [..., k, n] -> [..., m, n]. Leading axes broadcast. One floating-point or integer dtype; accumulates in f32
/// for types narrower than that.
pub fn matmul(a: Edge, b: Edge) -> Result<Arc<Node>> {
    super::refuse_packed("matmul", &[&a, &b])?;
    if a.node.dtype != b.node.dtype {
        let message = format!("dtypes {} and {} differ: convert one with to_dtype", a.node.dtype, b.node.dtype);
        return Err(Error::op("matmul", message));
    }
    let dtype = a.node.dtype;
    contract(a, b, dtype, Activations::F32)
}

/// x [..., k] times the transpose of a weight [n, k], plain or packed; an integer x takes a weight of its own
/// dtype. The node's shape is [rows, n], all leading axes of x
/// as rows: view it as [..., n]. The result has x's dtype.
pub fn linear(x: Edge, weight: Edge, activations: Activations) -> Result<Arc<Node>> {
    if weight.view.shape.rank() != 2 || x.view.shape.rank() == 0 {
        let message =
            format!("takes x [..., k] and a weight [n, k], not {:?} and {:?}", x.view.shape, weight.view.shape);
        return Err(Error::op("linear", message));
    }
    if weight.node.dtype.is_quantized() && !super::whole_rows(&weight) {
        let message = format!("a packed weight is used by whole rows, not as {:?}", weight.view);
        return Err(Error::op("linear", message));
    }
    if weight.node.dtype.is_quantized() && x.node.dtype != DType::F32 {
        return Err(Error::op("linear", format!("a packed weight multiplies F32, not {}", x.node.dtype)));
    }
    if x.node.dtype.is_int() && weight.node.dtype != x.node.dtype {
        let message = format!("{} times a weight of {}: convert one with to_dtype", x.node.dtype, weight.node.dtype);
        return Err(Error::op("linear", message));
    }
    let lead = x.view.shape.rank() - 1;
    let k = x.view.shape[lead];
    let rows = Shape::new(&x.view.shape[..lead]).elem_count();
    // All leading axes are rows of one product, where the view allows it.
    let flat = x.view.reshape(&Shape::new(&[rows, k]));
    let dtype = x.node.dtype;
    let x = match flat {
        Some(view) => Edge { node: x.node, view },
        None => {
            let copy = super::copy(x)?;
            let view = crate::View::contiguous(Shape::new(&[rows, k]));
            Edge { node: copy, view }
        }
    };
    let right = Edge { view: weight.view.permute(&[1, 0]), node: weight.node };
    contract(x, right, dtype, activations)
}

fn contract(a: Edge, b: Edge, dtype: DType, activations: Activations) -> Result<Arc<Node>> {
    let engine = same_engine("matmul", &[&a, &b])?.clone();
    let (sa, sb) = (&a.view.shape, &b.view.shape);
    let fail = |why: &str| Error::op("matmul", format!("{why}: {sa:?} x {sb:?}"));
    if sa.rank() < 2 || sb.rank() < 2 {
        return Err(fail("both operands need two axes or more"));
    }
    let (ra, rb) = (sa.rank(), sb.rank());
    if sa[ra - 1] != sb[rb - 2] {
        return Err(fail("the left operand's last axis and the right one's last but one differ"));
    }
    let lead = |s: &Shape, r: usize| Shape::new(&s[..r - 2]);
    let batch = lead(sa, ra).broadcast(&lead(sb, rb)).ok_or_else(|| fail("the leading axes do not broadcast"))?;
    let with = |tail: [usize; 2]| -> Shape { batch.iter().copied().chain(tail).collect() };
    let (m, k, n) = (sa[ra - 2], sa[ra - 1], sb[rb - 1]);
    let left = a.view.broadcast_to(&with([m, k])).ok_or_else(|| fail("the leading axes do not broadcast"))?;
    let right = b.view.broadcast_to(&with([k, n])).ok_or_else(|| fail("the leading axes do not broadcast"))?;
    if !b.node.dtype.is_quantized() && !engine.runs(Op::Contract { activations }, dtype) {
        return decomposed(Edge { node: a.node, view: left }, Edge { node: b.node, view: right });
    }
    let edges = smallvec![Edge { node: a.node, view: left }, Edge { node: b.node, view: right }];
    engine.node(Op::Contract { activations }, dtype, with([m, n]), edges, SmallVec::new())
}

/// From a map and a reduction, where the device has no such product: [.., m, 1, k] * [.., 1, n, k], summed over k.
fn decomposed(left: Edge, right: Edge) -> Result<Arc<Node>> {
    let rank = left.view.shape.rank();
    if rank >= crate::MAX_RANK {
        return Err(Error::op("matmul", format!("{:?} has too many axes for this device", left.view.shape)));
    }
    let left = Edge { view: left.view.unsqueeze(rank - 1), node: left.node };
    let swapped: SmallVec<[usize; 8]> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    let right = Edge { view: right.view.permute(&swapped).unsqueeze(rank - 2), node: right.node };
    let products = super::binary(BinaryOp::Mul, left, right)?;
    super::reduce(RowOp::Sum, Edge::from(&products), 1 << rank)
}
