//! A decoder-only transformer: embeddings, layers of attention and feed-forward with residual connections, a final norm, and
//! the projection to logits.

use crate::{
    blocks::{KvCache, Linear, Mlp, Norm, Rope, SelfAttention},
    config::DecoderConfig,
};
use tallow::{Activations, DType, Device, Error, Result, Tensor};

/// How a decoder computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderOptions {
    /// How packed weights take their inputs.
    pub activations: Activations,
    /// Most positions, at most the model's own; `None`: the model's own.
    pub context: Option<usize>,
}

impl Default for DecoderOptions {
    fn default() -> Self {
        Self { activations: Activations::F32, context: None }
    }
}

/// One layer: x + attention(norm(x)), then x + mlp(norm(x)).
pub(crate) struct Layer {
    pub attention_norm: Norm,
    pub attention: SelfAttention,
    pub mlp_norm: Norm,
    pub mlp: Mlp,
}

/// A decoder with its cache. Built by [`crate::DecoderBuilder`].
pub struct Decoder {
    pub(crate) config: DecoderConfig,
    pub(crate) device: Device,
    pub(crate) embedding: Tensor,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Norm,
    pub(crate) head: Linear,
    pub(crate) rope: Rope,
    pub(crate) caches: Vec<KvCache>,
    pub(crate) context: usize,
    /// Positions at the end of the caches that were computed before anybody knew whether they are wanted.
    pub(crate) ahead: usize,
}

impl Decoder {
    /// The configuration.
    pub fn config(&self) -> &DecoderConfig {
        &self.config
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Most positions.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Positions so far.
    pub fn position(&self) -> usize {
        self.computed() - self.ahead
    }

    /// Positions in the caches.
    fn computed(&self) -> usize {
        self.caches.first().map_or(0, KvCache::len)
    }

    /// How often the cache's buffers have grown.
    pub fn cache_growths(&self) -> usize {
        self.caches.first().map_or(0, KvCache::growths)
    }

    /// Forgets all positions.
    pub fn clear(&mut self) {
        self.ahead = 0;
        self.caches.iter_mut().for_each(KvCache::clear);
    }

    /// Forgets the positions from `len` on.
    pub fn truncate(&mut self, len: usize) {
        let len = len.min(self.position());
        self.ahead = 0;
        self.caches.iter_mut().for_each(|cache| cache.truncate(len));
    }

    /// Takes positions that were computed ahead for good.
    pub(crate) fn settle(&mut self, positions: usize) {
        self.ahead = self.ahead.saturating_sub(positions);
    }

    /// The final norm's input: ids [batch, positions] -> [batch, positions, hidden].
    fn hidden(&mut self, ids: &Tensor) -> Result<Tensor> {
        let positions = ids.dims2()?.1;
        let end = self.computed().saturating_add(positions);
        if end > self.context {
            return Err(Error::op("decoder", format!("position {end} is beyond the context of {}", self.context)));
        }
        let mut x = self.embedding.embedding(ids)?.to_dtype(DType::F32)?;
        for (layer, cache) in self.layers.iter().zip(&mut self.caches) {
            x = (&x + layer.attention.forward(&layer.attention_norm.forward(&x)?, &self.rope, cache)?)?;
            x = (&x + layer.mlp.forward(&layer.mlp_norm.forward(&x)?)?)?;
        }
        Ok(x)
    }

    /// Runs `f`. Where it fails, the cache is as it was: else some layers would hold more positions than others.
    fn or_restore<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.computed();
        let result = f(self);
        if result.is_err() {
            self.caches.iter_mut().for_each(|cache| cache.truncate(before));
        }
        result
    }

    /// Logits of every position: ids [batch, positions] of an integer dtype -> [batch, positions, vocabulary], F32.
    pub fn forward(&mut self, ids: &Tensor) -> Result<Tensor> {
        self.truncate(usize::MAX);
        self.or_restore(|this| {
            let x = this.hidden(ids)?;
            this.head.forward(&this.norm.forward(&x)?)
        })
    }

    /// Logits of the last position only: [batch, vocabulary], F32.
    pub fn forward_last(&mut self, ids: &Tensor) -> Result<Tensor> {
        self.truncate(usize::MAX);
        self.last(ids)
    }

    /// [`Decoder::forward_last`] of positions that may not be wanted: they do not count until they are settled, and are
    /// forgotten when anything else is computed.
    pub(crate) fn forward_ahead(&mut self, ids: &Tensor) -> Result<Tensor> {
        let logits = self.last(ids)?;
        self.ahead += ids.dims2()?.1;
        Ok(logits)
    }

    fn last(&mut self, ids: &Tensor) -> Result<Tensor> {
        self.or_restore(|this| {
            let x = this.hidden(ids)?;
            let (batch, positions, width) = x.dims3()?;
            let last = x.narrow(1, positions.saturating_sub(1), 1)?.reshape((batch, width))?;
            this.head.forward(&this.norm.forward(&last)?)
        })
    }
}

#[cfg(test)]
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../tests/common/model.rs"]
mod model;

#[cfg(test)]
mod tests {
    use super::*;
    use tallow::formats::{Bytes, Gguf};

    #[test]
    fn a_step_that_fails_between_layers_leaves_all_as_they_were() {
        let gguf = Gguf::parse(Bytes::from(super::model::Tiny::default().bytes())).unwrap();
        let mut model = crate::LanguageModel::from_gguf(&gguf, &Device::Cpu, DecoderOptions::default()).unwrap();
        let decoder = &mut model.decoder;
        let ids = Tensor::from_slice(&[97u32, 98], (1, 2), &Device::Cpu).unwrap();
        // The second layer has no room for a second step; the first one has.
        decoder.caches[1] = KvCache::new(2);
        decoder.forward(&ids).unwrap();
        assert!(decoder.forward(&ids).is_err());
        assert!(decoder.forward_last(&ids).is_err());
        assert_eq!(decoder.caches.iter().map(KvCache::len).collect::<Vec<_>>(), [2, 2]);
    }
}
