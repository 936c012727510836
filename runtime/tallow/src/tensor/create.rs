//! Tensors from numbers, constants, ranges and random numbers.

use super::Tensor;
use crate::{DType, Device, Element, Error, IntoShape, Result, Shape, ShapeWithHole};
use tallow_graph::{Scalar, kernel::Distribution, ops};

/// Rust values that become tensors: scalars, slices, arrays of arrays, nested vectors.
pub trait NdArray {
    /// The type of the elements.
    type Element: Element;
    /// The shape; an error where rows differ in length.
    fn shape(&self) -> Result<Shape>;
    /// Appends the elements in row-major order.
    fn collect(&self, out: &mut Vec<Self::Element>);
}

macro_rules! scalars {
    ($($ty:ty),+) => { $(
        impl NdArray for $ty {
            type Element = $ty;
            fn shape(&self) -> Result<Shape> {
                Ok(Shape::new(&[]))
            }
            fn collect(&self, out: &mut Vec<$ty>) {
                out.push(*self);
            }
        }
    )+ };
}

scalars!(u8, i8, u16, i16, u32, i32, u64, i64, half::f16, half::bf16, f32, f64);

impl<A: NdArray> NdArray for [A] {
    type Element = A::Element;
    fn shape(&self) -> Result<Shape> {
        let Some(first) = self.first() else { return Ok(Shape::new(&[0])) };
        let inner = first.shape()?;
        for row in &self[1..] {
            if row.shape()? != inner {
                return Err(Error::op("new", format!("rows of shapes {inner:?} and {:?} in one array", row.shape()?)));
            }
        }
        Ok([self.len()].into_iter().chain(inner.iter().copied()).collect())
    }
    fn collect(&self, out: &mut Vec<A::Element>) {
        self.iter().for_each(|row| row.collect(out));
    }
}

impl<A: NdArray, const N: usize> NdArray for [A; N] {
    type Element = A::Element;
    fn shape(&self) -> Result<Shape> {
        self.as_slice().shape()
    }
    fn collect(&self, out: &mut Vec<A::Element>) {
        self.as_slice().collect(out);
    }
}

impl<A: NdArray> NdArray for Vec<A> {
    type Element = A::Element;
    fn shape(&self) -> Result<Shape> {
        self.as_slice().shape()
    }
    fn collect(&self, out: &mut Vec<A::Element>) {
        self.as_slice().collect(out);
    }
}

impl<A: NdArray + ?Sized> NdArray for &A {
    type Element = A::Element;
    fn shape(&self) -> Result<Shape> {
        (**self).shape()
    }
    fn collect(&self, out: &mut Vec<A::Element>) {
        (**self).collect(out);
    }
}

fn check_rank(op: &'static str, shape: &Shape) -> Result<()> {
    if shape.rank() > tallow_graph::MAX_RANK {
        return Err(Error::op(op, format!("{shape:?} has more than {} axes", tallow_graph::MAX_RANK)));
    }
    Ok(())
}

/// How many steps there are from `start` to before `end`; `None` where that is no number. Exact for integers, of which the
/// largest have no f64.
fn steps(start: Scalar, end: Scalar, step: Scalar) -> Option<u64> {
    let whole = |scalar| match scalar {
        Scalar::I(v) => Some(i128::from(v)),
        Scalar::U(v) => Some(i128::from(v)),
        Scalar::F(_) => None,
    };
    if let (Some(start), Some(end), Some(step)) = (whole(start), whole(end), whole(step)) {
        let (far, step) = if step < 0 { (start - end, -step) } else { (end - start, step) };
        return u64::try_from((far.max(0) + step - 1).checked_div(step)?).ok();
    }
    let count = ((end.to_f64() - start.to_f64()) / step.to_f64()).ceil();
    (step.to_f64() != 0.0 && count.is_finite()).then_some(count.max(0.0) as u64)
}

impl Tensor {
    /// A tensor from a number, a slice, or nested arrays.
    pub fn new<A: NdArray>(array: A, device: &Device) -> Result<Self> {
        let shape = array.shape()?;
        let mut values = Vec::with_capacity(shape.elem_count());
        array.collect(&mut values);
        Self::from_slice(&values, shape, device)
    }

    /// A tensor of this shape from elements in row-major order; one size may be left open: `((), 4)`.
    pub fn from_slice<T: Element>(values: &[T], shape: impl ShapeWithHole, device: &Device) -> Result<Self> {
        let shape = shape.fill(values.len())?;
        check_rank("from_slice", &shape)?;
        if shape.elem_count() != values.len() {
            return Err(Error::op("from_slice", format!("{} values do not make {shape:?}", values.len())));
        }
        let mut bytes = Vec::with_capacity(values.len() * T::DTYPE.size_in_bytes());
        values.iter().for_each(|v| v.put(&mut bytes));
        Self::from_bytes(&bytes, T::DTYPE, shape, device)
    }

