//! Products: a left operand with one or several right operands, dense or quantized, each with its epilogue.
//!
//! Uniform block: the step's words, its scalars, the number of batches, then for each part where its output begins, the
//! strides of the output's batches and rows, and how far apart the columns of a pair lie.
//! Implementations: through workgroup memory (reduced matrix-vector products for one row or few, register tiles for
//! many); one invocation a result, without barriers; reduced by subgroup. All share the loaders of this file.

use super::{
    Shader, Target, address,
    code::{Access, Code, Rep, Slots, fill_words, inputs_of, param, shared, single},
    entry, expr,
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    DType, Error, Implementation, Result, Scalar,
    kernel::{Activations, ContractKernel, ContractPart, Prologue, RightUnit, RowClass, RowOp},
};

/// Implementation numbers.
const SHARED: u32 = 0;
const SERIAL: u32 = 1;
const SUBGROUP: u32 = 2;

/// What loaders return: 8 neighbours along k; and a block of 32 as whole numbers, x = d q + m, with a d for each half.
pub const STRUCTS: &str = "struct W8 {\n    a: vec4<f32>,\n    b: vec4<f32>,\n}\nstruct Q32 {\n    q: array<u32, 8>,\n    \
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

/// Where everything stands among the words.
pub struct Words {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub left: usize,
    pub prologue: usize,
    /// For each part: n, the right operand, each epilogue operand.
    pub parts: Vec<(usize, usize, Vec<usize>)>,
    pub total: usize,
}

impl Words {
    pub fn of(kernel: &ContractKernel) -> Self {
        let batch = usize::from(kernel.batch);
        let operand = 3 + batch;
        let left = batch + 2;
        let prologue = left + operand;
        let mut at = prologue + if kernel.prologue.is_some() { 2 } else { 0 };
        let parts = kernel
            .parts
            .iter()
            .map(|part| {
                let n = at;
                let right = n + 1;
                let epilogue = (0..part.operands.len()).map(|o| right + operand * (1 + o)).collect();
                at = right + operand * (1 + part.operands.len());
                (n, right, epilogue)
            })
            .collect();
        Self { batch, m: batch, k: batch + 1, left, prologue, parts, total: at }
    }
}

/// How an implementation cuts the work of one part.
struct Cut {
    /// Invocations of a workgroup.
    group: u32,
    /// Columns an invocation computes at once.
    ct: u32,
    /// Invocations along k.
    slices: u32,
    /// Columns of a workgroup, or of a tile.
    columns: u32,
}

fn quantized(part: &ContractPart) -> bool {
    part.right.1.is_quantized()
}

fn q8(kernel: &ContractKernel, part: &ContractPart) -> bool {
    quantized(part) && kernel.activations == Activations::Q8
}

/// Whether four neighbouring columns are read as one vector.
fn n_vector(kernel: &ContractKernel, part: &ContractPart) -> bool {
    part.right_unit == RightUnit::N && kernel.vector && !part.paired
}

fn cut(kernel: &ContractKernel, part: &ContractPart, implementation: u32, target: &Target) -> Cut {
    let by_k = part.right_unit == RightUnit::K;
    let four = n_vector(kernel, part);
    match (kernel.rows, implementation) {
        (RowClass::Many, SERIAL) => {
            let ct = if part.paired { 2 } else { 4 };
            Cut { group: 64, ct, slices: 1, columns: ct }
        }
        (RowClass::Many, _) => Cut { group: 256, ct: 4, slices: 1, columns: if part.paired { 32 } else { 64 } },
        (rows, SERIAL) => {
            let ct = if four || (rows == RowClass::One && !part.paired) { 4 } else { 2 };
            Cut { group: 32, ct, slices: 1, columns: 32 * ct }
        }
        (rows, SUBGROUP) => {
            let group = subgroup(target).unwrap_or(32);
            let ct = match (rows, part.paired) {
                (RowClass::One, false) => 4,
                (RowClass::One, true) | (_, false) => 2,
                _ => 1,
            };
            Cut { group, ct, slices: group, columns: ct }
        }
        (rows, _) => {
            let slices = if by_k { 16 } else { 4 };
            let ct = match (four, rows, part.paired) {
                (true, _, _) => 4,
                (_, RowClass::One, _) | (_, _, false) => 2,
                _ => 1,
            };
            Cut { group: 64, ct, slices, columns: 64 / slices * ct }
        }
    }
}

