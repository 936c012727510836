//! Fourier transforms against plain sums in f64, on the CPU and on a WebGPU device where there is one: lengths of every kind,
//! axes, norms, round trips, Parseval.

use tallow::{
    D, DType, Device, Result, Tensor,
    fft::{self, Norm},
    generation::Philox,
};

const CPU: &Device = &Device::Cpu;

/// The CPU, and WebGPU where this machine has it.
fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    match tallow::block_on(Device::by_name("wgpu")) {
        Ok(device) => all.push(device),
        Err(error) => eprintln!("skipped: wgpu: {error}"),
    }
    all
}

fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut random = Philox::new(seed);
    // Rounded to f32, so that both dtypes see the same numbers.
    (0..count).map(|_| f64::from((2.0 * random.next_f64() - 1.0) as f32)).collect()
}

/// Sums over j of x[j] exp(-2 pi i j k / n), as (re, im) pairs; +2 pi i with `inverse`.
fn dft(x: &[(f64, f64)], inverse: bool) -> Vec<(f64, f64)> {
    let n = x.len();
    let sign = if inverse { 1.0 } else { -1.0 };
    let roots: Vec<_> = (0..n).map(|t| (sign * std::f64::consts::TAU * t as f64 / n as f64).sin_cos()).collect();
    (0..n)
        .map(|k| {
            x.iter().enumerate().fold((0.0, 0.0), |sum, (j, &(re, im))| {
                let (s, c) = roots[j * k % n];
                (sum.0 + re * c - im * s, sum.1 + re * s + im * c)
            })
        })
        .collect()
}

fn pairs(x: &[f64]) -> Vec<(f64, f64)> {
    x.chunks_exact(2).map(|p| (p[0], p[1])).collect()
}

