//! What a warm step of decoding asks of a GPU, counted: nothing is planned or created, one small upload, one submit, few
//! dispatches. And that tokens chosen on the device, several steps at once, are those that the host would choose.

#[allow(dead_code, reason = "shared with the models' own tests")]
#[path = "../../runtime/models/tests/common/model.rs"]
mod model;

use tallow::{
    Device, Tensor, block_on,
    formats::{Bytes, Gguf},
    generation::{LogitsProcessor, SamplingConfig},
};
use tallow_models::{Generation, GenerationOptions, LanguageModel, LoadOptions};
use tallow_tests::device;

fn tiny(device: &Device) -> LanguageModel {
    let gguf = Gguf::parse(Bytes::from(model::Tiny::default().bytes())).unwrap();
    LanguageModel::from_gguf(&gguf, device, LoadOptions::default()).unwrap()
}

fn next(generation: &mut Generation<'_>) -> Option<u32> {
    block_on(generation.next()).unwrap()
}

/// Generates until warm, then counts over some tokens.
fn count(model: &mut LanguageModel, in_flight: usize) {
    const WARM: usize = 12;
    const TOKENS: u64 = 6;
    let layers = model.decoder.config().layers as u64;
    let engine = model.decoder.device().engine().clone();
    let prompt = model.encode("The capital of France is").unwrap();
    let options = GenerationOptions {
        sampling: SamplingConfig::greedy(),
        max_tokens: Some(WARM + TOKENS as usize + in_flight),
        in_flight: Some(in_flight),
        ..GenerationOptions::default()
    };
    let mut generation = model.generate(&prompt, 0, options).unwrap();
    for _ in 0..WARM {
        next(&mut generation).expect("a token");
    }
    let (before, planned) = (engine.backend().counters(), engine.plan_counters());
    for _ in 0..TOKENS {
        next(&mut generation).expect("a token");
    }
    let (after, plans) = (engine.backend().counters(), engine.plan_counters());
    let per_token = |f: fn(&tallow::Counters) -> u64| (f(&after) - f(&before)) as f64 / TOKENS as f64;
    println!(
        "{layers} layers, {in_flight} in flight, a token: {} dispatches, {} submits, {} uploads of {} bytes",
        per_token(|c| c.dispatches),
        per_token(|c| c.submits),
        per_token(|c| c.writes),
        per_token(|c| c.written)
    );
    assert_eq!(plans.planned, planned.planned, "plans");
    assert_eq!(after.pipelines, before.pipelines, "pipelines");
    assert_eq!(after.bind_groups, before.bind_groups, "bind groups");
    assert_eq!(after.buffers, before.buffers, "buffers");
    assert!(after.dispatches - before.dispatches <= TOKENS * (8 * layers + 6), "dispatches");
    if in_flight > 1 {
        assert_eq!(after.submits - before.submits, TOKENS, "submits");
        assert_eq!(after.writes - before.writes, TOKENS, "uploads");
    } else {
        // The step, the reading of its id, which nothing else takes along; and the upload of the id for the next.
        assert_eq!(after.submits - before.submits, 2 * TOKENS, "submits");
        assert_eq!(after.writes - before.writes, 2 * TOKENS, "uploads");
    }
    // The widest block of parameters that a device may ask for is 256 bytes, and a step needs two at most.
    assert!(after.written - before.written <= TOKENS * 512 * (8 * layers + 6), "bytes");
}

#[test]
fn a_warm_step_creates_nothing_and_submits_once() {
    let Some(on) = device("wgpu") else { return };
    let mut model = tiny(&on.device);
    for in_flight in [1, 2, 4] {
        count(&mut model, in_flight);
    }
}

#[test]
fn a_warm_step_of_real_weights() {
    let Ok(path) = std::env::var("TALLOW_TEST_MODEL") else {
        println!("skipped: decode_replay: TALLOW_TEST_MODEL names no file");
        return;
    };
    let Some(on) = device("wgpu") else { return };
    let mut model = LanguageModel::open(path, &on.device, LoadOptions::default()).unwrap();
    count(&mut model, 3);
}