/// The size of a workgroup that is one subgroup on this device, whatever subgroup size it picks.
fn subgroup(target: &Target) -> Option<u32> {
    target.subgroups.map(|(min, _)| min).filter(|min| min.is_power_of_two() && (4..=64).contains(min))
}

/// Inputs it binds.
pub fn inputs(kernel: &ContractKernel) -> usize {
    let prologue = kernel.prologue.iter().flat_map(|p| [p.weight, p.bias]).flatten().map(|(input, _)| input);
    let named = kernel.parts.iter().map(|part| part.right.0).chain([kernel.left.0]).chain(prologue);
    let most = named.max().map_or(0, |input| usize::from(input) + 1);
    most.max(inputs_of(kernel.parts.iter().flat_map(|part| &part.operands)))
}

fn is_float(dtype: DType) -> bool {
    Rep::of(dtype) == Some(Rep::F32)
}

/// The ways to run it.
pub fn implementations(kernel: &ContractKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    let none = SmallVec::new();
    let many = kernel.rows == RowClass::Many;
    let supported = is_float(kernel.left.1)
        && !kernel.parts.is_empty()
        && kernel.batch <= 2
        && kernel.parts.iter().all(|part| {
            (quantized(part) || is_float(part.right.1))
                && !(quantized(part) && part.right_unit == RightUnit::N)
                && !part.epilogue.dtypes.is_empty()
                && part.epilogue.dtypes.iter().all(|&d| Rep::of(d).is_some())
                && part.operands.iter().all(|o| o.input.is_none() || Rep::of(o.dtype).is_some())
        })
        && kernel.prologue.as_ref().is_none_or(|p| {
            matches!(p.op, RowOp::RmsNorm | RowOp::LayerNorm)
                && !many
                && [p.weight, p.bias].iter().flatten().all(|&(_, dtype)| is_float(dtype))
        });
    if !supported {
        return none;
    }
    let at = Words::of(kernel);
    let word = |i: usize| words.get(i).map_or(1.0, |&w| w.max(0) as f32);
    let (m, k) = (word(at.m), word(at.k));
    let batches = (0..at.batch).map(word).product::<f32>();
    let n: f32 =
        at.parts.iter().zip(&kernel.parts).map(|(p, part)| word(p.0) * if part.paired { 2.0 } else { 1.0 }).sum();
    // At 1 TB/s and 10 TFLOP/s.
    let bytes: f32 =
        kernel.parts.first().map_or(4.0, |p| p.right.1.block_bytes() as f32 / p.right.1.block_elements() as f32);
    let floor = batches * (n * k * bytes * 1e-6 + m * n * k * 2e-7);
    let cost = |gpu: f32, software: f32| 1.0 + floor * if target.software { software } else { gpu };
    let mut all: SmallVec<[Implementation; 2]> = SmallVec::new();
    // The tiles' workgroup memory holds one kind of operand at a time.
    let mixed = kernel.parts.iter().any(|p| q8(kernel, p)) && kernel.parts.iter().any(|p| !q8(kernel, p));
    let tiles = target.max_workgroup_invocations >= 256 && target.max_workgroup_storage >= 16_384 && !mixed;
    if !many || tiles {
        all.push(Implementation { id: SHARED, scratch: 0, cost: cost(1.5, 100.0) });
    }
    all.push(Implementation { id: SERIAL, scratch: 0, cost: cost(8.0, 10.0) });
    if !many && subgroup(target).is_some() && kernel.parts.iter().all(|p| p.right_unit == RightUnit::K) {
        let small = subgroup(target).is_some_and(|size| size < 16);
        all.push(Implementation { id: SUBGROUP, scratch: 0, cost: cost(if small { 2.0 } else { 1.0 }, 50.0) });
    }
    all
}

fn slots(kernel: &ContractKernel) -> Result<Slots> {
    Slots::new(u16::from(kernel.prologue.is_some()), kernel.parts.iter().map(|part| &part.epilogue))
}

/// Words of the uniform block that tell where a part's output lies.
const PLACE: usize = 4;

/// Where those of the first part begin.
pub fn place(kernel: &ContractKernel) -> Result<usize> {
    Ok(Words::of(kernel).total + slots(kernel)?.words() + 1)
}

