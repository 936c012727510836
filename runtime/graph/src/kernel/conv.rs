//! The convolution kernel.

use super::Operand;
use crate::{DType, Expr};
use smallvec::SmallVec;

/// A general convolution (as XLA's ConvGeneralDilated) with an epilogue. Forward and transposed convolutions and both
/// of their gradients are one each: see [`crate::ops::convolution`]. For sample b, group g, output channel i and position p:
///
/// `acc = sum over channels j and taps t of input[b, g, j, x(p, t)] * filter[g, i, j, t]`, in f32 (f64 for F64), where on
/// each axis `x(p, t) = (p * stride + t * dilation - low) / input_dilation`; a tap that falls outside the input, or between
/// two of its elements (the division has a rest), adds nothing. Then the epilogue's value is stored at [b, g, i, p...].
///
/// Words: `[samples, groups, channels of the input in a group, output channels in a group]`, then for each spatial axis
/// `[input size, filter size, output size, stride, low, dilation, input dilation]` (low may be negative: it crops), then the
/// input's `[offset, strides of sample, group, channel, spatial...]`, the filter's `[offset, strides of group, output channel,
/// input channel, spatial...]`, and each epilogue operand's `[offset, strides of sample, group, output channel, spatial...]`.
/// Scalars: those that the epilogue names by number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConvKernel {
    /// Spatial axes, 1 to 3.
    pub spatial: u8,
    /// The input: input buffer, dtype.
    pub input: (u8, DType),
    /// The filter: input buffer, dtype (the input's own).
    pub filter: (u8, DType),
    /// The operands that the epilogue loads.
    pub operands: SmallVec<[Operand; 3]>,
    /// What is stored; loads `Acc(0)`.
    pub epilogue: Expr,
}
