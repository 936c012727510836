//! 16 weight rows by many 8-bit activation rows: the weights are unpacked once into a panel whose innermost run holds
//! `KG` successive elements of each of the 16 rows, so that one vector of weights meets one broadcast of activations,
//! lanes are weight rows, and nothing is ever summed across lanes.
//!
//! A panel keeps, for each 32 elements: `[32 / KG][16 rows][KG]` bytes, and for each group `[16]` scales and minima.

use std::cell::RefCell;

use super::acts::ActivationsQ8;
use super::format::{Format, Unpacked, half_to_f32};
use super::tile::TileMut;
use crate::Isa;
#[allow(unused_imports, reason = "some targets have one level only")]
use crate::isa::Level;
use crate::prefetch::prefetch;

/// Weight rows of a panel.
pub(crate) const ROWS: usize = 16;
/// Rows that are brought into a panel together.
const HALF: usize = ROWS / 2;

/// 64 bytes on a cache line of their own.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "kernels reach the bytes by address")] [i8; 64]);

#[derive(Default)]
struct Panel {
    q: Vec<Line>,
    scale: Vec<f32>,
    min: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Panel> = RefCell::default();
}

/// An instruction set's multiplication of a panel.
trait Kernel {
    /// Successive elements of a row in the innermost run.
    const KG: usize;
    /// Whether quants must be 0 or more (Q8_0 gets 128 added).
    const UNSIGNED: bool;
    /// Weight rows in `V`.
    const LANES: usize;
    /// `LANES` floats.
    type V: Copy;
    fn zero() -> Self::V;
    /// acc[i] += scale * s[i] * dot, where dot is over `F::GROUP` elements.
    ///
    /// # Safety
    /// The instruction set is there; `q` is a group inside a panel, `LANES` rows of it; `a[i]` has `F::GROUP`
    /// readable bytes and `scale` `LANES` floats.
    unsafe fn group<F: Format, const M: usize>(
        acc: &mut [Self::V; M],
        q: *const i8,
        a: [*const i8; M],
        scale: *const f32,
        s: [f32; M],
    );
    /// acc += min * sum.
    ///
    /// # Safety
    /// The instruction set is there, and `min` has `LANES` readable floats.
    unsafe fn offset(acc: Self::V, min: *const f32, sum: f32) -> Self::V;
    /// # Safety
    /// The instruction set is there, and `to` takes `LANES` floats.
    unsafe fn store(acc: Self::V, to: *mut f32);
    /// f16 to f32. To be called only where the instruction set is there.
    #[inline(always)]
    fn half(bits: u16) -> f32 {
        half_to_f32(bits)
    }
    /// Brings `elems` elements of half a panel's rows, each with its bits in `flip` turned, to their places in lines of which
    /// `to` is the first byte that is this half's.
    ///
    /// # Safety
    /// The instruction set is there; `elems` is a multiple of 32, at most a block's; `to` has room up to the half's last byte.
    #[inline(always)]
    unsafe fn weave(rows: &[Unpacked; HALF], elems: usize, flip: i8, to: *mut i8) {
        for run in 0..elems / Self::KG {
            for (r, row) in rows.iter().enumerate() {
                for (i, q) in row.q[run * Self::KG..][..Self::KG].iter().enumerate() {
                    // SAFETY: the caller's.
                    unsafe { to.add((run * ROWS + r) * Self::KG + i).write(q ^ flip) };
                }
            }
        }
    }
}