fn batches(kernel: &ContractKernel, words: &[i64]) -> Option<u64> {
    let sizes = words.get(..usize::from(kernel.batch))?;
    sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?))
}

/// The uniform block.
pub fn params(kernel: &ContractKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let at = Words::of(kernel);
    let words = words.get(..at.total).ok_or_else(|| Error::op("matmul", "the step brings too few words"))?;
    fill_words("matmul", words, out)?;
    slots(kernel)?.fill(scalars, out)?;
    let batches = batches(kernel, words).unwrap_or(u64::MAX);
    for (part, (n, _, _)) in kernel.parts.iter().zip(&at.parts) {
        let results = batches.saturating_mul(words[at.m].max(0) as u64).saturating_mul(words[*n].max(0) as u64);
        if results >= 0xffff_0000 {
            return Err(Error::op("matmul", "2^32 results or more: split the product"));
        }
        let block = part.right.1.block_elements() as i64;
        if words[at.k] % block != 0 {
            return Err(Error::op(
                "matmul",
                format!("k = {} is no whole number of blocks of {}", words[at.k], part.right.1),
            ));
        }
    }
    out.push(batches as u32);
    for (n, _, _) in &at.parts {
        out.extend([0, words[at.m].wrapping_mul(words[*n]) as u32, words[*n] as u32, words[*n] as u32]);
    }
    Ok(())
}

/// The grid.
pub fn grids(kernel: &ContractKernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let at = Words::of(kernel);
    let size = |i: usize| words.get(i).map_or(0, |&w| w.max(0) as u64);
    let batches = batches(kernel, words).unwrap_or(0);
    let m = size(at.m);
    let groups = kernel.parts.iter().zip(&at.parts).map(|(part, (n, _, _))| {
        let cut = cut(kernel, part, implementation, target);
        let tiles = batches * size(*n).div_ceil(u64::from(cut.columns));
        match (kernel.rows, implementation) {
            (RowClass::Many, SERIAL) => (tiles * m.div_ceil(4)).div_ceil(u64::from(cut.group)),
            (RowClass::Many, _) => tiles * m.div_ceil(64),
            _ if m == 0 => 0,
            _ => tiles,
        }
    });
    smallvec![spread(groups.sum(), target)]
}

