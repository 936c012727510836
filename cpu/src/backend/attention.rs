//! Attention by tiles: one key head's queries of some positions, in parallel over batch, key head and positions.
//!
//! The tile kernel reads f32 with strides that are not negative; anything else is brought into order for the tile first.

use smallvec::SmallVec;
use tallow_graph::kernel::AttentionKernel;
use tallow_graph::{DType, Error, Result};

use super::class::Class;
use super::contract::{copy_out, loader};
use super::exec::{narrow, slice, slice_mut};
use super::expr::Block;
use super::scratch::{self, FirstError};
use super::step::StepRun;
use super::walk::{Bound, Nest, Words, bind, elements};

use crate::rows::attention::{Attention, Mask, Rows, attention_tile};

/// Bytes of a tile's queries and results: beside a block of keys and values, they stay in a second-level cache. Keys and
/// values are packed once for each tile.
const TILE_BYTES: usize = 256 << 10;
/// Most query rows of a tile; fewer with a mask, of which a tile may have to bring its rows of all keys into order.
const MOST_ROWS: usize = 512;
const MOST_MASKED: usize = 128;
/// Query rows below which a tile is not cut to leave more threads something to do.
const LEAST_ROWS: usize = 64;

/// An attention kernel, compiled: how its operands become f32.
#[derive(Debug)]
pub(crate) struct Code {
    query: Block,
    key: Block,
    mask: Block,
}

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &AttentionKernel) -> bool {
    let narrow = |dtype: DType| dtype.is_float() && dtype != DType::F64;
    narrow(kernel.dtype) && narrow(kernel.kv_dtype)
}

/// Compiles an attention kernel.
pub(crate) fn compile(kernel: &AttentionKernel) -> Result<Code> {
    Ok(Code {
        query: loader(kernel.dtype, Class::F32)?,
        key: loader(kernel.kv_dtype, Class::F32)?,
        mask: loader(DType::F32, Class::F32)?,
    })
}

/// Part of an operand as the tile kernel reads it: f32 with three strides.
struct Source<'a> {
    data: &'a [f32],
    strides: [usize; 3],
}

struct Job<'a> {
    step: &'a StepRun<'a>,
    kernel: &'a AttentionKernel,
    code: &'a Code,
    /// q, k, v and the mask.
    operands: [Bound<'a>; 4],
    out: Bound<'a>,
    queries: usize,
    keys: usize,
    heads: usize,
    group: usize,
    width: usize,
    v_width: usize,
    position: i64,
    window: i64,
    scale: f32,
    softcap: f32,
    /// Positions of a tile.
    block: usize,
}

/// Positions of a tile, of `group` query heads whose queries and results have `width` elements together: as many as a cache
/// holds, at most `most` rows, or fewer if that leaves each thread less than four tiles of the `others` (batches and key
/// heads).
fn block_of(queries: usize, (group, width): (usize, usize), most: usize, others: usize, threads: usize) -> usize {
    let mut rows = (TILE_BYTES / (4 * width.max(1))).min(most);
    while rows > LEAST_ROWS && threads > 1 && queries.div_ceil((rows / group).max(1)) * others < 4 * threads {
        rows /= 2;
    }
    (rows / group).max(8).min(queries)
}

