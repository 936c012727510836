//! Reductions of runs of values: a state takes runs one after the other, and states of adjacent runs merge.

use tallow_graph::kernel::RowOp;

use super::class::{Class, Num};
use super::exec::{slice, slice_mut};
use crate::{Isa, rows};

/// What a reduction knows of the values so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State<T> {
    value: T,
    /// The sum of f32 values: each run is summed in lanes of f32, the runs in f64.
    wide: f64,
    /// Position of the extremum, for arg reductions.
    at: u32,
    is_empty: bool,
}

/// `T`'s slice as f32, where it is f32.
fn as_f32<T: Num>(x: &[T]) -> Option<&[f32]> {
    // SAFETY: the class says that `T` is f32 itself.
    (T::CLASS == Class::F32).then(|| unsafe { slice(x.as_ptr().cast(), x.len()) })
}

/// As [`as_f32`], to write.
fn as_f32_mut<T: Num>(x: &mut [T]) -> Option<&mut [f32]> {
    // SAFETY: as above.
    (T::CLASS == Class::F32).then(|| unsafe { slice_mut(x.as_mut_ptr().cast(), x.len()) })
}

/// Folds in eight lanes, so that the additions do not wait for one another.
fn lanes<T: Num>(x: &[T], start: T, f: impl Fn(T, T) -> T) -> T {
    let (chunks, rest) = x.as_chunks::<8>();
    let mut acc = [start; 8];
    for chunk in chunks {
        for (acc, &x) in acc.iter_mut().zip(chunk) {
            *acc = f(*acc, x);
        }
    }
    acc.iter().chain(rest).fold(start, |a, &b| f(a, b))
}

/// Whether `b` takes the place of `a` in an arg reduction, where `a` comes first.
#[inline(always)]
fn beats<T: Num>(op: RowOp, a: T, b: T) -> bool {
    if a.is_nan() {
        return false;
    }
    b.is_nan() || if matches!(op, RowOp::ArgMin) { b < a } else { b > a }
}

impl<T: Num> State<T> {
    /// Of nothing.
    pub fn new(op: RowOp) -> Self {
        let value = match op {
            RowOp::Prod => T::ONE,
            RowOp::Max | RowOp::ArgMax => T::LOWEST,
            RowOp::Min | RowOp::ArgMin => T::HIGHEST,
            _ => T::default(),
        };
        Self { value, wide: 0.0, at: 0, is_empty: true }
    }

    /// Takes the values `x`, the first of which has position `at` in its row.
    pub fn take(&mut self, isa: Isa, op: RowOp, x: &[T], at: usize) {
        match op {
            RowOp::Sum | RowOp::Mean => match as_f32(x) {
                Some(x) => self.wide += f64::from(rows::reduce::sum(isa, x)),
                None => self.value = self.value.add(lanes(x, T::default(), T::add)),
            },
            RowOp::Prod => self.value = self.value.mul(lanes(x, T::ONE, T::mul)),
            RowOp::Max => {
                let top = match as_f32(x) {
                    Some(x) => T::from_f32(rows::reduce::max(isa, x)),
                    None => lanes(x, T::LOWEST, T::maximum),
                };
                self.value = self.value.maximum(top);
            }
            RowOp::Min => {
                let low = match as_f32(x) {
                    Some(x) => T::from_f32(rows::reduce::min(isa, x)),
                    None => lanes(x, T::HIGHEST, T::minimum),
                };
                self.value = self.value.minimum(low);
            }
            _ => {
                let best = match (as_f32(x), op) {
                    (Some(x), RowOp::ArgMin) => rows::reduce::argmin(isa, x),
                    (Some(x), _) => rows::reduce::argmax(isa, x),
                    (None, _) => (0..x.len()).reduce(|a, b| if beats(op, x[a], x[b]) { b } else { a }),
                };
                if let Some(best) = best
                    && (self.is_empty || beats(op, self.value, x[best]))
                {
                    (self.value, self.at) = (x[best], (at + best) as u32);
                }
            }
        }
        self.is_empty &= x.is_empty();
    }

    /// Takes the next values of four rows at once, where that is faster than row after row; false where it is not.
    pub fn take_four(states: &mut [Self; 4], isa: Isa, op: RowOp, x: [&[T]; 4]) -> bool {
        let [Some(a), Some(b), Some(c), Some(d)] = x.map(as_f32) else { return false };
        if !matches!(op, RowOp::Sum | RowOp::Mean) {
            return false;
        }
        for ((state, sum), x) in states.iter_mut().zip(rows::reduce::sums(isa, [a, b, c, d])).zip(x) {
            state.wide += f64::from(sum);
            state.is_empty &= x.is_empty();
        }
        true
    }

    /// Takes what another state knows of the values that follow.
    pub fn merge(&mut self, op: RowOp, next: &Self) {
        match op {
            RowOp::Sum | RowOp::Mean => {
                self.wide += next.wide;
                self.value = self.value.add(next.value);
            }
            RowOp::Prod => self.value = self.value.mul(next.value),
            RowOp::Max => self.value = self.value.maximum(next.value),
            RowOp::Min => self.value = self.value.minimum(next.value),
            _ if next.is_empty => {}
            _ if self.is_empty || beats(op, self.value, next.value) => (self.value, self.at) = (next.value, next.at),
            _ => {}
        }
        self.is_empty &= next.is_empty;
    }

