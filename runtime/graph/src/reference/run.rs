//! The kernels, one loop each, straight from the documentation in `kernel.rs`.

use super::{
    index,
    value::{V, binary, evaluate, load, store},
};
use crate::{
    BinaryOp, DType, Expr, Kernel, Scalar,
    kernel::{
        AttentionKernel, ContractKernel, CustomKernel, Distribution, HostView, HostViewMut, MapKernel, Operand,
        RandomKernel, RowKernel, RowOp,
    },
};

/// Reads words in order.
pub(super) struct Words<'a>(&'a [i64]);

impl<'a> Words<'a> {
    pub(super) fn one(&mut self) -> i64 {
        self.many(1)[0]
    }

    pub(super) fn many(&mut self, n: usize) -> &'a [i64] {
        let (now, rest) = self.0.split_at(n);
        self.0 = rest;
        now
    }
}

/// Offset and strides of an operand.
pub(super) struct At<'a>(pub i64, pub &'a [i64]);

impl At<'_> {
    pub(super) fn index(&self, index: &[i64]) -> usize {
        (self.0 + self.1.iter().zip(index).map(|(s, i)| s * i).sum::<i64>()) as usize
    }
}

/// All indices of a space, in row-major order.
pub(super) fn indices(dims: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &dim in dims {
        all = all.into_iter().flat_map(|head| (0..dim).map(move |i| [head.clone(), vec![i]].concat())).collect();
    }
    all
}

pub(super) fn element(bytes: &[u8], dtype: DType, at: usize) -> V {
    let size = dtype.size_in_bytes();
    load(&bytes[at * size..(at + 1) * size], dtype)
}

pub(super) fn put(out: &mut [u8], dtype: DType, at: usize, value: V) {
    let mut bytes = Vec::new();
    store(value, dtype, &mut bytes);
    let size = bytes.len();
    out[at * size..(at + 1) * size].copy_from_slice(&bytes);
}

pub(super) struct Env<'a> {
    pub(super) inputs: &'a [Vec<u8>],
    pub(super) operands: &'a [Operand],
    pub(super) walks: &'a [At<'a>],
    pub(super) scalars: &'a [Scalar],
}

impl Env<'_> {
    pub(super) fn run(&self, expr: &Expr, acc: &[V], index: &[i64]) -> V {
        let load = |i: usize| {
            let operand = &self.operands[i];
            // An operand without a buffer is its own address.
            let at = self.walks[i].index(index);
            operand.input.map_or(V::I(at as i128), |input| element(&self.inputs[input as usize], operand.dtype, at))
        };
        let position = |i: usize| self.walks[i].index(index) as i128;
        evaluate(expr, acc, self.scalars, &load, &position)
    }
}

pub(super) fn step(
    kernel: &Kernel,
    words: &[i64],
    scalars: &[Scalar],
    inputs: &[Vec<u8>],
    outputs: &mut [Vec<u8>],
) -> Result<(), String> {
    let words = Words(words);
    match kernel {
        Kernel::Map(map) => map_step(map, words, scalars, inputs, outputs),
        Kernel::Row(row) => row_step(row, words, scalars, inputs, &mut outputs[0]),
        Kernel::Contract(contract) => contract_step(contract, words, scalars, inputs, outputs),
        Kernel::Conv(conv) => super::conv::step(conv, words, scalars, inputs, &mut outputs[0]),
        Kernel::Attention(attention) => attention_step(attention, words, scalars, inputs, &mut outputs[0]),
        Kernel::Gather(gather) => return index::gather(gather, words, inputs, &mut outputs[0]),
        Kernel::Pick(pick) => return index::pick(pick, words, inputs, &mut outputs[0]),
        Kernel::Scatter(scatter) => return index::scatter(scatter, words, inputs, &mut outputs[0]),
        Kernel::Sort(sort) => index::sort(sort, words, inputs, &mut outputs[0]),
        Kernel::Scan(scan) => index::scan(scan, words, inputs, &mut outputs[0]),
        Kernel::Custom(custom) => return custom_step(custom, words, scalars, inputs, &mut outputs[0]),
        Kernel::Random(random) => random_step(random, words, scalars, &mut outputs[0]),
    }
    Ok(())
}

fn map_step(map: &MapKernel, mut words: Words<'_>, scalars: &[Scalar], inputs: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
    for (part, out) in map.parts.iter().zip(outputs) {
        let rank = part.rank as usize;
        let dims = words.many(rank);
        let to = At(words.one(), words.many(rank));
        let walks: Vec<At> = part.operands.iter().map(|_| At(words.one(), words.many(rank))).collect();
        let env = Env { inputs, operands: &part.operands, walks: &walks, scalars };
        let dtype = part.expr.dtype().unwrap_or(DType::F32);
        for index in indices(dims) {
            put(out, dtype, to.index(&index), env.run(&part.expr, &[], &index));
        }
    }
}

