//! Short-time Fourier transforms against frames that are cut, windowed and summed plainly, and back.

use tallow::{
    D, DType, Device, Result, Tensor,
    fft::{self, PadMode, Stft},
    generation::Philox,
};

const CPU: &Device = &Device::Cpu;

fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut random = Philox::new(seed);
    (0..count).map(|_| f64::from((2.0 * random.next_f64() - 1.0) as f32)).collect()
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.to_device(CPU)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

fn largest_difference(got: &Tensor, want: &[f64]) -> Result<f64> {
    let got = numbers(got)?;
    assert_eq!(got.len(), want.len());
    Ok(got.iter().zip(want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max))
}

/// [frequencies, frames, 2] by the definition.
fn plain(x: &[f64], window: &[f64], hop: usize, o: &Stft) -> Vec<f64> {
    let (n, pad) = (o.n_fft as i64, if o.center { o.n_fft as i64 / 2 } else { 0 });
    let len = x.len() as i64;
    let at = |p: i64| -> f64 {
        let inside = (0..len).contains(&p);
        match o.pad_mode {
            _ if inside => x[p as usize],
            PadMode::Constant => 0.0,
            PadMode::Replicate => x[p.clamp(0, len - 1) as usize],
            PadMode::Reflect => x[if p < 0 { -p } else { 2 * (len - 1) - p } as usize],
        }
    };
    let frames = (len + 2 * pad - n) / hop as i64 + 1;
    let shift = (n as usize - window.len()) / 2;
    let bins = if o.onesided { n / 2 + 1 } else { n };
    let mut out = Vec::new();
    for k in 0..bins {
        for f in 0..frames {
            let (mut re, mut im) = (0.0, 0.0);
            for j in 0..n {
                let w = usize::try_from(j).ok().and_then(|j| j.checked_sub(shift)).and_then(|j| window.get(j));
                let value = at(f * hop as i64 + j - pad) * w.copied().unwrap_or(0.0);
                let angle = std::f64::consts::TAU * ((j * k % n) as f64) / n as f64;
                re += value * angle.cos();
                im -= value * angle.sin();
            }
            let scale = if o.normalized { (n as f64).sqrt().recip() } else { 1.0 };
            out.extend([re * scale, im * scale]);
        }
    }
    out
}

fn cases() -> Vec<(usize, Stft)> {
    let base = Stft::new(16);
    vec![
        (50, base),
        (50, Stft { hop_length: Some(5), ..base }),
        (50, Stft { center: false, ..base }),
        (47, Stft { pad_mode: PadMode::Constant, win_length: Some(11), ..base }),
        (9, Stft { pad_mode: PadMode::Replicate, normalized: true, ..base }),
        (33, Stft { onesided: false, hop_length: Some(7), ..base }),
        (33, Stft { hop_length: Some(3), ..Stft::new(15) }),
    ]
}

fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    all.extend(tallow::block_on(Device::by_name("wgpu")).map_err(|error| eprintln!("skipped: wgpu: {error}")));
    all
}

#[test]
fn frames_follow_the_definition_and_come_back() -> Result<()> {
    for device in devices() {
        for (samples, options) in cases() {
            let x = noise(samples, samples as u64);
            let length = options.win_length.unwrap_or(options.n_fft);
            let window = fft::hamming_window(length, true, DType::F32, &device)?;
            let signal = Tensor::from_slice(&x, samples, CPU)?.to_dtype(DType::F32)?.to_device(&device)?;
            let spectra = fft::stft(&signal, Some(&window), &options)?;
            let hop = options.hop_length.unwrap_or(options.n_fft / 4);
            let want = plain(&x, &numbers(&window)?, hop, &options);
            let off = largest_difference(&spectra, &want)?;
            assert!(off < 5e-6, "{options:?} on {device:?}: {off:e}");

            // Back, over as many samples as the frames cover.
            let frames = spectra.dim(1)?;
            let covered = (frames - 1) * hop + options.n_fft - if options.center { options.n_fft } else { 0 };
            let kept = covered.min(samples);
            let back = fft::istft(&spectra, Some(&window), Some(kept), &options)?;
            let off = largest_difference(&back, &x[..kept])?;
            assert!(off < 5e-6, "{options:?} on {device:?}, back: {off:e}");
        }
    }
    Ok(())
}

