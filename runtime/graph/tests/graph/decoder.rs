//! A decoder-only transformer as `tallow-models` builds it, from nodes: packed weights, rope as a map over views, a KV
//! cache that is written in place, attention over its filled part. The tests count its kernels; `examples/plan_bench.rs`
//! times its planning.

use std::sync::Arc;
use tallow_graph::{
    BinaryOp, DType, Edge, Engine, Node, Result, Shape, UnaryOp, View,
    kernel::Activations,
    ops::{self, Attention},
};

/// Sizes, and how the weights are stored.
#[derive(Clone, Copy)]
pub struct Config {
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub width: usize,
    pub inner: usize,
    pub vocab: usize,
    pub capacity: usize,
    /// Q, K and V in one weight, and gate and up in one.
    pub joined: bool,
}

/// One layer's weights and cache.
pub struct Layer {
    norms: [Arc<Node>; 2],
    /// [qkv] or [q, k, v].
    qkv: Vec<Arc<Node>>,
    o: Arc<Node>,
    /// [gate and up] or [gate, up].
    gate_up: Vec<Arc<Node>>,
    down: Arc<Node>,
    /// The current versions of the caches, [1, capacity, kv heads, width].
    pub keys: Arc<Node>,
    pub values: Arc<Node>,
}

/// The model with its cache.
pub struct Decoder {
    engine: Arc<Engine>,
    config: Config,
    pub layers: Vec<Layer>,
    norm: Arc<Node>,
    embedding: Arc<Node>,
    cos: Arc<Node>,
    sin: Arc<Node>,
    /// Positions in the cache.
    pub filled: usize,
}

