//! One weight row by a few f32 activation rows: each block is dequantized into lanes and multiplied. On x86, `dot_f32_x86`
//! has copies that keep the blocks in registers.

use super::dot::X86;
use super::format::{Format, Q4_0, Q4_1, Q4K, Q6K, Q8_0, Unpacked, half_to_f32};
use super::panel_f32;
use super::tile::TileMut;
use crate::Isa;
use crate::multiversion::fma;

/// Up to how many activation rows this is quicker than a panel.
pub(crate) fn max_m(isa: Isa) -> usize {
    if cfg!(target_arch = "x86_64") && isa != Isa::SCALAR { 12 } else { 3 }
}

multiversion! {
    fn rows_q4_0(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) = rows_q4_0_body;
    fn rows_q4_1(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) = rows_q4_1_body;
    fn rows_q8_0(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) = rows_q8_0_body;
    fn rows_q4k(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) = rows_q4k_body;
    fn rows_q6k(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) = rows_q6k_body;
}
macro_rules! bodies {
    ($($name:ident = $format:ty;)*) => {$(
        #[inline(always)]
        fn $name<const FMA: bool>(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) {
            match out.rows() {
                0 => {}
                1 => rows::<$format, FMA, 1>(weights, k, x, out),
                2 => rows::<$format, FMA, 2>(weights, k, x, out),
                _ => rows::<$format, FMA, 3>(weights, k, x, out),
            }
        }
    )*};
}
bodies! {
    rows_q4_0_body = Q4_0;
    rows_q4_1_body = Q4_1;
    rows_q8_0_body = Q8_0;
    rows_q4k_body = Q4K;
    rows_q6k_body = Q6K;
}

type Rows = fn(Isa, &[u8], usize, &[f32], &mut TileMut<'_>);
type Fill = fn(Isa, &[u8], usize, usize, &mut [f32]);

/// A format with its compiled copies of the f32 kernels.
pub(crate) trait Kernel: Format {
    const ROWS: Rows;
    const FILL: Fill;
}
impl Kernel for Q4_0 {
    const ROWS: Rows = rows_q4_0;
    const FILL: Fill = panel_f32::fill_q4_0;
}
impl Kernel for Q4_1 {
    const ROWS: Rows = rows_q4_1;
    const FILL: Fill = panel_f32::fill_q4_1;
}
impl Kernel for Q8_0 {
    const ROWS: Rows = rows_q8_0;
    const FILL: Fill = panel_f32::fill_q8_0;
}
impl Kernel for Q4K {
    const ROWS: Rows = rows_q4k;
    const FILL: Fill = panel_f32::fill_q4k;
}
impl Kernel for Q6K {
    const ROWS: Rows = rows_q6k;
    const FILL: Fill = panel_f32::fill_q6k;
}

/// Every weight row by the `out.rows()` (at most [`max_m`]) rows of `x`.
pub(crate) fn run<F: Kernel + X86>(isa: Isa, weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) {
    #[cfg(target_arch = "x86_64")]
    if super::dot_f32_x86::run_f32::<F>(isa, weights, k, x, out) {
        return;
    }
    (F::ROWS)(isa, weights, k, x, out);
}

#[inline(always)]
fn rows<F: Format, const FMA: bool, const M: usize>(weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) {
    let mut block = Unpacked::new();
    for (j, row) in weights.chunks_exact(k / F::ELEMS * F::BYTES).enumerate() {
        let mut acc = [[0f32; 32]; M];
        for (b, bytes) in row.chunks_exact(F::BYTES).enumerate() {
            F::unpack(bytes, half_to_f32, &mut block);
            for g in 0..F::ELEMS / 32 {
                let mut w = [0f32; 32];
                let q = &block.q[g * 32..g * 32 + 32];
                for half in 0..2 {
                    let at = if F::GROUP == 32 { g } else { 2 * g + half };
                    let (scale, min) = (block.scale[at], block.min[at]);
                    for i in half * 16..half * 16 + 16 {
                        w[i] = fma::<FMA>(scale, f32::from(q[i]), min);
                    }
                }
                for (m, acc) in acc.iter_mut().enumerate() {
                    let x = &x[m * k + b * F::ELEMS + g * 32..][..32];
                    for i in 0..32 {
                        acc[i] = fma::<FMA>(w[i], x[i], acc[i]);
                    }
                }
            }
        }
        for (m, acc) in acc.iter().enumerate() {
            out.set(m, j, crate::rows::reduce::sum_lanes(acc));
        }
    }
}
