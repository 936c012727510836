//! Scaled dot-product attention of some query rows that share one key head, without a stored score matrix: online
//! softmax over blocks of keys (Milakov and Gimelshein, 2018; Dao et al., 2022).
//!
//! For each block of keys: scores into a small buffer, their running maximum m and sum l of each query row, and
//! `out = out * e^(m_old - m) + p v`. At the end `out /= l`. Few rows (decoding) read keys and values as they lie, see
//! `few`; many go through packed panels, see `panels`.

mod few;
mod panels;

use std::cell::RefCell;

use tallow_graph::{Error, Result};

use crate::Isa;

/// From this many query rows on, packing keys and values pays.
const MANY: usize = 8;

/// Where rows of a matrix lie: row (t, g) starts at `t * step + g * head`, for position t and head g of a group.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Elements between successive positions.
    pub step: usize,
    /// Elements between successive heads of the group.
    pub head: usize,
}

/// Numbers that are added to the scores: that of position t, head g and key s is at
/// `t * rows.step + g * rows.head + s * key`.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// The numbers; negative infinity hides a key.
    pub data: &'a [f32],
    /// By query.
    pub rows: Rows,
    /// Elements between successive keys.
    pub key: usize,
}

/// The operands of [`attention_tile`].
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Queries: `positions x group` rows of `width`.
    pub q: &'a [f32],
    /// Where they lie.
    pub q_rows: Rows,
    /// Query positions.
    pub positions: usize,
    /// Query heads that share the key head (1 without grouping).
    pub group: usize,
    /// Keys: row s starts at `s * k_stride`.
    pub k: &'a [f32],
    /// Elements between successive keys.
    pub k_stride: usize,
    /// Values, likewise.
    pub v: &'a [f32],
    /// Elements between successive values.
    pub v_stride: usize,
    /// Number of keys.
    pub keys: usize,
    /// Elements of a query and a key.
    pub width: usize,
    /// Elements of a value and a result.
    pub v_width: usize,
    /// What scores are multiplied with, usually 1 / sqrt(width).
    pub scale: f32,
    /// c > 0: scores become c tanh(score / c). 0: none.
    pub softcap: f32,
    /// `Some(p)`: position t sees keys s <= p + t only. `None`: all.
    pub causal: Option<usize>,
    /// w > 0, with `causal`: only keys s > p + t - w. 0: no limit.
    pub window: usize,
    /// Added after the cap.
    pub mask: Option<Mask<'a>>,
}

thread_local! {
    /// Working memory, kept from one tile to the next.
    static SCRATCH: RefCell<panels::Memory> = RefCell::default();
}

impl Attention<'_> {
    /// The keys that position t sees.
    #[inline(always)]
    fn visible(&self, t: usize) -> (usize, usize) {
        match self.causal {
            None => (0, self.keys),
            Some(position) => {
                let end = position.saturating_add(t).saturating_add(1);
                let start = if self.window > 0 { end.saturating_sub(self.window) } else { 0 };
                (start.min(self.keys), end.min(self.keys))
            }
        }
    }
}

fn end_of(counts: &[(usize, usize)], width: usize) -> Option<usize> {
    if counts.iter().any(|&(count, _)| count == 0) {
        return Some(0);
    }
    counts.iter().try_fold(width, |end, &(count, stride)| (count - 1).checked_mul(stride)?.checked_add(end))
}

fn check(a: &Attention<'_>, out: &[f32], out_rows: Rows) -> Result<()> {
    let rows = |rows: Rows| [(a.positions, rows.step), (a.group, rows.head)];
    let mut parts = vec![
        ("q", end_of(&rows(a.q_rows), a.width), a.q.len()),
        ("k", end_of(&[(a.keys, a.k_stride)], a.width), a.k.len()),
        ("v", end_of(&[(a.keys, a.v_stride)], a.v_width), a.v.len()),
        ("out", end_of(&rows(out_rows), a.v_width), out.len()),
    ];
    if let Some(mask) = a.mask {
        let [step, head] = rows(mask.rows);
        parts.push(("mask", end_of(&[step, head, (a.keys, mask.key)], 1), mask.data.len()));
    }
    for (name, end, len) in parts {
        if end.is_none_or(|end| end > len) {
            let message = format!(
                "{name} has {len} elements, too few for {} positions, {} heads, {} keys, width {} and {}",
                a.positions, a.group, a.keys, a.width, a.v_width
            );
            return Err(Error::op("attention", message));
        }
    }
    Ok(())
}

/// `out` row (t, g) = sum over keys s of softmax_s(scale q . k_s ...) v_s. A query that sees no key gives zeros.
///
/// Rows of `out` must not overlap (rows that do are overwritten in turn).
///
/// # Errors
/// A slice is shorter than its sizes and strides say.
pub fn attention_tile(isa: Isa, a: &Attention<'_>, out: &mut [f32], out_rows: Rows) -> Result<()> {
    check(a, out, out_rows)?;
    if a.positions * a.group >= MANY {
        SCRATCH.with_borrow_mut(|memory| panels::attention(isa, a, out, out_rows, memory));
    } else {
        few::attention(isa, a, out, out_rows);
    }
    Ok(())
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
