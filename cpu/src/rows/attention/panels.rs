//! Attention of many query rows, over the packed panels and micro-kernels of [`crate::gemm`].
//!
//! Query rows are columns here: a vector holds one number of each of several queries. So the scores of a block of keys,
//! `K Q^T`, are a product of packed keys by packed queries; maximum, exponential and sum run down the keys without any
//! sum across lanes; and the scores are, as they lie, the right operand of the second product, `V^T P`. Keys and values
//! are packed a block at a time, for all the queries of the tile.

use super::{Attention, Rows};
use crate::Isa;
use crate::gemm::{Element, Kernel, Stored};
use crate::math::scalar::{exp, tanh};

/// Keys of a block, about: packed keys, values and the scores of a panel of queries stay in a second-level cache.
const BLOCK: usize = 112;
/// Most columns of a panel of queries.
const MAX_COLS: usize = 32;

/// Sixteen numbers, aligned for the widest vectors.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([f32; 16]);

/// Working memory of a thread.
#[derive(Default)]
pub(super) struct Memory(Vec<Line>);

impl Memory {
    /// Disjoint parts of these many numbers.
    fn parts<const N: usize>(&mut self, sizes: [usize; N]) -> [&mut [f32]; N] {
        let lines = sizes.map(|size| size.div_ceil(16));
        let all: usize = lines.iter().sum();
        if self.0.len() < all {
            self.0.resize(all, Line::default());
        }
        let mut rest = self.0.as_mut_slice();
        lines.map(|lines| {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(lines);
            rest = tail;
            // SAFETY: a `Line` is sixteen numbers and nothing else.
            unsafe { std::slice::from_raw_parts_mut(part.as_mut_ptr().cast(), 16 * lines) }
        })
    }
}

/// Running numbers of the queries of a panel.
#[derive(Clone, Copy)]
struct State {
    /// The largest score so far.
    top: [f32; MAX_COLS],
    /// The sum of the exponentials so far.
    sum: [f32; MAX_COLS],
    /// What earlier sums must be multiplied with.
    shrink: [f32; MAX_COLS],
}

/// Which keys each column of a panel sees: from `low` on, below `high`.
struct Seen {
    low: [i32; MAX_COLS],
    high: [i32; MAX_COLS],
}

