//! Time of one run: the best of several.

use std::time::Instant;

use tallow::Result;

/// The least time that `work` takes, in seconds, over `runs` runs after one that is not counted.
pub fn best(runs: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let mut least = f64::INFINITY;
    for _ in 0..runs {
        least = least.min(once(&mut work)?);
    }
    Ok(least)
}

/// The time of one run, in seconds.
pub fn once(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}
