//! Users' kernels as nodes.

use super::{refuse_packed, same_engine};
use crate::{DType, Edge, Error, Node, Op, Result, Scalar, Shape, kernel::Custom};
use std::sync::Arc;

/// The result of a user's kernel, of this dtype and shape. It is planned like any other operation; operands come to it
/// contiguous.
pub fn custom(custom: &Arc<Custom>, edges: &[Edge], scalars: &[f64], dtype: DType, shape: Shape) -> Result<Arc<Node>> {
    let refs: Vec<&Edge> = edges.iter().collect();
    if refs.is_empty() {
        return Err(Error::op("custom", format!("'{}' needs an operand, which names the device", custom.name())));
    }
    let engine = same_engine("custom", &refs)?.clone();
    refuse_packed("custom", &refs)?;
    engine.backend().check_dtype(dtype)?;
    let most = engine.backend().info().max_bindings.saturating_sub(1);
    if edges.len() > most {
        let message = format!("'{}' has {} operands, and this device binds at most {most}", custom.name(), edges.len());
        return Err(Error::op("custom", message));
    }
    if scalars.len() > u8::MAX as usize {
        return Err(Error::op("custom", format!("'{}' has more than 255 scalars: pass a tensor", custom.name())));
    }
    let dtypes: Vec<DType> = edges.iter().map(|e| e.node.dtype).collect();
    engine.backend().check_custom(custom, &dtypes, dtype)?;
    let scalars = scalars.iter().map(|&v| Scalar::F(v)).collect();
    engine.clone().into_node(Op::Custom, dtype, shape, edges.iter().cloned().collect(), scalars, Some(custom.clone()))
}
