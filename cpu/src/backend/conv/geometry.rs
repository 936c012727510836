//! The geometry of a convolution: sizes, and the phases into which zeros between the input's elements cut the output.
//!
//! With input dilation e, output position p and tap t meet an element only where p * stride + t * dilation - low is a
//! multiple of e. Positions of one remainder all use the same taps, so each remainder is a convolution of its own without
//! input dilation, over a part of the taps and of the positions: no zero is ever multiplied.

use tallow_graph::{Error, Result};

use crate::backend::walk::Words;

/// One spatial axis, as the kernel's words give it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub size: i64,
    pub taps: i64,
    pub out: i64,
    pub stride: i64,
    pub low: i64,
    pub dilation: i64,
    pub input_dilation: i64,
}

/// The positions of one remainder: position a reads the input at `from + a * step + t * gap` with tap t, where step and gap
/// are the axis's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Phase {
    /// Output positions: first, distance, count.
    pub first: usize,
    pub every: usize,
    pub count: usize,
    /// Taps: first, distance, count.
    pub tap: usize,
    pub tap_every: usize,
    pub taps: usize,
    pub from: i64,
}

impl Axis {
    /// An axis that is not there.
    const NONE: Axis = Axis { size: 1, taps: 1, out: 1, stride: 1, low: 0, dilation: 1, input_dilation: 1 };

    /// Input elements from one position of a phase to the next.
    pub fn step(&self) -> i64 {
        self.stride / gcd(self.stride, self.input_dilation)
    }

    /// Input elements from one tap of a phase to the next.
    pub fn gap(&self) -> i64 {
        self.dilation / gcd(self.dilation, self.input_dilation)
    }

    /// The phases; those whose positions no tap reaches have none.
    pub fn phases(&self) -> Vec<Phase> {
        let e = self.input_dilation;
        let every = e / gcd(self.stride, e);
        let tap_every = e / gcd(self.dilation, e);
        (0..every.min(self.out))
            .map(|first| {
                let at = |tap: i64| first * self.stride + tap * self.dilation - self.low;
                let tap = (0..tap_every.min(self.taps)).find(|&tap| at(tap).rem_euclid(e) == 0);
                let taps = tap.map_or(0, |tap| (self.taps - tap + tap_every - 1) / tap_every);
                Phase {
                    first: first as usize,
                    every: every as usize,
                    count: ((self.out - first + every - 1) / every) as usize,
                    tap: tap.unwrap_or(0) as usize,
                    tap_every: tap_every as usize,
                    taps: taps as usize,
                    from: tap.map_or(0, |tap| at(tap).div_euclid(e)),
                }
            })
            .collect()
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

/// Sizes, with three spatial axes: those that are missing come first, and have one element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub samples: usize,
    pub groups: usize,
    pub channels: usize,
    pub outputs: usize,
    pub axes: [Axis; 3],
}

impl Geometry {
    /// Reads the words up to the operands.
    pub fn read(words: &mut Words<'_>, spatial: usize) -> Result<Self> {
        let &[samples, groups, channels, outputs] = words.sizes(4)? else {
            return Err(Error::msg("a convolution without sizes"));
        };
        let mut axes = [Axis::NONE; 3];
        for axis in axes.iter_mut().skip(3 - spatial.min(3)) {
            let &[size, taps, out, stride, low, dilation, input_dilation] = words.take(7)? else {
                return Err(Error::msg("a convolution without axes"));
            };
            *axis = Axis { size, taps, out, stride, low, dilation, input_dilation };
            let counts = i64::from(i32::MAX);
            let fine = [size, taps, out].iter().all(|n| (0..=counts).contains(n))
                && [stride, dilation, input_dilation].iter().all(|n| (1..=counts).contains(n))
                && low.abs() <= counts;
            if !fine {
                return Err(Error::msg(format!("{axis:?} is no axis of a convolution")));
            }
        }
        let [samples, groups, channels, outputs] = [samples, groups, channels, outputs].map(|n| n as usize);
        Ok(Self { samples, groups, channels, outputs, axes })
    }