fn reduce(op: RowOp, values: &[V], dtype: DType) -> V {
    let n = values.len() as f64;
    let better = |a: V, b: V| -> bool {
        let (nan_a, nan_b) = (a.f().is_nan(), b.f().is_nan());
        if nan_a || nan_b {
            return nan_b && !nan_a;
        }
        let order = match (a, b) {
            (V::I(x), V::I(y)) => x.cmp(&y),
            _ => a.f().total_cmp(&b.f()),
        };
        match op {
            RowOp::ArgMax => order.is_lt() && a.f() != b.f() || matches!((a, b), (V::I(x), V::I(y)) if x < y),
            _ => order.is_gt() && a.f() != b.f() || matches!((a, b), (V::I(x), V::I(y)) if x > y),
        }
    };
    let zero = if dtype.is_float() { V::F(0.0) } else { V::I(0) };
    let one = if dtype.is_float() { V::F(1.0) } else { V::I(1) };
    let fold = |start: Option<V>, op: BinaryOp| {
        let mut all = values.iter().copied();
        let start = start.or_else(|| all.next()).unwrap_or(zero);
        all.fold(start, |a, b| binary(op, a, b, dtype))
    };
    match op {
        RowOp::Sum => fold(Some(zero), BinaryOp::Add),
        RowOp::Prod => fold(Some(one), BinaryOp::Mul),
        RowOp::Mean => V::F(fold(Some(zero), BinaryOp::Add).f() / n),
        RowOp::Max => fold(None, BinaryOp::Maximum),
        RowOp::Min => fold(None, BinaryOp::Minimum),
        _ => {
            let mut best = 0;
            for (i, &v) in values.iter().enumerate() {
                if better(values[best], v) {
                    best = i;
                }
            }
            V::I(best as i128)
        }
    }
}

fn normalise(op: RowOp, x: &[f64], eps: f64) -> Vec<f64> {
    let n = x.len() as f64;
    match op {
        RowOp::RmsNorm => {
            let mean = x.iter().map(|v| v * v).sum::<f64>() / n;
            x.iter().map(|v| v / (mean + eps).sqrt()).collect()
        }
        RowOp::LayerNorm => {
            let mean = x.iter().sum::<f64>() / n;
            let var = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
            x.iter().map(|v| (v - mean) / (var + eps).sqrt()).collect()
        }
        _ => {
            let top = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let exp: Vec<f64> = x.iter().map(|v| (v - top).exp()).collect();
            let total: f64 = exp.iter().sum();
            exp.iter().map(|v| v / total).collect()
        }
    }
}

fn row_step(row: &RowKernel, mut words: Words<'_>, scalars: &[Scalar], inputs: &[Vec<u8>], out: &mut [u8]) {
    let rank = (row.outer + row.inner) as usize;
    let outer_dims = words.many(row.outer as usize);
    let inner_dims = words.many(row.inner as usize);
    let walks: Vec<At> = row.operands.iter().map(|_| At(words.one(), words.many(rank))).collect();
    let env = Env { inputs, operands: &row.operands, walks: &walks, scalars };
    let dtype = row.after.dtype().unwrap_or(DType::F32);
    let inner = indices(inner_dims);
    let mut at = 0;
    for outer in indices(outer_dims) {
        let full = |i: &[i64]| [outer.as_slice(), i].concat();
        let values: Vec<V> = inner.iter().map(|i| env.run(&row.before, &[], &full(i))).collect();
        let results: Vec<V> = if row.op.reduces() {
            vec![reduce(row.op, &values, row.before.dtype().unwrap_or(DType::F32))]
        } else {
            let x: Vec<f64> = values.iter().map(|v| v.f()).collect();
            normalise(row.op, &x, scalars[0].to_f64()).into_iter().map(V::F).collect()
        };
        for (i, acc) in results.into_iter().enumerate() {
            let zeros = vec![0; row.inner as usize];
            let index = if row.op.reduces() { full(&zeros) } else { full(&inner[i]) };
            put(out, dtype, at, env.run(&row.after, &[acc], &index));
            at += 1;
        }
    }
}

