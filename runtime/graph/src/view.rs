//! Views: an affine map from an index to a place in a value's storage. Transposing, slicing, flipping and broadcasting
//! only make another view; no kernel runs for them.

use crate::{Shape, shape::copied};
use smallvec::SmallVec;

/// Signed strides in elements, one an axis.
pub type Strides = SmallVec<[isize; 4]>;

/// An affine window onto a value: element `index` lies at `offset + sum(index[a] * strides[a])` of the value's
/// contiguous storage. Broadcast axes have stride 0, flipped ones a negative stride.
#[derive(PartialEq, Eq, Hash)]
pub struct View {
    /// Place of the first element, in elements.
    pub offset: usize,
    /// Sizes of the axes.
    pub shape: Shape,
    /// Steps of the axes, in elements.
    pub strides: Strides,
}

impl Clone for View {
    #[inline]
    fn clone(&self) -> Self {
        Self { offset: self.offset, shape: self.shape.clone(), strides: copied(&self.strides) }
    }
}

impl View {
    /// The whole of a contiguous value.
    #[inline]
    pub fn contiguous(shape: Shape) -> Self {
        let strides = shape.contiguous_strides();
        Self { offset: 0, shape, strides }
    }

    /// Whether elements follow one another in row-major order (axes of size 1 may have any stride).
    #[inline]
    pub fn is_dense(&self) -> bool {
        let mut step = 1isize;
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if dim != 1 && stride != step {
                return false;
            }
            // Wraps only where an axis of size 0 leaves nothing to address.
            step = step.wrapping_mul(dim as isize);
        }
        true
    }

    /// Whether this is the whole of a value of `elements` elements, in order.
    #[inline]
    pub fn is_whole(&self, elements: usize) -> bool {
        self.offset == 0 && self.shape.elem_count() == elements && self.is_dense()
    }

    /// Whether every element lies within a value of `elements` elements, and none is shown twice. Windows whose axes
    /// interleave are refused even where they happen not to meet.
    pub fn lies_once_in(&self, elements: usize) -> bool {
        if self.shape.elem_count() == 0 {
            return true;
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        let mut axes: SmallVec<[(i128, i128); 8]> = SmallVec::new();
        for (&dim, &stride) in self.shape.iter().zip(&self.strides).filter(|&(&dim, _)| dim > 1) {
            let reach = (dim as i128 - 1) * stride as i128;
            if reach < 0 {
                low += reach
            } else {
                high += reach
            }
            axes.push((i128::from(stride.unsigned_abs() as u64), reach.abs()));
        }
        // No two indices meet where each axis steps over all that the finer ones reach.
        axes.sort_unstable();
        let mut reached = 0;
        for (step, reach) in axes {
            if step <= reached {
                return false;
            }
            reached += reach;
        }
        low >= 0 && high < elements as i128
    }

    /// Repeats along new leading axes and along axes of size 1. `None` where the sizes do not fit.
    pub fn broadcast_to(&self, shape: &Shape) -> Option<View> {
        if &self.shape == shape {
            return Some(self.clone());
        }
        let lead = shape.rank().checked_sub(self.shape.rank())?;
        let mut strides: Strides = smallvec::smallvec![0; shape.rank()];
        for (axis, (&dim, &stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let target = shape[lead + axis];
            if dim == target {
                strides[lead + axis] = stride;
            } else if dim != 1 {
                return None;
            }
        }
        Some(View { offset: self.offset, shape: shape.clone(), strides })
    }

    /// Axes in another order: axis `a` of the result is axis `order[a]` of this view. `order` must be a permutation.
    pub fn permute(&self, order: &[usize]) -> View {
        View {
            offset: self.offset,
            shape: order.iter().map(|&a| self.shape[a]).collect(),
            strides: order.iter().map(|&a| self.strides[a]).collect(),
        }
    }

    /// `len` positions of `axis` from `start`. The range must lie inside.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> View {
        let mut dims: SmallVec<[usize; 4]> = SmallVec::from_slice(&self.shape);
        dims[axis] = len;
        let offset =
            if len == 0 { self.offset as isize } else { self.offset as isize + start as isize * self.strides[axis] };
        View { offset: offset as usize, shape: Shape::new(&dims), strides: self.strides.clone() }
    }

    /// The axis read backwards.
    pub fn flip(&self, axis: usize) -> View {
        let mut view = self.clone();
        let last = self.shape[axis].saturating_sub(1) as isize;
        view.offset = (self.offset as isize + last * self.strides[axis]) as usize;
        view.strides[axis] = -self.strides[axis];
        view
    }

    /// `count` positions of an axis, `step` apart. The last one must lie inside.
    pub fn every(&self, axis: usize, count: usize, step: usize) -> View {
        let mut view = self.narrow(axis, 0, count);
        view.strides[axis] = view.strides[axis].wrapping_mul(step as isize);
        view
    }

    /// Overlapping windows along an axis: it becomes `count` windows that begin `step` apart, and a new last axis has
    /// the `size` elements of each, `gap` apart. The last window must lie inside.
    pub fn windows(&self, axis: usize, count: usize, step: usize, size: usize, gap: usize) -> View {
        let rank = self.shape.rank();
        let mut view = self.every(axis, count, step).unsqueeze(rank);
        let dims: SmallVec<[usize; 8]> = view.shape[..rank].iter().copied().chain([size]).collect();
        view.shape = Shape::new(&dims);
        view.strides[rank] = self.strides[axis].wrapping_mul(gap as isize);
        view
    }

    /// The elements whose positions along two different axes are equal, along a new last axis that replaces both.
    pub fn diagonal(&self, first: usize, second: usize) -> View {
        let keep: SmallVec<[usize; 8]> = (0..self.shape.rank()).filter(|&a| a != first && a != second).collect();
        let mut view = self.permute(&keep);
        let dims: SmallVec<[usize; 4]> =
            view.shape.iter().copied().chain([self.shape[first].min(self.shape[second])]).collect();
        view.strides.push(self.strides[first] + self.strides[second]);
        view.shape = Shape::new(&dims);
        view
    }

    /// Without the axis, whose size must be 1.
    pub fn squeeze(&self, axis: usize) -> View {
        let keep: SmallVec<[usize; 8]> = (0..self.shape.rank()).filter(|&a| a != axis).collect();
        self.permute(&keep)
    }

    /// With a new axis of size 1 before `axis`.
    pub fn unsqueeze(&self, axis: usize) -> View {
        let mut dims: SmallVec<[usize; 4]> = SmallVec::from_slice(&self.shape);
        let mut strides = self.strides.clone();
        dims.insert(axis, 1);
        strides.insert(axis, 0);
        View { offset: self.offset, shape: Shape::new(&dims), strides }
    }

    /// The same elements in the same order under another shape, or `None` where no affine map expresses it (then a copy
    /// is needed) or the element counts differ.
    pub fn reshape(&self, shape: &Shape) -> Option<View> {
        if self.shape.elem_count() != shape.elem_count() {
            return None;
        }
        if self.shape.elem_count() == 0 || self.is_dense() {
            return Some(View { offset: self.offset, shape: shape.clone(), strides: shape.contiguous_strides() });
        }
        // Merge the axes that follow one another, then split each run into the new axes.
        let runs = self.runs();
        let mut strides: Strides = smallvec::smallvec![0; shape.rank()];
        let mut axis = shape.rank();
        for &(size, stride) in runs.iter().rev() {
            let mut covered = 1usize;
            while covered < size {
                axis = axis.checked_sub(1)?;
                strides[axis] = stride * covered as isize;
                covered *= shape[axis];
            }
            if covered != size {
                return None;
            }
        }
        Some(View { offset: self.offset, shape: shape.clone(), strides })
    }

    /// Maximal runs (size, stride) of axes that can be walked as one, outermost first, without axes of size 1.
    fn runs(&self) -> SmallVec<[(usize, isize); 4]> {
        let mut runs: SmallVec<[(usize, isize); 4]> = SmallVec::new();
        for (&dim, &stride) in self.shape.iter().zip(&self.strides) {
            if dim == 1 {
                continue;
            }
            match runs.last_mut() {
                Some((size, step)) if *step == stride.wrapping_mul(dim as isize) => {
                    *size *= dim;
                    *step = stride;
                }
                _ => runs.push((dim, stride)),
            }
        }
        runs
    }

    /// What `inner` (a view whose axes are those of a value of shape `inner.shape`) becomes when the value is read
    /// through `self` instead: `self` addresses the value's contiguous storage, the result addresses what `inner` reads.
    /// `None` where the composition is not affine.
    pub fn compose(&self, inner: &View) -> Option<View> {
        if self.shape.elem_count() == 0 {
            let strides = self.shape.contiguous_strides();
            return Some(View { offset: inner.offset, shape: self.shape.clone(), strides });
        }
        if inner.is_dense() {
            // One axis of stride 1: the address itself.
            return Some(View { offset: inner.offset + self.offset, ..self.clone() });
        }
        if self.offset == 0 && self.shape == inner.shape && self.is_dense() {
            return Some(inner.clone());
        }
        // The value's index space, collapsed where `inner` walks several axes as one (a run keeps its contiguous step).
        let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
        let steps = inner.shape.contiguous_strides();
        for (axis, (&size, &stride)) in inner.shape.iter().zip(&inner.strides).enumerate() {
            if size == 1 {
                continue;
            }
            match axes.last_mut() {
                Some(last) if last.stride == stride.wrapping_mul(size as isize) => {
                    *last = Axis { size: last.size * size, step: steps[axis], stride };
                }
                _ => axes.push(Axis { size, step: steps[axis], stride }),
            }
        }
        // The first element's index, digit by digit; then the extent that each axis of `self` covers.
        let mut rest = self.offset as isize;
        let mut offset = inner.offset as isize;
        let mut low: SmallVec<[isize; 4]> = SmallVec::new();
        for axis in &axes {
            let digit = rest / axis.step;
            rest -= digit * axis.step;
            offset += digit * axis.stride;
            low.push(digit);
        }
        if rest != 0 {
            return None;
        }
        let mut high = low.clone();
        let mut strides: Strides = smallvec::smallvec![0; self.shape.rank()];
        for (out, (&dim, &step)) in strides.iter_mut().zip(self.shape.iter().zip(&self.strides)) {
            if dim <= 1 || step == 0 {
                continue;
            }
            // The coarsest axis that the step is a multiple of and stays inside.
            let place = axes.iter().position(|a| step % a.step == 0 && (step / a.step).unsigned_abs() < a.size)?;
            let count = step / axes[place].step;
            *out = count * axes[place].stride;
            let reach = count * (dim as isize - 1);
            if reach < 0 { low[place] += reach } else { high[place] += reach }
        }
        let inside = axes.iter().zip(low.iter().zip(&high)).all(|(a, (&l, &h))| l >= 0 && h < a.size as isize);
        inside.then(|| View { offset: offset as usize, shape: self.shape.clone(), strides })
    }
}

