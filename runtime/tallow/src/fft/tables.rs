//! The numbers that transforms multiply by: small DFT matrices, rotations between stages, chirps. Computed in f64 on the
//! host, rounded once, and kept with the device, up to a limit.

use super::window::values;
use crate::{DType, Device, Result, Tensor};
use std::sync::Arc;
use tallow_graph::Node;

/// The longest transform: its tables take a few gigabytes.
pub(super) const MAX_LENGTH: usize = 1 << 27;
/// The largest matrix that several prime factors share.
const MAX_SHARED: usize = 64;
/// The largest prime that has a matrix of its own; beyond it, a convolution takes less time.
const MAX_PRIME: usize = 127;
/// What is kept for a device: tables of recent lengths, up to so many and so many bytes together.
const MAX_ENTRIES: usize = 32;
const MAX_BYTES: usize = 32 << 20;

/// (cos, sin) of 2 pi k / n. Exact at quarter turns, and with the symmetries of the circle.
pub(super) fn unit_root(k: u64, n: u64) -> (f64, f64) {
    let (k, n) = (u128::from(k % n), u128::from(n));
    let (quarter, rest) = (4 * k / n, 4 * k % n);
    // The angle within the quarter, from the nearer end of it.
    let angle = |part: u128| (part as f64 / n as f64 * std::f64::consts::FRAC_PI_2).sin_cos();
    let (sin, cos) = if 2 * rest <= n {
        angle(rest)
    } else {
        let (sin, cos) = angle(n - rest);
        (cos, sin)
    };
    match quarter {
        0 => (cos, sin),
        1 => (-sin, cos),
        2 => (-cos, -sin),
        _ => (sin, -cos),
    }
}

/// A table as the cache holds it: a node, without a handle on the device (which holds the cache).
#[derive(Clone)]
pub(super) struct Table(Arc<Node>);

impl Table {
    pub fn on(&self, device: &Device) -> Tensor {
        Tensor::from_node(self.0.clone(), device)
    }
}

/// Complex factors for data in planes: y * re + (y with its planes swapped) * im, where `im` has the sign of each plane.
pub(super) struct Rotation {
    /// [..., 1, m]
    pub re: Table,
    /// [..., 2, m]
    pub im: Table,
}

/// One factor of a length.
pub(super) struct Stage {
    pub radix: usize,
    /// [2 radix, 2 radix]: rows (output, part), columns (part, input).
    pub matrix: Table,
    /// By exp(-2 pi i k m / M) before the next stage: [radix, 1, 1, M / radix] and [radix, 1, 2, M / radix]. None after the
    /// last one.
    pub rotation: Option<Rotation>,
}

/// What a length is transformed with.
pub(super) enum Plan {
    /// A product of small factors, the smallest first.
    Factors(Vec<Stage>),
    /// A convolution with a chirp, over the length `m`, a power of two.
    Chirp {
        m: usize,
        /// exp(-pi i j^2 / n): [2, n].
        chirp: Table,
        /// By that before: [1, n] and [2, n].
        before: Rotation,
        /// By the transform of the conjugate chirp: [1, m] and [2, m].
        filter: Rotation,
        /// By exp(-pi i k^2 / n) after, for data with swapped planes (that is, conjugated), with zeros to m: [1, m], [2, m].
        after: Rotation,
    },
}

#[derive(Clone)]
enum Kept {
    Plan(Arc<Plan>),
    Weights(Table),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plan,
    Weights,
}

type Key = (Kind, usize, DType);

/// Tables of the lengths that a device transformed last.
#[derive(Default)]
pub(crate) struct Cache {
    /// With their bytes; the most recently used one is last.
    entries: Vec<(Key, Kept, usize)>,
}

impl Cache {
    fn find(&mut self, key: Key) -> Option<Kept> {
        let at = self.entries.iter().position(|(k, ..)| *k == key)?;
        let entry = self.entries.remove(at);
        let kept = entry.1.clone();
        self.entries.push(entry);
        Some(kept)
    }

    fn keep(&mut self, key: Key, kept: Kept, bytes: usize) {
        if bytes > MAX_BYTES || self.entries.iter().any(|(k, ..)| *k == key) {
            return;
        }
        self.entries.push((key, kept, bytes));
        let mut total: usize = self.entries.iter().map(|(.., bytes)| bytes).sum();
        while self.entries.len() > MAX_ENTRIES || total > MAX_BYTES {
            total -= self.entries.remove(0).2;
        }
    }
}

/// Uploads tables, and counts their bytes.
struct Maker<'a> {
    device: &'a Device,
    dtype: DType,
    bytes: usize,
}