/// Element `at` of a packed weight in the file's layout (the 32-element types), or of a plain buffer.
pub(super) fn weight(bytes: &[u8], dtype: DType, at: usize) -> V {
    let half = |b: &[u8]| load(b, DType::F16).f();
    let (block, i) = (at / 32, at % 32);
    let nibble = |q: &[u8]| f64::from(if i < 16 { q[i] & 15 } else { q[i - 16] >> 4 });
    match dtype {
        DType::Q4_0 => {
            let b = &bytes[block * 18..];
            V::F(half(b) * (nibble(&b[2..]) - 8.0))
        }
        DType::Q4_1 => {
            let b = &bytes[block * 20..];
            V::F(half(b) * nibble(&b[4..]) + half(&b[2..]))
        }
        DType::Q8_0 => {
            let b = &bytes[block * 34..];
            V::F(half(b) * f64::from(b[2 + i] as i8))
        }
        _ => element(bytes, dtype, at),
    }
}

fn contract_step(
    k: &ContractKernel,
    mut words: Words<'_>,
    scalars: &[Scalar],
    inputs: &[Vec<u8>],
    outputs: &mut [Vec<u8>],
) {
    let batch = k.batch as usize;
    let dims = words.many(batch);
    let (m, depth) = (words.one(), words.one());
    let left = At(words.one(), words.many(batch + 2));
    let prologue = k.prologue.as_ref().map(|p| (p, words.one(), words.one()));
    let parts: Vec<(i64, At, Vec<At>)> = k
        .parts
        .iter()
        .map(|part| {
            let n = words.one();
            let right = At(words.one(), words.many(batch + 2));
            let walks = part.operands.iter().map(|_| At(words.one(), words.many(batch + 2))).collect();
            (n, right, walks)
        })
        .collect();
    for (batch_at, index) in indices(dims).into_iter().enumerate() {
        for i in 0..m {
            let mut x: Vec<V> = (0..depth)
                .map(|d| {
                    element(&inputs[k.left.0 as usize], k.left.1, left.index(&[index.as_slice(), &[i, d]].concat()))
                })
                .collect();
            if let Some((p, w_at, b_at)) = &prologue {
                let plain: Vec<f64> = x.iter().map(|v| v.f()).collect();
                let extra = |at: &Option<(u8, DType)>, off: i64, d: usize, none: f64| {
                    at.map_or(none, |(input, dtype)| element(&inputs[input as usize], dtype, off as usize + d).f())
                };
                x = normalise(p.op, &plain, scalars[0].to_f64())
                    .iter()
                    .enumerate()
                    .map(|(d, v)| V::F(v * extra(&p.weight, *w_at, d, 1.0) + extra(&p.bias, *b_at, d, 0.0)))
                    .collect();
            }
            for ((part, (n, right, walks)), out) in k.parts.iter().zip(&parts).zip(outputs.iter_mut()) {
                let (input, dtype) = part.right;
                let quantized = dtype.is_quantized();
                let dot = |j: i64| {
                    let zero = if dtype.is_int() { V::I(0) } else { V::F(0.0) };
                    x.iter().enumerate().fold(zero, |acc, (d, &v)| {
                        let at = if quantized {
                            ((right.0 + j) * depth) as usize + d
                        } else {
                            right.index(&[index.as_slice(), &[d as i64, j]].concat())
                        };
                        let w = weight(&inputs[input as usize], dtype, at);
                        let wide = if dtype.is_int() { dtype } else { DType::F64 };
                        binary(BinaryOp::Add, acc, binary(BinaryOp::Mul, v, w, wide), wide)
                    })
                };
                let env = Env { inputs, operands: &part.operands, walks, scalars };
                let stored = part.epilogue.dtype().unwrap_or(DType::F32);
                for j in 0..*n {
                    let acc = if part.paired { vec![dot(j), dot(j + n)] } else { vec![dot(j)] };
                    let value = env.run(&part.epilogue, &acc, &[index.as_slice(), &[i, j]].concat());
                    put(out, stored, ((batch_at as i64 * m + i) * n + j) as usize, value);
                }
            }
        }
    }
}

