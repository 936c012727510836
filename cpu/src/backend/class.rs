//! The types that expressions are computed in, and the arithmetic that they share.
//!
//! A dtype is stored one way and computed in a [`Class`]: F16, BF16 and the F8 types in f32, every other in itself.

use tallow_graph::{BinaryOp, CompareOp, DType, Scalar, UnaryOp};

/// A type that values are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Class {
    /// The class that values of `dtype` are computed in; quantized types are read as f32.
    pub const fn of(dtype: DType) -> Class {
        match dtype {
            DType::U8 => Class::U8,
            DType::I8 => Class::I8,
            DType::U16 => Class::U16,
            DType::I16 => Class::I16,
            DType::U32 => Class::U32,
            DType::I32 => Class::I32,
            DType::U64 => Class::U64,
            DType::I64 => Class::I64,
            DType::F64 => Class::F64,
            _ => Class::F32,
        }
    }

    /// Bytes of a value.
    pub const fn size(self) -> usize {
        match self {
            Class::U8 | Class::I8 => 1,
            Class::U16 | Class::I16 => 2,
            Class::U32 | Class::I32 | Class::F32 => 4,
            Class::U64 | Class::I64 | Class::F64 => 8,
        }
    }

    /// Whether elements of `dtype` lie in memory as they are computed with.
    pub const fn is_stored_as(self, dtype: DType) -> bool {
        matches!(
            (self, dtype),
            (Class::F32, DType::F32)
                | (Class::F64, DType::F64)
                | (Class::U8, DType::U8)
                | (Class::I8, DType::I8)
                | (Class::U16, DType::U16)
                | (Class::I16, DType::I16)
                | (Class::U32, DType::U32)
                | (Class::I32, DType::I32)
                | (Class::U64, DType::U64)
                | (Class::I64, DType::I64)
        )
    }
}

