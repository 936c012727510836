//! Element-wise operations and the operators + - * / %.

use super::{
    Tensor,
    scalar::{TensorOrScalar, TensorScalar, bound, operand},
};
use crate::autograd::rules::elementwise as rules;
use crate::{DType, Error, Result};
use tallow_graph::{BinaryOp, Edge, Scalar, UnaryOp, ops};

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name(&self) -> Result<Tensor> {
            self.unary(UnaryOp::$op, stringify!($name))
        }
    )+ } };
}

unary! {
    /// -x
    neg Neg;
    /// |x|
    abs Abs;
    /// -1, 0 or 1
    sign Sign;
    /// x^2
    sqr Sqr;
    /// The square root; NaN below zero.
    sqrt Sqrt;
    /// 1 / sqrt(x)
    rsqrt Rsqrt;
    /// 1 / x
    recip Recip;
    /// e^x
    exp Exp;
    /// The natural logarithm.
    log Log;
    /// sin x, x in radians.
    sin Sin;
    /// cos x, x in radians.
    cos Cos;
    /// The hyperbolic tangent.
    tanh Tanh;
    /// The error function.
    erf Erf;
    /// x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2 (Hendrycks and Gimpel, 2016).
    gelu Gelu;
    /// x * (1 + erf(x / sqrt 2)) / 2
    gelu_erf GeluErf;
    /// max(x, 0)
    relu Relu;
    /// x / (1 + e^-x)
    silu Silu;
    /// 1 / (1 + e^-x)
    sigmoid Sigmoid;
    /// The largest integer that is not larger.
    floor Floor;
    /// The smallest integer that is not smaller.
    ceil Ceil;
    /// The nearest integer, half away from zero.
    round Round;
}

impl Tensor {
    fn unary(&self, op: UnaryOp, name: &'static str) -> Result<Tensor> {
        let x = self.input();
        Ok(rules::unary(self.result(ops::unary(op, x.edge())?), op, name, &x))
    }
}

/// Operands of plain operations must have one shape, as in candle; the `broadcast_` twins stretch them.
pub(super) fn same_shape(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.shape() == b.shape() {
        return Ok(());
    }
    let message = format!("shapes {:?} and {:?} differ: use broadcast_{op}", a.shape(), b.shape());
    Err(Error::op(op, message))
}

/// `a op b`, stretched to one shape.
pub(super) fn binary(a: &Tensor, b: &Tensor, op: BinaryOp) -> Result<Tensor> {
    let (x, y) = (a.input(), b.input());
    if x.tape().is_none() && y.tape().is_none() {
        return Ok(a.result(ops::binary(op, x.into_edge(), y.into_edge())?));
    }
    let result = a.result(ops::binary(op, x.edge(), y.edge())?);
    Ok(rules::binary(result, op, &x, &y))
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $broadcast:ident $build:ident $op:expr;)+) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name(&self, rhs: &Tensor) -> Result<Tensor> {
            same_shape(stringify!($name), self, rhs)?;
            self.$broadcast(rhs)
        }

        $(#[$doc])*
        /// Operands are stretched to one shape, as in numpy.
        pub fn $broadcast(&self, rhs: &Tensor) -> Result<Tensor> {
            $build(self, rhs, $op)
        }
    )+ } };
}

binary! {
    /// x + y
    add broadcast_add binary BinaryOp::Add;
    /// x - y
    sub broadcast_sub binary BinaryOp::Sub;
    /// x * y
    mul broadcast_mul binary BinaryOp::Mul;
    /// x / y; of integers, truncated, and 0 for a divisor of 0.
    div broadcast_div binary BinaryOp::Div;
    /// x^y
    pow broadcast_pow binary BinaryOp::Pow;
}

impl Tensor {
    /// x * mul + add. Integers wrap, and take whole numbers only.
    pub fn affine(&self, mul: f64, add: f64) -> Result<Tensor> {
        let x = self.input();
        let factor = operand(BinaryOp::Mul, "affine", self.dtype(), Scalar::F(mul))?;
        let term = operand(BinaryOp::Add, "affine", self.dtype(), Scalar::F(add))?;
        Ok(rules::affine(self.result(ops::affine(x.edge(), factor, term)?), &x, mul))
    }

    /// x^exponent
    pub fn powf(&self, exponent: f64) -> Result<Tensor> {
        self.with_scalar(BinaryOp::Pow, exponent)
    }

    /// The larger of x and y; NaN if one is. The right side is a tensor of the same shape, or a number.
    pub fn maximum<T: TensorOrScalar>(&self, rhs: T) -> Result<Tensor> {
        self.extreme(BinaryOp::Maximum, rhs.to_tensor_scalar())
    }

    /// The smaller of x and y; NaN if one is. The right side is a tensor of the same shape, or a number.
    pub fn minimum<T: TensorOrScalar>(&self, rhs: T) -> Result<Tensor> {
        self.extreme(BinaryOp::Minimum, rhs.to_tensor_scalar())
    }

    /// The larger of x and y; NaN if one is. Operands are stretched to one shape, as in numpy.
    pub fn broadcast_maximum(&self, rhs: &Tensor) -> Result<Tensor> {
        binary(self, rhs, BinaryOp::Maximum)
    }

    /// The smaller of x and y; NaN if one is. Operands are stretched to one shape, as in numpy.
    pub fn broadcast_minimum(&self, rhs: &Tensor) -> Result<Tensor> {
        binary(self, rhs, BinaryOp::Minimum)
    }

