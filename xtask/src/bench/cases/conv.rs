//! Convolutions of known networks.

use tallow_bench_protocol::{Input, Op};

use super::Entry;
use super::build::{case, uniform};

const WANTED: [(&str, f64); 2] = [("candle", 3.), ("torch", 0.9)];

/// A square convolution: (what it is, channels, out channels, size, taps, stride, groups).
type Square = (&'static str, usize, usize, usize, usize, usize, usize);

/// He et al., Deep residual learning for image recognition, 2015: one of each kind of ResNet-50's convolutions.
const RESNET: [Square; 6] = [
    ("7x7 /2, 3 to 64 at 224", 3, 64, 224, 7, 2, 1),
    ("3x3, 64 to 64 at 56", 64, 64, 56, 3, 1, 1),
    ("1x1, 256 to 64 at 56", 256, 64, 56, 1, 1, 1),
    ("3x3 /2, 128 to 128 at 56", 128, 128, 56, 3, 2, 1),
    ("3x3, 256 to 256 at 14", 256, 256, 14, 3, 1, 1),
    ("1x1, 512 to 2048 at 7", 512, 2048, 7, 1, 1, 1),
];

/// The cases.
pub fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for batch in [1, 8] {
        entries.extend(RESNET.iter().map(|square| conv2d(square, batch)));
    }
    entries.push(conv2d(&("depthwise 3x3, 96 at 112", 96, 96, 112, 3, 1, 96), 1));
    // Radford et al., Robust speech recognition via large-scale weak supervision, 2022: the tiny model's first layer.
    let (channels, out, length, taps) = (80, 384, 3000, 3);
    let inputs = vec![uniform("x", &[1, channels, length]), uniform("kernel", &[out, channels, taps])];
    let op = Op::Conv1d { stride: 1, padding: 1 };
    entries.push(
        case("conv", "conv1d 3, 80 to 384 on 3000", op, inputs, out * length)
            .flops(2. * (out * length * channels * taps) as f64),
    );
    // The upsampling layer of Radford et al., Unsupervised representation learning with DCGANs, 2015, in the middle.
    let (channels, out, size, taps) = (256, 128, 16, 4);
    let inputs = vec![uniform("x", &[8, channels, size, size]), uniform("kernel", &[channels, out, taps, taps])];
    let op = Op::ConvTranspose2d { stride: 2, padding: 1, output_padding: 0 };
    let cells = 8 * out * (2 * size) * (2 * size);
    entries.push(
        // Each element of the input meets each tap of each output channel.
        case("conv", "conv_transpose2d 4x4 x2, 256 to 128 at 16, batch 8", op, inputs, cells)
            .flops(2. * (8 * channels * size * size * out * taps * taps) as f64),
    );
    entries.into_iter().map(|entry| entry.targets(&WANTED)).collect()
}

fn conv2d(&(name, channels, out, size, taps, stride, groups): &Square, batch: usize) -> Entry {
    let padding = taps / 2;
    let after = (size + 2 * padding - taps) / stride + 1;
    let inputs: Vec<Input> =
        vec![uniform("x", &[batch, channels, size, size]), uniform("kernel", &[out, channels / groups, taps, taps])];
    let cells = batch * out * after * after;
    let name = if batch == 1 { name.to_owned() } else { format!("{name}, batch {batch}") };
    case("conv", name, Op::Conv2d { stride, padding, groups }, inputs, cells)
        .flops(2. * (cells * channels / groups * taps * taps) as f64)
}
