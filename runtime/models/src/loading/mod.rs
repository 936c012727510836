//! Building a decoder from named tensors, in whatever order they come: from a mapped file, or from a stream whose bytes are
//! dropped as soon as they are on the device.

mod names;

use crate::{
    blocks::{FusedLinear, KvCache, Linear, Mlp, Norm, Rope, SelfAttention},
    config::{DecoderConfig, MlpKind, NormKind, RopeScaling},
    decoder::{Decoder, DecoderOptions, Layer},
};
pub use names::Naming;
use std::collections::HashMap;
use std::sync::Arc;
use tallow::{DType, Device, Error, Result, Tensor, formats::Bytes};

/// A tensor as a file holds it.
#[derive(Clone)]
pub struct RawTensor {
    /// The stored dtype, perhaps packed.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub dims: Vec<usize>,
    /// The bytes, in the file's layout.
    pub bytes: Bytes,
}

/// Collects tensors by name and builds a decoder. Weights that always go together (q, k, v; gate, up) become one.
pub struct DecoderBuilder {
    config: DecoderConfig,
    naming: Naming,
    device: Device,
    options: DecoderOptions,
    /// Parts of fused weights that wait for the others, by their own name.
    waiting: HashMap<String, RawTensor>,
    /// Which group each part belongs to.
    groups: HashMap<String, Arc<Group>>,
    ready: HashMap<String, Vec<Tensor>>,
}

/// Weights that become one: the names of the parts in order, under the name of the first.
struct Group {
    parts: Vec<String>,
}

impl DecoderBuilder {
    /// A builder for tensors that are named as `naming` says.
    pub fn new(config: DecoderConfig, naming: Naming, device: &Device, options: DecoderOptions) -> Self {
        let mut groups = HashMap::new();
        let mut group = |parts: Vec<String>| {
            let group = Arc::new(Group { parts });
            for part in &group.parts {
                groups.insert(part.clone(), group.clone());
            }
        };
        for layer in 0..config.layers {
            for kind in ["weight", "bias"] {
                let name = |part: &str| naming.name(layer, part, kind);
                group(vec![name("q"), name("k"), name("v")]);
                if matches!(config.mlp, MlpKind::Gated(_)) {
                    group(vec![name("gate"), name("up")]);
                }
            }
        }
        let device = device.clone();
        Self { config, naming, device, options, waiting: HashMap::new(), groups, ready: HashMap::new() }
    }

    /// Whether the model has a use for a tensor of this name: others need not be read.
    pub fn uses(&self, name: &str) -> bool {
        let name = self.naming.canonical(name);
        name == self.naming.rope_divisors() || self.naming.is_used(&name, self.config.layers)
    }

    /// Takes a tensor. Names that the model does not use are ignored.
    pub fn push(&mut self, name: &str, raw: RawTensor) -> Result<()> {
        let name = self.naming.canonical(name);
        if name == self.naming.rope_divisors() {
            self.config.rope.scaling = RopeScaling::Divisors(plain_f32(&raw)?);
            return self.config.rope.check();
        }
        let Some(group) = self.groups.get(&name).cloned() else {
            if self.naming.is_used(&name, self.config.layers) {
                let tensor = self.upload(&name, &raw)?;
                self.ready.insert(name, vec![tensor]);
            }
            return Ok(());
        };
        self.waiting.insert(name, raw);
        let complete = group.parts.iter().all(|part| self.waiting.contains_key(part));
        if complete {
            let parts: Vec<RawTensor> = group.parts.iter().filter_map(|part| self.waiting.remove(part)).collect();
            let first = group.parts[0].clone();
            let tensors = match join(&parts) {
                Some(all) => vec![self.upload(&first, &all)?],
                None => {
                    let named = group.parts.iter().zip(&parts);
                    named.map(|(name, raw)| self.upload(name, raw)).collect::<Result<_>>()?
                }
            };
            self.ready.insert(first, tensors);
        }
        Ok(())
    }

