//! Reductions, norms, softmax: a row's values come from one expression, and its results go through another.
//!
//! Four ways, by where the rows lie: rows of values in order, several short rows at a time or a long one in pieces;
//! one row or few very long ones, whose pieces go to all threads; rows whose neighbours lie side by side (a sum over the
//! first axis), taken together so that memory is streamed once; and norms, whose rows are held whole.

use smallvec::SmallVec;
use tallow_graph::kernel::{Layout, Operand, RowKernel, RowOp};
use tallow_graph::{DType, Error, Result};

use super::class::{Class, Num, with_class};
use super::exec::slice;
use super::expr::Block;
use super::norm::normalise;
use super::pool;
use super::reduce::{Columns, State};
use super::scratch::{self, FirstError};
use super::step::StepRun;
use super::turn::{TILE, turn};
use super::walk::{Bound, Nest, Walker, Words, block_size, elements};
use crate::prefetch::prefetch;

/// Elements that are worth a thread's while.
const GRAIN: usize = 16 << 10;
/// Most pieces of a very long row; beyond this they grow.
const MAX_PIECES: usize = 4096;

/// Most elements of a window.
const WINDOW: usize = 64;
/// Most elements of a row that is too short to be read by itself.
const SHORT: usize = 4;

/// Elements of a piece of a very long row.
const PIECE: usize = 32 << 10;

/// Values of a row in memory that are taken at a time.
const RUN: usize = 4096;
/// Bytes of the rows that are turned at a time, at most.
const TURNED: usize = 4 << 20;

/// The two expressions of a row kernel, compiled.
#[derive(Debug)]
pub(crate) struct Row {
    pub(super) before: Block,
    pub(super) after: Block,
}

/// Whether the CPU runs this kernel: means and norms are of floats.
pub(crate) fn supports(kernel: &RowKernel) -> bool {
    let float = kernel.before.dtype().is_some_and(DType::is_float);
    let needs_float = !kernel.op.reduces() || kernel.op == RowOp::Mean;
    (float || !needs_float) && (kernel.op.reduces() || kernel.inner == 1)
}

/// Compiles a row kernel.
pub(crate) fn compile(kernel: &RowKernel) -> Result<Row> {
    let before = Block::compile(&kernel.before, &kernel.operands, None)?;
    let mut operands = kernel.operands.clone();
    if kernel.op.reduces() {
        // The nest of `after` is the outer axes alone, and the layouts were told for the whole.
        for Operand { layout, .. } in &mut operands {
            if *layout == Layout::Linear {
                *layout = Layout::Strided;
            }
        }
    }
    let after = Block::compile(&kernel.after, &operands, Some(kernel.accumulator))?;
    let arg = matches!(kernel.op, RowOp::ArgMax | RowOp::ArgMin);
    let acc = if arg { Class::U32 } else { before.class };
    if Class::of(kernel.accumulator) != acc {
        return Err(Error::msg(format!("a row kernel accumulates {acc:?}, not {}", kernel.accumulator)));
    }
    Ok(Row { before, after })
}

/// A row kernel at work.
struct Job<'a> {
    step: &'a StepRun<'a>,
    op: RowOp,
    before: Nest<'a>,
    after: Nest<'a>,
    output: Bound<'a>,
    rows: usize,
    inner: usize,
    /// Axes that `inner` elements lie along.
    inner_axes: usize,
    eps: f64,
}

