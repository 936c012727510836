//! Triangles, diagonals and grids.

use super::Tensor;
use crate::{DType, Device, Dim, Error, Result, Shape};
use tallow_graph::MAX_RANK;

/// Positions 0..n as I32: an axis's own numbers.
fn positions(op: &'static str, n: usize, device: &Device) -> Result<Tensor> {
    let n = i32::try_from(n).map_err(|_| Error::op(op, format!("{n} positions are too many")))?;
    Tensor::arange(0i32, n, device)
}

/// U8 [rows, cols]: 1 where column - row is at most `diagonal`.
fn lower(op: &'static str, rows: usize, cols: usize, diagonal: i64, device: &Device) -> Result<Tensor> {
    // Beyond the corners, every diagonal is like the one next to them; so it stays within I32.
    let far = i64::try_from(rows.max(cols)).unwrap_or(i64::MAX);
    let diagonal = diagonal.clamp(-far, far) as f64;
    let row = (positions(op, rows, device)?.reshape((rows, 1))? + diagonal)?;
    positions(op, cols, device)?.reshape((1, cols))?.broadcast_le(&row)
}

impl Tensor {
    /// The identity matrix [n, n].
    pub fn eye(n: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        let at = positions("eye", n, device)?;
        at.reshape((n, 1))?.broadcast_eq(&at.reshape((1, n))?)?.to_dtype(dtype)
    }

    /// [n, n] with ones on and below the diagonal.
    pub fn tril2(n: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        lower("tril2", n, n, 0, device)?.to_dtype(dtype)
    }

    /// [n, n] with ones on and above the diagonal.
    pub fn triu2(n: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        lower("triu2", n, n, -1, device)?.logical_not()?.to_dtype(dtype)
    }

    /// The last two axes are matrices: their elements on and below a diagonal, zeros above it. 0 is the main diagonal,
    /// positive ones lie above it.
    ///
    /// ```
    /// use tallow::{DType, Device, Tensor};
    /// let x = Tensor::ones((2, 3), DType::F32, &Device::Cpu)?;
    /// assert_eq!(x.tril(0)?.to_vec2::<f32>()?, [[1., 0., 0.], [1., 1., 0.]]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        let (rows, cols) = self.matrix("tril")?;
        lower("tril", rows, cols, diagonal, self.device())?.where_cond(self, &self.zero()?)
    }

    /// The last two axes are matrices: their elements on and above a diagonal, zeros below it. 0 is the main diagonal,
    /// positive ones lie above it.
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        let (rows, cols) = self.matrix("triu")?;
        let below = lower("triu", rows, cols, diagonal.saturating_sub(1), self.device())?;
        below.where_cond(&self.zero()?, self)
    }

    /// Rows and columns of the last two axes.
    fn matrix(&self, op: &'static str) -> Result<(usize, usize)> {
        match self.dims() {
            [.., rows, cols] => Ok((*rows, *cols)),
            _ => Err(Error::op(op, format!("{:?} has fewer than two axes", self.shape()))),
        }
    }

    fn zero(&self) -> Result<Tensor> {
        Tensor::zeros((), self.dtype(), self.device())
    }

    /// The elements whose position on axis `second` is `offset` more than on axis `first`: those axes go, a last axis goes
    /// along the diagonal. A view; nothing is copied.
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::arange(0f32, 6., &Device::Cpu)?.reshape((2, 3))?;
    /// assert_eq!(x.diagonal(1, 0, 1)?.to_vec1::<f32>()?, [1., 5.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn diagonal<A: Dim, B: Dim>(&self, offset: i64, first: A, second: B) -> Result<Tensor> {
        let (first, second) = (first.to_index(self.shape(), "diagonal")?, second.to_index(self.shape(), "diagonal")?);
        if first == second {
            return Err(Error::op("diagonal", format!("axis {first} of {:?} is named twice", self.shape())));
        }
        let (axis, skip) = if offset < 0 { (first, offset.unsigned_abs()) } else { (second, offset.unsigned_abs()) };
        let size = self.dims()[axis];
        let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(size);
        self.narrow(axis, skip, size - skip)?.main_diagonal(first, second)
    }

    /// The sum of the main diagonal of a matrix.
    pub fn trace(&self) -> Result<Tensor> {
        self.dims2()?;
        self.diagonal(0, 0, 1)?.sum_all()
    }

    /// Of a vector: the square matrix with it on a diagonal, zeros elsewhere. Of a matrix: a copy of that diagonal
    /// ([`Tensor::diagonal`] is a view of it).
    pub fn diag(&self, offset: i64) -> Result<Tensor> {
        match *self.dims() {
            [n] => {
                let skip = usize::try_from(offset.unsigned_abs()).ok();
                let size = skip.and_then(|skip| n.checked_add(skip)).filter(|&size| i32::try_from(size).is_ok());
                let size = size.ok_or_else(|| Error::op("diag", format!("diagonal {offset} is too far away")))?;
                let at = positions("diag", size, self.device())?;
                let on = (at.reshape((size, 1))? + offset as f64)?.broadcast_eq(&at.reshape((1, size))?)?;
                // Down the rows, or along the columns, the vector begins where the diagonal does.
                let rows = self.pad_with_zeros(
                    0,
                    if offset < 0 { size - n } else { 0 },
                    if offset < 0 { 0 } else { size - n },
                )?;
                on.where_cond(&rows.reshape((size, 1))?, &self.zero()?)
            }
            [_, _] => self.diagonal(offset, 0, 1)?.fresh("diag"),
            _ => Err(Error::op("diag", format!("takes a vector or a matrix, not {:?}", self.shape()))),
        }
    }

    /// Coordinates from vectors: for vectors of n, m, ... elements, tensors [n, m, ...] of which number i repeats vector i
    /// along axis i. With `xy_indexing`, the first two axes change places, as in numpy. The results are views.
    pub fn meshgrid<A: AsRef<Tensor>>(args: &[A], xy_indexing: bool) -> Result<Vec<Tensor>> {
        if args.len() > MAX_RANK {
            return Err(Error::op("meshgrid", format!("{} vectors would make more than {MAX_RANK} axes", args.len())));
        }
        let mut axes: Vec<usize> = (0..args.len()).collect();
        if xy_indexing && args.len() > 1 {
            axes.swap(0, 1);
        }
        let mut sizes = vec![1; args.len()];
        for (arg, &axis) in args.iter().zip(&axes) {
            sizes[axis] = arg.as_ref().dims1()?;
        }
        let grid = Shape::new(&sizes);
        let along = |(arg, &axis): (&A, &usize)| {
            let mut dims = vec![1; args.len()];
            dims[axis] = sizes[axis];
            arg.as_ref().reshape(dims)?.broadcast_as(&grid)
        };
        args.iter().zip(&axes).map(along).collect()
    }
}
