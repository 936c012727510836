//! Convolutions and their transposes.

use crate::common::*;
use tallow::{DType, Device, Result, Tensor};

/// How to convolve.
#[derive(Debug, Clone, Copy)]
struct How {
    padding: usize,
    output_padding: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
}

fn naive(x: &Plain, k: &Plain, how: How) -> Plain {
    let How { padding, stride, dilation, groups, .. } = how;
    let out =
        x.dims[2..].iter().zip(&k.dims[2..]).map(|(i, k)| (i + 2 * padding - dilation * (k - 1) - 1) / stride + 1);
    let dims: Vec<usize> = [x.dims[0], k.dims[0]].into_iter().chain(out).collect();
    let mut y = Plain::zeros(&dims);
    let (channels, outputs) = (k.dims[1], k.dims[0] / groups);
    for index in indices(&dims) {
        let at = y.at(&index);
        for tap in indices(&k.dims[1..]) {
            let place: Option<Vec<usize>> = index[2..]
                .iter()
                .zip(&tap[1..])
                .zip(&x.dims[2..])
                .map(|((p, t), &size)| (p * stride + t * dilation).checked_sub(padding).filter(|&i| i < size))
                .collect();
            if let Some(place) = place {
                let channel = index[1] / outputs * channels + tap[0];
                let value = x.values[x.at(&[&[index[0], channel][..], &place].concat())];
                y.values[at] += value * k.values[k.at(&[&[index[1]][..], &tap].concat())];
            }
        }
    }
    y
}

/// By its own definition: every input element adds its taps to the output.
fn naive_transpose(x: &Plain, k: &Plain, how: How) -> Plain {
    let How { padding, output_padding, stride, dilation, groups } = how;
    let out = x.dims[2..]
        .iter()
        .zip(&k.dims[2..])
        .map(|(i, k)| (i - 1) * stride + dilation * (k - 1) + output_padding + 1 - 2 * padding);
    let dims: Vec<usize> = [x.dims[0], k.dims[1] * groups].into_iter().chain(out).collect();
    let mut y = Plain::zeros(&dims);
    let channels = x.dims[1] / groups;
    for index in indices(&x.dims) {
        let value = x.values[x.at(&index)];
        for tap in indices(&k.dims[1..]) {
            let place: Option<Vec<usize>> = index[2..]
                .iter()
                .zip(&tap[1..])
                .zip(&dims[2..])
                .map(|((i, t), &size)| (i * stride + t * dilation).checked_sub(padding).filter(|&p| p < size))
                .collect();
            if let Some(place) = place {
                let output = index[1] / channels * k.dims[1] + tap[0];
                let at = y.at(&[&[index[0], output][..], &place].concat());
                y.values[at] += value * k.values[k.at(&[&[index[1]][..], &tap].concat())];
            }
        }
    }
    y
}

fn conv(x: &Tensor, k: &Tensor, how: How) -> Result<Tensor> {
    let How { padding, stride, dilation, groups, .. } = how;
    match x.rank() {
        3 => x.conv1d(k, padding, stride, dilation, groups),
        4 => x.conv2d(k, padding, stride, dilation, groups),
        _ => x.conv3d(k, padding, stride, dilation, groups),
    }
}

fn conv_transpose(x: &Tensor, k: &Tensor, how: How) -> Result<Tensor> {
    let How { padding, output_padding, stride, dilation, groups } = how;
    match x.rank() {
        3 => x.conv_transpose1d(k, padding, output_padding, stride, dilation, groups),
        _ if groups == 1 => x.conv_transpose2d(k, padding, output_padding, stride, dilation),
        _ => x.conv_transpose2d_grouped(k, padding, output_padding, stride, dilation, groups),
    }
}