/// As [`super::attention_tile`], whose caller has checked the operands. `a.group` is not 0.
pub(super) fn attention(isa: Isa, a: &Attention<'_>, out: &mut [f32], out_rows: Rows, memory: &mut Memory) {
    let kernel = f32::kernel(isa);
    let cols = kernel.cols;
    // A fact of the kernels, whatever the input: `with_cols` has an arm for each.
    assert!(matches!(cols, 8 | 12 | 16 | MAX_COLS), "panels of {cols} columns");
    let count = a.positions * a.group;
    let panels = count.div_ceil(cols);
    let block = (BLOCK / kernel.rows).max(1) * kernel.rows;
    let (k_strips, v_strips) = (block / kernel.rows, Strips::of(a.v_width, kernel));
    let (k_strip, v_strip) = (a.width * kernel.left_step, block * kernel.left_step);
    let (q_panel, o_panel) = (a.width * cols, a.v_width * cols);
    let [q, o, s, k, v] =
        memory.parts([panels * q_panel, panels * o_panel, block * cols, k_strips * k_strip, v_strips.count * v_strip]);
    pack_queries(a, cols, q);
    o.fill(0.0);
    let fresh = State { top: [f32::NEG_INFINITY; MAX_COLS], sum: [0.0; MAX_COLS], shrink: [0.0; MAX_COLS] };
    let mut states = vec![fresh; panels];
    // Positions are in order: the first sees the earliest keys, the last the latest.
    let (first, last) = (a.visible(0).0, a.visible(a.positions - 1).1);
    let mut start = first / block * block;
    while start < last {
        let keys = (last - start).min(block);
        for (strip, to) in k.chunks_exact_mut(k_strip.max(1)).enumerate().take(keys.div_ceil(kernel.rows)) {
            let at = strip * kernel.rows;
            let width = kernel.rows.min(keys - at);
            let from = a.k[(start + at) * a.k_stride..].as_ptr().cast();
            // SAFETY: `check` saw all rows of the keys; `to` has room for a strip.
            unsafe {
                let stride = a.k_stride as isize;
                kernel.pack(Stored::Own, a.width, width, kernel.left_step, from, 1, stride, to.as_mut_ptr());
            }
        }
        for (strip, to) in v.chunks_exact_mut(v_strip).enumerate().take(v_strips.count) {
            let (at, width) = v_strips.get(strip);
            let from = a.v[start * a.v_stride + at..].as_ptr().cast();
            // SAFETY: as above, of the values.
            unsafe {
                kernel.pack(Stored::Own, keys, width, kernel.left_step, from, a.v_stride as isize, 1, to.as_mut_ptr());
            }
        }
        for (p, state) in states.iter_mut().enumerate() {
            let rows = (p * cols, ((p + 1) * cols).min(count));
            // Columns without a query are left out, but for whole vectors; what stands there is never looked at.
            let width = (rows.1 - rows.0).next_multiple_of(8).min(cols);
            // Some query sees the keys from `low` to `high`, all see those from `full_from` to `full_to`.
            let (low, full_to) = a.visible(rows.0 / a.group);
            let (full_from, high) = a.visible((rows.1 - 1) / a.group);
            let (from, to) = (low.max(start), high.min(start + keys));
            if from >= to {
                continue;
            }
            // Strips of keys that no query of the panel sees are left out; the others are whole.
            let skipped = (from - start) / kernel.rows;
            let (base, depth) = (start + skipped * kernel.rows, to - (start + skipped * kernel.rows));
            let s = &mut s[..depth * cols];
            let q = &q[p * q_panel..][..q_panel];
            for (strip, s) in s.chunks_mut(kernel.rows * cols).enumerate() {
                let k = k[(skipped + strip) * k_strip..].as_ptr();
                // SAFETY: strip and panel were packed above over the width; `s` has a row for each key of the strip.
                unsafe { kernel.run(a.width, (k, s.len() / cols), (q.as_ptr(), width), s.as_mut_ptr(), cols, false) };
            }
            if a.softcap > 0.0 {
                cap(isa, s, a.softcap);
            }
            if a.mask.is_some() {
                add_mask(a, s, cols, rows, base);
            }
            if full_from > base || full_to < to {
                hide(isa, s, cols, &Seen::of(a, rows, base));
            }
            soften(isa, s, cols, state);
            let o = &mut o[p * o_panel..][..o_panel];
            if state.shrink[..cols].iter().any(|&shrink| shrink != 1.0) {
                scale(isa, o, cols, state);
            }
            for strip in 0..v_strips.count {
                let (at, rows) = v_strips.get(strip);
                let v = v[strip * v_strip + (base - start) * kernel.left_step..].as_ptr();
                // SAFETY: the values' strip was packed over the block's keys; `s` has a row for each; the sums of the strip
                // are `rows` rows of the panel's own.
                unsafe {
                    let to = o[at * cols..(at + rows) * cols].as_mut_ptr();
                    kernel.run(depth, (v, rows), (s.as_ptr(), width), to, cols, true);
                }
            }
        }
        start += block;
    }
    for r in 0..count {
        let (o, state, l) = (&o[r / cols * o_panel..][..o_panel], &states[r / cols], r % cols);
        // 0 only where no key was seen: the largest score's share alone is 1.
        let scale = if state.sum[l] == 0.0 { 0.0 } else { 1.0 / state.sum[l] };
        let at = r / a.group * out_rows.step + r % a.group * out_rows.head;
        for (out, o) in out[at..at + a.v_width].iter_mut().zip(o[l..].iter().step_by(cols)) {
            *out = o * scale;
        }
    }
}

/// Strips of the left operand, of equal size but for the last.
struct Strips {
    all: usize,
    each: usize,
    count: usize,
}

impl Strips {
    fn of(all: usize, kernel: &Kernel<f32>) -> Self {
        let count = all.div_ceil(kernel.rows);
        Self { all, each: all.div_ceil(count.max(1)), count }
    }

    /// Where a strip begins, and how many rows it has. (Equal sizes, rounded up, may leave nothing for the last.)
    fn get(&self, strip: usize) -> (usize, usize) {
        let at = (strip * self.each).min(self.all);
        (at, self.each.min(self.all - at))
    }
}

impl Seen {
    /// What the queries `rows` see, counted from key `base`; columns without a query see what the last one does.
    fn of(a: &Attention<'_>, rows: (usize, usize), base: usize) -> Self {
        let mut seen = Self { low: [0; MAX_COLS], high: [0; MAX_COLS] };
        for l in 0..MAX_COLS {
            let (low, high) = a.visible((rows.0 + l).min(rows.1 - 1) / a.group);
            let inside = |key: usize| key.saturating_sub(base).min(BLOCK) as i32;
            (seen.low[l], seen.high[l]) = (inside(low), inside(high));
        }
        seen
    }
}

