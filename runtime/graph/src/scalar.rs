//! Scalar operations and the expressions that fusion builds from them: what a map computes for one element.

use crate::{DType, Element};
use smallvec::SmallVec;

/// A scalar given when an operation is built. Its value is data, never part of a kernel's structure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// A floating-point value.
    F(f64),
    /// A signed integer.
    I(i64),
    /// An unsigned integer.
    U(u64),
}

impl Scalar {
    /// From a value of a Rust element type, exactly.
    pub fn from_element<T: Element>(value: T) -> Self {
        if T::DTYPE.is_float() {
            return Scalar::F(value.to_f64());
        }
        let mut bytes = Vec::with_capacity(8);
        value.put(&mut bytes);
        match T::DTYPE {
            DType::I8 => Scalar::I(i64::from(i8::take(&bytes))),
            DType::I16 => Scalar::I(i64::from(i16::take(&bytes))),
            DType::I32 => Scalar::I(i64::from(i32::take(&bytes))),
            DType::I64 => Scalar::I(i64::take(&bytes)),
            _ => {
                bytes.resize(8, 0);
                Scalar::U(u64::take(&bytes))
            }
        }
    }

    /// As f64, rounded where it must be.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::F(v) => v,
            Scalar::I(v) => v as f64,
            Scalar::U(v) => v as f64,
        }
    }

    /// As i64: floats truncate and saturate, large unsigned values keep their bits.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::F(v) => v as i64,
            Scalar::I(v) => v,
            Scalar::U(v) => v as i64,
        }
    }
}

impl From<f64> for Scalar {
    fn from(v: f64) -> Self {
        Scalar::F(v)
    }
}

/// Operations of one operand. NaN in, NaN out, except where IEEE 754 says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the documentation, formulas stand where they are not")]
pub enum UnaryOp {
    Neg,
    Abs,
    Sign,
    Sqr,
    Sqrt,
    Rsqrt,
    Recip,
    Exp,
    Log,
    Sin,
    Cos,
    Tanh,
    Erf,
    /// x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2
    Gelu,
    /// x * (1 + erf(x / sqrt 2)) / 2
    GeluErf,
    /// max(x, 0), NaN stays NaN
    Relu,
    /// x / (1 + exp(-x))
    Silu,
    /// 1 / (1 + exp(-x))
    Sigmoid,
    Floor,
    Ceil,
    /// Half away from zero.
    Round,
}

impl UnaryOp {
    /// The name of the tensor method, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Abs => "abs",
            UnaryOp::Sign => "sign",
            UnaryOp::Sqr => "sqr",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Recip => "recip",
            UnaryOp::Exp => "exp",
            UnaryOp::Log => "log",
            UnaryOp::Sin => "sin",
            UnaryOp::Cos => "cos",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Gelu => "gelu",
            UnaryOp::GeluErf => "gelu_erf",
            UnaryOp::Relu => "relu",
            UnaryOp::Silu => "silu",
            UnaryOp::Sigmoid => "sigmoid",
            UnaryOp::Floor => "floor",
            UnaryOp::Ceil => "ceil",
            UnaryOp::Round => "round",
        }
    }

    /// Whether repeating it costs little beside a load: no transcendental function.
    pub const fn is_cheap(self) -> bool {
        use UnaryOp::*;
        matches!(self, Neg | Abs | Sign | Sqr | Relu | Floor | Ceil | Round | Recip)
    }
}

/// Operations of two operands of one dtype. Integers wrap; integer division by zero gives zero; an integer to a negative
/// power gives 1 / x^|y|, truncated (0 for 0). The bitwise ones are for integers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    /// NaN wins, as in PyTorch.
    Maximum,
    /// NaN wins, as in PyTorch.
    Minimum,
    Pow,
    /// What division leaves, x - y * trunc(x / y), with the sign of x, as C's fmod and %; x for an integer y of 0.
    Rem,
    BitAnd,
    BitOr,
    BitXor,
    /// x * 2^y; 0 where y, taken as unsigned, is not less than the number of bits.
    Shl,
    /// x / 2^y rounded down; the sign (0 or -1) where y, taken as unsigned, is not less than the number of bits.
    Shr,
}

