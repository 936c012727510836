//! Self-attention with grouped heads, rotary positions and a cache.

use super::{FusedLinear, KvCache, Linear, Rope};
use tallow::{Attention, Result, Tensor};

/// The attention part of a layer.
pub struct SelfAttention {
    qkv: FusedLinear,
    output: Linear,
    heads: usize,
    kv_heads: usize,
    width: usize,
    window: Option<usize>,
}

impl SelfAttention {
    /// From projections to queries (`heads` x `width`), keys and values (`kv_heads` x `width`), and the output projection.
    pub fn new(
        qkv: FusedLinear,
        output: Linear,
        heads: usize,
        kv_heads: usize,
        width: usize,
        window: Option<usize>,
    ) -> Self {
        Self { qkv, output, heads, kv_heads, width, window }
    }

    /// x [batch, positions, hidden] -> [batch, positions, hidden]. The positions follow those in the cache.
    pub fn forward(&self, x: &Tensor, rope: &Rope, cache: &mut KvCache) -> Result<Tensor> {
        let (b, t, _) = x.dims3()?;
        let start = cache.len();
        let projected = self.qkv.forward(x)?;
        let [q, k, v] = projected.as_slice() else {
            return Err(tallow::Error::msg("attention needs three projections"));
        };
        let q = rope.forward(&q.reshape((b, t, self.heads, self.width))?, start)?;
        let k = rope.forward(&k.reshape((b, t, self.kv_heads, self.width))?, start)?;
        let v = v.reshape((b, t, self.kv_heads, self.width))?;
        let (keys, values) = cache.append(&k, &v)?;
        let q = q.reshape((b, t, self.heads, self.width))?;
        let options =
            Attention { scale: 1.0 / (self.width as f64).sqrt(), causal: true, window: self.window, softcap: None };
        let mixed = q.attention(&keys, &values, None, options)?;
        self.output.forward(&mixed.reshape((b, t, self.heads * self.width))?)
    }
}
