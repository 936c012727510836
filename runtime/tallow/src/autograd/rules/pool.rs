//! Gradients of pooling. An input element gathers from the windows that it lies in: the gradients are laid out with the
//! windows' step between them, and each element sums a window of that, in one kernel and without a copy for each tap. Where
//! windows do not overlap, nothing is summed: an element takes its window's gradient or 0.

use crate::{
    Result, Shape, Tensor, View,
    autograd::{Input, Keep, overwrite},
};
use tallow_graph::{Edge, kernel::RowOp, ops};

/// Windows along the last axes of a value.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    /// Axes before the windowed ones.
    pub lead: usize,
    /// Elements of a window along each axis.
    pub size: Vec<usize>,
    /// Elements from one window to the next.
    pub stride: Vec<usize>,
}

impl Windows {
    /// A value's view as windows: [lead..., windows..., elements...]. The windows must fit.
    pub(crate) fn view(&self, value: &View) -> View {
        let along = |view: View, (axis, (&size, &stride)): (usize, (&usize, &usize))| {
            let count = value.shape[axis].saturating_sub(size) / stride + 1;
            view.windows(axis, count, stride, size, 1)
        };
        (self.lead..).zip(self.size.iter().zip(&self.stride)).fold(value.clone(), along)
    }

    /// What an operation over windows reads of an operand.
    pub(crate) fn edge(&self, x: &Input<'_>) -> Edge {
        let mut edge = x.edge();
        edge.view = self.view(&edge.view);
        edge
    }

    /// The axes of the view that are elements of a window, as a reduction takes them.
    pub(crate) fn mask(&self) -> u8 {
        self.elements().into_iter().fold(0, |mask, axis| mask | 1 << axis)
    }

    /// The axes of the view that are elements of a window.
    pub(crate) fn elements(&self) -> Vec<usize> {
        let first = self.lead + self.size.len();
        (first..first + self.size.len()).collect()
    }

    /// Whether windows lie side by side, so that an element lies in at most one.
    fn tiled(&self) -> bool {
        self.size == self.stride
    }

    /// A value [lead..., windows...] as [lead..., windows 0, 1, windows 1, 1, ...], to be broadcast over the elements.
    fn apart(&self, value: &Tensor) -> Result<Tensor> {
        let lead = value.dims()[..self.lead].iter().copied();
        let shape: Shape = lead.chain(value.dims()[self.lead..].iter().flat_map(|&count| [count, 1])).collect();
        value.reshape(shape)
    }

    /// Tiled windows [lead..., windows 0, elements 0, windows 1, ...] as a value of shape `shape`; what no window reached is 0.
    fn joined(&self, elements: &Tensor, shape: &Shape) -> Result<Tensor> {
        let whole = |axis: usize, size: usize| shape[axis] / size * size;
        let lead = shape[..self.lead].iter().copied();
        let covered: Shape = lead.chain((self.lead..).zip(&self.size).map(|(axis, &size)| whole(axis, size))).collect();
        let mut joined = elements.reshape(covered)?;
        for (axis, &size) in (self.lead..).zip(&self.size) {
            let rest = shape[axis] - whole(axis, size);
            if rest > 0 {
                joined = joined.pad_with_zeros(axis, 0, rest)?;
            }
        }
        Ok(joined)
    }

    /// What each element of a value of shape `shape` sums over: `grad` [lead..., windows...] spread by the stride, with room
    /// for a window before it, as [lead..., sizes..., elements...]. Element u of a window stands for element size - 1 - u.
    fn gathered(&self, grad: &Tensor, shape: &Shape) -> Result<Tensor> {
        let lead = shape[..self.lead].iter().copied();
        let room = shape[self.lead..].iter().zip(&self.size).map(|(&dim, &size)| dim + size - 1);
        let room: Shape = lead.chain(room).collect();
        let mut window = View::contiguous(room.clone());
        for (at, (&size, &stride)) in self.size.iter().zip(&self.stride).enumerate() {
            let axis = self.lead + at;
            let rest = room[axis].saturating_sub(size - 1);
            window = window.narrow(axis, size - 1, rest).every(axis, grad.dims()[axis], stride);
        }
        let spread = overwrite(&Tensor::zeros(room, grad.dtype(), grad.device())?, &window, grad)?;
        let each = Windows { stride: vec![1; self.stride.len()], ..self.clone() };
        Ok(spread.viewed("windows", |view| each.view(view)))
    }
}

/// Records `y`, the mean or maximum of `x` over windows. A maximum's gradient goes to the first largest element.
pub(crate) fn pool(y: Tensor, op: RowOp, name: &'static str, x: &Input<'_>, windows: Windows) -> Tensor {
    match op {
        RowOp::Mean => y.recorded(name, &[x], &[Keep::NOTHING], move |saved, grad| {
            saved.each(|_| {
                let count: usize = windows.size.iter().product();
                let share = (grad / count as f64)?;
                if windows.tiled() {
                    let apart = windows.apart(&share)?;
                    let sizes = apart.dims()[..windows.lead].iter().copied();
                    let pairs = grad.dims()[windows.lead..].iter().zip(&windows.size).flat_map(|(&n, &size)| [n, size]);
                    let spread = apart.broadcast_as(sizes.chain(pairs).collect::<Shape>())?;
                    return windows.joined(&spread, saved.shape(0)?);
                }
                windows.gathered(&share, saved.shape(0)?)?.sum(windows.elements().as_slice())
            })
        }),
        RowOp::Max => y.recorded(name, &[x], &[Keep::input(0)], move |saved, grad| {
            saved.each(|_| {
                let shape = saved.shape(0)?;
                let count: usize = windows.size.iter().product();
                // Which element of its window each window takes.
                let x = saved.input(0)?.detach();
                let at = x.result(ops::reduce(RowOp::ArgMax, windows.edge(&x.input()), windows.mask())?);
                if windows.tiled() {
                    let sizes: Vec<usize> = windows.size.iter().flat_map(|&size| [1, size]).collect();
                    let elements = Tensor::arange(0u32, count as u32, grad.device())?.reshape(sizes)?;
                    let taken = windows.apart(&at)?.broadcast_eq(&elements)?;
                    let grad = windows.apart(grad)?.broadcast_as(taken.shape())?;
                    return windows.joined(&taken.where_cond(&grad, &grad.zeros_like()?)?, shape);
                }
                let elements =
                    Tensor::arange(0u32, count as u32, grad.device())?.flip(0)?.reshape(windows.size.as_slice())?;
                let taken = windows.gathered(&at, shape)?.broadcast_eq(&elements)?;
                let grad = windows.gathered(grad, shape)?;
                taken.where_cond(&grad, &grad.zeros_like()?)?.sum(windows.elements().as_slice())
            })
        }),
        _ => y.without_gradient(name, &[x]),
    }
}
