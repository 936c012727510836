//! The transform itself, over rows of data in planes: one matrix product for each small factor of the length with a rotation
//! between them, or a convolution with a chirp.
//!
//! A stage holds the data as [rows, K, part, M]: K outputs are known so far, and inputs M apart are still to be summed. It
//! splits M into (radix, M'), multiplies by the small DFT matrix, rotates, and puts the new output index before K, so that
//! outputs come out in order (Stockham's way).

use super::tables::{Plan, Rotation, Stage, plan};
use crate::{Error, Result, Tensor};

/// Rows of data to transform.
pub(super) enum Input {
    /// [rows, n]
    Real(Tensor),
    /// [rows, 2, n]
    Complex(Tensor),
}

/// Which results are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outputs {
    /// All n, complex.
    All,
    /// Those up to n/2 at least, complex.
    Half,
    /// The imaginary part of all n.
    Imaginary,
}

/// A transform of length `n`. The result is [rows, A, B, parts], where output k is at (k / B, k % B): mostly a view, to be
/// brought into order by what reads it.
pub(super) fn transform(input: Input, n: usize, outputs: Outputs) -> Result<Tensor> {
    let (Input::Real(x) | Input::Complex(x)) = &input;
    match &*plan(x.device(), x.dtype(), n)? {
        Plan::Factors(stages) => factors(&input, stages, outputs),
        Plan::Chirp { m, chirp, before, filter, after } => {
            let y = match &input {
                Input::Real(x) => x.unsqueeze(1)?.broadcast_mul(&chirp.on(x.device()))?,
                Input::Complex(x) => rotated(x, 1, before)?,
            };
            let y = super::resized(&y, *m)?;
            let spectrum = in_planes(&transform(Input::Complex(y), *m, Outputs::All)?)?;
            let product = rotated_as(&spectrum, filter)?;
            // The inverse transform, by swapped planes.
            let y = in_planes(&transform(Input::Complex(product.flip(1)?), *m, Outputs::All)?)?;
            let y = rotated_as(&y, after)?.flip(1)?.narrow(2, 0, n)?;
            let y = if outputs == Outputs::Imaginary { y.narrow(1, 1, 1)? } else { y };
            y.transpose(1, 2)?.unsqueeze(2)
        }
    }
}

fn factors(input: &Input, stages: &[Stage], outputs: Outputs) -> Result<Tensor> {
    let (x, mut parts) = match input {
        Input::Real(x) => (x.clone(), 1),
        Input::Complex(x) => (x.clone(), 2),
    };
    let (rows, device) = (x.dim(0)?, x.device().clone());
    let mut left: usize = stages.iter().map(|s| s.radix).product();
    let mut known = 1;
    let mut y = x;
    for Stage { radix, matrix, rotation } in stages {
        let (radix, matrix) = (*radix, matrix.on(&device));
        // A real input meets only the columns of real parts.
        let matrix = matrix.narrow(1, 0, parts * radix)?;
        left /= radix;
        let Some(rotation) = rotation else {
            let (matrix, parts_out) = match outputs {
                Outputs::All => (matrix, 2),
                Outputs::Half => (matrix.narrow(0, 0, 2 * (radix / 2 + 1))?, 2),
                Outputs::Imaginary => (matrix.reshape((radix, 2, parts * radix))?.narrow(1, 1, 1)?.squeeze(1)?, 1),
            };
            let y = y.reshape((rows * known, parts * radix))?.matmul(&matrix.t()?)?;
            let found = matrix.dim(0)? / parts_out;
            return y.reshape((rows, known, found, parts_out))?.transpose(1, 2);
        };
        let z = matrix.broadcast_matmul(&y.reshape((rows * known, parts * radix, left))?)?;
        let z = z.reshape((rows, known, radix, 2, left))?.transpose(1, 2)?;
        y = rotate(&z, 3, &rotation.re.on(&device), &rotation.im.on(&device))?;
        (known, parts) = (known * radix, 2);
        y = y.reshape((rows, known, 2, left))?;
    }
    Err(Error::op("fft", "a length without factors"))
}

/// y times complex factors; the planes lie along `axis`.
fn rotate(y: &Tensor, axis: usize, re: &Tensor, im: &Tensor) -> Result<Tensor> {
    y.broadcast_mul(re)? + y.flip(axis)?.broadcast_mul(im)?
}

fn rotated(y: &Tensor, axis: usize, by: &Rotation) -> Result<Tensor> {
    rotate(y, axis, &by.re.on(y.device()), &by.im.on(y.device()))
}

/// A transform's result as [rows, parts, A, B].
fn in_planes(z: &Tensor) -> Result<Tensor> {
    z.permute([0, 3, 1, 2])
}

/// y [rows, 2, A, B] times factors over A B: [rows, 2, A B].
fn rotated_as(y: &Tensor, by: &Rotation) -> Result<Tensor> {
    let [rows, _, a, b] = *y.dims() else { return Err(Error::op("fft", "a spectrum of another shape")) };
    let (re, im) = (by.re.on(y.device()).reshape((1, a, b))?, by.im.on(y.device()).reshape((2, a, b))?);
    rotate(y, 1, &re, &im)?.reshape((rows, 2, a * b))
}