    fn upload(&self, name: &str, raw: &RawTensor) -> Result<Tensor> {
        let engine = self.device.engine();
        let wrong = |what: &str| Error::format("model", format!("{name} {:?} {}: {what}", raw.dims, raw.dtype));
        if raw.dtype.is_quantized() {
            let &[rows, cols] = raw.dims.as_slice() else { return Err(wrong("a packed weight needs two axes")) };
            let range = 0..raw.bytes.len();
            let node = engine.upload_packed(raw.dtype, rows, cols, Arc::new(raw.bytes.clone()), range)?;
            return Ok(Tensor::from_node(node, &self.device));
        }
        if raw.dims.len() > 2 {
            return Err(wrong("more axes than a decoder's weights have"));
        }
        let tensor = Tensor::from_bytes(&raw.bytes, raw.dtype, raw.dims.as_slice(), &self.device)?;
        raw.bytes.release();
        // Vectors are few and small: norms and biases are wanted in F32.
        if raw.dims.len() == 1 { tensor.to_dtype(DType::F32) } else { Ok(tensor) }
    }

    fn take(&mut self, name: &str) -> Result<Vec<Tensor>> {
        self.ready.remove(name).ok_or_else(|| Error::format("model", format!("there is no tensor {name}")))
    }

    fn one(&mut self, name: &str, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.take(name)?.swap_remove(0);
        if tensor.dims() != dims {
            let message = format!("{name} has shape {:?}, the configuration wants {dims:?}", tensor.shape());
            return Err(Error::format("model", message));
        }
        Ok(tensor)
    }

    fn norm(&mut self, weight: &str, bias: &str) -> Result<Norm> {
        let kind = self.config.norm;
        let hidden = self.config.hidden;
        let weight = self.one(weight, &[hidden])?;
        let bias = match kind {
            NormKind::Layer { .. } => Some(self.one(bias, &[hidden])?),
            NormKind::Rms { .. } => None,
        };
        Ok(Norm::new(kind, weight, bias))
    }

    fn linear(&mut self, layer: usize, part: &str, dims: [usize; 2], bias: bool) -> Result<Linear> {
        let weight = self.one(&self.naming.name(layer, part, "weight"), &dims)?;
        let bias = match bias {
            true => Some(self.one(&self.naming.name(layer, part, "bias"), &dims[..1])?),
            false => None,
        };
        Ok(Linear::new(weight, bias, self.options.activations))
    }

    fn fused(
        &mut self,
        layer: usize,
        parts: &[&str],
        widths: Vec<usize>,
        input: usize,
        bias: bool,
    ) -> Result<FusedLinear> {
        let name = self.naming.name(layer, parts[0], "weight");
        let weights = self.take(&name)?;
        let rows: Vec<usize> = if weights.len() == 1 { vec![widths.iter().sum()] } else { widths.clone() };
        for (weight, &rows) in weights.iter().zip(&rows) {
            if weight.dims() != [rows, input] {
                let message = format!(
                    "{name} and its kind have shape {:?}, the configuration wants [{rows}, {input}]",
                    weight.shape()
                );
                return Err(Error::format("model", message));
            }
        }
        let biases = if bias { self.take(&self.naming.name(layer, parts[0], "bias"))? } else { Vec::new() };
        let all: usize = widths.iter().sum();
        if bias && (biases.len() != 1 || biases[0].dims() != [all]) {
            let message = format!("the biases of {name} and its kind do not make {all} values of one dtype");
            return Err(Error::format("model", message));
        }
        let mut start = 0;
        let mut linears = Vec::new();
        for (weight, rows) in weights.into_iter().zip(rows) {
            let bias = biases.first().map(|b| b.narrow(0, start, rows)).transpose()?;
            start += rows;
            linears.push(Linear::new(weight, bias, self.options.activations));
        }
        Ok(FusedLinear::new(linears, widths))
    }

