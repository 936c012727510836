//! The order of elements along an axis. Elements become unsigned numbers in the same order, each with its position below it, so
//! that one sort of plain numbers is stable.

use tallow_graph::kernel::SortKernel;
use tallow_graph::{DType, Error, Result};

use super::axes::{Axes, offset, read};
use super::memory::Mem;
use super::scatter::is_wide;
use super::scratch::FirstError;
use super::step::StepRun;
use super::walk::{Bound, Words};

/// Elements that are worth a thread's while.
const GRAIN: usize = 2 << 10;
/// A row of so many elements is sorted by all threads, where there are fewer rows than threads.
const LONG: usize = 64 << 10;

/// From so many 32-bit ranks on, sorting by digits is quicker than by comparisons, and then by longer digits.
const FEW: usize = 200;
const MANY: usize = 32 << 10;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &SortKernel) -> bool {
    is_wide(kernel.dtype)
}

/// Runs a sort: in parallel over the rows, or within them where they are few and long.
pub(crate) fn run(step: &StepRun<'_>, kernel: &SortKernel) -> Result<()> {
    let mut words = Words(step.words);
    let axes = Axes::take(&mut words)?;
    let total = axes.count()?;
    if total == 0 {
        return Ok(());
    }
    if u32::try_from(axes.along).is_err() {
        return Err(Error::op("sort", format!("{} elements are more than U32 positions can count", axes.along)));
    }
    let out = step.output_for(0, DType::U32, total)?;
    let source = axes.bind(step.input(0)?, kernel.dtype, &mut words)?;
    let task = Task { axes, source: &source, descending: kernel.descending, out };
    match kernel.dtype {
        DType::U32 => task.run(step, |x: u32| (u64::from(x), u64::from(u32::MAX))),
        DType::I32 => task.run(step, |x: i32| (u64::from(x.cast_unsigned() ^ (1 << 31)), u64::from(u32::MAX))),
        DType::F32 => task.run(step, |x: f32| (u64::from(rank_f32(x)), u64::from(u32::MAX))),
        DType::U64 => task.run_wide(step, |x: u64| x),
        DType::I64 => task.run_wide(step, |x: i64| x.cast_unsigned() ^ (1 << 63)),
        _ => task.run_wide(step, rank_f64),
    }
}

/// The place among all floats: equal for -0 and 0, and for every NaN, which comes last.
fn rank_f32(x: f32) -> u32 {
    // Without branches: signs are hard to foretell. Adding 0 makes 0 of -0.
    let bits = (x + 0.0).to_bits();
    let negative = (bits >> 31).wrapping_neg();
    let rank = bits ^ (negative | 1 << 31);
    rank | u32::from(x.is_nan()).wrapping_neg()
}

/// As [`rank_f32`].
fn rank_f64(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    let negative = (bits >> 63).wrapping_neg();
    let rank = bits ^ (negative | 1 << 63);
    rank | u64::from(x.is_nan()).wrapping_neg()
}

/// What is sorted: a rank above a position.
trait Key: Copy + Default + Ord + Send + Sync {
    fn position(self) -> u32;
    /// Sorts keys whose positions ascend. `spare` is as long, and is left with anything.
    fn sort(keys: &mut [Self], spare: &mut [Self]);
}

impl Key for u64 {
    fn position(self) -> u32 {
        self as u32
    }

    fn sort(keys: &mut [u64], spare: &mut [u64]) {
        match keys.len() {
            0..FEW => keys.sort_unstable(),
            FEW..MANY => by_digits::<4, 256>(keys, spare),
            _ => by_digits::<3, 2048>(keys, spare),
        }
    }
}

impl Key for (u64, u32) {
    fn position(self) -> u32 {
        self.1
    }

    fn sort(keys: &mut [Self], _: &mut [Self]) {
        keys.sort_unstable();
    }
}