impl BinaryOp {
    /// The name for messages: that of the method of a tensor.
    pub const fn name(self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "div",
            BinaryOp::Maximum => "maximum",
            BinaryOp::Minimum => "minimum",
            BinaryOp::Pow => "pow",
            BinaryOp::Rem => "rem",
            BinaryOp::BitAnd => "bitwise_and",
            BinaryOp::BitOr => "bitwise_or",
            BinaryOp::BitXor => "bitwise_xor",
            BinaryOp::Shl => "bitwise_left_shift",
            BinaryOp::Shr => "bitwise_right_shift",
        }
    }

    /// Whether it is for integers only.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::Shl | BinaryOp::Shr)
    }
}

/// Comparisons of two operands of one dtype; the result is U8, 0 or 1. NaN is unequal to everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What a map node computes from its operands, element by element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapOp {
    /// f(x)
    Unary(UnaryOp),
    /// f(x, y)
    Binary(BinaryOp),
    /// x < y and its kind, to U8
    Compare(CompareOp),
    /// condition (U8, nonzero is true), then, else
    Where,
    /// to the node's dtype: floats to integers by truncation toward zero, saturating, NaN to 0; integers to integers wrap
    Cast,
    /// x * scalar 0 + scalar 1, computed in the node's dtype (two roundings or one: not specified)
    Affine,
    /// f(x, scalar 0)
    BinaryScalar(BinaryOp),
    /// x, unchanged: a copy of a view
    Copy,
}

/// One instruction of an expression. Instruction `i` defines value `i`; arguments name earlier values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Inst {
    /// The element of operand `i` of the part, converted from its storage dtype to this value's dtype (the same, where
    /// the storage type is not computed in; see [`Expr`]).
    Load(u16),
    /// The operand's affine address itself, as a number: how `arange` is fused. The operand has no buffer.
    Position(u16),
    /// What the kernel accumulated: the reduced value, the normalised element, the dot product. Paired contractions have
    /// two, 0 and 1.
    Acc(u8),
    /// Scalar `i` of the step's scalars.
    Param(u16),
    /// f(a)
    Unary(UnaryOp, u16),
    /// f(a, b)
    Binary(BinaryOp, u16, u16),
    /// a < b and its kind, to U8. Both are of the dtype of value `a`.
    Compare(CompareOp, u16, u16),
    /// if a != 0 then b else c
    Where(u16, u16, u16),
    /// a, converted to this value's dtype
    Cast(u16),
}

/// A straight-line program over one element, in single-assignment form; its last value is the result, and the dtype of
/// that value is the dtype in which the result is stored.
///
/// `dtypes[i]` is the dtype of value `i`. F16, BF16 and the F8 types are computed in f32 and rounded to their own type
/// only when stored, or by a `Cast` to them that an unfused plan would have stored (so a cast is never dropped).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Expr {
    /// The instructions.
    pub code: SmallVec<[Inst; 4]>,
    /// The dtype of each value.
    pub dtypes: SmallVec<[DType; 4]>,
}

impl Expr {
    /// Appends an instruction, reusing an equal earlier one, and returns the value's number.
    pub fn push(&mut self, inst: Inst, dtype: DType) -> u16 {
        // Params are told apart by number, so equality of code is equality of value.
        if let Some(at) = self.code.iter().zip(&self.dtypes).position(|(&i, &d)| i == inst && d == dtype) {
            return at as u16;
        }
        self.code.push(inst);
        self.dtypes.push(dtype);
        (self.code.len() - 1) as u16
    }

    /// The result's dtype.
    pub fn dtype(&self) -> Option<DType> {
        self.dtypes.last().copied()
    }

    /// Whether the expression is one value unchanged: what was accumulated, or one loaded element.
    pub fn is_identity(&self) -> bool {
        matches!(self.code.as_slice(), [Inst::Acc(0) | Inst::Load(0)])
    }
}
