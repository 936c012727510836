//! What files call the tensors of a decoder.

/// A naming scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// GGUF: `blk.0.attn_q.weight`.
    Gguf,
    /// Hugging Face: `model.layers.0.self_attn.q_proj.weight`.
    HuggingFace,
}

impl Naming {
    /// The tensor of a part of a layer: q, k, v, o, gate, up, down, attention_norm, mlp_norm; `kind` is weight or bias.
    pub(super) fn name(self, layer: usize, part: &str, kind: &str) -> String {
        match self {
            Naming::Gguf => format!("blk.{layer}.{}.{kind}", GGUF.iter().find(|p| p.0 == part).map_or(part, |p| p.1)),
            Naming::HuggingFace => {
                format!(
                    "model.layers.{layer}.{}.{kind}",
                    HUGGING_FACE.iter().find(|p| p.0 == part).map_or(part, |p| p.1)
                )
            }
        }
    }

    pub(super) fn embedding(self) -> String {
        match self {
            Naming::Gguf => "token_embd.weight",
            Naming::HuggingFace => "model.embed_tokens.weight",
        }
        .into()
    }

    pub(super) fn head(self) -> String {
        match self {
            Naming::Gguf => "output.weight",
            Naming::HuggingFace => "lm_head.weight",
        }
        .into()
    }

    /// Weight and bias of the last norm.
    pub(super) fn final_norm(self) -> (String, String) {
        match self {
            Naming::Gguf => ("output_norm.weight".into(), "output_norm.bias".into()),
            Naming::HuggingFace => ("model.norm.weight".into(), "model.norm.bias".into()),
        }
    }

    /// One divisor a rotary frequency, which some GGUF files carry.
    pub(super) fn rope_divisors(self) -> &'static str {
        "rope_freqs.weight"
    }

    /// A file's name as this scheme spells it: checkpoints of the bare model leave out `model.`.
    pub(super) fn canonical(self, name: &str) -> String {
        match self {
            Naming::HuggingFace if ["layers.", "embed_tokens.", "norm."].iter().any(|p| name.starts_with(p)) => {
                format!("model.{name}")
            }
            _ => name.to_string(),
        }
    }

    /// Whether a decoder of so many layers has a place for the tensor.
    pub(super) fn is_used(self, name: &str, layers: usize) -> bool {
        let (prefix, table) = match self {
            Naming::Gguf => ("blk.", &GGUF),
            Naming::HuggingFace => ("model.layers.", &HUGGING_FACE),
        };
        let (weight, bias) = self.final_norm();
        if name == self.embedding() || name == self.head() || name == weight || name == bias {
            return true;
        }
        let Some((layer, part)) = name.strip_prefix(prefix).and_then(|rest| rest.split_once('.')) else { return false };
        let Some((part, kind)) = part.rsplit_once('.') else { return false };
        layer.parse::<usize>().is_ok_and(|l| l < layers)
            && matches!(kind, "weight" | "bias")
            && table.iter().any(|p| p.1 == part)
    }
}

const GGUF: [(&str, &str); 9] = [
    ("attention_norm", "attn_norm"),
    ("q", "attn_q"),
    ("k", "attn_k"),
    ("v", "attn_v"),
    ("o", "attn_output"),
    ("mlp_norm", "ffn_norm"),
    ("gate", "ffn_gate"),
    ("up", "ffn_up"),
    ("down", "ffn_down"),
];

const HUGGING_FACE: [(&str, &str); 9] = [
    ("attention_norm", "input_layernorm"),
    ("q", "self_attn.q_proj"),
    ("k", "self_attn.k_proj"),
    ("v", "self_attn.v_proj"),
    ("o", "self_attn.o_proj"),
    ("mlp_norm", "post_attention_layernorm"),
    ("gate", "mlp.gate_proj"),
    ("up", "mlp.up_proj"),
    ("down", "mlp.down_proj"),
];
