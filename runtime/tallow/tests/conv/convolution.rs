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
    let sizes: Vec<usize> =
        taps.iter().map(|k| how.dilation * (k - 1) + 1 + random.pick(0, 6) + 2 * usize::from(transposed)).collect();
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

/// Numbers that PyTorch gives, as published with candle's tests (conv_tests.rs): seed 4242.
#[test]
fn numbers_of_pytorch() {
    let x = [
        0.4056, -0.8689, -0.0773, -1.5630, -2.8012, -1.5059, 0.3972, 1.0852, 0.4997, 3.0616, 1.6541, 0.0964, -0.8338,
        -1.6523, -0.8323, -0.1699, 0.0823, 0.3526, 0.6843, 0.2395,
    ];
    let w = [
        -0.9325, 0.6451, -0.8537, 0.2378, 0.8764, -0.1832, 0.2987, -0.6488, -0.2273, -2.4184, -0.1192, -0.4821,
        -0.5079, -0.5766, -2.4729, 1.6734, 0.4558, 0.2851, 1.1514, -0.9013, 1.0662, -0.1817, -0.0259, 0.1709,
    ];
    let want = [2.6357, -1.3336, 4.1393, -1.1784, 3.5675, 0.5069];
    let padded = [2.4509, 2.6357, -1.3336, 4.1393, 0.5657, 1.8091, -1.1784, 3.5675, 0.5069, 3.3352];
    for (name, device) in devices() {
        let x = Tensor::from_slice(&x.map(|v| v as f32), (1, 4, 5), &device).unwrap();
        let w = Tensor::from_slice(&w.map(|v| v as f32), (2, 4, 3), &device).unwrap();
        let close = |got: &Tensor, want: &[f64]| {
            assert_eq!(got.elem_count(), want.len());
            let near = read(got).iter().zip(want).all(|(g, w)| (g - w).abs() < 2e-4);
            assert!(near, "{name}: {:?} instead of {want:?}", read(got));
        };
        let plain = x.conv1d(&w, 0, 1, 1, 1).unwrap();
        assert_eq!(plain.dims(), [1, 2, 3]);
        close(&plain, &want);
        close(&x.conv1d(&w, 1, 1, 1, 1).unwrap(), &padded);
        // A transposed convolution is the adjoint: <conv(x), y> = <x, conv_transpose(y)>.
        let y = Tensor::from_slice(&want.map(|v| v as f32), (1, 2, 3), &device).unwrap();
        let back = y.conv_transpose1d(&w, 0, 0, 1, 1, 1).unwrap();
        let left: f64 = read(&plain).iter().zip(want).map(|(a, b)| a * b).sum();
        let right: f64 = read(&back).iter().zip(read(&x)).map(|(a, b)| a * b).sum();
        assert!((left - right).abs() < 1e-3, "{name}: {left} {right}");
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