/// Numbers from a seed: bytes for packed weights, floats for the others.
fn noise(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

impl Decoder {
    /// With weights from a seed.
    pub fn new(engine: &Arc<Engine>, config: Config, mut seed: u64) -> Result<Self> {
        let seed = &mut seed;
        let c = config;
        let plain = |dims: &[usize], f: &mut dyn FnMut(usize) -> f32| {
            let bytes: Vec<u8> = (0..dims.iter().product()).flat_map(|i| f(i).to_le_bytes()).collect();
            engine.upload(DType::F32, Shape::new(dims), &bytes)
        };
        let packed = |seed: &mut u64, rows: usize, cols: usize| {
            let mut bytes = Vec::new();
            for _ in 0..rows * cols / 32 {
                let d = 0.01 + noise(seed) as f32 % 16.0 * 0.001;
                bytes.extend(half::f16::from_f32(d).to_le_bytes());
                bytes.extend(half::f16::from_f32(-7.5 * d).to_le_bytes());
                bytes.extend((0..16).map(|_| noise(seed) as u8));
            }
            let len = bytes.len();
            engine.upload_packed(DType::Q4_1, rows, cols, Arc::new(bytes), 0..len)
        };
        let (q, kv) = (c.heads * c.width, c.kv_heads * c.width);
        let mut layers = Vec::new();
        for _ in 0..c.layers {
            let mut norm = || plain(&[c.hidden], &mut |_| 0.5 + (noise(seed) % 100) as f32 * 0.01);
            let norms = [norm()?, norm()?];
            let qkv: &[usize] = if c.joined { &[q + 2 * kv] } else { &[q, kv, kv] };
            let gate_up: &[usize] = if c.joined { &[2 * c.inner] } else { &[c.inner, c.inner] };
            let cache = [1, c.capacity, c.kv_heads, c.width];
            layers.push(Layer {
                norms,
                qkv: qkv.iter().map(|&n| packed(seed, n, c.hidden)).collect::<Result<_>>()?,
                o: packed(seed, c.hidden, q)?,
                gate_up: gate_up.iter().map(|&n| packed(seed, n, c.hidden)).collect::<Result<_>>()?,
                down: packed(seed, c.hidden, c.inner)?,
                keys: plain(&cache, &mut |_| 0.0)?,
                values: plain(&cache, &mut |_| 0.0)?,
            });
        }
        let half = c.width / 2;
        let angle = |i: usize| (i / half) as f64 * 10_000f64.powf(-((i % half) as f64) / half as f64);
        // For each position: the sine with its sign for the first and for the second half.
        let sine = |i: usize| {
            let (position, rest) = (i / c.width, i % c.width);
            let s = angle(position * half + rest % half).sin() as f32;
            if rest < half { -s } else { s }
        };
        Ok(Self {
            engine: engine.clone(),
            config,
            layers,
            norm: plain(&[c.hidden], &mut |_| 1.0)?,
            embedding: packed(seed, c.vocab, c.hidden)?,
            cos: plain(&[c.capacity, 1, 1, half], &mut |i| angle(i).cos() as f32)?,
            sin: plain(&[c.capacity, 1, 2, half], &mut |i| sine(i))?,
            filled: 0,
        })
    }

    /// Appends tokens; the logits [1, vocab] of the last one.
    pub fn step(&mut self, ids: &[u32]) -> Result<Arc<Node>> {
        let c = self.config;
        let (t, at) = (ids.len(), self.filled);
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let ids = self.engine.upload(DType::U32, Shape::new(&[t]), &bytes)?;
        let rows = ops::gather(self.embedding.whole(), ids.whole(), 0)?;
        let mut x = shaped(&rows, &[t, c.hidden]);
        let cos = window(&self.cos, 0, at, t);
        let sin = window(&self.sin, 0, at, t);
        let scale = 1.0 / (c.width as f64).sqrt();
        for layer in &mut self.layers {
            let h = norm(&x, &layer.norms[0])?;
            let heads = [c.heads, c.kv_heads, c.kv_heads];
            let [q, k, v] = projections(&h, &layer.qkv, heads.map(|h| h * c.width))?;
            let q = rope(split(q, t, c.heads, c.width), &cos, &sin)?;
            let k = rope(split(k, t, c.kv_heads, c.width), &cos, &sin)?;
            let place = |cache: &Arc<Node>| cache.whole().view.narrow(1, at, t);
            layer.keys = ops::write(&layer.keys, place(&layer.keys), shaped(&k, &[1, t, c.kv_heads, c.width]))?;
            let v = Edge { view: dims(&v, &[1, t, c.kv_heads, c.width]), node: v.node };
            layer.values = ops::write(&layer.values, place(&layer.values), v)?;
            let seen = |cache: &Arc<Node>| window(cache, 1, 0, at + t);
            let how = Attention { scale, causal: true, window: None, softcap: None };
            let q = shaped(&q, &[1, t, c.heads, c.width]);
            let mixed = ops::attention(q, seen(&layer.keys), seen(&layer.values), None, how)?;
            let mixed = shaped(&mixed, &[t, c.heads * c.width]);
            let o = ops::linear(mixed, layer.o.whole(), Activations::F32)?;
            x = ops::binary(BinaryOp::Add, x, o.whole())?.whole();
            let h = norm(&x, &layer.norms[1])?;
            let [gate, up] = projections(&h, &layer.gate_up, [c.inner; 2])?;
            let act = ops::binary(BinaryOp::Mul, ops::unary(UnaryOp::Silu, gate)?.whole(), up)?;
            let down = ops::linear(act.whole(), layer.down.whole(), Activations::F32)?;
            x = ops::binary(BinaryOp::Add, x, down.whole())?.whole();
        }
        self.filled += t;
        let last = Edge { view: x.view.narrow(0, t - 1, 1), node: x.node };
        let h = norm(&last, &self.norm)?;
        ops::linear(h.whole(), self.embedding.whole(), Activations::F32)
    }
}

fn norm(x: &Edge, weight: &Arc<Node>) -> Result<Arc<Node>> {
    ops::binary(BinaryOp::Mul, ops::rms_norm(x.clone(), 1e-5)?.whole(), weight.whole())
}

/// One output for each weight, or parts of the columns of the only one.
fn projections<const N: usize>(x: &Arc<Node>, weights: &[Arc<Node>], sizes: [usize; N]) -> Result<[Edge; N]> {
    let outputs: Vec<Arc<Node>> =
        weights.iter().map(|w| ops::linear(x.whole(), w.whole(), Activations::F32)).collect::<Result<_>>()?;
    let mut at = 0;
    Ok(std::array::from_fn(|i| match outputs.as_slice() {
        [one] => {
            let part = window(one, 1, at, sizes[i]);
            at += sizes[i];
            part
        }
        all => all[i].whole(),
    }))
}

/// Rotary position embedding (Su et al., 2021) of [1, t, heads, 2, half]: each pair (x1, x2) from the two halves becomes
/// (x1 cos - x2 sin, x2 cos + x1 sin).
fn rope(x: Edge, cos: &Edge, sin: &Edge) -> Result<Arc<Node>> {
    let swapped = Edge { view: x.view.flip(3), node: x.node.clone() };
    let straight = ops::binary(BinaryOp::Mul, x, cos.clone())?;
    let crossed = ops::binary(BinaryOp::Mul, swapped, sin.clone())?;
    ops::binary(BinaryOp::Add, straight.whole(), crossed.whole())
}

fn split(x: Edge, t: usize, heads: usize, width: usize) -> Edge {
    Edge { view: dims(&x, &[1, t, heads, 2, width / 2]), node: x.node }
}

fn dims(edge: &Edge, dims: &[usize]) -> View {
    edge.view.reshape(&Shape::new(dims)).expect("rows of the projections split into heads")
}

fn shaped(node: &Arc<Node>, shape: &[usize]) -> Edge {
    Edge { view: View::contiguous(Shape::new(shape)), node: node.clone() }
}

fn window(node: &Arc<Node>, axis: usize, start: usize, len: usize) -> Edge {
    Edge { view: node.whole().view.narrow(axis, start, len), node: node.clone() }
}
