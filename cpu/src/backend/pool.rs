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
    // SAFETY: the caller's.
    unsafe {
        match windows.width {
            8.. => pool_chunks::<8>(from, windows, out),
            4.. => pool_chunks::<4>(from, windows, out),
            _ => pool_chunks::<1>(from, windows, out),
        }
    }
}

/// `N` outputs at a time, in registers. The last ones of a line overlap those before, so that nothing is left over.
///
/// # Safety
/// As [`pool_line`], of a line of at least `N` outputs.
#[inline(always)]
unsafe fn pool_chunks<const N: usize>(from: *const f32, windows: Windows<'_>, out: *mut u32) {
    let Windows { pooling, offsets, step, width } = windows;
    let mut next = 0;
    while next < width {
        let done = next.min(width - N);
        next = done + N;
        let element = |offset: isize| -> [f32; N] {
            let at = from.wrapping_offset(offset + done as isize * step);
            // SAFETY: the caller's.
            std::array::from_fn(|j| unsafe { at.wrapping_offset(j as isize * step).read() })
        };
        let mut values = element(offsets[0]);
        let mut places = [0u32; N];
        match pooling {
            Pooling::Max => {
                for &offset in &offsets[1..] {
                    let x = element(offset);
                    for j in 0..N {
                        values[j] = if (values[j] > x[j]) | values[j].is_nan() { values[j] } else { x[j] };
                    }
                }
            }
            Pooling::Sum(by) => {
                for &offset in &offsets[1..] {
                    let x = element(offset);
                    for j in 0..N {
                        values[j] += x[j];
                    }
                }
                if by != 1.0 {
                    for value in &mut values {
                        *value = (f64::from(*value) / by) as f32;
                    }
                }
            }
            Pooling::ArgMax => {
                for (k, &offset) in offsets.iter().enumerate().skip(1) {
                    let x = element(offset);
                    for j in 0..N {
                        let wins = !values[j].is_nan() & (x[j].is_nan() | (x[j] > values[j]));
                        values[j] = if wins { x[j] } else { values[j] };
                        places[j] = if wins { k as u32 } else { places[j] };
                    }
                }
            }
        }
        let result = if pooling == Pooling::ArgMax { places } else { values.map(f32::to_bits) };
        // SAFETY: the caller's.
        unsafe { out.add(done).cast::<[u32; N]>().write_unaligned(result) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn lines_of_every_width_equal_a_loop() {
        let x: Vec<f32> =
            (0..400).map(|i| if i % 97 == 50 { f32::NAN } else { ((i * 37) % 29) as f32 - 9.0 }).collect();
        let offsets = [0, 1, 40, 41];
        let cases = (1..=33).flat_map(|width| [1, 2, 3].map(|step| (width, step)));
        for (isa, (width, step)) in
            Isa::supported().into_iter().flat_map(|isa| cases.clone().map(move |case| (isa, case)))
        {
            for pooling in [Pooling::Max, Pooling::ArgMax, Pooling::Sum(1.0), Pooling::Sum(4.0)] {
                let windows = Windows { pooling, offsets: &offsets, step, width };
                let mut out = vec![u32::MAX; 2 * width + 1];
                pool_lines(isa, x.as_ptr(), &[0, 200], windows, out.as_mut_ptr());
                for (i, &got) in out[..2 * width].iter().enumerate() {
                    let first = i / width * 200 + i % width * step as usize;
                    let window = offsets.map(|offset| x[first + offset as usize]);
                    let best = (1..4).fold(0, |best: usize, k| {
                        let (a, b) = (window[best], window[k]);
                        if !a.is_nan() && (b.is_nan() || b > a) { k } else { best }
                    });
                    let want = match pooling {
                        Pooling::Max => window[best].to_bits(),
                        Pooling::ArgMax => best as u32,
                        Pooling::Sum(by) => (window.iter().sum::<f32>() / by as f32).to_bits(),
                    };
                    let both_nan =
                        pooling != Pooling::ArgMax && f32::from_bits(want).is_nan() && f32::from_bits(got).is_nan();
                    assert!(got == want || both_nan, "{isa:?} {pooling:?} {i} of {width} by {step}");
                }
                assert_eq!(out[2 * width], u32::MAX, "nothing after the line");
            }
        }
    }
}
