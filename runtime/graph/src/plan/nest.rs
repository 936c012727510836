//! Loop nests: shapes and strides collapsed to as few axes as all operands allow, and the class of the result.

use crate::{MAX_RANK, View, kernel::Layout};
use smallvec::SmallVec;

/// An operand's way through a nest.
#[derive(Clone, Copy)]
pub(crate) struct Walk {
    pub offset: i64,
    pub strides: [i64; MAX_RANK],
}

/// A nest being built: push the operands, then collapse.
pub(crate) struct Nest {
    pub rank: usize,
    pub dims: [i64; MAX_RANK],
    pub walks: SmallVec<[Walk; 6]>,
}

impl Nest {
    /// A nest over the axes of `shape`.
    pub(crate) fn new(shape: &[usize]) -> Self {
        let mut dims = [1; MAX_RANK];
        for (out, &dim) in dims.iter_mut().zip(shape) {
            *out = dim as i64;
        }
        Self { rank: shape.len().min(MAX_RANK), dims, walks: SmallVec::new() }
    }

    /// An operand whose view has the nest's axes (or fewer: the inner ones are then missing and have stride 0).
    pub(crate) fn push(&mut self, view: &View) {
        let mut strides = [0; MAX_RANK];
        for (out, (&stride, &dim)) in strides.iter_mut().zip(view.strides.iter().zip(view.shape.iter())) {
            *out = if dim == 1 { 0 } else { stride as i64 };
        }
        self.walks.push(Walk { offset: view.offset as i64, strides });
    }

    /// The contiguous output.
    pub(crate) fn push_contiguous(&mut self) {
        let mut strides = [0; MAX_RANK];
        let mut step = 1i64;
        for axis in (0..self.rank).rev() {
            strides[axis] = step;
            step = step.wrapping_mul(self.dims[axis]);
        }
        self.walks.push(Walk { offset: 0, strides });
    }

    /// Merges axes `from..to` where every operand walks two as one, and drops those of size 1. Returns how many are left;
    /// later axes move down.
    pub(crate) fn collapse(&mut self, from: usize, to: usize) -> usize {
        let mut kept = from;
        for axis in from..to {
            let dim = self.dims[axis];
            if dim == 1 {
                continue;
            }
            let merges =
                kept > from && self.walks.iter().all(|w| w.strides[kept - 1] == w.strides[axis].wrapping_mul(dim));
            if merges {
                self.dims[kept - 1] = self.dims[kept - 1].wrapping_mul(dim);
                for walk in &mut self.walks {
                    walk.strides[kept - 1] = walk.strides[axis];
                }
            } else {
                self.dims[kept] = dim;
                for walk in &mut self.walks {
                    walk.strides[kept] = walk.strides[axis];
                }
                kept += 1;
            }
        }
        let moved = to - kept;
        if moved > 0 {
            for axis in to..self.rank {
                self.dims[axis - moved] = self.dims[axis];
                for walk in &mut self.walks {
                    walk.strides[axis - moved] = walk.strides[axis];
                }
            }
            self.rank -= moved;
        }
        kept - from
    }

    /// How operand `i` walks the nest.
    pub(crate) fn layout(&self, i: usize) -> Layout {
        let walk = &self.walks[i];
        let mut step = 1i64;
        let mut linear = true;
        let mut scalar = true;
        for axis in (0..self.rank).rev() {
            linear &= walk.strides[axis] == step;
            scalar &= walk.strides[axis] == 0;
            step = step.wrapping_mul(self.dims[axis]);
        }
        match (linear, scalar) {
            // A single element is both; linear needs no index arithmetic either way.
            (true, _) => Layout::Linear,
            (_, true) => Layout::Scalar,
            _ => Layout::Strided,
        }
    }

    /// Whether four neighbours along the innermost axis can be taken as one.
    pub(crate) fn vector(&self) -> bool {
        if self.rank == 0 || self.dims[self.rank - 1] % 4 != 0 {
            return false;
        }
        self.walks.iter().all(|walk| {
            let inner = walk.strides[self.rank - 1];
            // A walk that stands still may stand anywhere.
            let still = walk.strides[..self.rank].iter().all(|&s| s == 0);
            still
                || (inner == 0 || inner == 1 && walk.offset % 4 == 0)
                    && walk.strides[..self.rank - 1].iter().all(|&s| inner == 0 || s % 4 == 0)
        })
    }

    /// Appends the sizes of the axes.
    pub(crate) fn put_dims(&self, words: &mut Vec<i64>) {
        words.extend_from_slice(&self.dims[..self.rank]);
    }

    /// Appends an operand's words.
    pub(crate) fn put_walk(&self, i: usize, words: &mut Vec<i64>) {
        let walk = &self.walks[i];
        words.push(walk.offset);
        words.extend_from_slice(&walk.strides[..self.rank]);
    }
}
