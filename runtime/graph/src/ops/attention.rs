//! Scaled dot-product attention (Vaswani et al., 2017), without a stored score matrix where the device has the kernel.

use super::{binary, binary_scalar, matmul, same_engine, softmax, unary, where_cond};
use crate::{BinaryOp, CompareOp, DType, Edge, Error, Node, Op, Result, Scalar, Shape, UnaryOp};
use smallvec::smallvec;
use std::sync::Arc;

/// What attention does beside `softmax(scale * q k^T) v`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// Factor of the scores, usually 1 / sqrt(width).
    pub scale: f64,
    /// Hide keys after the query; the last query sees every key.
    pub causal: bool,
    /// Hide keys that lie `window` or more positions before the query.
    pub window: Option<usize>,
    /// Scores become c * tanh(score / c).
    pub softcap: Option<f64>,
}

/// q [batch, queries, heads, width], k [batch, keys, kv heads, width], v [batch, keys, kv heads, v width] ->
/// [batch, queries, heads, v width], contiguous. `mask` [batch, heads, queries, keys] (it broadcasts) is added to the scores;
/// minus infinity hides a key. Query head h reads key head h / (heads / kv heads). A query that sees no key gives zeros.
pub fn attention(q: Edge, k: Edge, v: Edge, mask: Option<Edge>, options: Attention) -> Result<Arc<Node>> {
    // Without a mask, q stands in for it.
    let operands = [&q, &k, &v, mask.as_ref().unwrap_or(&q)];
    let engine = same_engine("attention", &operands)?.clone();
    super::refuse_packed("attention", &operands)?;
    let fail = |why: &str| {
        let shapes = format!("{:?}, {:?}, {:?}", q.view.shape, k.view.shape, v.view.shape);
        Error::op("attention", format!("{why}: q, k, v are {shapes}"))
    };
    let ([b, tq, h, d], [kb, tk, kvh, kd], [vb, vt, vh, vd]) =
        match (q.view.shape.dims(), k.view.shape.dims(), v.view.shape.dims()) {
            (&[b, t, h, d], &[kb, kt, kh, kd], &[vb, vt, vh, vd]) => ([b, t, h, d], [kb, kt, kh, kd], [vb, vt, vh, vd]),
            _ => return Err(fail("each needs axes [batch, position, head, width]")),
        };
    if b != kb || b != vb || tk != vt || kvh != vh || d != kd {
        return Err(fail("batch, positions, heads or widths do not fit"));
    }
    if kvh == 0 || !h.is_multiple_of(kvh) {
        return Err(fail("the query heads are not a multiple of the key heads"));
    }
    if k.node.dtype != v.node.dtype || !q.node.dtype.is_float() || !k.node.dtype.is_float() {
        return Err(fail("k and v need one floating-point dtype"));
    }
    let mask = match mask {
        None => None,
        Some(mask) => {
            let shape = Shape::new(&[b, h, tq, tk]);
            if mask.node.dtype != DType::F32 {
                return Err(Error::op("attention", format!("the mask must be F32, not {}", mask.node.dtype)));
            }
            let view = mask.view.broadcast_to(&shape);
            let view = view.ok_or_else(|| {
                Error::op("attention", format!("mask {:?} does not broadcast to {shape:?}", mask.view.shape))
            })?;
            Some(Edge { node: mask.node, view })
        }
    };
    let dtype = q.node.dtype;
    let op = Op::Attention {
        causal: options.causal,
        window: options.window.is_some(),
        softcap: options.softcap.is_some(),
        mask: mask.is_some(),
    };
    let runs = |dtype| engine.runs(op, dtype);
    if engine.options().decompose || !runs(dtype) || !runs(k.node.dtype) {
        return decomposed(q, k, v, mask, options);
    }
    // Kernels count positions in 32 bits.
    let window = options.window.unwrap_or(0).min(i32::MAX as usize) as u64;
    let scalars = smallvec![Scalar::F(options.scale), Scalar::F(options.softcap.unwrap_or(0.0)), Scalar::U(window)];
    let mut edges: crate::Edges = smallvec![q, k, v];
    edges.extend(mask);
    engine.node(op, dtype, Shape::new(&[b, tq, h, vd]), edges, scalars)
}