    /// With the spatial axes joined into one, where they are one: a filter of one tap over inputs that lie in order, or of
    /// as many taps as the input has elements. `input` and `filter` are the strides of the spatial axes; where the axes are
    /// joined, they become those of the one.
    pub fn flattened(self, input: &mut [i64; 3], filter: &mut [i64; 3]) -> Self {
        let bare = |axis: &Axis| axis.low == 0 && axis.input_dilation == 1;
        let one_tap = self.axes.iter().all(|a| bare(a) && a.taps == 1 && a.stride == 1 && a.out == a.size);
        let one_output = self.axes.iter().all(|a| bare(a) && a.out == 1 && a.dilation == 1 && a.taps == a.size);
        let sizes = self.axes.map(|axis| axis.size);
        let joined = |strides: &[i64; 3]| {
            let mut inner: Option<(i64, i64)> = None;
            for (&size, &stride) in sizes.iter().zip(strides).rev().filter(|&(&size, _)| size != 1) {
                match inner {
                    None => inner = Some((stride, stride.checked_mul(size)?)),
                    Some((first, next)) if next == stride => inner = Some((first, next.checked_mul(size)?)),
                    _ => return None,
                }
            }
            Some(inner.map_or(1, |(first, _)| first))
        };
        let size = sizes.iter().try_fold(1i64, |n, &size| n.checked_mul(size)).filter(|&n| n <= i64::from(i32::MAX));
        let (Some(size), Some(x)) = (size, joined(input)) else { return self };
        let axis = Axis { size, ..Axis::NONE };
        let axis = if one_tap {
            Axis { out: size, ..axis }
        } else if let (true, Some(w)) = (one_output, joined(filter)) {
            *filter = [0, 0, w];
            Axis { taps: size, ..axis }
        } else {
            return self;
        };
        *input = [0, 0, x];
        Self { axes: [Axis::NONE, Axis::NONE, axis], ..self }
    }

    /// Whether the output has the input's sizes, and the input lies in order, so that with one tap neighbours among the
    /// outputs read neighbours.
    pub fn is_same_grid(&self, phases: &[[Phase; 3]], input: [i64; 3]) -> bool {
        let mut next = 1;
        phases.len() == 1
            && self.axes.iter().zip(input).rev().all(|(axis, stride)| {
                let fits = axis.out == axis.size && axis.stride == 1 && axis.input_dilation == 1;
                let in_order = axis.size == 1 || stride == next;
                next *= axis.size;
                fits && in_order
            })
    }

    /// Every combination of the axes' phases.
    pub fn phases(&self) -> Vec<[Phase; 3]> {
        let [a, b, c] = self.axes.map(|axis| axis.phases());
        let mut all = Vec::with_capacity(a.len() * b.len() * c.len());
        for &a in &a {
            for &b in &b {
                all.extend(c.iter().map(|&c| [a, b, c]));
            }
        }
        all
    }

    /// Output positions of a sample and channel.
    pub fn positions(&self) -> usize {
        self.axes.iter().map(|axis| axis.out as usize).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_cover_each_position_and_tap_that_meet_an_element() {
        for (stride, dilation, input_dilation, low) in
            [(1, 1, 1, 2), (2, 1, 3, 1), (2, 3, 4, -3), (3, 2, 2, 5), (1, 6, 4, 0)]
        {
            let axis = Axis { size: 7, taps: 5, out: 9, stride, low, dilation, input_dilation };
            let mut met = std::collections::BTreeSet::new();
            let mut positions = 0;
            for phase in axis.phases() {
                positions += phase.count;
                for (a, t) in (0..phase.count).flat_map(|a| (0..phase.taps).map(move |t| (a, t))) {
                    let (p, tap) = (phase.first + a * phase.every, phase.tap + t * phase.tap_every);
                    let x = phase.from + a as i64 * axis.step() + t as i64 * axis.gap();
                    assert_eq!(
                        x * input_dilation,
                        p as i64 * stride + tap as i64 * dilation - low,
                        "{axis:?} {phase:?}"
                    );
                    assert!(met.insert((p, tap)));
                }
            }
            let all = (0..9).flat_map(|p| (0..5).map(move |t| (p, t)));
            let want = all.filter(|&(p, t)| (p * stride + t * dilation - low).rem_euclid(input_dilation) == 0).count();
            assert_eq!((positions, met.len()), (9, want), "{axis:?}");
        }
    }
}
