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

impl<A: Dim> Dims for (A,) {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        self.0.to_indexes(shape, op)
    }
}

impl<A: Dim, B: Dim> Dims for (A, B) {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        distinct(vec![self.0.to_index(shape, op)?, self.1.to_index(shape, op)?], shape, op)
    }
}

impl<A: Dim, B: Dim, C: Dim> Dims for (A, B, C) {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        let axes = vec![self.0.to_index(shape, op)?, self.1.to_index(shape, op)?, self.2.to_index(shape, op)?];
        distinct(axes, shape, op)
    }
}

impl<A: Dim, B: Dim, C: Dim, E: Dim> Dims for (A, B, C, E) {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        let (a, b, c, e) = (&self.0, &self.1, &self.2, &self.3);
        let axes = vec![a.to_index(shape, op)?, b.to_index(shape, op)?, c.to_index(shape, op)?, e.to_index(shape, op)?];
        distinct(axes, shape, op)
    }
}

impl<A: Dim, B: Dim, C: Dim, E: Dim, F: Dim> Dims for (A, B, C, E, F) {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        let (a, b, c, e, f) = (&self.0, &self.1, &self.2, &self.3, &self.4);
        let mut axes = vec![a.to_index(shape, op)?, b.to_index(shape, op)?, c.to_index(shape, op)?];
        axes.extend([e.to_index(shape, op)?, f.to_index(shape, op)?]);
        distinct(axes, shape, op)
    }
}

impl<A: Dim, B: Dim, C: Dim, E: Dim, F: Dim, G: Dim> Dims for (A, B, C, E, F, G) {
    fn to_indexes(&self, shape: &Shape, op: &'static str) -> Result<Vec<usize>> {
        let (a, b, c, e, f, g) = (&self.0, &self.1, &self.2, &self.3, &self.4, &self.5);
        let mut axes = vec![a.to_index(shape, op)?, b.to_index(shape, op)?, c.to_index(shape, op)?];
        axes.extend([e.to_index(shape, op)?, f.to_index(shape, op)?, g.to_index(shape, op)?]);
        distinct(axes, shape, op)
    }
}

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