/// Sorts by the upper halves, a digit of log2(`SIZE`) bits at a time from the lowest on (radix sort). Keys of one digit keep
/// their order, so equal upper halves stay in the order of their positions.
fn by_digits<const DIGITS: usize, const SIZE: usize>(keys: &mut [u64], spare: &mut [u64]) {
    let mut starts = [[0u32; SIZE]; DIGITS];
    for &key in keys.iter() {
        for (d, counts) in starts.iter_mut().enumerate() {
            counts[digit::<SIZE>(key, d)] += 1;
        }
    }
    let count = keys.len() as u32;
    let (mut from, mut to) = (&mut *keys, &mut *spare);
    let mut swapped = false;
    for (d, starts) in starts.iter_mut().enumerate() {
        if starts.contains(&count) {
            // All have the same digit here.
            continue;
        }
        let mut sum = 0;
        for start in starts.iter_mut() {
            (*start, sum) = (sum, sum + *start);
        }
        // Each digit has its own loop: a processor learns of each whether its counters are often the ones just written.
        match d {
            0 => by_digit::<SIZE, 0>(from, to, starts),
            1 => by_digit::<SIZE, 1>(from, to, starts),
            2 => by_digit::<SIZE, 2>(from, to, starts),
            _ => by_digit::<SIZE, 3>(from, to, starts),
        }
        (from, to) = (to, from);
        swapped = !swapped;
    }
    if swapped {
        keys.copy_from_slice(&spare[..keys.len()]);
    }
}

/// Digit `d` of a key's upper half.
fn digit<const SIZE: usize>(key: u64, d: usize) -> usize {
    (key >> (32 + d as u32 * SIZE.ilog2())) as usize % SIZE
}

/// Brings keys to the places of their digit `D`, where those of each digit `start`.
#[inline(never)]
fn by_digit<const SIZE: usize, const D: usize>(from: &[u64], to: &mut [u64], starts: &mut [u32; SIZE]) {
    for &key in from {
        let start = &mut starts[digit::<SIZE>(key, D)];
        if let Some(place) = to.get_mut(*start as usize) {
            *place = key;
        }
        *start += 1;
    }
}

struct Task<'a> {
    axes: Axes,
    source: &'a Bound<'a>,
    descending: bool,
    out: Mem,
}

impl Task<'_> {
    /// By ranks of 32 bits; `rank` also gives the highest one.
    fn run<T: Copy>(&self, step: &StepRun<'_>, rank: impl Fn(T) -> (u64, u64) + Sync) -> Result<()> {
        self.rows(step, |x: T, at| {
            let (rank, most) = rank(x);
            (if self.descending { most - rank } else { rank }) << 32 | u64::from(at)
        })
    }

    /// By ranks of 64 bits.
    fn run_wide<T: Copy>(&self, step: &StepRun<'_>, rank: impl Fn(T) -> u64 + Sync) -> Result<()> {
        self.rows(step, |x: T, at| (if self.descending { u64::MAX - rank(x) } else { rank(x) }, at))
    }

    fn rows<T: Copy, K: Key>(&self, step: &StepRun<'_>, key: impl Fn(T, u32) -> K + Sync) -> Result<()> {
        let count = self.axes.outer * self.axes.inner;
        if count < step.pool.threads() && self.axes.along >= LONG {
            for row in 0..count {
                let (mut keys, mut spare) = (room(self.axes.along)?, room(self.axes.along)?);
                self.keys(row, &key, &mut keys);
                spare.resize(keys.len(), K::default());
                let sorted = sort_long(step, &mut keys, &mut spare);
                self.store(row, sorted);
            }
            return Ok(());
        }
        let failed = FirstError::default();
        step.pool.run_ranges(count, (GRAIN / self.axes.along).max(1), &|range| {
            failed.note(room(self.axes.along).and_then(|mut keys| {
                let mut spare = room(self.axes.along)?;
                spare.resize(self.axes.along, K::default());
                for row in range {
                    self.keys(row, &key, &mut keys);
                    K::sort(&mut keys, &mut spare);
                    self.store(row, &keys);
                }
                Ok(())
            }));
        });
        failed.done()
    }

    /// The keys of a row.
    fn keys<T: Copy, K: Key>(&self, row: usize, key: impl Fn(T, u32) -> K, keys: &mut Vec<K>) {
        let first = offset(self.source.strides, [row / self.axes.inner, 0, row % self.axes.inner]);
        let mut fill = |stride: isize| {
            keys.clear();
            keys.extend((0..self.axes.along as u32).map(|i| {
                // SAFETY: the source was bound for these axes.
                let value: T = unsafe { read(self.source, first + i as isize * stride) };
                key(value, i)
            }));
        };
        // The loop is compiled twice, so that elements that follow one another are read by vectors.
        match self.source.strides[1] as isize {
            1 => fill(1),
            stride => fill(stride),
        }
    }

    fn store<K: Key>(&self, row: usize, keys: &[K]) {
        let (outer, inner) = (row / self.axes.inner, row % self.axes.inner);
        for (i, key) in keys.iter().enumerate() {
            let at = (outer * self.axes.along + i) * self.axes.inner + inner;
            // SAFETY: the output has room for all elements, and each row belongs to one thread.
            unsafe { self.out.at().cast::<u32>().add(at).write(key.position()) };
        }
    }
}

