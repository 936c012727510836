//! How a product of many rows is cut among workgroups: tiles of 64 x 64 or 128 x 64 results, and, where there are too few
//! of them to keep a GPU busy, split-K: each tile's k among several workgroups, whose sums a second launch adds up.

use super::{Target, contract::Words};
use tallow_graph::kernel::{ContractKernel, RowClass};

/// Tiles that keep a large GPU busy: some 100 cores with two workgroups each. More splits cost traffic and no speed.
const BUSY: u64 = 192;
/// The least k that a workgroup should walk: the partial sums must be small change beside the operands.
const LEAST_K: u64 = 256;
const MOST_SPLITS: u64 = 16;

/// The shape of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Rows of an invocation, 16 of which share a column.
    pub each: u32,
    /// The k that passes through workgroup memory at once, for operands in f32.
    pub k: u32,
    /// Blocks of 32 at once, for operands in 8 bits.
    pub blocks: u32,
}

impl Tile {
    /// 64 x 64.
    pub const SQUARE: Tile = Tile { each: 4, k: 32, blocks: 2 };
    /// 128 x 64: a third more arithmetic for each byte of workgroup memory.
    pub const TALL: Tile = Tile { each: 8, k: 16, blocks: 1 };

    /// Rows of the tile.
    pub const fn rows(self) -> u32 {
        16 * self.each
    }

    /// Bits of a row's number that its units are not swapped by, and the mask of those that they are: see matmul.wgsl.
    pub const fn swizzle(self) -> (u32, u32) {
        // A row takes 128 bytes, all banks, or 64.
        if self.k == 32 { (0, 7) } else { (1, 3) }
    }
}

fn size(words: &[i64], i: usize) -> u64 {
    words.get(i).map_or(1, |&w| w.max(0) as u64)
}

/// Batches of a product; saturating, since a product of that many results is refused.
fn batches(kernel: &ContractKernel, words: &[i64]) -> u64 {
    (0..usize::from(kernel.batch)).fold(1, |n, i| n.saturating_mul(size(words, i)))
}

/// Tiles of all parts, of so many rows.
pub fn count(kernel: &ContractKernel, words: &[i64], rows: u64) -> u64 {
    let at = Words::of(kernel);
    let columns = |p: usize| if kernel.parts[p].paired { 32 } else { 64 };
    let tiles = (0..kernel.parts.len()).map(|p| size(words, at.parts[p].0).div_ceil(columns(p)));
    let row = batches(kernel, words).saturating_mul(size(words, at.m).div_ceil(rows));
    tiles.fold(0u64, u64::saturating_add).saturating_mul(row)
}

/// Workgroups that share a tile's k; a function of the sizes alone, so that any run of a plan finds it.
pub fn splits(kernel: &ContractKernel, words: &[i64]) -> u64 {
    if kernel.rows != RowClass::Many {
        return 1;
    }
    let tiles = count(kernel, words, 64).max(1);
    (BUSY / tiles).min(size(words, Words::of(kernel).k) / LEAST_K).clamp(1, MOST_SPLITS)
}

/// Whether there are tiles enough to keep the vendor's usual GPU busy, so that none needs splitting.
pub fn fill(kernel: &ContractKernel, words: &[i64], target: &Target, tile: Tile) -> bool {
    target.software || count(kernel, words, u64::from(tile.rows())) as f32 >= 2.0 * target.vendor.resident()
}

/// Where each part's partial sums begin in scratch memory, in words, and the words of all.
pub fn scratch(kernel: &ContractKernel, words: &[i64]) -> (Vec<u64>, u64) {
    let at = Words::of(kernel);
    let splits = splits(kernel, words);
    let rows = batches(kernel, words).saturating_mul(size(words, at.m));
    let mut total = 0u64;
    let offsets = kernel
        .parts
        .iter()
        .zip(&at.parts)
        .map(|(part, (n, ..))| {
            let begin = total;
            if splits > 1 {
                let sums = splits * if part.paired { 2 } else { 1 };
                total = total.saturating_add(rows.saturating_mul(size(words, *n)).saturating_mul(sums));
            }
            begin
        })
        .collect();
    (offsets, total)
}

/// Microseconds of a product on an imagined GPU: workgroups run in waves, as many at once as the vendor's usual GPU holds.
pub fn cost(kernel: &ContractKernel, words: &[i64], target: &Target, tile: Tile, split: bool) -> f32 {
    let k = size(words, Words::of(kernel).k) as f32;
    let splits = if split { splits(kernel, words) } else { 1 };
    let tiles = count(kernel, words, u64::from(tile.rows())) * splits;
    // Fewer reads of workgroup memory a result, and fewer workgroups that wait for each other's turn.
    let rate = if tile.each == 4 { 1.0 } else { 0.8 };
    // A workgroup does its share of 10 TFLOP/s on 100 cores.
    let each = k / splits as f32 * (tile.rows() * 64) as f32 * 2e-5 * rate;
    let waves = (tiles as f32 / target.vendor.resident()).ceil().max(1.0);
    let combine = if splits > 1 { 3.0 + scratch(kernel, words).1 as f32 * 8e-6 } else { 0.0 };
    1.0 + waves * each + combine
}
