//! Reductions over axes.

use super::Tensor;
use crate::autograd::rules::reduce as rules;
use crate::{Dim, Dims, Result};
use tallow_graph::{kernel::RowOp, ops};

impl Tensor {
    fn reduce(&self, op: RowOp, name: &'static str, axes: &[usize], keep: bool, first: bool) -> Result<Tensor> {
        let mask = axes.iter().fold(0u8, |mask, &axis| mask | 1 << axis);
        let x = self.input();
        let reduced = self.result(ops::reduce(op, x.edge(), mask)?);
        let reduced = rules::reduce(reduced, op, name, &x, axes, first);
        if !keep {
            return Ok(reduced);
        }
        let shape = self.dims().iter().enumerate().map(|(a, &d)| if axes.contains(&a) { 1 } else { d });
        reduced.reshape(shape.collect::<crate::Shape>())
    }

    fn all_axes(&self) -> Vec<usize> {
        (0..self.rank()).collect()
    }
}

macro_rules! several {
    ($($(#[$doc:meta])* $name:ident $keepdim:ident $all:ident $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name<T: Dims>(&self, axes: T) -> Result<Tensor> {
            let axes = axes.to_indexes(self.shape(), stringify!($name))?;
            self.reduce(RowOp::$op, stringify!($name), &axes, false, axes.len() == 1)
        }

        $(#[$doc])*
        /// The reduced axes stay, with size 1.
        pub fn $keepdim<T: Dims>(&self, axes: T) -> Result<Tensor> {
            let axes = axes.to_indexes(self.shape(), stringify!($keepdim))?;
            self.reduce(RowOp::$op, stringify!($keepdim), &axes, true, axes.len() == 1)
        }

        $(#[$doc])*
        /// Over all elements: a scalar.
        pub fn $all(&self) -> Result<Tensor> {
            self.reduce(RowOp::$op, stringify!($all), &self.all_axes(), false, false)
        }
    )+ } };
}

several! {
    /// The sum; of nothing, 0.
    sum sum_keepdim sum_all Sum;
    /// The mean; of nothing, NaN.
    mean mean_keepdim mean_all Mean;
    /// The largest element; NaN if there is one. Of several largest, the first gets the gradient where one axis is named, else
    /// each an even share.
    max max_keepdim max_all Max;
    /// The smallest element; NaN if there is one. Of several smallest, the first gets the gradient where one axis is named,
    /// else each an even share.
    min min_keepdim min_all Min;
}

impl Tensor {
    /// The product over axes; of nothing, 1.
    pub fn prod<T: Dims>(&self, axes: T) -> Result<Tensor> {
        self.product("prod", &axes.to_indexes(self.shape(), "prod")?, false)
    }

    /// The product over axes; of nothing, 1. The reduced axes stay, with size 1.
    pub fn prod_keepdim<T: Dims>(&self, axes: T) -> Result<Tensor> {
        self.product("prod_keepdim", &axes.to_indexes(self.shape(), "prod_keepdim")?, true)
    }

    /// The product over all elements; of nothing, 1: a scalar.
    pub fn prod_all(&self) -> Result<Tensor> {
        self.product("prod_all", &self.all_axes(), false)
    }

    fn product(&self, name: &'static str, axes: &[usize], keep: bool) -> Result<Tensor> {
        if !self.is_tracked() || self.elem_count() == 0 {
            return self.reduce(RowOp::Prod, name, axes, keep, false);
        }
        // A tree of products of pairs: its gradient is exact where elements are zero, in every order.
        let mut x = self.clone();
        for &axis in axes {
            while x.dims()[axis] > 1 {
                let half = x.dims()[axis] / 2;
                let pairs = x.narrow(axis, 0, half)?.mul(&x.narrow(axis, half, half)?)?;
                x = match x.dims()[axis] % 2 {
                    0 => pairs,
                    _ => Tensor::cat(&[&pairs, &x.narrow(axis, 2 * half, 1)?], axis)?,
                };
            }
        }
        if !keep {
            let sizes = self.dims().iter().enumerate();
            x = x.reshape(sizes.filter(|(a, _)| !axes.contains(a)).map(|(_, &d)| d).collect::<crate::Shape>())?;
        }
        x.apart_from(self, name)
    }
}

macro_rules! positions {
    ($($(#[$doc:meta])* $name:ident $keepdim:ident $op:ident;)+) => { impl Tensor { $(
        $(#[$doc])*
        pub fn $name<T: Dim>(&self, axis: T) -> Result<Tensor> {
            self.reduce(RowOp::$op, stringify!($name), &[axis.to_index(self.shape(), stringify!($name))?], false, true)
        }

        $(#[$doc])*
        /// The axis stays, with size 1.
        pub fn $keepdim<T: Dim>(&self, axis: T) -> Result<Tensor> {
            let axis = axis.to_index(self.shape(), stringify!($keepdim))?;
            self.reduce(RowOp::$op, stringify!($keepdim), &[axis], true, true)
        }
    )+ } };
}

positions! {
    /// The position of the first largest element along an axis, as U32; of the first NaN, if there is one.
    argmax argmax_keepdim ArgMax;
    /// The position of the first smallest element along an axis, as U32; of the first NaN, if there is one.
    argmin argmin_keepdim ArgMin;
}
