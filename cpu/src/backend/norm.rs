//! Norms and softmax of one row that lies in order.

use tallow_graph::kernel::RowOp;

use super::class::{Class, Num};
use super::exec::slice_mut;
use crate::{Isa, rows};

/// Writes the norm of the `n` values at `x` to `to`, which may be the same place.
///
/// # Safety
/// Both hold `n` values of class `T`, aligned; they are the same or disjoint, and nobody else uses `to`.
pub(crate) unsafe fn normalise<T: Num>(isa: Isa, op: RowOp, eps: f64, x: *const u8, to: *mut u8, n: usize) {
    if x != to.cast_const() {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(x, to, n * T::CLASS.size()) };
    }
    // SAFETY: the caller's; `x` is not looked at any more.
    unsafe {
        match T::CLASS {
            Class::F32 => row_f32(isa, op, eps as f32, slice_mut(to, n)),
            Class::F64 => row_f64(op, eps, slice_mut(to, n)),
            _ => {}
        }
    }
}

fn row_f32(isa: Isa, op: RowOp, eps: f32, x: &mut [f32]) {
    let n = x.len() as f32;
    match op {
        RowOp::RmsNorm => {
            let scale = 1.0 / (rows::reduce::dot(isa, x, x) / n + eps).sqrt();
            x.iter_mut().for_each(|x| *x *= scale);
        }
        RowOp::LayerNorm => {
            let mean = rows::reduce::sum(isa, x) / n;
            x.iter_mut().for_each(|x| *x -= mean);
            let scale = 1.0 / (rows::reduce::dot(isa, x, x) / n + eps).sqrt();
            x.iter_mut().for_each(|x| *x *= scale);
        }
        _ => {
            let top = rows::reduce::max(isa, x);
            x.iter_mut().for_each(|x| *x = (*x - top).exp());
            let scale = 1.0 / rows::reduce::sum(isa, x);
            x.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

fn row_f64(op: RowOp, eps: f64, x: &mut [f64]) {
    let n = x.len() as f64;
    match op {
        RowOp::Softmax => {
            let top = x.iter().fold(f64::NEG_INFINITY, |a, &b| Num::maximum(a, b));
            x.iter_mut().for_each(|x| *x = (*x - top).exp());
            let sum: f64 = x.iter().sum();
            x.iter_mut().for_each(|x| *x /= sum);
        }
        _ => {
            if op == RowOp::LayerNorm {
                let mean = x.iter().sum::<f64>() / n;
                x.iter_mut().for_each(|x| *x -= mean);
            }
            let scale = 1.0 / (x.iter().map(|x| x * x).sum::<f64>() / n + eps).sqrt();
            x.iter_mut().for_each(|x| *x *= scale);
        }
    }
}