/// Plain code; eight lanes, which the compiler turns into vectors.
struct Portable;
impl Kernel for Portable {
    const KG: usize = 2;
    const UNSIGNED: bool = false;
    const LANES: usize = 8;
    type V = [f32; 8];
    #[inline(always)]
    fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn group<F: Format, const M: usize>(
        acc: &mut [[f32; 8]; M],
        q: *const i8,
        a: [*const i8; M],
        scale: *const f32,
        s: [f32; M],
    ) {
        let mut dot = [[0i32; 8]; M];
        for kg in 0..F::GROUP / 2 {
            for i in 0..M {
                // SAFETY: by the caller; the panel's rows are `ROWS * KG` = 32 bytes, of which this half takes 16.
                unsafe {
                    let (a0, a1) = (i32::from(*a[i].add(2 * kg)), i32::from(*a[i].add(2 * kg + 1)));
                    let w = q.add(kg * 2 * ROWS).cast::<[i8; 16]>().read();
                    for r in 0..8 {
                        dot[i][r] += i32::from(w[2 * r]) * a0 + i32::from(w[2 * r + 1]) * a1;
                    }
                }
            }
        }
        for i in 0..M {
            for r in 0..8 {
                // SAFETY: by the caller.
                acc[i][r] += unsafe { *scale.add(r) } * s[i] * dot[i][r] as f32;
            }
        }
    }
    #[inline(always)]
    unsafe fn offset(mut acc: [f32; 8], min: *const f32, sum: f32) -> [f32; 8] {
        for (r, acc) in acc.iter_mut().enumerate() {
            // SAFETY: by the caller.
            *acc += unsafe { *min.add(r) } * sum;
        }
        acc
    }
    #[inline(always)]
    unsafe fn store(acc: [f32; 8], to: *mut f32) {
        // SAFETY: by the caller.
        unsafe { to.cast::<[f32; 8]>().write(acc) }
    }
}

#[cfg(target_arch = "x86_64")]
#[path = "panel_x86.rs"]
mod x86;

#[cfg(target_arch = "aarch64")]
#[path = "panel_neon.rs"]
mod neon;

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
#[path = "panel_wasm.rs"]
mod wasm;

/// Unpacks up to 16 rows; absent ones become zeros.
#[inline(always)]
fn fill<F: Format, K: Kernel>(panel: &mut Panel, weights: &[u8], k: usize) {
    let groups = k / F::GROUP;
    panel.q.resize(k * ROWS / 64, Line([0; 64]));
    panel.scale.clear();
    panel.scale.resize(groups * ROWS, 0.0);
    panel.min.clear();
    panel.min.resize(groups * ROWS, 0.0);
    let biased = K::UNSIGNED && F::MAX.is_none();
    let flip = if biased { 0x80u8 as i8 } else { 0 };
    let mut rows = [const { Unpacked::new() }; HALF];
    let row = k / F::ELEMS * F::BYTES;
    let count = (weights.len() / row).min(ROWS);
    // Block by block, so that a part of the panel stays in cache until all rows have written it.
    for b in 0..k / F::ELEMS {
        let to = &mut panel.q[b * F::ELEMS * ROWS / 64..][..F::ELEMS * ROWS / 64];
        // The next panel's share: between 16 rows that are read in turn, the processor sees no stream to follow.
        prefetch(weights.as_ptr().wrapping_add(ROWS * (row + b * F::BYTES)), ROWS * F::BYTES);
        for half in (0..ROWS).step_by(HALF) {
            for (i, block) in rows.iter_mut().enumerate() {
                let r = half + i;
                if r >= count {
                    *block = Unpacked::new();
                    continue;
                }
                F::unpack(&weights[r * row + b * F::BYTES..][..F::BYTES], K::half, block);
                for g in 0..F::GROUPS {
                    let at = (b * F::GROUPS + g) * ROWS + r;
                    panel.scale[at] = block.scale[g];
                    panel.min[at] = if biased { -128.0 * block.scale[g] } else { block.min[g] };
                }
            }
            // SAFETY: `to` has the lines of a block's elements; `run` picked the kernel by the processor's features.
            unsafe { K::weave(&rows, F::ELEMS, flip, to.as_mut_ptr().cast::<i8>().add(half * K::KG)) };
        }
    }
}