#[test]
fn leading_axes_and_lengths() -> Result<()> {
    let x = Tensor::from_slice(&noise(2 * 3 * 64, 5), (2, 3, 64), CPU)?;
    let options = Stft::new(16);
    let window = fft::hann_window(16, true, DType::F64, CPU)?;
    let spectra = fft::stft(&x, Some(&window), &options)?;
    assert_eq!(spectra.dims(), [2, 3, 9, 17, 2]);
    let one = fft::stft(&x.get(1)?.get(2)?, Some(&window), &options)?;
    assert!(largest_difference(&spectra.get(1)?.get(2)?, &numbers(&one)?)? < 1e-14);
    let back = fft::istft(&spectra, Some(&window), None, &options)?;
    assert_eq!(back.dims(), [2, 3, 64]);
    assert!(largest_difference(&back, &numbers(&x)?)? < 1e-13);
    // Longer than the frames reach: zeros.
    let long = fft::istft(&one, Some(&window), Some(90), &options)?;
    assert_eq!(long.dims(), [90]);
    assert!(numbers(&long.narrow(0, 72, 18)?)?.iter().all(|&v| v == 0.0));
    // Hann's first sample is 0: without centring, the signal's first sample is lost, and comes back as 0.
    let bare = Stft { center: false, ..options };
    let back = fft::istft(&fft::stft(&x, Some(&window), &bare)?, Some(&window), None, &bare)?;
    assert_eq!(back.dims(), [2, 3, 64]);
    assert_eq!(numbers(&back.narrow(D::Minus1, 0, 1)?)?, [0.0; 6]);
    assert!(largest_difference(&back.narrow(2, 1, 63)?, &numbers(&x.narrow(2, 1, 63)?)?)? < 1e-12);
    Ok(())
}

#[test]
fn windows_are_those_of_pytorch() -> Result<()> {
    let hann = fft::hann_window(4, true, DType::F64, CPU)?;
    assert!(largest_difference(&hann, &[0.0, 0.5, 1.0, 0.5])? < 1e-15);
    let symmetric = fft::hann_window(5, false, DType::F64, CPU)?;
    assert!(largest_difference(&symmetric, &[0.0, 0.5, 1.0, 0.5, 0.0])? < 1e-15);
    let hamming = fft::hamming_window(4, true, DType::F64, CPU)?;
    assert!(largest_difference(&hamming, &[0.08, 0.54, 1.0, 0.54])? < 1e-15);
    assert_eq!(fft::hann_window(1, true, DType::F32, CPU)?.to_vec1::<f32>()?, [1.0]);
    assert_eq!(fft::hann_window(0, true, DType::F32, CPU)?.dims(), [0]);
    assert!(fft::hann_window(4, true, DType::U8, CPU).is_err());
    Ok(())
}

#[test]
fn wrong_parameters_are_refused() -> Result<()> {
    let x = Tensor::zeros(20, DType::F32, CPU)?;
    let window = Tensor::ones(8, DType::F32, CPU)?;
    let words = |r: Result<Tensor>| r.unwrap_err().to_string();
    let base = Stft::new(16);
    assert!(words(fft::stft(&x, Some(&window), &base)).contains("not [16]"));
    assert!(words(fft::stft(&x, None, &Stft { hop_length: Some(0), ..base })).contains("hop of 0"));
    assert!(words(fft::stft(&x, None, &Stft { win_length: Some(17), ..base })).contains("window of 17"));
    assert!(words(fft::stft(&x, None, &Stft::new(0))).contains("not 0"));
    assert!(words(fft::stft(&x, None, &Stft { center: false, ..Stft::new(21) })).contains("fewer than a frame"));
    assert!(words(fft::stft(&x, None, &Stft::new(40))).contains("mirrored"));
    let z = Tensor::zeros((9, 3, 2), DType::F32, CPU)?;
    assert!(words(fft::istft(&z, None, None, &Stft::new(17 + 1))).contains("frequencies"));
    assert!(fft::istft(&z, None, None, &base).is_ok());
    Ok(())
}

#[test]
fn hops_and_tables_past_what_can_be_counted_are_errors() -> tallow::Result<()> {
    let z = tallow::Tensor::ones((3, 3, 2), tallow::DType::F32, &tallow::Device::Cpu)?;
    for hop in [usize::MAX, usize::MAX / 2] {
        let options = tallow::fft::Stft { hop_length: Some(hop), ..tallow::fft::Stft::new(4) };
        let error = tallow::fft::istft(&z, None, None, &options).expect_err("too long").to_string();
        assert!(error.starts_with("istft: 3 frames every"), "{error}");
    }
    let (dtype, device) = (tallow::DType::F32, &tallow::Device::Cpu);
    assert!(tallow::fft::hann_window(usize::MAX, true, dtype, device).is_err());
    assert!(tallow::fft::fftfreq(usize::MAX, 1.0, dtype, device).is_err());
    // Nothing, in many rows.
    let none = tallow::Tensor::zeros((0, usize::MAX, 2), dtype, device)?;
    assert!(tallow::fft::irfft(&none, None, 1, tallow::fft::Norm::Backward).is_err());
    Ok(())
}
