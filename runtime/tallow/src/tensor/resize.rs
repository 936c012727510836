//! Resizing along the last one or two axes: nearest neighbours and bilinear interpolation, by the rules of PyTorch.

use super::Tensor;
use crate::{DType, Error, Result, Shape};

impl Tensor {
    /// Nearest neighbours along the last axis: this is [batch, channels, length], which becomes [batch, channels, target].
    /// Output i takes input floor(i * length / target).
    pub fn interpolate1d(&self, target: usize) -> Result<Tensor> {
        self.nearest("interpolate1d", &[target])
    }

    /// Nearest neighbours along the last two axes: this is [batch, channels, height, width], which becomes [batch, channels,
    /// target_h, target_w]. Output i takes input floor(i * size / target).
    pub fn interpolate2d(&self, target_h: usize, target_w: usize) -> Result<Tensor> {
        self.nearest("interpolate2d", &[target_h, target_w])
    }

    /// Another name of [`Tensor::interpolate1d`].
    pub fn upsample_nearest1d(&self, target: usize) -> Result<Tensor> {
        self.nearest("upsample_nearest1d", &[target])
    }

    /// Another name of [`Tensor::interpolate2d`].
    ///
    /// ```
    /// use tallow::{Device, Tensor};
    /// let x = Tensor::new(&[[[[1f32, 2.]]]], &Device::Cpu)?;
    /// assert_eq!(x.upsample_nearest2d(1, 4)?.flatten_all()?.to_vec1::<f32>()?, [1., 1., 2., 2.]);
    /// # Ok::<(), tallow::Error>(())
    /// ```
    pub fn upsample_nearest2d(&self, target_h: usize, target_w: usize) -> Result<Tensor> {
        self.nearest("upsample_nearest2d", &[target_h, target_w])
    }

    /// Bilinear interpolation to [batch, channels, target_h, target_w]. With `align_corners` the first and the last elements
    /// keep their places: output i lies at i (size - 1) / (target - 1). Otherwise elements are areas: output i lies at
    /// (i + 1/2) size / target - 1/2, and at 0 where that is less.
    pub fn upsample_bilinear2d(&self, target_h: usize, target_w: usize, align_corners: bool) -> Result<Tensor> {
        self.bilinear([target_h, target_w], [None, None], align_corners)
    }

    /// Bilinear interpolation by factors: sizes become floor(size * scale), and places follow the factors instead of the
    /// ratio of the sizes, as in PyTorch with `scale_factor`.
    pub fn upsample_bilinear2d_with_scale(&self, scale_h: f64, scale_w: f64, align_corners: bool) -> Result<Tensor> {
        let (_, _, height, width) = self.spatial2("upsample_bilinear2d_with_scale")?;
        let target = |size: usize, scale: f64| {
            let target = (size as f64 * scale).floor();
            // NaN and what no size can be.
            (scale > 0.0 && target >= 1.0 && target < u32::MAX.into()).then_some(target as usize)
        };
        match (target(height, scale_h), target(width, scale_w)) {
            (Some(h), Some(w)) => self.bilinear([h, w], [Some(scale_h), Some(scale_w)], align_corners),
            _ => {
                let message = format!("factors {scale_h} and {scale_w} leave nothing of {:?}", self.shape());
                Err(Error::op("upsample_bilinear2d_with_scale", message))
            }
        }
    }

    fn spatial2(&self, name: &'static str) -> Result<(usize, usize, usize, usize)> {
        match *self.dims() {
            [batch, channels, height, width] => Ok((batch, channels, height, width)),
            _ => {
                let message = format!("needs [batch, channels, height, width], not {:?}", self.shape());
                Err(Error::op(name, message))
            }
        }
    }

    /// Targets and the sizes that they come from must be there.
    fn check_resize(&self, name: &'static str, targets: &[usize]) -> Result<()> {
        let lead = 2;
        if self.rank() != lead + targets.len() {
            let message = format!("needs an input of {} axes, not {:?}", lead + targets.len(), self.shape());
            return Err(Error::op(name, message));
        }
        // Places are u32 indices.
        let fits = |&size: &usize| size > 0 && u32::try_from(size).is_ok();
        if !targets.iter().all(fits) || !self.dims()[lead..].iter().all(fits) {
            return Err(Error::op(name, format!("{:?} cannot be resized to {targets:?}", self.shape())));
        }
        Ok(())
    }

