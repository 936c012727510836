//! Elements by index along an axis.

use std::mem::MaybeUninit;

use tallow_graph::Result;
use tallow_graph::kernel::PickKernel;

use super::axes::{Axes, BLOCK, Ids, OUTSIDE, offset, read};
use super::memory::Mem;
use super::step::StepRun;
use super::walk::{Bound, Words};

/// Elements that are worth a thread's while.
const GRAIN: usize = 8 << 10;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &PickKernel) -> bool {
    kernel.ids.is_int() && !kernel.dtype.is_quantized()
}

/// Runs a pick.
pub(crate) fn run(step: &StepRun<'_>, kernel: &PickKernel) -> Result<()> {
    let mut words = Words(step.words);
    let axes = Axes::take(&mut words)?;
    let rows = words.size()?;
    let total = axes.count()?;
    if total == 0 {
        return Ok(());
    }
    let out = step.output_for(0, kernel.dtype, total)?;
    let source = Axes { along: rows, ..axes }.bind(step.input(0)?, kernel.dtype, &mut words)?;
    let bound = axes.bind(step.input(1)?, kernel.ids, &mut words)?;
    let ids = Ids { bound, dtype: kernel.ids, rows, fault: step.fault, op: "gather" };
    step.pool.run_ranges(total, GRAIN, &|range| match kernel.dtype.size_in_bytes() {
        1 => elements::<u8>(axes, range.start, range.end, &source, &ids, out),
        2 => elements::<u16>(axes, range.start, range.end, &source, &ids, out),
        4 => elements::<u32>(axes, range.start, range.end, &source, &ids, out),
        _ => elements::<u64>(axes, range.start, range.end, &source, &ids, out),
    });
    Ok(())
}

/// Elements `from..to` of the result. `T` has the elements' size: only bits move.
fn elements<T: Copy + Default>(axes: Axes, from: usize, to: usize, source: &Bound<'_>, ids: &Ids<'_>, out: Mem) {
    let mut block = [0; BLOCK];
    axes.runs(from, to, |at, index, count, by_inner| {
        let block = &mut block[..count];
        // SAFETY: runs are inside the axes.
        let inside = unsafe { ids.read(index, if by_inner { 2 } else { 1 }, block) };
        let first = offset(source.strides, [index[0], 0, if by_inner { index[2] } else { 0 }]);
        let (along, inner) = (source.strides[1] as isize, if by_inner { source.strides[2] as isize } else { 0 });
        // SAFETY: the output has room for all elements, and each belongs to one range; what lies there is written over.
        let to = unsafe { std::slice::from_raw_parts_mut(out.at().cast::<MaybeUninit<T>>().add(at), count) };
        // SAFETY: the source was bound for [outer, rows, inner], and the id is below rows.
        let take = |i: usize, id: usize| unsafe { read(source, first + id as isize * along + i as isize * inner) };
        for (i, (to, &id)) in to.iter_mut().zip(&*block).enumerate() {
            // All are inside but for an error: the loop is then without the other question.
            to.write(if inside || id != OUTSIDE { take(i, id) } else { T::default() });
        }
    });
}
