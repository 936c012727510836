//! How many kernels a model's step takes, as docs/architecture.md states it:
//!
//! | what | kernels |
//! |---|---|
//! | `gelu(a.matmul(b) + c) * d` | 1 |
//! | softmax, rms_norm, layer_norm, with maps before and after | 1 |
//! | a llama decoder layer, Q K V and gate, up joined | 6: norm + qkv; rope of q, of k into the cache, v into the cache; attention; o + residual; norm + gate and up + silu * mul; down + residual |
//! | the same with five separate weights | 7: q, k, v still are one, gate and up are two |
//! | around the layers | 2: the embedding's rows; norm + logits |
//! | softmax, rms_norm from primitives | 4, 2 |
//! | the layer, unfused | 21 |

use crate::{
    common::*,
    decoder::{Config, Decoder},
};
use std::sync::Arc;
use tallow_graph::{
    Backend, Buffer, DType, Edge, Engine, Kernel, Node, Options, Program, Shape, ops, reference::Reference,
};

/// A few thousand weights.
const TINY: Config = Config {
    layers: 2,
    hidden: 64,
    heads: 4,
    kv_heads: 2,
    width: 16,
    inner: 96,
    vocab: 50,
    capacity: 32,
    joined: true,
};

/// The buffers of the caches' current versions.
fn caches(model: &Decoder) -> Vec<Buffer> {
    let nodes = model.layers.iter().flat_map(|l| [&l.keys, &l.values]);
    nodes.map(|n| n.engine().buffer(n).unwrap()).collect()
}

fn names(program: &Program) -> Vec<String> {
    let name = |k: &Kernel| match k {
        Kernel::Map(m) => format!("map x{}", m.parts.len()),
        Kernel::Contract(c) => {
            let norm = if c.prologue.is_some() { "norm+" } else { "" };
            let pair = if c.parts[0].paired { " paired" } else { "" };
            format!("{norm}matmul x{}{pair}", c.parts.len())
        }
        other => other.name().into(),
    };
    program.steps.iter().map(|s| name(&s.kernel)).collect()
}

#[test]
fn a_decoder_layer_is_six_kernels() {
    let (engine, reference) = engine(options());
    let mut model = Decoder::new(&engine, TINY, 7).unwrap();
    read(&model.step(&[3, 1, 4]).unwrap());
    reference.take_programs();
    read(&model.step(&[1]).unwrap());
    let programs = reference.take_programs();
    assert_eq!(programs.len(), 1, "one plan a token");
    let layer = ["norm+matmul x1", "map x3", "attention", "matmul x1", "norm+matmul x1 paired", "matmul x1"];
    let want: Vec<&str> = ["gather"].into_iter().chain(layer).chain(layer).chain(["norm+matmul x1"]).collect();
    assert_eq!(names(&programs[0]), want);
}

#[test]
fn separate_projections_are_still_launched_together() {
    let (engine, reference) = engine(options());
    let mut model = Decoder::new(&engine, Config { joined: false, ..TINY }, 7).unwrap();
    read(&model.step(&[3, 1, 4]).unwrap());
    reference.take_programs();
    read(&model.step(&[1]).unwrap());
    let programs = reference.take_programs();
    let layer = ["norm+matmul x3", "map x3", "attention", "matmul x1", "norm+matmul x1", "norm+matmul x1", "matmul x1"];
    let want: Vec<&str> = ["gather"].into_iter().chain(layer).chain(layer).chain(["norm+matmul x1"]).collect();
    assert_eq!(names(&programs[0]), want);
}