    /// The decoder, once all tensors are there; an error names the first that is missing or misshapen.
    pub fn finish(mut self) -> Result<Decoder> {
        if let Some(name) = self.waiting.keys().min() {
            let message = format!("{name} came without those that go with it (q, k, v; gate, up)");
            return Err(Error::format("model", message));
        }
        let config = self.config.clone();
        let c = &config;
        let (q, kv) = (c.heads * c.head_width, c.kv_heads * c.head_width);
        let context = self.options.context.unwrap_or(c.context).min(c.context);
        let embedding = self.one(&self.naming.embedding(), &[c.vocab_size, c.hidden])?;
        let mut layers = Vec::with_capacity(c.layers);
        for i in 0..c.layers {
            let norm = |part: &str, kind: &str| self.naming.name(i, part, kind);
            let names = [
                norm("attention_norm", "weight"),
                norm("attention_norm", "bias"),
                norm("mlp_norm", "weight"),
                norm("mlp_norm", "bias"),
            ];
            let attention_norm = self.norm(&names[0], &names[1])?;
            let qkv = self.fused(i, &["q", "k", "v"], vec![q, kv, kv], c.hidden, c.qkv_bias)?;
            let output = self.linear(i, "o", [c.hidden, q], c.output_bias)?;
            let attention = SelfAttention::new(qkv, output, c.heads, c.kv_heads, c.head_width, c.layer_window(i));
            let mlp_norm = self.norm(&names[2], &names[3])?;
            let up = match c.mlp {
                MlpKind::Gated(_) => self.fused(i, &["gate", "up"], vec![c.intermediate; 2], c.hidden, c.mlp_bias)?,
                MlpKind::Plain(_) => {
                    let up = self.linear(i, "up", [c.intermediate, c.hidden], c.mlp_bias)?;
                    FusedLinear::new(vec![up], vec![c.intermediate])
                }
            };
            let down = self.linear(i, "down", [c.hidden, c.intermediate], c.mlp_bias)?;
            layers.push(Layer { attention_norm, attention, mlp_norm, mlp: Mlp::new(c.mlp, up, down) });
        }
        let (weight, bias) = self.naming.final_norm();
        let norm = self.norm(&weight, &bias)?;
        let table = if c.tied { embedding.clone() } else { self.one(&self.naming.head(), &[c.vocab_size, c.hidden])? };
        let head = Linear::new(table, None, self.options.activations);
        let rope = Rope::new(&c.rope, c.head_width, context, &self.device)?;
        let caches = (0..c.layers).map(|_| KvCache::new(context)).collect();
        Ok(Decoder { device: self.device, embedding, layers, norm, head, rope, caches, context, config, ahead: 0 })
    }
}

/// The parts one below the other, where they have one dtype and width.
fn join(parts: &[RawTensor]) -> Option<RawTensor> {
    let first = parts.first()?;
    let fits = parts.iter().all(|p| p.dtype == first.dtype && !p.dims.is_empty() && p.dims[1..] == first.dims[1..]);
    if !fits {
        return None;
    }
    let mut dims = first.dims.clone();
    dims[0] = parts.iter().map(|p| p.dims[0]).sum();
    let mut bytes = Vec::with_capacity(parts.iter().map(|p| p.bytes.len()).sum());
    for part in parts {
        bytes.extend_from_slice(&part.bytes);
        // Else a joined weight would be in memory twice, here and as pages of its file.
        part.bytes.release();
    }
    Some(RawTensor { dtype: first.dtype, dims, bytes: Bytes::from(bytes) })
}

fn plain_f32(raw: &RawTensor) -> Result<Vec<f32>> {
    let tensor = Tensor::from_bytes(&raw.bytes, raw.dtype, raw.dims.as_slice(), &Device::Cpu)?;
    tensor.to_dtype(DType::F32)?.to_vec1()
}