/// A collapsed axis of a value: its size, its step in the value's contiguous storage, its stride in what is read.
struct Axis {
    size: usize,
    step: isize,
    stride: isize,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}+{}:{:?}", self.shape, self.offset, self.strides.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every address of a view, in row-major order.
    fn addresses(view: &View) -> Vec<isize> {
        let mut all = vec![view.offset as isize];
        for (&dim, &stride) in view.shape.iter().zip(&view.strides) {
            all = all.iter().flat_map(|&a| (0..dim as isize).map(move |i| a + i * stride)).collect();
        }
        all
    }

    #[test]
    fn reshape_keeps_the_order_of_elements_or_refuses() {
        let base = View::contiguous(Shape::new(&[4, 6]));
        let t = base.permute(&[1, 0]);
        assert!(t.reshape(&Shape::new(&[24])).is_none());
        let split = t.reshape(&Shape::new(&[2, 3, 4])).unwrap();
        assert_eq!(addresses(&split), addresses(&t));
        let part = base.narrow(1, 2, 3).reshape(&Shape::new(&[2, 2, 1, 3])).unwrap();
        assert_eq!(addresses(&part), addresses(&base.narrow(1, 2, 3)));
        assert!(base.narrow(1, 2, 3).reshape(&Shape::new(&[12])).is_none());
        let wide = View::contiguous(Shape::new(&[1])).broadcast_to(&Shape::new(&[5, 4])).unwrap();
        assert_eq!(addresses(&wide.reshape(&Shape::new(&[20])).unwrap()), vec![0; 20]);
    }

    #[test]
    fn windows_overlap() {
        let row = View::contiguous(Shape::new(&[7]));
        assert_eq!(addresses(&row.windows(0, 3, 2, 3, 1)), [0, 1, 2, 2, 3, 4, 4, 5, 6]);
        assert_eq!(addresses(&row.windows(0, 2, 1, 2, 5)), [0, 5, 1, 6]);
        assert_eq!(addresses(&row.flip(0).every(0, 3, 3)), [6, 3, 0]);
        let square = View::contiguous(Shape::new(&[2, 3])).windows(0, 1, 1, 2, 1).windows(1, 2, 1, 2, 1);
        assert_eq!(square.shape.dims(), [1, 2, 2, 2]);
        assert_eq!(addresses(&square), [0, 1, 3, 4, 1, 2, 4, 5]);
    }

    #[test]
    fn diagonals_address_their_elements() {
        let base = View::contiguous(Shape::new(&[2, 5]));
        assert_eq!(addresses(&base.diagonal(0, 1)), [0, 6]);
        assert_eq!(addresses(&View::contiguous(Shape::new(&[2, 2, 2])).diagonal(0, 2)), [0, 5, 2, 7]);
    }

    #[test]
    fn a_view_that_shows_an_element_twice_is_found() {
        let base = View::contiguous(Shape::new(&[4, 6]));
        for once in [base.permute(&[1, 0]), base.narrow(1, 1, 3).flip(0), base.windows(1, 3, 2, 2, 1)] {
            assert!(once.lies_once_in(24), "{once:?}");
            assert!(!once.lies_once_in(18), "{once:?}");
        }
        assert!(base.diagonal(0, 1).lies_once_in(24));
        assert!(!base.windows(1, 2, 2, 3, 1).lies_once_in(24));
        assert!(!base.broadcast_to(&Shape::new(&[2, 4, 6])).unwrap().lies_once_in(24));
    }

    #[test]
    fn composition_reads_the_same_elements() {
        // A small deterministic walk over outer and inner views; the composition must agree wherever it is given.
        let mut given = 0;
        let inner_shape = Shape::new(&[4, 3, 2]);
        let base = View::contiguous(inner_shape.clone());
        let big = View::contiguous(Shape::new(&[6, 5, 4]));
        let inners = [
            base.clone(),
            View::contiguous(Shape::new(&[2, 3, 4])).permute(&[2, 1, 0]),
            big.narrow(0, 1, 4).narrow(1, 2, 3).narrow(2, 1, 2),
            View::contiguous(Shape::new(&[2])).broadcast_to(&inner_shape).unwrap(),
            View::contiguous(Shape::new(&[4, 1, 1])).broadcast_to(&inner_shape).unwrap(),
            base.flip(0).flip(2),
        ];
        let outers = [
            base.clone(),
            base.permute(&[2, 0, 1]),
            base.narrow(0, 1, 2).flip(1),
            base.narrow(2, 1, 1).squeeze(2),
            base.reshape(&Shape::new(&[12, 2])).unwrap(),
            base.reshape(&Shape::new(&[2, 2, 3, 2])).unwrap().flip(1),
            base.reshape(&Shape::new(&[24])).unwrap(),
            base.narrow(1, 0, 1).broadcast_to(&Shape::new(&[4, 1, 2])).unwrap(),
        ];
        for inner in &inners {
            let inner_at = addresses(inner);
            for outer in &outers {
                if let Some(both) = outer.compose(inner) {
                    given += 1;
                    let want: Vec<_> = addresses(outer).iter().map(|&a| inner_at[a as usize]).collect();
                    assert_eq!(addresses(&both), want, "{outer:?} after {inner:?}");
                }
            }
        }
        assert!(given > 35, "only {given} compositions were found");
    }
}
