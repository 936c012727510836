//! Kernels, each as a share of the ceiling that bounds it.

use crate::{
    ceilings::Ceilings,
    clock::Clock,
    report::{Report, Unit},
};
use std::sync::Arc;
use tallow::{Activations, Attention, DType, Result, Tensor};

pub fn measure(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    gemm(clock, report, ceilings)?;
    matvec(clock, report, ceilings)?;
    attention(clock, report, ceilings)?;
    rows(clock, report, ceilings)?;
    conv(clock, report, ceilings)
}

fn random(clock: &Clock, dims: &[usize], dtype: DType) -> Result<Tensor> {
    let x = Tensor::rand(-1f32, 1f32, dims, &clock.kernels)?.to_dtype(dtype)?;
    x.realize()?;
    Ok(x)
}

/// A packed weight of random bytes, whose scales are small numbers.
fn packed(clock: &Clock, dtype: DType, rows: usize, cols: usize) -> Result<(Tensor, usize)> {
    let bytes = crate::model::blocks(dtype, rows * cols);
    let range = 0..bytes.len();
    let size = bytes.len();
    let node = clock.kernels.engine().upload_packed(dtype, rows, cols, Arc::new(bytes), range)?;
    Ok((Tensor::from_node(node, &clock.kernels), size))
}

fn gemm(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    let cubes: &[usize] = if clock.small { &[64, 128] } else { &[512, 1024, 2048, 4096] };
    for dtype in [DType::F32, DType::F16] {
        for &n in cubes {
            let (a, b) = (random(clock, &[n, n], dtype)?, random(clock, &[n, n], dtype)?);
            let seconds = clock.time(|| a.matmul(&b))?;
            let work = 2.0 * (n as f64).powi(3);
            report.row("gemm", format!("{dtype} {n} x {n} x {n}"), seconds, work, Unit::Flops, Some(ceilings.f32));
        }
    }
    // Few results of a long sum: split-K.
    let (m, k) = (clock.size(128, 32), clock.size(16_384, 1024));
    let (a, b) = (random(clock, &[m, k], DType::F32)?, random(clock, &[m, k], DType::F32)?);
    let seconds = clock.time(|| a.matmul(&b.t()?))?;
    let work = 2.0 * (m * m * k) as f64;
    report.row("gemm", format!("F32 {m} x {k} x {m}, split-K"), seconds, work, Unit::Flops, Some(ceilings.f32));
    let (m, k, n) = (clock.size(512, 16), clock.size(4096, 256), clock.size(4096, 256));
    let x = random(clock, &[m, k], DType::F32)?;
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4K] {
        let (w, _) = packed(clock, dtype, n, k)?;
        for (name, activations, unit, ceiling) in [
            ("f32", Activations::F32, Unit::Flops, Some(ceilings.f32)),
            ("8-bit", Activations::Q8, Unit::Ops, ceilings.int8),
        ] {
            let seconds = clock.time(|| x.linear(&w, activations))?;
            let work = 2.0 * m as f64 * k as f64 * n as f64;
            report.row("gemm", format!("{dtype} {m} x {k} x {n}, {name} inputs"), seconds, work, unit, ceiling);
        }
    }
    Ok(())
}

fn matvec(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    // More than any cache holds: a weight is measured again and again.
    let (k, n) = (clock.size(4096, 256), clock.size(65_536, 256));
    let x = random(clock, &[1, k], DType::F32)?;
    for dtype in DType::QUANTIZED {
        let (w, bytes) = packed(clock, dtype, n, k)?;
        let seconds = clock.time(|| x.linear(&w, Activations::F32))?;
        report.row("matvec", format!("{dtype} 1 x {k} x {n}"), seconds, bytes as f64, Unit::Bytes, Some(ceilings.copy));
    }
    for dtype in [DType::F16, DType::F32] {
        let n = clock.size(16_384, 256);
        let (w, x) = (random(clock, &[n, k], dtype)?, random(clock, &[1, k], dtype)?);
        let bytes = (n * k * dtype.size_in_bytes()) as f64;
        let seconds = clock.time(|| x.linear(&w, Activations::F32))?;
        report.row("matvec", format!("{dtype} 1 x {k} x {n}"), seconds, bytes, Unit::Bytes, Some(ceilings.copy));
    }
    Ok(())
}

