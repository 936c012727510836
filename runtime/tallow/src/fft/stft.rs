//! The short-time transform: spectra of overlapping windowed frames, and the signal back from them (Griffin and Lim, 1984).

use super::{Norm, Outputs, computed, ifft, irfft, real_to_complex, resized, rows, signal_shape};
use crate::{D, Error, Result, Shape, Tensor};

/// How a signal is continued beyond its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PadMode {
    /// Mirrored at its first and last sample, which are not repeated. The signal must be longer than n_fft / 2.
    #[default]
    Reflect,
    /// Zeros.
    Constant,
    /// Its first and last sample, repeated.
    Replicate,
}

/// The parameters of [`stft`] and [`istft`]: names, meanings and defaults of PyTorch.
///
/// ```
/// use tallow::{DType, Device, Tensor, fft::{self, Stft}};
/// let signal = Tensor::rand(-1f32, 1., 1000, &Device::Cpu)?;
/// let window = fft::hann_window(64, true, DType::F32, &Device::Cpu)?;
/// let options = Stft { hop_length: Some(16), ..Stft::new(64) };
/// let spectra = fft::stft(&signal, Some(&window), &options)?;
/// assert_eq!(spectra.dims(), [33, 63, 2]);
/// let back = fft::istft(&spectra, Some(&window), Some(1000), &options)?;
/// assert!((back - &signal)?.abs()?.max_all()?.to_scalar::<f32>()? < 1e-5);
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stft {
    /// Samples of a transform.
    pub n_fft: usize,
    /// Samples from one frame to the next; n_fft / 4 where not given.
    pub hop_length: Option<usize>,
    /// Samples of the window, which is centred in the frame with zeros at both sides; n_fft where not given.
    pub win_length: Option<usize>,
    /// Whether frame t is centred at sample t hop_length, the signal being continued by n_fft / 2 at both ends; else it
    /// begins there.
    pub center: bool,
    /// How the signal is continued.
    pub pad_mode: PadMode,
    /// Whether spectra are divided by sqrt(n_fft).
    pub normalized: bool,
    /// Whether only the first n_fft / 2 + 1 frequencies are kept; the others are their conjugates.
    pub onesided: bool,
}

impl Stft {
    /// PyTorch's defaults for frames of `n_fft` samples.
    pub fn new(n_fft: usize) -> Self {
        Self {
            n_fft,
            hop_length: None,
            win_length: None,
            center: true,
            pad_mode: PadMode::Reflect,
            normalized: false,
            onesided: true,
        }
    }

    fn norm(&self) -> Norm {
        if self.normalized { Norm::Ortho } else { Norm::Backward }
    }

    /// Samples from one frame to the next.
    fn hop(&self, op: &'static str) -> Result<usize> {
        super::length(op, self.n_fft)?;
        match self.hop_length.unwrap_or(self.n_fft / 4) {
            0 => Err(Error::op(op, format!("a hop of 0 samples (n_fft {}): set hop_length", self.n_fft))),
            hop => Ok(hop),
        }
    }

    /// The window over the whole frame, [n_fft]; None where it is 1 everywhere.
    fn window(&self, op: &'static str, window: Option<&Tensor>, like: &Tensor) -> Result<Option<Tensor>> {
        let length = self.win_length.unwrap_or(self.n_fft);
        if length == 0 || length > self.n_fft {
            return Err(Error::op(op, format!("a window of {length} samples for frames of {}", self.n_fft)));
        }
        let window = match window {
            Some(window) if window.dims() == [length] => window.to_dtype(like.dtype())?,
            Some(window) => {
                let message = format!("the window is {:?}, not [{length}] (win_length)", window.shape());
                return Err(Error::op(op, message));
            }
            None if length == self.n_fft => return Ok(None),
            None => Tensor::ones(length, like.dtype(), like.device())?,
        };
        let before = (self.n_fft - length) / 2;
        Ok(Some(window.pad_with_zeros(0, before, self.n_fft - length - before)?))
    }
}

/// Overlapping frames of the rows of x [rows, samples]: [rows, frames, n_fft].
fn frames(x: &Tensor, hop: usize, options: &Stft) -> Result<Tensor> {
    let (rows, samples) = x.dims2()?;
    let n = options.n_fft;
    let pad = if options.center { n / 2 } else { 0 };
    let padded = samples.saturating_add(2 * pad);
    if padded < n || samples == 0 {
        let message = format!("{samples} samples are fewer than a frame of {n}");
        return Err(Error::op("stft", message));
    }
    if padded > i32::MAX as usize {
        return Err(Error::op("stft", format!("{samples} samples are too many for one call: cut the signal")));
    }
    let count = (padded - n) / hop + 1;
    let device = x.device();
    // The sample that each place of each frame takes, possibly outside; computed where it is used, by the gather.
    let starts = Tensor::arange(0i32, count as i32, device)?.affine(hop as f64, -(pad as f64))?.unsqueeze(1)?;
    let places = starts.broadcast_add(&Tensor::arange(0i32, n as i32, device)?.unsqueeze(0)?)?.flatten_all()?;
    let last = samples as f64 - 1.0;
    let inside = match options.pad_mode {
        _ if pad == 0 => places.clone(),
        PadMode::Reflect if pad > samples - 1 => {
            let message =
                format!("{samples} samples cannot be mirrored by {pad}: use another pad_mode or a smaller n_fft");
            return Err(Error::op("stft", message));
        }
        PadMode::Reflect => places.abs()?.affine(-1.0, last)?.abs()?.affine(-1.0, last)?,
        PadMode::Constant | PadMode::Replicate => places.clamp(0.0, last)?,
    };
    let taken = x.index_select(&inside, 1)?;
    let taken = if pad > 0 && options.pad_mode == PadMode::Constant {
        taken.broadcast_mul(&inside.eq(&places)?.to_dtype(x.dtype())?)?
    } else {
        taken
    };
    taken.reshape((rows, count, n))
}