/// `M` activation rows from `first` on, by the panel's 16 weight rows; columns past `out` are dropped.
#[inline(always)]
fn multiply<F: Format, K: Kernel, const M: usize>(
    panel: &Panel,
    acts: &ActivationsQ8,
    first: usize,
    column: usize,
    out: &mut TileMut<'_>,
) {
    let k = acts.k();
    let groups = k / F::GROUP;
    assert!(panel.q.len() * 64 == k * ROWS && panel.scale.len() == groups * ROWS && panel.min.len() == groups * ROWS);
    assert!(first + M <= acts.m() && acts.q.len() >= acts.m() * k);
    let sums: &[f32] = if F::GROUP == 32 { &acts.sum } else { &acts.half_sum };
    assert!(acts.scale.len() == acts.m() * k / 32 && sums.len() == acts.m() * groups);
    let has_min = F::HAS_MIN || (K::UNSIGNED && F::MAX.is_none());
    let mut result = [[0f32; ROWS]; M];
    for lane in (0..ROWS).step_by(K::LANES) {
        let mut acc = [K::zero(); M];
        for g in 0..groups {
            // SAFETY: by the assertions, group g of the panel and of each row lies inside its slice; `run` picked
            // the kernel by the processor's features.
            unsafe {
                let q = panel.q.as_ptr().cast::<i8>().add(g * F::GROUP * ROWS + lane * K::KG);
                let at = |i: usize| (first + i) * groups + g;
                let (mut a, mut s) = ([acts.q.as_ptr(); M], [0f32; M]);
                for i in 0..M {
                    a[i] = a[i].add((first + i) * k + g * F::GROUP);
                    s[i] = *acts.scale.get_unchecked(at(i) / (32 / F::GROUP));
                }
                K::group::<F, M>(&mut acc, q, a, panel.scale.as_ptr().add(g * ROWS + lane), s);
                if has_min {
                    for i in 0..M {
                        let min = panel.min.as_ptr().add(g * ROWS + lane);
                        acc[i] = K::offset(acc[i], min, *sums.get_unchecked(at(i)));
                    }
                }
            }
        }
        for i in 0..M {
            // SAFETY: `lane + LANES` is at most `ROWS`.
            unsafe { K::store(acc[i], result[i].as_mut_ptr().add(lane)) };
        }
    }
    for (i, result) in result.iter().enumerate() {
        let row = &mut out.row(first + i)[column..];
        let count = row.len().min(ROWS);
        row[..count].copy_from_slice(&result[..count]);
    }
}

/// `M` is the number of activation rows that the registers hold at once; the rest goes by smaller ones.
///
/// No closure of a library function here: it would be compiled on its own, without the instruction set.
#[inline(always)]
fn tile<F: Format, K: Kernel, const M: usize>(
    panel: &mut Panel,
    weights: &[u8],
    acts: &ActivationsQ8,
    out: &mut TileMut<'_>,
) {
    let k = acts.k();
    for (p, weights) in weights.chunks(k / F::ELEMS * F::BYTES * ROWS).enumerate() {
        fill::<F, K>(panel, weights, k);
        let (column, m) = (p * ROWS, acts.m());
        let mut i = 0;
        while m - i >= M {
            multiply::<F, K, M>(panel, acts, i, column, out);
            i += M;
        }
        while m - i >= 4 {
            multiply::<F, K, 4>(panel, acts, i, column, out);
            i += 4;
        }
        match m - i {
            0 => {}
            1 => multiply::<F, K, 1>(panel, acts, i, column, out),
            2 => multiply::<F, K, 2>(panel, acts, i, column, out),
            _ => multiply::<F, K, 3>(panel, acts, i, column, out),
        }
    }
}

/// Every activation row by every weight row.
pub(crate) fn run<F: Format>(isa: Isa, weights: &[u8], acts: &ActivationsQ8, out: &mut TileMut<'_>) {
    SCRATCH.with_borrow_mut(|panel| match isa.level() {
        // SAFETY: an `Isa` of this level exists only where the processor has its features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vnni => unsafe { x86::tile_vnni::<F>(panel, weights, acts, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { x86::tile_avx2::<F>(panel, weights, acts, out) },
        #[cfg(target_arch = "aarch64")]
        Level::NeonDot => tile::<F, neon::NeonDot, 4>(panel, weights, acts, out),
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        Level::Simd128 => tile::<F, wasm::Simd128, 4>(panel, weights, acts, out),
        _ => tile::<F, Portable, 4>(panel, weights, acts, out),
    });
}