#[test]
fn decomposed_norms_take_the_kernels_that_the_docs_state() {
    let (engine, reference) = engine(Options { decompose: true, ..options() });
    let bytes: Vec<u8> = (0..24).flat_map(|i| (i as f32 - 7.5).to_le_bytes()).collect();
    let x = engine.upload(DType::F32, Shape::new(&[4, 6]), &bytes).unwrap();
    let count = |node: Arc<Node>| {
        read(&node);
        reference.take_programs().iter().map(|p| p.steps.len()).sum::<usize>()
    };
    assert_eq!(count(ops::softmax(Edge::from(&x)).unwrap()), 4, "softmax");
    assert_eq!(count(ops::rms_norm(Edge::from(&x), 1e-5).unwrap()), 2, "rms_norm");
}

#[test]
fn the_unfused_layer_is_what_was_written() {
    let (engine, reference) = engine(Options { fuse: false, ..options() });
    let mut model = Decoder::new(&engine, TINY, 7).unwrap();
    read(&model.step(&[3, 1, 4]).unwrap());
    let programs = reference.take_programs();
    assert_eq!(programs[0].steps.len(), 1 + 2 * 21 + 3);
}

#[test]
fn a_longer_cache_replays_the_same_plan_in_place() {
    let (engine, reference) = engine(options());
    let mut model = Decoder::new(&engine, TINY, 7).unwrap();
    read(&model.step(&[3, 1, 4, 1, 5]).unwrap());
    read(&model.step(&[9]).unwrap());
    let (plans, counters) = (engine.plan_counters(), reference.counters());
    let places = |model: &Decoder| caches(model).iter().map(|b| Arc::as_ptr(b).cast::<()>()).collect::<Vec<_>>();
    let before = places(&model);
    for id in 10..20 {
        read(&model.step(&[id]).unwrap());
        assert_eq!(places(&model), before, "written in place");
    }
    let (plans_after, counters_after) = (engine.plan_counters(), reference.counters());
    assert_eq!(plans_after.planned, plans.planned);
    assert_eq!(plans_after.rounds, plans.rounds + 10);
    assert_eq!(counters_after.pipelines, counters.pipelines);
    // The ids' and the logits' buffers, nothing else.
    assert_eq!(counters_after.buffers, counters.buffers + 20);
}

#[test]
fn prefill_and_decode_give_the_numbers_of_unfused_plans() {
    let refuse: [fn(&Kernel) -> bool; 5] = [
        |_| false,
        |k| matches!(k, Kernel::Contract(c) if c.prologue.is_some()),
        |k| matches!(k, Kernel::Contract(c) if c.parts.len() > 1),
        |k| matches!(k, Kernel::Contract(c) if c.parts.iter().any(|p| p.paired)),
        |k| matches!(k, Kernel::Contract(c) if c.parts.iter().any(|p| !p.epilogue.is_identity())),
    ];
    let logits = |engine: Arc<Engine>, joined: bool| -> Vec<Vec<f64>> {
        let mut model = Decoder::new(&engine, Config { joined, ..TINY }, 7).unwrap();
        let prompts: [&[u32]; 6] = [&[3, 1, 4, 1, 5], &[9], &[2], &[6, 5, 3], &[5], &[8]];
        prompts.iter().map(|ids| read(&model.step(ids).unwrap())).collect()
    };
    for joined in [true, false] {
        let want = logits(engine(Options { fuse: false, ..options() }).0, joined);
        assert!(want.iter().flatten().any(|v| v.abs() > 0.1), "logits of some size: {want:?}");
        let decomposed = logits(engine(Options { decompose: true, ..options() }).0, joined);
        assert!(want.iter().zip(&decomposed).all(|(w, g)| error(g, w) < 1e-5));
        for (i, refuse) in refuse.into_iter().enumerate() {
            let device = Arc::new(Reference::refusing(refuse));
            let got = logits(Engine::new(device.clone(), options()), joined);
            assert!(want.iter().zip(&got).all(|(w, g)| error(g, w) < 1e-5), "refusal {i}, joined {joined}");
            let programs = device.take_programs();
            assert!(!programs.iter().flat_map(|p| &p.steps).any(|s| refuse(&s.kernel)));
        }
    }
}