/// Runs a row kernel.
pub(crate) fn run(step: &StepRun<'_>, kernel: &RowKernel, row: &Row) -> Result<()> {
    let (outer, inner) = (usize::from(kernel.outer), usize::from(kernel.inner));
    let mut words = Words(step.words);
    let sizes = words.sizes(outer + inner)?;
    let operands = step.bind(&kernel.operands, sizes, &mut words)?;
    let (outer_sizes, inner_sizes) = sizes.split_at(outer);
    let (rows, count) = (elements(outer_sizes)?, elements(inner_sizes)?);
    let reduces = kernel.op.reduces();
    if rows == 0 || (count == 0 && !reduces) {
        return Ok(());
    }
    // Checked before anything is computed from sizes: products must not overflow.
    elements(sizes)?;
    let total = if reduces { rows } else { rows * count };
    let dtype = row.after.dtype;
    let out = step.output_for(0, dtype, total)?;
    let output = Bound { at: out.at, offset: 0, strides: &[], aligned: true };
    let outer_operands: SmallVec<[Bound<'_>; 4]> =
        operands.iter().map(|o| Bound { strides: &o.strides[..outer], ..*o }).collect();
    let nest = |block, sizes, operands| Nest { isa: step.isa, block, sizes, operands, scalars: step.scalars };
    let before = nest(&row.before, sizes, &operands);
    let after =
        if reduces { nest(&row.after, outer_sizes, &outer_operands) } else { nest(&row.after, sizes, &operands) };
    let eps = match kernel.op {
        RowOp::RmsNorm | RowOp::LayerNorm => step.scalar(0)?.to_f64(),
        _ => 0.0,
    };
    let job = Job { step, op: kernel.op, before, after, output, rows, inner: count, inner_axes: inner, eps };
    with_class!(row.before.class, T => {
        if !reduces {
            job.norms::<T>()
        } else if let Some(done) =
            SideBySide::windows(kernel, sizes, &operands).and_then(|_| pool::run(step, kernel, row, sizes, &operands, out.at))
        {
            done
        } else if let Some(side_by_side) =
            SideBySide::of(kernel, sizes, &operands).or_else(|| SideBySide::windows(kernel, sizes, &operands))
        {
            job.columns::<T>(&side_by_side)
        } else if rows < 2 * step.pool.threads() && count >= 2 * PIECE {
            job.long_rows::<T>()
        } else {
            job.rows::<T>()
        }
    })
}

impl Job<'_> {
    /// Cuts `items` of `cost` elements each over the threads.
    fn split(&self, items: usize, cost: usize, task: &(dyn Fn(usize, usize) -> Result<()> + Sync)) -> Result<()> {
        let failed = FirstError::default();
        self.step.pool.run_ranges(items, GRAIN / cost.max(1), &|range| failed.note(task(range.start, range.end)));
        failed.done()
    }

    /// Stores the results of rows `from..from + n`, whose accumulators are at `accs`.
    ///
    /// # Safety
    /// `accs` holds `n` values of the accumulator's class; the rows' outputs are nobody else's.
    unsafe fn store(&self, after: &mut Walker<'_>, accs: *const u8, from: usize, n: usize) {
        let width = if matches!(self.op, RowOp::ArgMax | RowOp::ArgMin) { 4 } else { self.before.block.class.size() };
        let mut done = 0;
        while done < n {
            let count = after.capacity().min(n - done);
            after.set_acc(0, accs.wrapping_add(done * width));
            // SAFETY: the caller's.
            unsafe { after.run_and_store(Layout::Linear, self.output, from + done, count) };
            done += count;
        }
    }

    /// Reductions of rows, row by row.
    fn rows<T: Num>(&self) -> Result<()> {
        self.split(self.rows, self.inner, &|from, to| {
            let size = block_size(self.before.block, (to - from) * self.inner);
            // Short rows are evaluated several at a time.
            let group = (size / self.inner.max(1)).clamp(1, 256);
            let many = block_size(self.after.block, group.max(64).min(to - from));
            let accs = many.max(group);
            let bytes = Walker::scratch(self.before.block, size);
            scratch::with(scratch::REGISTERS, bytes + Walker::scratch(self.after.block, many) + accs * 8, |memory| {
                // SAFETY: three parts of this call's scratch memory.
                let (mut before, mut after) = unsafe {
                    let after = Walker::new(&self.after, memory.wrapping_add(bytes), many)?;
                    (Walker::new(&self.before, memory, size)?, after)
                };
                let accs_at = memory.wrapping_add(bytes + Walker::scratch(self.after.block, many));
                let (mut row, mut first) = (from, from);
                while row < to {
                    if self.inner > size
                        && to - row >= 4
                        && accs - (row - first) >= 4
                        && let Some(states) = self.four_rows::<T>(&before, row)
                    {
                        for (i, state) in states.iter().enumerate() {
                            // SAFETY: `accs_at` has room for `accs` values.
                            unsafe { state.finish(self.op, self.inner, accs_at, row - first + i) };
                        }
                        row += 4;
                    } else if self.inner > size {
                        let mut state = State::<T>::new(self.op);
                        let in_place = before.in_place(row * self.inner, self.inner);
                        let mut at = 0;
                        while at < self.inner {
                            let n = if in_place.is_some() { RUN } else { size }.min(self.inner - at);
                            // SAFETY: inside the nest; inputs are not written while a step runs.
                            let x = unsafe {
                                match in_place {
                                    Some(x) => slice(x.cast::<T>().wrapping_add(at).cast(), n),
                                    None => before.values::<T>(row * self.inner + at, n),
                                }
                            };
                            state.take(self.step.isa, self.op, x, at);
                            at += n;
                        }
                        // SAFETY: `accs_at` has room for `accs` values.
                        unsafe { state.finish(self.op, self.inner, accs_at, row - first) };
                        row += 1;
                    } else {
                        let n = group.min(to - row).min(accs - (row - first));
                        // SAFETY: as above; a group is at most a block.
                        let x = unsafe { before.values::<T>(row * self.inner, n * self.inner) };
                        for i in 0..n {
                            let mut state = State::<T>::new(self.op);
                            state.take(self.step.isa, self.op, &x[i * self.inner..(i + 1) * self.inner], 0);
                            // SAFETY: as above.
                            unsafe { state.finish(self.op, self.inner, accs_at, row - first + i) };
                        }
                        row += n;
                    }
                    if row == to || row - first == accs {
                        // SAFETY: these rows are this task's own.
                        unsafe { self.store(&mut after, accs_at, first, row - first) };
                        first = row;
                    }
                }
                Ok(())
            })
        })
    }

    /// What four rows from `row` on reduce to, read side by side; `None` where they do not lie as they are taken, or where
    /// that would not be faster.
    fn four_rows<T: Num>(&self, before: &Walker<'_>, row: usize) -> Option<[State<T>; 4]> {
        let mut states = [State::<T>::new(self.op); 4];
        let mut places = [std::ptr::null(); 4];
        for (i, place) in places.iter_mut().enumerate() {
            *place = before.in_place((row + i) * self.inner, self.inner)?.cast::<T>();
        }
        for at in (0..self.inner).step_by(RUN) {
            let n = RUN.min(self.inner - at);
            // SAFETY: inside the nest; inputs are not written while a step runs.
            let x = places.map(|place| unsafe { slice(place.wrapping_add(at).cast(), n) });
            if !State::take_four(&mut states, self.step.isa, self.op, x) {
                return None;
            }
        }
        Some(states)
    }

    /// Reductions of a few very long rows: pieces of fixed size, so that the result does not depend on the threads.
    fn long_rows<T: Num>(&self) -> Result<()> {
        // Their number is bounded too: a broadcast row may have any length at no memory.
        let piece_len = PIECE.max(self.inner.div_ceil(MAX_PIECES));
        let pieces = self.inner.div_ceil(piece_len);
        let states: Vec<std::sync::Mutex<State<T>>> =
            (0..self.rows * pieces).map(|_| std::sync::Mutex::new(State::new(self.op))).collect();
        let failed = FirstError::default();
        self.step.pool.run(states.len(), &|task| {
            let (row, piece) = (task / pieces, task % pieces);
            let (start, end) = (piece * piece_len, ((piece + 1) * piece_len).min(self.inner));
            let size = block_size(self.before.block, end - start);
            let bytes = Walker::scratch(self.before.block, size);
            failed.note(scratch::with(scratch::REGISTERS, bytes, |memory| {
                // SAFETY: this call's scratch memory.
                let mut before = unsafe { Walker::new(&self.before, memory, size)? };
                let mut state = State::<T>::new(self.op);
                let mut at = start;
                while at < end {
                    let n = size.min(end - at);
                    // SAFETY: inside the nest; inputs are not written while a step runs.
                    state.take(self.step.isa, self.op, unsafe { before.values::<T>(row * self.inner + at, n) }, at);
                    at += n;
                }
                *states[task].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = state;
                Ok(())
            }));
        });
        failed.done()?;
        let many = block_size(self.after.block, self.rows);
        let bytes = Walker::scratch(self.after.block, many);
        scratch::with(scratch::REGISTERS, bytes + self.rows * 8, |memory| {
            // SAFETY: this call's scratch memory.
            let mut after = unsafe { Walker::new(&self.after, memory, many)? };
            let accs = memory.wrapping_add(bytes);
            for (row, states) in states.chunks(pieces).enumerate() {
                let mut whole = State::<T>::new(self.op);
                for state in states {
                    whole.merge(self.op, &state.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                }
                // SAFETY: `accs` has room for all rows.
                unsafe { whole.finish(self.op, self.inner, accs, row) };
            }
            // SAFETY: nobody else works on the output.
            unsafe { self.store(&mut after, accs, 0, self.rows) };
            Ok(())
        })
    }

    /// Reductions whose rows lie side by side.
    fn columns<T: Num>(&self, side: &SideBySide<'_>) -> Result<()> {
        let nest = Nest { sizes: &side.sizes, operands: &side.bounds(), ..self.before };
        let width = side.width;
        // Equal pieces, two a thread if they are still wide. Columns do not mix: the cut changes no result.
        let (most, high) = (block_size(self.before.block, width), self.rows / width);
        let pieces = (2 * self.step.pool.threads()).div_ceil(high.max(1)).min(width.div_ceil(512));
        let size = width.div_ceil(pieces.max(width.div_ceil(most))).next_multiple_of(8).min(most);
        let blocks = width.div_ceil(size);
        // Bytes from one of a column's values to the next, where they lie as they are taken.
        let step = nest.plain().filter(|_| self.inner_axes == 1).and_then(|(_, bound)| {
            let stride = *bound.strides.iter().rev().nth(1)?;
            Some(stride as isize * size_of::<T>() as isize)
        });
        self.split(high * blocks, self.inner * size, &|from, to| {
            let bytes = [
                Walker::scratch(self.before.block, size),
                Walker::scratch(self.after.block, size),
                Columns::<T>::bytes(size),
                size * 8,
            ];
            scratch::with(scratch::REGISTERS, bytes.iter().sum(), |memory| {
                let parts = [bytes[0], bytes[0] + bytes[1], bytes[0] + bytes[1] + bytes[2]];
                // SAFETY: two parts of this call's scratch memory.
                let (mut before, mut after) = unsafe {
                    let after = Walker::new(&self.after, memory.wrapping_add(parts[0]), size)?;
                    (Walker::new_strided(&nest, memory, size)?, after)
                };
                let accs = memory.wrapping_add(parts[2]);
                for task in from..to {
                    let (high, start) = (task / blocks, task % blocks * size);
                    let n = size.min(width - start);
                    // SAFETY: the third part of the scratch memory.
                    let mut columns = unsafe { Columns::<T>::new(self.op, memory.wrapping_add(parts[1]), n) };
                    let first = high * self.inner * width + start;
                    let in_place = step.zip(before.in_place(first, n));
                    for k in 0..self.inner {
                        // SAFETY: inside the nest; inputs are not written while a step runs.
                        let x = unsafe {
                            match in_place {
                                Some((step, at)) => {
                                    let x = at.wrapping_offset(k as isize * step);
                                    prefetch(x.wrapping_offset(2 * step), n * size_of::<T>());
                                    slice(x, n)
                                }
                                None => before.values::<T>(first + k * width, n),
                            }
                        };
                        columns.take(self.step.isa, self.op, x, k);
                    }
                    // SAFETY: the last part of the scratch memory; the rows are this task's own.
                    unsafe {
                        columns.finish(self.op, self.inner, accs);
                        self.store(&mut after, accs, high * width + start, n);
                    }
                }
                Ok(())
            })
        })
    }

    /// Norms: as many results as elements.
    fn norms<T: Num>(&self) -> Result<()> {
        let inner = self.inner;
        let turned = self.turned::<T>();
        // Rows that are brought into order together, and how many such bands there are.
        let (band, width) = turned.map_or((1, 1), |turned| (TILE, turned.width));
        let bands = width.div_ceil(band);
        self.split(self.rows / width * bands, inner * band, &|from, to| {
            let size = block_size(self.before.block, (to - from) * band * inner);
            let many = block_size(self.after.block, (to - from) * band * inner);
            let bytes = Walker::scratch(self.before.block, size);
            let held = (band * inner * size_of::<T>()).next_multiple_of(64);
            scratch::with(scratch::REGISTERS, bytes + Walker::scratch(self.after.block, many) + held, |memory| {
                // SAFETY: two parts of this call's scratch memory.
                let (mut before, mut after) = unsafe {
                    let after = Walker::new(&self.after, memory.wrapping_add(bytes), many)?;
                    (Walker::new(&self.before, memory, size)?, after)
                };
                let held = memory.wrapping_add(bytes + Walker::scratch(self.after.block, many));
                for task in from..to {
                    let (start, count) =
                        (task / bands * width + task % bands * band, band.min(width - task % bands * band));
                    if let Some(turned) = turned {
                        let from = before.address(&turned.bound, start * inner);
                        // SAFETY: `bind` checked the nest; the rows' memory is this call's own.
                        unsafe { turn(size_of::<T>(), from, turned.stride, held, count, inner) };
                    }
                    for row in start..start + count {
                        let row_at = held.wrapping_add((row - start) * inner * size_of::<T>());
                        // SAFETY: inside the nest; the row's memory is this call's own; the outputs are this task's.
                        unsafe {
                            let x = match before.in_place(row * inner, inner) {
                                Some(x) => x,
                                None if turned.is_some() => row_at.cast_const(),
                                None => {
                                    let mut at = 0;
                                    while at < inner {
                                        let n = size.min(inner - at);
                                        before.run(row * inner + at, n, Some(row_at.wrapping_add(at * size_of::<T>())));
                                        at += n;
                                    }
                                    row_at.cast_const()
                                }
                            };
                            let direct = self.after.block.is_acc && self.after.block.dtype == DType::F32;
                            let to = if direct { self.output.at.wrapping_add(row * inner * 4) } else { row_at };
                            normalise::<T>(self.step.isa, self.op, self.eps, x, to, inner);
                            if !direct {
                                self.store(&mut after, row_at, row * inner, inner);
                            }
                        }
                    }
                }
                Ok(())
            })
        })
    }

    /// Whether the rows of a norm lie side by side in memory, as they are computed with.
    fn turned<T: Num>(&self) -> Option<Turned<'_>> {
        let (_, bound) = self.before.plain()?;
        let axes = bound.strides.len();
        let (width, stride) = (*self.before.sizes.get(axes.checked_sub(2)?)? as usize, bound.strides[axes - 1]);
        let apart = bound.strides[axes - 2] == 1 && !matches!(stride, 0 | 1);
        let fits = TILE * self.inner * size_of::<T>() <= TURNED;
        (apart && fits && self.inner_axes == 1 && width >= TILE).then_some(Turned { bound, width, stride })
    }
}

