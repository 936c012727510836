//! SmolLM2-135M-Instruct, Q4_1, generating greedily.

use tallow_bench_protocol::{Fill, Input, Op, Unit};

use super::Entry;
use super::build::case;

/// "The capital of France is".
const PROMPT: [u32; 5] = [504, 3575, 282, 4649, 314];
/// Its vocabulary.
const VOCABULARY: u32 = 49_152;
/// Multiplications of one token: 30 layers of 576 with 3 of 9 heads for keys and values and 1536 inside, and the output,
/// which shares its matrix with the embedding.
const PRODUCTS: f64 = (30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536) + 576 * VOCABULARY as usize) as f64;
/// Bytes of the file: 20 for 32 weights in Q4_1, some tensors in more.
const BYTES: f64 = 98.5e6;
/// Like for like, llama.cpp at least; candle by half as much again.
const WANTED: [(&str, f64); 2] = [("llama", 1.), ("candle-llm", 1.5)];

/// The cases.
pub fn entries() -> Vec<Entry> {
    let prompt = || vec![Input { name: "prompt".into(), dims: vec![5], fill: Fill::Listed { ids: PROMPT.to_vec() } }];
    let tokens = 64;
    let mut decode =
        case("llm", "decode 64 tokens", Op::LlmDecode { tokens }, prompt(), 0).targets(&WANTED).tolerance(0.);
    decode.case.unit = Unit::Tokens(tokens);
    decode.case.flops = 2. * PRODUCTS * tokens as f64;
    decode.case.bytes = BYTES * tokens as f64;
    let mut entries = vec![decode];
    for length in [128, 512] {
        let ids = Input { name: "prompt".into(), dims: vec![length], fill: Fill::Ids { below: VOCABULARY } };
        let mut prefill = case("llm", format!("prefill of {length}"), Op::LlmPrefill, vec![ids], 0)
            .targets(&WANTED)
            // Everyone rounds inputs to 8 bits, each in its own way.
            .tolerance(0.2);
        prefill.case.unit = Unit::Tokens(length);
        // The last position alone needs logits.
        let output = (576 * VOCABULARY) as f64;
        prefill.case.flops = 2. * ((PRODUCTS - output) * length as f64 + output);
        prefill.case.bytes = BYTES;
        entries.push(prefill);
    }
    let mut start =
        case("llm", "start to first token", Op::LlmStart, prompt(), 0).targets(&[("llama", 1.)]).tolerance(0.);
    start.case.bytes = BYTES;
    start.case.flops = 2. * PRODUCTS * PROMPT.len() as f64;
    let mut peak = start.clone().targets(&[("llama", 1. / 1.1)]);
    peak.case.name = "peak memory at the first token".into();
    peak.case.unit = Unit::Bytes;
    entries.extend([start, peak]);
    entries
}
