//! Rows by index, and writes into a part of a value.

use super::same_engine;
use crate::{DType, Edge, Error, Node, Op, Result, Shape, View};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Slices of `source` along `axis`, in the order of `ids` (one axis, an integer dtype): index_select. The node's shape is
/// [outer, ids, inner], the axes before and after `axis` as one each. A packed source [rows,
/// cols] gives F32 rows (axis 0). An id out of range is a fault, reported at the next read.
pub fn gather(source: Edge, ids: Edge, axis: usize) -> Result<Arc<Node>> {
    let engine = same_engine("index_select", &[&source, &ids])?.clone();
    let shape = source.view.shape.clone();
    if axis >= shape.rank() || ids.view.shape.rank() != 1 || !ids.node.dtype.is_int() {
        let message = format!(
            "takes an axis of {shape:?} and ids of one axis and an integer dtype, not axis {axis} and {:?} {}",
            ids.view.shape, ids.node.dtype
        );
        return Err(Error::op("index_select", message));
    }
    let outer = Shape::new(&shape[..axis]).elem_count();
    let inner = Shape::new(&shape[axis + 1..]).elem_count();
    let three = Shape::new(&[outer, shape[axis], inner]);
    let packed = source.node.dtype.is_quantized();
    if packed && (axis != 0 || !super::whole_rows(&source)) {
        return Err(Error::op("index_select", format!("a packed weight gives whole rows: axis 0 of {shape:?}")));
    }
    let source = match source.view.reshape(&three) {
        Some(view) => Edge { node: source.node, view },
        None => Edge { node: super::copy(source)?, view: View::contiguous(three) },
    };
    let dtype = if packed { DType::F32 } else { source.node.dtype };
    let out = Shape::new(&[outer, ids.view.shape[0], inner]);
    engine.node(Op::Gather, dtype, out, smallvec![source, ids], SmallVec::new())
}

/// A new version of `base` in which the window `window` (a view of `base`'s whole value that covers each element at most
/// once) holds `value`, which broadcasts to the window's shape.
pub fn write(base: &Arc<Node>, window: View, value: Edge) -> Result<Arc<Node>> {
    if base.dtype.is_quantized() || base.dtype != value.node.dtype {
        let message = format!("cannot write {} into {}: convert with to_dtype", value.node.dtype, base.dtype);
        return Err(Error::op("slice_set", message));
    }
    if !window.lies_once_in(base.shape.elem_count()) {
        return Err(Error::op("slice_set", format!("{window:?} is no window of {:?}", base.shape)));
    }
    // A value that is only shaped otherwise is written over its own axes: what computes it then fuses into the write.
    let own = (value.view.shape.elem_count() == window.shape.elem_count()
        && value.view.is_whole(value.node.shape.elem_count()))
    .then(|| window.reshape(&value.node.shape))
    .flatten();
    let (window, value) = match own {
        Some(window) => (window, value.node.whole()),
        None => (window, value),
    };
    let view = value.view.broadcast_to(&window.shape).ok_or_else(|| {
        Error::op("slice_set", format!("{:?} does not fit a window of {:?}", value.view.shape, window.shape))
    })?;
    let base = Edge { node: base.clone(), view: window };
    let value = Edge { node: value.node, view };
    let engine = same_engine("slice_set", &[&base, &value])?.clone();
    let (dtype, shape) = (base.node.dtype, base.node.shape.clone());
    engine.node(Op::Write, dtype, shape, smallvec![base, value], SmallVec::new())
}
