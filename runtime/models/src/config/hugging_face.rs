//! A configuration from a checkpoint's config.json.

use super::{Activation, DecoderConfig, MlpKind, NormKind, RopeConfig, RopePairing, RopeScaling};
use serde::Deserialize;
use tallow::{Error, Result};

/// The keys that the supported families share; unknown ones are ignored.
#[derive(Deserialize)]
struct Json {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f64,
    hidden_act: Option<String>,
    rope_theta: Option<f64>,
    rope_scaling: Option<Scaling>,
    rope_parameters: Option<Scaling>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    tie_word_embeddings: Option<bool>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
}

#[derive(Deserialize, Clone)]
struct Scaling {
    #[serde(alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
}

/// The layer from which Qwen2 has a window where the file does not say: the default of transformers' `Qwen2Config`.
const QWEN2_WINDOW_FROM: usize = 28;

fn fail(message: impl Into<String>) -> Error {
    Error::format("config.json", message)
}

fn scaling(given: Option<&Scaling>, context: usize) -> Result<RopeScaling> {
    let Some(given) = given else { return Ok(RopeScaling::None) };
    let need = |value: Option<f64>, name: &str| value.ok_or_else(|| fail(format!("rope_scaling has no {name}")));
    match given.rope_type.as_deref() {
        None | Some("default") => Ok(RopeScaling::None),
        Some("linear") => Ok(RopeScaling::Linear(need(given.factor, "factor")?)),
        Some("llama3") => Ok(RopeScaling::Llama3 {
            factor: need(given.factor, "factor")?,
            low_freq_factor: need(given.low_freq_factor, "low_freq_factor")?,
            high_freq_factor: need(given.high_freq_factor, "high_freq_factor")?,
            original_context: given.original_max_position_embeddings.unwrap_or(context as f64),
        }),
        Some(other) => Err(fail(format!("rope scaling '{other}' is not known"))),
    }
}

impl DecoderConfig {
    /// From the text of config.json.
    ///
    /// # Errors
    /// Where it is not JSON, the model type is not one of llama, mistral, qwen2, or a value is missing or impossible.
    pub fn from_hugging_face(json: &str) -> Result<Self> {
        let json: Json = serde_json::from_str(json).map_err(|error| fail(error.to_string()))?;
        let (qkv_bias, output_bias, window) = match json.model_type.as_str() {
            "llama" => (json.attention_bias == Some(true), json.attention_bias == Some(true), None),
            "mistral" => (false, false, json.sliding_window),
            // Qwen2 windows only its upper layers, and only where it says so.
            "qwen2" => (true, false, json.sliding_window.filter(|_| json.use_sliding_window == Some(true))),
            other => return Err(fail(format!("the model type '{other}' is not one of llama, mistral, qwen2"))),
        };
        let rope = json.rope_parameters.as_ref().or(json.rope_scaling.as_ref());
        let theta = rope.and_then(|r| r.rope_theta).or(json.rope_theta).unwrap_or(10_000.0);
        let window_from_layer = match json.model_type.as_str() {
            "qwen2" => json.max_window_layers.unwrap_or(QWEN2_WINDOW_FROM),
            _ => 0,
        };
        Self {
            vocab_size: json.vocab_size,
            hidden: json.hidden_size,
            layers: json.num_hidden_layers,
            heads: json.num_attention_heads,
            kv_heads: json.num_key_value_heads.unwrap_or(json.num_attention_heads),
            head_width: match json.head_dim {
                Some(width) => width,
                None => json.hidden_size.checked_div(json.num_attention_heads).unwrap_or(0),
            },
            intermediate: json.intermediate_size,
            context: json.max_position_embeddings,
            norm: NormKind::Rms { eps: json.rms_norm_eps },
            rope: RopeConfig {
                theta,
                pairing: RopePairing::Half,
                scaling: scaling(rope, json.max_position_embeddings)?,
            },
            qkv_bias,
            output_bias,
            mlp: MlpKind::Gated(Activation::from_name(json.hidden_act.as_deref().unwrap_or("silu"))?),
            mlp_bias: json.mlp_bias == Some(true),
            tied: json.tie_word_embeddings == Some(true),
            window,
            window_from_layer,
            architecture: json.model_type,
        }
        .check()
    }
}
