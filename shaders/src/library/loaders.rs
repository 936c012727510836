//! How products read their operands: the functions of a shader that bring 8 neighbours along k of either operand, or a
//! block of 32 as whole numbers. Matrix-vector products and tiles share them.

use super::{
    Target, address,
    code::{Access, Code, param, shared},
    contract::{Words, n_vector, q8, quantized},
    preprocess::{Defines, expand},
};
use std::fmt::Write as _;
use tallow_graph::{
    DType, Error, Result,
    kernel::{ContractKernel, Prologue, RightUnit},
};

/// What loaders return: 8 neighbours along k; 32 as they are packed, with their scales; and a block of 32 as whole numbers,
/// x = d q + m, with a d for each half.
pub const STRUCTS: &str = "struct W8 {\n    a: vec4<f32>,\n    b: vec4<f32>,\n}\nstruct Raw32 {\n    q: vec4<u32>,\n    h: vec4<u32>,\n    d: vec4<f32>,\n}\nstruct Q32 {\n    q: array<u32, 8>,\n    \
                           d0: f32,\n    d1: f32,\n    m: f32,\n}\n";

/// The loader file of a quantized type.
pub fn quant_template(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Q4_0 => "quant/q4_0.wgsl",
        DType::Q4_1 => "quant/q4_1.wgsl",
        DType::Q8_0 => "quant/q8_0.wgsl",
        DType::Q4K => "quant/q4_k.wgsl",
        DType::Q6K => "quant/q6_k.wgsl",
        other => return Err(Error::op("matmul", format!("{other} is no quantized type"))),
    })
}

/// How an input is declared: as wide as its vector reads allow, if they agree.
pub(super) fn access(kernel: &ContractKernel, input: usize, half: bool) -> Access {
    let norm = kernel.prologue.iter().flat_map(|p| [p.weight, p.bias]).flatten().map(|(i, dtype)| (i, dtype, false));
    let rights = kernel.parts.iter().map(|part| {
        let (input, dtype) = part.right;
        // Rows of packed weights begin at multiples of 16 bytes.
        (input, dtype, kernel.vector || quantized(part))
    });
    let epilogues = kernel.parts.iter().flat_map(|part| &part.operands);
    let epilogues = epilogues.filter_map(|operand| Some((operand.input?, operand.dtype, false)));
    let left = [(kernel.left.0, kernel.left.1, kernel.vector && kernel.left_rows)];
    let all = left.into_iter().chain(rights).chain(norm).chain(epilogues);
    shared(all.filter(|use_| usize::from(use_.0) == input).map(|(_, dtype, four)| (dtype, four)), half)
}

/// `base + batch * strides`, where `at` is the operand's first word and `batch` decodes the batch number.
pub(super) fn batch_indices(at: &Words) -> Vec<String> {
    match at.batch {
        0 => vec![],
        1 => vec!["batch".into()],
        _ => vec![format!("batch / {}", param(1)), format!("batch % {}", param(1))],
    }
}

pub(super) fn base(at: &Words, operand: usize) -> String {
    let indices: Vec<String> = batch_indices(at).iter().map(|i| format!("({i})")).collect();
    address(operand, &indices)
}

