//! A configuration from a GGUF file's metadata.

use super::{Activation, DecoderConfig, MlpKind, NormKind, RopeConfig, RopePairing, RopeScaling};
use tallow::{Error, Result, formats::gguf::Header};

impl DecoderConfig {
    /// From `general.architecture` and the keys of that architecture.
    ///
    /// # Errors
    /// Where the architecture is not one of llama (LLaMA and Mistral), qwen2, or a key is missing or impossible.
    pub fn from_gguf(header: &Header) -> Result<Self> {
        let meta = header.metadata();
        let architecture = meta.get_str("general.architecture")?.to_string();
        // llama.cpp's converter reorders the rows of q and k for the llama architecture, so that pairs are neighbours.
        let pairing = match architecture.as_str() {
            "llama" | "mistral" => RopePairing::Interleaved,
            "qwen2" => RopePairing::Half,
            other => {
                let message = format!("the architecture '{other}' is not one of llama, mistral, qwen2");
                return Err(Error::format("GGUF", message));
            }
        };
        let key = |name: &str| format!("{architecture}.{name}");
        let size = |name: &str| meta.get_usize(&key(name));
        let heads = size("attention.head_count")?;
        let hidden = size("embedding_length")?;
        let width = match meta.read_opt::<usize>(&key("attention.key_length"))? {
            Some(width) => width,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        let rotated = meta.read_opt::<usize>(&key("rope.dimension_count"))?.unwrap_or(width);
        if rotated != width {
            let message = format!("only {rotated} of {width} elements of a head are rotated; this family rotates all");
            return Err(Error::format("GGUF", message));
        }
        let scaling = match meta.read_opt::<&str>(&key("rope.scaling.type"))? {
            Some("linear") => RopeScaling::Linear(meta.get_f64(&key("rope.scaling.factor"))?),
            None | Some("none") => RopeScaling::None,
            Some(other) => return Err(Error::format("GGUF", format!("rope scaling '{other}' is not known"))),
        };
        let has = |name: &str| header.tensors().get(name).is_some();
        let vocab_size = match header.tensors().get("token_embd.weight") {
            Some(table) => table.dims().first().copied().unwrap_or(0),
            None => size("vocab_size")?,
        };
        let (layers, tensors) = (size("block_count")?, header.tensors().len());
        // Each layer has tensors, and costs memory before they are there.
        if layers > tensors {
            let message = format!("the file claims {layers} layers and has {tensors} tensors");
            return Err(Error::format("GGUF", message));
        }
        Self {
            vocab_size,
            hidden,
            layers,
            heads,
            kv_heads: meta.read_opt(&key("attention.head_count_kv"))?.unwrap_or(heads),
            head_width: width,
            intermediate: size("feed_forward_length")?,
            context: size("context_length")?,
            norm: NormKind::Rms { eps: meta.get_f64(&key("attention.layer_norm_rms_epsilon"))? },
            rope: RopeConfig { theta: meta.read_opt(&key("rope.freq_base"))?.unwrap_or(10_000.0), pairing, scaling },
            qkv_bias: has("blk.0.attn_q.bias"),
            output_bias: has("blk.0.attn_output.bias"),
            mlp: MlpKind::Gated(Activation::Silu),
            mlp_bias: has("blk.0.ffn_down.bias"),
            tied: !has("output.weight"),
            window: meta.read_opt::<usize>(&key("attention.sliding_window"))?.filter(|&w| w > 0),
            window_from_layer: 0,
            architecture,
        }
        .check()
    }
}