/// Random geometry, and an input and a kernel for it.
fn case(random: &mut Random, spatial: usize, transposed: bool) -> (Plain, Plain, How) {
    let how = How {
        padding: random.pick(0, 2),
        output_padding: if transposed { random.pick(0, 1) } else { 0 },
        stride: random.pick(1, 3),
        dilation: random.pick(1, 2),
        groups: random.pick(1, 3),
    };
    let (channels, outputs) = (random.pick(1, 3), random.pick(1, 4));
    let taps: Vec<usize> = (0..spatial).map(|_| random.pick(1, 3)).collect();
    let sizes: Vec<usize> = taps
        .iter()
        .map(|k| how.dilation * (k - 1) + 1 + random.pick(0, 6) + if transposed { 2 * how.padding } else { 0 })
        .collect();
    let batch = random.pick(1, 2);
    let x = Plain::random(random, &[&[batch, how.groups * channels][..], &sizes].concat());
    let lead = if transposed { [how.groups * channels, outputs] } else { [how.groups * outputs, channels] };
    let k = Plain::random(random, &[&lead[..], &taps].concat());
    (x, k, how)
}

#[test]
fn random_geometries_agree_with_the_loops() {
    for (name, device) in devices() {
        let mut random = Random::new(3);
        for round in 0..60 {
            let spatial = 1 + round % 3;
            let (x, k, how) = case(&mut random, spatial, false);
            let got =
                conv(&x.on(&device, DType::F32, round % 4), &k.on(&device, DType::F32, round / 4 % 3), how).unwrap();
            assert_close(&format!("{name} {how:?} {:?} {:?}", x.dims, k.dims), &got, &naive(&x, &k, how), 2e-6);
        }
    }
}

#[test]
fn random_transposes_agree_with_the_loops() {
    for (name, device) in devices() {
        let mut random = Random::new(4);
        for round in 0..40 {
            let spatial = 1 + round % 2;
            let (x, k, how) = case(&mut random, spatial, true);
            let got =
                conv_transpose(&x.on(&device, DType::F32, round % 4), &k.on(&device, DType::F32, 0), how).unwrap();
            let want = naive_transpose(&x, &k, how);
            assert_close(&format!("{name} {how:?} {:?} {:?}", x.dims, k.dims), &got, &want, 2e-6);
        }
    }
}

#[test]
fn every_float_dtype() {
    for (name, device) in devices() {
        let mut random = Random::new(5);
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            if name == "wgpu" && dtype == DType::F64 {
                continue;
            }
            for round in 0..6 {
                let (x, k, how) = case(&mut random, 2, round % 2 == 1);
                let (input, kernel) = (x.on(&device, dtype, round % 3), k.on(&device, dtype, 0));
                let (got, want) = match round % 2 {
                    0 => (conv(&input, &kernel, how).unwrap(), naive(&x, &k, how)),
                    _ => (conv_transpose(&input, &kernel, how).unwrap(), naive_transpose(&x, &k, how)),
                };
                assert_eq!(got.dtype(), dtype);
                assert_close(&format!("{name} {dtype} {how:?}"), &got, &want, share(dtype));
            }
        }
    }
}

/// Sizes that fill tiles and leave rests, pointwise and depthwise kernels, and an epilogue.
#[test]
fn larger_sizes() {
    let how = |padding, stride, groups| How { padding, output_padding: 0, stride, dilation: 1, groups };
    let cases: [(&[usize], &[usize], How); 8] = [
        (&[2, 16, 19, 23], &[24, 16, 3, 3], how(1, 1, 1)),
        (&[1, 3, 35, 33], &[16, 3, 7, 7], how(3, 2, 1)),
        (&[1, 40, 13, 9], &[70, 40, 1, 1], how(0, 1, 1)),
        (&[1, 40, 13, 9], &[70, 40, 1, 1], how(0, 2, 1)),
        (&[2, 12, 30, 41], &[12, 1, 3, 3], how(1, 1, 12)),
        (&[1, 6, 30, 41], &[12, 1, 5, 3], how(2, 2, 6)),
        (&[1, 80, 700], &[48, 80, 3], how(1, 1, 1)),
        (&[1, 300, 5, 6], &[20, 300, 3, 3], how(1, 1, 1)),
    ];
    for (name, device) in devices() {
        if name == "reference" || name == "decomposed" {
            continue;
        }
        let mut random = Random::new(6);
        for (input, kernel, how) in cases {
            let (x, k) = (Plain::random(&mut random, input), Plain::random(&mut random, kernel));
            let bias = Plain::random(&mut random, &[kernel[0]]);
            let mut want = naive(&x, &k, how);
            let plane: usize = want.dims[2..].iter().product();
            let channels = want.dims[1];
            for (at, value) in want.values.iter_mut().enumerate() {
                *value = (*value + bias.values[at / plane % channels]).max(0.0);
            }
            let shape: Vec<usize> = [&[1, channels][..], &vec![1; input.len() - 2]].concat();
            let bias = bias.on(&device, DType::F32, 0).reshape(shape.as_slice()).unwrap();
            let got = conv(&x.on(&device, DType::F32, 0), &k.on(&device, DType::F32, 0), how).unwrap();
            let got = got.broadcast_add(&bias).unwrap().relu().unwrap();
            assert_close(&format!("{name} {input:?} {kernel:?}"), &got, &want, 4e-6);
        }
    }
}

