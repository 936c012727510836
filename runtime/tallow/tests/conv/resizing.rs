//! Nearest and bilinear resizing.

use crate::common::*;
use tallow::{DType, Device, Tensor};

/// Bilinear interpolation, one output at a time.
fn naive(x: &Plain, targets: [usize; 2], scales: Option<[f64; 2]>, align: bool) -> Plain {
    let mut y = Plain::zeros(&[x.dims[0], x.dims[1], targets[0], targets[1]]);
    let place = |axis: usize, i: usize| {
        let (size, target) = (x.dims[2 + axis] as f64, targets[axis] as f64);
        let place = match (align, scales) {
            (true, _) if target == 1.0 => 0.0,
            (true, _) => i as f64 * (size - 1.0) / (target - 1.0),
            (false, Some(scales)) => ((i as f64 + 0.5) / scales[axis] - 0.5).max(0.0),
            (false, None) => ((i as f64 + 0.5) * size / target - 0.5).max(0.0),
        };
        let place = place.min(size - 1.0);
        (place.floor() as usize, (place.floor() + 1.0).min(size - 1.0) as usize, place.fract())
    };
    for index in indices(&y.dims) {
        let ((h0, h1, h), (w0, w1, w)) = (place(0, index[2]), place(1, index[3]));
        let value = |h: usize, w: usize| x.values[x.at(&[index[0], index[1], h, w])];
        let at = y.at(&index);
        y.values[at] = (1.0 - h) * ((1.0 - w) * value(h0, w0) + w * value(h0, w1))
            + h * ((1.0 - w) * value(h1, w0) + w * value(h1, w1));
    }
    y
}

#[test]
fn bilinear_agrees_with_the_loops() {
    for (name, device) in devices() {
        let mut random = Random::new(8);
        for round in 0..24 {
            let dims = [random.pick(1, 2), random.pick(1, 2), random.pick(1, 6), random.pick(1, 6)];
            let targets = [random.pick(1, 13), random.pick(1, 13)];
            let x = Plain::random(&mut random, &dims);
            let dtype = [DType::F32, DType::F16, DType::F32, DType::BF16][round % 4];
            let input = x.on(&device, dtype, round % 3);
            for align in [false, true] {
                let got = input.upsample_bilinear2d(targets[0], targets[1], align).unwrap();
                let what = format!("{name} {dtype} {dims:?} {targets:?} {align}");
                assert_close(&what, &got, &naive(&x, targets, None, align), share(dtype));
            }
        }
    }
}

#[test]
fn factors_give_places_of_their_own() {
    let mut random = Random::new(9);
    let x = Plain::random(&mut random, &[1, 2, 5, 7]);
    for (h, w) in [(2.0, 2.0), (1.5, 2.7), (0.7, 0.5), (1.0, 3.1)] {
        let targets = [(5.0 * h) as usize, (7.0 * w) as usize];
        for align in [false, true] {
            let got = x.on(&Device::Cpu, DType::F64, 0).upsample_bilinear2d_with_scale(h, w, align).unwrap();
            assert_close(&format!("{h} {w} {align}"), &got, &naive(&x, targets, Some([h, w]), align), 1e-12);
        }
    }
    let x = x.on(&Device::Cpu, DType::F32, 0);
    for (h, w) in [(0.0, 1.0), (f64::NAN, 1.0), (0.1, 1.0), (f64::INFINITY, 1.0), (-1.0, 1.0)] {
        assert!(x.upsample_bilinear2d_with_scale(h, w, false).is_err(), "{h} {w}");
    }
}

/// `torch.nn.functional.interpolate` of 0..4 as 2 x 2, to 4 x 4.
#[test]
fn numbers_of_pytorch() {
    for (name, device) in devices() {
        let x = Tensor::arange(0f32, 4., &device).unwrap().reshape((1, 1, 2, 2)).unwrap();
        let half_pixel = [0.0, 0.25, 0.75, 1.0, 0.5, 0.75, 1.25, 1.5, 1.5, 1.75, 2.25, 2.5, 2.0, 2.25, 2.75, 3.0];
        assert_eq!(read(&x.upsample_bilinear2d(4, 4, false).unwrap()), half_pixel, "{name}");
        let corners = read(&x.upsample_bilinear2d(4, 4, true).unwrap());
        let want: Vec<f64> = (0..16).map(|i| f64::from(i / 4) * 2.0 / 3.0 + f64::from(i % 4) / 3.0).collect();
        assert!(corners.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6), "{name}: {corners:?}");
        let nearest = read(&x.upsample_nearest2d(4, 4).unwrap());
        assert_eq!(nearest, [0., 0., 1., 1., 0., 0., 1., 1., 2., 2., 3., 3., 2., 2., 3., 3.], "{name}");
    }
}

#[test]
fn nearest_takes_the_floor() {
    for (name, device) in devices() {
        let mut random = Random::new(10);
        for round in 0..16 {
            let dims = [random.pick(1, 2), random.pick(1, 2), random.pick(1, 6), random.pick(1, 6)];
            let (h, w) = (random.pick(1, 13), random.pick(1, 13));
            let x = Plain::random(&mut random, &dims);
            let mut want = Plain::zeros(&[dims[0], dims[1], h, w]);
            for i in indices(&want.dims) {
                let at = want.at(&i);
                want.values[at] = x.values[x.at(&[i[0], i[1], i[2] * dims[2] / h, i[3] * dims[3] / w])];
            }
            let input = x.on(&device, DType::F32, round % 3);
            assert_close(&format!("{name} {dims:?} {h} {w}"), &input.interpolate2d(h, w).unwrap(), &want, 0.0);
            assert_close(name, &input.upsample_nearest2d(h, w).unwrap(), &want, 0.0);
        }
        let row = Tensor::arange(0f32, 5., &device).unwrap().reshape((1, 1, 5)).unwrap();
        assert_eq!(read(&row.interpolate1d(7).unwrap()), [0., 0., 1., 2., 2., 3., 4.], "{name}");
        assert_eq!(read(&row.upsample_nearest1d(10).unwrap()), [0., 0., 1., 1., 2., 2., 3., 3., 4., 4.], "{name}");
        assert!(row.interpolate1d(0).is_err() && row.interpolate2d(2, 2).is_err());
    }
}
