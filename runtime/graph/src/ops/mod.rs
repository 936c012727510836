//! Building nodes: one function an operation, with its shape rule and, for composites, its decomposition into primitives.
//! Nothing here computes; gradients and user-facing names live in `tallow`.

mod attention;
mod contract;
mod conv;
mod create;
mod custom;
mod index;
mod map;
mod row;

pub use attention::{Attention, attention};
pub use contract::{linear, matmul};
pub use conv::{ConvAxis, convolution};
pub use create::{arange, full, random, transfer};
pub use custom::custom;
pub use index::{arg_sort, gather, pick, scan, scatter, write};
pub use map::{affine, binary, binary_scalar, cast, compare, copy, unary, where_cond};
pub use row::{layer_norm, reduce, rms_norm, softmax};

use crate::{Edge, Engine, Error, Result};
use std::sync::Arc;

/// The one engine of all operands.
#[inline]
fn same_engine<'a>(op: &'static str, edges: &[&'a Edge]) -> Result<&'a Arc<Engine>> {
    let first = &edges[0].node.engine;
    match edges.iter().find(|e| e.node.engine.id() != first.id()) {
        None => Ok(first),
        Some(other) => Err(Error::op(
            op,
            format!(
                "operands live on different devices, {} and {}: move one with to_device",
                first.backend().info().name,
                other.node.engine.backend().info().name
            ),
        )),
    }
}

/// Packed weights are for products, gathers and dequantization only.
#[inline]
fn refuse_packed(op: &'static str, edges: &[&Edge]) -> Result<()> {
    match edges.iter().find(|e| e.node.dtype.is_quantized()) {
        None => Ok(()),
        Some(edge) => Err(Error::op(
            op,
            format!(
                "a weight packed as {} cannot be used here: dequantize it first, or multiply by it",
                edge.node.dtype
            ),
        )),
    }
}

/// Whether a view of a packed weight [rows, cols] shows whole rows, in order: all that kernels can address in blocks.
fn whole_rows(edge: &Edge) -> bool {
    let cols = edge.node.shape.last().copied().unwrap_or(0);
    edge.view.shape.rank() == 2
        && edge.view.shape[1] == cols
        && edge.view.is_dense()
        && edge.view.offset.is_multiple_of(cols.max(1))
}
