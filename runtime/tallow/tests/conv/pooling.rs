//! Pooling.

use crate::common::*;
use tallow::{DType, Device, Tensor};

fn naive(x: &Plain, size: &[usize], stride: &[usize], max: bool) -> Plain {
    let out = x.dims[2..].iter().zip(size).zip(stride).map(|((i, k), s)| (i - k) / s + 1);
    let dims: Vec<usize> = x.dims[..2].iter().copied().chain(out).collect();
    let mut y = Plain::zeros(&dims);
    for index in indices(&dims) {
        let at = y.at(&index);
        let window = indices(size).into_iter().map(|tap| {
            let place = index[2..].iter().zip(&tap).zip(stride).map(|((p, t), s)| p * s + t);
            x.values[x.at(&index[..2].iter().copied().chain(place).collect::<Vec<_>>())]
        });
        y.values[at] = match max {
            true => window.fold(f64::NEG_INFINITY, f64::max),
            false => window.sum::<f64>() / size.iter().product::<usize>() as f64,
        };
    }
    y
}

#[test]
fn random_windows_agree_with_the_loops() {
    for (name, device) in devices() {
        let mut random = Random::new(7);
        for round in 0..24 {
            let (size, stride) = ((random.pick(1, 3), random.pick(1, 4)), (random.pick(1, 3), random.pick(1, 3)));
            let (h, w) = (size.0 + random.pick(0, 5), size.1 + random.pick(0, 5));
            let dims = [random.pick(0, 2), random.pick(1, 3), h, w];
            let x = Plain::random(&mut random, &dims);
            let dtype = [DType::F32, DType::F16, DType::F32, DType::BF16][round % 4];
            let input = x.on(&device, dtype, round % 3);
            let what = format!("{name} {dtype} {:?} {size:?} {stride:?}", x.dims);
            let (s, t) = ([size.0, size.1], [stride.0, stride.1]);
            let max = input.max_pool2d_with_stride(size, stride).unwrap();
            assert_close(&what, &max, &naive(&x, &s, &t, true), 0.0);
            let mean = input.avg_pool2d_with_stride(size, stride).unwrap();
            assert_close(&what, &mean, &naive(&x, &s, &t, false), share(dtype));
            let row = Plain { values: x.values.clone(), dims: vec![x.dims[0], x.dims[1], h * w] };
            let input = row.on(&device, dtype, 0);
            let want = naive(&row, &[size.0], &[stride.1], true);
            assert_close(&what, &input.max_pool1d(size.0, stride.1).unwrap(), &want, 0.0);
            let want = naive(&row, &[size.0], &[stride.1], false);
            assert_close(&what, &input.avg_pool1d(size.0, stride.1).unwrap(), &want, share(dtype));
        }
    }
}

#[test]
fn one_number_serves_both_axes() {
    let x = Tensor::arange(0f32, 32., &Device::Cpu).unwrap().reshape((1, 2, 4, 4)).unwrap();
    let want: Vec<f64> = vec![5., 7., 13., 15., 21., 23., 29., 31.];
    assert_eq!(read(&x.max_pool2d(2).unwrap()), want);
    assert_eq!(read(&x.max_pool2d((2, 2)).unwrap()), want);
    assert_eq!(read(&x.avg_pool2d(4).unwrap()), [7.5, 23.5]);
    let error = |result: tallow::Result<Tensor>| result.unwrap_err().to_string();
    assert!(error(x.max_pool2d(5)).contains("larger than the input"));
    assert!(error(x.max_pool2d_with_stride(2, 0)).contains("1 or more"));
    assert!(error(x.avg_pool1d(2, 2)).contains("needs an input"));
}

/// Windows are views: pooling is one kernel, without a copy before it.
#[test]
fn pooling_copies_nothing() {
    let backend = std::sync::Arc::new(tallow_graph::reference::Reference::default());
    let device = Device::from_backend(backend.clone());
    let x = Tensor::zeros((2, 3, 9, 9), DType::F32, &device).unwrap();
    x.realize().unwrap();
    backend.take_programs();
    for y in [x.max_pool2d_with_stride(3, 2).unwrap(), x.avg_pool2d_with_stride(3, 1).unwrap()] {
        y.realize().unwrap();
        let steps: Vec<usize> = backend.take_programs().iter().map(|p| p.steps.len()).collect();
        assert_eq!(steps, [1]);
    }
}