/// What the host chooses, step by step, from logits that are read.
fn by_hand(model: &mut LanguageModel, prompt: &[u32], sampling: &SamplingConfig, tokens: usize) -> Vec<u32> {
    let decoder = &mut model.decoder;
    decoder.clear();
    let mut sampler = LogitsProcessor::from_config(sampling.clone()).unwrap();
    let mut chosen: Vec<u32> = Vec::new();
    let mut ids = prompt.to_vec();
    while chosen.len() < tokens {
        let input = Tensor::from_slice(&ids, (1, ids.len()), decoder.device()).unwrap();
        let mut logits = decoder.forward_last(&input).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let id = sampler.sample_slice(&mut logits).unwrap();
        chosen.push(id);
        ids = vec![id];
    }
    chosen
}

#[test]
fn tokens_in_flight_are_those_of_the_host() {
    let plain = SamplingConfig { temperature: 1.0, top_p: 1.0, min_p: 0.0, ..SamplingConfig::default() };
    let mut cpu = tiny(&Device::Cpu);
    let prompt: Vec<u32> = (60..70).collect();
    for sampling in [
        SamplingConfig::greedy(),
        SamplingConfig::default(),
        SamplingConfig { top_k: 7, seed: 3, ..plain.clone() },
        SamplingConfig { top_k: 256, temperature: 3.0, seed: 4, ..plain.clone() },
        SamplingConfig { top_k: 0, seed: 5, ..plain.clone() },
        SamplingConfig { repeat_penalty: 1.0, repeat_last_n: 0, top_p: 0.3, seed: 6, ..plain },
    ] {
        let want = by_hand(&mut cpu, &prompt, &sampling, 20);
        for name in ["cpu", "wgpu"] {
            let Some(on) = device(name) else { continue };
            let mut model = tiny(&on.device);
            for in_flight in [1, 3, 64] {
                let options = GenerationOptions {
                    sampling: sampling.clone(),
                    max_tokens: Some(20),
                    in_flight: Some(in_flight),
                    ..GenerationOptions::default()
                };
                let mut generation = model.generate(&prompt, 0, options).unwrap();
                let ids: Vec<u32> = std::iter::from_fn(|| next(&mut generation)).collect();
                assert_eq!(ids, want, "{name} {sampling:?} {in_flight}");
                // All but the last token, which was never fed back.
                assert_eq!(generation.model().position(), prompt.len() + 19);
                assert_eq!(model.decoder.position(), prompt.len() + 19);
            }
        }
    }
}

#[test]
fn what_is_in_flight_is_forgotten() {
    let Some(on) = device("wgpu") else { return };
    let mut model = tiny(&on.device);
    let prompt: Vec<u32> = (60..70).collect();
    let options = GenerationOptions {
        sampling: SamplingConfig::greedy(),
        max_tokens: Some(30),
        in_flight: Some(4),
        ..GenerationOptions::default()
    };
    let mut generation = model.generate(&prompt, 0, options.clone()).unwrap();
    let ids: Vec<u32> = (0..10).map(|_| next(&mut generation).unwrap()).collect();
    // Asked in between, the logits are those after the tokens so far, and nothing changes.
    let logits = block_on(generation.logits()).unwrap();
    assert_eq!(block_on(generation.logits()).unwrap(), logits);
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).unwrap();
    let more: Vec<u32> = (0..3).map(|_| next(&mut generation).unwrap()).collect();
    assert_eq!(more[0] as usize, best);
    // What is in flight does not count; of the last token, it is what follows that has been computed.
    let held = [&prompt[..], &ids, &more].concat();
    assert_eq!(generation.tokens(), held);
    assert_eq!(model.decoder.position(), held.len());

    // Another generation goes on from there, and an end token in the middle of a flight ends at its place.
    let longer = [&held[..], &[70]].concat();
    let wanted = by_hand(&mut model, &longer, &options.sampling, 12);
    let end = wanted[9];
    let before_end = wanted.iter().position(|&id| id == end).unwrap();
    let decoder = &mut model.decoder;
    decoder.clear();
    let ids = Tensor::from_slice(&held, (1, held.len()), decoder.device()).unwrap();
    decoder.forward_last(&ids).unwrap().realize().unwrap();
    let mut generation = Generation::new(decoder, &longer, held.len(), &[end], options).unwrap();
    let got: Vec<u32> = std::iter::from_fn(|| next(&mut generation)).collect();
    assert_eq!(got, wanted[..before_end]);
    assert_eq!(generation.finish(), Some(tallow_models::Finish::End));
    assert_eq!(generation.model().position(), longer.len() + before_end);
    let after_end = block_on(generation.logits()).unwrap();
    let best = (0..after_end.len()).max_by(|&a, &b| after_end[a].total_cmp(&after_end[b]).then(b.cmp(&a))).unwrap();
    assert_eq!(best as u32, end);
}

