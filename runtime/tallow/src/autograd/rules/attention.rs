//! The gradient of attention: the scores are computed again from q, k and v, so that only these are kept.

use crate::{
    DType, Result, Shape, Tensor,
    autograd::{Input, Keep, by_way_of},
};
use tallow_graph::{Scalar, ops::Attention};

/// Records `y`, the attention of q, k, v and a mask if there is one.
pub(crate) fn attention(y: Tensor, inputs: &[&Input<'_>], options: Attention) -> Tensor {
    let all = (0..inputs.len()).fold(Keep::NOTHING, |all, i| all.and(Keep::input(i)));
    let keep = vec![all; inputs.len()];
    y.recorded("attention", inputs, &keep, move |saved, grad| {
        by_way_of(saved, grad, |inputs| match inputs {
            [q, k, v, rest @ ..] => composed(q, k, v, rest.first(), options),
            _ => Err(crate::Error::op("attention", "q, k and v were not kept; this is a bug")),
        })
    })
}

/// Attention from other operations, with a score matrix, in F32 (F64 for F64). The decomposition in `tallow_graph::ops` is the
/// same formula on nodes.
fn composed(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, options: Attention) -> Result<Tensor> {
    let dtype = q.dtype();
    let work = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (b, queries, heads, width) = q.dims4()?;
    let (_, keys, kv_heads, v_width) = v.dims4()?;
    let group = heads / kv_heads.max(1);
    // [batch, kv head, head of the group, position, width]
    let q = q.to_dtype(work)?.reshape([b, queries, kv_heads, group, width])?.permute([0, 2, 3, 1, 4])?;
    let repeated = |t: &Tensor, width: usize| {
        t.to_dtype(work)?.permute([0, 2, 1, 3])?.unsqueeze(2)?.broadcast_as([b, kv_heads, group, keys, width])
    };
    let mut scores = (q.matmul(&repeated(k, width)?.t()?)? * options.scale)?;
    if let Some(cap) = options.softcap {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    // Where a query does not see a key.
    let mut hidden: Vec<Tensor> = Vec::new();
    if let Some(mask) = mask {
        let mask = mask.broadcast_as([b, heads, queries, keys])?.reshape([b, kv_heads, group, queries, keys])?;
        let least = Tensor::full(f32::MIN, (), mask.device())?;
        hidden.push(mask.broadcast_lt(&least)?);
        scores = (scores + mask.to_dtype(work)?)?;
    }
    // The last query sees the last key.
    let offset = keys as i64 - queries as i64;
    let query = Tensor::arange_step(offset as f32, keys as f32, 1., q.device())?.reshape((queries, 1))?;
    let key = Tensor::arange(0f32, keys as f32, q.device())?;
    if options.causal {
        hidden.push(key.broadcast_gt(&query)?);
    }
    if let Some(window) = options.window {
        hidden.push(key.broadcast_le(&(query - window as f64)?)?);
    }
    let constant = |value| Tensor::constant(Scalar::F(value), work, Shape::new(&[]), q.device());
    let (least, zero) = (constant(-1e30)?, constant(0.0)?);
    for hidden in &hidden {
        scores = hidden.where_cond(&least, &scores)?;
    }
    let mut probabilities = scores.softmax_last_dim()?;
    // A query that sees nothing gives zeros.
    for hidden in &hidden {
        probabilities = hidden.where_cond(&zero, &probabilities)?;
    }
    let out = probabilities.matmul(&repeated(v, v_width)?)?;
    out.permute([0, 3, 1, 2, 4])?.reshape(Shape::new(&[b, queries, heads, v_width]))?.to_dtype(dtype)
}
