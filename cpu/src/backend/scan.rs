//! Running sums, products, maxima and minima along an axis. Floats of 32 bits accumulate in f64.

use tallow_graph::kernel::{ScanKernel, ScanOp};
use tallow_graph::{DType, Result};

use super::axes::{Axes, BLOCK, offset, read};
use super::class::{Class, Num, with_class};
use super::memory::Mem;
use super::scatter::is_wide;
use super::step::StepRun;
use super::walk::{Bound, Words};

/// Elements that are worth a thread's while.
const GRAIN: usize = 8 << 10;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &ScanKernel) -> bool {
    is_wide(kernel.dtype)
}

/// Runs a scan, in parallel over the outer positions and blocks of the inner ones.
pub(crate) fn run(step: &StepRun<'_>, kernel: &ScanKernel) -> Result<()> {
    let mut words = Words(step.words);
    let axes = Axes::take(&mut words)?;
    let total = axes.count()?;
    if total == 0 {
        return Ok(());
    }
    let out = step.output_for(0, kernel.dtype, total)?;
    let source = axes.bind(step.input(0)?, kernel.dtype, &mut words)?;
    // A few neighbours at a time keep whole cache lines busy; all of them, where there are many outer positions.
    let width = if axes.outer >= step.pool.threads() * 4 { BLOCK } else { 16 };
    let blocks = axes.inner.div_ceil(width);
    let grain = (GRAIN / (axes.along * width.min(axes.inner))).max(1);
    step.pool.run_ranges(axes.outer * blocks, grain, &|range| {
        for task in range {
            let (outer, first) = (task / blocks, task % blocks * width);
            let columns = first..(first + width).min(axes.inner);
            // f64 holds the sums and products of f32 with bits to spare: a long sum stays right.
            if kernel.dtype == DType::F32 {
                rows::<f32, f64>(kernel.op, axes, outer, columns, &source, out, f64::from, |x| x as f32);
            } else {
                with_class!(Class::of(kernel.dtype), T => {
                    rows::<T, T>(kernel.op, axes, outer, columns, &source, out, |x| x, |x| x);
                });
            }
        }
    });
    Ok(())
}

/// The running results of some columns, of elements `T` in accumulators `A`.
#[allow(clippy::too_many_arguments, reason = "the parts of one loop")]
fn rows<T: Num, A: Num>(
    op: ScanOp,
    axes: Axes,
    outer: usize,
    columns: std::ops::Range<usize>,
    source: &Bound<'_>,
    out: Mem,
    widen: impl Fn(T) -> A,
    narrow: impl Fn(A) -> T,
) {
    let mut running = [A::default(); BLOCK];
    for i in 0..axes.along {
        for (running, j) in running.iter_mut().zip(columns.clone()) {
            // SAFETY: the source was bound for these axes.
            let value = widen(unsafe { read(source, offset(source.strides, [outer, i, j])) });
            *running = match op {
                _ if i == 0 => value,
                ScanOp::Sum => running.add(value),
                ScanOp::Prod => running.mul(value),
                ScanOp::Max => running.maximum(value),
                ScanOp::Min => running.minimum(value),
            };
            let at = (outer * axes.along + i) * axes.inner + j;
            // SAFETY: the output has room for all elements, and these columns belong to this thread.
            unsafe { out.at().cast::<T>().add(at).write(narrow(*running)) };
        }
    }
}
