//! What a step of a plan computes: the structure that backends compile, and the layout of the data that goes with it.
//!
//! A [`Kernel`] holds structure only: operations, dtypes, ranks, layout classes. Sizes, strides, offsets and scalars
//! come with each run as *words* (i64) and *scalars*, in the order that each kernel's documentation gives; see
//! [`crate::Args`]. Two steps with equal kernels run the same compiled code.
//!
//! Common terms. A *nest* is a loop nest over `rank` axes, already collapsed: axes that every operand walks as one are
//! merged, axes of size 1 are gone, so a nest over contiguous operands has rank 1 (rank 0 where there is one element).
//! An *operand* is read at `offset + sum(index[a] * stride[a])`, in elements of its dtype, from input buffer
//! `operand.input`. An operand's words are `[offset, stride of each axis...]`.
//! Every output is written contiguously, except where the kernel says otherwise.

mod conv;
mod custom;
mod index;

pub use conv::ConvKernel;
pub use custom::{Custom, CustomKernel, GridFn, HostFn, HostView, HostViewMut, Wgsl};
pub use index::{GatherKernel, PickKernel, ScanKernel, ScanOp, ScatterKernel, ScatterOp, SortKernel};

use crate::{DType, Expr};
use smallvec::SmallVec;

/// One value that an expression loads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Which of the step's input buffers; several operands may share one. `None`: no buffer, the operand is a
    /// [`crate::Inst::Position`].
    pub input: Option<u8>,
    /// The dtype in storage.
    pub dtype: DType,
    /// How the nest walks it.
    pub layout: Layout,
}

/// How a nest walks an operand or output. Structure, so that kernels can skip index arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// The linear index itself: offset + i.
    Linear,
    /// One element for all: every stride is 0.
    Scalar,
    /// By strides.
    Strided,
}

/// Several independent maps in one launch ([`MapPart`]). Part `p` writes output `p` of the step.
///
/// Words: the parts' words one after the other. Scalars: numbered across the whole step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MapKernel {
    /// The parts, each with its own nest.
    pub parts: SmallVec<[MapPart; 1]>,
}

/// An expression over a nest; one output.
///
/// Words: `[size of each axis] [output operand words] [operand words of each operand]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MapPart {
    /// Axes of the nest, outermost first.
    pub rank: u8,
    /// Four neighbours along the innermost axis can be taken as one: its size is a multiple of 4, innermost strides are 0
    /// or 1, and where it is 1, the offset and the other strides are multiples of 4 (where it is 0, one element serves
    /// all four, wherever it lies).
    pub vector: bool,
    /// The operands that the expression loads.
    pub operands: SmallVec<[Operand; 3]>,
    /// What is computed.
    pub expr: Expr,
    /// How the nest walks the output: strided where the map writes into a part of an existing buffer.
    pub output: Layout,
}

/// What a row kernel computes over its inner axes, accumulating in f32 (f64 for F64, exactly for integers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowOp {
    /// Sum; 0 for none. One result a row.
    Sum,
    /// Product; 1 for none. One result a row.
    Prod,
    /// Mean (floats). One result a row.
    Mean,
    /// Maximum, NaN wins. One result a row.
    Max,
    /// Minimum, NaN wins. One result a row.
    Min,
    /// Position of the first maximum (NaN wins), U32. One result a row.
    ArgMax,
    /// Position of the first minimum (NaN wins), U32. One result a row.
    ArgMin,
    /// x / sqrt(mean(x^2) + scalar 0). As many results as elements.
    RmsNorm,
    /// (x - mean) / sqrt(mean((x - mean)^2) + scalar 0). As many results as elements.
    LayerNorm,
    /// exp(x - max) / sum(exp(x - max)). As many results as elements.
    Softmax,
}

impl RowOp {
    /// Whether a row gives one result (a reduction) instead of one an element.
    pub const fn reduces(self) -> bool {
        !matches!(self, RowOp::RmsNorm | RowOp::LayerNorm | RowOp::Softmax)
    }
}