/// Numbers that PyTorch gives for `torch.manual_seed(4242)`, as candle's tests have them (conv_tests.rs).
#[test]
fn numbers_of_pytorch() {
    let x = [
        0.4056, -0.8689, -0.0773, -1.5630, 1.2279, -0.9287, -1.7030, 0.1370, 0.1866, 0.4145, 1.8025, -0.1536, 2.2013,
        -0.6836, 0.2477, 1.3127, -0.6957, 0.3278, -1.0124, 0.5599,
    ];
    let w = [
        -0.8404, -0.3490, 0.0130, 1.3123, 0.1763, -1.9249, 1.4270, 0.9421, 0.8670, -0.7181, -1.1111, 0.8869, -1.2429,
        1.8357, 1.6052, -1.3844, 0.3951, -1.2036, 0.6686, 1.6261, -0.6451, -0.0840, -1.4247, 0.5512,
    ];
    let plain = [2.6357, -1.3336, 4.1393, -1.1784, 3.5675, 0.5069];
    let padded = [2.4509, 2.6357, -1.3336, 4.1393, 0.5657, 1.8091, -1.1784, 3.5675, 0.5069, 3.3352];
    let square = [
        0.4056, -0.8689, 0.6843, 0.2395, 1.2279, -0.9287, -1.7030, 0.1370, 0.1866, 0.4145, -0.6266, 0.3529, 2.2013,
        -0.6836, 0.2477, 1.3127, -0.6957, 0.3278,
    ];
    let point = [0.164, -0.0111, -0.1742, 2.6437, -2.0268, 1.1823, 3.2855, -1.0324, 0.2539];
    let spread = [
        -0.3755, 0.8045, -0.6336, -0.2218, -1.1369, 0.8599, 1.5768, -0.1268, -0.1728, 0.528, -1.131, 0.8908, 0.3118,
        1.5984, -1.2089, -2.2168, 0.1783, 0.2429, -0.3838, 0.5802, -0.3268, -2.0382, 0.6329, -0.2293, -1.2154, 0.6441,
        -0.3035, 0.5396, -0.8156, 0.4594, 2.8654, -0.8898, 0.3224, 1.7087, -0.9056, 0.4267,
    ];
    for (name, device) in devices() {
        let close = |got: &Tensor, want: &[f64]| {
            assert_eq!(got.elem_count(), want.len());
            let near = read(got).iter().zip(want).all(|(g, w)| (g - w).abs() < 2e-4);
            assert!(near, "{name}: {:?} instead of {want:?}", read(got));
        };
        let make = |values: &[f32], dims: &[usize]| Tensor::from_slice(values, dims, &device).unwrap();
        let (x, w) = (make(&x, &[1, 4, 5]), make(&w, &[2, 4, 3]));
        close(&x.conv1d(&w, 0, 1, 1, 1).unwrap(), &plain);
        close(&x.conv1d(&w, 1, 1, 1, 1).unwrap(), &padded);
        let (x, w) = (make(&square, &[1, 2, 3, 3]), make(&[-0.9259, 1.3017], &[1, 2, 1, 1]));
        close(&x.conv2d(&w, 0, 1, 1, 1).unwrap(), &point);
        close(&x.conv_transpose2d(&w.transpose(0, 1).unwrap(), 0, 0, 1, 1).unwrap(), &point);
        close(&x.transpose(0, 1).unwrap().conv_transpose2d(&w, 0, 0, 1, 1).unwrap(), &spread);
    }
}

