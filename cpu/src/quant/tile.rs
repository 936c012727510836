//! The tile products: some weight rows by all activation rows, on the calling thread.

use std::marker::PhantomData;

use tallow_graph::{DType, Error, Result};

use super::acts::ActivationsQ8;
use super::format::{row_bytes, with_format};
use super::{dot, dot_f32, panel, panel_f32};
use crate::Isa;

/// Where a tile's results go: `rows x cols` floats, rows `stride` apart. Row i belongs to activation row i, column j to
/// weight row j. Several threads may hold disjoint tiles of one output.
#[derive(Debug)]
pub struct TileMut<'a> {
    start: *mut f32,
    rows: usize,
    cols: usize,
    stride: usize,
    life: PhantomData<&'a mut [f32]>,
}

// SAFETY: a tile is the only way to its floats, like the `&mut [f32]` that it stands for.
unsafe impl Send for TileMut<'_> {}

impl<'a> TileMut<'a> {
    /// A tile over `out`; its rows start at 0, `stride`, `2 * stride`, ...
    ///
    /// # Errors
    /// `out` is too short, or rows overlap.
    pub fn new(out: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Result<Self> {
        let end = match rows {
            0 => Some(0),
            _ => (rows - 1).checked_mul(stride).and_then(|last| last.checked_add(cols)),
        };
        if (rows > 1 && stride < cols) || end.is_none_or(|end| end > out.len()) {
            let message = format!("a tile of {rows} x {cols} with stride {stride} does not fit {} floats", out.len());
            return Err(Error::op("tile", message));
        }
        Ok(Self { start: out.as_mut_ptr(), rows, cols, stride, life: PhantomData })
    }

    /// A tile from a pointer, for threads that share one output.
    ///
    /// # Safety
    /// For `'a`, the `cols` floats from `start + i * stride` for each row i are valid for writes and reads, and
    /// reached through this tile only.
    pub unsafe fn from_raw(start: *mut f32, rows: usize, cols: usize, stride: usize) -> Self {
        Self { start, rows, cols, stride, life: PhantomData }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `i`. Panics when there is none.
    #[inline(always)]
    pub fn row(&mut self, i: usize) -> &mut [f32] {
        assert!(i < self.rows, "a tile's row is out of range");
        // SAFETY: by the constructors, `cols` floats from there are this tile's own.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.stride), self.cols) }
    }

    /// Writes one element. Panics when it is outside.
    #[inline(always)]
    pub(crate) fn set(&mut self, i: usize, j: usize, value: f32) {
        assert!(i < self.rows && j < self.cols, "a tile's element is out of range");
        // SAFETY: just checked.
        unsafe { *self.start.add(i * self.stride + j) = value }
    }
}

/// Checks that `weights` holds `out.cols()` rows of `k` elements.
fn check(op: &'static str, dtype: DType, weights: &[u8], k: usize, m: usize, out: &TileMut<'_>) -> Result<()> {
    let row = row_bytes(op, dtype, k)?;
    if k == 0 || row.checked_mul(out.cols) != Some(weights.len()) || out.rows != m {
        return Err(Error::op(
            op,
            format!(
                "{} bytes of {dtype} rows of {k} and {m} activation rows do not fit an output of {} x {}",
                weights.len(),
                out.rows,
                out.cols
            ),
        ));
    }
    Ok(())
}

/// `out[i][j]` = activation row i by weight row j, where `weights` are `out.cols()` rows of `acts.k()` elements.
///
/// # Errors
/// `dtype` is not quantized, `k` is not whole blocks, or sizes do not fit each other.
pub fn tile_q8(isa: Isa, dtype: DType, weights: &[u8], acts: &ActivationsQ8, out: &mut TileMut<'_>) -> Result<()> {
    check("tile_q8", dtype, weights, acts.k(), acts.m(), out)?;
    with_format!("tile_q8", dtype, F => {
        if acts.m() <= dot::max_m::<F>(isa) {
            dot::run::<F>(isa, weights, acts, out);
        } else {
            panel::run::<F>(isa, weights, acts, out);
        }
    });
    Ok(())
}

/// The same with f32 activations `x`, `m x k` row-major: weights are dequantized and multiplied in f32.
///
/// # Errors
/// As [`tile_q8`].
pub fn tile_f32(isa: Isa, dtype: DType, weights: &[u8], k: usize, x: &[f32], out: &mut TileMut<'_>) -> Result<()> {
    let m = x.len().checked_div(k).unwrap_or(0);
    check("tile_f32", dtype, weights, k, m, out)?;
    if m * k != x.len() {
        return Err(Error::op("tile_f32", format!("{} activations are not whole rows of {k}", x.len())));
    }
    with_format!("tile_f32", dtype, F => {
        if m <= dot_f32::max_m(isa) {
            dot_f32::run::<F>(isa, weights, k, x, out);
        } else {
            panel_f32::run::<F>(isa, weights, k, x, out);
        }
    });
    Ok(())
}