/// Runs `$body` with `$T` as the Rust type of a class.
macro_rules! with_class {
    ($class:expr, $T:ident => $body:expr) => {
        match $class {
            $crate::backend::class::Class::U8 => {
                type $T = u8;
                $body
            }
            $crate::backend::class::Class::I8 => {
                type $T = i8;
                $body
            }
            $crate::backend::class::Class::U16 => {
                type $T = u16;
                $body
            }
            $crate::backend::class::Class::I16 => {
                type $T = i16;
                $body
            }
            $crate::backend::class::Class::U32 => {
                type $T = u32;
                $body
            }
            $crate::backend::class::Class::I32 => {
                type $T = i32;
                $body
            }
            $crate::backend::class::Class::U64 => {
                type $T = u64;
                $body
            }
            $crate::backend::class::Class::I64 => {
                type $T = i64;
                $body
            }
            $crate::backend::class::Class::F32 => {
                type $T = f32;
                $body
            }
            $crate::backend::class::Class::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}
pub(crate) use with_class;

/// A number of some class: integers wrap, division by zero gives zero, NaN wins in `maximum` and `minimum`.
pub(crate) trait Num: Copy + PartialEq + PartialOrd + Default + Send + Sync + 'static {
    const CLASS: Class;
    const ONE: Self;
    /// What a maximum over nothing gives: -inf, or the least integer.
    const LOWEST: Self;
    /// What a minimum over nothing gives.
    const HIGHEST: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn pow(self, other: Self) -> Self;
    /// What a division leaves, with the sign of `self`; `self` for an integer divisor of 0.
    fn rem(self, other: Self) -> Self;
    /// Of integers; floats have none.
    fn bitwise(self, op: BinaryOp, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn is_nan(self) -> bool;
    fn unary(self, op: UnaryOp) -> Self;
    fn from_scalar(scalar: Scalar) -> Self;
    /// From an index.
    fn from_i64(value: i64) -> Self;
    /// Exact for integers; floats truncate toward zero and saturate, NaN gives 0.
    fn to_i128(self) -> i128;
    /// The low bits of an integer: integers wrap into one another.
    fn wrapping_bits(self) -> u64;
    /// From the low bits.
    fn from_bits(bits: u64) -> Self;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// Truncates toward zero and saturates where `Self` is an integer.
    fn from_f32(value: f32) -> Self;
    fn from_f64(value: f64) -> Self;
}

macro_rules! int {
    ($ty:ident, $class:ident, $neg:expr, $abs:expr, $sign:expr) => {
        impl Num for $ty {
            const CLASS: Class = Class::$class;
            const ONE: Self = 1;
            const LOWEST: Self = $ty::MIN;
            const HIGHEST: Self = $ty::MAX;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn rem(self, other: Self) -> Self {
                if other == 0 { self } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            #[allow(unused_comparisons, reason = "the same text serves unsigned types")]
            fn bitwise(self, op: BinaryOp, other: Self) -> Self {
                let inside = other >= 0 && (other as u64) < u64::from(Self::BITS);
                match op {
                    BinaryOp::BitAnd => self & other,
                    BinaryOp::BitOr => self | other,
                    BinaryOp::BitXor => self ^ other,
                    BinaryOp::Shl if inside => self << other,
                    BinaryOp::Shr if inside => self >> other,
                    BinaryOp::Shr if self < 0 => (0 as Self).wrapping_sub(1),
                    _ => 0,
                }
            }
            #[allow(unused_comparisons, reason = "the same text serves unsigned types")]
            fn pow(self, other: Self) -> Self {
                if other < 0 {
                    // 1 / self^|other|, truncated.
                    return match self {
                        1 => 1,
                        _ if self.wrapping_add(1) == 0 => {
                            if other & 1 == 0 {
                                1
                            } else {
                                self
                            }
                        }
                        _ => 0,
                    };
                }
                let (mut base, mut left, mut result) = (self, other, 1);
                while left != 0 {
                    if left & 1 == 1 {
                        result = base.wrapping_mul(result);
                    }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                result
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                false
            }
            #[inline(always)]
            fn unary(self, op: UnaryOp) -> Self {
                match op {
                    UnaryOp::Neg => $neg(self),
                    UnaryOp::Abs => $abs(self),
                    UnaryOp::Sign => $sign(self),
                    UnaryOp::Sqr => self.wrapping_mul(self),
                    UnaryOp::Relu => Ord::max(self, 0),
                    UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => self,
                    // The graph gives these floats only; as f64 they at least mean what they say.
                    other => Self::from_f64(Num::unary(self as f64, other)),
                }
            }
            fn from_scalar(scalar: Scalar) -> Self {
                match scalar {
                    Scalar::F(value) => value as $ty,
                    Scalar::I(value) => value as $ty,
                    Scalar::U(value) => value as $ty,
                }
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $ty
            }
            #[inline(always)]
            fn to_i128(self) -> i128 {
                self as i128
            }
            #[inline(always)]
            fn wrapping_bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $ty
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as $ty
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $ty
            }
        }
    };
}
macro_rules! unsigned {
    ($ty:ident, $class:ident) => {
        int!($ty, $class, $ty::wrapping_neg, |x: $ty| x, |x: $ty| (x != 0) as $ty);
    };
}
macro_rules! signed {
    ($ty:ident, $class:ident) => {
        int!($ty, $class, $ty::wrapping_neg, $ty::wrapping_abs, $ty::signum);
    };
}
unsigned!(u8, U8);
unsigned!(u16, U16);
unsigned!(u32, U32);
unsigned!(u64, U64);
signed!(i8, I8);
signed!(i16, I16);
signed!(i32, I32);
signed!(i64, I64);

macro_rules! float {
    ($ty:ident, $class:ident, $erf:path) => {
        impl Num for $ty {
            const CLASS: Class = Class::$class;
            const ONE: Self = 1.0;
            const LOWEST: Self = $ty::NEG_INFINITY;
            const HIGHEST: Self = $ty::INFINITY;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                self / other
            }
            fn pow(self, other: Self) -> Self {
                self.powf(other)
            }
            fn rem(self, other: Self) -> Self {
                self % other
            }
            fn bitwise(self, _: BinaryOp, _: Self) -> Self {
                Self::NAN
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                if self > other || self != self { self } else { other }
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                if self < other || self != self { self } else { other }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self != self
            }
            #[inline(always)]
            fn unary(self, op: UnaryOp) -> Self {
                let x = self;
                match op {
                    UnaryOp::Neg => -x,
                    UnaryOp::Abs => x.abs(),
                    UnaryOp::Sign => {
                        if x > 0.0 {
                            1.0
                        } else if x < 0.0 {
                            -1.0
                        } else {
                            // 0 of either sign, and NaN.
                            x
                        }
                    }
                    UnaryOp::Sqr => x * x,
                    UnaryOp::Sqrt => x.sqrt(),
                    UnaryOp::Rsqrt => 1.0 / x.sqrt(),
                    UnaryOp::Recip => 1.0 / x,
                    UnaryOp::Exp => x.exp(),
                    UnaryOp::Log => x.ln(),
                    UnaryOp::Sin => x.sin(),
                    UnaryOp::Cos => x.cos(),
                    UnaryOp::Tanh => x.tanh(),
                    UnaryOp::Erf => $erf(x),
                    UnaryOp::Gelu => {
                        let inner = std::$ty::consts::FRAC_2_SQRT_PI
                            * std::$ty::consts::FRAC_1_SQRT_2
                            * (x + 0.044715 * x * x * x);
                        0.5 * x * (1.0 + inner.tanh())
                    }
                    UnaryOp::GeluErf => 0.5 * x * (1.0 + $erf(x * std::$ty::consts::FRAC_1_SQRT_2)),
                    UnaryOp::Relu => {
                        if x < 0.0 {
                            0.0
                        } else {
                            x
                        }
                    }
                    UnaryOp::Silu => x / (1.0 + (-x).exp()),
                    UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                    UnaryOp::Floor => x.floor(),
                    UnaryOp::Ceil => x.ceil(),
                    UnaryOp::Round => x.round(),
                }
            }
            fn from_scalar(scalar: Scalar) -> Self {
                match scalar {
                    Scalar::F(value) => value as $ty,
                    Scalar::I(value) => value as $ty,
                    Scalar::U(value) => value as $ty,
                }
            }
            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $ty
            }
            #[inline(always)]
            fn to_i128(self) -> i128 {
                self as i128
            }
            #[inline(always)]
            fn wrapping_bits(self) -> u64 {
                self as i64 as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $ty
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as $ty
            }
            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $ty
            }
        }
    };
}
float!(f32, F32, erf_f32);
float!(f64, F64, erf_f64);