    /// A tensor of this shape from elements in row-major order; one size may be left open: `((), 4)`.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: impl ShapeWithHole, device: &Device) -> Result<Self> {
        Self::from_slice(&values, shape, device)
    }

    /// A vector of the iterator's elements.
    pub fn from_iter<T: Element>(values: impl IntoIterator<Item = T>, device: &Device) -> Result<Self> {
        let values: Vec<T> = values.into_iter().collect();
        Self::from_slice(&values, values.len(), device)
    }

    /// A tensor from little-endian bytes in row-major order.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: impl IntoShape, device: &Device) -> Result<Self> {
        let shape = shape.into_shape();
        check_rank("from_bytes", &shape)?;
        Ok(Self::from_node(device.engine().upload(dtype, shape, bytes)?, device))
    }

    /// `value` everywhere.
    pub fn full<T: Element>(value: T, shape: impl IntoShape, device: &Device) -> Result<Self> {
        Self::constant(Scalar::from_element(value), T::DTYPE, shape.into_shape(), device)
    }

    pub(crate) fn constant(value: Scalar, dtype: DType, shape: Shape, device: &Device) -> Result<Self> {
        check_rank("full", &shape)?;
        Ok(Self::from_node(ops::full(device.engine(), shape, dtype, value)?, device))
    }

    /// Zeros.
    pub fn zeros(shape: impl IntoShape, dtype: DType, device: &Device) -> Result<Self> {
        Self::constant(Scalar::F(0.0), dtype, shape.into_shape(), device)
    }

    /// Ones.
    pub fn ones(shape: impl IntoShape, dtype: DType, device: &Device) -> Result<Self> {
        Self::constant(Scalar::F(1.0), dtype, shape.into_shape(), device)
    }

    /// Zeros of this tensor's shape and dtype.
    pub fn zeros_like(&self) -> Result<Self> {
        Self::zeros(self.shape(), self.dtype(), self.device())
    }

    /// Ones of this tensor's shape and dtype.
    pub fn ones_like(&self) -> Result<Self> {
        Self::ones(self.shape(), self.dtype(), self.device())
    }

    /// start, start + 1, ... below end.
    pub fn arange<T: Element>(start: T, end: T, device: &Device) -> Result<Self> {
        Self::arange_step(start, end, T::from_f64(1.0), device)
    }

    /// start, start + step, ... before end (below it for a positive step, above it for a negative one).
    pub fn arange_step<T: Element>(start: T, end: T, step: T, device: &Device) -> Result<Self> {
        let [start, end, step] = [start, end, step].map(Scalar::from_element);
        let count = steps(start, end, step).filter(|&count| count <= u32::MAX.into()).ok_or_else(|| {
            let [from, to, by] = [start, end, step].map(Scalar::to_f64);
            Error::op("arange_step", format!("{from} to {to} in steps of {by} is no range"))
        })?;
        let node = ops::arange(device.engine(), count as usize, T::DTYPE, start, step)?;
        Ok(Self::from_node(node, device))
    }

    fn random(
        distribution: Distribution,
        params: [f64; 2],
        shape: Shape,
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        check_rank("rand", &shape)?;
        let (key, counter) = device.draw();
        let node = ops::random(device.engine(), shape, dtype, distribution, params, key, counter)?;
        Ok(Self::from_node(node, device))
    }

    /// Uniform random numbers in low..high. See [`Device::set_seed`].
    pub fn rand<T: Element>(low: T, high: T, shape: impl IntoShape, device: &Device) -> Result<Self> {
        Self::random(Distribution::Uniform, [low.to_f64(), high.to_f64()], shape.into_shape(), T::DTYPE, device)
    }

    /// Normal random numbers. See [`Device::set_seed`].
    pub fn randn<T: Element>(mean: T, std: T, shape: impl IntoShape, device: &Device) -> Result<Self> {
        Self::random(Distribution::Normal, [mean.to_f64(), std.to_f64()], shape.into_shape(), T::DTYPE, device)
    }

    /// Uniform random numbers in low..high, of this tensor's shape and dtype.
    pub fn rand_like(&self, low: f64, high: f64) -> Result<Self> {
        Self::random(Distribution::Uniform, [low, high], self.shape().clone(), self.dtype(), self.device())
    }

    /// Normal random numbers, of this tensor's shape and dtype.
    pub fn randn_like(&self, mean: f64, std: f64) -> Result<Self> {
        Self::random(Distribution::Normal, [mean, std], self.shape().clone(), self.dtype(), self.device())
    }
}