fn flat(x: &[(f64, f64)]) -> Vec<f64> {
    x.iter().flat_map(|p| [p.0, p.1]).collect()
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.to_device(CPU)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// The size of the whole difference over the size of the whole.
fn error(got: &Tensor, want: &[f64]) -> f64 {
    let got = numbers(got).unwrap();
    assert_eq!(got.len(), want.len());
    let square = |x: f64| x * x;
    let off: f64 = got.iter().zip(want).map(|(g, w)| square(g - w)).sum();
    let size: f64 = want.iter().map(|w| w * w).sum();
    assert!(off.is_finite());
    (off / size.max(1e-30)).sqrt()
}

fn tensor(x: &[f64], shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    let wide = Tensor::from_slice(x, shape, CPU)?.to_dtype(dtype)?;
    wide.to_device(device)
}

/// Every transform of one length, two rows of it.
fn check_length(n: usize, dtype: DType, device: &Device, limit: f64) -> Result<()> {
    let x = noise(4 * n, n as u64);
    let rows = [pairs(&x[..2 * n]), pairs(&x[2 * n..])];
    let want = |inverse: bool| rows.iter().flat_map(|r| flat(&dft(r, inverse))).collect::<Vec<_>>();
    let z = tensor(&x, &[2, n, 2], dtype, device)?;
    let worst = |got: Result<Tensor>, want: &[f64], what: &str| -> Result<()> {
        let got = got?;
        let error = error(&got, want);
        assert!(error < limit, "{what} of {n} {dtype} on {device:?}: {error:e}");
        Ok(())
    };
    worst(fft::fft(&z, None, D::Minus1, Norm::Backward), &want(false), "fft")?;
    worst(fft::ifft(&z, None, D::Minus1, Norm::Forward), &want(true), "ifft")?;
    worst(fft::ifft(&fft::fft(&z, None, 1, Norm::Ortho)?, None, 1, Norm::Ortho), &x, "ifft of fft")?;

    let real = tensor(&x[..2 * n], &[2, n], dtype, device)?;
    let halves: Vec<f64> = (0..2)
        .flat_map(|r| {
            let row: Vec<_> = x[r * n..(r + 1) * n].iter().map(|&v| (v, 0.0)).collect();
            flat(&dft(&row, false)[..n / 2 + 1])
        })
        .collect();
    let spectrum = fft::rfft(&real, None, 1, Norm::Backward)?;
    assert_eq!(spectrum.dims(), [2, n / 2 + 1, 2]);
    worst(Ok(spectrum.clone()), &halves, "rfft")?;
    worst(fft::irfft(&spectrum, Some(n), 1, Norm::Backward), &x[..2 * n], "irfft of rfft")
}

#[test]
fn lengths_of_every_kind_on_the_cpu() -> Result<()> {
    let few = [49, 64, 65, 97, 100, 127, 128, 131, 262, 257, 360, 400, 512, 1000, 1009, 2048, 4096];
    for n in (1..=33).chain(few) {
        check_length(n, DType::F32, CPU, 6e-7)?;
        check_length(n, DType::F64, CPU, 1e-14)?;
    }
    Ok(())
}

#[test]
fn lengths_of_every_kind_on_other_devices() -> Result<()> {
    for device in &devices()[1..] {
        for n in [1, 2, 3, 4, 5, 8, 17, 60, 64, 100, 127, 131, 400, 1009, 4096] {
            check_length(n, DType::F32, device, 1e-6)?;
        }
    }
    Ok(())
}

#[test]
fn a_long_transform_keeps_its_accuracy() -> Result<()> {
    // A sum of exponentials has a spectrum of single lines.
    let n = 1 << 18;
    let lines = [(3usize, 1.0), (70_001, -0.5), (n - 9, 0.25)];
    let value = |j: usize| {
        lines.iter().fold((0.0, 0.0), |sum, &(k, a)| {
            let angle = std::f64::consts::TAU * ((j * k % n) as f64 / n as f64);
            (sum.0 + a * angle.cos(), sum.1 + a * angle.sin())
        })
    };
    let x: Vec<f64> = (0..n).map(value).flat_map(|p| [p.0, p.1]).collect();
    let mut want = vec![0.0; 2 * n];
    lines.iter().for_each(|&(k, a)| want[2 * k] = a);
    for (dtype, limit) in [(DType::F32, 1e-6), (DType::F64, 1e-14)] {
        let got = fft::fft(&tensor(&x, &[n, 2], dtype, CPU)?, None, 0, Norm::Forward)?;
        assert!(error(&got, &want) < limit, "{dtype}: {:e}", error(&got, &want));
    }
    Ok(())
}

#[test]
fn any_axis_any_layout_any_norm() -> Result<()> {
    for device in devices() {
        let (a, b, c) = (3, 8, 5);
        let x = noise(2 * a * b * c, 7);
        let z = tensor(&x, &[a, b, c, 2], DType::F32, &device)?;
        for (axis, n) in [(0, a), (1, b), (2, c)] {
            let first = z.transpose(axis, 2)?.contiguous()?;
            let want = numbers(&fft::fft(&first, None, D::Minus1, Norm::Backward)?.transpose(axis, 2)?)?;
            let got = fft::fft(&z, None, axis, Norm::Backward)?;
            assert_eq!(got.dims(), z.dims());
            assert!(error(&got, &want) < 1e-6);
            for (norm, scale) in [(Norm::Forward, 1.0 / n as f64), (Norm::Ortho, (n as f64).sqrt().recip())] {
                let want: Vec<_> = want.iter().map(|w| w * scale).collect();
                assert!(error(&fft::fft(&z, None, axis, norm)?, &want) < 1e-6);
            }
            let real = fft::real(&z)?;
            let back = fft::irfft(&fft::rfft(&real, None, axis, Norm::Ortho)?, Some(n), axis, Norm::Ortho)?;
            assert!(error(&back, &numbers(&real)?) < 1e-6);
        }
        // Flipped and stretched views.
        let odd = z.flip(1)?.narrow(2, 1, 3)?;
        let want = numbers(&fft::fft(&odd.contiguous()?, None, 1, Norm::Backward)?)?;
        assert!(error(&fft::fft(&odd, None, 1, Norm::Backward)?, &want) < 1e-6);
        let wide = z.narrow(0, 0, 1)?.broadcast_as((4, b, c, 2))?;
        let want = numbers(&fft::fft(&wide.contiguous()?, None, 1, Norm::Backward)?)?;
        assert!(error(&fft::fft(&wide, None, 1, Norm::Backward)?, &want) < 1e-6);
    }
    Ok(())
}

/// numpy.fft of [1, 2, -1, 3, 0.5] and of [1+2i, -1i, 3, 0.5-2i].
#[test]
fn values_of_numpy() -> Result<()> {
    let x = Tensor::new([1f64, 2., -1., 3., 0.5], CPU)?;
    let want = [5.5, 0.0, 0.15450849718747373, 0.9245562347271623, -0.4045084971874737, -4.685903943619324];
    assert!(error(&fft::rfft(&x, None, 0, Norm::Backward)?, &want) < 1e-15);
    let z = Tensor::new([[1f64, 2.], [0., -1.], [3., 0.], [0.5, -2.]], CPU)?;
    let want = [4.5, -1.0, -1.0, 2.5, 3.5, 5.0, -3.0, 1.5];
    assert!(error(&fft::fft(&z, None, 0, Norm::Backward)?, &want) < 1e-15);
    // Cut to 3, filled to 6.
    let want = [4.0, 1.0, -1.3660254037844386, 5.098076211353316, 0.3660254037844386, -0.09807621135331601];
    assert!(error(&fft::fft(&z, Some(3), 0, Norm::Backward)?, &want) < 1e-15);
    let six = fft::fft(&z, Some(6), D::Minus1, Norm::Backward)?;
    assert_eq!(six.dims(), [6, 2]);
    let want = [4.5, -1.0, -1.8660254037844384, 0.901923788646684, -0.8660254037844386, 3.098076211353316];
    assert!(error(&six.narrow(0, 0, 3)?, &want) < 1e-15);
    // irfft ignores what no real signal has, as numpy does.
    let half = Tensor::new([[1f64, 5.], [2., -1.], [3., 7.]], CPU)?;
    assert!(error(&fft::irfft(&half, None, 0, Norm::Backward)?, &[2.0, 0.0, 0.0, -1.0]) < 1e-15);
    Ok(())
}

#[test]
fn parseval_shift_and_convolution() -> Result<()> {
    let n = 120;
    let x = tensor(&noise(n, 1), &[n], DType::F64, CPU)?;
    let z = fft::complex(&x, &x.zeros_like()?)?;
    let y = fft::fft(&z, None, 0, Norm::Ortho)?;
    let energy = |t: &Tensor| -> Result<f64> { t.sqr()?.sum_all()?.to_scalar() };
    assert!((energy(&x)? - energy(&y)?).abs() < 1e-12);
    // The convolution theorem: a circular shift by one is a product with a single line's spectrum.
    let mut one = vec![0.0; n];
    one[1] = 1.0;
    let line = fft::rfft(&tensor(&one, &[n], DType::F64, CPU)?, None, 0, Norm::Backward)?;
    let (a, b) = (fft::rfft(&x, None, 0, Norm::Backward)?, line);
    let re = ((fft::real(&a)? * fft::real(&b)?)? - (fft::imag(&a)? * fft::imag(&b)?)?)?;
    let im = ((fft::real(&a)? * fft::imag(&b)?)? + (fft::imag(&a)? * fft::real(&b)?)?)?;
    let turned = fft::irfft(&fft::complex(&re, &im)?, Some(n), 0, Norm::Backward)?;
    let mut want = numbers(&x)?;
    want.rotate_right(1);
    assert!(error(&turned, &want) < 1e-14);
    Ok(())
}

#[test]
fn planes_shifts_and_frequencies() -> Result<()> {
    let (h, w) = (6, 7);
    let x = tensor(&noise(2 * h * w, 3), &[2, h, w], DType::F64, CPU)?;
    let half = fft::rfft2(&x, Norm::Backward)?;
    assert_eq!(half.dims(), [2, h, w / 2 + 1, 2]);
    let whole = fft::fft2(&fft::complex(&x, &x.zeros_like()?)?, Norm::Backward)?;
    assert!(error(&half, &numbers(&whole.narrow(2, 0, w / 2 + 1)?)?) < 1e-14);
    assert!(error(&fft::irfft2(&half, Some(w), Norm::Backward)?, &numbers(&x)?) < 1e-14);
    assert!(error(&fft::real(&fft::ifft2(&whole, Norm::Backward)?)?, &numbers(&x)?) < 1e-14);
    // The value at (0, 0) is the sum.
    assert!(error(&whole.narrow(1, 0, 1)?.narrow(2, 0, 1)?.narrow(3, 0, 1)?, &numbers(&x.sum((1, 2))?)?) < 1e-13);

    let f = fft::fftfreq(5, 0.1, DType::F64, CPU)?;
    assert!(error(&f, &[0., 2., 4., -4., -2.]) < 1e-15);
    assert!(error(&fft::fftshift(&f, 0)?, &[-4., -2., 0., 2., 4.]) < 1e-15);
    assert!(error(&fft::ifftshift(&fft::fftshift(&f, 0)?, 0)?, &numbers(&f)?) < 1e-15);
    let even = fft::fftfreq(4, 1.0, DType::F32, CPU)?;
    assert_eq!(even.to_vec1::<f32>()?, [0., 0.25, -0.5, -0.25]);
    assert_eq!(fft::fftshift(&even, 0)?.to_vec1::<f32>()?, [-0.5, -0.25, 0., 0.25]);
    assert_eq!(fft::rfftfreq(4, 1.0, DType::F32, CPU)?.to_vec1::<f32>()?, [0., 0.25, 0.5]);
    Ok(())
}

#[test]
fn halves_are_computed_wide_and_wrong_input_is_refused() -> Result<()> {
    let x = tensor(&noise(32, 4), &[32], DType::F16, CPU)?;
    let y = fft::rfft(&x, None, 0, Norm::Backward)?;
    assert_eq!(y.dtype(), DType::F32);
    let want = numbers(&fft::rfft(&x.to_dtype(DType::F64)?, None, 0, Norm::Backward)?)?;
    assert!(error(&y, &want) < 1e-6);
    let words = |r: Result<Tensor>| r.unwrap_err().to_string();
    assert!(words(fft::fft(&x, None, 0, Norm::Backward)).contains("last axis of 2"));
    assert!(words(fft::rfft(&x, Some(0), 0, Norm::Backward)).contains("not 0"));
    assert!(words(fft::rfft(&x, Some(usize::MAX), 0, Norm::Backward)).contains("can be transformed"));
    assert!(words(fft::rfft(&x, None, 1, Norm::Backward)).contains("no axis 1"));
    assert!(words(fft::rfft(&x.to_dtype(DType::I32)?, None, 0, Norm::Backward)).contains("to_dtype"));
    let empty = Tensor::zeros((0, 12), DType::F32, CPU)?;
    assert_eq!(numbers(&fft::rfft(&empty, None, 1, Norm::Backward)?)?.len(), 0);
    Ok(())
}
