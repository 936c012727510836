//! Best, median and spread of many runs.

use serde::Serialize;

/// What many runs of one case say, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The shortest run.
    pub best: f64,
    /// Half of the runs took less.
    pub median: f64,
    /// A quarter took less.
    pub lower: f64,
    /// A quarter took more.
    pub upper: f64,
    /// How many there were.
    pub runs: usize,
}

impl Summary {
    /// Of at least one run.
    pub fn of(nanoseconds: &[u64]) -> Option<Self> {
        let mut sorted: Vec<f64> = nanoseconds.iter().map(|&time| time as f64).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            best: *sorted.first()?,
            median: quantile(&sorted, 0.5)?,
            lower: quantile(&sorted, 0.25)?,
            upper: quantile(&sorted, 0.75)?,
            runs: sorted.len(),
        })
    }

    /// The interquartile range over the median.
    pub fn spread(&self) -> f64 {
        if self.median > 0. { (self.upper - self.lower) / self.median } else { 0. }
    }
}

/// The quantile of sorted values, between neighbours by linear interpolation.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * sorted.len().checked_sub(1)? as f64;
    let below = sorted.get(place.floor() as usize)?;
    let above = sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let summary = Summary::of(&[40, 10, 20, 30]).unwrap();
        let expected = Summary { best: 10., median: 25., lower: 17.5, upper: 32.5, runs: 4 };
        assert_eq!(summary, expected);
        assert_eq!(summary.spread(), 15. / 25.);
    }

    #[test]
    fn an_outlier_moves_neither_median_nor_spread() {
        let calm = Summary::of(&[10, 11, 12, 13, 14]).unwrap();
        let noisy = Summary::of(&[10, 11, 12, 13, 9_000_000]).unwrap();
        assert_eq!((calm.median, calm.spread()), (noisy.median, noisy.spread()));
    }

    #[test]
    fn one_run_and_none() {
        let one = Summary::of(&[7]).unwrap();
        assert_eq!((one.best, one.median, one.spread(), one.runs), (7., 7., 0., 1));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[0, 0]).unwrap().spread(), 0.);
    }
}
