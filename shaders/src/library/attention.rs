//! Attention. Uniform block: the step's words, its two scalars, whether q and k can be read by fours, and v; then where the
//! output begins and the strides of its batches, queries and heads; then how many workgroups share a query's keys.
//!
//! Implementations: a workgroup for a few queries of a head; the same with the keys split over workgroups, for decoding;
//! tiles of 32 queries, for many; one invocation for a query, without barriers.

use super::{
    Shader, Target, address,
    code::{Code, Rep, Slots, fill_words, param, shared, single},
    preprocess::{Defines, expand},
    spread,
    start::{favour, start},
};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    DType, Error, Implementation, Result, Scalar,
    kernel::{AttentionKernel, RowClass},
};

pub(super) const SHARED: u32 = 0;
pub(super) const SERIAL: u32 = 1;
const SPLIT: u32 = 2;
pub(super) const TILES: u32 = 3;

/// Workgroups that keep a large GPU busy.
const BUSY: u64 = 192;
/// Keys that a workgroup takes at least: each leaves sums of a whole row of values behind.
const LEAST_KEYS: u64 = 128;
const MOST_SPLITS: u64 = 32;

/// First words of q, k, v and the mask.
pub const Q: usize = 9;
pub const K: usize = 13;
pub const V: usize = 17;
pub const MASK: usize = 21;

pub fn word_count(kernel: &AttentionKernel) -> usize {
    if kernel.mask { MASK + 5 } else { MASK }
}

/// Where the output's place stands in the uniform block.
pub fn place(kernel: &AttentionKernel) -> usize {
    word_count(kernel) + 4
}

/// Queries of a workgroup.
fn tile(kernel: &AttentionKernel) -> u32 {
    match kernel.rows {
        RowClass::One => 1,
        RowClass::Few => 4,
        RowClass::Many => 8,
    }
}

/// Workgroups that share the keys of one query; a function of the sizes alone, so that any run of a plan finds it.
fn splits(kernel: &AttentionKernel, words: &[i64]) -> u64 {
    let size = |i: usize| words.get(i).map_or(1, |&w| w.max(0) as u64);
    if kernel.rows == RowClass::Many {
        return 1;
    }
    let groups = [size(0), size(1).div_ceil(u64::from(tile(kernel))), size(3), size(6).div_ceil(256)];
    let groups = groups.into_iter().fold(1u64, u64::saturating_mul).max(1);
    (BUSY / groups).min(size(2) / LEAST_KEYS).clamp(1, MOST_SPLITS)
}

/// Bytes that the splits leave behind.
fn scratch(kernel: &AttentionKernel, words: &[i64]) -> u64 {
    let size = |i: usize| words.get(i).map_or(1, |&w| w.max(0) as u64);
    let splits = match splits(kernel, words) {
        1 => 0,
        splits => splits,
    };
    let records = [size(0), size(1), size(3), splits, size(6) + 2, 4];
    records.into_iter().fold(1u64, u64::saturating_mul).max(16)
}

/// The ways to run it.
pub fn implementations(kernel: &AttentionKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    if Rep::of(kernel.dtype) != Some(Rep::F32) || Rep::of(kernel.kv_dtype) != Some(Rep::F32) {
        return SmallVec::new();
    }
    let size = |i: usize| words.get(i).map_or(1.0, |&w: &i64| w.max(1) as f32);
    let work = size(0) * size(1) * size(2) * size(3) * (size(5) + size(6)) * 2e-7;
    let cost = |gpu: f32, software: f32| 1.0 + work * if target.software { software } else { gpu };
    let mut all = smallvec![
        Implementation { id: SHARED, scratch: 0, cost: cost(4.0, 100.0) },
        Implementation { id: SERIAL, scratch: 0, cost: cost(20.0, 10.0) },
    ];
    if kernel.rows != RowClass::Many {
        all.push(Implementation { id: SPLIT, scratch: scratch(kernel, words), cost: cost(2.0, 110.0) });
    } else if target.max_workgroup_storage >= 16_384 && target.max_workgroup_invocations >= 128 {
        all.push(Implementation { id: TILES, scratch: 0, cost: cost(1.0, 110.0) });
    }
    if kernel.rows == RowClass::Many {
        favour(&mut all, start(target).attention);
    }
    all
}

