//! Kernels that move elements by index: rows and elements taken, scattered, sorted, and running along an axis.
//!
//! An id outside 0..rows is a fault (code [`crate::FAULT_INDEX`]), except a hole ([`DType::is_hole`]), which is none. Either
//! way what it would have taken is zero, and what it would have written is not.
//!
//! All but [`GatherKernel`] see their operands as three axes, [outer, along, inner]: `along` is the axis that the operation
//! is about, `outer` and `inner` are the axes before and after it, each as one.

use crate::DType;

/// Whole rows taken by index: `out[o, i, :] = source[o, ids[i], :]`, converted to the output's dtype.
///
/// Inputs: source, ids. Words: `[outer, ids, rows, inner]`, source `[offset, stride of outer, stride of row]` (its inner
/// axis has stride 1), ids `[offset, stride]`. A quantized source has outer = 1, and its offset counts elements of whole rows.
/// Output contiguous [outer, ids, inner]. Scalars: none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GatherKernel {
    /// The source's dtype, perhaps quantized.
    pub source: DType,
    /// U8, U32, I32, I64 or another integer type.
    pub ids: DType,
    /// The output's dtype: the source's own, F32 for quantized ones.
    pub output: DType,
}

/// Elements taken by index: `out[o, i, j] = source[o, ids[o, i, j], j]`.
///
/// Inputs: source, ids. Words: `[outer, n, inner, rows]`, source `[offset, stride of outer, of rows, of inner]`, ids
/// `[offset, stride of outer, of n, of inner]`. Output contiguous [outer, n, inner]. Scalars: none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PickKernel {
    /// The dtype of source and output: any plain one.
    pub dtype: DType,
    /// An integer type.
    pub ids: DType,
}

/// What a scatter does with an element that it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScatterOp {
    /// The last one stays.
    Set,
    /// They are added; integers wrap.
    Add,
    /// The largest stays, NaN wins.
    Max,
    /// The smallest stays, NaN wins.
    Min,
}

/// Elements written by index, in place: the output holds the old version already, [outer, rows, inner], contiguous. For i
/// from 0 to n - 1 in order, so that results do not depend on the device: `out[o, ids[o, i, j], j] op= source[o, i, j]`.
///
/// Inputs: ids, source. Words: `[outer, n, inner, rows]`, ids `[offset, stride of outer, of n, of inner]`, source `[offset,
/// stride of outer, of n, of inner]`. Scalars: none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScatterKernel {
    /// What is done.
    pub op: ScatterOp,
    /// The dtype of source and output, of 32 or 64 bits: the graph widens others.
    pub dtype: DType,
    /// An integer type.
    pub ids: DType,
}

/// The order of elements along an axis: `out[o, i, j]` is the position, along the axis, of the element that is the i-th
/// smallest (or largest). Equal elements keep their order; NaN counts as larger than everything; -0 equals 0.
///
/// Inputs: source. Words: `[outer, n, inner]`, source `[offset, stride of outer, of n, of inner]`. Output: U32, contiguous
/// [outer, n, inner]. Scalars: none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SortKernel {
    /// Of 32 or 64 bits: the graph widens others.
    pub dtype: DType,
    /// Largest first.
    pub descending: bool,
}

/// What a scan accumulates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScanOp {
    /// The running sum; integers wrap.
    Sum,
    /// The running product; integers wrap.
    Prod,
    /// The largest so far, NaN wins.
    Max,
    /// The smallest so far, NaN wins.
    Min,
}

/// A running result along an axis: `out[o, i, j] = source[o, 0, j] op ... op source[o, i, j]`, in the dtype itself.
///
/// Inputs: source. Words: `[outer, n, inner]`, source `[offset, stride of outer, of n, of inner]`. Output contiguous [outer,
/// n, inner]. Scalars: none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScanKernel {
    /// What is accumulated.
    pub op: ScanOp,
    /// Of 32 or 64 bits: the graph widens others.
    pub dtype: DType,
}