/// Runs an attention step.
pub(crate) fn run(step: &StepRun<'_>, kernel: &AttentionKernel, code: &Code) -> Result<()> {
    let mut words = Words(step.words);
    let [batch, queries, keys, heads, kv_heads, width, v_width] =
        [words.size()?, words.size()?, words.size()?, words.size()?, words.size()?, words.size()?, words.size()?];
    let (position, window) = (words.one()?, words.one()?);
    let total = elements(&[batch, queries, heads, v_width].map(|n| n as i64))?;
    if total == 0 {
        return Ok(());
    }
    if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(Error::msg(format!("attention of {heads} heads by {kv_heads} key heads")));
    }
    let mut operand = |input: u8, dtype: DType, sizes: [usize; 3], width: usize| -> Result<Bound<'_>> {
        let words = words.take(4)?;
        let all: SmallVec<[i64; 4]> = sizes.iter().chain([&width]).map(|&n| n as i64).collect();
        let strides: SmallVec<[i64; 5]> = words.iter().copied().chain([1]).collect();
        let bound = bind(step.input(input)?, dtype, &all, &strides)?;
        let (at, offset, aligned) = (bound.at, bound.offset, bound.aligned);
        Ok(Bound { at, offset, strides: &words[1..], aligned })
    };
    let q = operand(0, kernel.dtype, [batch, queries, heads], width)?;
    let k = operand(1, kernel.kv_dtype, [batch, keys, kv_heads], width)?;
    let v = operand(2, kernel.kv_dtype, [batch, keys, kv_heads], v_width)?;
    let mask = if kernel.mask {
        bind(step.input(3)?, DType::F32, &[batch, heads, queries, keys].map(|n| n as i64), words.take(5)?)?
    } else {
        q
    };
    let out = step.output_for(0, kernel.dtype, total)?;
    let group = heads / kv_heads;
    let job = Job {
        step,
        kernel,
        code,
        operands: [q, k, v, mask],
        out: Bound { at: out.at, offset: 0, strides: &[], aligned: true },
        queries,
        keys,
        heads,
        group,
        width,
        v_width,
        position,
        window: if kernel.window { window } else { 0 },
        scale: step.scalar(0)?.to_f64() as f32,
        softcap: if kernel.softcap { step.scalar(1)?.to_f64() as f32 } else { 0.0 },
        block: {
            let most = if kernel.mask { MOST_MASKED } else { MOST_ROWS };
            block_of(queries, (group, width + v_width), most, batch * kv_heads, step.pool.threads())
        },
    };
    let blocks = queries.div_ceil(job.block);
    let failed = FirstError::default();
    step.pool.run(batch * kv_heads * blocks, &|task| {
        let (b, task) = (task / (kv_heads * blocks), task % (kv_heads * blocks));
        // The last positions see most keys: they go first.
        let (head, block) = (task / blocks, blocks - 1 - task % blocks);
        failed.note(job.tile(b, head, block * job.block));
    });
    failed.done()
}