/// A reduction or normalisation: for each index of the outer axes, over all indices of the inner axes, of `before`'s
/// value; then `after`, whose `Acc(0)` is the result (in the accumulator's dtype: see `accumulator`).
///
/// Words: `[size of each outer axis] [size of each inner axis] [operand words of each operand]`; operand words have
/// strides for the outer axes, then for the inner axes. Operands that only `after` of a reduction loads have inner strides of 0.
/// Scalars: the row operation's own first (eps), then those that `before` and `after` name by number.
/// The output is contiguous over [outer..., inner...] (norms) or [outer...] (reductions).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowKernel {
    /// What is computed along a row.
    pub op: RowOp,
    /// Outer axes.
    pub outer: u8,
    /// Inner axes: the row. Norms have exactly one.
    pub inner: u8,
    /// Operands of both expressions, numbered together.
    pub operands: SmallVec<[Operand; 3]>,
    /// What is reduced.
    pub before: Expr,
    /// What is stored.
    pub after: Expr,
    /// The dtype of `Acc(0)`: that of `before`'s value (computed, not storage: F32 for F16), U32 for arg reductions.
    pub accumulator: DType,
}

/// How many rows the left operand of a contraction has: its own kernels pay for one row, for few and for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowClass {
    /// m = 1: a matrix-vector product.
    One,
    /// 2 to 8.
    Few,
    /// More.
    Many,
}

impl RowClass {
    /// The class of `m` rows.
    pub const fn of(m: usize) -> Self {
        match m {
            0 | 1 => RowClass::One,
            2..=8 => RowClass::Few,
            _ => RowClass::Many,
        }
    }
}

/// How a quantized product takes its left operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activations {
    /// In f32: only the weights are rounded.
    F32,
    /// Rounded to 8 bits by blocks of 32 (scale = max |x| / 127), so that products are of integers, as in llama.cpp.
    Q8,
}

/// A row operation applied to the left operand's rows on their way into a contraction: `norm(x) * weight (+ bias)`.
/// `weight` and `bias` are inputs of k elements, contiguous.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Prologue {
    /// RmsNorm or LayerNorm.
    pub op: RowOp,
    /// Input buffer and dtype of the weight.
    pub weight: Option<(u8, DType)>,
    /// Input buffer and dtype of the bias.
    pub bias: Option<(u8, DType)>,
}

/// Batched products of one left operand with one or several right operands, with an epilogue each.
///
/// For each batch index, row i and column j of part p: `acc = sum over k of left[i, k] * right_p[k, j]`, in f32 (f64 for
/// F64); a paired part has `Acc(0)` of column j and `Acc(1)` of column j + n. Then the epilogue's value is stored at
/// [batch..., i, j] of output p.
///
/// Words: `[size of each batch axis] [m, k]`, then the left operand's `[offset, batch strides..., stride of m, stride of
/// k]`, then `[weight offset, bias offset]` of the prologue (0 where it has none), then for each part `[n]`, the right operand's
/// `[offset, batch strides..., stride of k, stride of n]`, and each epilogue operand's `[offset, batch strides...,
/// stride of m, stride of n]`. A quantized right operand is a packed weight of whole rows of k elements: its offset counts
/// rows, its stride of k is 1 and its stride of n is the row's length k.
/// Scalars: the prologue's eps first (if there is a prologue), then those that the epilogues name by number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContractKernel {
    /// Batch axes, collapsed; at most 2.
    pub batch: u8,
    /// The left operand: dtype, input buffer.
    pub left: (u8, DType),
    /// Whether the left operand's k axis has stride 1.
    pub left_rows: bool,
    /// The class of m.
    pub rows: RowClass,
    /// k, and of the left and right operands every offset and every stride other than the unit ones, are multiples of 4
    /// (strides of axes of one element do not count, nor do the epilogues' operands).
    pub vector: bool,
    /// Applied to the left operand's rows.
    pub prologue: Option<Prologue>,
    /// For quantized right operands.
    pub activations: Activations,
    /// The right operands, each with its own output.
    pub parts: SmallVec<[ContractPart; 1]>,
}

/// One right operand of a contraction, with its epilogue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContractPart {
    /// The right operand: dtype (perhaps quantized), input buffer.
    pub right: (u8, DType),
    /// Which axis of the right operand has stride 1.
    pub right_unit: RightUnit,
    /// Two accumulators, for columns j and j + n of a right operand with 2n columns.
    pub paired: bool,
    /// The operands that the epilogue loads.
    pub operands: SmallVec<[Operand; 3]>,
    /// What is stored; loads `Acc(0)` (and `Acc(1)`).
    pub epilogue: Expr,
}

