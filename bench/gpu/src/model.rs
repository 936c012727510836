//! A model of SmolLM2-135M's shape with random Q4_1 weights: speed does not depend on values, and no file is needed.

use crate::{
    ceilings::Ceilings,
    clock::Clock,
    report::{Report, Unit},
};
use std::time::{Duration, Instant};
use tallow::{
    DType, Result, Tensor, block_on,
    formats::{
        Bytes, Gguf,
        gguf::{OwnedValue, Writer},
    },
    generation::SamplingConfig,
};
use tallow_models::{GenerationOptions, LanguageModel, LoadOptions};

struct Shape {
    hidden: usize,
    inner: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocab: usize,
}

/// SmolLM2-135M.
const REAL: Shape = Shape { hidden: 576, inner: 1536, layers: 30, heads: 9, kv_heads: 3, vocab: 49_152 };
const SMALL: Shape = Shape { hidden: 192, inner: 256, layers: 2, heads: 3, kv_heads: 1, vocab: 1024 };

/// Blocks of a quantized type: random bytes, but for scales of 2^-9 as f16.
pub fn blocks(dtype: DType, elements: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut bytes = Vec::with_capacity(elements / dtype.block_elements() * dtype.block_bytes());
    for _ in 0..elements / dtype.block_elements() {
        let at = bytes.len();
        while bytes.len() < at + dtype.block_bytes() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push((state >> 32) as u8);
        }
        let scales: &[usize] = match dtype {
            DType::Q4_1 | DType::Q4K => &[0, 2],
            DType::Q6K => &[208],
            _ => &[0],
        };
        for &scale in scales {
            bytes[at + scale..at + scale + 2].copy_from_slice(&0x1800u16.to_le_bytes());
        }
    }
    bytes
}

/// The model as a GGUF file, and the bytes of its weights.
fn file(shape: &Shape) -> Result<(Vec<u8>, usize)> {
    let Shape { hidden, inner, layers, heads, kv_heads, vocab } = *shape;
    // A vocabulary of bytes needs one at least.
    let ids: Vec<String> = (0..vocab).map(|id| if id == 1 { "a".to_owned() } else { format!("<{id}>") }).collect();
    let mut file = Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("general.name", "random")
        .metadata("llama.block_count", layers as u32)
        .metadata("llama.embedding_length", hidden as u32)
        .metadata("llama.feed_forward_length", inner as u32)
        .metadata("llama.attention.head_count", heads as u32)
        .metadata("llama.attention.head_count_kv", kv_heads as u32)
        .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .metadata("llama.context_length", 2048u32)
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "gpt-2")
        .metadata("tokenizer.ggml.tokens", OwnedValue::from(ids))
        .metadata("tokenizer.ggml.token_type", OwnedValue::from(vec![1i32; vocab]))
        .metadata("tokenizer.ggml.merges", OwnedValue::from(Vec::<String>::new()))
        .metadata("tokenizer.ggml.eos_token_id", 0u32);
    let mut weights = 0;
    let mut weight = |file: Writer<'static>, name: String, rows: usize, cols: usize| {
        let data = blocks(DType::Q4_1, rows * cols);
        weights += data.len();
        file.tensor(name, DType::Q4_1, &[rows, cols], data)
    };
    // Read for the logits of each token; its rows for embeddings hardly count.
    file = weight(file, "token_embd.weight".into(), vocab, hidden);
    let ones = |n: usize| 1f32.to_le_bytes().repeat(n);
    let kv = hidden / heads * kv_heads;
    for layer in 0..layers {
        for (name, rows, cols) in [
            ("attn_q", hidden, hidden),
            ("attn_k", kv, hidden),
            ("attn_v", kv, hidden),
            ("attn_output", hidden, hidden),
            ("ffn_gate", inner, hidden),
            ("ffn_up", inner, hidden),
            ("ffn_down", hidden, inner),
        ] {
            file = weight(file, format!("blk.{layer}.{name}.weight"), rows, cols);
        }
        for name in ["attn_norm", "ffn_norm"] {
            file = file.tensor(format!("blk.{layer}.{name}.weight"), DType::F32, &[hidden], ones(hidden));
        }
    }
    let file = file.tensor("output_norm.weight", DType::F32, &[hidden], ones(hidden));
    Ok((file.to_bytes()?, weights))
}

