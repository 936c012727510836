//! Fourier transforms.

use crate::check::{Row, check};
use tallow::{
    D, DType,
    fft::{self, Norm, PadMode, Stft},
};

#[test]
fn transforms() {
    check(&[
        Row::new("fft", &[&[2, 6, 2]], -1.0..1.0, |x| fft::fft(&x[0], None, D::Minus1, Norm::Backward)?.sqr()),
        Row::new("ifft", &[&[2, 5, 2]], -1.0..1.0, |x| fft::ifft(&x[0], Some(7), 1, Norm::Ortho)?.sqr()),
        Row::new("fft in stages", &[&[70, 2]], -1.0..1.0, |x| fft::fft(&x[0], None, 0, Norm::Ortho)).first_only(),
        Row::new("fft by a chirp", &[&[131, 2]], -1.0..1.0, |x| fft::fft(&x[0], None, 0, Norm::Ortho)).first_only(),
        Row::new("rfft", &[&[2, 7]], -1.0..1.0, |x| fft::abs(&fft::rfft(&x[0], None, 1, Norm::Backward)?)),
        Row::new("rfft of columns", &[&[6, 2]], -1.0..1.0, |x| fft::rfft(&x[0], Some(4), 0, Norm::Backward)?.sqr()),
        Row::new("irfft", &[&[2, 4, 2]], -1.0..1.0, |x| fft::irfft(&x[0], None, 1, Norm::Backward)?.sqr()),
        Row::new("irfft odd", &[&[2, 4, 2]], -1.0..1.0, |x| fft::irfft(&x[0], Some(9), 1, Norm::Forward)?.sqr()),
    ]);
}

#[test]
fn short_time_transforms() {
    let window = |x: &tallow::Tensor| fft::hann_window(8, true, x.dtype(), x.device());
    check(&[
        Row::new("stft", &[&[2, 20]], -1.0..1.0, move |x| {
            fft::stft(&x[0], Some(&window(&x[0])?), &Stft::new(8))?.sqr()
        }),
        Row::new("stft in zeros", &[&[20]], -1.0..1.0, |x| {
            let options = Stft { pad_mode: PadMode::Constant, hop_length: Some(3), ..Stft::new(8) };
            fft::stft(&x[0], None, &options)?.sqr()
        }),
        Row::new("istft", &[&[5, 4, 2]], -1.0..1.0, |x| {
            let window = fft::hamming_window(8, true, DType::F32, x[0].device())?.to_dtype(x[0].dtype())?;
            fft::istft(&x[0], Some(&window), None, &Stft::new(8))?.sqr()
        }),
    ]);
}
