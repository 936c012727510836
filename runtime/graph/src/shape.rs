//! Shapes: the sizes of a tensor's axes, outermost first.

use smallvec::SmallVec;

/// The most axes a tensor may have.
pub const MAX_RANK: usize = 8;

/// The sizes of a tensor's axes, outermost first. A scalar has none.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(SmallVec<[usize; 4]>);

impl Shape {
    /// A shape of these sizes.
    pub fn new(dims: &[usize]) -> Self {
        Self(SmallVec::from_slice(dims))
    }

    /// Sizes, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements; saturates instead of overflowing, so that size checks hold.
    pub fn elem_count(&self) -> usize {
        self.0.iter().fold(1usize, |n, &d| n.saturating_mul(d))
    }

    /// Strides of the row-major layout, in elements.
    pub fn contiguous_strides(&self) -> SmallVec<[isize; 4]> {
        let mut strides: SmallVec<[isize; 4]> = smallvec::smallvec![1; self.rank()];
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

impl std::ops::Deref for Shape {
    type Target = [usize];
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
}