/// From primitives, with a score matrix, in f32 (f64 for F64).
fn decomposed(q: Edge, k: Edge, v: Edge, mask: Option<Edge>, options: Attention) -> Result<Arc<Node>> {
    let engine = q.node.engine.clone();
    let dtype = q.node.dtype;
    let work = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let wide =
        |e: Edge| -> Result<Edge> { if e.node.dtype == work { Ok(e) } else { Ok(Edge::from(&super::cast(e, work)?)) } };
    let (q, k, v) = (wide(q)?, wide(k)?, wide(v)?);
    let (b, tq, h) = (q.view.shape[0], q.view.shape[1], q.view.shape[2]);
    let (tk, kvh) = (k.view.shape[1], k.view.shape[2]);
    let group = h / kvh;
    // Heads before positions, and key heads repeated by a broadcast axis: [b, kvh, group, position, width].
    let heads = |e: Edge, grouped: bool| -> Result<Edge> {
        let s = e.view.shape.clone();
        let view = if grouped {
            let split = e.view.reshape(&Shape::new(&[s[0], s[1], kvh, group, s[3]]));
            match split {
                Some(view) => view.permute(&[0, 2, 3, 1, 4]),
                None => return Err(Error::op("attention", format!("heads of {s:?} cannot be grouped"))),
            }
        } else {
            let five = e.view.permute(&[0, 2, 1, 3]).unsqueeze(2);
            let shape = Shape::new(&[s[0], kvh, group, s[1], s[3]]);
            five.broadcast_to(&shape).ok_or_else(|| Error::op("attention", "key heads do not repeat"))?
        };
        Ok(Edge { node: e.node, view })
    };
    let q = heads(q, true)?;
    let mut k = heads(k, false)?;
    let v = heads(v, false)?;
    k.view = k.view.permute(&[0, 1, 2, 4, 3]);
    let mut scores = Edge::from(&binary_scalar(BinaryOp::Mul, Edge::from(&matmul(q, k)?), Scalar::F(options.scale))?);
    if let Some(c) = options.softcap {
        let small = binary_scalar(BinaryOp::Div, scores, Scalar::F(c))?;
        let tanh = unary(UnaryOp::Tanh, Edge::from(&small))?;
        scores = Edge::from(&binary_scalar(BinaryOp::Mul, Edge::from(&tanh), Scalar::F(c))?);
    }
    // Conditions under which query t does not see key s.
    let mut hides: Vec<Edge> = Vec::new();
    if let Some(mask) = mask {
        let shape = Shape::new(&[b, kvh, group, tq, tk]);
        let view =
            mask.view.reshape(&shape).ok_or_else(|| Error::op("attention", "the mask's heads cannot be grouped"))?;
        let mask = Edge { node: mask.node, view };
        scores = Edge::from(&binary(BinaryOp::Add, scores, wide(mask.clone())?)?);
        // Below every finite number: minus infinity.
        let least = super::full(&engine, Shape::new(&[1]), DType::F32, Scalar::F(f64::from(f32::MIN)))?;
        hides.push(Edge::from(&super::compare(CompareOp::Lt, mask, Edge::from(&least))?));
    }
    if options.causal || options.window.is_some() {
        // key s is hidden from query t: s > t + position, or s <= t + position - window
        let position = tk as i64 - tq as i64;
        let query = super::arange(&engine, tq, work, Scalar::F(position as f64), Scalar::F(1.0))?;
        let key = super::arange(&engine, tk, work, Scalar::F(0.0), Scalar::F(1.0))?;
        let query = Edge { view: crate::View::contiguous(query.shape.clone()).unsqueeze(1), node: query };
        let key = Edge::from(&key);
        if options.causal {
            hides.push(Edge::from(&super::compare(CompareOp::Gt, key.clone(), query.clone())?));
        }
        if let Some(window) = options.window {
            let oldest = super::affine(query, Scalar::F(1.0), Scalar::F(-(window as f64)))?;
            hides.push(Edge::from(&super::compare(CompareOp::Le, key, Edge::from(&oldest))?));
        }
    }
    let hidden = super::full(&engine, Shape::new(&[1]), work, Scalar::F(-1e30))?;
    let zero = super::full(&engine, Shape::new(&[1]), work, Scalar::F(0.0))?;
    for hide in &hides {
        scores = Edge::from(&where_cond(hide.clone(), Edge::from(&hidden), scores)?);
    }
    // Rows that see nothing are zeros, not averages.
    let mut probabilities = Edge::from(&softmax(scores)?);
    for hide in &hides {
        probabilities = Edge::from(&where_cond(hide.clone(), Edge::from(&zero), probabilities)?);
    }
    let out = matmul(probabilities, v)?;
    // [b, kvh, group, t, vd] -> [b, t, heads, vd]
    let vd = out.shape[4];
    let edge = Edge::from(&out);
    let turned = Edge { view: edge.view.permute(&[0, 3, 1, 2, 4]), node: edge.node };
    let dense = super::copy(turned)?;
    let view = crate::View::contiguous(Shape::new(&[b, tq, h, vd]));
    if dtype == work { super::copy(Edge { node: dense, view }) } else { super::cast(Edge { node: dense, view }, dtype) }
}