/// Which axis of a contraction's right operand has stride 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RightUnit {
    /// k: stored as [n, k], the layout of a linear layer's weight.
    K,
    /// n: stored as [k, n].
    N,
}

/// Scaled dot-product attention without a stored score matrix: for each batch b, query t and head h,
/// `softmax(scale * q . k_s + mask) . v` over the keys s that are visible. Query heads share key heads: head h reads key
/// head `h / (heads / kv_heads)`. With `causal`, query t sees keys s <= t + position (position = keys - queries for a cache
/// whose newest keys are the queries' own); with a window w, only keys s > t + position - w. With softcap c > 0, scores
/// become c * tanh(score / c) before the mask. A score of minus infinity hides its key. A query that sees no key gives zeros.
///
/// Inputs: q, k, v, and the mask if there is one. Output contiguous [batch, queries, heads, v width].
/// Words: `[batch, queries, keys, heads, kv_heads, width, v_width, position, window]` (window 0: none), then
/// `[offset, stride of batch, of position, of head]` of q, k and v (their last axis has stride 1), then the mask's
/// `[offset, stride of batch, of head, of query, of key]` (added to the scores; F32).
/// Scalars: scale, softcap (0: none).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionKernel {
    /// Storage dtype of q and of the output.
    pub dtype: DType,
    /// Storage dtype of k and v.
    pub kv_dtype: DType,
    /// Whether keys after the query are hidden.
    pub causal: bool,
    /// Whether a window hides keys that are too old.
    pub window: bool,
    /// Whether scores are capped.
    pub softcap: bool,
    /// Whether a mask is added.
    pub mask: bool,
    /// The class of the number of queries.
    pub rows: RowClass,
}

/// What a [`Kernel::Random`] step draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Uniform in [scalar 0, scalar 1): low + (high - low) * (24 random bits / 2^24).
    Uniform,
    /// Normal with mean scalar 0 and standard deviation scalar 1, by Box-Muller: words 0 and 1 of a Philox block give
    /// elements 0 and 1, words 2 and 3 give elements 2 and 3: r = sqrt(-2 ln u0), (r cos 2 pi u1, r sin 2 pi u1), with
    /// u0 = (w0 / 2^8 + 1) / 2^24 and u1 = (w1 / 2^8) / 2^24.
    Normal,
}

/// Random numbers by Philox 4x32-10: element i takes word i % 4 of the block of counter (i / 4 low word, i / 4 high
/// word, counter low, counter high) under the key (key low, key high).
///
/// Words: `[elements, key low, key high, counter low, counter high]` (each 32 bits). Scalars: two, see [`Distribution`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RandomKernel {
    /// Which distribution.
    pub distribution: Distribution,
    /// F32, F16, BF16 or F64.
    pub dtype: DType,
}

/// What one step of a plan computes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Fused element-wise work.
    Map(MapKernel),
    /// Fused reductions and norms.
    Row(RowKernel),
    /// Fused products.
    Contract(ContractKernel),
    /// Convolutions.
    Conv(ConvKernel),
    /// Attention.
    Attention(AttentionKernel),
    /// Rows by index.
    Gather(GatherKernel),
    /// Elements by index.
    Pick(PickKernel),
    /// Elements written by index.
    Scatter(ScatterKernel),
    /// The order of elements.
    Sort(SortKernel),
    /// Running sums and their kind.
    Scan(ScanKernel),
    /// A user's kernel.
    Custom(CustomKernel),
    /// Random numbers.
    Random(RandomKernel),
}

impl Kernel {
    /// The kind, for messages and debug output.
    pub const fn name(&self) -> &'static str {
        match self {
            Kernel::Map(_) => "map",
            Kernel::Row(row) => match row.op {
                RowOp::RmsNorm => "rms_norm",
                RowOp::LayerNorm => "layer_norm",
                RowOp::Softmax => "softmax",
                RowOp::ArgMax => "argmax",
                RowOp::ArgMin => "argmin",
                _ => "reduce",
            },
            Kernel::Contract(_) => "matmul",
            Kernel::Conv(_) => "conv",
            Kernel::Attention(_) => "attention",
            Kernel::Gather(_) => "gather",
            Kernel::Pick(_) => "pick",
            Kernel::Scatter(_) => "scatter",
            Kernel::Sort(_) => "sort",
            Kernel::Scan(_) => "scan",
            Kernel::Custom(_) => "custom",
            Kernel::Random(_) => "random",
        }
    }
}