impl Job<'_> {
    /// Elements of `sizes` from `first` on, by `strides`: where they lie, or copied to `memory`.
    ///
    /// # Safety
    /// The elements are inside the operand; `memory` has room for them as f32.
    #[allow(clippy::too_many_arguments, reason = "an operand's part is named by as much")]
    unsafe fn source<'a>(
        &self,
        block: &Block,
        bound: &Bound<'_>,
        dtype: DType,
        first: i64,
        sizes: [usize; 3],
        strides: [i64; 3],
        memory: *mut u8,
    ) -> Result<Source<'a>> {
        let at = bound.at.wrapping_offset(first as isize * dtype.size_in_bytes() as isize);
        let count: usize = sizes.iter().product();
        if count == 0 {
            return Ok(Source { data: &[], strides: [0; 3] });
        }
        if dtype == DType::F32 && bound.aligned && strides.iter().all(|&s| s >= 0) {
            let end = sizes.iter().zip(strides).map(|(&n, s)| (n - 1) * s as usize).sum::<usize>() + 1;
            // SAFETY: the caller's: the last element is inside the operand, so all before it are.
            return Ok(Source { data: unsafe { slice(at, end) }, strides: strides.map(|s| s as usize) });
        }
        let nest_sizes = sizes.map(|n| n as i64);
        let aligned = (at as usize).is_multiple_of(dtype.size_in_bytes());
        let bound = [Bound { at, offset: 0, strides: &strides, aligned }];
        let nest = Nest { isa: self.step.isa, block, sizes: &nest_sizes, operands: &bound, scalars: &[] };
        // SAFETY: the caller's.
        unsafe {
            copy_out(&nest, 0, count, memory, 4)?;
            Ok(Source { data: slice(memory, count), strides: [sizes[1] * sizes[2], sizes[2], 1] })
        }
    }

    /// The positions from `first` on of the heads that share key head `head`, in batch `b`.
    fn tile(&self, b: usize, head: usize, first: usize) -> Result<()> {
        let (group, keys, width, v_width) = (self.group, self.keys, self.width, self.v_width);
        let positions = self.block.min(self.queries - first);
        let [q, k, v, mask] = &self.operands;
        let of = |counts: [usize; 3]| (counts.iter().product::<usize>() * 4).next_multiple_of(64);
        let masked = if self.kernel.mask { of([positions, group, keys]) } else { 0 };
        let sizes = [of([positions, group, width]), of([keys, 1, width]), of([keys, 1, v_width]), masked];
        let out_bytes = of([positions, group, v_width]);
        scratch::with(scratch::TILE, sizes.iter().sum::<usize>() + out_bytes, |memory| {
            let mut parts = [memory; 5];
            for i in 0..4 {
                parts[i + 1] = parts[i].wrapping_add(sizes[i]);
            }
            let start = |bound: &Bound<'_>, position: usize, head: usize| {
                b as i64 * bound.strides[0] + position as i64 * bound.strides[1] + head as i64 * bound.strides[2]
            };
            // SAFETY: `run` bound the whole operands; these are parts of them, and of this call's scratch memory.
            let (q, k, v) = unsafe {
                let at = start(q, first, head * group);
                let (rows, kernel) = ([positions, group, width], self.kernel);
                let strides = [q.strides[1], q.strides[2], 1];
                let query = self.source(&self.code.query, q, kernel.dtype, at, rows, strides, parts[0])?;
                let side = |bound: &Bound<'_>, width: usize, to: *mut u8| {
                    let strides = [bound.strides[1], 0, 1];
                    let at = start(bound, 0, head);
                    self.source(&self.code.key, bound, kernel.kv_dtype, at, [keys, 1, width], strides, to)
                };
                (query, side(k, width, parts[1])?, side(v, v_width, parts[2])?)
            };
            let mask = if self.kernel.mask {
                let s = mask.strides;
                let at = b as i64 * s[0] + (head * group) as i64 * s[1] + first as i64 * s[2];
                let sizes = [positions, group, keys];
                // SAFETY: as above.
                Some(unsafe {
                    self.source(&self.code.mask, mask, DType::F32, at, sizes, [s[2], s[1], s[3]], parts[3])?
                })
            } else {
                None
            };
            let tile = Attention {
                q: q.data,
                q_rows: Rows { step: q.strides[0], head: q.strides[1] },
                positions,
                group,
                k: k.data,
                k_stride: k.strides[0],
                v: v.data,
                v_stride: v.strides[0],
                keys,
                width,
                v_width,
                scale: self.scale,
                softcap: self.softcap,
                causal: None,
                window: 0,
                mask: mask.as_ref().map(|mask| Mask {
                    data: mask.data,
                    rows: Rows { step: mask.strides[0], head: mask.strides[1] },
                    key: mask.strides[2],
                }),
            };
            let row = self.heads * v_width;
            let element = self.kernel.dtype.size_in_bytes();
            let to = self.out.at.wrapping_add(((b * self.queries + first) * row + head * group * v_width) * element);
            let in_one_piece = positions == 1 || group == self.heads;
            if self.kernel.dtype == DType::F32 && in_one_piece {
                // SAFETY: no other task writes between the tile's first result and its last.
                let out = unsafe { slice_mut(to, (positions - 1) * row + group * v_width) };
                return self.compute(&tile, first, out, Rows { step: row, head: v_width });
            }
            // SAFETY: the last part of the scratch memory.
            let out: &mut [f32] = unsafe { slice_mut(parts[4], positions * group * v_width) };
            self.compute(&tile, first, out, Rows { step: group * v_width, head: v_width })?;
            for (t, out) in out.chunks_exact(group * v_width).enumerate() {
                // SAFETY: the tile's own row of the output.
                unsafe { narrow(self.step.isa, self.kernel.dtype, out, to.wrapping_add(t * row * element)) };
            }
            Ok(())
        })
    }

    /// The tile, by one call where its mask is one that the kernel knows, else position by position.
    fn compute(&self, tile: &Attention<'_>, first: usize, out: &mut [f32], rows: Rows) -> Result<()> {
        let position = self.position + first as i64;
        let (causal, window) = (self.kernel.causal, self.window);
        if !causal && window == 0 {
            return attention_tile(self.step.isa, tile, out, rows);
        }
        if let (true, Ok(position)) = (causal, usize::try_from(position)) {
            let tile = Attention { causal: Some(position), window: window.max(0) as usize, ..*tile };
            return attention_tile(self.step.isa, &tile, out, rows);
        }
        for t in 0..tile.positions {
            // Keys start..end are visible: s <= t + position where causal, s > t + position - window.
            let last = position + t as i64;
            let end = if causal { last.saturating_add(1) } else { i64::MAX }.clamp(0, self.keys as i64) as usize;
            let start = if window > 0 { last - window + 1 } else { 0 }.clamp(0, end as i64) as usize;
            let out = out.get_mut(t * rows.step..).unwrap_or_default();
            if start == end {
                for head in 0..tile.group {
                    if let Some(out) = out.get_mut(head * rows.head..head * rows.head + tile.v_width) {
                        out.fill(0.0);
                    }
                }
                continue;
            }
            let one = Attention {
                q: tile.q.get(t * tile.q_rows.step..).unwrap_or_default(),
                positions: 1,
                k: tile.k.get(start * tile.k_stride..).unwrap_or_default(),
                v: tile.v.get(start * tile.v_stride..).unwrap_or_default(),
                keys: end - start,
                mask: tile.mask.map(|mask| Mask {
                    data: mask.data.get(t * mask.rows.step + start * mask.key..).unwrap_or_default(),
                    ..mask
                }),
                ..*tile
            };
            attention_tile(self.step.isa, &one, out, rows)?;
        }
        Ok(())
    }
}