/// The shader.
pub fn shader(kernel: &ContractKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let at = Words::of(kernel);
    let slots = slots(kernel)?;
    let slots_at = at.total;
    let batches_at = slots_at + slots.words();
    let place = place(kernel)?;
    let param_words = place + PLACE * kernel.parts.len();
    let inputs = inputs(kernel);
    let mut code = Code::new(inputs, kernel.parts.len(), param_words);
    for input in 0..inputs {
        code.inputs[input] = access(kernel, input, target.f16);
    }
    let many = kernel.rows == RowClass::Many;
    let rows = if kernel.rows == RowClass::One { 1 } else { 8 };
    let mut body = STRUCTS.to_string();
    left_code(&mut code, &mut body, kernel, &at)?;
    if kernel.parts.iter().any(|part| q8(kernel, part)) {
        body += &round_code(target);
    }
    let group = kernel.parts.first().map_or(64, |part| cut(kernel, part, implementation, target).group);
    memory(&mut body, kernel, implementation, target, rows, group);

    let mut dispatch = String::new();
    for (p, part) in kernel.parts.iter().enumerate() {
        let (n, right, epilogue) = &at.parts[p];
        right_code(&mut code, &mut body, kernel, &at, p, *right)?;
        epilogue_code(&mut code, &mut body, part, p, &at, place + PLACE * p, epilogue, &slots, slots_at, target.f16)?;
        let cut = cut(kernel, part, implementation, target);
        let by_k = part.right_unit == RightUnit::K;
        let q8 = q8(kernel, part);
        let mut defines = Defines::default();
        defines
            .set("p", p)
            .set("N", param(*n))
            .set("M_SIZE", param(at.m))
            .set("OTHER", param(place + PLACE * p + 3))
            .set("K", param(at.k))
            .set("M", rows)
            .set("LEFT_M", param(at.left + 1 + at.batch))
            .set("COLS", cut.columns)
            .set("CT", cut.ct)
            .set("S", cut.slices)
            .set("CW", cut.columns / cut.ct)
            .set("WG", cut.group)
            .set("BATCH", param(batches_at))
            .set("EPS", format!("bitcast<f32>({})", param(slots_at)))
            .set("DOT", if target.packed_dot { "dot4I8Packed" } else { "t_dot4" })
            .set("FIRST", if implementation == SERIAL { "0u" } else { "lid" })
            .set("STRIDE", if implementation == SERIAL { 1 } else { cut.group })
            .flag("BY_K", by_k)
            .flag("PAIR", part.paired)
            .flag("NVEC", n_vector(kernel, part) && (!many || implementation == SERIAL))
            .flag("Q8", q8)
            .flag("SERIAL", implementation == SERIAL)
            .flag("SUB", implementation == SUBGROUP)
            .flag("PROLOGUE", kernel.prologue.is_some())
            .flag("LAYER", kernel.prologue.as_ref().is_some_and(|p| p.op == RowOp::LayerNorm));
        if many && implementation != SERIAL {
            defines.set("COLUMN", if q8 { "mine" } else { "lid / 4u" }).set("UNIT", if q8 { "0u" } else { "lid % 4u" });
        } else {
            defines.set("UNIT", if q8 { 32 } else { 8 }).set("UNITS", if q8 { 4 } else { 1 });
        }
        let template = match (many, implementation) {
            (true, SERIAL) => "matmul_serial.wgsl",
            (true, _) => "matmul.wgsl",
            _ => "matvec.wgsl",
        };
        body += &expand(template, &defines)?;
        let tiles = format!("(({} + {}u) / {}u)", param(*n), cut.columns - 1, cut.columns);
        let all = match (many, implementation) {
            (true, SERIAL) => {
                format!(
                    "({} * {tiles} * (({} + 3u) / 4u) + {}u) / {}u",
                    param(batches_at),
                    param(at.m),
                    cut.group - 1,
                    cut.group
                )
            }
            (true, _) => format!("{} * {tiles} * (({} + 63u) / 64u)", param(batches_at), param(at.m)),
            _ => format!("{} * {tiles}", param(batches_at)),
        };
        let _ = write!(
            dispatch,
            "    let groups{p} = {all};\n    if (g < groups{p}) {{\n        part{p}(g, lid);\n        return;\n    }}\n    g -= \
             groups{p};\n"
        );
    }
    body += &entry("main", group, "", &format!("    var g = group;\n{dispatch}"));
    code.body = body;
    let kinds: Vec<&str> = kernel.parts.iter().map(|part| part.right.1.name()).collect();
    Ok(Shader {
        label: format!("matmul {:?} {} {implementation}", kernel.rows, kinds.join(",")),
        source: code.finish(target, implementation == SUBGROUP),
        entries: smallvec!["main"],
        inputs,
        outputs: kernel.parts.len(),
        scratch: false,
        fault: false,
        param_words,
    })
}

/// How an input is declared: as wide as its vector reads allow, if they agree.
fn access(kernel: &ContractKernel, input: usize, half: bool) -> Access {
    let norm = kernel.prologue.iter().flat_map(|p| [p.weight, p.bias]).flatten().map(|(i, dtype)| (i, dtype, false));
    let rights = kernel.parts.iter().map(|part| {
        let (input, dtype) = part.right;
        (input, dtype, kernel.vector && !quantized(part))
    });
    let epilogues = kernel.parts.iter().flat_map(|part| &part.operands);
    let epilogues = epilogues.filter_map(|operand| Some((operand.input?, operand.dtype, false)));
    let left = [(kernel.left.0, kernel.left.1, kernel.vector && kernel.left_rows)];
    let all = left.into_iter().chain(rights).chain(norm).chain(epilogues);
    shared(all.filter(|use_| usize::from(use_.0) == input).map(|(_, dtype, four)| (dtype, four)), half)
}

/// `base + batch * strides`, where `at` is the operand's first word and `batch` decodes the batch number.
fn batch_indices(at: &Words) -> Vec<String> {
    match at.batch {
        0 => vec![],
        1 => vec!["batch".into()],
        _ => vec![format!("batch / {}", param(1)), format!("batch % {}", param(1))],
    }
}

fn base(at: &Words, operand: usize) -> String {
    let indices: Vec<String> = batch_indices(at).iter().map(|i| format!("({i})")).collect();
    address(operand, &indices)
}

