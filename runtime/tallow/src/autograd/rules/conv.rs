//! Gradients of the general convolution: both are general convolutions again, so they have gradients of every order.

use crate::{
    Shape, Tensor,
    autograd::{Input, Keep},
};
use tallow_graph::ops::ConvAxis;

/// Records `y` [samples, groups, outputs, out...] (in any shape of that order), the convolution of `x` [samples, groups,
/// channels, spatial...] with `filter` [groups, outputs, channels, taps...].
///
/// Position p meets input i at tap t where i * input_dilation = p * stride + t * dilation - low. Read for i, that is a
/// convolution of the gradient over p, with the taps backwards; read for t, one of the input with the gradient as filter.
pub(crate) fn convolve(y: Tensor, x: &Input<'_>, filter: &Input<'_>, axes: &[ConvAxis]) -> Tensor {
    let axes = axes.to_vec();
    y.recorded("conv", &[x, filter], &[Keep::input(1), Keep::input(0)], move |saved, grad| {
        let (x, filter) = (saved.shape(0)?, saved.shape(1)?);
        let out: Shape = [x[0], x[1], filter[1]].into_iter().chain(axes.iter().map(|a| a.out)).collect();
        let grad = grad.reshape(out)?;
        saved.each(|i| {
            if i == 0 {
                let back = |(axis, (&size, &taps)): (&ConvAxis, (&usize, &usize))| ConvAxis {
                    out: size,
                    stride: axis.input_dilation,
                    // The convolution was checked: its window can be counted.
                    low: (taps.saturating_sub(1) * axis.dilation) as isize - axis.low,
                    dilation: axis.dilation,
                    input_dilation: axis.stride,
                };
                let back: Vec<ConvAxis> = axes.iter().zip(x[3..].iter().zip(&filter[3..])).map(back).collect();
                return grad.convolve(&saved.input(1)?.turned()?, &back);
            }
            let back = |(axis, &taps): (&ConvAxis, &usize)| ConvAxis {
                out: taps,
                stride: axis.dilation,
                low: axis.low,
                dilation: axis.stride,
                input_dilation: axis.input_dilation,
            };
            let back: Vec<ConvAxis> = axes.iter().zip(&filter[3..]).map(back).collect();
            let rest = 3..3 + axes.len();
            // Samples are what is summed over: [channels, groups, samples, ..] and [groups, outputs, samples, ..].
            let order: Vec<usize> = [1, 2, 0].into_iter().chain(rest.clone()).collect();
            let samples = saved.input(0)?.transpose(0, 2)?;
            let of_filter = samples.convolve(&grad.permute(order.as_slice())?, &back)?;
            // [channels, groups, outputs, taps..] -> [groups, outputs, channels, taps..]
            let order: Vec<usize> = [1, 2, 0].into_iter().chain(rest).collect();
            of_filter.permute(order.as_slice())
        })
    })
}
