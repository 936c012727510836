//! Forward and backward of whole networks, in plain tensors.

use tallow_bench_protocol::{Fill, Input, Op};

use super::Entry;
use super::build::{case, uniform};

const WANTED: [(&str, f64); 2] = [("candle", 2.), ("torch", 1.)];

/// The cases.
pub fn entries() -> Vec<Entry> {
    [cnn(), decoder()].into_iter().map(|entry| entry.tolerance(1e-3).targets(&WANTED)).collect()
}

/// Weights as they are initialised: uniform, bounded by 1 / sqrt(fan in).
fn weight(name: &str, dims: &[usize], fan_in: usize) -> Input {
    Input { name: name.into(), dims: dims.to_vec(), fill: Fill::Uniform { scale: (fan_in as f64).powf(-0.5) } }
}

fn total(inputs: &[Input]) -> usize {
    inputs.iter().map(Input::elements).sum()
}

fn cnn() -> Entry {
    let batch = 64;
    let labels = Input { name: "labels".into(), dims: vec![batch], fill: Fill::Ids { below: 10 } };
    let weights = vec![
        weight("k1", &[32, 1, 3, 3], 9),
        weight("b1", &[32], 9),
        weight("k2", &[64, 32, 3, 3], 288),
        weight("b2", &[64], 288),
        weight("w1", &[3136, 128], 3136),
        weight("c1", &[128], 3136),
        weight("w2", &[128, 10], 128),
        weight("c2", &[10], 128),
    ];
    let result = 1 + total(&weights);
    let inputs = [vec![uniform("x", &[batch, 1, 28, 28]), labels], weights].concat();
    // Products and additions of each layer forward; as many for the gradient by its weights, and but for the first layer
    // for the one by its input.
    let first = 32 * 28 * 28 * 9;
    let others = 64 * 14 * 14 * 288 + 3136 * 128 + 128 * 10;
    let flops = 2. * batch as f64 * (2 * first + 3 * others) as f64;
    case("train", "small CNN, batch 64", Op::TrainCnn, inputs, result).flops(flops)
}

fn decoder() -> Entry {
    let (batch, positions, width, layers, heads) = (4, 128, 256, 4, 4);
    let mut weights = Vec::new();
    for layer in 0..layers {
        let name = |part: &str| format!("{part}{layer}");
        weights.push(Input { name: name("gain"), dims: vec![width], fill: Fill::Ones });
        weights.push(weight(&name("qkv"), &[width, 3 * width], width));
        weights.push(weight(&name("out"), &[width, width], width));
        weights.push(Input { name: name("gain_mlp"), dims: vec![width], fill: Fill::Ones });
        weights.push(weight(&name("up"), &[width, 4 * width], width));
        weights.push(weight(&name("down"), &[4 * width, width], 4 * width));
    }
    let result = 1 + total(&weights);
    let inputs = [vec![uniform("x", &[batch, positions, width])], weights].concat();
    // Three products for each weight and position; attention's two, over half of the pairs, three times.
    let weights = 12 * width * width * layers * batch * positions;
    let attention = 2 * width * positions * positions / 2 * layers * batch;
    let flops = 2. * 3. * (weights + attention) as f64;
    case("train", "decoder, 4 layers of 256, 4 x 128 positions", Op::TrainDecoder { layers, heads }, inputs, result)
        .flops(flops)
}
