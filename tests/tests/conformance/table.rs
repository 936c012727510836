//! The table: each operation once. Indexing has a file of its own.

mod index;

pub use index::INDEXING;

use crate::compare::Tolerance::{self, Exact, Ulp, Whole};
use tallow::{
    Attention, D, DType, Result, Tensor,
    fft::{self, Norm, Stft},
};

/// The shapes that an operation is tried with.
#[derive(Clone, Copy)]
pub enum Shapes {
    /// One operand of any shape.
    One,
    /// Two that broadcast.
    Two,
    /// One with a last axis to go along.
    Rows,
    /// [.., m, k] and [.., k, n].
    Matrices,
    /// These: calls of shapes.
    Fixed(&'static [&'static [&'static [usize]]]),
}

/// An operation.
pub struct Row {
    pub name: &'static str,
    pub run: fn(&[Tensor]) -> Result<Tensor>,
    pub dtypes: &'static [DType],
    /// The dtype of an input where it is not the row's.
    pub input_dtypes: &'static [Option<DType>],
    pub shapes: Shapes,
    /// Values are drawn from here.
    pub range: (f64, f64),
    pub tolerance: Tolerance,
}

use DType::{BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

const FLOATS: &[DType] = &[F32, F16, BF16, F64];
const NUMBERS: &[DType] = &[F32, F16, BF16, F64, I32, U32, I64, U64, U8, I8, U16, I16];
const INTEGERS: &[DType] = &[I32, U32, I64, U64, U8, I8, U16, I16];

macro_rules! row {
    ($name:literal, $run:expr, $dtypes:expr, $shapes:expr, $range:expr, $tolerance:expr) => {
        Row {
            name: $name,
            run: $run,
            dtypes: $dtypes,
            input_dtypes: &[],
            shapes: $shapes,
            range: $range,
            tolerance: $tolerance,
        }
    };
}

const WIDE: (f64, f64) = (-20.0, 20.0);
const SMALL: (f64, f64) = (0.0, 9.0);

fn mean(x: &Tensor) -> Result<Tensor> {
    x.mean(D::Minus1)
}

fn attend(x: &[Tensor], causal: bool, window: Option<usize>, softcap: Option<f64>) -> Result<Tensor> {
    x[0].attention(&x[1], &x[2], None, Attention { scale: 0.4, causal, window, softcap })
}

const COMPLEX: Shapes =
    Shapes::Fixed(&[&[&[12, 2]], &[&[3, 8, 2]], &[&[2, 131, 2]], &[&[2, 3, 100, 2]], &[&[5, 2, 2]]]);
const COLUMNS: Shapes = Shapes::Fixed(&[&[&[9]], &[&[8, 3]], &[&[100, 2, 3]], &[&[5, 0]], &[&[1, 4]]]);
const SIGNALS: Shapes = Shapes::Fixed(&[&[&[40]], &[&[3, 33]], &[&[2, 2, 64]]]);

const HEADS: Shapes = Shapes::Fixed(&[
    &[&[1, 1, 3, 8], &[1, 9, 3, 8], &[1, 9, 3, 8]],
    &[&[2, 5, 4, 16], &[2, 5, 2, 16], &[2, 5, 2, 16]],
    &[&[1, 3, 6, 64], &[1, 70, 2, 64], &[1, 70, 2, 32]],
    &[&[1, 17, 2, 8], &[1, 40, 1, 8], &[1, 40, 1, 8]],
]);

// Kernels whose two leading axes are equal serve a convolution and its transpose.
const LINES: Shapes = Shapes::Fixed(&[
    &[&[1, 3, 9], &[3, 3, 3]],
    &[&[2, 8, 20], &[8, 8, 4]],
    &[&[0, 2, 5], &[2, 2, 3]],
    &[&[1, 1, 130], &[1, 1, 1]],
]);
const PLANES: Shapes = Shapes::Fixed(&[
    &[&[1, 3, 7, 9], &[3, 3, 3, 2]],
    &[&[2, 4, 6, 6], &[4, 4, 1, 1]],
    &[&[1, 16, 12, 10], &[16, 16, 3, 3]],
    &[&[1, 2, 4, 33], &[2, 2, 2, 5]],
]);
const GROUPED: Shapes = Shapes::Fixed(&[&[&[1, 4, 7, 9], &[6, 2, 3, 2]], &[&[2, 2, 6, 5], &[2, 1, 3, 3]]]);
const VOLUMES: Shapes = Shapes::Fixed(&[&[&[1, 2, 4, 5, 6], &[3, 2, 3, 2, 1]], &[&[2, 1, 3, 3, 3], &[1, 1, 3, 3, 3]]]);
const IMAGES: Shapes =
    Shapes::Fixed(&[&[&[1, 2, 5, 6]], &[&[2, 1, 3, 2]], &[&[0, 2, 4, 4]], &[&[1, 3, 7, 12]], &[&[2, 2, 9, 17]]]);

/// Two that are alike but for the second axis.
const PAIRS: Shapes = Shapes::Fixed(&[
    &[&[2, 3], &[2, 1]],
    &[&[3, 33], &[3, 2]],
    &[&[2, 3, 5], &[2, 2, 5]],
    &[&[1, 1], &[1, 1]],
    &[&[2, 0, 3], &[2, 4, 3]],
    &[&[4, 64, 1, 3], &[4, 1, 1, 3]],
]);

/// A tensor and what fits into positions 1 and 2 of its second axis.
const WINDOWS: Shapes = Shapes::Fixed(&[&[&[2, 3], &[2, 2]], &[&[3, 33], &[3, 2]], &[&[2, 5, 3], &[2, 2, 3]]]);

/// [m, n] and [n, n].
const SQUARES: Shapes = Shapes::Fixed(&[&[&[3, 4], &[4, 4]], &[&[1, 17], &[17, 17]], &[&[5, 1], &[1, 1]]]);

/// [m, k] and [k, n].
const MATRIX: Shapes = Shapes::Fixed(&[&[&[3, 5], &[5, 7]], &[&[17, 36], &[36, 19]], &[&[1, 4], &[4, 1]]]);

/// Divisions and roots of WGSL have 2.5 ulp and more; transcendental functions are worse than on a CPU.
pub const TABLE: &[Row] = &[
    row!("neg", |x| x[0].neg(), &[F32, F16, BF16, F64, I32, I64, I8, I16], Shapes::One, WIDE, Exact),
    row!("abs", |x| x[0].abs(), &[F32, F16, BF16, F64, I32, I64, I8, I16], Shapes::One, WIDE, Exact),
    row!("sign", |x| x[0].sign(), FLOATS, Shapes::One, WIDE, Exact),
    row!("sqr", |x| x[0].sqr(), FLOATS, Shapes::One, WIDE, Ulp(1.0)),
    row!("sqrt", |x| x[0].sqrt(), FLOATS, Shapes::One, (0.0, 50.0), Ulp(4.0)),
    row!("rsqrt", |x| x[0].rsqrt(), FLOATS, Shapes::One, (0.1, 50.0), Ulp(4.0)),
    row!("recip", |x| x[0].recip(), FLOATS, Shapes::One, (0.1, 50.0), Ulp(4.0)),
    row!("exp", |x| x[0].exp(), FLOATS, Shapes::One, (-10.0, 10.0), Ulp(32.0)),
    row!("log", |x| x[0].log(), FLOATS, Shapes::One, (2.0, 90.0), Ulp(8.0)),
    row!("sin", |x| x[0].sin(), FLOATS, Shapes::One, WIDE, Whole(4e-6)),
    row!("cos", |x| x[0].cos(), FLOATS, Shapes::One, WIDE, Whole(4e-6)),
    row!("tanh", |x| x[0].tanh(), FLOATS, Shapes::One, WIDE, Whole(1e-6)),
    row!("erf", |x| x[0].erf(), FLOATS, Shapes::One, (-4.0, 4.0), Whole(2e-6)),
    row!("gelu", |x| x[0].gelu(), FLOATS, Shapes::One, WIDE, Whole(2e-6)),
    row!("gelu_erf", |x| x[0].gelu_erf(), FLOATS, Shapes::One, WIDE, Whole(2e-6)),
    row!("relu", |x| x[0].relu(), FLOATS, Shapes::One, WIDE, Exact),
    row!("silu", |x| x[0].silu(), FLOATS, Shapes::One, WIDE, Whole(2e-6)),
    row!("sigmoid", |x| x[0].sigmoid(), FLOATS, Shapes::One, WIDE, Whole(2e-6)),
    row!("floor", |x| x[0].floor(), FLOATS, Shapes::One, WIDE, Exact),
    row!("ceil", |x| x[0].ceil(), FLOATS, Shapes::One, WIDE, Exact),
    row!("round", |x| x[0].round(), FLOATS, Shapes::One, WIDE, Exact),
    row!("affine", |x| x[0].affine(1.5, -2.0), FLOATS, Shapes::One, WIDE, Whole(1e-6)),
    row!("clamp", |x| x[0].clamp(-3.0, 5.0), FLOATS, Shapes::One, WIDE, Exact),
    row!("powf", |x| x[0].powf(2.5), FLOATS, Shapes::One, (0.1, 9.0), Ulp(64.0)),
    row!("copy", |x| x[0].force_contiguous(), NUMBERS, Shapes::One, SMALL, Exact),
    row!("to_f32", |x| x[0].to_dtype(F32), NUMBERS, Shapes::One, SMALL, Exact),
    row!("to_u8", |x| x[0].to_dtype(U8), NUMBERS, Shapes::One, SMALL, Exact),
    row!("to_i64", |x| x[0].to_dtype(I64), NUMBERS, Shapes::One, SMALL, Exact),
    row!("to_f16", |x| x[0].to_dtype(F16), NUMBERS, Shapes::One, SMALL, Exact),
    row!("to_bf16", |x| x[0].to_dtype(BF16), NUMBERS, Shapes::One, SMALL, Exact),
    row!("add", |x| x[0].broadcast_add(&x[1]), NUMBERS, Shapes::Two, SMALL, Ulp(1.0)),
    row!("sub", |x| x[0].broadcast_sub(&x[1]), NUMBERS, Shapes::Two, SMALL, Whole(1e-6)),
    row!("mul", |x| x[0].broadcast_mul(&x[1]), NUMBERS, Shapes::Two, SMALL, Ulp(1.0)),
    row!("div", |x| x[0].broadcast_div(&x[1]), FLOATS, Shapes::Two, (1.0, 9.0), Ulp(4.0)),
    row!("div_int", |x| x[0].broadcast_div(&x[1]), INTEGERS, Shapes::Two, (0.0, 90.0), Exact),
    row!("rem_int", |x| x[0].broadcast_rem(&x[1]), INTEGERS, Shapes::Two, (-9.0, 9.0), Exact),
    row!("rem", |x| x[0].broadcast_rem(&x[1]), &[F32, F64], Shapes::Two, (1.0, 9.0), Whole(1e-5)),
    row!("remainder", |x| x[0].broadcast_remainder(&x[1]), INTEGERS, Shapes::Two, (-9.0, 9.0), Exact),
    row!("bitwise_and", |x| x[0].broadcast_bitwise_and(&x[1]), INTEGERS, Shapes::Two, (-90.0, 90.0), Exact),
    row!("bitwise_or", |x| x[0].broadcast_bitwise_or(&x[1]), INTEGERS, Shapes::Two, (-90.0, 90.0), Exact),
    row!("bitwise_xor", |x| x[0].broadcast_bitwise_xor(&x[1]), INTEGERS, Shapes::Two, (-90.0, 90.0), Exact),
    row!("bitwise_not", |x| x[0].bitwise_not(), INTEGERS, Shapes::One, (-90.0, 90.0), Exact),
    row!("shift_left", |x| x[0].broadcast_bitwise_left_shift(&x[1]), INTEGERS, Shapes::Two, (-2.0, 40.0), Exact),
    row!("shift_right", |x| x[0].broadcast_bitwise_right_shift(&x[1]), INTEGERS, Shapes::Two, (-2.0, 40.0), Exact),
    row!("maximum", |x| x[0].broadcast_maximum(&x[1]), NUMBERS, Shapes::Two, SMALL, Exact),
    row!("minimum", |x| x[0].broadcast_minimum(&x[1]), NUMBERS, Shapes::Two, SMALL, Exact),
    row!("pow", |x| x[0].broadcast_pow(&x[1]), &[F32, F64], Shapes::Two, (0.1, 6.0), Ulp(128.0)),
    row!("eq", |x| x[0].broadcast_eq(&x[1]), INTEGERS, Shapes::Two, (0.0, 3.0), Exact),
    row!("ne", |x| x[0].broadcast_ne(&x[1]), NUMBERS, Shapes::Two, (0.0, 3.0), Exact),
    row!("lt", |x| x[0].broadcast_lt(&x[1]), NUMBERS, Shapes::Two, SMALL, Exact),
    row!("le", |x| x[0].broadcast_le(&x[1]), NUMBERS, Shapes::Two, SMALL, Exact),
    row!("gt", |x| x[0].broadcast_gt(&x[1]), NUMBERS, Shapes::Two, SMALL, Exact),
    row!("ge", |x| x[0].broadcast_ge(&x[1]), NUMBERS, Shapes::Two, SMALL, Exact),
    row!(
        "where_cond",
        |x| x[0].to_dtype(U8)?.where_cond(&x[0], &x[0].affine(0.0, 7.0)?),
        FLOATS,
        Shapes::One,
        (0.0, 2.0),
        Exact
    ),
    row!("cmp_number", |x| x[0].lt(2.5), NUMBERS, Shapes::One, SMALL, Exact),
    row!("eq_number", |x| x[0].eq(2), INTEGERS, Shapes::One, (0.0, 4.0), Exact),
    row!("logical_not", |x| x[0].logical_not(), INTEGERS, Shapes::One, (0.0, 2.0), Exact),
    row!("logical_and", |x| x[0].logical_and(&x[1]), INTEGERS, Shapes::Two, (0.0, 2.0), Exact),
    row!("logical_or", |x| x[0].logical_or(&x[1]), INTEGERS, Shapes::Two, (0.0, 2.0), Exact),
    row!("logical_xor", |x| x[0].logical_xor(&x[1]), INTEGERS, Shapes::Two, (0.0, 2.0), Exact),
    row!("any", |x| x[0].any(D::Minus1), INTEGERS, Shapes::Rows, (0.0, 1.1), Exact),
    row!("all", |x| x[0].all(D::Minus1), INTEGERS, Shapes::Rows, (0.0, 40.0), Exact),
    row!("is_nan", |x| x[0].broadcast_div(&x[0])?.is_nan(), &[F32, F16, F64], Shapes::One, (0.0, 3.0), Exact),
    row!("is_inf", |x| x[0].log()?.is_inf(), &[F32, F16, F64], Shapes::One, (0.0, 3.0), Exact),
    row!("is_finite", |x| x[0].log()?.is_finite(), &[F32, F16, F64], Shapes::One, (0.0, 3.0), Exact),
    row!("expm1", |x| x[0].expm1(), FLOATS, Shapes::One, (-1.0, 1.0), Ulp(32.0)),
    row!("log1p", |x| x[0].log1p(), FLOATS, Shapes::One, (-0.6, 3.0), Ulp(32.0)),
    row!("tan", |x| x[0].tan(), FLOATS, Shapes::One, (-1.2, 1.2), Whole(1e-5)),
    row!("elu", |x| x[0].elu(0.7), FLOATS, Shapes::One, (-5.0, 5.0), Ulp(32.0)),
    row!("round_to", |x| x[0].round_to(1), &[F32, F64], Shapes::One, WIDE, Ulp(4.0)),
    row!("lerp", |x| x[0].lerp(&x[1], 0.3), FLOATS, Shapes::Two, SMALL, Whole(2e-6)),
    row!("masked_fill", |x| x[0].masked_fill(&x[0].lt(3)?, 7.0), NUMBERS, Shapes::One, SMALL, Exact),
    row!("one_hot", |x| x[0].one_hot(5, F32), INTEGERS, Shapes::One, (0.0, 7.0), Exact),
    row!("cat", |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 1), NUMBERS, PAIRS, SMALL, Exact),
    row!("stack", |x| Tensor::stack(&[&x[0], &x[0]], D::Minus1), NUMBERS, Shapes::One, SMALL, Exact),
    row!("repeat", |x| x[0].repeat((2, 3)), NUMBERS, Shapes::One, SMALL, Exact),
    row!("roll", |x| x[0].roll(2, D::Minus1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("pad_with_zeros", |x| x[0].pad_with_zeros(D::Minus1, 1, 2), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("pad_with_value", |x| x[0].pad_with_value(0, 2, 1, 3.0), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("pad_with_same", |x| x[0].pad_with_same(D::Minus1, 3, 1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("pad_with_reflection", |x| x[0].pad_with_reflection(D::Minus1, 0, 1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("slice_scatter", |x| x[0].slice_scatter(&x[0].narrow(0, 0, 1)?, 0, 1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("slice_assign", |x| x[0].slice_assign(&[0..x[0].dims()[0], 1..3], &x[1]), NUMBERS, WINDOWS, SMALL, Exact),
    row!("unfold", |x| x[0].unfold(D::Minus1, 3, 2)?.force_contiguous(), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("unfold_sum", |x| x[0].unfold(D::Minus1, 4, 1)?.sum(D::Minus1), NUMBERS, Shapes::Rows, SMALL, Whole(2e-6)),
    row!("diagonal", |x| x[0].diagonal(1, 0, D::Minus1)? * 1.0, NUMBERS, PAIRS, SMALL, Exact),
    row!("tril", |x| x[0].tril(1), NUMBERS, PAIRS, SMALL, Exact),
    row!("triu", |x| x[0].triu(-1), NUMBERS, PAIRS, SMALL, Exact),
    row!("var", |x| x[0].var(D::Minus1), FLOATS, Shapes::Rows, WIDE, Whole(1e-5)),
    row!("std", |x| x[0].std(0), FLOATS, Shapes::Rows, WIDE, Whole(1e-5)),
    row!("norm", |x| x[0].norm(), FLOATS, Shapes::Rows, WIDE, Whole(4e-6)),
    row!("log_sum_exp", |x| x[0].log_sum_exp(D::Minus1), FLOATS, Shapes::Rows, WIDE, Whole(4e-6)),
    row!("einsum", |x| Tensor::einsum("...ij,...jk->k...i", x), FLOATS, Shapes::Matrices, WIDE, Whole(1e-5)),
    row!("einsum_diagonal", |x| Tensor::einsum("ij,jj->i", x), &[F32, F64, I32], SQUARES, SMALL, Whole(4e-6)),
    row!(
        "einsum_three",
        |x| Tensor::einsum("ij,jk,ij->ki", &[&x[0], &x[1], &x[0]]),
        &[F32, I32],
        MATRIX,
        SMALL,
        Whole(4e-6)
    ),
    row!("sum", |x| x[0].sum(D::Minus1), NUMBERS, Shapes::Rows, SMALL, Whole(2e-6)),
    row!("sum_first", |x| x[0].sum(0), NUMBERS, Shapes::Rows, SMALL, Whole(2e-6)),
    row!("sum_all", |x| x[0].sum_all(), FLOATS, Shapes::Rows, SMALL, Whole(2e-6)),
    row!("mean", |x| mean(&x[0]), FLOATS, Shapes::Rows, WIDE, Whole(4e-6)),
    row!("max", |x| x[0].max(D::Minus1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("min_keepdim", |x| x[0].min_keepdim(D::Minus1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("argmax", |x| x[0].argmax(D::Minus1), NUMBERS, Shapes::Rows, SMALL, Exact),
    row!("argmin", |x| x[0].argmin(0), FLOATS, Shapes::Rows, SMALL, Exact),
    row!("softmax", |x| x[0].softmax_last_dim(), FLOATS, Shapes::Rows, WIDE, Whole(4e-6)),
    row!("rms_norm", |x| x[0].rms_norm(1e-5), FLOATS, Shapes::Rows, WIDE, Whole(4e-6)),
    row!("layer_norm", |x| x[0].layer_norm(1e-5), FLOATS, Shapes::Rows, WIDE, Whole(1e-5)),
    row!("matmul", |x| x[0].broadcast_matmul(&x[1]), FLOATS, Shapes::Matrices, WIDE, Whole(4e-6)),
    row!("matmul_int", |x| x[0].broadcast_matmul(&x[1]), &[I32, U32], Shapes::Matrices, SMALL, Whole(4e-6)),
    row!(
        "fused",
        |x| (x[0].broadcast_matmul(&x[1])? + 1.0)?.gelu()? * 2.0,
        &[F32, F16],
        Shapes::Matrices,
        (-2.0, 2.0),
        Whole(4e-6)
    ),
    row!("rfft", |x| fft::rfft(&x[0], None, D::Minus1, Norm::Backward), &[F32, F64], Shapes::Rows, WIDE, Whole(4e-6)),
    row!("rfft_first", |x| fft::rfft(&x[0], None, 0, Norm::Ortho), &[F32, F64], COLUMNS, WIDE, Whole(4e-6)),
    row!("fft", |x| fft::fft(&x[0], None, D::Minus1, Norm::Backward), &[F32, F64], COMPLEX, WIDE, Whole(4e-6)),
    row!("ifft", |x| fft::ifft(&x[0], None, 0, Norm::Backward), &[F32, F64], COMPLEX, WIDE, Whole(4e-6)),
    row!("irfft", |x| fft::irfft(&x[0], None, D::Minus1, Norm::Backward), &[F32, F64], COMPLEX, WIDE, Whole(4e-6)),
    row!("stft", |x| fft::stft(&x[0], None, &Stft::new(16)), &[F32, F64], SIGNALS, WIDE, Whole(4e-6)),
    row!("attention", |x| attend(x, true, None, None), &[F32, F16], HEADS, (-2.0, 2.0), Whole(1e-5)),
    row!("attention_open", |x| attend(x, false, None, None), &[F32], HEADS, (-2.0, 2.0), Whole(1e-5)),
    row!("attention_window", |x| attend(x, true, Some(4), Some(3.0)), &[F32], HEADS, (-2.0, 2.0), Whole(1e-5)),
    row!("conv1d", |x| x[0].conv1d(&x[1], 1, 2, 1, 1), FLOATS, LINES, (-2.0, 2.0), Whole(4e-6)),
    row!("conv2d", |x| x[0].conv2d(&x[1], 1, 1, 1, 1), FLOATS, PLANES, (-2.0, 2.0), Whole(4e-6)),
    row!("conv2d_groups", |x| x[0].conv2d(&x[1], 2, 2, 2, 2), FLOATS, GROUPED, (-2.0, 2.0), Whole(4e-6)),
    row!("conv3d", |x| x[0].conv3d(&x[1], 1, 2, 1, 1), &[F32, F16], VOLUMES, (-2.0, 2.0), Whole(4e-6)),
    row!("conv_transpose1d", |x| x[0].conv_transpose1d(&x[1], 1, 1, 2, 1, 1), FLOATS, LINES, (-2.0, 2.0), Whole(4e-6)),
    row!("conv_transpose2d", |x| x[0].conv_transpose2d(&x[1], 1, 1, 2, 2), FLOATS, PLANES, (-2.0, 2.0), Whole(4e-6)),
    row!(
        "conv2d_fused",
        |x| x[0].conv2d(&x[1], 1, 1, 1, 1)?.broadcast_add(&x[2])?.silu(),
        &[F32, F16],
        Shapes::Fixed(&[
            &[&[2, 3, 7, 9], &[3, 3, 3, 3], &[3, 1, 1]],
            &[&[1, 8, 5, 4], &[16, 8, 1, 1], &[1, 16, 1, 1]],
            &[&[1, 2, 3, 4], &[2, 2, 2, 2], &[4, 5]],
        ]),
        (-2.0, 2.0),
        Whole(4e-6)
    ),
    row!("max_pool2d", |x| x[0].max_pool2d_with_stride((3, 2), (2, 1)), FLOATS, IMAGES, WIDE, Exact),
    row!("avg_pool2d", |x| x[0].avg_pool2d_with_stride((3, 2), (2, 1)), FLOATS, IMAGES, WIDE, Whole(4e-6)),
    row!("upsample_nearest2d", |x| x[0].upsample_nearest2d(7, 12), FLOATS, IMAGES, WIDE, Exact),
    row!("upsample_bilinear2d", |x| x[0].upsample_bilinear2d(7, 12, false), FLOATS, IMAGES, WIDE, Whole(4e-6)),
    row!("upsample_corners", |x| x[0].upsample_bilinear2d(7, 3, true), FLOATS, IMAGES, WIDE, Whole(4e-6)),
    Row {
        name: "index_select",
        run: |x| x[0].index_select(&x[1].to_dtype(U32)?, 0),
        dtypes: NUMBERS,
        input_dtypes: &[None, Some(U8)],
        shapes: Shapes::Fixed(&[&[&[9, 5], &[4]], &[&[9], &[7]], &[&[9, 2, 4], &[1]], &[&[9, 3], &[0]]]),
        range: SMALL,
        tolerance: Exact,
    },
];
