//! Gradients of indexing.

use crate::{
    DType, Result, Shape, Tensor,
    autograd::{Input, Keep},
};
use tallow_graph::kernel::{ScanOp, ScatterOp};

/// Records `y` [outer, ids, inner], the slices of `x` along `axis` at `ids`. Each slice's gradient is added where it came from.
pub(crate) fn index_select(y: Tensor, x: &Input<'_>, ids: &Input<'_>, axis: usize) -> Tensor {
    y.recorded("index_select", &[x, ids], &[Keep::input(1), Keep::NOTHING], move |saved, grad| {
        saved.each(|_| scatter_slices(grad, &saved.input(1)?, axis, saved.shape(0)?))
    })
}

/// The sum, at each position of `axis` of `shape`, of the slices of `grad` [outer, ids, inner] whose id it is.
fn scatter_slices(grad: &Tensor, ids: &Tensor, axis: usize, shape: &Shape) -> Result<Tensor> {
    let three = [grad.dims()[0], shape[axis], grad.dims()[2]];
    Tensor::zeros(three, grad.dtype(), grad.device())?.index_add(ids, grad, 1)?.reshape(shape)
}

/// Records `y` [outer, n, inner], the elements of `x` at `ids` along `axis`. Each gradient is added where the element came from.
pub(crate) fn gather(y: Tensor, x: &Input<'_>, ids: &Input<'_>, axis: usize) -> Tensor {
    y.recorded("gather", &[x, ids], &[Keep::input(1), Keep::NOTHING], move |saved, grad| {
        saved.each(|_| {
            let ids = saved.input(1)?;
            let zeros = Tensor::zeros(saved.shape(0)?, grad.dtype(), grad.device())?;
            zeros.scatter_add(&ids, &grad.reshape(ids.shape())?, axis)
        })
    })
}

/// Records `y` [outer, rows, inner], the base with the source scattered into it at `ids` along `axis`. Inputs: base, ids,
/// source; the source has the shape of `ids`, the base on all axes but `axis`.
pub(crate) fn scatter(y: Tensor, name: &'static str, op: ScatterOp, inputs: [&Input<'_>; 3], axis: usize) -> Tensor {
    let ids = Keep::input(1);
    let all = ids.and(Keep::input(0)).and(Keep::input(2)).and(Keep::OUTPUT);
    let keep = match op {
        ScatterOp::Add => [Keep::NOTHING, Keep::NOTHING, ids],
        ScatterOp::Set => [ids, Keep::NOTHING, ids],
        ScatterOp::Max | ScatterOp::Min => [all, Keep::NOTHING, all],
    };
    y.recorded(name, &inputs, &keep, move |saved, grad| {
        let grad = grad.reshape(saved.shape(0)?)?;
        match op {
            ScatterOp::Add => {
                saved.each(|i| if i == 0 { Ok(grad.clone()) } else { grad.gather(&saved.input(1)?, axis) })
            }
            ScatterOp::Set => saved.each(|i| {
                let ids = saved.input(1)?;
                if i == 0 {
                    return grad.scatter(&ids, &Tensor::zeros(ids.shape(), grad.dtype(), grad.device())?, axis);
                }
                // Only the last of several that go to one place is there: the one whose number comes back.
                let number = positions(&ids, axis)?;
                let last = Tensor::zeros(grad.shape(), DType::U32, grad.device())?.scatter(&ids, &number, axis)?;
                let stayed = last.gather(&ids, axis)?.eq(&number)?;
                let grad = grad.gather(&ids, axis)?;
                stayed.where_cond(&grad, &grad.zeros_like()?)
            }),
            // An even share to each that equals the result.
            ScatterOp::Max | ScatterOp::Min => {
                let (base, ids, source) = (saved.attached(0)?.detach(), saved.input(1)?, saved.attached(2)?.detach());
                let y = saved.output()?.detach().reshape(base.shape())?;
                let of_base = base.eq(&y)?.to_dtype(grad.dtype())?;
                let of_source = source.eq(&y.gather(&ids, axis)?)?.to_dtype(grad.dtype())?;
                // At least 1, where a NaN equals nothing.
                let share = (&grad / of_base.scatter_add(&ids, &of_source, axis)?.clamp(1.0, f64::INFINITY)?)?;
                saved.each(|i| if i == 0 { &share * &of_base } else { share.gather(&ids, axis)? * &of_source })
            }
        }
    })
}

