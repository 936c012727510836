//! Norms and softmax of one row that lies in order.

use tallow_graph::kernel::RowOp;

use super::class::{Class, Num};
use super::exec::{slice, slice_mut};
use crate::{Isa, rows};

/// Writes the norm of the `n` values at `x` to `to`, which may be the same place.
///
/// # Safety
/// Both hold `n` values of class `T`, aligned; they are the same or disjoint, and nobody else uses `to`.
pub(crate) unsafe fn normalise<T: Num>(isa: Isa, op: RowOp, eps: f64, x: *const u8, to: *mut u8, n: usize) {
    if T::CLASS == Class::F32 {
        let eps = eps as f32;
        if x == to.cast_const() || op == RowOp::Softmax {
            // SAFETY: the caller's; `x` is not looked at any more.
            let row: &mut [f32] = unsafe {
                copy_unless_same::<f32>(x, to, n);
                slice_mut(to, n)
            };
            return match op {
                RowOp::RmsNorm => rows::norm::rms_norm_in_place(isa, row, None, eps),
                RowOp::LayerNorm => rows::norm::layer_norm_in_place(isa, row, None, None, eps),
                _ => rows::softmax::softmax(isa, row),
            };
        }
        // SAFETY: the caller's; the two are disjoint here.
        let (x, out) = unsafe { (slice(x, n), slice_mut(to, n)) };
        return match op {
            RowOp::RmsNorm => rows::norm::rms_norm(isa, x, None, eps, out),
            _ => rows::norm::layer_norm(isa, x, None, None, eps, out),
        };
    }
    if T::CLASS == Class::F64 {
        // SAFETY: as above.
        unsafe {
            copy_unless_same::<f64>(x, to, n);
            row_f64(op, eps, slice_mut(to, n));
        }
    }
}

/// # Safety
/// As [`normalise`].
unsafe fn copy_unless_same<T>(x: *const u8, to: *mut u8, n: usize) {
    if x != to.cast_const() {
        // SAFETY: the caller's: they are disjoint.
        unsafe { std::ptr::copy_nonoverlapping(x, to, n * size_of::<T>()) };
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