fn attention_step(a: &AttentionKernel, mut words: Words<'_>, scalars: &[Scalar], inputs: &[Vec<u8>], out: &mut [u8]) {
    let shape = words.many(9);
    let [batch, queries, keys, heads, kv_heads, width, v_width, position, window] = shape else { return };
    let [q, k, v] = [(); 3].map(|()| At(words.one(), words.many(3)));
    let mask = a.mask.then(|| At(words.one(), words.many(4)));
    let (scale, softcap) = (scalars[0].to_f64(), scalars[1].to_f64());
    let mut at = 0;
    for index in indices(&[*batch, *queries, *heads]) {
        let (b, t, h) = (index[0], index[1], index[2]);
        let kh = h / (heads / kv_heads);
        let mut scores = Vec::new();
        for s in 0..*keys {
            if (a.causal && s > t + position) || (a.window && s <= t + position - window) {
                continue;
            }
            let dot: f64 = (0..*width)
                .map(|d| {
                    element(&inputs[0], a.dtype, q.index(&index_of(b, t, h)) + d as usize).f()
                        * element(&inputs[1], a.kv_dtype, k.index(&index_of(b, s, kh)) + d as usize).f()
                })
                .sum();
            let mut score = dot * scale;
            if a.softcap {
                score = softcap * (score / softcap).tanh();
            }
            if let Some(mask) = &mask {
                score += element(&inputs[3], DType::F32, mask.index(&[b, h, t, s])).f();
            }
            // Minus infinity hides a key: a row of nothing else has no softmax, and gives zeros.
            if score != f64::NEG_INFINITY {
                scores.push((s, score));
            }
        }
        let plain: Vec<f64> = scores.iter().map(|&(_, x)| x).collect();
        let weights = normalise(RowOp::Softmax, &plain, 0.0);
        for d in 0..*v_width {
            let sum: f64 = scores
                .iter()
                .zip(&weights)
                .map(|(&(s, _), w)| w * element(&inputs[2], a.kv_dtype, v.index(&index_of(b, s, kh)) + d as usize).f())
                .sum();
            put(out, a.dtype, at, V::F(sum));
            at += 1;
        }
    }
}

fn index_of(b: i64, t: i64, h: i64) -> [i64; 3] {
    [b, t, h]
}

fn custom_step(
    k: &CustomKernel,
    mut words: Words<'_>,
    scalars: &[Scalar],
    inputs: &[Vec<u8>],
    out: &mut [u8],
) -> Result<(), String> {
    let mut dims = |rank: u8| -> Vec<usize> { words.many(rank as usize).iter().map(|&d| d as usize).collect() };
    let input_dims: Vec<Vec<usize>> = k.inputs.iter().map(|&(_, rank)| dims(rank)).collect();
    let out_dims = dims(k.output.1);
    let bytes = |dims: &[usize], dtype: DType| dims.iter().product::<usize>() * dtype.size_in_bytes();
    let views: Vec<HostView<'_>> = k
        .inputs
        .iter()
        .zip(&input_dims)
        .zip(inputs)
        .map(|((&(dtype, _), dims), data)| HostView { dtype, dims, bytes: &data[..bytes(dims, dtype)] })
        .collect();
    let scalars: Vec<f64> = scalars.iter().map(|s| s.to_f64()).collect();
    let dtype = k.output.0;
    let mut result = HostViewMut { dtype, dims: &out_dims, bytes: &mut out[..bytes(&out_dims, dtype)] };
    let run = k.custom.cpu().ok_or("no CPU closure")?;
    run(&views, &scalars, &mut result).map_err(|e| e.to_string())
}

/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
pub(super) fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for _ in 0..10 {
        let left = u64::from(c[0]) * 0xd251_1f53;
        let right = u64::from(c[2]) * 0xcd9e_8d57;
        let high = |product: u64| (product >> 32) as u32;
        c = [high(right) ^ c[1] ^ k[0], right as u32, high(left) ^ c[3] ^ k[1], left as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

fn random_step(r: &RandomKernel, mut words: Words<'_>, scalars: &[Scalar], out: &mut [u8]) {
    let elements = words.one() as usize;
    let [key_low, key_high, low, high] = [(); 4].map(|()| words.one() as u32);
    let (a, b) = (scalars[0].to_f64(), scalars[1].to_f64());
    for at in 0..elements {
        let block = at as u64 / 4;
        let drawn = philox([block as u32, (block >> 32) as u32, low, high], [key_low, key_high]);
        let top = |i: usize| f64::from(drawn[i] >> 8) / 16_777_216.0;
        let value = match r.distribution {
            Distribution::Uniform => a + (b - a) * top(at % 4),
            Distribution::Normal => {
                let pair = at % 4 / 2 * 2;
                let radius = (-2.0 * (top(pair) + 1.0 / 16_777_216.0).ln()).sqrt();
                let angle = std::f64::consts::TAU * top(pair + 1);
                a + b * radius * if at % 2 == 0 { angle.cos() } else { angle.sin() }
            }
        };
        put(out, r.dtype, at, V::F(value));
    }
}

#[cfg(test)]
mod tests {
    use super::philox;

    #[test]
    fn philox_gives_the_published_numbers() {
        // Known answers of Random123's kat_vectors, philox4x32 with 10 rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(philox(pi, [0xa409_3822, 0x299f_31d0]), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }
}