    fn nearest(&self, name: &'static str, targets: &[usize]) -> Result<Tensor> {
        self.check_resize(name, targets)?;
        let sizes = self.dims()[2..].to_vec();
        if targets.iter().zip(&sizes).all(|(target, size)| target.is_multiple_of(*size)) {
            // Each element several times: a view, and one copy.
            let lead = self.dims()[..2].to_vec();
            let pairs = |factor: &dyn Fn(usize, usize) -> usize| -> Shape {
                let axes = sizes.iter().zip(targets).flat_map(|(&size, &target)| [size, factor(size, target)]);
                lead.iter().copied().chain(axes).collect()
            };
            let out: Shape = lead.iter().chain(targets).copied().collect();
            let pairs = self.reshape(pairs(&|_, _| 1))?.broadcast_as(pairs(&|size, target| target / size))?;
            // A view as long as each element comes once, or an axis has only one.
            return pairs.reshape(out)?.apart_from(self, name);
        }
        let mut result = self.clone();
        for (axis, (&size, &target)) in sizes.iter().zip(targets).enumerate() {
            if size != target {
                let ids = (0..target as u64).map(|i| (i * size as u64 / target as u64) as u32).collect();
                result = result.index_select(&Tensor::from_vec(ids, target, self.device())?, 2 + axis)?;
            }
        }
        Ok(result)
    }

    fn bilinear(&self, targets: [usize; 2], scales: [Option<f64>; 2], align_corners: bool) -> Result<Tensor> {
        let name = "upsample_bilinear2d";
        self.check_resize(name, &targets)?;
        let dtype = self.dtype();
        if !dtype.is_float() {
            return Err(Error::op(name, format!("needs a floating-point dtype, not {dtype}: convert with to_dtype")));
        }
        // Weights of narrow types would be coarse.
        let work = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut result = self.clone();
        for (axis, (&target, scale)) in targets.iter().zip(scales).enumerate() {
            let axis = 2 + axis;
            let size = self.dims()[axis];
            if size == target && (align_corners || scale.is_none_or(|s| s == 1.0)) {
                continue;
            }
            let places = places(size, target, scale, align_corners);
            let device = self.device();
            let ids = |next: usize| -> Result<Tensor> {
                let ids = places.iter().map(|p| (p.0 + next).min(size - 1) as u32).collect();
                result.index_select(&Tensor::from_vec(ids, target, device)?, axis)?.to_dtype(work)
            };
            let weights = |f: &dyn Fn(f64) -> f64| -> Result<Tensor> {
                let weights: Vec<f64> = places.iter().map(|p| f(p.1)).collect();
                let shape = if axis == 2 { (target, 1) } else { (1, target) };
                if work == DType::F64 {
                    return Tensor::from_vec(weights, shape, device);
                }
                Tensor::from_vec(weights.into_iter().map(|w| w as f32).collect(), shape, device)
            };
            let near = ids(0)?.broadcast_mul(&weights(&|w| 1.0 - w)?)?;
            let far = ids(1)?.broadcast_mul(&weights(&|w| w)?)?;
            result = (near + far)?;
        }
        result.to_dtype(dtype)?.apart_from(self, name)
    }
}

/// For each output of one axis: the input before it, and how far it lies on the way to the next one.
fn places(size: usize, target: usize, scale: Option<f64>, align_corners: bool) -> Vec<(usize, f64)> {
    (0..target)
        .map(|i| {
            let i = i as f64;
            let place = if align_corners {
                if target > 1 { i * (size - 1) as f64 / (target - 1) as f64 } else { 0.0 }
            } else {
                let step = scale.map_or(size as f64 / target as f64, |s| 1.0 / s);
                ((i + 0.5) * step - 0.5).max(0.0)
            };
            let before = (place as usize).min(size - 1);
            (before, (place - before as f64).clamp(0.0, 1.0))
        })
        .collect()
}
