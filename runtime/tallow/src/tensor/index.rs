//! Elements and slices by index.

use super::Tensor;
use crate::{Dim, Error, Result, Shape, autograd::rules::index as rules};
use std::ops::{Bound, RangeBounds};
use tallow_graph::ops;

impl Tensor {
    /// Slices along `axis` in the order of `ids` (a vector of integers). An id out of range is an error at the next read;
    /// the largest value of the ids' dtype, where it is out of range, is a hole and gives zeros. Of a packed weight: its rows, in F32.
    pub fn index_select<T: Dim>(&self, ids: &Tensor, axis: T) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "index_select")?;
        let count = ids.dims1()?;
        let (x, at) = (self.input(), ids.input());
        let gathered = rules::index_select(self.result(ops::gather(x.edge(), at.edge(), axis)?), &x, &at, axis);
        let shape: Shape = self.dims().iter().enumerate().map(|(a, &d)| if a == axis { count } else { d }).collect();
        gathered.reshape(shape)
    }

    /// Rows of this table [rows, width] for ids of any shape: [ids..., width].
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        let width = self.dims2()?.1;
        let rows = self.index_select(&ids.flatten_all()?, 0)?;
        let shape: Shape = ids.dims().iter().copied().chain([width]).collect();
        rows.reshape(shape)
    }
}

/// One position of [`IndexOp::i`]: an index, a range, or a tensor of indices.
#[derive(Debug, Clone)]
pub enum TensorIndexer {
    /// One position; the axis goes.
    Select(usize),
    /// A range of positions.
    Narrow(Bound<usize>, Bound<usize>),
    /// These positions, in this order.
    IndexSelect(Tensor),
    /// These positions, in this order.
    Positions(Vec<u32>),
}

impl From<usize> for TensorIndexer {
    fn from(index: usize) -> Self {
        TensorIndexer::Select(index)
    }
}

impl From<&Tensor> for TensorIndexer {
    fn from(ids: &Tensor) -> Self {
        TensorIndexer::IndexSelect(ids.clone())
    }
}

impl From<Tensor> for TensorIndexer {
    fn from(ids: Tensor) -> Self {
        TensorIndexer::IndexSelect(ids)
    }
}

/// Positions given as numbers become a tensor when it is known on which device.
macro_rules! positions {
    ($([$($generics:tt)*] $list:ty),+) => { $(
        impl<$($generics)*> From<$list> for TensorIndexer {
            fn from(positions: $list) -> Self {
                TensorIndexer::Positions(positions.to_vec())
            }
        }
    )+ };
}

positions!([] &[u32], [] Vec<u32>, [] &Vec<u32>, [const N: usize] [u32; N], [const N: usize] &[u32; N]);

macro_rules! ranges {
    ($($range:ty),+) => { $(
        impl From<$range> for TensorIndexer {
            fn from(range: $range) -> Self {
                TensorIndexer::Narrow(range.start_bound().cloned(), range.end_bound().cloned())
            }
        }
    )+ };
}

ranges!(
    std::ops::Range<usize>,
    std::ops::RangeFrom<usize>,
    std::ops::RangeTo<usize>,
    std::ops::RangeInclusive<usize>,
    std::ops::RangeToInclusive<usize>,
    std::ops::RangeFull,
    (Bound<usize>, Bound<usize>)
);

fn indexed(tensor: &Tensor, indexers: &[TensorIndexer]) -> Result<Tensor> {
    let mut result = tensor.clone();
    let mut axis = 0;
    for indexer in indexers {
        if axis >= result.rank() {
            return Err(Error::op("i", format!("more indices than {:?} has axes", tensor.shape())));
        }
        match indexer {
            TensorIndexer::Select(at) => result = result.get_on_dim(axis, *at)?,
            TensorIndexer::Narrow(from, to) => {
                let size = result.dims()[axis];
                let from = match from {
                    Bound::Included(from) => *from,
                    Bound::Excluded(from) => from.saturating_add(1),
                    Bound::Unbounded => 0,
                };
                let to = match to {
                    Bound::Included(to) => to.saturating_add(1),
                    Bound::Excluded(to) => *to,
                    Bound::Unbounded => size,
                };
                // A range that runs backwards is empty, as in PyTorch.
                let len = to.saturating_sub(from);
                result = result.narrow(axis, from, len)?;
                axis += 1;
            }
            TensorIndexer::IndexSelect(ids) => {
                result = result.index_select(ids, axis)?;
                axis += 1;
            }
            TensorIndexer::Positions(list) => {
                let ids = Tensor::from_slice(list, list.len(), tensor.device())?;
                result = result.index_select(&ids, axis)?;
                axis += 1;
            }
        }
    }
    Ok(result)
}

/// Indexing as in candle: `t.i((0, 1..3))?`.
pub trait IndexOp<T> {
    /// The part that the indices name.
    fn i(&self, index: T) -> Result<Tensor>;
}

impl<T: Into<TensorIndexer>> IndexOp<T> for Tensor {
    fn i(&self, index: T) -> Result<Tensor> {
        indexed(self, &[index.into()])
    }
}

macro_rules! tuples {
    ($(($($name:ident),+))+) => { $(
        impl<$($name: Into<TensorIndexer>),+> IndexOp<($($name,)+)> for Tensor {
            #[allow(non_snake_case)]
            fn i(&self, ($($name,)+): ($($name,)+)) -> Result<Tensor> {
                indexed(self, &[$($name.into()),+])
            }
        }
    )+ };
}

tuples! { (A) (A, B) (A, B, C) (A, B, C, E) (A, B, C, E, F) (A, B, C, E, F, G) (A, B, C, E, F, G, H) (A, B, C, E, F, G, H, I) }