fn attention(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    for (heads, kv_heads, width) in [(9usize, 3usize, 64usize), (32, 8, 128)] {
        let options = Attention { scale: 1.0 / (width as f64).sqrt(), causal: true, window: None, softcap: None };
        let qkv = |queries: usize, keys: usize| -> Result<(Tensor, Tensor, Tensor)> {
            Ok((
                random(clock, &[1, queries, heads, width], DType::F32)?,
                random(clock, &[1, keys, kv_heads, width], DType::F32)?,
                random(clock, &[1, keys, kv_heads, width], DType::F32)?,
            ))
        };
        for n in if clock.small { vec![48] } else { vec![512, 2048] } {
            let (q, k, v) = qkv(n, n)?;
            let seconds = clock.time(|| q.attention(&k, &v, None, options))?;
            // Half of the scores are hidden.
            let work = 2.0 * (n * n * width * heads) as f64;
            let name = format!("prefill {n}, {heads} heads of {width}");
            report.row("attention", name, seconds, work, Unit::Flops, Some(ceilings.f32));
        }
        for keys in if clock.small { vec![200] } else { vec![1024, 8192] } {
            let (q, k, v) = qkv(1, keys)?;
            let seconds = clock.time(|| q.attention(&k, &v, None, options))?;
            let bytes = (2 * keys * kv_heads * width * 4) as f64;
            let name = format!("decode over {keys} keys, {heads} heads of {width}");
            report.row("attention", name, seconds, bytes, Unit::Bytes, Some(ceilings.copy));
        }
    }
    Ok(())
}

fn rows(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    for n in if clock.small { vec![64] } else { vec![1024, 4096] } {
        let x = random(clock, &[n, n], DType::F32)?;
        let all = (n * n * 4) as f64;
        let copy = Some(ceilings.copy);
        let shape = format!("{n} x {n}");
        report.row(
            "rows",
            format!("softmax {shape}"),
            clock.time(|| x.softmax_last_dim())?,
            2.0 * all,
            Unit::Bytes,
            copy,
        );
        report.row("rows", format!("rms_norm {shape}"), clock.time(|| x.rms_norm(1e-5))?, 2.0 * all, Unit::Bytes, copy);
        report.row(
            "rows",
            format!("layer_norm {shape}"),
            clock.time(|| x.layer_norm(1e-5))?,
            2.0 * all,
            Unit::Bytes,
            copy,
        );
        report.row("rows", format!("sum of rows {shape}"), clock.time(|| x.sum(1))?, all, Unit::Bytes, copy);
        report.row("rows", format!("sum of columns {shape}"), clock.time(|| x.sum(0))?, all, Unit::Bytes, copy);
        report.row("rows", format!("argmax of rows {shape}"), clock.time(|| x.argmax(1))?, all, Unit::Bytes, copy);
        let transposed = || x.t()?.contiguous();
        report.row("rows", format!("transpose {shape}"), clock.time(transposed)?, 2.0 * all, Unit::Bytes, copy);
    }
    Ok(())
}

fn conv(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    let batch = clock.size(8, 1);
    for (channels, outputs, side, taps) in [(64usize, 64usize, 56usize, 3usize), (256, 512, 28, 1), (3, 64, 224, 7)] {
        let (side, channels, outputs) = if clock.small { (14, channels.min(8), 8) } else { (side, channels, outputs) };
        let x = random(clock, &[batch, channels, side, side], DType::F32)?;
        let w = random(clock, &[outputs, channels, taps, taps], DType::F32)?;
        let stride = if taps == 7 { 2 } else { 1 };
        let seconds = clock.time(|| x.conv2d(&w, taps / 2, stride, 1, 1))?;
        let places = side.div_ceil(stride).pow(2);
        let work = 2.0 * (batch * outputs * channels * taps * taps * places) as f64;
        let name = format!("{batch} x {channels} -> {outputs}, {taps} x {taps} at {side}");
        report.row("conv2d", name, seconds, work, Unit::Flops, Some(ceilings.f32));
    }
    Ok(())
}
