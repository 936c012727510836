//! Shapes: the sizes of a tensor's axes, outermost first.

use crate::{Error, Result};
use smallvec::SmallVec;

/// The most axes a tensor may have.
pub const MAX_RANK: usize = 8;

/// The sizes of a tensor's axes, outermost first. A scalar has none.
#[derive(Eq, Hash, Default)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "both go by the sizes")]
pub struct Shape(SmallVec<[usize; 4]>);

impl PartialEq for Shape {
    /// Without a call, since there are few sizes: every operation compares some.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }
}

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Self {
        Self(copied(&self.0))
    }
}

/// A copy of sizes or strides, which every operation makes several of. `SmallVec`'s own goes element by element.
#[inline]
pub(crate) fn copied<T: Copy + Default>(from: &[T]) -> SmallVec<[T; 4]> {
    let none = T::default();
    match *from {
        [] => SmallVec::new(),
        [a] => SmallVec::from_buf_and_len([a, none, none, none], 1),
        [a, b] => SmallVec::from_buf_and_len([a, b, none, none], 2),
        [a, b, c] => SmallVec::from_buf_and_len([a, b, c, none], 3),
        [a, b, c, d] => SmallVec::from_buf([a, b, c, d]),
        _ => SmallVec::from_slice(from),
    }
}

impl Shape {
    /// A shape of these sizes.
    pub fn new(dims: &[usize]) -> Self {
        Self(SmallVec::from_slice(dims))
    }

    /// Sizes, outermost first.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; saturates instead of overflowing, so that size checks hold.
    #[inline]
    pub fn elem_count(&self) -> usize {
        self.0.iter().fold(1usize, |n, &d| n.saturating_mul(d))
    }

    /// Strides of the row-major layout, in elements.
    pub fn contiguous_strides(&self) -> SmallVec<[isize; 4]> {
        let mut strides: SmallVec<[isize; 4]> = match self.rank() {
            rank @ 0..=4 => SmallVec::from_buf_and_len([1; 4], rank),
            rank => SmallVec::from_elem(1, rank),
        };
        let mut step = 1isize;
        for (stride, &dim) in strides.iter_mut().zip(&self.0).rev() {
            *stride = step;
            step = step.saturating_mul(dim as isize);
        }
        strides
    }

    /// The shape that numpy's broadcasting gives to two operands, or `None` where they do not fit.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        if self == other {
            return Some(self.clone());
        }
        let rank = self.rank().max(other.rank());
        let size = |s: &Shape, axis: usize| if axis + s.rank() >= rank { s.0[axis + s.rank() - rank] } else { 1 };
        (0..rank)
            .map(|axis| match (size(self, axis), size(other, axis)) {
                (a, b) if a == b || b == 1 => Some(a),
                (1, b) => Some(b),
                _ => None,
            })
            .collect::<Option<SmallVec<_>>>()
            .map(Shape)
    }

    /// This shape without the axes whose bit is set in `mask`.
    pub fn without(&self, mask: u8) -> Shape {
        Shape(self.0.iter().enumerate().filter(|(axis, _)| mask & (1 << axis) == 0).map(|(_, &d)| d).collect())
    }
}

macro_rules! exactly {
    ($($name:ident $n:literal -> $ty:ty;)+) => { impl Shape { $(
        #[doc = concat!("The sizes of exactly ", stringify!($n), " axes; an error where there are more or fewer.")]
        pub fn $name(&self) -> Result<$ty> {
            let dims: [usize; $n] = self.dims().try_into().map_err(|_| self.other_rank(stringify!($name), $n))?;
            Ok(dims.into())
        }
    )+ } };
}

exactly! {
    dims2 2 -> (usize, usize);
    dims3 3 -> (usize, usize, usize);
    dims4 4 -> (usize, usize, usize, usize);
    dims5 5 -> (usize, usize, usize, usize, usize);
}

impl Shape {
    /// Nothing, for a shape without axes; else an error.
    pub fn dims0(&self) -> Result<()> {
        if self.rank() == 0 { Ok(()) } else { Err(self.other_rank("dims0", 0)) }
    }

    /// The size of the single axis; an error where there are more or fewer.
    pub fn dims1(&self) -> Result<usize> {
        match self.dims() {
            [n] => Ok(*n),
            _ => Err(self.other_rank("dims1", 1)),
        }
    }

    fn other_rank(&self, op: &'static str, wanted: usize) -> Error {
        Error::op(op, format!("{self:?} has {} axes, not {wanted}", self.rank()))
    }

    /// The sizes as a vector.
    pub fn into_dims(self) -> Vec<usize> {
        self.0.into_vec()
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl From<usize> for Shape {
    fn from(size: usize) -> Self {
        Self::new(&[size])
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Self {
        shape.clone()
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self::new(dims)
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims.into())
    }
}

impl From<&Vec<usize>> for Shape {
    fn from(dims: &Vec<usize>) -> Self {
        Self::new(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self::new(&dims)
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Self {
        Self::new(dims)
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))+) => { $(
        impl From<($(tuples!(@usize $name),)+)> for Shape {
            fn from(($($name,)+): ($(tuples!(@usize $name),)+)) -> Self {
                Self::new(&[$($name),+])
            }
        }
    )+ };
    (@usize $name:ident) => { usize };
}

tuples! {
    (a) (a, b) (a, b, c) (a, b, c, d) (a, b, c, d, e) (a, b, c, d, e, f) (a, b, c, d, e, f, g) (a, b, c, d, e, f, g, h)
}

impl std::ops::Deref for Shape {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(dims: I) -> Self {
        Self(dims.into_iter().collect())
    }
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let shape = Shape::new;
        assert_eq!(shape(&[2, 3]).broadcast(&shape(&[3])), Some(shape(&[2, 3])));
        assert_eq!(shape(&[2, 1]).broadcast(&shape(&[1, 4])), Some(shape(&[2, 4])));
        assert_eq!(shape(&[0, 1]).broadcast(&shape(&[5])), Some(shape(&[0, 5])));
        assert_eq!(shape(&[2, 3]).broadcast(&shape(&[2])), None);
        assert_eq!(shape(&[]).broadcast(&shape(&[2])), Some(shape(&[2])));
    }

    #[test]
    fn shapes_come_from_tuples_arrays_and_slices() {
        let want = Shape::new(&[2, 3]);
        assert_eq!(Shape::from((2, 3)), want);
        assert_eq!(Shape::from([2, 3]), want);
        assert_eq!(Shape::from(&[2usize, 3][..]), want);
        assert_eq!(Shape::from(vec![2, 3]), want);
        assert_eq!(Shape::from(()).rank(), 0);
        assert_eq!(Shape::from(5).dims1().unwrap(), 5);
        assert_eq!(want.dims2().unwrap(), (2, 3));
        assert_eq!(want.dims3().unwrap_err().to_string(), "dims3: [2, 3] has 2 axes, not 3");
        assert_eq!(want.into_dims(), [2, 3]);
    }
}