/// Room for `count` keys.
fn room<K>(count: usize) -> Result<Vec<K>> {
    let mut keys = Vec::new();
    keys.try_reserve_exact(count).map_err(|_| Error::OutOfMemory {
        device: "cpu".to_owned(),
        bytes: (count * size_of::<K>()) as u64,
        hint: "Sorting needs working memory. Free tensors, or sort a part at a time",
    })?;
    Ok(keys)
}

/// Sorts a long row by all threads: pieces, which are then merged in pairs from one buffer into the other. Keys differ from
/// one another, so that there is one result.
fn sort_long<'a, K: Key>(step: &StepRun<'_>, keys: &'a mut [K], spare: &'a mut [K]) -> &'a [K] {
    let pieces = step.pool.threads().next_power_of_two();
    let mut size = keys.len().div_ceil(pieces);
    {
        let pieces: Vec<_> = keys.chunks_mut(size).zip(spare.chunks_mut(size)).map(std::sync::Mutex::new).collect();
        step.pool.run(pieces.len(), &|i| {
            if let Ok(mut piece) = pieces[i].lock() {
                let (keys, spare) = &mut *piece;
                K::sort(keys, spare);
            }
        });
    }
    let (mut from, mut to) = (keys, spare);
    while size < from.len() {
        let sorted = &*from;
        each_piece(step, to, 2 * size, |first, piece| {
            let middle = (first + size).min(sorted.len());
            let (mut a, mut b) = (&sorted[first..middle], &sorted[middle..first + piece.len()]);
            for out in piece {
                let left = match (a.first(), b.first()) {
                    (Some(x), Some(y)) => x <= y,
                    (x, _) => x.is_some(),
                };
                let side = if left { &mut a } else { &mut b };
                if let Some((first, rest)) = side.split_first() {
                    (*out, *side) = (*first, rest);
                }
            }
        });
        (from, to) = (to, from);
        size *= 2;
    }
    from
}

/// Calls `f(position of the first, piece)` for each piece of `size` elements, on several threads.
fn each_piece<K: Key>(step: &StepRun<'_>, all: &mut [K], size: usize, f: impl Fn(usize, &mut [K]) + Sync) {
    // Each piece behind a lock of its own that nobody else asks for.
    let pieces: Vec<_> = all.chunks_mut(size).map(std::sync::Mutex::new).collect();
    step.pool.run(pieces.len(), &|i| {
        if let Ok(mut piece) = pieces[i].lock() {
            f(i * size, &mut piece);
        }
    });
}
