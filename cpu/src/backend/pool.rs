//! Windows of an f32 value, reduced without an expression: pooling. A line of outputs takes one element of each window at a
//! time, so that neighbours are computed together, in registers.

use tallow_graph::kernel::{Layout, RowKernel, RowOp};
use tallow_graph::{DType, Result};

use super::expr::{Code, Op};
use super::row::Row;
use super::step::StepRun;
use super::walk::{Bound, elements};

/// Most elements of a window: its sum is exact enough in f32.
const WINDOW: usize = 32;
/// Elements that are worth a thread's while.
const GRAIN: usize = 32 << 10;
/// Outputs that are computed together.
const CHUNK: usize = 64;

/// What is done to a window.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pooling {
    Max,
    /// The sum, divided by a number.
    Sum(f64),
    ArgMax,
}

/// Windows that are the same in every line of outputs.
#[derive(Clone, Copy)]
struct Windows<'a> {
    pooling: Pooling,
    /// Where each element of a window lies, from the first.
    offsets: &'a [isize],
    /// From one window to the next.
    step: isize,
    /// Outputs of a line.
    width: usize,
}

/// Runs a row kernel that is a pooling; `None` where it is something else.
pub(super) fn run(
    step: &StepRun<'_>,
    kernel: &RowKernel,
    row: &Row,
    sizes: &[i64],
    operands: &[Bound<'_>],
    out: *mut u8,
) -> Option<Result<()>> {
    let (outer, rows) = (usize::from(kernel.outer), elements(&sizes[..usize::from(kernel.outer)]).ok()?);
    let count = elements(&sizes[outer..]).ok()?;
    let pooling = match kernel.op {
        RowOp::Max => Pooling::Max,
        RowOp::Sum => Pooling::Sum(1.0),
        RowOp::Mean => Pooling::Sum(count as f64),
        RowOp::ArgMax => Pooling::ArgMax,
        _ => return None,
    };
    let ([Code { op: Op::Copy, .. }], [load]) = (row.before.code.as_slice(), row.before.loads.as_slice()) else {
        return None;
    };
    let bound = operands.get(usize::from(load.operand))?;
    let stored = if pooling == Pooling::ArgMax { DType::U32 } else { DType::F32 };
    let plain = load.input.is_some()
        && load.dtype == DType::F32
        && load.layout != Layout::Scalar
        && bound.aligned
        && row.after.is_acc
        && row.after.dtype == stored;
    if !plain || outer == 0 || !(1..=WINDOW).contains(&count) {
        return None;
    }
    let (outer_strides, inner_strides) = bound.strides.split_at(outer);
    let offsets: Vec<isize> = (0..count).map(|at| place(&sizes[outer..], inner_strides, at)).collect();
    let width = sizes[outer - 1] as usize;
    let windows = Windows { pooling, offsets: &offsets, step: outer_strides[outer - 1] as isize, width };
    let out = super::walk::Bound { at: out, offset: 0, strides: &[], aligned: true };
    let from = *bound;
    step.pool.run_ranges(rows / width.max(1), GRAIN / (width * count).max(1), &|range| {
        let lines: Vec<isize> =
            range.clone().map(|line| place(&sizes[..outer - 1], &outer_strides[..outer - 1], line)).collect();
        let out = out.at().cast::<u32>().wrapping_add(range.start * width);
        pool_lines(step.isa, from.at().cast_const().cast(), &lines, windows, out);
    });
    Some(Ok(()))
}

/// The offset of element `at` of a nest, in row-major order.
fn place(sizes: &[i64], strides: &[i64], mut at: usize) -> isize {
    let mut offset = 0;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        let size = (size as usize).max(1);
        offset += (at % size) as isize * stride as isize;
        at /= size;
    }
    offset
}

multiversion! {
    /// Lines of outputs. The caller has checked that all windows lie in memory, and `out` has room for the lines.
    fn pool_lines(from: *const f32, lines: &[isize], windows: Windows<'_>, out: *mut u32) = pool_lines_body;
}

#[inline(always)]
fn pool_lines_body<const FMA: bool>(from: *const f32, lines: &[isize], windows: Windows<'_>, out: *mut u32) {
    for (i, &line) in lines.iter().enumerate() {
        let from = from.wrapping_offset(line);
        let out = out.wrapping_add(i * windows.width);
        // SAFETY: `pool_lines`'s.
        unsafe {
            match windows.step {
                1 => pool_line(from, Windows { step: 1, ..windows }, out),
                2 => pool_line(from, Windows { step: 2, ..windows }, out),
                _ => pool_line(from, windows, out),
            }
        }
    }
}

/// # Safety
/// The line's windows lie in memory; `out` has room for them.
#[inline(always)]
unsafe fn pool_line(from: *const f32, windows: Windows<'_>, out: *mut u32) {
    let Windows { pooling, offsets, step, width } = windows;
    let mut done = 0;
    while done < width {
        let n = CHUNK.min(width - done);
        let mut values = [0f32; CHUNK];
        let at = |offset: isize| from.wrapping_offset(offset + done as isize * step);
        let out = out.wrapping_add(done);
        // SAFETY: the caller's, for all that follows.
        unsafe {
            let first = at(offsets[0]);
            for j in 0..n {
                values[j] = first.wrapping_offset(j as isize * step).read();
            }
            match pooling {
                Pooling::Max => {
                    for &offset in &offsets[1..] {
                        let x = at(offset);
                        for j in 0..n {
                            let (a, b) = (values[j], x.wrapping_offset(j as isize * step).read());
                            values[j] = if (a > b) | a.is_nan() { a } else { b };
                        }
                    }
                }
                Pooling::Sum(by) => {
                    for &offset in &offsets[1..] {
                        let x = at(offset);
                        for j in 0..n {
                            values[j] += x.wrapping_offset(j as isize * step).read();
                        }
                    }
                    if by != 1.0 {
                        for j in 0..n {
                            values[j] = (f64::from(values[j]) / by) as f32;
                        }
                    }
                }
                Pooling::ArgMax => {
                    let mut places = [0u32; CHUNK];
                    for (k, &offset) in offsets.iter().enumerate().skip(1) {
                        let x = at(offset);
                        for j in 0..n {
                            let (a, b) = (values[j], x.wrapping_offset(j as isize * step).read());
                            let wins = !a.is_nan() & (b.is_nan() | (b > a));
                            values[j] = if wins { b } else { a };
                            places[j] = if wins { k as u32 } else { places[j] };
                        }
                    }
                    std::ptr::copy_nonoverlapping(places.as_ptr(), out, n);
                    done += n;
                    continue;
                }
            }
            std::ptr::copy_nonoverlapping(values.as_ptr().cast(), out, n);
        }
        done += n;
    }
}
