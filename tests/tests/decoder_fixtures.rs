//! The decoder families against transformers: tiny checkpoints with random weights, whose logits and greedy tokens were made
//! with the reference implementation (see each fixture's meta.json). Judged relative to the logits' root mean square.

use tallow::{DType, Device};
use tallow_models::{Decoder, DecoderOptions, Generation, GenerationOptions};
use tallow_tests::{Candidate, device, error_to_rms, expected, fixture};

const TOLERANCE: f64 = 1e-4;

fn logits(family: &str, on: &Candidate) {
    let mut decoder = Decoder::open_folder(fixture(family), &on.device, DecoderOptions::default()).expect("it loads");
    let ids = expected(family, "input_ids");
    let want = expected(family, "logits").flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let ids = ids.to_dtype(DType::U32).unwrap().to_device(&on.device).unwrap();
    let got = decoder.forward(&ids).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let error = error_to_rms(&got, &want);
    assert!(error < TOLERANCE, "{family} on {}: error {error:.2e} of the rms", on.name);
    // The same, token by token through the cache.
    decoder.clear();
    let (batch, positions) = ids.dims2().unwrap();
    let vocab = decoder.config().vocab_size;
    for p in 0..positions {
        let step = decoder.forward(&ids.narrow(1, p, 1).unwrap()).unwrap();
        let got = step.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        for b in 0..batch {
            let at = (b * positions + p) * vocab;
            let error = error_to_rms(&got[b * vocab..(b + 1) * vocab], &want[at..at + vocab]);
            assert!(error < TOLERANCE * 3.0, "{family} on {} at {p}: error {error:.2e}", on.name);
        }
    }
}

fn greedy(family: &str, on: &Candidate) {
    let meta = std::fs::read_to_string(fixture(family).join("meta.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let list =
        |v: &serde_json::Value| v.as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect::<Vec<_>>();
    let (prompt, want) = (list(&meta["greedy"]["prompt"]), list(&meta["greedy"]["tokens"]));
    let mut decoder = Decoder::open_folder(fixture(family), &on.device, DecoderOptions::default()).unwrap();
    let options = GenerationOptions {
        sampling: tallow::generation::SamplingConfig::greedy(),
        max_tokens: Some(want.len()),
        // Smaller than the prompt, so that chunks are tested too.
        prompt_chunk: 5,
        in_flight: None,
    };
    let mut generation = Generation::new(&mut decoder, &prompt, 0, &[], options).unwrap();
    let mut got = Vec::new();
    while let Some(id) = tallow::block_on(generation.next()).unwrap() {
        got.push(id);
    }
    assert_eq!(got, want, "{family} on {}", on.name);
}

macro_rules! families {
    ($($family:ident)+) => { $(
        mod $family {
            use super::*;
            fn on(name: &str) {
                if let Some(candidate) = device(name) {
                    logits(stringify!($family), &candidate);
                    greedy(stringify!($family), &candidate);
                }
            }
            #[test]
            fn reference() {
                on("reference");
            }
            #[test]
            fn cpu() {
                on("cpu");
            }
            #[test]
            fn wgpu() {
                on("wgpu");
            }
            /// The embedding, the joined projections and the output layer are larger than a binding may be.
            #[test]
            fn wgpu_in_pieces() {
                on("wgpu:pieces");
            }
        }
    )+ };
}

families! { llama mistral qwen2 }

#[test]
fn a_context_that_is_full_ends_the_generation() {
    let options = DecoderOptions { context: Some(16), ..DecoderOptions::default() };
    let mut decoder = Decoder::open_folder(fixture("llama"), &Device::Cpu, options).unwrap();
    let prompt = [1, 2, 3, 4];
    let mut generation = Generation::new(&mut decoder, &prompt, 0, &[], GenerationOptions::default()).unwrap();
    let mut count = 0;
    while tallow::block_on(generation.next()).unwrap().is_some() {
        count += 1;
    }
    // The last token's own position is never computed, so it may lie just beyond the context.
    assert_eq!(count, 13);
    assert_eq!(generation.finish(), Some(tallow_models::Finish::ContextFull));
    let long = vec![1; 16];
    let error = Generation::new(&mut decoder, &long, 0, &[], GenerationOptions::default()).err().unwrap();
    assert!(error.to_string().contains("16 tokens"), "{error}");
}