#[test]
fn empty_batches_and_wrong_shapes() {
    for (_, device) in devices() {
        let zeros = |dims: &[usize]| Tensor::zeros(dims, DType::F32, &device).unwrap();
        assert_eq!(read(&zeros(&[0, 2, 4, 4]).conv2d(&zeros(&[3, 2, 3, 3]), 0, 1, 1, 1).unwrap()).len(), 0);
        assert_eq!(zeros(&[0, 2, 4]).conv_transpose1d(&zeros(&[2, 3, 3]), 0, 0, 2, 1, 1).unwrap().dims(), [0, 3, 9]);
        // No channels: sums of nothing.
        assert_eq!(read(&zeros(&[1, 0, 4]).conv1d(&zeros(&[2, 0, 3]), 0, 1, 1, 1).unwrap()), [0.0; 4]);
    }
    let zeros = |dims: &[usize]| Tensor::zeros(dims, DType::F32, &Device::Cpu).unwrap();
    let error = |result: Result<Tensor>| result.unwrap_err().to_string();
    let x = zeros(&[1, 4, 5]);
    assert!(error(x.conv1d(&zeros(&[2, 3, 3]), 0, 1, 1, 1)).contains("input [1, 4, 5], kernel [2, 3, 3]"));
    assert!(error(x.conv1d(&zeros(&[2, 4, 6]), 0, 1, 1, 1)).contains("larger than the padded input"));
    assert!(error(x.conv1d(&zeros(&[2, 4, 3]), 0, 0, 1, 1)).contains("must be 1 or more"));
    assert!(error(x.conv1d(&zeros(&[2, 1, 3]), 0, 1, 1, 3)).contains("not a multiple of the groups"));
    assert!(error(x.conv1d(&zeros(&[3, 2, 3]), 0, 1, 1, 2)).contains("a multiple of 2"));
    assert!(
        error(x.conv2d(&zeros(&[2, 4, 3, 3]), 0, 1, 1, 1))
            .starts_with("conv2d: needs an input of [batch, channels, height")
    );
    assert!(error(x.conv1d(&zeros(&[2, 4, 3]), usize::MAX, 1, 1, 1)).starts_with("conv1d: "));
    assert!(error(x.conv1d(&zeros(&[2, 4, 3]), 0, 1, usize::MAX, 1)).starts_with("conv1d: "));
    assert!(error(x.conv_transpose1d(&zeros(&[4, 2, 3]), 9, 0, 1, 1, 1)).contains("leave nothing"));
    assert!(
        error(x.conv1d(&zeros(&[2, 4, 3]).to_dtype(DType::F16).unwrap(), 0, 1, 1, 1)).contains("F32 and F16 differ")
    );
    let whole = |dims: &[usize]| Tensor::zeros(dims, DType::I32, &Device::Cpu).unwrap();
    assert!(error(whole(&[1, 4, 5]).conv1d(&whole(&[2, 4, 3]), 0, 1, 1, 1)).contains("floating-point"));
}

#[test]
fn a_position_that_one_tap_reaches_reads_its_own_element() {
    // A filter wider than the output, zeros between the elements: position 1 meets element 1 with tap 1 alone.
    for (name, device) in devices() {
        let x = Tensor::new([[[1f32, 10.]]], &device).unwrap();
        let kernel = Tensor::new([[[1f32, 2., 3.]]], &device).unwrap();
        assert_eq!(read(&x.conv_transpose1d(&kernel, 2, 1, 2, 1, 1).unwrap()), [13., 20.], "{name}");
    }
}