/// Decodes and reads prompts.
pub fn measure(clock: &Clock, report: &mut Report, ceilings: &Ceilings) -> Result<()> {
    let shape = if clock.small { &SMALL } else { &REAL };
    let (bytes, weights) = file(shape)?;
    let gguf = Gguf::parse(Bytes::from(bytes))?;
    let mut model = LanguageModel::from_gguf(&gguf, &clock.device, LoadOptions::default())?;
    drop(gguf);
    for prompt in if clock.small { vec![16] } else { vec![128, 512] } {
        let seconds = prefill(clock, &mut model, prompt)?;
        let flops = 2.0 * weights as f64 * 32.0 / 20.0;
        let ceiling = ceilings.f32 / flops;
        report.row("SmolLM2", format!("prefill {prompt}"), seconds, prompt as f64, Unit::Tokens, Some(ceiling));
    }
    for in_flight in [1, 4] {
        if !clock.has(Duration::from_secs(5)) {
            report.row("SmolLM2", format!("decode, {in_flight} in flight"), None, 1.0, Unit::Tokens, None);
            continue;
        }
        let (tokens, warm) = (clock.size(96, 8), 24);
        let options = GenerationOptions {
            sampling: SamplingConfig::greedy(),
            max_tokens: Some(warm + tokens),
            in_flight: Some(in_flight),
            ..GenerationOptions::default()
        };
        // No end token: all tokens are generated.
        let prompt: Vec<u32> = (1..9).collect();
        let backend = clock.device.engine().backend().clone();
        let mut generation = tallow_models::Generation::new(&mut model.decoder, &prompt, 0, &[], options)?;
        let mut times = Vec::new();
        let mut before = backend.counters();
        for i in 0..warm + tokens {
            if i == warm {
                before = backend.counters();
            }
            let start = Instant::now();
            block_on(generation.next())?;
            if i >= warm {
                times.push(start.elapsed().as_secs_f64());
            }
        }
        let after = backend.counters();
        let seconds = times.iter().sum::<f64>() / times.len().max(1) as f64;
        let floor = ceilings.copy / weights as f64;
        let name = format!("decode, {in_flight} in flight");
        report.row("SmolLM2", name, Some(seconds), 1.0, Unit::Tokens, Some(floor));
        let each = |f: fn(&tallow::Counters) -> u64| (f(&after) - f(&before)) as f64 / tokens as f64;
        report.note(format!(
            "decode, {in_flight} in flight, a token: {:.1} dispatches, {:.2} submits, {:.2} uploads of {:.0} bytes, {} things \
             created in all",
            each(|c| c.dispatches),
            each(|c| c.submits),
            each(|c| c.writes),
            each(|c| c.written),
            (after.pipelines + after.bind_groups + after.buffers)
                - (before.pipelines + before.bind_groups + before.buffers),
        ));
    }
    Ok(())
}

/// Seconds of a prompt: the median of several.
fn prefill(clock: &Clock, model: &mut LanguageModel, prompt: usize) -> Result<Option<f64>> {
    let ids: Vec<u32> = (0..prompt as u32).map(|i| 1 + i % 1000).collect();
    let ids = Tensor::from_slice(&ids, (1, prompt), &clock.device)?;
    let mut times = Vec::new();
    for turn in 0..6 {
        if !clock.has(Duration::from_secs(1)) {
            break;
        }
        model.decoder.clear();
        clock.device.synchronize()?;
        let start = Instant::now();
        model.decoder.forward_last(&ids)?.realize()?;
        clock.device.synchronize()?;
        // The first one compiles.
        if turn > 0 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied())
}