/// The uniform block.
pub fn params(kernel: &AttentionKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let count = word_count(kernel);
    let words = words.get(..count).ok_or_else(|| Error::op("attention", "the step brings too few words"))?;
    fill_words("attention", words, out)?;
    Slots::new(2, [])?.fill(scalars, out)?;
    let [batch, queries, _, heads, kv_heads, width, v_width, ..] = *words else {
        return Err(Error::op("attention", "the step brings too few words"));
    };
    let results = [batch, queries, heads, v_width].iter().try_fold(1i64, |n, &size| n.checked_mul(size));
    if results.is_none_or(|n| n >= 1 << 32) {
        return Err(Error::op("attention", "2^32 results or more: split the batch"));
    }
    if heads > 0 && (kv_heads <= 0 || heads % kv_heads != 0) {
        return Err(Error::op("attention", format!("{heads} heads over {kv_heads} key heads")));
    }
    let by_four = |at: usize, width: i64| words[at..at + 4].iter().all(|w| w % 4 == 0) && width % 4 == 0;
    out.push(u32::from(by_four(Q, width) && by_four(K, width)));
    out.push(u32::from(by_four(V, v_width)));
    // Fewer than 2^32 results, so each stride fits where there are two of what it steps over.
    let row = heads.wrapping_mul(v_width);
    out.extend([0, queries.wrapping_mul(row) as u32, row as u32, v_width as u32]);
    out.push(splits(kernel, words) as u32);
    Ok(())
}

/// The grid.
pub fn grids(kernel: &AttentionKernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let size = |i: usize| words.get(i).map_or(0, |&w| w.max(0) as u64);
    let (batch, queries, heads, v_width) = (size(0), size(1), size(3), size(6));
    let shared = batch * queries.div_ceil(u64::from(tile(kernel))) * heads * v_width.div_ceil(256);
    let main = match implementation {
        SERIAL => (batch * queries * heads * v_width.div_ceil(64)).div_ceil(32),
        TILES => batch * queries.div_ceil(32) * heads * v_width.div_ceil(64),
        SPLIT => shared * splits(kernel, words),
        _ => shared,
    };
    if implementation != SPLIT {
        return smallvec![spread(main, target)];
    }
    let combine = if splits(kernel, words) > 1 { (batch * queries * heads * v_width).div_ceil(64) } else { 0 };
    smallvec![spread(main, target), spread(combine, target)]
}