/// `left_base`, `x1`, `x8`, and the prologue's `prepare`.
pub(super) fn left_code(code: &mut Code, body: &mut String, kernel: &ContractKernel, at: &Words) -> Result<()> {
    let (input, dtype) = kernel.left;
    let depth = param(at.k);
    let stride = param(at.left + at.batch + 2);
    let load = code.load(input, dtype)?;
    let _ = write!(body, "fn left_base(batch: u32) -> u32 {{\n    return {};\n}}\n", base(at, at.left));
    let place = if kernel.left_rows { "row + k".to_string() } else { format!("row + k * {stride}") };
    let _ = write!(
        body,
        "fn x1(row: u32, k: u32) -> f32 {{\n    if (k >= {depth}) {{\n        return 0.0;\n    }}\n    return {load}({place});\n}}\n"
    );
    *body +=
        &eight("x8(row: u32, k: u32)", &depth, kernel.left_rows && kernel.vector, "row + k", "x1(row, k + #)", || {
            code.load4(input, dtype)
        })?;
    if let Some(Prologue { weight, bias, .. }) = &kernel.prologue {
        // Without a weight the gain is 1, past the end of the row too: weights there are 0.
        for (name, operand, offset, none) in [("gain", weight, 0, "1.0"), ("shift", bias, 1, "0.0")] {
            let value = match *operand {
                None => none.to_string(),
                Some((input, dtype)) => {
                    let load = code.load(input, dtype)?;
                    let _ = write!(
                        body,
                        "fn {name}(k: u32) -> f32 {{\n    if (k >= {depth}) {{\n        return 0.0;\n    }}\n    return \
                         {load}({} + k);\n}}\n",
                        param(at.prologue + offset)
                    );
                    format!("{name}(k + #)")
                }
            };
            *body += &eight(&format!("{name}8(k: u32)"), &depth, false, "", &value, || Ok(String::new()))?;
        }
        *body += "fn prepare(x: W8, gain: W8, shift: W8, mean: f32, scale: f32) -> W8 {\n    return W8((x.a - mean) * scale * gain.a \
                  + shift.a, (x.b - mean) * scale * gain.b + shift.b);\n}\n";
    }
    Ok(())
}

/// A function that returns 8 neighbours along k as a W8, zeros past the end. `one` is the value at k + #.
fn eight(
    signature: &str,
    depth: &str,
    vector: bool,
    place: &str,
    one: &str,
    load4: impl FnOnce() -> Result<String>,
) -> Result<String> {
    let mut text = format!("fn {signature} -> W8 {{\n");
    if vector {
        // k is a multiple of 4, so either half is there as a whole or not at all.
        let four = load4()?;
        let _ = write!(
            text,
            "    var w = W8(vec4<f32>(0.0), vec4<f32>(0.0));\n    if (k < {depth}) {{\n        w.a = {four}({place});\n    }}\n    \
             if (k + 4u < {depth}) {{\n        w.b = {four}({place} + 4u);\n    }}\n    return w;\n}}\n"
        );
    } else {
        let half =
            |from: usize| (from..from + 4).map(|j| one.replace('#', &format!("{j}u"))).collect::<Vec<_>>().join(", ");
        let _ = write!(text, "    return W8(vec4<f32>({}), vec4<f32>({}));\n}}\n", half(0), half(4));
    }
    Ok(text)
}

/// Rounding of the left operand to 8 bits by blocks of 32, and the product of such a block with one of weights.
pub(super) fn round_code(target: &Target) -> String {
    let mut text = "struct X32 {\n    q: array<u32, 8>,\n    d: f32,\n    s: f32,\n}\nfn pack4(v: vec4<f32>) -> u32 {\n    let q = \
                    vec4<u32>(bitcast<vec4<u32>>(vec4<i32>(v)) & vec4<u32>(0xffu)) << vec4<u32>(0u, 8u, 16u, 24u);\n    return \
                    q.x | q.y | q.z | q.w;\n}\n"
        .to_string();
    // d = max |x| / 127, q = x / d to nearest; s = d * (sum of q) serves types with a minimum.
    text += "fn round8(w0: W8, w1: W8, w2: W8, w3: W8) -> X32 {\n    var r: X32;\n    let m = max(max(max(abs(w0.a), abs(w0.b)), \
             max(abs(w1.a), abs(w1.b))), max(max(abs(w2.a), abs(w2.b)), max(abs(w3.a), abs(w3.b))));\n    let top = max(max(m.x, \
             m.y), max(m.z, m.w));\n    r.d = top / 127.0;\n    let inverse = select(0.0, 127.0 / top, top > 0.0);\n    var sum = \
             vec4<f32>(0.0);\n    var q = vec4<f32>(0.0);\n";
    for (j, (w, half)) in (0..4).flat_map(|w| [(w, "a"), (w, "b")]).enumerate() {
        let _ = write!(
            text,
            "    q = clamp(round(w{w}.{half} * inverse), vec4<f32>(-127.0), vec4<f32>(127.0));\n    sum += q;\n    r.q[{j}] = \
             pack4(q);\n"
        );
    }
    text += "    r.s = r.d * (sum.x + sum.y + sum.z + sum.w);\n    return r;\n}\n";
    text + &product_code(target)
}

