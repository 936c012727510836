//! A first step beside a warm one, and what a model makes on its device: pipelines, plans.

use std::path::Path;

use tallow::{Device, Result, Tensor};

use crate::clock;
use crate::decode;

/// A table for the page.
///
/// # Errors
/// Where the model does not load or run.
pub fn measure(path: &Path, device: &Device) -> Result<String> {
    device.engine().trim();
    let before = device.engine().backend().counters().pipelines;
    let loading = std::time::Instant::now();
    let mut model = decode::open(path, device)?;
    let loading = loading.elapsed().as_secs_f64();
    let mut text = format!(
        "### First run and warm run\n\nLoading takes {:.0} ms.\n\n\
         | step | first (ms) | warm (ms) | pipelines made | plans made |\n|---|---:|---:|---:|---:|\n",
        loading * 1e3
    );
    let mut pipelines = before;
    for (name, positions) in [("prompt of 32", 32usize), ("one token", 1)] {
        let planned = device.engine().plan_counters().planned;
        let ids: Vec<u32> = (0..positions).map(|i| 400 + i as u32).collect();
        let ids = Tensor::from_slice(&ids, (1, positions), device)?;
        let mut run = || {
            model.decoder.forward_last(&ids)?.realize()?;
            device.synchronize()
        };
        let first = clock::once(&mut run)?;
        let warm = clock::best(5, run)?;
        let made = device.engine().backend().counters().pipelines;
        let plans = device.engine().plan_counters().planned - planned;
        text += &format!("| {name} | {:.1} | {:.1} | {} | {plans} |\n", first * 1e3, warm * 1e3, made - pipelines);
        pipelines = made;
    }
    Ok(text)
}