/// Rows of a norm that lie side by side.
#[derive(Clone, Copy)]
struct Turned<'a> {
    bound: Bound<'a>,
    /// How many neighbours there are.
    width: usize,
    /// From one value of a row to the next.
    stride: i64,
}

/// A nest turned so that its innermost axis is the last outer axis (or so that all outer axes are inside): rows side by
/// side.
struct SideBySide<'a> {
    sizes: SmallVec<[i64; 8]>,
    operands: SmallVec<[(Bound<'a>, SmallVec<[i64; 8]>); 4]>,
    width: usize,
}

impl<'a> SideBySide<'a> {
    /// Whether an operand's neighbours along the last outer axis, and not those along its rows, lie side by side.
    fn of(kernel: &RowKernel, sizes: &[i64], operands: &[Bound<'a>]) -> Option<Self> {
        let outer = usize::from(kernel.outer);
        let inner = usize::from(kernel.inner);
        let width = *sizes[..outer].last()? as usize;
        if inner == 0 || width < 4 {
            return None;
        }
        let turned = operands.iter().zip(&kernel.operands).any(|(bound, operand)| {
            let along = bound.strides[outer + inner - 1];
            operand.input.is_some() && bound.strides[outer - 1] == 1 && along != 1 && along != 0
        });
        if turned { Some(Self::turn(sizes, operands, outer, outer - 1, width)) } else { None }
    }

    /// Whether the rows are windows: a few elements each, on axes that do not run on into one another. All rows then lie
    /// side by side, so that blocks are filled across the rows of an image.
    fn windows(kernel: &RowKernel, sizes: &[i64], operands: &[Bound<'a>]) -> Option<Self> {
        let (outer, inner) = (usize::from(kernel.outer), usize::from(kernel.inner));
        let rows = elements(&sizes[..outer]).ok()?;
        let count = elements(&sizes[outer..]).ok()?;
        if outer == 0 || inner == 0 || count == 0 || rows < 64 {
            return None;
        }
        // One axis of neighbours is read faster row by row, unless the rows are very short.
        let in_order = operands.iter().all(|bound| bound.strides[outer + inner - 1].abs() <= 1);
        let most = if inner == 1 && in_order { SHORT } else { WINDOW };
        (count <= most).then(|| Self::turn(sizes, operands, outer, 0, rows))
    }

    /// Puts the inner axes before the outer ones from `first` on.
    fn turn(sizes: &[i64], operands: &[Bound<'a>], outer: usize, first: usize, width: usize) -> Self {
        let turn = |words: &[i64]| -> SmallVec<[i64; 8]> {
            words[..first].iter().chain(&words[outer..]).chain(&words[first..outer]).copied().collect()
        };
        let operands = operands.iter().map(|bound| (*bound, turn(bound.strides))).collect();
        Self { sizes: turn(sizes), operands, width }
    }

    fn bounds(&self) -> SmallVec<[Bound<'_>; 4]> {
        self.operands.iter().map(|(bound, strides)| Bound { strides, ..*bound }).collect()
    }
}