/// The spectra of overlapping frames of a real signal [..., samples]: a complex tensor [..., frequencies, frames, 2], with
/// frequency k at k / n_fft of the sampling rate. `window` has `win_length` samples; without one, all count alike.
pub fn stft(x: &Tensor, window: Option<&Tensor>, options: &Stft) -> Result<Tensor> {
    if x.rank() == 0 {
        return Err(Error::op("stft", "a scalar is no signal: its last axis must be the samples"));
    }
    let x = computed("stft", x)?;
    let hop = options.hop("stft")?;
    let window = options.window("stft", window, &x)?;
    let mut frames = frames(&rows(&x, 1)?, hop, options)?;
    if let Some(window) = window {
        frames = frames.broadcast_mul(&window)?;
    }
    let outputs = if options.onesided { Outputs::Half } else { Outputs::All };
    let z = real_to_complex("stft", &frames, None, D::Minus1, options.norm(), outputs)?;
    let z = z.transpose(1, 2)?;
    let lead = x.dims()[..x.rank() - 1].iter().copied();
    z.reshape(lead.chain(z.dims()[1..].iter().copied()).collect::<Shape>())
}

/// Frames [rows, count, n], each `hop` after the one before, summed where they overlap: [rows, (count - 1) hop + n].
fn overlap_add(frames: &Tensor, hop: usize) -> Result<Tensor> {
    let (rows, count, n) = frames.dims3()?;
    let parts = n.div_ceil(hop);
    let pieces = resized(frames, parts * hop)?.reshape((rows, count * parts, hop))?;
    // Piece q of frame f is part of block f + q of the result.
    let blocks = count + parts - 1;
    if blocks.saturating_mul(parts) > i32::MAX as usize {
        return Err(Error::op("istft", format!("{count} frames of {parts} hops are too many for one call")));
    }
    let device = frames.device();
    let part = Tensor::arange(0i32, parts as i32, device)?;
    let frame = Tensor::arange(0i32, blocks as i32, device)?.unsqueeze(1)?.broadcast_sub(&part)?;
    let there = frame.clamp(0.0, count as f64 - 1.0)?;
    let ids = there.affine(parts as f64, 0.0)?.broadcast_add(&part)?;
    let mask = there.eq(&frame)?.to_dtype(frames.dtype())?.unsqueeze(2)?;
    let pieces = pieces.index_select(&ids.flatten_all()?, 1)?.reshape((rows, blocks, parts, hop))?;
    let sums = pieces.broadcast_mul(&mask)?.sum(2)?;
    sums.reshape((rows, blocks * hop))?.narrow(1, 0, (count - 1) * hop + n)
}

/// The signal whose [`stft`] with the same window and options comes nearest to spectra [..., frequencies, frames, 2]:
/// [..., samples]. Without a `length` it ends where the last frame is complete; with one it is cut there, or filled with zeros.
/// Samples that no window covers (its squares there sum to less than 1e-11) cannot be known: they are 0, where PyTorch refuses
/// the call.
pub fn istft(z: &Tensor, window: Option<&Tensor>, length: Option<usize>, options: &Stft) -> Result<Tensor> {
    let op = "istft";
    let signal = signal_shape(op, z)?;
    let n = options.n_fft;
    let hop = options.hop(op)?;
    let [lead @ .., found, count] = signal.dims() else {
        return Err(Error::op(op, format!("{:?} is not [..., frequencies, frames, 2]", z.shape())));
    };
    let wanted = if options.onesided { n / 2 + 1 } else { n };
    if *found != wanted || *count == 0 {
        let message = format!("{found} frequencies and {count} frames, where n_fft {n} has {wanted} and one or more");
        return Err(Error::op(op, message));
    }
    let z = rows(&computed(op, z)?, 3)?;
    let mut frames = if options.onesided {
        irfft(&z, Some(n), 1, options.norm())?
    } else {
        super::real(&ifft(&z, None, 1, options.norm())?)?
    };
    frames = frames.transpose(1, 2)?;
    let window = options.window(op, window, &frames)?;
    let weight = match &window {
        Some(window) => window.sqr()?,
        None => Tensor::ones(n, frames.dtype(), frames.device())?,
    };
    if let Some(window) = window {
        frames = frames.broadcast_mul(&window)?;
    }
    let pad = if options.center { n / 2 } else { 0 };
    let whole = (count - 1).checked_mul(hop).and_then(|last| last.checked_add(n)?.checked_add(hop));
    if whole.is_none_or(|whole| whole > i32::MAX as usize) {
        return Err(Error::op(op, format!("{count} frames every {hop} samples are too many samples for one call")));
    }
    let whole = (count - 1) * hop + n;
    let kept = length.unwrap_or(whole.saturating_sub(2 * pad));
    let part = |x: Tensor| x.narrow(1, pad, kept.min(whole - pad));
    let sums = part(overlap_add(&frames, hop)?)?;
    let weights = part(overlap_add(&weight.broadcast_as((1, *count, n))?, hop)?)?;
    // What is not covered is divided by 1, and is 0 already, up to the window's own smallness.
    let least = weights.affine(0.0, 1e-11)?;
    let covered = weights.ge(&least)?;
    let safe = covered.where_cond(&weights, &weights.ones_like()?)?;
    let sums = sums.broadcast_mul(&covered.to_dtype(sums.dtype())?)?.broadcast_div(&safe)?;
    let sums = resized(&sums, kept)?;
    sums.reshape(lead.iter().copied().chain([kept]).collect::<Shape>())
}
