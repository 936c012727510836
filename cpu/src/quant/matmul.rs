//! The products over a pool: weight rows are cut into tiles, and every tile takes all activation rows.

use tallow_graph::{DType, Error, Result};

use super::acts::ActivationsQ8;
use super::format::row_bytes;
use super::tile::{TileMut, tile_f32, tile_q8};
use crate::{Isa, Pool};

/// Weight rows of a tile: a multiple of the panels' 16, few enough to balance the threads.
const GRAIN: usize = 16;

/// A pointer that threads may share, because each writes its own columns.
struct Shared(*mut f32);
// SAFETY: tiles made from it are disjoint.
unsafe impl Sync for Shared {}

/// Cuts `n` columns of an `m x n` output into tiles and runs `tile(first column, tile)` on the pool.
fn for_tiles(
    pool: &Pool,
    m: usize,
    n: usize,
    out: &mut [f32],
    tile: &(dyn Fn(usize, &mut TileMut<'_>) -> Result<()> + Sync),
) -> Result<()> {
    if m.checked_mul(n) != Some(out.len()) {
        return Err(Error::op("matmul", format!("an output of {} floats is not {m} x {n}", out.len())));
    }
    // About eight tiles a thread, so that one slow thread does not hold up the rest.
    let size = n.div_ceil(pool.threads() * 8).next_multiple_of(GRAIN).max(GRAIN);
    let start = Shared(out.as_mut_ptr());
    let error = std::sync::Mutex::new(None);
    pool.run(n.div_ceil(size), &|chunk| {
        let start = &start;
        let (first, cols) = (chunk * size, size.min(n - chunk * size));
        // SAFETY: columns `first..first + cols` of every row lie inside `out`, and no other chunk has them.
        let mut part = unsafe { TileMut::from_raw(start.0.wrapping_add(first), m, cols, n) };
        if let Err(e) = tile(first, &mut part)
            && let Ok(mut slot) = error.lock()
        {
            slot.get_or_insert(e);
        }
    });
    match error.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

fn rows_of(weights: &[u8], row: usize, n: usize) -> Result<()> {
    if row.checked_mul(n) != Some(weights.len()) {
        let message = format!("{} bytes of weights are not {n} rows of {row} bytes", weights.len());
        return Err(Error::op("matmul", message));
    }
    Ok(())
}

/// `out` (`m x n`) = activations (`m x k`) by the transpose of `weights` (`n` rows of `k`).
///
/// # Errors
/// As [`tile_q8`].
pub fn matmul_q8(
    pool: &Pool,
    isa: Isa,
    dtype: DType,
    weights: &[u8],
    n: usize,
    acts: &ActivationsQ8,
    out: &mut [f32],
) -> Result<()> {
    let row = row_bytes("matmul_q8", dtype, acts.k())?;
    rows_of(weights, row, n)?;
    for_tiles(pool, acts.m(), n, out, &|first, part| {
        tile_q8(isa, dtype, &weights[first * row..(first + part.cols()) * row], acts, part)
    })
}

/// The same with f32 activations `x`, `m x k`.
///
/// # Errors
/// As [`tile_f32`].
#[allow(clippy::too_many_arguments, reason = "a product's operands")]
pub fn matmul_f32(
    pool: &Pool,
    isa: Isa,
    dtype: DType,
    weights: &[u8],
    n: usize,
    k: usize,
    x: &[f32],
    out: &mut [f32],
) -> Result<()> {
    let row = row_bytes("matmul_f32", dtype, k)?;
    rows_of(weights, row, n)?;
    for_tiles(pool, x.len().checked_div(k).unwrap_or(0), n, out, &|first, part| {
        tile_f32(isa, dtype, &weights[first * row..(first + part.cols()) * row], k, x, part)
    })
}
