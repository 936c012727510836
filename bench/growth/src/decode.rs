//! Decoding with a real model: time of a token by length of the context, and time of a step by batch size.

use std::path::Path;

use tallow::{Activations, Device, Result, Tensor};
use tallow_models::{LanguageModel, LoadOptions};

use crate::chart::Chart;
use crate::clock;

/// Positions given at once while the context is filled.
const CHUNK: usize = 256;
/// Steps that are timed at each point.
const STEPS: usize = 12;

/// Opens the model with 8-bit activations, as the command line does.
pub fn open(path: &Path, device: &Device) -> Result<LanguageModel> {
    LanguageModel::open(path, device, LoadOptions { activations: Activations::Q8, ..LoadOptions::default() })
}

/// Ids that differ.
fn ids(batch: usize, positions: usize, device: &Device) -> Result<Tensor> {
    let ids: Vec<u32> = (0..batch * positions).map(|i| 300 + (i * 7919 % 20_000) as u32).collect();
    Tensor::from_slice(&ids, (batch, positions), device)
}

/// Seconds of the best of some steps of one token each.
fn step(model: &mut LanguageModel, batch: usize, device: &Device) -> Result<f64> {
    let token = ids(batch, 1, device)?;
    clock::best(STEPS, || {
        model.decoder.forward_last(&token)?.realize()?;
        device.synchronize()
    })
}

/// The two charts.
///
/// # Errors
/// Where the model does not load or run.
pub fn measure(path: &Path, device: &Device) -> Result<Vec<Chart>> {
    let weights = std::fs::metadata(path).map_or(0, |file| file.len()) as f64;
    let mut model = open(path, device)?;
    Ok(vec![by_context(&mut model, weights, device)?, by_batch(&mut model, device)?])
}

fn by_context(model: &mut LanguageModel, weights: f64, device: &Device) -> Result<Chart> {
    let config = model.decoder.config();
    // Keys and values in F32.
    let position = (2 * 4 * config.layers * config.kv_heads * config.head_width) as f64;
    let longest = model.decoder.context().min(if device.info().software { 256 } else { 8_192 });
    let contexts = [16, 64, 256, 1_024, 2_048, 4_096, 8_192];
    let mut points: Vec<(f64, f64, f64)> = Vec::new();
    for context in contexts.into_iter().filter(|&context| context <= longest) {
        // The steps that are timed end at the context.
        while model.decoder.position() + STEPS + 1 < context {
            let missing = context - STEPS - 1 - model.decoder.position();
            model.decoder.forward_last(&ids(1, missing.min(CHUNK), device)?)?.realize()?;
        }
        let seconds = step(model, 1, device)?;
        let bytes = weights + position * context as f64;
        let expected = points.first().map_or(seconds * 1e3, |&(x, y, _)| y * bytes / (weights + position * x));
        points.push((context as f64, seconds * 1e3, expected));
    }
    model.decoder.clear();
    Ok(Chart {
        name: "decode-context",
        title: "Decoding: time of a token by context".into(),
        x: "context",
        y: "time of a token (ms)",
        expected: "in proportion to the bytes read",
        points,
        note: format!(
            "Weights of {:.0} MB are read for each token, and {:.1} KB for each position of the cache.",
            weights * 1e-6,
            position * 1e-3
        ),
    })
}

fn by_batch(model: &mut LanguageModel, device: &Device) -> Result<Chart> {
    let mut points: Vec<(f64, f64, f64)> = Vec::new();
    for batch in [1, 2, 4, 8, 16, 32, 64] {
        model.decoder.clear();
        model.decoder.forward_last(&ids(batch, 16, device)?)?.realize()?;
        let seconds = step(model, batch, device)?;
        let first = points.first().map_or(seconds * 1e3, |&(_, y, _)| y);
        points.push((batch as f64, seconds * 1e3, first));
    }
    model.decoder.clear();
    Ok(Chart {
        name: "decode-batch",
        title: "Decoding: time of a step by batch".into(),
        x: "batch",
        y: "time of a step (ms)",
        expected: "weights read once, nothing else",
        points,
        note: "Sixteen positions in the cache. A step reads the weights once whatever the batch; above that, \
               arithmetic counts."
            .into(),
    })
}