/// `left_base`, `x1`, `x8`, and the prologue's `prepare`.
fn left_code(code: &mut Code, body: &mut String, kernel: &ContractKernel, at: &Words) -> Result<()> {
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
fn round_code(target: &Target) -> String {
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

fn product_code(target: &Target) -> String {
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

/// Workgroup memory, and the norm's meeting function.
fn memory(body: &mut String, kernel: &ContractKernel, implementation: u32, target: &Target, rows: u32, group: u32) {
    let many = kernel.rows == RowClass::Many;
    if many && implementation == SHARED {
        if kernel.parts.iter().any(|part| q8(kernel, part)) {
            *body += "var<workgroup> tile_a: array<u32, 512>;\nvar<workgroup> tile_b: array<u32, 512>;\nvar<workgroup> scale_a: \
                      array<vec2<f32>, 64>;\nvar<workgroup> scale_b: array<vec4<f32>, 64>;\n";
        } else {
            *body += "var<workgroup> tile_a: array<vec4<f32>, 512>;\nvar<workgroup> tile_b: array<vec4<f32>, 512>;\n";
        }
    }
    let mut words = 0;
    if !many && implementation == SHARED {
        let accumulators = kernel
            .parts
            .iter()
            .map(|part| rows * cut(kernel, part, implementation, target).ct * if part.paired { 2 } else { 1 });
        words = accumulators.max().unwrap_or(1) * group;
        let _ = writeln!(body, "var<workgroup> red: array<f32, {words}>;");
    }
    if kernel.prologue.is_none() {
        return;
    }
    *body += "fn all_sum(v: f32, lid: u32) -> f32 {\n";
    *body += &match implementation {
        SERIAL => "    return v;\n".to_string(),
        SUBGROUP => "    return subgroupAdd(v);\n".to_string(),
        _ => format!(
            "    red[lid] = v;\n    workgroupBarrier();\n    for (var o = {group}u / 2u; o > 0u; o = o / 2u) {{\n        if (lid < o) \
             {{\n            red[lid] += red[lid + o];\n        }}\n        workgroupBarrier();\n    }}\n    let all = red[0];\n    \
             workgroupBarrier();\n    return all;\n"
        ),
    };
    *body += "}\n";
    debug_assert!(words >= group || implementation != SHARED);
}

/// `right_base{p}`, `w8_{p}`, and where they apply `w8x4_{p}`, `wq_{p}`.
fn right_code(
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
        defines.set("P", p).set("W", code.word(input)?).flag("Q8", q8(kernel, part));
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

/// `store_part{p}`.
#[allow(clippy::too_many_arguments, reason = "one call")]
fn epilogue_code(
    code: &mut Code,
    body: &mut String,
    part: &ContractPart,
    p: usize,
    at: &Words,
    place: usize,
    operands: &[usize],
    slots: &Slots,
    slots_at: usize,
    half: bool,
) -> Result<()> {
    let stored = part.epilogue.dtype().ok_or_else(|| Error::op("matmul", "an empty epilogue"))?;
    code.outputs[p] = single(stored, half);
    let name = format!("epilogue{p}");
    let value = expr::function(code, &name, &part.epilogue, &part.operands, Some(DType::F32), slots, slots_at)?;
    let mut indices: Vec<String> = batch_indices(at).iter().map(|i| format!("({i})")).collect();
    indices.extend(["i".to_string(), "j".to_string()]);
    let mut loads = Vec::new();
    for &(o, position) in &value.arguments {
        let operand = &part.operands[usize::from(o)];
        let place = address(operands[usize::from(o)], &indices);
        loads.push(match operand.input.filter(|_| !position) {
            None => place,
            Some(input) => format!("{}({place})", code.load(input, operand.dtype)?),
        });
    }
    loads.extend(["acc0", "acc1"].iter().take(usize::from(value.accumulators)).map(ToString::to_string));
    let store = code.store(p, stored)?;
    let _ = write!(
        body,
        "fn store_part{p}(batch: u32, i: u32, j: u32, acc0: f32, acc1: f32) {{\n    {store}({} + batch * {} + i * {} + j, \
         {}({}));\n}}\n",
        param(place),
        param(place + 1),
        param(place + 2),
        value.name,
        loads.join(", ")
    );
    Ok(())
}