    fn extreme(&self, op: BinaryOp, rhs: TensorScalar) -> Result<Tensor> {
        match rhs {
            TensorScalar::Tensor(rhs) => with_tensor(self, &rhs, op, op.name()),
            TensorScalar::Scalar(value) => match bound(op, op.name(), self.dtype(), value)? {
                Some(value) => self.with_exact(op, value),
                None => self.fresh(op.name()),
            },
        }
    }

    /// x, at least `min` and at most `max`; where `min` is larger, `max`. NaN stays NaN. Each limit is a tensor of the same
    /// shape, or a number.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[-2f32, 0.5, 3.], &Device::Cpu)?;
    /// assert_eq!(x.clamp(-1f32, 1f32)?.to_vec1::<f32>()?, [-1., 0.5, 1.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn clamp<A: TensorOrScalar, B: TensorOrScalar>(&self, min: A, max: B) -> Result<Tensor> {
        match (min.to_tensor_scalar(), max.to_tensor_scalar()) {
            // One node on the tape, whose gradient includes both limits.
            (TensorScalar::Scalar(min), TensorScalar::Scalar(max)) if self.dtype().is_float() => {
                let x = self.input();
                let low = ops::binary_scalar(BinaryOp::Maximum, x.edge(), min)?;
                let node = ops::binary_scalar(BinaryOp::Minimum, Edge::from(&low), max)?;
                Ok(rules::clamp(self.result(node), &x, min.to_f64(), max.to_f64()))
            }
            (min, max) => self.extreme(BinaryOp::Maximum, min)?.extreme(BinaryOp::Minimum, max),
        }
    }

    pub(crate) fn with_scalar(&self, op: BinaryOp, scalar: f64) -> Result<Tensor> {
        self.with_exact(op, operand(op, op.name(), self.dtype(), Scalar::F(scalar))?)
    }

    /// `x op scalar`, for a number that the dtype holds (or wraps).
    fn with_exact(&self, op: BinaryOp, scalar: Scalar) -> Result<Tensor> {
        let x = self.input();
        let y = self.result(ops::binary_scalar(op, x.edge(), scalar)?);
        Ok(rules::with_scalar(y, op, &x, scalar.to_f64()))
    }

    /// Where this tensor (an integer dtype) is not zero, elements of `on_true`, elsewhere of `on_false`.
    pub fn where_cond(&self, on_true: &Tensor, on_false: &Tensor) -> Result<Tensor> {
        let (condition, a, b) = (self.input(), on_true.input(), on_false.input());
        let y = self.result(ops::where_cond(condition.edge(), a.edge(), b.edge())?);
        Ok(rules::where_cond(y, &condition, &a, &b))
    }

    /// In another dtype. Floats become integers by truncation toward zero, saturating, NaN becomes 0. A packed weight becomes
    /// plain.
    pub fn to_dtype(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        if self.dtype().is_quantized() {
            return self.dequantize()?.to_dtype(dtype);
        }
        let x = self.input();
        Ok(rules::cast(self.result(ops::cast(x.edge(), dtype)?), &x))
    }

    /// A packed weight's values, in F32.
    pub fn dequantize(&self) -> Result<Tensor> {
        if !self.dtype().is_quantized() {
            return self.to_dtype(DType::F32);
        }
        let rows = self.dims2()?.0;
        self.index_select(&Tensor::arange(0u32, rows as u32, self.device())?, 0)
    }

    /// Applies a module: `x.apply(&linear)?`.
    pub fn apply<M: crate::Module>(&self, module: &M) -> Result<Tensor> {
        module.forward(self)
    }
}

/// `a op b` for operands of one shape.
fn with_tensor(a: &Tensor, b: &Tensor, op: BinaryOp, name: &'static str) -> Result<Tensor> {
    same_shape(name, a, b)?;
    binary(a, b, op)
}

fn from_scalar(scalar: f64, b: &Tensor, op: BinaryOp) -> Result<Tensor> {
    let scalar = operand(op, op.name(), b.dtype(), Scalar::F(scalar))?;
    let constant = Tensor::constant(scalar, b.dtype(), b.shape().clone(), b.device())?;
    binary(&constant, b, op)
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)+) => { $(
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<B> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: B) -> Result<Tensor> {
                with_tensor(&self, rhs.borrow(), BinaryOp::$op, stringify!($method))
            }
        }
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<B> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: B) -> Result<Tensor> {
                with_tensor(self, rhs.borrow(), BinaryOp::$op, stringify!($method))
            }
        }
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<Result<B>> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Result<B>) -> Result<Tensor> {
                with_tensor(&self, rhs?.borrow(), BinaryOp::$op, stringify!($method))
            }
        }
        impl<B: std::borrow::Borrow<Tensor>> std::ops::$trait<Result<B>> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Result<B>) -> Result<Tensor> {
                with_tensor(self, rhs?.borrow(), BinaryOp::$op, stringify!($method))
            }
        }
        impl std::ops::$trait<f64> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: f64) -> Result<Tensor> {
                self.with_scalar(BinaryOp::$op, rhs)
            }
        }
        impl std::ops::$trait<f64> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, rhs: f64) -> Result<Tensor> {
                self.with_scalar(BinaryOp::$op, rhs)
            }
        }
        impl std::ops::$trait<Tensor> for f64 {
            type Output = Result<Tensor>;
            fn $method(self, rhs: Tensor) -> Result<Tensor> {
                from_scalar(self, &rhs, BinaryOp::$op)
            }
        }
        impl std::ops::$trait<&Tensor> for f64 {
            type Output = Result<Tensor>;
            fn $method(self, rhs: &Tensor) -> Result<Tensor> {
                from_scalar(self, rhs, BinaryOp::$op)
            }
        }
    )+ };
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
}
