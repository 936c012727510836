//! Rows and elements by index, sorting, running results, and writes into a part of a value.

use super::{cast, refuse_packed, same_engine};
use crate::{
    DType, Edge, Error, Node, Op, Result, Shape, View,
    kernel::{ScanOp, ScatterOp},
};
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

/// An operand as [outer, along, inner]: the axes before and after `axis` as one each.
fn three_axes(edge: Edge, axis: usize) -> Result<Edge> {
    let shape = &edge.view.shape;
    let size = |dims: &[usize]| Shape::new(dims).elem_count();
    let three = Shape::new(&[size(&shape[..axis]), shape[axis], size(&shape[axis + 1..])]);
    Ok(match edge.view.reshape(&three) {
        Some(view) => Edge { node: edge.node, view },
        None => Edge { node: super::copy(edge)?, view: View::contiguous(three) },
    })
}

fn check_axis(op: &'static str, edges: &[&Edge], axis: usize) -> Result<()> {
    refuse_packed(op, edges)?;
    match edges.iter().find(|e| axis >= e.view.shape.rank()) {
        None => Ok(()),
        Some(edge) => Err(Error::op(op, format!("{:?} has no axis {axis}", edge.view.shape))),
    }
}

fn check_ids(op: &'static str, ids: &Edge) -> Result<()> {
    if ids.node.dtype.is_int() {
        return Ok(());
    }
    Err(Error::op(op, format!("ids must be of an integer dtype, not {}", ids.node.dtype)))
}

/// Whether two shapes agree on all axes but one.
fn agree_but(axis: usize, a: &Shape, b: &Shape) -> bool {
    a.rank() == b.rank() && a.iter().zip(b.iter()).enumerate().all(|(i, (x, y))| i == axis || x == y)
}

/// The dtype in which elements are scattered, sorted and accumulated: 32 bits or 64, exact for `dtype`'s values.
fn wide(dtype: DType) -> DType {
    match dtype {
        DType::U8 | DType::U16 => DType::U32,
        DType::I8 | DType::I16 => DType::I32,
        DType::F8E4M3 | DType::F8E5M2 | DType::BF16 | DType::F16 => DType::F32,
        other => other,
    }
}

fn widened(edge: Edge) -> Result<Edge> {
    let dtype = wide(edge.node.dtype);
    Ok(if dtype == edge.node.dtype { edge } else { Edge::from(&cast(edge, dtype)?) })
}

/// Back in `dtype`, where the work was done in a wider one.
fn narrowed(node: Arc<Node>, dtype: DType) -> Result<Arc<Node>> {
    if node.dtype == dtype { Ok(node) } else { cast(Edge::from(&node), dtype) }
}

/// `out[.., i, ..] = source[.., ids[.., i, ..], ..]`, i along `axis`. `ids` has the source's sizes on the other axes. The node
/// has three axes, [outer, n, inner]. An id out of range is a fault.
pub fn pick(source: Edge, ids: Edge, axis: usize) -> Result<Arc<Node>> {
    let engine = same_engine("gather", &[&source, &ids])?.clone();
    check_axis("gather", &[&source, &ids], axis)?;
    check_ids("gather", &ids)?;
    if !agree_but(axis, &source.view.shape, &ids.view.shape) {
        let message =
            format!("ids {:?} must have the sizes of {:?} but for axis {axis}", ids.view.shape, source.view.shape);
        return Err(Error::op("gather", message));
    }
    let (source, ids) = (three_axes(source, axis)?, three_axes(ids, axis)?);
    let (dtype, shape) = (source.node.dtype, ids.view.shape.clone());
    engine.node(Op::Pick, dtype, shape, smallvec![source, ids], SmallVec::new())
}

/// A new version of `base` in which, for i along `axis` in order, `out[.., ids[.., i, ..], ..] op= source[.., i, ..]`. `ids` has
/// the shape of `source`; both have the base's sizes on the other axes. The node has three axes, [outer, rows, inner]. An id
/// out of range is a fault.
pub fn scatter(op: ScatterOp, base: Edge, ids: Edge, source: Edge, axis: usize) -> Result<Arc<Node>> {
    let engine = same_engine("scatter", &[&base, &ids, &source])?.clone();
    check_axis("scatter", &[&base, &ids, &source], axis)?;
    check_ids("scatter", &ids)?;
    let dtype = base.node.dtype;
    if dtype != source.node.dtype {
        let message = format!("cannot scatter {} into {dtype}: convert with to_dtype", source.node.dtype);
        return Err(Error::op("scatter", message));
    }
    let (rows, ids_shape) = (&base.view.shape, &ids.view.shape);
    if ids_shape != &source.view.shape || !agree_but(axis, rows, ids_shape) {
        let message = format!(
            "ids {ids_shape:?} and source {:?} must be alike, and have the sizes of {rows:?} but for axis {axis}",
            source.view.shape
        );
        return Err(Error::op("scatter", message));
    }
    let base = three_axes(widened(base)?, axis)?;
    let shape = base.view.shape.clone();
    // The new version may take the old one's buffer, so that must be a whole value in order.
    let base = if base.view.is_whole(base.node.shape.elem_count()) { base } else { super::copy(base)?.whole() };
    let (ids, source) = (three_axes(ids, axis)?, three_axes(widened(source)?, axis)?);
    let wide = base.node.dtype;
    let node = engine.node(Op::Scatter(op), wide, shape, smallvec![base, ids, source], SmallVec::new())?;
    narrowed(node, dtype)
}

/// Positions along `axis` in the order of the elements, as U32; see [`crate::kernel::SortKernel`]. The node has three axes,
/// [outer, n, inner].
pub fn arg_sort(x: Edge, axis: usize, descending: bool) -> Result<Arc<Node>> {
    check_axis("arg_sort", &[&x], axis)?;
    let x = three_axes(widened(x)?, axis)?;
    if u32::try_from(x.view.shape[1]).is_err() {
        return Err(Error::op(
            "arg_sort",
            format!("{} elements are more than U32 positions can count", x.view.shape[1]),
        ));
    }
    let (engine, shape) = (x.node.engine.clone(), x.view.shape.clone());
    engine.node(Op::Sort { descending }, DType::U32, shape, smallvec![x], SmallVec::new())
}

/// The running result along `axis`, in x's dtype. The node has three axes, [outer, n, inner].
pub fn scan(op: ScanOp, x: Edge, axis: usize) -> Result<Arc<Node>> {
    check_axis("scan", &[&x], axis)?;
    let dtype = x.node.dtype;
    let x = three_axes(widened(x)?, axis)?;
    let (engine, shape) = (x.node.engine.clone(), x.view.shape.clone());
    let node = engine.node(Op::Scan(op), wide(dtype), shape, smallvec![x], SmallVec::new())?;
    narrowed(node, dtype)
}
