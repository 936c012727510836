//! A matrix product cut into tiles, whose operands are packed once and shared by the threads.
//!
//! The depth is cut into equal blocks (by its length alone, so that sums do not depend on threads or tiles), rows and
//! columns into strips of a panel, and groups of strips make a tile. A tile goes through the depth block by block: it
//! makes sure that its rows and columns of the block are packed, then multiplies panel by panel. Each group of strips is
//! packed when the first tile asks for it, by all threads that wait for it: there is no barrier, and a thread that is
//! slower than the others takes fewer tiles.
//!
//! (Blocking as in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008, and BLIS.)

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use tallow_graph::{Error, Result};

use super::kernel::Kernel;
use crate::backend::scratch;

/// Longest block of the depth: panels over it stream from the second cache, and the output is read and written seldom.
const DEPTH: usize = 512;
/// Rows and columns of a tile: its packed rows over a block stay in the second cache, while its columns pass through it
/// strip by strip.
const TILE: (usize, usize) = (112, 512);
/// Rows and columns of a tile that packs its right operand for itself.
const RIGHT_TILE: (usize, usize) = (512, 256);
/// Rows and columns of a tile that packs for itself.
const OWN_TILE: (usize, usize) = (256, 512);
/// Multiplications below which a tile is not cut further.
const LEAST: usize = 256 << 10;
/// Bytes of packed operands that are shared.
const SHARED: usize = 48 << 20;

/// Rows or columns in strips of at most a panel's.
#[derive(Debug, Clone, Copy)]
struct Strips {
    len: usize,
    panel: usize,
    count: usize,
    /// Strips of equal size, give or take one; else whole panels and a rest.
    even: bool,
    /// Strips of a tile.
    group: usize,
}

impl Strips {
    fn new(len: usize, panel: usize, even: bool, tile: usize) -> Self {
        let count = len.div_ceil(panel);
        let mut strips = Strips { len, panel, count, even, group: 1 };
        strips.regroup((tile / panel).max(1));
        strips
    }

    /// Equal groups of at most `group` strips.
    fn regroup(&mut self, group: usize) {
        let groups = self.count.div_ceil(group.max(1)).max(1);
        self.group = self.count.div_ceil(groups).max(1);
    }

    fn groups(&self) -> usize {
        self.count.div_ceil(self.group)
    }

    fn of_group(&self, group: usize) -> Range<usize> {
        group * self.group..((group + 1) * self.group).min(self.count)
    }

    fn start(&self, strip: usize) -> usize {
        if self.even {
            strip * (self.len / self.count) + strip.min(self.len % self.count)
        } else {
            (strip * self.panel).min(self.len)
        }
    }

    fn width(&self, strip: usize) -> usize {
        self.start(strip + 1) - self.start(strip)
    }
}

/// A tile of the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    rows: usize,
    cols: usize,
    /// First row and column.
    pub i: usize,
    pub j: usize,
    /// Rows and columns.
    pub tall: usize,
    pub wide: usize,
}

/// A strip of an operand over a block of the depth, to be packed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strip {
    /// First row or column; of the second half of a pair, counted on from the first half.
    pub at: usize,
    pub width: usize,
    /// First of the depth, and how much of it.
    pub from: usize,
    pub depth: usize,
    /// Places between the steps of the packed panel.
    pub step: usize,
}

/// How a product is cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    rows: Strips,
    cols: Strips,
    k: usize,
    /// Of a block, but for the last.
    depth: usize,
    /// Column ranges of the right operand, one after the other: 2 for a pair.
    halves: usize,
}

impl Cut {
    /// `m x k` by `k x n` (`k x 2n` for a pair: `halves` is 2) for `kernel`. Fine enough for `threads` threads, or as one
    /// of many products, each of which a thread computes alone (`alone`).
    pub fn new<T>(
        kernel: &Kernel<T>,
        (m, n, k): (usize, usize, usize),
        halves: usize,
        threads: usize,
        alone: bool,
    ) -> Self {
        let tile = if alone { OWN_TILE } else { TILE };
        let mut rows = Strips::new(m, kernel.rows, true, tile.0);
        let mut cols = Strips::new(n, kernel.cols, false, tile.1);
        if !alone && threads > 1 {
            loop {
                let (tall, wide) = (rows.group * kernel.rows, cols.group * kernel.cols);
                if rows.groups() * cols.groups() >= 8 * threads || tall * wide * k * halves <= 2 * LEAST {
                    break;
                }
                if rows.group > 1 && (tall * 2 > wide || cols.group == 1) {
                    rows.regroup(rows.group.div_ceil(2));
                } else if cols.group > 1 {
                    cols.regroup(cols.group.div_ceil(2));
                } else {
                    break;
                }
            }
        }
        Cut { rows, cols, k, depth: Self::depth(k), halves }
    }

