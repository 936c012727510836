//! Convolutions and their transposes: shape rules of the user's forms, all brought to the graph's one general convolution.

use super::Tensor;
use crate::{Error, Result, Shape, autograd::rules::conv as rules};
use tallow_graph::ops::{self, ConvAxis};

/// How a convolution was asked for; one number serves every spatial axis, as in candle.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    name: &'static str,
    spatial: usize,
    padding: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
}

impl Geometry {
    /// An error that shows the operands.
    fn fail(&self, x: &Tensor, kernel: &Tensor, why: &str) -> Error {
        Error::op(self.name, format!("{why}: input {:?}, kernel {:?}, {self:?}", x.shape(), kernel.shape()))
    }

    /// What holds for both directions.
    fn check(&self, x: &Tensor, kernel: &Tensor) -> Result<()> {
        let rank = self.spatial + 2;
        if x.rank() != rank || kernel.rank() != rank {
            let sizes = ["", "length", "height, width", "depth, height, width"][self.spatial.min(3)];
            return Err(self.fail(
                x,
                kernel,
                &format!("needs an input of [batch, channels, {sizes}] and such a kernel"),
            ));
        }
        if self.stride == 0 || self.dilation == 0 || self.groups == 0 {
            return Err(self.fail(x, kernel, "stride, dilation and groups must be 1 or more"));
        }
        if !x.dims()[1].is_multiple_of(self.groups) {
            return Err(self.fail(x, kernel, "the input's channels are not a multiple of the groups"));
        }
        Ok(())
    }

    /// Elements that a window of `taps` covers; `None` for too many, or none.
    fn window(&self, taps: usize) -> Option<usize> {
        taps.checked_sub(1)?.checked_mul(self.dilation)?.checked_add(1)
    }
}

