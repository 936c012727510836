//! Elements by index along an axis, and the opposite: elements written, added or compared at indices.

use super::Tensor;
use crate::{Dim, Error, Result, Shape, View, autograd, autograd::rules::index as rules};
use tallow_graph::{Edge, kernel::ScatterOp, ops};

impl Tensor {
    /// Elements along `axis`: `out[.., i, ..] = self[.., ids[.., i, ..], ..]`, of the shape of `ids` (an integer dtype). On
    /// the other axes `ids` may be smaller than this tensor. An id out of range is an error at the next read.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[[1f32, 2., 3.], [4., 5., 6.]], &Device::Cpu)?;
    /// let ids = Tensor::new(&[[2u32, 0], [1, 1]], &Device::Cpu)?;
    /// assert_eq!(x.gather(&ids, 1)?.to_vec2::<f32>()?, [[3., 1.], [5., 5.]]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn gather<T: Dim>(&self, ids: &Tensor, axis: T) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "gather")?;
        let source = self.first_of_others("gather", "the source", ids.shape(), axis)?;
        let (x, at) = (source.input(), ids.input());
        let picked = self.result(ops::pick(x.edge(), at.edge(), axis)?);
        rules::gather(picked, &x, &at, axis).reshape(ids.shape())
    }

    /// The first positions of all axes but `axis`, as many as `shape` has.
    fn first_of_others(&self, op: &'static str, what: &str, shape: &Shape, axis: usize) -> Result<Tensor> {
        if shape.rank() != self.rank() {
            let message = format!("ids {shape:?} and {what} {:?} must have as many axes", self.shape());
            return Err(Error::op(op, message));
        }
        let mut part = self.clone();
        for (a, (&wanted, &size)) in shape.iter().zip(self.dims()).enumerate() {
            if a == axis || wanted == size {
                continue;
            }
            if wanted > size {
                let message = format!("ids {shape:?} are larger than {what} {:?} on axis {a}", self.shape());
                return Err(Error::op(op, message));
            }
            part = part.narrow(a, 0, wanted)?;
        }
        Ok(part)
    }

    /// A copy of this tensor with the elements of `source` written along `axis`: `out[.., ids[.., i, ..], ..] = source[.., i,
    /// ..]`. Where several go to one place, the last along the axis stays, on every device. `ids` (an integer dtype) may be
    /// smaller than `source`, and on the other axes than this tensor. An id out of range is an error at the next read.
    pub fn scatter<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<Tensor> {
        self.scattered("scatter", ScatterOp::Set, ids, source, axis)
    }

    /// As [`Tensor::scatter`], but elements are added, in order. Integers wrap; small floats are added in F32.
    pub fn scatter_add<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<Tensor> {
        self.scattered("scatter_add", ScatterOp::Add, ids, source, axis)
    }

    /// As [`Tensor::scatter`], but the largest of the old and the new elements stays; NaN wins. Equal ones share the gradient.
    pub fn scatter_max<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<Tensor> {
        self.scattered("scatter_max", ScatterOp::Max, ids, source, axis)
    }

    /// As [`Tensor::scatter`], but the smallest of the old and the new elements stays; NaN wins. Equal ones share the
    /// gradient.
    pub fn scatter_min<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<Tensor> {
        self.scattered("scatter_min", ScatterOp::Min, ids, source, axis)
    }

    /// A copy of this tensor with slices of `source` added along `axis`: slice i at position `ids[i]` (a vector of integers).
    /// An id out of range is an error at the next read.
    pub fn index_add<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), "index_add")?;
        let count = ids.dims1()?;
        let fits = source.rank() == self.rank()
            && source
                .dims()
                .iter()
                .zip(self.dims())
                .enumerate()
                .all(|(a, (s, d))| if a == axis { *s == count } else { s == d });
        if !fits {
            let message = format!(
                "slices {:?} for {count} ids do not fit {:?} along axis {axis}: the other axes must have equal sizes",
                source.shape(),
                self.shape()
            );
            return Err(Error::op("index_add", message));
        }
        let column: Shape = (0..self.rank()).map(|a| if a == axis { count } else { 1 }).collect();
        let ids = ids.reshape(column)?.broadcast_as(source.shape())?;
        self.scattered("index_add", ScatterOp::Add, &ids, source, axis)
    }

    fn scattered<T: Dim>(
        &self,
        name: &'static str,
        op: ScatterOp,
        ids: &Tensor,
        source: &Tensor,
        axis: T,
    ) -> Result<Tensor> {
        let axis = axis.to_index(self.shape(), name)?;
        let source = source.leading(name, ids.shape())?;
        let base = self.first_of_others(name, "the tensor", ids.shape(), axis)?;
        let (old, at, new) = (base.input(), ids.input(), source.input());
        let node = ops::scatter(op, old.edge(), at.edge(), new.edge(), axis)?;
        let written = rules::scatter(self.result(node), name, op, [&old, &at, &new], axis).reshape(base.shape())?;
        if base.shape() == self.shape() {
            return Ok(written);
        }
        // Only the first positions of the other axes are touched.
        let whole = View::contiguous(self.shape().clone());
        let window = base.dims().iter().enumerate().fold(whole, |view, (a, &size)| view.narrow(a, 0, size));
        autograd::overwrite(self, &window, &written)
    }

    /// The first positions of every axis, as many as `shape` has.
    fn leading(&self, op: &'static str, shape: &Shape) -> Result<Tensor> {
        let fits = self.rank() == shape.rank() && shape.iter().zip(self.dims()).all(|(s, d)| s <= d);
        if !fits {
            let message = format!("ids {shape:?} must not be larger than the source {:?}", self.shape());
            return Err(Error::op(op, message));
        }
        shape.iter().enumerate().try_fold(self.clone(), |part, (a, &size)| part.narrow(a, 0, size))
    }

    /// [`Tensor::scatter`] in place: clones and views see it, results that were built before keep the old value.
    pub fn scatter_set<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<()> {
        self.scatter_in_place("scatter_set", ScatterOp::Set, ids, source, axis)
    }

    /// [`Tensor::scatter_add`] in place: clones and views see it, results that were built before keep the old value.
    pub fn scatter_add_set<T: Dim>(&self, ids: &Tensor, source: &Tensor, axis: T) -> Result<()> {
        self.scatter_in_place("scatter_add_set", ScatterOp::Add, ids, source, axis)
    }

    fn scatter_in_place<T: Dim>(
        &self,
        name: &'static str,
        op: ScatterOp,
        ids: &Tensor,
        source: &Tensor,
        axis: T,
    ) -> Result<()> {
        let axis = axis.to_index(self.shape(), name)?;
        let fits = |a: usize| a == axis || ids.dims()[a] == self.dims()[a];
        if ids.rank() == self.rank() && (0..self.rank()).all(fits) {
            let source = source.leading(name, ids.shape())?;
            let (at, new) = (ids.input(), source.input());
            let mut version = self.cell.version.lock();
            // Where no tape must follow, the scatter itself is the new version, so that it can take the old one's buffer.
            if version.tape.is_none() && new.tape().is_none() && self.view.is_whole(version.node.shape().elem_count()) {
                let base = Edge { node: version.node.clone(), view: self.view.clone() };
                version.node = ops::scatter(op, base, at.edge(), new.edge(), axis)?;
                return Ok(());
            }
        }
        // A variable's old value is where gradients end: only what is written may be tracked, and assign refuses that.
        let leaf = self.cell.version.lock().tape.as_ref().is_some_and(|tape| tape.is_leaf());
        let base = if leaf { self.detach() } else { self.clone() };
        self.assign(&base.scattered(name, op, ids, source, axis)?)
    }
}