    /// Writes the result over `count` values: of class `T`, or u32 for arg reductions.
    ///
    /// # Safety
    /// `to` has room for one value of that class at index `i`, aligned, unshared.
    pub unsafe fn finish(&self, op: RowOp, count: usize, to: *mut u8, i: usize) {
        let sum = if T::CLASS == Class::F32 { T::from_f64(self.wide) } else { self.value };
        let value = match op {
            RowOp::ArgMax | RowOp::ArgMin => {
                // SAFETY: the caller's.
                unsafe { to.cast::<u32>().add(i).write(self.at) };
                return;
            }
            RowOp::Mean if T::CLASS == Class::F32 => T::from_f64(self.wide / count as f64),
            RowOp::Mean => T::from_f64(self.value.to_f64() / count as f64),
            RowOp::Sum => sum,
            _ => self.value,
        };
        // SAFETY: the caller's.
        unsafe { to.cast::<T>().add(i).write(value) };
    }
}

/// States of adjacent rows, side by side: takes one value of each row at a time.
pub(crate) struct Columns<'a, T> {
    value: &'a mut [T],
    /// For f32 sums: what the last rows add up to, before it goes to `total`.
    total: &'a mut [f64],
    at: &'a mut [u32],
}

/// Values that f32 sums take before they are added in f64.
const RUN: usize = 16;

impl<'a, T: Num> Columns<'a, T> {
    /// Bytes for `n` rows.
    pub const fn bytes(n: usize) -> usize {
        n * 24
    }

    /// Of nothing, for `n` rows.
    ///
    /// # Safety
    /// `memory` is [`Columns::bytes`] bytes, aligned to 64, that nobody else uses.
    pub unsafe fn new(op: RowOp, memory: *mut u8, n: usize) -> Self {
        let start = State::<T>::new(op).value;
        // SAFETY: three disjoint parts of the memory.
        let columns = unsafe {
            Self {
                value: slice_mut(memory, n),
                total: slice_mut(memory.wrapping_add(n * 8), n),
                at: slice_mut(memory.wrapping_add(n * 16), n),
            }
        };
        columns.value.fill(start);
        columns.total.fill(0.0);
        columns.at.fill(0);
        columns
    }

    /// Takes value `at` of each row.
    pub fn take(&mut self, isa: Isa, op: RowOp, x: &[T], at: usize) {
        match op {
            RowOp::Sum | RowOp::Mean => {
                if let (Some(x), Some(value)) = (as_f32(x), as_f32_mut(self.value)) {
                    rows::reduce::axpy(isa, 1.0, x, value);
                    if (at + 1).is_multiple_of(RUN) {
                        rows::reduce::carry(isa, value, self.total);
                    }
                } else {
                    each(self.value, x, T::add);
                }
            }
            RowOp::Prod => each(self.value, x, T::mul),
            RowOp::Max => each(self.value, x, T::maximum),
            RowOp::Min => each(self.value, x, T::minimum),
            _ => {
                // Without branches, so that several rows are compared at once: as `beats`.
                let (first, smallest) = (at == 0, op == RowOp::ArgMin);
                if let (Some(x), Some(value)) = (as_f32(x), as_f32_mut(self.value)) {
                    rows::reduce::arg_columns(isa, x, at as u32, smallest, value, self.at);
                    return;
                }
                for ((value, &x), index) in self.value.iter_mut().zip(x).zip(self.at.iter_mut()) {
                    let better = if smallest { x < *value } else { x > *value };
                    let wins = first | (!value.is_nan() & (x.is_nan() | better));
                    *value = if wins { x } else { *value };
                    *index = if wins { at as u32 } else { *index };
                }
            }
        }
    }

    /// Writes the results over `count` values each: of class `T`, or u32 for arg reductions.
    ///
    /// # Safety
    /// `to` has room for as many values of that class as there are rows, aligned, unshared.
    pub unsafe fn finish(&mut self, op: RowOp, count: usize, to: *mut u8) {
        let n = self.value.len();
        if matches!(op, RowOp::ArgMax | RowOp::ArgMin) {
            // SAFETY: the caller's.
            unsafe { slice_mut::<u32>(to, n) }.copy_from_slice(self.at);
            return;
        }
        let sums = matches!(op, RowOp::Sum | RowOp::Mean);
        if sums && T::CLASS == Class::F32 {
            self.value.iter_mut().zip(self.total.iter()).for_each(|(value, &total)| {
                let total = total + value.to_f64();
                *value = T::from_f64(if op == RowOp::Mean { total / count as f64 } else { total });
            });
        } else if op == RowOp::Mean {
            self.value.iter_mut().for_each(|value| *value = T::from_f64(value.to_f64() / count as f64));
        }
        // SAFETY: the caller's.
        unsafe { slice_mut::<T>(to, n) }.copy_from_slice(self.value);
    }
}

fn each<T: Num>(value: &mut [T], x: &[T], f: impl Fn(T, T) -> T) {
    for (value, &x) in value.iter_mut().zip(x) {
        *value = f(*value, x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_merge_as_if_taken_in_one_go() {
        let x: Vec<i32> = (0..100).map(|i| (i * 37) % 50).collect();
        for op in [RowOp::Sum, RowOp::Max, RowOp::Min, RowOp::ArgMax, RowOp::ArgMin] {
            let isa = Isa::best();
            let mut whole = State::new(op);
            whole.take(isa, op, &x, 0);
            let mut merged = State::new(op);
            for (i, part) in x.chunks(7).enumerate() {
                let mut state = State::new(op);
                state.take(isa, op, part, i * 7);
                merged.merge(op, &state);
            }
            assert_eq!((whole.value, whole.at), (merged.value, merged.at), "{op:?}");
        }
    }
}