/// The kernel alone, on logits with ties, of sizes around the workgroup's, and ones that nothing can be chosen from.
#[test]
fn the_choice_on_the_device_is_that_of_the_host() {
    let Some(on) = device("wgpu") else { return };
    let mut state = 9u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    for n in [1usize, 2, 37, 255, 256, 257, 1000, 49_152] {
        // Many levels, and few: ties. -0 is 0.
        for levels in [1e6f32, 12.0, 1.0] {
            let mut logits: Vec<f32> = (0..n).map(|_| (random() * levels).floor() / levels * 8.0 - 4.0).collect();
            if n > 30 {
                logits[7] = f32::NEG_INFINITY;
                logits[11] = -0.0;
                logits[13] = 0.0;
            }
            let tensor = Tensor::from_slice(&logits, (1, n), &on.device).unwrap();
            for (k, temperature, top_p, min_p) in [
                (1usize, 0.0, 1.0, 0.0),
                (1, 0.7, 1.0, 0.0),
                (40, 0.8, 0.95, 0.05),
                (256, 1.0, 1.0, 0.0),
                (200, 2.0, 0.6, 0.0),
                (3, 1.0, 0.0, 0.0),
                (17, 1.0, 1.0, 0.5),
            ] {
                let config = SamplingConfig {
                    temperature,
                    top_k: k,
                    top_p,
                    min_p,
                    seed: n as u64 + k as u64,
                    ..SamplingConfig::default()
                };
                let mut here = LogitsProcessor::from_config(config.clone()).unwrap();
                let mut there = here.clone();
                assert!(there.runs_on(&on.device));
                for _ in 0..4 {
                    let want = here.sample_slice(&mut logits.clone()).unwrap();
                    let mut token = block_on(there.sample_on_device(&tensor)).unwrap();
                    assert_eq!(block_on(token.id()).unwrap(), Some(want), "{n} {levels} {config:?}");
                    assert_eq!(block_on(token.id()).unwrap(), Some(want));
                    assert_eq!(token.tensor().to_vec1::<u32>().unwrap(), [want]);
                }
            }
        }
    }
    let mut greedy = LogitsProcessor::from_config(SamplingConfig::greedy()).unwrap();
    for wrong in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut logits = vec![if wrong == f32::NEG_INFINITY { wrong } else { 1.0 }; 300];
        logits[270] = wrong;
        let tensor = Tensor::from_slice(&logits, 300, &on.device).unwrap();
        assert_eq!(block_on(block_on(greedy.sample_on_device(&tensor)).unwrap().id()).unwrap(), None, "{wrong}");
        assert!(greedy.sample_slice(&mut logits).is_err());
    }
    let long = LogitsProcessor::from_config(SamplingConfig { top_k: 300, ..SamplingConfig::default() }).unwrap();
    let penalty = SamplingConfig { repeat_penalty: 1.2, ..SamplingConfig::default() };
    assert!(!long.runs_on(&on.device));
    assert!(!LogitsProcessor::from_config(penalty).unwrap().runs_on(&on.device));
    assert!(!greedy.runs_on(&Device::Cpu));
}
