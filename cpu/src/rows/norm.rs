//! RMS norm and layer norm of one row.

use super::reduce::{dot_body, sum_body};

multiversion! {
    /// out_i = x_i / sqrt(mean(x^2) + eps) * weight_i (Zhang and Sennrich, 2019). Slices have one length; a shorter
    /// `weight` or `out` cuts the result short.
    pub fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) = rms_norm_body;
    /// [`rms_norm`] of `x` into itself.
    pub fn rms_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, eps: f32) = rms_norm_in_place_body;
    /// out_i = (x_i - mean) / sqrt(variance + eps) * weight_i + bias_i (Ba, Kiros and Hinton, 2016), with the
    /// variance over n (not n - 1), from the differences to the mean.
    pub fn layer_norm(x: &[f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32, out: &mut [f32])
        = layer_norm_body;
    /// [`layer_norm`] of `x` into itself.
    pub fn layer_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32)
        = layer_norm_in_place_body;
}

#[inline(always)]
fn rms_norm_body<const FMA: bool>(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    let scale = rms_scale::<FMA>(x, eps);
    match weight {
        Some(weight) => {
            for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                *out = x * scale * w;
            }
        }
        None => {
            for (out, x) in out.iter_mut().zip(x) {
                *out = x * scale;
            }
        }
    }
}

#[inline(always)]
fn rms_norm_in_place_body<const FMA: bool>(x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    let scale = rms_scale::<FMA>(x, eps);
    scale_by::<FMA>(x, scale, weight);
}

#[inline(always)]
fn rms_scale<const FMA: bool>(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot_body::<FMA>(x, x) / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn scale_by<const FMA: bool>(x: &mut [f32], scale: f32, weight: Option<&[f32]>) {
    match weight {
        Some(weight) => {
            for (x, w) in x.iter_mut().zip(weight) {
                *x = *x * scale * w;
            }
        }
        None => {
            for x in x.iter_mut() {
                *x *= scale;
            }
        }
    }
}

#[inline(always)]
fn layer_norm_body<const FMA: bool>(
    x: &[f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) {
    let n = x.len().min(out.len());
    out[..n].copy_from_slice(&x[..n]);
    layer_norm_in_place_body::<FMA>(&mut out[..n], weight, bias, eps);
}

#[inline(always)]
fn layer_norm_in_place_body<const FMA: bool>(x: &mut [f32], weight: Option<&[f32]>, bias: Option<&[f32]>, eps: f32) {
    let mean = sum_body::<FMA>(x) / x.len() as f32;
    for x in x.iter_mut() {
        *x -= mean;
    }
    let scale = rms_scale::<FMA>(x, eps);
    scale_by::<FMA>(x, scale, weight);
    if let Some(bias) = bias {
        for (x, b) in x.iter_mut().zip(bias) {
            *x += b;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::quant::tests::Random;

    #[test]
    fn norms_match_f64() {
        let mut random = Random(5);
        for isa in Isa::supported() {
            for n in [1usize, 3, 31, 32, 33, 576, 1000] {
                for (scale, shift) in [(1.0, 0.0), (1e-6, 0.0), (1e12, 0.0), (1.0, 100.0)] {
                    let x: Vec<f32> = random.vec(n, scale).iter().map(|v| v + shift).collect();
                    let (w, b) = (random.vec(n, 2.0), random.vec(n, 2.0));
                    let eps = 1e-5f32;
                    let wide: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
                    let mean = wide.iter().sum::<f64>() / n as f64;
                    let ms = wide.iter().map(|v| v * v).sum::<f64>() / n as f64 + f64::from(eps);
                    let var = wide.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64 + f64::from(eps);
                    let (mut rms, mut layer) = (vec![0.0; n], vec![0.0; n]);
                    rms_norm(isa, &x, Some(&w), eps, &mut rms);
                    layer_norm(isa, &x, Some(&w), Some(&b), eps, &mut layer);
                    for i in 0..n {
                        let want = wide[i] / ms.sqrt() * f64::from(w[i]);
                        assert!((f64::from(rms[i]) - want).abs() <= 2e-6 * want.abs(), "{isa:?} n={n} {want}");
                        let want = (wide[i] - mean) / var.sqrt() * f64::from(w[i]) + f64::from(b[i]);
                        // The mean's rounding is relative to the shift.
                        let tolerance = 3e-6 * (1.0 + f64::from(shift));
                        assert!((f64::from(layer[i]) - want).abs() <= tolerance, "{isa:?} n={n} {want} {}", layer[i]);
                    }
                    let (mut rms_2, mut layer_2) = (x.clone(), x.clone());
                    rms_norm_in_place(isa, &mut rms_2, Some(&w), eps);
                    layer_norm_in_place(isa, &mut layer_2, Some(&w), Some(&b), eps);
                    assert_eq!((rms, layer), (rms_2, layer_2));
                    let (mut plain, mut ones) = (vec![0.0; n], vec![0.0; n]);
                    rms_norm(isa, &x, None, eps, &mut plain);
                    rms_norm(isa, &x, Some(&vec![1.0; n]), eps, &mut ones);
                    assert_eq!(plain, ones);
                }
            }
        }
    }
}