/// Panels of `cols` queries, times the scale of the scores; columns without a query are zero.
fn pack_queries(a: &Attention<'_>, cols: usize, to: &mut [f32]) {
    let count = a.positions * a.group;
    to.fill(0.0);
    for r in 0..count {
        let row = &a.q[r / a.group * a.q_rows.step + r % a.group * a.q_rows.head..][..a.width];
        let panel = &mut to[r / cols * cols * a.width..][..cols * a.width];
        for (to, q) in panel[r % cols..].iter_mut().step_by(cols).zip(row) {
            *to = q * a.scale;
        }
    }
}

/// Adds the mask of the queries `rows` and the keys from `base` on.
fn add_mask(a: &Attention<'_>, s: &mut [f32], cols: usize, rows: (usize, usize), base: usize) {
    let Some(mask) = a.mask else { return };
    for r in rows.0..rows.1 {
        let at = r / a.group * mask.rows.step + r % a.group * mask.rows.head + base * mask.key;
        for (s, row) in s.chunks_exact_mut(cols).enumerate() {
            row[r - rows.0] += mask.data[at + s * mask.key];
        }
    }
}

multiversion! {
    /// c tanh(s / c).
    fn cap(s: &mut [f32], c: f32) = cap_body;
    /// Minus infinity for keys that are not seen.
    fn hide(s: &mut [f32], cols: usize, seen: &Seen) = hide_body;
    /// Scores, a row of `cols` queries for each key, become exponentials; the state takes them in.
    fn soften(s: &mut [f32], cols: usize, state: &mut State) = soften_body;
    /// Multiplies rows of sums with `state.shrink`.
    fn scale(o: &mut [f32], cols: usize, state: &State) = scale_body;
}

/// Runs a function with the number of columns as a constant: those of the kernels' panels.
macro_rules! with_cols {
    ($cols:expr, $C:ident => $body:expr) => {
        match $cols {
            8 => {
                const $C: usize = 8;
                $body
            }
            12 => {
                const $C: usize = 12;
                $body
            }
            16 => {
                const $C: usize = 16;
                $body
            }
            _ => {
                const $C: usize = MAX_COLS;
                $body
            }
        }
    };
}

#[inline(always)]
fn cap_body<const FMA: bool>(s: &mut [f32], c: f32) {
    for s in s {
        *s = c * tanh::<FMA>(*s / c);
    }
}

#[inline(always)]
fn hide_body<const FMA: bool>(s: &mut [f32], cols: usize, seen: &Seen) {
    with_cols!(cols, C => {
        for (key, row) in s.as_chunks_mut::<C>().0.iter_mut().enumerate() {
            for l in 0..C {
                let hidden = (key as i32) < seen.low[l] || key as i32 >= seen.high[l];
                row[l] = if hidden { f32::NEG_INFINITY } else { row[l] };
            }
        }
    });
}

#[inline(always)]
fn soften_body<const FMA: bool>(s: &mut [f32], cols: usize, state: &mut State) {
    with_cols!(cols, C => {
        let rows = s.as_chunks_mut::<C>().0;
        let (mut top, mut base) = ([0f32; C], [0f32; C]);
        top.copy_from_slice(&state.top[..C]);
        for row in rows.iter() {
            for l in 0..C {
                // A NaN is passed over here, and reaches the result by its exponential.
                top[l] = if row[l] > top[l] { row[l] } else { top[l] };
            }
        }
        for l in 0..C {
            // Nothing seen yet: subtracting 0 leaves every exponential 0 (and a NaN a NaN).
            base[l] = if top[l] == f32::NEG_INFINITY { 0.0 } else { top[l] };
            state.shrink[l] = exp::<FMA>(state.top[l] - base[l]);
            state.top[l] = top[l];
        }
        let mut total = [0f32; C];
        for row in rows {
            for l in 0..C {
                let p = exp::<FMA>(row[l] - base[l]);
                row[l] = p;
                total[l] += p;
            }
        }
        for l in 0..C {
            state.sum[l] = crate::multiversion::fma::<FMA>(state.sum[l], state.shrink[l], total[l]);
        }
    });
}

#[inline(always)]
fn scale_body<const FMA: bool>(o: &mut [f32], cols: usize, state: &State) {
    with_cols!(cols, C => {
        for row in o.as_chunks_mut::<C>().0 {
            for l in 0..C {
                row[l] *= state.shrink[l];
            }
        }
    });
}
