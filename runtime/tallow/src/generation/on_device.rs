//! Choosing tokens where the logits are: a kernel makes the choice of [`LogitsProcessor`], so that only ids are read, and
//! the next step can be given an id that the host has not seen yet.

use super::LogitsProcessor;
use crate::{DType, Result, Shape, Tensor};
use std::{
    future::ready,
    sync::{Arc, OnceLock},
};
use tallow_graph::{
    BoxFuture, Engine, Error,
    kernel::{Custom, Wgsl},
    ops,
};

/// The most that top-k may be for a choice on the device: an invocation a candidate.
const MOST: usize = 256;

/// The kernel. It has no source for the CPU, whose logits are in the host's memory anyway.
fn kernel() -> &'static Arc<Custom> {
    static KERNEL: OnceLock<Arc<Custom>> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let source = include_str!("sample.wgsl").to_string();
        Arc::new(Custom::new("sample").with_wgsl(Wgsl::Kernel(source, Box::new(|_, _| [1, 1, 1]))))
    })
}

/// A token that a device has chosen, or is going to.
pub struct SampledToken {
    id: Tensor,
    read: BoxFuture<'static, Result<Vec<u8>>>,
    /// What was read.
    known: Option<Option<u32>>,
}

impl SampledToken {
    /// The id, U32 `[1]`, on the device. It is 0 where no choice could be made.
    pub fn tensor(&self) -> &Tensor {
        &self.id
    }

    /// The id, once the device has come so far; `None` where no choice could be made because of the logits:
    /// [`LogitsProcessor::sample_slice`] tells why.
    ///
    /// # Errors
    /// What went wrong on the device; asked again, that there is nothing to read.
    pub async fn id(&mut self) -> Result<Option<u32>> {
        if let Some(known) = self.known {
            return Ok(known);
        }
        let bytes = (&mut self.read).await;
        self.read = Box::pin(ready(Err(Error::op("sample", "the id was not read: choose anew"))));
        let bytes = bytes?;
        let word = |i: usize| bytes.get(4 * i..4 * i + 4)?.try_into().ok().map(u32::from_le_bytes);
        let id = match (word(0), word(1)) {
            (Some(id), Some(0)) => Some(id),
            (Some(_), Some(_)) => None,
            _ => return Err(Error::op("sample", "the device gave no id")),
        };
        self.known = Some(id);
        Ok(id)
    }
}

impl LogitsProcessor {
    /// Whether [`sample_on_device`](Self::sample_on_device) can make this choice on the device: greedy, or with a top-k of
    /// 1 to 256; without a repeat penalty; and the device has a kernel for it.
    pub fn runs_on(&self, device: &crate::Device) -> bool {
        let config = self.config();
        (self.is_greedy() || (1..=MOST).contains(&config.top_k))
            && (config.repeat_penalty == 1.0 || config.repeat_last_n == 0)
            && device.engine().backend().check_custom(kernel(), &[DType::F32], DType::U32).is_ok()
    }

    /// Chooses among `logits`, F32 of one position, where they are, starts the computation, and starts reading the id. The
    /// choice is that of [`sample_slice`](Self::sample_slice), made in f32: they differ only where the random share falls
    /// within rounding of the border between two tokens.
    ///
    /// # Errors
    /// Settings out of range, logits of another dtype, and a choice that the device cannot make
    /// ([`runs_on`](Self::runs_on)).
    pub async fn sample_on_device(&mut self, logits: &Tensor) -> Result<SampledToken> {
        self.config().validate()?;
        let logits = logits.flatten_all()?;
        if logits.dtype() != DType::F32 || logits.elem_count() == 0 {
            let message = format!("takes logits of F32, at least one, not {:?} of {}", logits.dims(), logits.dtype());
            return Err(Error::op("sample", message));
        }
        if !self.runs_on(logits.device()) {
            let message = "this choice cannot be made on this device: read the logits and use sample_slice";
            return Err(Error::op("sample", message));
        }
        let greedy = self.is_greedy();
        let config = self.config();
        let (temperature, k) = if greedy { (0.0, 1) } else { (config.temperature, config.top_k) };
        let (p, least) = (config.top_p, config.min_p);
        let share = if greedy { 0.0 } else { self.draw() };
        let scalars = [temperature, k as f64, p, least, share];
        let node = ops::custom(kernel(), &[logits.as_edge()], &scalars, DType::U32, Shape::new(&[2]))?;
        let engine: Arc<Engine> = logits.device().engine().clone();
        let buffer = engine.value(&node).await?;
        let read = engine.backend().read(&buffer, 0..8);
        Ok(SampledToken { id: Tensor::from_operation("sample", node, &[&logits])?.narrow(0, 0, 1)?, read, known: None })
    }
}
