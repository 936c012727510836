//! Convolutions, pooling, resizing.

use crate::check::{Row, check, gradient_at};
use tallow::{Device, Result, Tensor, Var};

fn row(name: &'static str, shapes: &[&[usize]], f: fn(&[Tensor]) -> Result<Tensor>) -> Row {
    Row::new(name, shapes, -1.0..1.0, f)
}

#[test]
fn convolutions() {
    check(&[
        row("conv1d, strides that leave a rest", &[&[1, 4, 6], &[2, 2, 2]], |x| x[0].conv1d(&x[1], 1, 2, 2, 2)),
        row("conv1d of several samples", &[&[2, 2, 4], &[3, 2, 3]], |x| x[0].conv1d(&x[1], 2, 1, 1, 1)),
        row("conv2d", &[&[2, 1, 4, 3], &[2, 1, 2, 3]], |x| x[0].conv2d(&x[1], 1, 2, 1, 1)),
        row("conv2d, a point", &[&[1, 3, 2, 3], &[2, 3, 1, 1]], |x| x[0].conv2d(&x[1], 0, 1, 1, 1)),
        row("conv2d, depthwise", &[&[1, 3, 4, 4], &[3, 1, 2, 2]], |x| x[0].conv2d(&x[1], 0, 3, 1, 3)),
        row("conv2d, bias and activation", &[&[1, 1, 3, 4], &[2, 1, 2, 2], &[2, 1, 1]], |x| {
            x[0].conv2d(&x[1], 0, 1, 2, 1)?.broadcast_add(&x[2])?.silu()
        }),
        row("conv3d", &[&[1, 1, 3, 2, 3], &[2, 1, 2, 1, 2]], |x| x[0].conv3d(&x[1], 1, 2, 1, 1)),
    ]);
}

#[test]
fn transposed_convolutions() {
    check(&[
        row("conv_transpose1d", &[&[1, 4, 3], &[4, 1, 3]], |x| x[0].conv_transpose1d(&x[1], 1, 1, 2, 2, 2)),
        row("conv_transpose1d, cut", &[&[2, 1, 4], &[1, 2, 2]], |x| x[0].conv_transpose1d(&x[1], 2, 0, 3, 1, 1)),
        row("conv_transpose2d", &[&[1, 2, 2, 3], &[2, 1, 2, 3]], |x| x[0].conv_transpose2d(&x[1], 0, 1, 2, 1)),
        row("conv_transpose2d, groups", &[&[1, 2, 2, 2], &[2, 2, 2, 1]], |x| {
            x[0].conv_transpose2d_grouped(&x[1], 1, 1, 3, 2, 2)
        }),
    ]);
}

#[test]
fn pooling() {
    check(&[
        row("max_pool2d", &[&[1, 2, 4, 4]], |x| x[0].max_pool2d(2)?.sqr()),
        row("max_pool2d, windows overlap", &[&[2, 1, 4, 5]], |x| x[0].max_pool2d_with_stride((2, 3), (1, 2))?.sqr()),
        row("max_pool2d, gaps", &[&[1, 1, 5, 6]], |x| x[0].max_pool2d_with_stride((1, 2), (3, 4))?.sqr()),
        row("avg_pool2d", &[&[1, 2, 4, 4]], |x| x[0].avg_pool2d(2)?.sqr()),
        row("avg_pool2d, windows overlap", &[&[2, 1, 4, 5]], |x| x[0].avg_pool2d_with_stride((2, 3), (1, 2))?.sqr()),
        row("avg_pool2d, gaps", &[&[1, 1, 5, 6]], |x| x[0].avg_pool2d_with_stride((1, 2), (3, 4))?.sqr()),
        row("max_pool1d", &[&[2, 2, 5]], |x| x[0].max_pool1d(3, 1)?.sqr()),
        row("avg_pool1d", &[&[2, 2, 5]], |x| x[0].avg_pool1d(2, 3)?.sqr()),
    ]);
}

/// As PyTorch: of several largest elements of a window, the first in row-major order gets the gradient.
#[test]
fn the_first_maximum_gets_the_gradient() -> Result<()> {
    let x = Var::new([[[[2f64, 2., 1.], [0., 2., 2.], [2., 1., 2.]]]], &Device::Cpu)?;
    let got = gradient_at(&x, |x| x.max_pool2d_with_stride(2, 1))?;
    assert_eq!(got, [1., 1., 0., 0., 2., 0., 0., 0., 0.]);
    let nan = Var::new([[[[2f64, f64::NAN], [f64::NAN, 3.]]]], &Device::Cpu)?;
    assert_eq!(gradient_at(&nan, |x| x.max_pool2d(2))?, [0., 1., 0., 0.]);
    Ok(())
}

#[test]
fn resizing() {
    check(&[
        row("upsample_nearest2d", &[&[1, 2, 2, 3]], |x| x[0].upsample_nearest2d(4, 9)?.sqr()),
        row("upsample_nearest2d, other ratios", &[&[1, 1, 3, 4]], |x| x[0].upsample_nearest2d(5, 3)?.sqr()),
        row("interpolate1d", &[&[1, 2, 5]], |x| x[0].interpolate1d(7)?.sqr()),
        row("upsample_bilinear2d", &[&[1, 2, 2, 3]], |x| x[0].upsample_bilinear2d(5, 4, false)?.sqr()),
        row("upsample_bilinear2d, corners", &[&[1, 1, 3, 4]], |x| x[0].upsample_bilinear2d(2, 7, true)?.sqr()),
        row("upsample_bilinear2d by factors", &[&[1, 1, 3, 3]], |x| {
            x[0].upsample_bilinear2d_with_scale(1.7, 2.4, false)?.sqr()
        }),
    ]);
}