/// The shader.
pub fn shader(kernel: &AttentionKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let scalars_at = word_count(kernel);
    let aligned_at = scalars_at + 2;
    let place = place(kernel);
    let splits_at = place + 4;
    let param_words = splits_at + 1;
    let inputs = 3 + usize::from(kernel.mask);
    let mut code = Code::new(inputs, 1, param_words);
    let by_fours = |dtype: DType, fours: bool| shared([(dtype, fours)], target.f16);
    code.inputs[0] = by_fours(kernel.dtype, true);
    code.inputs[1] = by_fours(kernel.kv_dtype, true);
    code.inputs[2] = by_fours(kernel.kv_dtype, matches!(implementation, SERIAL | TILES));
    code.scratch = implementation == SPLIT;
    code.outputs[0] = single(kernel.dtype, target.f16);
    let mut body = String::new();
    for (name, at) in [("q", Q), ("k", K), ("v", V)] {
        let indices = ["b", "s", "h"].map(String::from);
        let _ = write!(
            body,
            "fn {name}_base(b: u32, s: u32, h: u32) -> u32 {{\n    return {};\n}}\n",
            address(at, &indices)
        );
    }
    let (keys, position, window) = (param(2), param(7), param(8));
    // Keys outside this range are hidden from all queries first..=last: the rest is told key by key.
    let _ = writeln!(
        body,
        "fn visible(first: u32, last: u32) -> vec2<u32> {{\n    var low = 0;\n    var high = i32({keys});"
    );
    if kernel.causal {
        let _ = writeln!(body, "    high = clamp(i32(last) + bitcast<i32>({position}) + 1, 0, high);");
    }
    if kernel.window {
        let _ = writeln!(
            body,
            "    if ({window} != 0u) {{\n        low = clamp(i32(first) + bitcast<i32>({position}) - i32({window}) + 1, 0, high);\n    }}"
        );
    }
    body += "    return vec2<u32>(u32(low), u32(high));\n}\nfn sees(t: u32, s: u32) -> bool {\n    var yes = true;\n";
    if kernel.causal {
        let _ = writeln!(body, "    yes = i32(s) <= i32(t) + bitcast<i32>({position});");
    }
    if kernel.window {
        let _ = writeln!(
            body,
            "    yes = yes && ({window} == 0u || i32(s) > i32(t) + bitcast<i32>({position}) - i32({window}));"
        );
    }
    body += "    return yes;\n}\n";
    let _ = writeln!(
        body,
        "fn finish_score(sum: f32, b: u32, h: u32, t: u32, s: u32) -> f32 {{\n    var score = sum * bitcast<f32>({});",
        param(scalars_at)
    );
    if kernel.softcap {
        let cap = format!("bitcast<f32>({})", param(scalars_at + 1));
        let _ = writeln!(body, "    if ({cap} > 0.0) {{\n        score = {cap} * t_tanh(score / {cap});\n    }}");
    }
    if kernel.mask {
        let load = code.load(3, DType::F32)?;
        let indices = ["b", "h", "t", "s"].map(String::from);
        let _ = writeln!(body, "    score += {load}({});", address(MASK, &indices));
    }
    // A finite minimum stands for -inf.
    body += "    return t_maximum(score, T_LOWEST);\n}\nfn weight(score: f32, top: f32) -> f32 {\n    return select(t_exp(score - \
             top), 0.0, score == T_LOWEST && !t_is_nan(score));\n}\n";
    let v1 = code.load(2, kernel.kv_dtype)?;
    if implementation == SERIAL {
        let four = code.load4(2, kernel.kv_dtype)?;
        let _ = write!(
            body,
            "fn v4(base: u32, d: u32, columns: u32) -> vec4<f32> {{\n    if ({} != 0u) {{\n        return {four}(base + d);\n    }}\n    \
             let last = columns - 1u;\n    return vec4<f32>({v1}(base + d), {v1}(base + min(d + 1u, last)), {v1}(base + min(d + 2u, \
             last)), {v1}(base + min(d + 3u, last)));\n}}\n",
            param(aligned_at + 1)
        );
    }
    if implementation == TILES {
        let k1 = code.load(1, kernel.kv_dtype)?;
        for (name, input, dtype, width, aligned, one) in [
            ("q4", 0, kernel.dtype, 5, aligned_at, code.load(0, kernel.dtype)?),
            ("k4", 1, kernel.kv_dtype, 5, aligned_at, k1),
            ("v4", 2, kernel.kv_dtype, 6, aligned_at + 1, v1.clone()),
        ] {
            let (four, width, aligned) = (code.load4(input, dtype)?, param(width), param(aligned));
            let _ = write!(
                body,
                "fn {name}(base: u32, d: u32) -> vec4<f32> {{\n    if ({aligned} != 0u && d < {width}) {{\n        return {four}(base + \
                 d);\n    }}\n    var v = vec4<f32>(0.0);\n    for (var i = 0u; i < 4u && d + i < {width}; i++) {{\n        v[i] = \
                 {one}(base + d + i);\n    }}\n    return v;\n}}\n"
            );
        }
    }
    let mut defines = Defines::default();
    defines
        .flag("SPLIT", implementation == SPLIT)
        .set("SPLITS", param(splits_at))
        .set("BATCH", param(0))
        .set("QUERIES", param(1))
        .set("HEADS", param(3))
        .set("KV_HEADS", param(4))
        .set("WIDTH", param(5))
        .set("V_WIDTH", param(6))
        .set("QT", tile(kernel))
        .set("SCORES", tile(kernel) * 64)
        .set("OUT", address(place, &["b", "t", "h"].map(String::from)))
        .set("ALIGNED", format!("{} != 0u", param(aligned_at)))
        .set("Q1", code.load(0, kernel.dtype)?)
        .set("Q4", code.load4(0, kernel.dtype)?)
        .set("K1", code.load(1, kernel.kv_dtype)?)
        .set("K4", code.load4(1, kernel.kv_dtype)?)
        .set("V1", v1)
        .set("STORE", code.store(0, kernel.dtype)?);
    let template = match implementation {
        SERIAL => "attention_serial.wgsl",
        TILES => "attention_tiles.wgsl",
        _ => "attention.wgsl",
    };
    body += &expand(template, &defines)?;
    code.body = body;
    Ok(Shader {
        label: format!("attention {:?} {} {implementation}", kernel.rows, kernel.kv_dtype),
        source: code.finish(target, false),
        entries: if implementation == SPLIT { smallvec!["main", "combine"] } else { smallvec!["main"] },
        inputs,
        outputs: 1,
        scratch: implementation == SPLIT,
        fault: false,
        param_words,
    })
}
