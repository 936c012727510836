//! What a kernel gets to run one step: memory, data, threads, and the place for faults.

use smallvec::SmallVec;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use tallow_graph::kernel::Operand;
use tallow_graph::{DType, Error, Fault, Result, Scalar};

use super::memory::Mem;
use super::walk::{Bound, Words, bind};
use crate::{Isa, Pool};

/// The first fault that the threads of a step meet.
#[derive(Default)]
pub(crate) struct FirstFault {
    is_set: AtomicBool,
    fault: Mutex<Option<(String, String)>>,
}

impl FirstFault {
    /// Keeps what `op` met, if it is the first.
    pub fn set(&self, op: &str, message: impl FnOnce() -> String) {
        let mut kept = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| (op.to_owned(), message()));
        self.is_set.store(true, Ordering::Release);
    }

    /// The fault of step `step`, which is then forgotten.
    pub fn take(&self, step: usize) -> Option<Fault> {
        if !self.is_set.swap(false, Ordering::AcqRel) {
            return None;
        }
        let (op, message) = self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Fault { step, op, message })
    }
}

/// One step of a run.
pub(crate) struct StepRun<'a> {
    pub isa: Isa,
    pub pool: &'a Pool,
    pub inputs: &'a [Mem],
    pub outputs: &'a [Mem],
    pub words: &'a [i64],
    pub scalars: &'a [Scalar],
    pub fault: &'a FirstFault,
}

impl<'a> StepRun<'a> {
    /// Input `n`.
    pub fn input(&self, n: u8) -> Result<Mem> {
        let mem = self.inputs.get(usize::from(n)).copied();
        mem.ok_or_else(|| Error::msg(format!("a step brings no input {n} of {}", self.inputs.len())))
    }

    /// Output `n`, which may be written.
    pub fn output(&self, n: usize) -> Result<Mem> {
        let mem = self.outputs.get(n).copied().filter(|mem| mem.writable);
        mem.ok_or_else(|| Error::msg(format!("a step brings no output {n} that may be written")))
    }

    /// Output `n`, with room for `elements` of `dtype`.
    pub fn output_for(&self, n: usize, dtype: DType, elements: usize) -> Result<Mem> {
        let mem = self.output(n)?;
        let bytes = dtype.bytes_for(elements);
        if bytes.is_none_or(|bytes| bytes > mem.len) {
            return Err(Error::msg(format!(
                "output {n} of a step has {} bytes, too few for {elements} of {dtype}",
                mem.len
            )));
        }
        Ok(mem)
    }

    /// Scalar `n`.
    pub fn scalar(&self, n: usize) -> Result<Scalar> {
        self.scalars.get(n).copied().ok_or_else(|| Error::msg(format!("a step brings no scalar {n}")))
    }

    /// Binds operands over the nest of `sizes`, each with its offset and strides from `words`.
    pub fn bind(&self, operands: &[Operand], sizes: &[i64], words: &mut Words<'a>) -> Result<SmallVec<[Bound<'a>; 4]>> {
        operands
            .iter()
            .map(|operand| {
                let words = words.take(sizes.len() + 1)?;
                match operand.input {
                    Some(input) => bind(self.input(input)?, operand.dtype, sizes, words),
                    None => {
                        Ok(Bound { at: std::ptr::null_mut(), offset: words[0], strides: &words[1..], aligned: false })
                    }
                }
            })
            .collect()
    }
}
