//! 16 weight rows by many f32 activation rows: the weights are dequantized once into a panel `[k][16]`, in pieces of
//! `KC` elements that stay in the first-level cache.

use std::cell::RefCell;

use super::dot_f32::Kernel;
use super::format::{Format, Q4_0, Q4_1, Q4K, Q6K, Q8_0, Unpacked, half_to_f32};
use super::tile::TileMut;
use crate::Isa;
use crate::multiversion::fma;

/// Weight rows of a panel.
const ROWS: usize = 16;
/// Elements of a row in a panel: a multiple of every block.
const KC: usize = 512;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

multiversion! {
    pub(super) fn fill_q4_0(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) = fill_q4_0_body;
    pub(super) fn fill_q4_1(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) = fill_q4_1_body;
    pub(super) fn fill_q8_0(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) = fill_q8_0_body;
    pub(super) fn fill_q4k(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) = fill_q4k_body;
    pub(super) fn fill_q6k(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) = fill_q6k_body;
    fn multiply(panel: &[f32], x: &[f32], k: usize, at: usize, column: usize, out: &mut TileMut<'_>) = multiply_body;
}
macro_rules! bodies {
    ($($name:ident = $format:ty;)*) => {$(
        #[inline(always)]
        fn $name<const FMA: bool>(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) {
            fill::<$format, FMA>(rows, row_bytes, at, panel);
        }
    )*};
}
bodies! {
    fill_q4_0_body = Q4_0;
    fill_q4_1_body = Q4_1;
    fill_q8_0_body = Q8_0;
    fill_q4k_body = Q4K;
    fill_q6k_body = Q6K;
}

/// Dequantizes elements `at..` of up to 16 rows into `panel`, as many as it takes; absent rows keep what was there.
#[inline(always)]
fn fill<F: Format, const FMA: bool>(rows: &[u8], row_bytes: usize, at: usize, panel: &mut [f32]) {
    let mut block = Unpacked::new();
    for (b, to) in panel.chunks_exact_mut(F::ELEMS * ROWS).enumerate() {
        for (r, row) in rows.chunks_exact(row_bytes).enumerate().take(ROWS) {
            F::unpack(&row[(at / F::ELEMS + b) * F::BYTES..][..F::BYTES], half_to_f32, &mut block);
            for (i, to) in to.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
                to[r] = fma::<FMA>(block.scale[i / F::GROUP], f32::from(block.q[i]), block.min[i / F::GROUP]);
            }
        }
    }
}

#[inline(always)]
fn multiply_body<const FMA: bool>(panel: &[f32], x: &[f32], k: usize, at: usize, column: usize, out: &mut TileMut<'_>) {
    let mut i = 0;
    while out.rows() - i >= 4 {
        multiply_rows::<FMA, 4>(panel, x, k, at, i, column, out);
        i += 4;
    }
    while i < out.rows() {
        multiply_rows::<FMA, 1>(panel, x, k, at, i, column, out);
        i += 1;
    }
}

/// Adds to `out` (or, for the first piece, sets) the products of activation rows `first..first + M`.
#[inline(always)]
fn multiply_rows<const FMA: bool, const M: usize>(
    panel: &[f32],
    x: &[f32],
    k: usize,
    at: usize,
    first: usize,
    column: usize,
    out: &mut TileMut<'_>,
) {
    let panel = panel.as_chunks::<ROWS>().0;
    let x: [&[f32]; M] = std::array::from_fn(|i| &x[(first + i) * k + at..][..panel.len()]);
    let mut acc = [[0f32; ROWS]; M];
    for (kk, w) in panel.iter().enumerate() {
        for i in 0..M {
            // SAFETY: every `x[i]` was cut to the panel's length.
            let x = unsafe { *x[i].get_unchecked(kk) };
            for r in 0..ROWS {
                acc[i][r] = fma::<FMA>(w[r], x, acc[i][r]);
            }
        }
    }
    for (i, acc) in acc.iter().enumerate() {
        for (out, &value) in out.row(first + i)[column..].iter_mut().zip(acc) {
            *out = if at == 0 { value } else { *out + value };
        }
    }
}

/// Every row of `x` by every weight row.
pub(crate) fn run<F: Kernel>(isa: Isa, weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) {
    let row_bytes = k / F::ELEMS * F::BYTES;
    SCRATCH.with_borrow_mut(|panel| {
        for (p, rows) in weights.chunks(row_bytes * ROWS).enumerate() {
            for at in (0..k).step_by(KC) {
                panel.resize((k - at).min(KC) * ROWS, 0.0);
                (F::FILL)(isa, rows, row_bytes, at, panel);
                multiply(isa, panel, x, k, at, p * ROWS, out);
            }
        }
    });
}
