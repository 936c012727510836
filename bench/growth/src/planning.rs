//! Planning: a chain of layers of an 8 x 8 product, a sum and a rectifier, whose kernels are next to nothing. What the
//! first run takes beyond a replay of the same structure is planning.

use tallow::{Device, Options, Result, Tensor};

use crate::chart::Chart;
use crate::clock;

/// Nodes of one layer.
const LAYER: usize = 3;
const WIDTH: usize = 8;

fn chain(nodes: usize, x: &Tensor, weight: &Tensor) -> Result<()> {
    let mut y = x.clone();
    for _ in 0..nodes / LAYER {
        y = y.matmul(weight)?.broadcast_add(x)?.relu()?;
    }
    y.realize()
}

/// Planning time from 100 to 100,000 nodes.
///
/// # Errors
/// Where a tensor operation fails.
pub fn measure(device: &Device) -> Result<Chart> {
    let mut points: Vec<(f64, f64, f64)> = Vec::new();
    let mut replayed = 0.;
    for nodes in [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000] {
        let mut planning = f64::INFINITY;
        for _ in 0..3 {
            // A new engine has no plans; all nodes must fit in one.
            let options = Options { max_pending: 2 * nodes + 1_000, ..Options::default() };
            let fresh = Device::with_options(device.engine().backend().clone(), options);
            let x = Tensor::zeros((WIDTH, WIDTH), tallow::DType::F32, &fresh)?;
            let weight = x.copy()?;
            x.realize()?;
            weight.realize()?;
            let first = clock::once(|| chain(nodes, &x, &weight))?;
            let again = clock::best(3, || chain(nodes, &x, &weight))?;
            planning = planning.min((first - again).max(0.));
            replayed = again / nodes as f64;
        }
        let expected = points.first().map_or(planning, |&(x, y, _)| y * nodes as f64 / x);
        points.push((nodes as f64, planning, expected));
    }
    for point in &mut points {
        point.1 *= 1e3;
        point.2 *= 1e3;
    }
    Ok(Chart {
        name: "planning",
        title: "Planning time".into(),
        x: "nodes",
        y: "planning (ms)",
        expected: "linear from the first point",
        points,
        note: format!(
            "Layers of an 8 x 8 product, a sum and a rectifier in one plan; the time of a first run less that of a \
             replay. A replayed node of the longest chain costs {:.2} us in all, its kernel included.",
            replayed * 1e6
        ),
    })
}