pub(super) fn product_code(target: &Target) -> String {
    let dot = if target.packed_dot { "dot4I8Packed" } else { "t_dot4" };
    let sum =
        |from: usize| (from..from + 4).map(|j| format!("{dot}(x.q[{j}], w.q[{j}])")).collect::<Vec<_>>().join(" + ");
    format!(
        "fn product8(x: X32, w: Q32) -> f32 {{\n    let low = {};\n    let high = {};\n    return x.d * (w.d0 * f32(low) + w.d1 * \
         f32(high)) + x.s * w.m;\n}}\n",
        sum(0),
        sum(4)
    )
}

/// `right_base{p}`, `w8_{p}`, and where they apply `w8x4_{p}`, `wq_{p}`.
pub(super) fn right_code(
    code: &mut Code,
    body: &mut String,
    kernel: &ContractKernel,
    at: &Words,
    p: usize,
    right: usize,
) -> Result<()> {
    let part = &kernel.parts[p];
    let (input, dtype) = part.right;
    let depth = param(at.k);
    let (stride_k, stride_n) = (param(right + 1 + at.batch), param(right + 2 + at.batch));
    if dtype.is_quantized() {
        let mut defines = Defines::default();
        defines.set("P", p).set("W", code.word(input)?).set("V", code.quad(input)?).flag("Q8", q8(kernel, part));
        *body += &expand(quant_template(dtype)?, &defines)?;
        // The offset counts rows; batch strides are 0.
        let _ = write!(
            body,
            "fn right_base{p}(batch: u32, j: u32) -> u32 {{\n    return ({} + j) * row_words_{p}({depth});\n}}\n",
            param(right)
        );
        return Ok(());
    }
    let load = code.load(input, dtype)?;
    let by_k = part.right_unit == RightUnit::K;
    let column = if by_k { format!("j * {stride_n}") } else { "j".to_string() };
    let _ = write!(
        body,
        "fn right_base{p}(batch: u32, j: u32) -> u32 {{\n    return {} + {column};\n}}\n",
        base(at, right)
    );
    let place = if by_k { "row + k".to_string() } else { format!("row + k * {stride_k}") };
    let _ = write!(
        body,
        "fn w1_{p}(row: u32, k: u32) -> f32 {{\n    if (k >= {depth}) {{\n        return 0.0;\n    }}\n    return \
         {load}({place});\n}}\n"
    );
    *body += &eight(
        &format!("w8_{p}(row: u32, depth: u32, k: u32)"),
        &depth,
        by_k && kernel.vector,
        "row + k",
        &format!("w1_{p}(row, k + #)"),
        || code.load4(input, dtype),
    )?;
    if n_vector(kernel, part) {
        let four = code.load4(input, dtype)?;
        if p == 0 || !body.contains("struct W8x4") {
            *body += "struct W8x4 {\n    c0: W8,\n    c1: W8,\n    c2: W8,\n    c3: W8,\n}\n";
        }
        let _ = write!(
            body,
            "fn w4_{p}(row: u32, k: u32) -> vec4<f32> {{\n    if (k >= {depth}) {{\n        return vec4<f32>(0.0);\n    }}\n    return \
             {four}(row + k * {stride_k});\n}}\nfn w8x4_{p}(row: u32, k: u32) -> W8x4 {{\n"
        );
        for j in 0..8 {
            let _ = writeln!(body, "    let r{j} = w4_{p}(row, k + {j}u);");
        }
        let column = |c: &str| {
            let half = |from: usize| (from..from + 4).map(|j| format!("r{j}.{c}")).collect::<Vec<_>>().join(", ");
            format!("W8(vec4<f32>({}), vec4<f32>({}))", half(0), half(4))
        };
        let columns: Vec<String> = ["x", "y", "z", "w"].iter().map(|c| column(c)).collect();
        let _ = write!(body, "    return W8x4({});\n}}\n", columns.join(", "));
    }
    Ok(())
}
