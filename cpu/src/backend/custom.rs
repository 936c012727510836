//! Users' closures: they get their operands as contiguous bytes, and whatever they do comes back as a result or an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use smallvec::SmallVec;
use tallow_graph::kernel::{CustomKernel, HostView, HostViewMut};
use tallow_graph::{DType, Error, Result};

use super::memory::Mem;
use super::step::StepRun;
use super::walk::Words;

/// Whether the CPU runs this kernel.
pub(crate) fn supports(kernel: &CustomKernel) -> bool {
    kernel.custom.cpu().is_some()
}

/// Bytes of a contiguous value.
fn bytes_of(dims: &[usize], dtype: DType) -> Result<usize> {
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let bytes = elements.and_then(|n| dtype.bytes_for(n));
    bytes.ok_or_else(|| Error::msg(format!("{dims:?} elements of {dtype} overflow")))
}

/// The first `bytes` bytes of a buffer.
fn within(mem: Mem, bytes: usize) -> Result<*mut u8> {
    let fits = bytes <= mem.len;
    fits.then_some(mem.at).ok_or_else(|| Error::msg(format!("a buffer of {} bytes is too short for {bytes}", mem.len)))
}

/// Runs a user's kernel. A panic in the closure becomes an error.
pub(crate) fn run(step: &StepRun<'_>, kernel: &CustomKernel) -> Result<()> {
    let mut words = Words(step.words);
    let mut dims = |rank: u8| -> Result<SmallVec<[usize; 8]>> {
        Ok(words.sizes(usize::from(rank))?.iter().map(|&size| size as usize).collect())
    };
    let input_dims: Vec<_> = kernel.inputs.iter().map(|&(_, rank)| dims(rank)).collect::<Result<_>>()?;
    let (dtype, rank) = kernel.output;
    let out_dims = dims(rank)?;
    let inputs: SmallVec<[HostView<'_>; 4]> = kernel
        .inputs
        .iter()
        .zip(&input_dims)
        .enumerate()
        .map(|(i, (&(dtype, _), dims))| {
            let len = bytes_of(dims, dtype)?;
            let at = within(step.input(i as u8)?, len)?;
            // SAFETY: the buffer has so many bytes, initialised, and nobody writes an input of a step while it runs.
            let bytes = unsafe { std::slice::from_raw_parts(at.cast_const(), len) };
            Ok(HostView { dtype, dims, bytes })
        })
        .collect::<Result<_>>()?;
    let len = bytes_of(&out_dims, dtype)?;
    let at = within(step.output(0)?, len)?;
    // SAFETY: as above; the output is no input, and nobody else uses it while the step runs.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at, len) };
    let mut out = HostViewMut { dtype, dims: &out_dims, bytes };
    let scalars: SmallVec<[f64; 4]> = step.scalars.iter().map(|scalar| scalar.to_f64()).collect();
    let name = kernel.custom.name();
    let closure = kernel.custom.cpu().ok_or_else(|| kernel.custom.missing("a CPU closure"))?;
    match catch_unwind(AssertUnwindSafe(|| closure(&inputs, &scalars, &mut out))) {
        Ok(result) => result.map_err(|error| Error::op("custom", format!("'{name}': {error}"))),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(Error::op("custom", format!("the closure of '{name}' panicked: {text}")))
        }
    }
}
