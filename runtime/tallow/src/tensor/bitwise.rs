//! Remainders, and the bits of integers, with the operators % & | ^ ! << >>.

use super::Tensor;
use super::elementwise::{binary, same_shape};
use crate::{Error, Result, Shape};
use tallow_graph::{BinaryOp, Scalar, ops};

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident $broadcast:ident $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name(&self, rhs: &Tensor) -> Result<Tensor> {
            same_shape(stringify!($name), self, rhs)?;
            self.$broadcast(rhs)
        }

        $(#[$doc])*
        /// Operands are stretched to one shape, as in numpy.
        pub fn $broadcast(&self, rhs: &Tensor) -> Result<Tensor> {
            binary(self, rhs, BinaryOp::$op)
        }
    )+ } };
}

methods! {
    /// x - y trunc(x / y): what a division leaves, with the sign of x, as Rust's % (and C's fmod). Of integers, x where y is 0.
    rem broadcast_rem Rem;
    /// x & y, of integers.
    bitwise_and broadcast_bitwise_and BitAnd;
    /// x | y, of integers.
    bitwise_or broadcast_bitwise_or BitOr;
    /// x ^ y, of integers.
    bitwise_xor broadcast_bitwise_xor BitXor;
    /// x << y, of integers; 0 where y is negative or at least the number of bits.
    bitwise_left_shift broadcast_bitwise_left_shift Shl;
    /// x >> y, of integers, rounding down; 0 (-1 for a negative x) where y is negative or at least the number of bits.
    bitwise_right_shift broadcast_bitwise_right_shift Shr;
}

impl Tensor {
    /// x - y floor(x / y): what a division leaves, with the sign of y, as PyTorch's remainder and Python's %.
    pub fn remainder(&self, rhs: &Tensor) -> Result<Tensor> {
        same_shape("remainder", self, rhs)?;
        self.broadcast_remainder(rhs)
    }

    /// [`Tensor::remainder`] of operands that are stretched to one shape, as in numpy.
    pub fn broadcast_remainder(&self, rhs: &Tensor) -> Result<Tensor> {
        let left = self.broadcast_rem(rhs)?;
        let zero = Tensor::constant(Scalar::F(0.0), rhs.dtype(), Shape::new(&[]), rhs.device())?;
        // Where the signs differ, one y more. (Of unsigned integers none does.)
        let other_sign = left.broadcast_lt(&zero)?.broadcast_ne(&rhs.broadcast_lt(&zero)?)?;
        let moved = left.broadcast_ne(&zero)?.mul(&other_sign)?;
        moved.where_cond(&left.broadcast_add(rhs)?, &left)
    }

    /// Every bit the other way round, of integers.
    pub fn bitwise_not(&self) -> Result<Tensor> {
        bits(self, BinaryOp::BitXor, -1)
    }
}

/// `x op scalar`, of integers.
fn bits(x: &Tensor, op: BinaryOp, scalar: i64) -> Result<Tensor> {
    Ok(x.result(ops::binary_scalar(op, x.edge(), Scalar::I(scalar))?))
}

impl std::ops::Not for &Tensor {
    type Output = Result<Tensor>;
    fn not(self) -> Result<Tensor> {
        self.bitwise_not()
    }
}

impl std::ops::Not for Tensor {
    type Output = Result<Tensor>;
    fn not(self) -> Result<Tensor> {
        self.bitwise_not()
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:ident $op:ident;)+) => { $(
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<B> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: B) -> Result<Tensor> {
                self.$name(rhs.borrow())
            }
        }
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<B> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: B) -> Result<Tensor> {
                self.$name(rhs.borrow())
            }
        }
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<Result<B>> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Result<B>) -> Result<Tensor> {
                self.$name(rhs?.borrow())
            }
        }
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<Result<B>> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Result<B>) -> Result<Tensor> {
                self.$name(rhs?.borrow())
            }
        }
        impl std::ops::$trait<i64> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: i64) -> Result<Tensor> {
                with_bits(self, BinaryOp::$op, rhs)
            }
        }
        impl std::ops::$trait<i64> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: i64) -> Result<Tensor> {
                with_bits(&self, BinaryOp::$op, rhs)
            }
        }
    )+ };
}

operators! {
    BitAnd bitand bitwise_and BitAnd;
    BitOr bitor bitwise_or BitOr;
    BitXor bitxor bitwise_xor BitXor;
    Shl shl bitwise_left_shift Shl;
    Shr shr bitwise_right_shift Shr;
}

/// `x op scalar`, where the scalar must be a number of x's dtype, or a count of bits.
fn with_bits(x: &Tensor, op: BinaryOp, scalar: i64) -> Result<Tensor> {
    let size = 8 * x.dtype().size_in_bytes() as u32;
    // Masks may be written as signed or as unsigned numbers of the dtype's size.
    let fits = size >= 64 || (-(1i64 << (size - 1))..1i64 << size).contains(&scalar);
    if !fits {
        return Err(Error::op(op.name(), format!("{scalar} has more bits than {}", x.dtype())));
    }
    bits(x, op, scalar)
}