fn erf_f32(x: f32) -> f32 {
    erf_f64(f64::from(x)) as f32
}

/// erf to a few units of the last place: the Maclaurin series below 2.5, a continued fraction of erfc above.
fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a >= 6.0 {
        return if a.is_nan() { x } else { 1f64.copysign(x) };
    }
    let value = if a < 2.5 {
        // erf(a) = 2/sqrt(pi) exp(-a^2) sum 2^n a^(2n+1) / (1 3 5 ... (2n+1)): all terms positive.
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > sum * 1e-17 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else {
        // erfc(a) = exp(-a^2) / sqrt(pi) / (a + (1/2)/(a + 1/(a + (3/2)/(a + ...)))), from the inside out.
        let tail = (1..=60).rev().fold(a, |rest, n| a + f64::from(n) * 0.5 / rest);
        1.0 - (-a * a).exp() * std::f64::consts::FRAC_2_SQRT_PI * 0.5 / tail
    };
    value.copysign(x)
}

/// Whether `a op b`; NaN is unequal to everything.
#[inline(always)]
pub(crate) fn compare<T: Num>(op: CompareOp, a: T, b: T) -> bool {
    match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
    }
}

/// `a op b`.
#[inline(always)]
pub(crate) fn binary<T: Num>(op: BinaryOp, a: T, b: T) -> T {
    match op {
        BinaryOp::Add => a.add(b),
        BinaryOp::Sub => a.sub(b),
        BinaryOp::Mul => a.mul(b),
        BinaryOp::Div => a.div(b),
        BinaryOp::Maximum => a.maximum(b),
        BinaryOp::Minimum => a.minimum(b),
        BinaryOp::Pow => a.pow(b),
        BinaryOp::Rem => a.rem(b),
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor | BinaryOp::Shl | BinaryOp::Shr => a.bitwise(op, b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_agrees_with_tables() {
        // Abramowitz and Stegun, table 7.1, and higher-precision values.
        for (x, want) in [
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (2.0, 0.995_322_265_018_952_7),
            (2.6, 0.999_763_965_583_470_7),
            (3.5, 0.999_999_256_901_627_7),
        ] {
            assert!((erf_f64(x) - want).abs() < 1e-15, "{x}: {} {want}", erf_f64(x));
            assert_eq!(erf_f64(-x), -erf_f64(x));
        }
        assert!(erf_f64(f64::NAN).is_nan());
        assert_eq!(erf_f64(f64::NEG_INFINITY), -1.0);
    }

    #[test]
    fn integer_powers() {
        assert_eq!(Num::pow(3i32, 4), 81);
        assert_eq!(Num::pow(-1i32, -3), -1);
        assert_eq!(Num::pow(2i64, -1), 0);
        assert_eq!(Num::pow(3u8, 6), 217);
        assert_eq!(Num::div(i32::MIN, -1), i32::MIN);
        assert_eq!(Num::div(7u64, 0), 0);
    }
}
