//! Matrix products.

use tallow_bench_protocol::{Element, Op};

use super::Entry;
use super::build::{case, uniform};

/// The cases.
pub fn entries() -> Vec<Entry> {
    let best = [("candle", 1.), ("numpy", 1.), ("torch", 1.)];
    let half = [("candle", 2.), ("torch", 1.)];
    vec![
        matmul("256 square", &[], 256, 256, 256).targets(&best),
        matmul("1024 square", &[], 1024, 1024, 1024).targets(&best),
        matmul("2048 square", &[], 2048, 2048, 2048).targets(&best),
        matmul("1 x 4096 x 4096", &[], 1, 4096, 4096).targets(&best),
        matmul("37 x 129 x 515", &[], 37, 129, 515).targets(&best),
        matmul("32 of 128 x 64 x 128", &[32], 128, 64, 128).targets(&best),
        matmul("1024 square, f16", &[], 1024, 1024, 1024).dtype(Element::F16).targets(&half),
        matmul("1024 square, bf16", &[], 1024, 1024, 1024).dtype(Element::Bf16).targets(&half),
    ]
}

fn matmul(name: &str, batch: &[usize], m: usize, k: usize, n: usize) -> Entry {
    let dims = |rows: usize, columns: usize| [batch, &[rows, columns]].concat();
    let products = batch.iter().product::<usize>() * m * n;
    let inputs = vec![uniform("x", &dims(m, k)), uniform("y", &dims(k, n))];
    case("matmul", name, Op::Matmul, inputs, products).flops(2. * (products * k) as f64)
}