impl Tensor {
    /// Convolution (cross-correlation) along one axis: this is [batch, channels, length], `kernel` [out channels, channels /
    /// groups, taps]; gives [batch, out channels, (length + 2 padding - dilation (taps - 1) - 1) / stride + 1].
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[[[1f32, 2., 4., 8.]]], &Device::Cpu)?;
    /// let difference = Tensor::new(&[[[-1f32, 1.]]], &Device::Cpu)?;
    /// assert_eq!(x.conv1d(&difference, 0, 1, 1, 1)?.flatten_all()?.to_vec1::<f32>()?, [1., 2., 4.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn conv1d(
        &self,
        kernel: &Tensor,
        padding: usize,
        stride: usize,
        dilation: usize,
        groups: usize,
    ) -> Result<Tensor> {
        self.conv(kernel, Geometry { name: "conv1d", spatial: 1, padding, stride, dilation, groups })
    }

    /// Convolution (cross-correlation) along two axes: this is [batch, channels, height, width], `kernel` [out channels,
    /// channels / groups, rows, columns]; sizes follow the rule of [`Tensor::conv1d`]. A bias and an activation that follow
    /// are computed in the same kernel.
    pub fn conv2d(
        &self,
        kernel: &Tensor,
        padding: usize,
        stride: usize,
        dilation: usize,
        groups: usize,
    ) -> Result<Tensor> {
        self.conv(kernel, Geometry { name: "conv2d", spatial: 2, padding, stride, dilation, groups })
    }

    /// Convolution (cross-correlation) along three axes: this is [batch, channels, depth, height, width], `kernel` [out
    /// channels, channels / groups, planes, rows, columns]; sizes follow the rule of [`Tensor::conv1d`].
    pub fn conv3d(
        &self,
        kernel: &Tensor,
        padding: usize,
        stride: usize,
        dilation: usize,
        groups: usize,
    ) -> Result<Tensor> {
        self.conv(kernel, Geometry { name: "conv3d", spatial: 3, padding, stride, dilation, groups })
    }

    /// Transposed convolution along one axis, the gradient of [`Tensor::conv1d`] by its input: this is [batch, channels,
    /// length], `kernel` [channels, out channels / groups, taps]; gives [batch, out channels, (length - 1) stride - 2 padding
    /// + dilation (taps - 1) + output_padding + 1].
    pub fn conv_transpose1d(
        &self,
        kernel: &Tensor,
        padding: usize,
        output_padding: usize,
        stride: usize,
        dilation: usize,
        groups: usize,
    ) -> Result<Tensor> {
        let geometry = Geometry { name: "conv_transpose1d", spatial: 1, padding, stride, dilation, groups };
        self.conv_transpose(kernel, output_padding, geometry)
    }

    /// Transposed convolution along two axes: this is [batch, channels, height, width], `kernel` [channels, out channels,
    /// rows, columns]; sizes follow the rule of [`Tensor::conv_transpose1d`].
    pub fn conv_transpose2d(
        &self,
        kernel: &Tensor,
        padding: usize,
        output_padding: usize,
        stride: usize,
        dilation: usize,
    ) -> Result<Tensor> {
        self.conv_transpose2d_grouped(kernel, padding, output_padding, stride, dilation, 1)
    }

    /// [`Tensor::conv_transpose2d`] in groups of channels: `kernel` is [channels, out channels / groups, rows, columns].
    pub fn conv_transpose2d_grouped(
        &self,
        kernel: &Tensor,
        padding: usize,
        output_padding: usize,
        stride: usize,
        dilation: usize,
        groups: usize,
    ) -> Result<Tensor> {
        let geometry = Geometry { name: "conv_transpose2d", spatial: 2, padding, stride, dilation, groups };
        self.conv_transpose(kernel, output_padding, geometry)
    }

    fn conv(&self, kernel: &Tensor, g: Geometry) -> Result<Tensor> {
        g.check(self, kernel)?;
        let (x, k) = (self.dims(), kernel.dims());
        let (channels, outputs) = (x[1] / g.groups, k[0] / g.groups);
        if k[1] != channels || !k[0].is_multiple_of(g.groups) {
            let why = format!("the kernel must be [a multiple of {}, {channels}, ..]", g.groups);
            return Err(g.fail(self, kernel, &why));
        }
        let axes: Option<Vec<ConvAxis>> = x[2..]
            .iter()
            .zip(&k[2..])
            .map(|(&size, &taps)| {
                let padded = g.padding.checked_mul(2)?.checked_add(size)?;
                let out = padded.checked_sub(g.window(taps)?)? / g.stride + 1;
                let low = isize::try_from(g.padding).ok()?;
                Some(ConvAxis { out, stride: g.stride, low, dilation: g.dilation, input_dilation: 1 })
            })
            .collect();
        let axes =
            axes.ok_or_else(|| g.fail(self, kernel, "the kernel's window is empty, or larger than the padded input"))?;
        let input = self.reshape(lead([x[0], g.groups, channels], &x[2..]))?;
        let filter = kernel.reshape(lead([g.groups, outputs, channels], &k[2..]))?;
        let result = input.convolve(&filter, &axes)?;
        let shape: Shape = [x[0], k[0]].into_iter().chain(axes.iter().map(|a| a.out)).collect();
        result.reshape(shape)
    }

    fn conv_transpose(&self, kernel: &Tensor, output_padding: usize, g: Geometry) -> Result<Tensor> {
        g.check(self, kernel)?;
        let (x, k) = (self.dims(), kernel.dims());
        let (channels, outputs) = (x[1] / g.groups, k[1]);
        if k[0] != x[1] {
            return Err(g.fail(self, kernel, &format!("the kernel must be [{}, ..]", x[1])));
        }
        let axes: Option<Vec<ConvAxis>> = x[2..]
            .iter()
            .zip(&k[2..])
            .map(|(&size, &taps)| {
                let window = g.window(taps)?;
                let whole =
                    size.checked_sub(1)?.checked_mul(g.stride)?.checked_add(window)?.checked_add(output_padding)?;
                let out = whole.checked_sub(g.padding.checked_mul(2)?)?;
                let low = isize::try_from(window).ok()? - 1 - isize::try_from(g.padding).ok()?;
                // An output of nothing is as wrong as one of less.
                (out > 0).then_some(ConvAxis { out, stride: 1, low, dilation: g.dilation, input_dilation: g.stride })
            })
            .collect();
        let axes = axes.ok_or_else(|| g.fail(self, kernel, "the sizes leave nothing after the padding is cut off"))?;
        let input = self.reshape(lead([x[0], g.groups, channels], &x[2..]))?;
        // As a convolution of the input with zeros between its elements: the taps backwards, the channels swapped.
        let filter = kernel.reshape(lead([g.groups, channels, outputs], &k[2..]))?.turned()?;
        let result = input.convolve(&filter, &axes)?;
        let all = outputs.checked_mul(g.groups).ok_or_else(|| g.fail(self, kernel, "too many output channels"))?;
        let shape: Shape = [x[0], all].into_iter().chain(axes.iter().map(|a| a.out)).collect();
        result.reshape(shape)
    }

    /// A filter [groups, a, b, taps...] as [groups, b, a, taps backwards...].
    pub(crate) fn turned(&self) -> Result<Tensor> {
        let spatial: Vec<usize> = (3..self.rank()).collect();
        self.transpose(1, 2)?.flip(spatial.as_slice())
    }

    /// The general convolution: this is [batch, groups, channels, spatial...], `filter` [groups, out channels, channels,
    /// taps...]; gives [batch, groups, out channels, out...].
    pub(crate) fn convolve(&self, filter: &Tensor, axes: &[ConvAxis]) -> Result<Tensor> {
        let (x, f) = (self.input(), filter.input());
        let sums = self.result(ops::convolution(x.edge(), f.edge(), axes)?);
        let shape: Shape =
            [self.dims()[0], self.dims()[1], filter.dims()[1]].into_iter().chain(axes.iter().map(|a| a.out)).collect();
        rules::convolve(sums, &x, &f, axes).reshape(shape)
    }
}

/// Three sizes, then the spatial ones.
fn lead(first: [usize; 3], spatial: &[usize]) -> Shape {
    first.into_iter().chain(spatial.iter().copied()).collect()
}
