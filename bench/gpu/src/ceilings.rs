//! What the GPU can: bytes copied, fused multiply-adds in f32 and f16, packed 8-bit dot products.

use crate::{
    clock::Clock,
    report::{Report, Unit},
};
use tallow::{CustomOp, Result, Tensor};

/// Rates a second.
pub struct Ceilings {
    /// Bytes, read and written together.
    pub copy: f64,
    /// f32 operations; a fused multiply-add is two.
    pub f32: f64,
    /// 8-bit operations, where dot products of packed integers are there; four products and four sums are eight.
    pub int8: Option<f64>,
}

/// Fused multiply-adds on 16 accumulators of 4, which nothing outside depends on but one word a invocation.
const FMA: &str = "${HEAD}
const TURNS = ${TURNS}u;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = vec4<${T}>(${T}(in0[id.x % in0_len()]));
    let y = vec4<${T}>(${T}(param(0u)));
${INIT}    for (var i = 0u; i < TURNS; i++) {
${BODY}    }
    let sum = ${SUM};
    if (id.x < out_len()) {
        out[id.x] = f32(sum.x + sum.y + sum.z + sum.w);
    }
}
";

const DOT: &str = "const TURNS = ${TURNS}u;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = bitcast<u32>(in0[id.x % in0_len()]);
${INIT}    for (var i = 0u; i < TURNS; i++) {
${BODY}    }
    let sum = ${SUM};
    if (id.x < out_len()) {
        out[id.x] = f32(sum);
    }
}
";

/// Seconds of a kernel on 16 accumulators, `init` and `body` a line for each, and the operations of it, `each` a line.
fn peak(
    clock: &Clock,
    source: &str,
    init: impl Fn(usize) -> String,
    body: impl Fn(usize) -> String,
    replace: &[(&str, &str)],
    each: f64,
) -> Result<Option<(f64, f64)>> {
    let turns = clock.size(2048, 16);
    let invocations = clock.size(1 << 19, 1 << 11);
    let lines = |line: &dyn Fn(usize) -> String| (0..16).map(line).collect::<String>();
    let sum: Vec<String> = (0..16).map(|j| format!("a{j}")).collect();
    let mut text = source
        .replace("${INIT}", &lines(&init))
        .replace("${BODY}", &lines(&body))
        .replace("${SUM}", &sum.join(" + "))
        .replace("${TURNS}", &turns.to_string());
    for (name, value) in replace {
        text = text.replace(name, value);
    }
    let op = CustomOp::new("peak").wgsl_kernel(text, |_, out| [(out[0] / 256) as u32, 1, 1]).build();
    let x = Tensor::rand(0f32, 1f32, invocations, &clock.kernels)?;
    x.realize()?;
    let seconds = clock.time(|| op.apply(&[&x], &[0.5]))?;
    Ok(seconds.map(|seconds| (seconds, each * 16.0 * turns as f64 * invocations as f64)))
}

/// Measures the ceilings.
pub fn measure(clock: &Clock, report: &mut Report) -> Result<Ceilings> {
    let limit = clock.device.info().limits.iter().find(|limit| limit.0 == "max_storage_buffer_binding_size");
    let most = limit.map_or(128 << 20, |limit| limit.1 as usize);
    let bytes = clock.size(256 << 20, 4 << 20).min(most);
    let x = Tensor::rand(0f32, 1f32, bytes / 4, &clock.kernels)?;
    x.realize()?;
    let seconds = clock.time(|| x.affine(2.0, 0.0))?;
    report.row(
        "ceiling",
        format!("copy, {} MB read and written", bytes >> 20),
        seconds,
        2.0 * bytes as f64,
        Unit::Bytes,
        None,
    );
    let copy = seconds.map_or(f64::NAN, |seconds| 2.0 * bytes as f64 / seconds);
    let has = |feature: &str| clock.device.info().features.contains(&feature);
    let start = |j: usize| format!("    var a{j} = x + vec4<${{T}}>({j}.0);\n");
    let fma = |j: usize| format!("        a{j} = fma(a{j}, y, x);\n");
    let mut rate = |name: &str, unit, found: Option<(f64, f64)>| {
        report.row("ceiling", name, found.map(|f| f.0), found.map_or(0.0, |f| f.1), unit, None);
        found.map(|(seconds, work)| work / seconds)
    };
    let f32 = rate(
        "fused multiply-add, f32",
        Unit::Flops,
        peak(clock, FMA, start, fma, &[("${HEAD}", ""), ("${T}", "f32")], 8.0)?,
    );
    // For the reader only: products of f16 are summed in f32.
    if has("shader-f16") {
        let replace = [("${HEAD}", "enable f16;"), ("${T}", "f16")];
        rate("fused multiply-add, f16", Unit::Flops, peak(clock, FMA, start, fma, &replace, 8.0)?);
    }
    let mut int8 = None;
    if has("packed_4x8_integer_dot_product") {
        let start = |j: usize| format!("    var a{j} = {j} + 1;\n");
        let dot = |j: usize| format!("        a{j} = a{j} + dot4I8Packed(x, bitcast<u32>(a{j}));\n");
        int8 = rate("dot product of packed 8-bit integers", Unit::Ops, peak(clock, DOT, start, dot, &[], 8.0)?);
    }
    Ok(Ceilings { copy, f32: f32.unwrap_or(f64::NAN), int8 })
}
