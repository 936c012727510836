//! Speed of the quantized products on the shapes of SmolLM2-135M: bytes of weights a second for one activation row
//! (decoding), and operations a second for 128 (a prompt). `TALLOW_CPU_ISA` and `TALLOW_THREADS` apply.

use std::time::Instant;

use tallow_cpu::quant::{ActivationsQ8, matmul_f32, matmul_q8, quantize_row};
use tallow_cpu::{Isa, Pool};
use tallow_graph::{DType, Result};

/// (n, k, times a token): queries and output, keys and values, gate and up, down.
const SHAPES: [(usize, usize, usize); 4] = [(576, 576, 60), (192, 576, 60), (1536, 576, 60), (576, 1536, 30)];

fn weights(dtype: DType, n: usize, k: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let row: Vec<f32> = (0..k).map(|i| ((i * 7919 % 1013) as f32 / 506.0) - 1.0).collect();
    for _ in 0..n {
        quantize_row(dtype, &row, &mut bytes)?;
    }
    Ok(bytes)
}

/// Seconds of the fastest of some repetitions.
fn best(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.7 {
        let one = Instant::now();
        work()?;
        best = best.min(one.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn main() -> Result<()> {
    let (isa, pool) = (Isa::current()?, Pool::global());
    println!("{} on {} threads", isa.name(), pool.threads());
    // A whole model's matrices, each in its own memory, as a decoding step reads them.
    let mut layers = Vec::new();
    for (n, k, times) in SHAPES {
        for _ in 0..times {
            layers.push((DType::Q4_1, n, k, weights(DType::Q4_1, n, k)?));
        }
    }
    layers.push((DType::Q8_0, 49152, 576, weights(DType::Q8_0, 49152, 576)?));
    let bytes: usize = layers.iter().map(|layer| layer.3.len()).sum();
    let operations: usize = layers.iter().map(|layer| 2 * layer.1 * layer.2).sum();
    let mut out = vec![0.0; 128 * 49152];
    let x = vec![0.5f32; 128 * 1536];
    for m in [1, 2, 3, 4, 8, 32, 128] {
        // Only the last position's logits are wanted, so a prompt skips the output layer.
        let (count, operations) =
            if m > 1 { (layers.len() - 1, operations - 2 * 49152 * 576) } else { (layers.len(), operations) };
        let q8 = best(|| {
            for (dtype, n, k, bytes) in &layers[..count] {
                let acts = ActivationsQ8::from_rows(isa, &x[..m * k], *k)?;
                matmul_q8(pool, isa, *dtype, bytes, *n, &acts, &mut out[..m * n])?;
            }
            Ok(())
        })?;
        let f32s = best(|| {
            for (dtype, n, k, bytes) in &layers[..count] {
                matmul_f32(pool, isa, *dtype, bytes, *n, *k, &x[..m * k], &mut out[..m * n])?;
            }
            Ok(())
        })?;
        let rate = |s: f64| {
            let (gb, gop) = (bytes as f64 / s / 1e9, (operations * m) as f64 / s / 1e9);
            format!("{:8.2} ms {:7.1} tok/s {gb:6.1} GB/s {gop:7.1} GFLOP/s", s * 1e3, m as f64 / s)
        };
        println!("model m={m:3}  q8 {}  f32 {}", rate(q8), rate(f32s));
    }
    let (n, k) = (4096, 4096);
    for dtype in DType::QUANTIZED {
        let bytes = weights(dtype, n, k)?;
        for m in [1, 64] {
            let x = vec![0.5f32; m * k];
            let acts = ActivationsQ8::from_rows(isa, &x, k)?;
            let q8 = best(|| matmul_q8(pool, isa, dtype, &bytes, n, &acts, &mut out[..m * n]))?;
            let f32s = best(|| matmul_f32(pool, isa, dtype, &bytes, n, k, &x, &mut out[..m * n]))?;
            let rate = |s: f64| {
                format!("{:6.1} GB/s {:7.1} GFLOP/s", bytes.len() as f64 / s / 1e9, (2 * m * n * k) as f64 / s / 1e9)
            };
            println!("{:5} {n} x {k} m={m:2}  q8 {}  f32 {}", dtype.name(), rate(q8), rate(f32s));
        }
    }
    Ok(())
}