    /// For tiles that each pack the right operand for themselves, on several threads: as many rows as go, so that few tiles
    /// pack the same columns, and as many columns as leave each thread some tiles.
    pub fn tall<T>(kernel: &Kernel<T>, (m, n, k): (usize, usize, usize), threads: usize) -> Self {
        let mut rows = Strips::new(m, kernel.rows, true, RIGHT_TILE.0);
        let mut cols = Strips::new(n, kernel.cols, false, RIGHT_TILE.1);
        while threads > 1 && rows.groups() * cols.groups() < 6 * threads {
            let (tall, wide) = (rows.group * kernel.rows, cols.group * kernel.cols);
            if tall * wide * k <= 2 * LEAST {
                break;
            } else if cols.group > 1 {
                cols.regroup(cols.group.div_ceil(2));
            } else if rows.group > 1 {
                rows.regroup(rows.group.div_ceil(2));
            } else {
                break;
            }
        }
        Cut { rows, cols, k, depth: Self::depth(k), halves: 1 }
    }

    /// Of a block of the depth: by its length alone, so that sums do not depend on how a product is cut.
    pub fn depth(k: usize) -> usize {
        let blocks = k.div_ceil(DEPTH).max(1);
        k.div_ceil(blocks).next_multiple_of(4).max(4)
    }

    /// Tiles.
    pub fn tiles(&self) -> usize {
        self.rows.groups() * self.cols.groups()
    }

    /// Tile `number`: down the columns first, so that neighbours in time share the right operand.
    pub fn tile(&self, number: usize) -> Tile {
        let tall = self.rows.groups().max(1);
        let (row, col) = (number % tall, number / tall);
        let (rows, cols) = (self.rows.of_group(row), self.cols.of_group(col));
        let (i, j) = (self.rows.start(rows.start), self.cols.start(cols.start));
        let (tall, wide) = (self.rows.start(rows.end) - i, self.cols.start(cols.end) - j);
        Tile { rows: row, cols: col, i, j, tall, wide }
    }

    /// Elements of the packed left operand.
    pub fn left_len<T>(&self, kernel: &Kernel<T>) -> Option<usize> {
        self.rows.count.checked_mul(kernel.left_step)?.checked_mul(self.k)
    }

    /// Strips of the packed left operand.
    pub fn left_strips(&self) -> usize {
        self.blocks() * self.rows.count
    }

    /// Strip `number` of the packed left operand, and its place.
    pub fn left_strip<T>(&self, kernel: &Kernel<T>, number: usize) -> (Strip, usize) {
        let (block, strip) = (number / self.rows.count, number % self.rows.count);
        let from = block * self.depth;
        let depth = self.depth.min(self.k - from);
        let (at, width) = (self.rows.start(strip), self.rows.width(strip));
        let place = (from * self.rows.count + strip * depth) * kernel.left_step;
        (Strip { at, width, from, depth, step: kernel.left_step }, place)
    }

    fn blocks(&self) -> usize {
        self.k.div_ceil(self.depth)
    }

    /// Elements of the packed operands, and flags, where they are shared.
    fn shared(&self, left_step: usize) -> Option<(usize, usize, usize)> {
        let left = self.rows.count.checked_mul(left_step)?.checked_mul(self.k)?;
        let right = self.cols.count.checked_mul(self.cols.panel * self.halves)?.checked_mul(self.k)?;
        Some((left, right, self.blocks() * (self.rows.groups() + self.halves * self.cols.groups())))
    }
}

/// Tells how far the packing of a group of strips is. A line of memory each, because threads write them.
#[repr(C, align(64))]
struct Flag {
    next: AtomicU32,
    done: AtomicU32,
}

/// Packs a strip to an address.
pub(crate) type PackStrip<'a, T> = &'a (dyn Fn(Strip, *mut T) -> Result<()> + Sync);

/// A product that is being computed.
pub(crate) struct Product<'a, T: 'static> {
    kernel: &'static Kernel<T>,
    cut: Cut,
    left: PackStrip<'a, T>,
    right: PackStrip<'a, T>,
    shared: Option<Shared<T>>,
    /// The left operand, where it was packed before.
    packed: Option<Packed<T>>,
}

