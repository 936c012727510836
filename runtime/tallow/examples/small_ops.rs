//! The cost of tiny operations, where planning and dispatch are all there is. Prints the best and the median of many rounds, in
//! microseconds: `cargo run --release -p tallow --example small_ops`.

use std::time::Instant;
use tallow::{Device, Result, Tensor};

fn measure(name: &str, mut round: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..200 {
        round()?;
    }
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..2000 {
        let start = Instant::now();
        round()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    println!("{name:<32} best {:>8.2} us, median {:>8.2} us", times[0], times[times.len() / 2]);
    Ok(())
}

fn main() -> Result<()> {
    let device = Device::Cpu;
    let a = Tensor::new([[1f32, 2.], [3., 4.]], &device)?;
    let b = Tensor::new([[0.5f32, 0.25], [0.125, 1.]], &device)?;
    measure("2x2 add, read back", || (&a + &b)?.to_vec2::<f32>().map(drop))?;
    measure("chain of 100 adds, read back", || {
        let mut x = a.clone();
        for _ in 0..100 {
            x = (x + &b)?;
        }
        x.to_vec2::<f32>().map(drop)
    })?;
    measure("2x2 matmul, read back", || a.matmul(&b)?.to_vec2::<f32>().map(drop))
}
