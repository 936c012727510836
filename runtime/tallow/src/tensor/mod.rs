//! [`Tensor`]: a cheap, shareable handle to a value on a device. Operations only record what is to be computed; the device
//! computes when numbers are asked for.

mod bitwise;
mod compare;
mod conv;
mod create;
pub mod display;
mod einsum;
mod elementary;
mod elementwise;
mod gather;
mod index;
mod inplace;
mod join;
mod linalg;
mod norm;
mod pad;
mod pool;
mod read;
mod reduce;
mod resize;
mod scalar;
mod scan;
mod shape;
mod sort;
mod statistics;
mod track;
mod triangle;
mod var;
mod vector;
mod window;

pub use compare::CmpOp;
pub use display::{PrintOptions, set_print_options};
pub use index::{IndexOp, TensorIndexer};
pub use linalg::Attention;
pub use pool::ToUsize2;
pub use scalar::{TensorOrScalar, TensorScalar};
pub use var::Var;
pub use window::StridedIndex;

use crate::{DType, Device, Error, Result, Shape, View};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use tallow_graph::{Edge, Node};
use track::{Track, Version};

/// The current version of a value. Clones and views share it, so that they see what is written later.
struct Cell {
    device: Device,
    version: Mutex<Version>,
    /// The number of its untracked tensors, once somebody asked.
    number: OnceLock<u64>,
}

/// A tensor. Cloning it copies a handle, not the data.
///
/// ```
/// use tallow::{Device, Tensor};
/// let a = Tensor::new(&[[1f32, 2.], [3., 4.]], &Device::Cpu)?;
/// let b = (a.matmul(&a)? + 1.0)?;
/// assert_eq!(b.to_vec2::<f32>()?, [[8., 11.], [16., 23.]]);
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    cell: Arc<Cell>,
    view: View,
    track: Track,
}

impl Tensor {
    /// A tensor for a node, whole.
    pub fn from_node(node: Arc<Node>, device: &Device) -> Self {
        let view = View::contiguous(node.shape().clone());
        Self { cell: Cell::new(device, Version { node, tape: None, writes: 0 }), view, track: Track::Plain }
    }

    /// The node of the current version.
    pub fn node(&self) -> Arc<Node> {
        self.cell.version.lock().node.clone()
    }

    /// The current version, seen through this tensor's view: what an operation reads.
    pub(crate) fn edge(&self) -> Edge {
        Edge { node: self.node(), view: self.view.clone() }
    }

    /// A result of an operation.
    pub(crate) fn result(&self, node: Arc<Node>) -> Tensor {
        Tensor::from_node(node, &self.cell.device)
    }

    /// The sizes of the axes, outermost first.
    pub fn shape(&self) -> &Shape {
        &self.view.shape
    }

    /// The sizes of the axes, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.view.shape.dims()
    }

    /// The size of an axis.
    pub fn dim<T: crate::Dim>(&self, dim: T) -> Result<usize> {
        Ok(self.dims()[dim.to_index(self.shape(), "dim")?])
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.view.shape.rank()
    }

    /// Number of elements.
    pub fn elem_count(&self) -> usize {
        self.view.shape.elem_count()
    }

    /// Steps between neighbours along each axis, in elements.
    pub fn stride(&self) -> &[isize] {
        &self.view.strides
    }

    /// Offset, shape and strides.
    pub fn layout(&self) -> &View {
        &self.view
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.cell.version.lock().node.dtype()
    }

    /// Where it lives.
    pub fn device(&self) -> &Device {
        &self.cell.device
    }

    /// Whether elements follow one another in memory in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.view.is_dense()
    }

    /// Starts computing the value without waiting for it.
    pub async fn realize_async(&self) -> Result<()> {
        let node = self.node();
        self.cell.device.engine().realize(&[node]).await
    }

    /// Starts computing the value. Waits only for values of other devices.
    pub fn realize(&self) -> Result<()> {
        crate::block_on::block_on_named(self.realize_async(), "realize", "realize_async")
    }
}

macro_rules! dims_n {
    ($($name:ident $n:literal -> $ty:ty;)+) => { impl Tensor { $(
        #[doc = concat!("The sizes of exactly ", stringify!($n), " axes; an error where there are more or fewer.")]
        pub fn $name(&self) -> Result<$ty> {
            let dims: [usize; $n] = self.dims().try_into().map_err(|_| {
                Error::op(stringify!($name), format!("{:?} has {} axes, not {}", self.shape(), self.rank(), $n))
            })?;
            Ok(dims.into())
        }
    )+ } };
}

dims_n! {
    dims2 2 -> (usize, usize);
    dims3 3 -> (usize, usize, usize);
    dims4 4 -> (usize, usize, usize, usize);
    dims5 5 -> (usize, usize, usize, usize, usize);
}

impl Tensor {
    /// The size of the single axis; an error where there are more or fewer.
    pub fn dims1(&self) -> Result<usize> {
        match self.dims() {
            [n] => Ok(*n),
            _ => Err(Error::op("dims1", format!("{:?} has {} axes, not 1", self.shape(), self.rank()))),
        }
    }

    /// Nothing, for a tensor without axes; else an error.
    pub fn dims0(&self) -> Result<()> {
        match self.dims() {
            [] => Ok(()),
            _ => Err(Error::op("dims0", format!("{:?} has {} axes, not 0", self.shape(), self.rank()))),
        }
    }
}
