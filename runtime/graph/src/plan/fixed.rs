//! Steps that nothing fuses with: attention, elements by index, users' kernels. Their operands come in a fixed order; this
//! file makes their words, scalars and kernels.

use super::{
    collect::Collected,
    recipe::{Class, Misfit, Reads, row_class},
};
use crate::{
    DType, Kernel, Scalar, View,
    kernel::{self, RowClass},
    locked::Token,
    node::{Node, Op},
};
use smallvec::SmallVec;

pub(crate) fn words(
    c: &Collected,
    token: &Token,
    head: u32,
    reads: &[Reads],
    words: &mut Vec<i64>,
    class: &mut Class,
) -> Result<(), Misfit> {
    let node = &c.nodes[head as usize];
    match node.op {
        Op::Attention { .. } => attention_words(c, token, head, reads, words, class),
        Op::Gather => gather_words(c, token, head, reads, words),
        Op::Pick => {
            let [source, ids] = views(c, token, reads)?;
            put_dims(&ids, words);
            words.push(source.shape[1] as i64);
            put_views(&[source, ids], words);
            Ok(())
        }
        Op::Scatter(_) => {
            let [ids, source] = views(c, token, reads)?;
            put_dims(&ids, words);
            words.push(node.shape[1] as i64);
            put_views(&[ids, source], words);
            Ok(())
        }
        Op::Sort { .. } | Op::Scan(_) => {
            let [source] = views(c, token, reads)?;
            put_dims(&source, words);
            put_views(&[source], words);
            Ok(())
        }
        Op::Custom => {
            for (e, read) in reads.iter().enumerate() {
                let view = read.view(c, token).ok_or(Misfit::View)?;
                if !view.is_dense() || view.offset != 0 {
                    return Err(Misfit::Copy(head, e as u8));
                }
                class.push(view.shape.rank() as u8);
                put_dims(&view, words);
            }
            words.extend(node.shape.iter().map(|&d| d as i64));
            Ok(())
        }
        _ => Err(Misfit::View),
    }
}

/// The scalars of a step, which has no others.
pub(crate) fn scalars(node: &Node) -> &[Scalar] {
    match node.op {
        // The third is a word.
        Op::Attention { .. } => node.scalars.get(..2).unwrap_or_default(),
        Op::Custom => &node.scalars,
        _ => &[],
    }
}

pub(crate) fn kernel(node: &Node, reads: &[Reads], class: &mut impl FnMut() -> u8) -> Kernel {
    let dtype = |i: usize| reads.get(i).map_or(DType::F32, |r| r.dtype);
    match node.op {
        Op::Attention { causal, window, softcap, mask } => Kernel::Attention(kernel::AttentionKernel {
            dtype: dtype(0),
            kv_dtype: dtype(1),
            causal,
            window,
            softcap,
            mask,
            rows: row_class(class()),
        }),
        Op::Pick => Kernel::Pick(kernel::PickKernel { dtype: dtype(0), ids: dtype(1) }),
        Op::Scatter(op) => Kernel::Scatter(kernel::ScatterKernel { op, ids: dtype(0), dtype: dtype(1) }),
        Op::Sort { descending } => Kernel::Sort(kernel::SortKernel { dtype: dtype(0), descending }),
        Op::Scan(op) => Kernel::Scan(kernel::ScanKernel { op, dtype: dtype(0) }),
        // A node without a kernel of the user's own is a gather.
        _ => match &node.custom {
            Some(custom) => Kernel::Custom(kernel::CustomKernel {
                custom: custom.clone(),
                inputs: reads.iter().map(|r| (r.dtype, class())).collect(),
                output: (node.dtype, node.shape.rank() as u8),
                scalars: node.scalars.len() as u8,
            }),
            None => Kernel::Gather(kernel::GatherKernel { source: dtype(0), ids: dtype(1), output: node.dtype }),
        },
    }
}

fn views<const N: usize>(c: &Collected, token: &Token, reads: &[Reads]) -> Result<[View; N], Misfit> {
    let all: Option<Vec<View>> = reads.iter().map(|r| r.view(c, token)).collect();
    all.and_then(|v| v.try_into().ok()).ok_or(Misfit::View)
}

fn put_dims(view: &View, words: &mut Vec<i64>) {
    words.extend(view.shape.iter().map(|&d| d as i64));
}

fn put_views(views: &[View], words: &mut Vec<i64>) {
    for view in views {
        words.push(view.offset as i64);
        words.extend(view.strides.iter().map(|&s| s as i64));
    }
}

fn attention_words(
    c: &Collected,
    token: &Token,
    head: u32,
    reads: &[Reads],
    words: &mut Vec<i64>,
    class: &mut Class,
) -> Result<(), Misfit> {
    let views: SmallVec<[View; 4]> =
        reads.iter().map(|r| r.view(c, token)).collect::<Option<_>>().ok_or(Misfit::View)?;
    let [q, k, v, ..] = views.as_slice() else { return Err(Misfit::View) };
    for (i, view) in [q, k, v].into_iter().enumerate() {
        if view.shape[3] != 1 && view.strides[3] != 1 {
            return Err(Misfit::Copy(head, i as u8));
        }
    }
    let (queries, keys) = (q.shape[1], k.shape[1]);
    let window = c.nodes[head as usize].scalars.get(2).map_or(0, |s| s.to_i64());
    class.push(RowClass::of(queries) as u8);
    words.extend([q.shape[0], queries, keys, q.shape[2], k.shape[2], q.shape[3], v.shape[3]].map(|d| d as i64));
    words.extend([keys as i64 - queries as i64, window]);
    for view in [q, k, v] {
        words.push(view.offset as i64);
        words.extend(view.strides[..3].iter().map(|&s| s as i64));
    }
    if let Some(mask) = views.get(3) {
        words.push(mask.offset as i64);
        words.extend(mask.strides.iter().map(|&s| s as i64));
    }
    Ok(())
}

fn gather_words(c: &Collected, token: &Token, head: u32, reads: &[Reads], words: &mut Vec<i64>) -> Result<(), Misfit> {
    let source = reads[0].view(c, token).ok_or(Misfit::View)?;
    let ids = reads[1].view(c, token).ok_or(Misfit::View)?;
    let (inner, stride) = (source.shape[2], source.strides[2]);
    if inner != 1 && stride != 1 {
        return Err(Misfit::Copy(head, 0));
    }
    words.extend([source.shape[0], ids.shape[0], source.shape[1], inner].map(|d| d as i64));
    words.extend([source.offset as i64, source.strides[0] as i64, source.strides[1] as i64]);
    words.extend([ids.offset as i64, ids.strides[0] as i64]);
    Ok(())
}
