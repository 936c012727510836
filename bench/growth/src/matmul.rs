//! Square products of 32 to 4,096: the rate should rise to that of the largest and stay.

use tallow::{Device, Result, Tensor};

use crate::chart::Chart;
use crate::clock;

/// Rate of F32 products.
///
/// # Errors
/// Where a tensor operation fails.
pub fn measure(device: &Device) -> Result<Chart> {
    let largest = if device.info().software { 512 } else { 4_096 };
    let mut points = Vec::new();
    let sizes = std::iter::successors(Some(32usize), |size| Some(size * 2)).take_while(|&size| size <= largest);
    for size in sizes {
        let make = || Tensor::randn(0f32, 1., (size, size), device);
        let (a, b) = (make()?, make()?);
        a.realize()?;
        b.realize()?;
        let flops = 2. * (size as f64).powi(3);
        let runs = (4e9 / flops).clamp(3., 200.) as usize;
        let seconds = clock::best(runs, || {
            a.matmul(&b)?.realize()?;
            device.synchronize()
        })?;
        points.push((size as f64, flops / seconds * 1e-9, 0.));
    }
    let top = points.iter().map(|point| point.1).fold(0., f64::max);
    points.iter_mut().for_each(|point| point.2 = top);
    Ok(Chart {
        name: "matmul",
        title: "Rate of square F32 products".into(),
        x: "size",
        y: "rate (GFLOP/s)",
        expected: "the best of all sizes",
        points,
        note: "Planning and launching are counted, so small sizes show what they cost.".into(),
    })
}