/// 0, 1, 2, ... along `axis`, U32, of the shape of `like`.
fn positions(like: &Tensor, axis: usize) -> Result<Tensor> {
    let size = like.dims()[axis];
    let column: Shape = (0..like.rank()).map(|a| if a == axis { size } else { 1 }).collect();
    Tensor::arange(0u32, size as u32, like.device())?.reshape(column)?.broadcast_as(like.shape())
}

/// The sum, at each position of `axis`, of what comes from there on.
fn sum_of_rest(x: &Tensor, axis: usize) -> Result<Tensor> {
    x.flip(axis)?.cumsum(axis)?.flip(axis)
}

/// Records `y` [outer, n, inner], the running result of `x` along `axis`.
pub(crate) fn scan(y: Tensor, name: &'static str, op: ScanOp, x: &Input<'_>, axis: usize) -> Tensor {
    let both = Keep::input(0).and(Keep::OUTPUT);
    let keep = if op == ScanOp::Sum { Keep::NOTHING } else { both };
    y.recorded(name, &[x], &[keep], move |saved, grad| {
        saved.each(|_| {
            let shape = saved.shape(0)?;
            let grad = grad.reshape(shape)?;
            match op {
                ScanOp::Sum => sum_of_rest(&grad, axis),
                ScanOp::Prod => {
                    let (x, y) = (saved.input(0)?, saved.output()?.reshape(shape)?);
                    if saved.graph() {
                        return of_products_by_pairs(&grad, &x, axis);
                    }
                    of_products(&grad, &x, &y, axis)
                }
                ScanOp::Max | ScanOp::Min => {
                    // Where the result so far was last met (or was NaN), counted from 0.
                    let (x, y) = (saved.input(0)?.detach(), saved.output()?.detach().reshape(shape)?);
                    let met = x.eq(&y)?.maximum(&x.ne(&x)?)?;
                    let place = positions(&x, axis)?;
                    let from = met.where_cond(&place, &place.zeros_like()?)?.cummax(axis)?;
                    Tensor::zeros(shape, grad.dtype(), grad.device())?.scatter_add(&from, &grad, axis)
                }
            }
        })
    })
}

/// [`of_products`] in a form that can be differentiated again at zeros, where a quotient cannot: at i, the sum over k >= i of
/// g_k times the running product without x_i, for all pairs of i and k.
fn of_products_by_pairs(grad: &Tensor, x: &Tensor, axis: usize) -> Result<Tensor> {
    let n = x.dims()[axis];
    let outer = Shape::new(&x.dims()[..axis]).elem_count();
    let inner = Shape::new(&x.dims()[axis + 1..]).elem_count();
    let square = |a: &Tensor| a.reshape((outer, 1, n, inner))?.broadcast_as((outer, n, n, inner));
    let place = Tensor::arange(0u32, n as u32, x.device())?;
    let (i, k) = (place.reshape((n, 1, 1))?, place.reshape((1, n, 1))?);
    let (x4, g4) = (square(x)?, square(grad)?);
    let without = i.broadcast_eq(&k)?.broadcast_as(x4.shape())?.where_cond(&x4.ones_like()?, &x4)?.cumprod(2)?;
    let products = (g4 * without)?;
    let from = k.broadcast_ge(&i)?.broadcast_as(x4.shape())?;
    from.where_cond(&products, &products.zeros_like()?)?.sum(2)?.reshape(x.shape())
}

/// The gradient of running products y of x: at i, the sum over k >= i of g_k y_k / x_i. At the first zero of a row, the
/// products are taken without it; behind it, all are 0.
fn of_products(grad: &Tensor, x: &Tensor, y: &Tensor, axis: usize) -> Result<Tensor> {
    let (zero, one) = (x.zeros_like()?, x.ones_like()?);
    let is_zero = x.eq(&zero)?;
    let zeros = is_zero.to_dtype(DType::U32)?.cumsum(axis)?;
    let before = zeros.eq(&zeros.zeros_like()?)?;
    let first = is_zero.mul(&zeros.eq(&zeros.ones_like()?)?)?;
    let regular = (sum_of_rest(&(grad * y)?, axis)? / is_zero.where_cond(&one, x)?)?;
    let without = first.where_cond(&one, x)?.cumprod(axis)?;
    let at_first = sum_of_rest(&(grad * without)?, axis)?;
    before.where_cond(&regular, &first.where_cond(&at_first, &zero)?)
}
