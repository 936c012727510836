//! Arguments of tensor functions: shapes from tuples, arrays and slices, axes by number or from the end.

use crate::{Error, Result, Shape};

/// An axis counted from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum D {
    /// The last axis.
    Minus1,
    /// The last but one.
    Minus2,
    /// Counted from the end: `Minus(1)` is the last.
    Minus(usize),
}

/// Something that names an axis.
pub trait Dim {
    /// Its number in `shape`; an error that names `op` where there is none.
    fn to_index(&self, shape: &Shape, op: &'static str) -> Result<usize>;
}

impl Dim for usize {
    fn to_index(&self, shape: &Shape, op: &'static str) -> Result<usize> {
        if *self < shape.rank() { Ok(*self) } else { Err(no_axis(op, &self.to_string(), shape)) }
    }
}

impl Dim for D {
    fn to_index(&self, shape: &Shape, op: &'static str) -> Result<usize> {
        let back = match self {
            D::Minus1 => 1,
            D::Minus2 => 2,
            D::Minus(n) => *n,
        };
        let at = shape.rank().checked_sub(back).filter(|_| back > 0);
        at.ok_or_else(|| no_axis(op, &format!("-{back}"), shape))
    }
}

fn no_axis(op: &'static str, axis: &str, shape: &Shape) -> Error {
    Error::op(op, format!("there is no axis {axis} in {shape:?}"))
}

/// Something that names several axes.
pub trait Dims {
    /// Their numbers, each at most once.
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>>;
}

fn distinct(axes: Vec<usize>, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
    for (i, axis) in axes.iter().enumerate() {
        if axes[..i].contains(axis) {
            return Err(Error::op(op, format!("axis {axis} of {shape:?} is named twice")));
        }
    }
    Ok(axes)
}

impl<T: Dim> Dims for T {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        Ok(vec![self.to_index(shape, op)?])
    }
}

impl Dims for () {
    fn to_indexes(&self, _: &Shape, _: &'static str) -> Result<Vec<usize>> {
        Ok(Vec::new())
    }
}

macro_rules! axes {
    ($(($($name:ident),+))+) => { $(
        impl<$($name: Dim),+> Dims for ($($name,)+) {
            #[allow(non_snake_case, reason = "a variable of each type")]
            fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
                let ($($name,)+) = self;
                distinct(vec![$($name.to_index(shape, op)?),+], shape, op)
            }
        }
    )+ };
}

axes! { (A) (A, B) (A, B, C) (A, B, C, E) (A, B, C, E, F) (A, B, C, E, F, G) (A, B, C, E, F, G, H) (A, B, C, E, F, G, H, I) }

impl<const N: usize> Dims for [usize; N] {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        self.as_slice().to_indexes(shape, op)
    }
}

impl<const N: usize> Dims for &[usize; N] {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        self.as_slice().to_indexes(shape, op)
    }
}

impl Dims for Vec<usize> {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        self.as_slice().to_indexes(shape, op)
    }
}

impl Dims for &[usize] {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        let axes = self.iter().map(|a| a.to_index(shape, op)).collect::<Result<_>>()?;
        distinct(axes, shape, op)
    }
}

/// Something that gives a shape.
pub trait IntoShape {
    /// The sizes, outermost first.
    fn into_shape(self) -> Shape;
}

impl<T: Into<Shape>> IntoShape for T {
    fn into_shape(self) -> Shape {
        self.into()
    }
}

/// A shape that may have one hole, `()`, which takes what is left.
pub trait ShapeWithHole {
    /// The shape for `elements` elements.
    fn fill(self, elements: usize) -> Result<Shape>;
}

macro_rules! whole {
    ($($ty:ty),+) => { $(
        impl ShapeWithHole for $ty {
            fn fill(self, _: usize) -> Result<Shape> {
                Ok(self.into_shape())
            }
        }
    )+ };
}

whole!(Shape, &Shape, usize, &[usize], Vec<usize>, &Vec<usize>);

impl<const N: usize> ShapeWithHole for [usize; N] {
    fn fill(self, _: usize) -> Result<Shape> {
        Ok(self.into_shape())
    }
}

impl<const N: usize> ShapeWithHole for &[usize; N] {
    fn fill(self, _: usize) -> Result<Shape> {
        Ok(self.into_shape())
    }
}

impl ShapeWithHole for () {
    fn fill(self, _: usize) -> Result<Shape> {
        Ok(self.into_shape())
    }
}

fn hole(before: &[usize], after: &[usize], elements: usize) -> Result<Shape> {
    let rest = before.iter().chain(after).fold(1usize, |n, &d| n.saturating_mul(d));
    if rest == 0 || !elements.is_multiple_of(rest) {
        let message = format!("{elements} elements do not fill a hole between {before:?} and {after:?}");
        return Err(Error::op("reshape", message));
    }
    Ok(before.iter().copied().chain([elements / rest]).chain(after.iter().copied()).collect())
}

macro_rules! tuples {
    ($(($($name:ident),+))+) => { $(
        impl ShapeWithHole for ($(tuples!(@usize $name),)+) {
            fn fill(self, _: usize) -> Result<Shape> {
                Ok(self.into_shape())
            }
        }
    )+ };
    (@usize $name:ident) => { usize };
}

tuples! {
    (a) (a, b) (a, b, c) (a, b, c, d) (a, b, c, d, e) (a, b, c, d, e, f) (a, b, c, d, e, f, g) (a, b, c, d, e, f, g, h)
}

macro_rules! holes {
    ($(($($before:ident),*) ($($after:ident),*);)+) => { $(
        impl ShapeWithHole for ($(holes!(@usize $before),)* (), $(holes!(@usize $after),)*) {
            fn fill(self, elements: usize) -> Result<Shape> {
                let ($($before,)* (), $($after,)*) = self;
                hole(&[$($before),*], &[$($after),*], elements)
            }
        }
    )+ };
    (@usize $name:ident) => { usize };
}

holes! {
    () (a);
    (a) ();
    () (a, b);
    (a) (b);
    (a, b) ();
    () (a, b, c);
    (a) (b, c);
    (a, b) (c);
    (a, b, c) ();
    () (a, b, c, d);
    (a) (b, c, d);
    (a, b) (c, d);
    (a, b, c) (d);
    (a, b, c, d) ();
    () (a, b, c, d, e);
    (a) (b, c, d, e);
    (a, b) (c, d, e);
    (a, b, c) (d, e);
    (a, b, c, d) (e);
    (a, b, c, d, e) ();
}
