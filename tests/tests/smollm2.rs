//! Real weights: SmolLM2-135M-Instruct Q4_1, against what reference implementations gave. The file is named by
//! `TALLOW_TEST_MODEL`; without it these tests are skipped by name.

use tallow::{Activations, generation::SamplingConfig};
use tallow_models::{GenerationOptions, LanguageModel, LoadOptions};
use tallow_tests::device;

/// (on, activations, greedy ids after "The capital of France is")
const CASES: [(&str, Activations, &[u32]); 4] = [
    ("cpu", Activations::F32, &[7042, 30, 198, 198, 504, 2988, 314, 42]),
    ("cpu", Activations::Q8, &[7042, 30, 198, 198, 504, 1797, 1918, 553, 253, 2155, 282, 4723]),
    ("wgpu", Activations::F32, &[7042, 30, 198, 198, 504, 2988, 314, 42]),
    ("wgpu", Activations::Q8, &[7042, 30, 198, 198, 504, 1797]),
];

fn run(case: usize) {
    let (name, activations, want) = CASES[case];
    let Ok(path) = std::env::var("TALLOW_TEST_MODEL") else {
        println!("skipped: smollm2 on {name}: TALLOW_TEST_MODEL names no file");
        return;
    };
    let Some(on) = device(name) else { return };
    let options = LoadOptions { activations, ..LoadOptions::default() };
    let mut model = LanguageModel::open(path, &on.device, options).expect("the model loads");
    let prompt = model.encode("The capital of France is").unwrap();
    assert_eq!(prompt, [504, 3575, 282, 4649, 314]);
    let options = GenerationOptions {
        sampling: SamplingConfig::greedy(),
        max_tokens: Some(want.len()),
        ..GenerationOptions::default()
    };
    if activations == Activations::F32 {
        let mut generation = model.generate(&prompt, 0, options.clone()).unwrap();
        let logits = tallow::block_on(generation.logits()).unwrap();
        for (id, value) in [(7042, 17.371f32), (260, 14.889), (4528, 13.245)] {
            let got: f32 = logits[id];
            assert!((got - value).abs() < 0.05, "logit {id} on {name} is {got}, not {value}");
        }
    }
    let mut generation = model.generate(&prompt, 0, options).unwrap();
    let mut ids = Vec::new();
    while let Some(id) = tallow::block_on(generation.next()).unwrap() {
        ids.push(id);
    }
    assert_eq!(ids[..4], [7042, 30, 198, 198], "{name} {activations:?}");
    // Longer sequences hold where the arithmetic is the reference's own; 8-bit rounding may turn a near tie.
    if activations == Activations::F32 {
        assert_eq!(ids, want, "{name}");
    }
    assert!(model.tokenizer.decode(&ids, true).unwrap().starts_with(" Paris."));
}

#[test]
fn cpu_f32() {
    run(0);
}

#[test]
fn cpu_q8() {
    run(1);
}

#[test]
fn wgpu_f32() {
    run(2);
}

#[test]
fn wgpu_q8() {
    run(3);
}
