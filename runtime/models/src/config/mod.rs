//! What distinguishes the decoder-only families, as data.

mod gguf;
mod hugging_face;

use tallow::{Error, Result};

/// How hidden states are normalised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NormKind {
    /// x / rms(x) * weight (Zhang and Sennrich, 2019).
    Rms {
        /// Added to the mean square.
        eps: f64,
    },
    /// (x - mean) / std * weight + bias (Ba et al., 2016).
    Layer {
        /// Added to the variance.
        eps: f64,
    },
}

/// Which elements of a head rotary embedding turns together (Su et al., 2021).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairing {
    /// i and i + width / 2, as Hugging Face stores most checkpoints.
    Half,
    /// 2i and 2i + 1, as GGUF stores the llama architecture.
    Interleaved,
}

/// How rotary frequencies are changed for long contexts.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// As they are.
    None,
    /// All divided by a factor.
    Linear(f64),
    /// Long wavelengths divided by a factor, short ones kept, smoothly between (Llama 3.1).
    Llama3 {
        /// The divisor of long wavelengths.
        factor: f64,
        /// Wavelengths above context / this are long.
        low_freq_factor: f64,
        /// Wavelengths below context / this are short.
        high_freq_factor: f64,
        /// The context the model was first trained for.
        original_context: f64,
    },
    /// One divisor a frequency, as some files carry.
    Divisors(Vec<f32>),
}

/// Rotary position embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// The base of the frequencies.
    pub theta: f64,
    /// Which elements turn together.
    pub pairing: RopePairing,
    /// For long contexts.
    pub scaling: RopeScaling,
}

impl RopeConfig {
    /// Refuses what would make angles that are no numbers.
    pub(crate) fn check(&self) -> Result<()> {
        let positive = |name: &str, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(()),
            false => Err(Error::format("model", format!("a rope {name} of {value} is not possible"))),
        };
        positive("base", self.theta)?;
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear(factor) => positive("factor", *factor),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                positive("factor", *factor)?;
                positive("low_freq_factor", *low_freq_factor)?;
                positive("high_freq_factor", *high_freq_factor)?;
                positive("original context", *original_context)?;
                if high_freq_factor > low_freq_factor {
                    return Ok(());
                }
                let message = format!(
                    "rope's high_freq_factor of {high_freq_factor} must be above its low_freq_factor of {low_freq_factor}"
                );
                Err(Error::format("model", message))
            }
            RopeScaling::Divisors(all) => all.iter().try_for_each(|&divisor| positive("divisor", divisor.into())),
        }
    }

    /// Angle per position of each of the `width / 2` pairs, in radians.
    pub fn frequencies(&self, width: usize) -> Result<Vec<f64>> {
        let plain = (0..width / 2).map(|i| self.theta.powf(-2.0 * i as f64 / width as f64));
        Ok(match &self.scaling {
            RopeScaling::None => plain.collect(),
            RopeScaling::Linear(factor) => plain.map(|f| f / factor).collect(),
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => plain
                .map(|f| {
                    let wavelength = 2.0 * std::f64::consts::PI / f;
                    if wavelength < original_context / high_freq_factor {
                        f
                    } else if wavelength > original_context / low_freq_factor {
                        f / factor
                    } else {
                        let smooth =
                            (original_context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
                        (1.0 - smooth) * f / factor + smooth * f
                    }
                })
                .collect(),
            RopeScaling::Divisors(divisors) if divisors.len() == width / 2 => {
                plain.zip(divisors).map(|(f, &d)| f / f64::from(d)).collect()
            }
            RopeScaling::Divisors(divisors) => {
                let message = format!("{} rope divisors for heads of width {width}", divisors.len());
                return Err(Error::format("model", message));
            }
        })
    }
}

/// The feed-forward part of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MlpKind {
    /// down(act(gate(x)) * up(x)).
    Gated(Activation),
    /// down(act(up(x))).
    Plain(Activation),
}

/// The nonlinearity of a feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x * sigmoid(x)
    Silu,
    /// The tanh form.
    Gelu,
    /// The erf form.
    GeluErf,
    /// max(x, 0)
    Relu,
}

impl Activation {
    /// By the names that configurations use.
    pub(crate) fn from_name(name: &str) -> Result<Self> {
        match name {
            "silu" | "swish" => Ok(Self::Silu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Self::Gelu),
            "gelu" => Ok(Self::GeluErf),
            "relu" => Ok(Self::Relu),
            other => Err(Error::format("config.json", format!("the activation '{other}' is not known"))),
        }
    }

    /// Applies it.
    pub(crate) fn apply(self, x: &tallow::Tensor) -> Result<tallow::Tensor> {
        match self {
            Self::Silu => x.silu(),
            Self::Gelu => x.gelu(),
            Self::GeluErf => x.gelu_erf(),
            Self::Relu => x.relu(),
        }
    }
}

/// A decoder-only transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// The architecture's name, for messages: `llama`, `mistral`, `qwen2`.
    pub architecture: String,
    /// Tokens.
    pub vocab_size: usize,
    /// Width of hidden states.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Width inside the feed-forward part.
    pub intermediate: usize,
    /// Positions the model was made for.
    pub context: usize,
    /// Normalisation.
    pub norm: NormKind,
    /// Position embedding.
    pub rope: RopeConfig,
    /// Whether query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the attention's output projection has one.
    pub output_bias: bool,
    /// Feed-forward part.
    pub mlp: MlpKind,
    /// Whether its projections have a bias.
    pub mlp_bias: bool,
    /// Whether the output projection is the embedding table.
    pub tied: bool,
    /// Keys that lie this many positions or more back are not seen; `None` in layers without a window.
    pub window: Option<usize>,
    /// The window applies from this layer on; layers before it see everything.
    pub window_from_layer: usize,
}

impl DecoderConfig {
    /// Refuses numbers that no model can have, so that nothing below divides by zero or overflows.
    pub(crate) fn check(mut self) -> Result<Self> {
        let fail = |what: String| Err(Error::format("model", what));
        let sizes = [
            ("vocabulary", self.vocab_size),
            ("hidden size", self.hidden),
            ("layer count", self.layers),
            ("head count", self.heads),
            ("key head count", self.kv_heads),
            ("head width", self.head_width),
            ("feed-forward size", self.intermediate),
            ("context length", self.context),
        ];
        for (name, size) in sizes {
            if size == 0 || size > 1 << 28 {
                return fail(format!("a {name} of {size} is not possible"));
            }
        }
        if self.layers > 10_000 {
            return fail(format!("{} layers are not possible", self.layers));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return fail(format!("{} heads cannot share {} key heads", self.heads, self.kv_heads));
        }
        if !self.head_width.is_multiple_of(2) {
            return fail(format!("heads of odd width {} cannot be rotated", self.head_width));
        }
        for heads in [self.heads, self.kv_heads] {
            if heads.checked_mul(self.head_width).is_none_or(|width| width > 1 << 28) {
                return fail(format!("{heads} heads of width {} are not possible", self.head_width));
            }
        }
        let (NormKind::Rms { eps } | NormKind::Layer { eps }) = self.norm;
        if !(eps.is_finite() && eps >= 0.0) {
            return fail(format!("a norm's epsilon of {eps} is not possible"));
        }
        self.rope.check()?;
        // Some files write 0 for no window.
        self.window = self.window.filter(|&window| window > 0);
        Ok(self)
    }

    /// The window of a layer.
    pub(crate) fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| layer >= self.window_from_layer)
    }
}