impl Maker<'_> {
    fn table(&mut self, numbers: impl Iterator<Item = f64>, shape: &[usize]) -> Result<Table> {
        let table = values(numbers, shape, self.dtype, self.device)?;
        self.bytes += table.elem_count() * self.dtype.size_in_bytes();
        Ok(Table(table.node()))
    }

    /// By re + i im: `swapped` for data whose planes are swapped. The planes' axis comes before the last one of `shape`.
    fn rotation(&mut self, factors: &[(f64, f64)], lead: &[usize], m: usize, swapped: bool) -> Result<Rotation> {
        let shape = |planes: usize| [lead, &[planes, m]].concat();
        let sign = if swapped { -1.0 } else { 1.0 };
        let re = self.table(factors.iter().map(|f| f.0), &shape(1))?;
        // re' = re a - im b, im' = im a + re b.
        let im = factors
            .chunks(m.max(1))
            .flat_map(|row| row.iter().map(move |f| -f.1 * sign).chain(row.iter().map(move |f| f.1 * sign)));
        Ok(Rotation { re, im: self.table(im, &shape(2))? })
    }

    /// The matrix of a transform of `r` complex numbers.
    fn matrix(&mut self, r: usize) -> Result<Table> {
        let root = |k: usize, j: usize| unit_root((k * j) as u64, r as u64);
        let row = |k: usize, part: usize| {
            let re = (0..r).map(move |j| if part == 0 { root(k, j).0 } else { -root(k, j).1 });
            let im = (0..r).map(move |j| if part == 0 { root(k, j).1 } else { root(k, j).0 });
            re.chain(im)
        };
        self.table((0..r).flat_map(|k| row(k, 0).chain(row(k, 1))), &[2 * r, 2 * r])
    }

    fn factors(&mut self, radices: &[usize]) -> Result<Plan> {
        let mut left: usize = radices.iter().product();
        let mut stages = Vec::new();
        for &radix in radices {
            let (whole, rest) = (left as u64, left / radix);
            let matrix = self.matrix(radix)?;
            let rotation = if rest > 1 {
                let factor = |k: usize, m: usize| {
                    let (re, im) = unit_root((k * m) as u64, whole);
                    (re, -im)
                };
                let all: Vec<_> = (0..radix).flat_map(|k| (0..rest).map(move |m| factor(k, m))).collect();
                Some(self.rotation(&all, &[radix, 1], rest, false)?)
            } else {
                None
            };
            stages.push(Stage { radix, matrix, rotation });
            left = rest;
        }
        Ok(Plan::Factors(stages))
    }

    fn chirp(&mut self, n: usize) -> Result<Plan> {
        let m = (2 * n - 1).next_power_of_two();
        // j^2 modulo 2 n, so that the angle stays exact.
        let chirp: Vec<(f64, f64)> = (0..n as u64)
            .map(|j| {
                let square = (u128::from(j) * u128::from(j) % (2 * n as u128)) as u64;
                let (re, im) = unit_root(square, 2 * n as u64);
                (re, -im)
            })
            .collect();
        // The conjugate chirp at lags -(n - 1)..n, around the circle; the 1/m of the inverse transform is in it.
        let mut filter = vec![(0.0, 0.0); m];
        for (j, &(re, im)) in chirp.iter().enumerate() {
            let value = (re / m as f64, -im / m as f64);
            filter[j] = value;
            filter[(m - j) % m] = value;
        }
        host_fft(&mut filter);
        let mut after = chirp.clone();
        after.resize(m, (0.0, 0.0));
        Ok(Plan::Chirp {
            m,
            chirp: self.table(chirp.iter().map(|w| w.0).chain(chirp.iter().map(|w| w.1)), &[2, n])?,
            before: self.rotation(&chirp, &[], n, false)?,
            filter: self.rotation(&filter, &[], m, false)?,
            after: self.rotation(&after, &[], m, true)?,
        })
    }
}

/// The transform of a power of two of values, in place (Cooley and Tukey, 1965).
fn host_fft(x: &mut [(f64, f64)]) {
    let n = x.len();
    let mut reversed = 0;
    for at in 1..n {
        let mut bit = n >> 1;
        while reversed & bit != 0 {
            reversed ^= bit;
            bit >>= 1;
        }
        reversed |= bit;
        if at < reversed {
            x.swap(at, reversed);
        }
    }
    let mut half = 1;
    while half < n {
        let roots: Vec<_> = (0..half).map(|k| unit_root(k as u64, 2 * half as u64)).collect();
        for block in x.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), (c, s)) in low.iter_mut().zip(high).zip(&roots) {
                let turned = (b.0 * c + b.1 * s, b.1 * c - b.0 * s);
                *b = (a.0 - turned.0, a.1 - turned.1);
                *a = (a.0 + turned.0, a.1 + turned.1);
            }
        }
        half *= 2;
    }
}

