//! Times of GPU work, by the host's clock: enough runs between two waits that starting and waiting do not count.

use std::time::{Duration, Instant};
use tallow::{Device, Options, Result, Tensor};

/// The device, and the time that is left.
pub struct Clock {
    pub device: Device,
    /// The same, without fusion: equal computations that run together are to stay kernels of their own.
    pub kernels: Device,
    /// Whether sizes are those for a software GPU.
    pub small: bool,
    start: Instant,
    end: Instant,
}

/// Bytes of results that may be under way at once.
const RESULTS: usize = 256 << 20;
/// What one sample should take at least.
const SAMPLE: Duration = Duration::from_millis(20);

impl Clock {
    pub fn new(device: &Device, minutes: Duration, small: bool) -> Self {
        let start = Instant::now();
        let options = Options { fuse: false, ..Options::default() };
        let kernels = Device::with_options(device.engine().backend().clone(), options);
        Self { device: device.clone(), kernels, small, start, end: start + minutes }
    }

    /// Whether there is time for something that takes so long.
    pub fn has(&self, time: Duration) -> bool {
        Instant::now() + time < self.end
    }

    pub fn spent(&self) -> Duration {
        self.start.elapsed()
    }

    /// Of two sizes, the one for this run.
    pub fn size(&self, real: usize, small: usize) -> usize {
        if self.small { small } else { real }
    }

    /// Seconds of one computation: the median of samples, each of several results that are submitted together. `None`
    /// where no time is left.
    pub fn time(&self, make: impl Fn() -> Result<Tensor>) -> Result<Option<f64>> {
        if !self.has(Duration::from_secs(2)) {
            return Ok(None);
        }
        // Compiles, measures implementations, fills the pool.
        let bytes = {
            let first = make()?;
            first.realize()?;
            (first.elem_count() * first.dtype().size_in_bytes()).max(1)
        };
        let most = (RESULTS / bytes).clamp(1, 64);
        self.sample(&make, 1)?;
        let mut count = 1;
        let mut sample = self.sample(&make, count)?;
        while sample < SAMPLE && count < most {
            let wanted = SAMPLE.as_secs_f64() / sample.as_secs_f64().max(1e-6);
            count = (count * (wanted.ceil() as usize).clamp(2, 8)).min(most);
            sample = self.sample(&make, count)?;
        }
        let mut all = Vec::new();
        let begun = Instant::now();
        while all.len() < 3 || (all.len() < 15 && begun.elapsed() < Duration::from_millis(700)) {
            all.push(self.sample(&make, count)?.as_secs_f64() / count as f64);
            if !self.has(Duration::ZERO) {
                break;
            }
        }
        all.sort_by(f64::total_cmp);
        Ok(all.get(all.len() / 2).copied())
    }

    /// So many computations of one plan.
    fn sample(&self, make: &impl Fn() -> Result<Tensor>, count: usize) -> Result<Duration> {
        let results = (0..count).map(|_| make()).collect::<Result<Vec<Tensor>>>()?;
        let nodes: Vec<_> = results.iter().map(|tensor| tensor.as_edge().node).collect();
        self.kernels.synchronize()?;
        let start = Instant::now();
        tallow::block_on(self.kernels.engine().realize(&nodes))?;
        self.kernels.synchronize()?;
        Ok(start.elapsed())
    }
}
