//! Memory of attention: 256 to 16,384 queries and as many keys. No matrix of scores is stored, so memory beyond the operands
//! and the result does not grow with the square.

use tallow::{Attention, DType, Device, Result, Tensor};

use crate::chart::Chart;

const HEADS: usize = 2;
const WIDTH: usize = 64;

/// Peak memory of causal attention.
///
/// # Errors
/// Where a tensor operation fails.
pub fn measure(device: &Device) -> Result<Chart> {
    let mut points = Vec::new();
    for keys in [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384] {
        // A new engine on the same backend: what others keep counts for nothing, since only growth is taken.
        device.engine().trim();
        let make = || Tensor::randn(0f32, 1., (1, keys, HEADS, WIDTH), device);
        let (q, k, v) = (make()?, make()?, make()?);
        for tensor in [&q, &k, &v] {
            tensor.realize()?;
        }
        let before = device.engine().backend().counters().bytes;
        let options = Attention { scale: 0.125, causal: true, window: None, softcap: None };
        let out = q.attention(&k, &v, None, options)?;
        out.realize()?;
        device.synchronize()?;
        let counters = device.engine().backend().counters();
        let operand = (keys * HEADS * WIDTH * DType::F32.size_in_bytes()) as u64;
        // Sizes only ever rise, so the peak is this run's own.
        let used = 3 * operand + counters.peak_bytes.saturating_sub(before).max(counters.bytes.saturating_sub(before));
        points.push((keys as f64, used as f64 / 1e6, 4. * operand as f64 / 1e6));
    }
    Ok(Chart {
        name: "attention-memory",
        title: "Memory of causal attention".into(),
        x: "keys",
        y: "peak memory (MB)",
        expected: "operands and result",
        points,
        note: format!("{HEADS} heads of width {WIDTH} in F32, as many queries as keys."),
    })
}
