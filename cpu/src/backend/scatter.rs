//! Elements written by index along an axis, in the order of the source, so that results do not depend on the threads: each
//! thread owns a part of the output.

use std::ops::Range;
use tallow_graph::kernel::{ScatterKernel, ScatterOp};
use tallow_graph::{DType, Result};

use super::axes::{Axes, BLOCK, Ids, OUTSIDE, offset, read};
use super::class::{Class, Num, with_class};
use super::memory::Mem;
use super::step::StepRun;
use super::walk::{Bound, Words};

/// Elements that are worth a thread's while.
const GRAIN: usize = 8 << 10;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &ScatterKernel) -> bool {
    kernel.ids.is_int() && is_wide(kernel.dtype)
}

/// Of 32 or 64 bits and not converted on the way.
pub(crate) fn is_wide(dtype: DType) -> bool {
    Class::of(dtype).is_stored_as(dtype) && dtype.size_in_bytes() >= 4
}

/// The part of the output that a thread owns: one outer position, some inner positions, some rows.
struct Part {
    outer: usize,
    inner: Range<usize>,
    rows: Range<usize>,
}

/// Runs a scatter.
pub(crate) fn run(step: &StepRun<'_>, kernel: &ScatterKernel) -> Result<()> {
    let mut words = Words(step.words);
    let axes = Axes::take(&mut words)?;
    let rows = words.size()?;
    let total = axes.count()?;
    if total == 0 {
        return Ok(());
    }
    let out = step.output_for(0, kernel.dtype, Axes { along: rows, ..axes }.count()?)?;
    let bound = axes.bind(step.input(0)?, kernel.ids, &mut words)?;
    let source = axes.bind(step.input(1)?, kernel.dtype, &mut words)?;
    let ids = Ids { bound, dtype: kernel.ids, rows, fault: step.fault, op: "scatter" };
    // Inner positions in blocks; where these are too few for the threads, every thread goes through all ids and takes those
    // of its own rows.
    let blocks = axes.inner.div_ceil(BLOCK);
    let free = axes.outer.saturating_mul(blocks);
    let threads = step.pool.threads();
    let parts = if free < threads && total >= 2 * GRAIN { threads.min(rows.max(1)) } else { 1 };
    let each = rows.div_ceil(parts);
    let grain = (GRAIN / (axes.along * axes.inner.min(BLOCK)).max(1)).max(1);
    step.pool.run_ranges(free * parts, grain, &|range| {
        for task in range {
            let (task, part) = (task / parts, task % parts);
            let (outer, block) = (task / blocks, task % blocks);
            let inner = block * BLOCK..((block + 1) * BLOCK).min(axes.inner);
            let mine = Part { outer, inner, rows: (part * each).min(rows)..((part + 1) * each).min(rows) };
            with_class!(Class::of(kernel.dtype), T => elements::<T>(kernel.op, axes, &mine, &ids, &source, out));
        }
    });
    Ok(())
}

/// What becomes of an old element when a new one comes.
#[inline(always)]
fn combine<T: Num>(op: ScatterOp, old: T, new: T) -> T {
    match op {
        ScatterOp::Set => new,
        ScatterOp::Add => old.add(new),
        ScatterOp::Max => old.maximum(new),
        ScatterOp::Min => old.minimum(new),
    }
}

fn elements<T: Num>(op: ScatterOp, axes: Axes, part: &Part, ids: &Ids<'_>, source: &Bound<'_>, out: Mem) {
    match op {
        ScatterOp::Set => ordered::<T>(axes, part, ids, source, out, |old, new| combine(ScatterOp::Set, old, new)),
        ScatterOp::Add => ordered::<T>(axes, part, ids, source, out, |old, new| combine(ScatterOp::Add, old, new)),
        ScatterOp::Max => ordered::<T>(axes, part, ids, source, out, |old, new| combine(ScatterOp::Max, old, new)),
        ScatterOp::Min => ordered::<T>(axes, part, ids, source, out, |old, new| combine(ScatterOp::Min, old, new)),
    }
}

/// All of the source that belongs to `part`, along the axis in order.
fn ordered<T: Num>(axes: Axes, part: &Part, ids: &Ids<'_>, source: &Bound<'_>, out: Mem, combine: impl Fn(T, T) -> T) {
    let o = part.outer;
    let place = |id: usize, j: usize| out.at().cast::<T>().wrapping_add((o * ids.rows + id) * axes.inner + j);
    let store = |id: usize, index: [usize; 3]| {
        if id == OUTSIDE || !part.rows.contains(&id) {
            return;
        }
        let place = place(id, index[2]);
        // SAFETY: the source was bound for the index; the output has [outer, rows, inner] elements, and this part of them is
        // this thread's.
        unsafe { place.write(combine(place.read(), read(source, offset(source.strides, index)))) };
    };
    let mut block = [0; BLOCK];
    let width = part.inner.len();
    if axes.inner == 1 || ids.bound.strides[2] == 0 {
        // One id for the whole row.
        for first in (0..axes.along).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(axes.along - first)];
            // SAFETY: inside the axes.
            unsafe { ids.read([o, first, part.inner.start], 1, block) };
            for (i, &id) in block.iter().enumerate() {
                if width == 1 || source.strides[2] != 1 || !source.aligned || id == OUTSIDE {
                    part.inner.clone().for_each(|j| store(id, [o, first + i, j]));
                } else if part.rows.contains(&id) {
                    // SAFETY: as in `store`; the row's elements follow one another, aligned.
                    let (to, from) = unsafe {
                        let from =
                            source.at().cast::<T>().offset(offset(source.strides, [o, first + i, part.inner.start]));
                        let to = std::slice::from_raw_parts_mut(place(id, part.inner.start), width);
                        (to, std::slice::from_raw_parts(from, width))
                    };
                    to.iter_mut().zip(from).for_each(|(to, &from)| *to = combine(*to, from));
                }
            }
        }
        return;
    }
    for i in 0..axes.along {
        let block = &mut block[..width];
        // SAFETY: inside the axes.
        unsafe { ids.read([o, i, part.inner.start], 2, block) };
        block.iter().enumerate().for_each(|(j, &id)| store(id, [o, i, part.inner.start + j]));
    }
}
