//! Generations and the cache beneath them: what is asked twice, goes wrong, or comes in another size.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "common/model.rs"]
mod model;

use model::Tiny;
use tallow::{
    DType, Device, Tensor, block_on,
    formats::{Bytes, Gguf},
    generation::SamplingConfig,
};
use tallow_models::{GenerationOptions, LanguageModel, LoadOptions, blocks::KvCache};

fn open() -> LanguageModel {
    let gguf = Gguf::parse(Bytes::from(Tiny::default().bytes())).unwrap();
    LanguageModel::from_gguf(&gguf, &Device::Cpu, LoadOptions::default()).unwrap()
}

fn greedy() -> GenerationOptions {
    let sampling = SamplingConfig { temperature: 0.0, ..SamplingConfig::default() };
    GenerationOptions { sampling, max_tokens: Some(6), ..GenerationOptions::default() }
}

#[test]
fn logits_asked_twice_are_the_same_and_change_nothing() {
    let mut model = open();
    let run = |model: &mut LanguageModel, ask: usize| {
        let mut generation = model.generate(&[97, 98, 99], 0, greedy()).unwrap();
        loop {
            let asked: Vec<Vec<f32>> = (0..ask).map(|_| block_on(generation.logits()).unwrap()).collect();
            assert!(asked.windows(2).all(|two| two[0] == two[1] && two[0].len() == 258));
            if block_on(generation.next()).unwrap().is_none() {
                return generation.tokens().to_vec();
            }
        }
    };
    let wanted = run(&mut model, 0);
    assert_eq!(wanted.len(), 9);
    assert_eq!(run(&mut model, 2), wanted);
}

#[test]
fn prompt_chunks_of_any_size_give_the_same_logits() {
    let mut model = open();
    let prompt: Vec<u32> = (40..90).collect();
    let mut wanted: Option<Vec<f32>> = None;
    for prompt_chunk in [usize::MAX, 50, 49, 0, 7] {
        // The second half of the prompt is added to what the cache holds: a chunk counts from there.
        drop(model.generate(&prompt, 0, greedy()).unwrap());
        let options = GenerationOptions { prompt_chunk, ..greedy() };
        block_on(model.generate(&prompt[..20], 0, options.clone()).unwrap().logits()).unwrap();
        let logits = block_on(model.generate(&prompt, 20, options).unwrap().logits()).unwrap();
        let wanted = wanted.get_or_insert_with(|| logits.clone());
        let far = wanted.iter().zip(&logits).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(far < 1e-4, "{prompt_chunk}: {far}");
    }
}

#[test]
fn a_cleared_decoder_takes_another_batch() {
    let mut model = open();
    let one = Tensor::from_slice(&[97u32, 98], (1, 2), &Device::Cpu).unwrap();
    let two = Tensor::from_slice(&[97u32, 98, 97, 98], (2, 2), &Device::Cpu).unwrap();
    let alone = model.decoder.forward_last(&one).unwrap().to_vec2::<f32>().unwrap();
    model.decoder.clear();
    let both = model.decoder.forward_last(&two).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(both.len(), 2);
    for row in &both {
        let far = row.iter().zip(&alone[0]).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(far < 1e-4, "{far}");
    }
    model.decoder.clear();
    assert_eq!(model.decoder.forward_last(&one).unwrap().to_vec2::<f32>().unwrap(), alone);
}

#[test]
fn a_step_that_fails_leaves_the_position() {
    let mut model = open();
    let ids = |rows: usize| Tensor::from_slice(&vec![97u32; rows * 2], (rows, 2), &Device::Cpu).unwrap();
    model.decoder.forward(&ids(1)).unwrap();
    assert_eq!(model.decoder.position(), 2);
    // Two rows do not fit a cache of one that is not empty.
    assert!(model.decoder.forward(&ids(2)).is_err());
    assert!(model.decoder.forward_last(&ids(2)).is_err());
    assert_eq!(model.decoder.position(), 2);
    let after = model.decoder.forward_last(&ids(1)).unwrap().to_vec2::<f32>().unwrap();
    model.decoder.clear();
    model.decoder.forward(&ids(1)).unwrap();
    assert_eq!(model.decoder.forward_last(&ids(1)).unwrap().to_vec2::<f32>().unwrap(), after);
}

#[test]
fn a_shortened_cache_goes_on_from_there() {
    let keys = |value: f32, positions: usize| {
        Tensor::from_slice(&vec![value; positions * 4], (1, positions, 2, 2), &Device::Cpu).unwrap()
    };
    let mut cache = KvCache::new(8);
    cache.append(&keys(1.0, 3), &keys(1.0, 3)).unwrap();
    cache.truncate(5);
    assert_eq!(cache.len(), 3);
    cache.truncate(1);
    let (all, _) = cache.append(&keys(2.0, 1), &keys(2.0, 1)).unwrap();
    let all = all.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(all, [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]);
    assert!(cache.append(&keys(1.0, 7), &keys(1.0, 7)).is_err());
    assert_eq!(cache.len(), 2);
}