/// `n` as a product of as few small factors as can be, and of these the smallest sum, in ascending order; `None` where a prime
/// factor is too large.
fn radices(n: usize) -> Option<Vec<usize>> {
    let small = |d: usize| d <= MAX_SHARED || (d <= MAX_PRIME && (2..12).all(|p| !d.is_multiple_of(p)));
    if n <= MAX_SHARED || small(n) {
        return Some(vec![n]);
    }
    let divisors: Vec<usize> = (2..=MAX_PRIME).rev().filter(|&d| n.is_multiple_of(d) && small(d)).collect();
    let mut rest = n;
    for &d in &divisors {
        while rest.is_multiple_of(d) {
            rest /= d;
        }
    }
    if rest != 1 {
        return None;
    }
    // 2^27 is a product of five factors of 64 at most, and of eight of other kinds.
    (2..=27)
        .find_map(|count| {
            let mut best = None;
            split(n, count, &divisors, &mut Vec::new(), &mut best);
            best
        })
        .map(|mut found: Vec<usize>| {
            found.sort_unstable();
            found
        })
}

/// The best way to write `n` with `count` factors out of `divisors`, which descend.
fn split(n: usize, count: usize, divisors: &[usize], taken: &mut Vec<usize>, best: &mut Option<Vec<usize>>) {
    if count == 0 {
        let sum = |list: &[usize]| list.iter().sum::<usize>();
        if n == 1 && best.as_ref().is_none_or(|b| sum(taken) < sum(b)) {
            *best = Some(taken.clone());
        }
        return;
    }
    for (at, &d) in divisors.iter().enumerate() {
        // Factors descend, so the rest cannot exceed d^count.
        if (d as u64).checked_pow(count as u32).is_some_and(|most| most < n as u64) {
            break;
        }
        if n.is_multiple_of(d) {
            taken.push(d);
            split(n / d, count - 1, &divisors[at..], taken, best);
            taken.pop();
        }
    }
}

/// The plan of length `n`, for data in `dtype` (F32 or F64) on a device.
pub(super) fn plan(device: &Device, dtype: DType, n: usize) -> Result<Arc<Plan>> {
    let key = (Kind::Plan, n, dtype);
    if let Some(Kept::Plan(plan)) = device.tables().lock().find(key) {
        return Ok(plan);
    }
    let mut maker = Maker { device, dtype, bytes: 0 };
    let plan = match radices(n) {
        Some(radices) => maker.factors(&radices)?,
        None => maker.chirp(n)?,
    };
    let plan = Arc::new(plan);
    device.tables().lock().keep(key, Kept::Plan(plan.clone()), maker.bytes);
    Ok(plan)
}

/// How often each of the first n/2 + 1 values of a real signal's spectrum stands in the whole of it: 1 or 2.
pub(super) fn hermitian(device: &Device, dtype: DType, n: usize) -> Result<Tensor> {
    let key = (Kind::Weights, n, dtype);
    if let Some(Kept::Weights(weights)) = device.tables().lock().find(key) {
        return Ok(weights.on(device));
    }
    let mut maker = Maker { device, dtype, bytes: 0 };
    let weight = |k: usize| if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
    let table = maker.table((0..=n / 2).map(weight), &[n / 2 + 1])?;
    device.tables().lock().keep(key, Kept::Weights(table.clone()), maker.bytes);
    Ok(table.on(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_become_few_small_factors() {
        assert_eq!(radices(1), Some(vec![1]));
        assert_eq!(radices(64), Some(vec![64]));
        assert_eq!(radices(127), Some(vec![127]));
        assert_eq!(radices(128), Some(vec![8, 16]));
        assert_eq!(radices(400), Some(vec![20, 20]));
        assert_eq!(radices(4096), Some(vec![64, 64]));
        assert_eq!(radices(131), None);
        assert_eq!(radices(262), None);
        for n in (1..3000).chain([1 << 27, 11usize.pow(7), 2 * 3 * 5 * 7 * 11 * 13 * 17, 121 * 127 * 113]) {
            if let Some(found) = radices(n) {
                assert_eq!(found.iter().product::<usize>(), n);
                assert!(found.iter().all(|&r| r <= MAX_PRIME), "{n}: {found:?}");
            }
        }
    }

    #[test]
    fn roots_lie_on_the_circle() {
        for n in [1u64, 2, 3, 4, 7, 8, 12, 1000, 1 << 40] {
            for k in (0..n.min(50)).chain([n / 2, n / 4, n - 1]) {
                let (c, s) = unit_root(k, n);
                let angle = std::f64::consts::TAU * (k as f64 / n as f64);
                assert!((c - angle.cos()).abs() < 1e-15 && (s - angle.sin()).abs() < 1e-15, "{k}/{n}");
            }
        }
        assert_eq!(unit_root(3, 4), (0.0, -1.0));
    }

    #[test]
    fn the_cache_is_bounded() -> Result<()> {
        let device = Device::Cpu;
        for n in 200..300 {
            plan(&device, DType::F64, n)?;
        }
        let cache = device.tables().lock();
        assert!(cache.entries.len() <= MAX_ENTRIES);
        assert!(cache.entries.iter().map(|e| e.2).sum::<usize>() <= MAX_BYTES);
        assert!(cache.entries.iter().any(|(key, ..)| key.1 == 299));
        Ok(())
    }
}
