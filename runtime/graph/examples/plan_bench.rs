//! What planning and encoding cost: microseconds a step, warm, on a device that does nothing.
//!
//! `cargo run --release -p tallow-graph --example plan_bench`

#[path = "../tests/graph/decoder.rs"]
mod decoder;

use decoder::{Config, Decoder};
use smallvec::{SmallVec, smallvec};
use std::{any::Any, ops::Range, sync::Arc, time::Instant};
use tallow_graph::{
    Backend, BinaryOp, BoxFuture, Buffer, Counters, DType, DeviceBuffer, Engine, Fault, HostBytes, Implementation,
    Info, Kernel, Options, Prepared, Program, Result, Run, Shape, kernel::Custom, ops,
};

/// A device of no memory and no work.
struct Null(Info);

struct Nothing(u64);

impl DeviceBuffer for Nothing {
    fn bytes(&self) -> u64 {
        self.0
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Prepared for Nothing {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Backend for Null {
    fn info(&self) -> &Info {
        &self.0
    }
    fn check_dtype(&self, _: DType) -> Result<()> {
        Ok(())
    }
    fn lower(&self, _: &Kernel, _: &[i64]) -> SmallVec<[Implementation; 2]> {
        smallvec![Implementation { id: 0, scratch: 0, cost: 1.0 }]
    }
    fn check_custom(&self, custom: &Custom, _: &[DType], _: DType) -> Result<()> {
        custom.cpu().map(|_| ()).ok_or_else(|| custom.missing("a CPU closure"))
    }

    fn prepare(&self, _: &Program) -> Result<Arc<dyn Prepared>> {
        Ok(Arc::new(Nothing(0)))
    }
    fn submit(&self, _: &dyn Prepared, _: Run<'_>) -> Result<Vec<Fault>> {
        Ok(Vec::new())
    }
    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        Ok(Arc::new(Nothing(bytes)))
    }
    fn write(&self, _: &Buffer, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn read(&self, _: &Buffer, range: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>>> {
        Box::pin(std::future::ready(Ok(vec![0; (range.end - range.start) as usize])))
    }
    fn ready(&self) -> BoxFuture<'static, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn packed_bytes(&self, _: DType, _: usize, _: usize) -> Result<u64> {
        Ok(0)
    }
    fn pack(&self, _: DType, _: usize, _: usize, _: HostBytes, _: Range<usize>) -> Result<Buffer> {
        self.allocate(0)
    }
    fn pack_rows(&self, _: &Buffer, _: DType, _: usize, _: usize, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn unpack(&self, _: &Buffer, _: DType, _: usize, _: usize) -> BoxFuture<'static, Result<Vec<u8>>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// The fastest of many runs of building (first) and of realising (second), in microseconds.
fn best(runs: usize, mut step: impl FnMut() -> Result<(f64, f64)>) -> Result<(f64, f64)> {
    let mut least = (f64::INFINITY, f64::INFINITY);
    for _ in 0..runs {
        let (build, run) = step()?;
        least = (least.0.min(build), least.1.min(run));
    }
    Ok(least)
}

fn main() -> Result<()> {
    let info = Info {
        name: "null".into(),
        backend: "null",
        driver: String::new(),
        software: true,
        features: Vec::new(),
        limits: Vec::new(),
        memory: None,
        max_bindings: 8,
        max_words: 240,
        can_block: true,
    };
    let engine = Engine::new(Arc::new(Null(info)), Options::default());
    let report = |name: &str, nodes: usize, (build, run): (f64, f64)| {
        println!("{name:<34} {nodes:>5} nodes  build {build:>8.2} us  plan and encode {run:>8.2} us");
    };
    let timed = |node: &mut dyn FnMut() -> Result<Arc<tallow_graph::Node>>| -> Result<(f64, f64)> {
        let start = Instant::now();
        let node = node()?;
        let built = start.elapsed();
        engine.try_realize(std::slice::from_ref(&node))?;
        Ok((built.as_secs_f64() * 1e6, (start.elapsed() - built).as_secs_f64() * 1e6))
    };

    // The sizes of SmolLM2-135M; the weights are never looked at.
    let config = Config {
        layers: 30,
        hidden: 576,
        heads: 9,
        kv_heads: 3,
        width: 64,
        inner: 1536,
        vocab: 1024,
        capacity: 4096,
        joined: true,
    };
    for joined in [true, false] {
        let mut model = Decoder::new(&engine, Config { joined, ..config }, 1)?;
        let nodes = 30 * if joined { 20 } else { 23 } + 4;
        let mut step = |ids: &[u32]| timed(&mut || model.step(ids));
        let first = step(&[1, 2, 3, 4, 5])?;
        report("prefill, first time", nodes, first);
        let first = step(&[1])?;
        report("decode, first time", nodes, first);
        let planned = engine.plan_counters();
        let warm = best(1000, || step(&[1]))?;
        report("decode, warm", nodes, warm);
        let now = engine.plan_counters();
        assert_eq!(now.planned, planned.planned, "a warm step is replayed");
        println!("  {} kernels a token", (now.steps - planned.steps) / (now.rounds - planned.rounds));
    }

    // A graph of ten times the size, planned once: growth should be linear.
    let mut deep = Decoder::new(&engine, Config { layers: 300, ..config }, 1)?;
    report("decode of 300 layers, first time", 300 * 20 + 4, timed(&mut || deep.step(&[1]))?);

    let zeros =
        |dims: &[usize]| engine.upload(DType::F32, Shape::new(dims), &vec![0; dims.iter().product::<usize>() * 4]);
    let (a, b) = (zeros(&[2, 2])?, zeros(&[2, 2])?);
    let mut add = || ops::binary(BinaryOp::Add, a.whole(), b.whole());
    report("2 x 2 add, warm", 1, best(100_000, || timed(&mut add))?);
    let mut chain = || (0..100).try_fold(a.clone(), |x, _| ops::binary(BinaryOp::Add, x.whole(), b.whole()));
    report("chain of 100 adds, warm", 100, best(10_000, || timed(&mut chain))?);
    Ok(())
}