#[derive(Clone, Copy)]
struct Packed<T>(*const T);

// SAFETY: memory that is only read while there are products of it.
unsafe impl<T> Sync for Packed<T> {}

struct Shared<T> {
    left: *mut T,
    right: *mut T,
    flags: *const Flag,
}

// SAFETY: the packed operands are written strip by strip, each by the thread that claimed it, and read after all are done.
unsafe impl<T> Sync for Shared<T> {}

impl<'a, T: Copy + Send + Sync + 'static> Product<'a, T> {
    /// Calls `f` with a product whose packed operands are shared by all threads that then ask for its tiles; or, where
    /// they would take too much memory, with one whose tiles each pack for themselves.
    pub fn shared<R>(
        kernel: &'static Kernel<T>,
        cut: Cut,
        left: PackStrip<'a, T>,
        right: PackStrip<'a, T>,
        f: impl FnOnce(&Self) -> Result<R>,
    ) -> Result<R> {
        let align = |elements: usize| (elements * size_of::<T>()).next_multiple_of(64);
        let sizes = cut.shared(kernel.left_step).filter(|&(a, b, _)| a.saturating_add(b) <= SHARED / size_of::<T>());
        let Some((a, b, flags)) = sizes else { return f(&Self::alone(kernel, cut, left, right)) };
        scratch::with(scratch::PACKED, align(a) + align(b) + flags * size_of::<Flag>(), |memory| {
            let (right_at, flags_at) = (memory.wrapping_add(align(a)), memory.wrapping_add(align(a) + align(b)));
            let flags_at = flags_at.cast::<Flag>();
            for i in 0..flags {
                // SAFETY: inside this call's scratch memory, which is aligned to 64.
                unsafe { flags_at.add(i).write(Flag { next: AtomicU32::new(0), done: AtomicU32::new(0) }) };
            }
            let shared = Shared { left: memory.cast(), right: right_at.cast(), flags: flags_at.cast_const() };
            f(&Self { kernel, cut, left, right, shared: Some(shared), packed: None })
        })
    }

    /// A product whose tiles each pack for themselves.
    pub fn alone(kernel: &'static Kernel<T>, cut: Cut, left: PackStrip<'a, T>, right: PackStrip<'a, T>) -> Self {
        Self { kernel, cut, left, right, shared: None, packed: None }
    }

    /// A product whose left operand was packed: each strip of [`Cut::left_strip`] lies at its place from `packed` on. Tiles
    /// pack the right operand for themselves.
    ///
    /// # Safety
    /// That is so, while the product is used.
    pub unsafe fn of_packed(kernel: &'static Kernel<T>, cut: Cut, packed: *const T, right: PackStrip<'a, T>) -> Self {
        Self { kernel, cut, left: &|_, _| Ok(()), right, shared: None, packed: Some(Packed(packed)) }
    }

    /// The products of a tile (and of half 1 of a pair: those of the columns after the first half's), to `out`, whose rows
    /// are `stride` elements apart.
    ///
    /// # Safety
    /// `out` has room for the tile, which nobody else uses.
    pub unsafe fn products(&self, tile: &Tile, half: usize, out: *mut T, stride: usize) -> Result<()> {
        let Cut { rows, cols, .. } = self.cut;
        let (row_strips, col_strips) = (rows.of_group(tile.rows), cols.of_group(tile.cols));
        let kernel = self.kernel;
        if let Some(shared) = &self.shared {
            for block in 0..self.cut.blocks() {
                let (from, depth) = self.block(block);
                let left = shared.left.wrapping_add(from * rows.count * kernel.left_step);
                let left = left.wrapping_add(row_strips.start * depth * kernel.left_step);
                let right =
                    shared.right.wrapping_add((from * self.cut.halves + half * depth) * cols.count * kernel.cols);
                let right = right.wrapping_add(col_strips.start * depth * kernel.cols);
                let groups = (rows.groups(), self.cut.halves * cols.groups());
                let flags = shared.flags.wrapping_add(block * (groups.0 + groups.1));
                let flag = |at: usize| {
                    // SAFETY: one of the flags that `shared` wrote.
                    unsafe { &*flags.wrapping_add(at) }
                };
                ready(flag(tile.rows), row_strips.len(), |strip| {
                    let to = left.wrapping_add(strip * depth * kernel.left_step);
                    (self.left)(self.row_strip(row_strips.start + strip, from, depth), to)
                })?;
                ready(flag(groups.0 + half * cols.groups() + tile.cols), col_strips.len(), |strip| {
                    let to = right.wrapping_add(strip * depth * kernel.cols);
                    (self.right)(self.col_strip(col_strips.start + strip, half, from, depth), to)
                })?;
                // SAFETY: both are packed; the tile is the caller's.
                unsafe { self.multiply(tile, depth, left, right, out, stride, block > 0) };
            }
            return Ok(());
        }
        let a = if self.packed.is_some() { 0 } else { row_strips.len() * kernel.left_step };
        let b = col_strips.len() * kernel.cols;
        let bytes = (a + b).checked_mul(self.cut.depth * size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::msg("a product's tile is too large"))?;
        scratch::with(scratch::PACKED, bytes, |memory| {
            let own = memory.cast::<T>();
            let right = own.wrapping_add(a * self.cut.depth);
            for block in 0..self.cut.blocks() {
                let (from, depth) = self.block(block);
                let left = match self.packed {
                    Some(Packed(at)) => {
                        at.wrapping_add((from * rows.count + row_strips.start * depth) * kernel.left_step)
                    }
                    None => {
                        for strip in 0..row_strips.len() {
                            let to = own.wrapping_add(strip * depth * kernel.left_step);
                            (self.left)(self.row_strip(row_strips.start + strip, from, depth), to)?;
                        }
                        own.cast_const()
                    }
                };
                for strip in 0..col_strips.len() {
                    let to = right.wrapping_add(strip * depth * kernel.cols);
                    (self.right)(self.col_strip(col_strips.start + strip, half, from, depth), to)?;
                }
                // SAFETY: both are packed; the tile is the caller's.
                unsafe { self.multiply(tile, depth, left, right, out, stride, block > 0) };
            }
            Ok(())
        })
    }

    /// First and length of a block of the depth.
    fn block(&self, block: usize) -> (usize, usize) {
        let from = block * self.cut.depth;
        (from, self.cut.depth.min(self.cut.k - from))
    }

    fn row_strip(&self, strip: usize, from: usize, depth: usize) -> Strip {
        let rows = &self.cut.rows;
        Strip { at: rows.start(strip), width: rows.width(strip), from, depth, step: self.kernel.left_step }
    }

    fn col_strip(&self, strip: usize, half: usize, from: usize, depth: usize) -> Strip {
        let cols = &self.cut.cols;
        let at = half * cols.len + cols.start(strip);
        Strip { at, width: cols.width(strip), from, depth, step: self.kernel.cols }
    }

    /// Adds (or, the first time, stores) the products of the tile's panels over a block.
    ///
    /// # Safety
    /// The panels are packed; `out` has room for the tile, which nobody else uses.
    #[allow(clippy::too_many_arguments, reason = "a product's operands")]
    unsafe fn multiply(
        &self,
        tile: &Tile,
        depth: usize,
        left: *const T,
        right: *const T,
        out: *mut T,
        stride: usize,
        add: bool,
    ) {
        let (kernel, Cut { rows, cols, .. }) = (self.kernel, self.cut);
        let mut b = right;
        for col in cols.of_group(tile.cols) {
            let mut a = left;
            let out = out.wrapping_add(cols.start(col) - tile.j);
            for row in rows.of_group(tile.rows) {
                let at = out.wrapping_add((rows.start(row) - tile.i) * stride);
                // SAFETY: the caller's.
                unsafe { kernel.run(depth, (a, rows.width(row)), (b, cols.width(col)), at, stride, add) };
                a = a.wrapping_add(depth * kernel.left_step);
            }
            b = b.wrapping_add(depth * kernel.cols);
        }
    }
}

/// Returns when all `count` strips of a group are packed: claims those that nobody packs, and waits for the others.
fn ready(flag: &Flag, count: usize, mut pack: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let count = count as u32;
    if flag.done.load(Ordering::Acquire) == count {
        return Ok(());
    }
    let mut result = Ok(());
    loop {
        let strip = flag.next.fetch_add(1, Ordering::Relaxed);
        if strip >= count {
            break;
        }
        let _done = Done(flag);
        result = result.and(pack(strip as usize));
    }
    while flag.done.load(Ordering::Acquire) != count {
        std::hint::spin_loop();
    }
    result
}

/// Counts a strip as done when it goes, even if its packing failed or panicked: others wait for it, and the step fails as a
/// whole.
struct Done<'a>(&'a Flag);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Release);
    }
}
