//! Maps: one generator from expressions to WGSL, several independent parts in one dispatch.
//!
//! Uniform block: the step's words, its scalars, then each part's number of elements. An invocation computes one
//! element; four neighbours where the part allows; or, where an output's elements are less than a word and lie one
//! behind the other, all elements of one word.

use super::{
    Shader, Target, address,
    code::{Access, Code, Rep, Slots, fill_words, inputs_of, param, per_word, shared, single, wide},
    entry, expr, spread,
};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    Error, Result, Scalar,
    kernel::{Layout, MapKernel, MapPart, Operand},
};

/// Invocations of a workgroup.
const GROUP: u64 = 64;

/// How a part's invocations share its elements.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// One element each.
    Single,
    /// Four neighbours each.
    Vector,
    /// One word of the output each.
    Packed,
}

fn mode(part: &MapPart, half: bool) -> Option<Mode> {
    let dtype = part.expr.dtype()?;
    Some(if part.vector {
        Mode::Vector
    } else if part.output == Layout::Linear && single(dtype, half) == Access::Atomic {
        Mode::Packed
    } else {
        Mode::Single
    })
}

/// Words of a part.
fn part_words(part: &MapPart) -> usize {
    let rank = usize::from(part.rank);
    rank + (1 + part.operands.len()) * (1 + rank)
}

fn elements(part: &MapPart, words: &[i64]) -> Option<u64> {
    words.get(..usize::from(part.rank))?.iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?))
}

/// Each part with its words.
pub fn split<'a>(kernel: &'a MapKernel, mut words: &'a [i64]) -> Option<Vec<(&'a MapPart, &'a [i64])>> {
    kernel
        .parts
        .iter()
        .map(|part| {
            let (own, rest) = words.split_at_checked(part_words(part))?;
            words = rest;
            Some((part, own))
        })
        .collect()
}

fn slots(kernel: &MapKernel) -> Result<Slots> {
    Slots::new(0, kernel.parts.iter().map(|part| &part.expr))
}

/// Whether the kernel can run, and how many inputs it binds.
pub fn inputs(kernel: &MapKernel) -> usize {
    inputs_of(kernel.parts.iter().flat_map(|part| &part.operands))
}

/// Whether every dtype can be computed.
pub fn supported(kernel: &MapKernel) -> bool {
    !kernel.parts.is_empty()
        && kernel.parts.iter().all(|part| {
            part.rank <= 8
                && !part.expr.dtypes.is_empty()
                && part.expr.dtypes.iter().all(|&d| Rep::of(d).is_some())
                && part.operands.iter().all(|o| o.input.is_none() || Rep::of(o.dtype).is_some())
        })
}

/// Bytes moved, for the cost.
pub fn work(kernel: &MapKernel, words: &[i64]) -> u64 {
    let Some(parts) = split(kernel, words) else { return 0 };
    parts
        .iter()
        .map(|(part, words)| elements(part, words).unwrap_or(0).saturating_mul(4 * (part.operands.len() as u64 + 1)))
        .fold(0, u64::saturating_add)
}

/// The uniform block.
pub fn params(kernel: &MapKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let parts = split(kernel, words).ok_or_else(|| Error::op("map", "the step brings too few words"))?;
    fill_words("map", words, out)?;
    slots(kernel)?.fill(scalars, out)?;
    for (part, words) in parts {
        let n = elements(part, words).filter(|&n| n < 0xffff_fff0);
        let n = n.ok_or_else(|| Error::op("map", "a tensor of 2^32 elements or more: split it"))?;
        out.push(n as u32);
    }
    Ok(())
}

/// Workgroups of a part.
fn groups(part: &MapPart, words: &[i64], half: bool) -> u64 {
    let n = elements(part, words).unwrap_or(0);
    let items = match mode(part, half) {
        Some(Mode::Vector) => n.div_ceil(4),
        Some(Mode::Packed) if n > 0 => {
            let per = part.expr.dtype().map_or(1, per_word);
            let lane = words.get(usize::from(part.rank)).map_or(0, |&o| o as u64 % u64::from(per));
            (lane + n).div_ceil(u64::from(per))
        }
        _ => n,
    };
    items.div_ceil(GROUP)
}

/// The grid.
pub fn grids(kernel: &MapKernel, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let Some(parts) = split(kernel, words) else { return smallvec![[0; 3]] };
    smallvec![spread(parts.iter().map(|(part, words)| groups(part, words, target.f16)).sum(), target)]
}

/// How an input is declared: wide where every use allows it.
fn access(kernel: &MapKernel, input: usize, half: bool) -> Access {
    let uses = kernel.parts.iter().flat_map(|part| {
        let own = part.operands.iter().filter(move |o| o.input.map(usize::from) == Some(input));
        own.map(|operand| (operand.dtype, part.vector))
    });
    shared(uses, half)
}

/// The shader.
pub fn shader(kernel: &MapKernel, target: &Target) -> Result<Shader> {
    let slots = slots(kernel)?;
    let words: usize = kernel.parts.iter().map(part_words).sum();
    let slots_at = words;
    let counts_at = slots_at + slots.words();
    let param_words = counts_at + kernel.parts.len();
    let inputs = inputs(kernel);
    let mut code = Code::new(inputs, kernel.parts.len(), param_words);
    for input in 0..inputs {
        code.inputs[input] = access(kernel, input, target.f16);
    }
    let mut dispatch = String::new();
    let mut first = 0;
    for (p, part) in kernel.parts.iter().enumerate() {
        let items = part_code(&mut code, p, part, first, counts_at + p, &slots, slots_at, target.f16)?;
        let _ = write!(
            dispatch,
            "    let groups{p} = ({items} + 63u) / 64u;\n    if (g < groups{p}) {{\n        map{p}(g * 64u + lid);\n        \
             return;\n    }}\n    g -= groups{p};\n"
        );
        first += part_words(part);
    }
    code.body += &entry("main", GROUP as u32, "", &format!("    var g = group;\n{dispatch}"));
    Ok(Shader {
        label: format!("map x{}", kernel.parts.len()),
        source: code.finish(target, false),
        entries: smallvec!["main"],
        inputs,
        outputs: kernel.parts.len(),
        scratch: false,
        fault: false,
        param_words,
    })
}

/// Emits the function `map{p}(t)` of one part, and returns the expression of its number of invocations.
#[allow(clippy::too_many_arguments, reason = "one call")]
fn part_code(
    code: &mut Code,
    p: usize,
    part: &MapPart,
    first: usize,
    count: usize,
    slots: &Slots,
    slots_at: usize,
    half: bool,
) -> Result<String> {
    let rank = usize::from(part.rank);
    let dtype = part.expr.dtype().ok_or_else(|| Error::op("map", "an empty expression"))?;
    let mode = mode(part, half).ok_or_else(|| Error::op("map", "an empty expression"))?;
    let output_at = first + rank;
    let operand_at = |o: usize| output_at + (1 + o) * (1 + rank);
    let value = expr::function(code, &format!("value{p}"), &part.expr, &part.operands, None, slots, slots_at)?;
    code.outputs[p] = match (mode, per_word(dtype), Rep::need(dtype)?.is_64()) {
        (Mode::Vector, 1 | 2, false) => wide(dtype, half),
        (Mode::Single, 2 | 4, _) => single(dtype, half),
        _ => Access::Words,
    };

    // The index along each axis, from the linear index i.
    let strided = part.output == Layout::Strided || part.operands.iter().any(|o| o.layout == Layout::Strided);
    let mut coordinates = String::new();
    let indices: Vec<String> = (0..rank).map(|a| format!("i{a}")).collect();
    if strided && rank > 0 {
        coordinates += "    var rest = i;\n";
        for a in (1..rank).rev() {
            let size = param(first + a);
            let _ = write!(coordinates, "    let i{a} = rest % {size};\n    rest = rest / {size};\n");
        }
        coordinates += "    let i0 = rest;\n";
    }
    let place = |layout: Layout, at: usize| match layout {
        Layout::Linear => format!("{} + i", param(at)),
        Layout::Scalar => param(at),
        Layout::Strided => address(at, &indices),
    };
    let inner = |operand: &Operand, at: usize| match operand.layout {
        Layout::Linear => "1u".to_string(),
        Layout::Scalar => "0u".to_string(),
        Layout::Strided if rank == 0 => "0u".to_string(),
        Layout::Strided => param(at + rank),
    };

    let n = param(count);
    if mode == Mode::Vector {
        let ty = |operand: &Operand| Rep::need(operand.dtype).map(Rep::wgsl);
        let mut body = String::new();
        for &(o, position) in &value.arguments {
            let operand = &part.operands[usize::from(o)];
            let at = operand_at(usize::from(o));
            let _ = writeln!(body, "    let a{o} = {};", place(operand.layout, at));
            let Some(input) = operand.input.filter(|_| !position) else { continue };
            if Rep::need(operand.dtype)?.is_64() {
                continue;
            }
            let (one, four, ty) = (code.load(input, operand.dtype)?, code.load4(input, operand.dtype)?, ty(operand)?);
            let _ = match operand.layout {
                Layout::Linear => writeln!(body, "    let x{o} = {four}(a{o});"),
                Layout::Scalar => writeln!(body, "    let x{o} = vec4<{ty}>({one}(a{o}));"),
                Layout::Strided => writeln!(
                    body,
                    "    var x{o}: vec4<{ty}>;\n    if ({} == 0u) {{\n        x{o} = vec4<{ty}>({one}(a{o}));\n    }} else \
                     {{\n        x{o} = {four}(a{o});\n    }}",
                    inner(operand, at)
                ),
            };
        }
        let mut lanes = Vec::new();
        for (j, lane) in ["x", "y", "z", "w"].iter().enumerate() {
            let mut loads = Vec::new();
            for &(o, position) in &value.arguments {
                let operand = &part.operands[usize::from(o)];
                let moved = format!("a{o} + {j}u * {}", inner(operand, operand_at(usize::from(o))));
                loads.push(match operand.input.filter(|_| !position) {
                    None => moved,
                    Some(input) if Rep::need(operand.dtype)?.is_64() => {
                        format!("{}({moved})", code.load(input, operand.dtype)?)
                    }
                    Some(_) => format!("x{o}.{lane}"),
                });
            }
            lanes.push(format!("{}({})", value.name, loads.join(", ")));
        }
        let store = code.store4(p, dtype)?;
        let _ = write!(
            code.body,
            "fn map{p}(t: u32) {{\n    let i = t * 4u;\n    if (i >= {n}) {{\n        return;\n    }}\n{coordinates}{body}    \
             {store}({}, {});\n}}\n",
            place(part.output, output_at),
            lanes.join(", ")
        );
        return Ok(format!("{n} / 4u"));
    }

    let mut loads = Vec::new();
    for &(o, position) in &value.arguments {
        let operand = &part.operands[usize::from(o)];
        let at = place(operand.layout, operand_at(usize::from(o)));
        loads.push(match operand.input.filter(|_| !position) {
            None => at,
            Some(input) => format!("{}({at})", code.load(input, operand.dtype)?),
        });
    }
    let call = format!("{}({})", value.name, loads.join(", "));
    if mode == Mode::Single {
        let store = code.store(p, dtype)?;
        let _ = write!(
            code.body,
            "fn map{p}(i: u32) {{\n    if (i >= {n}) {{\n        return;\n    }}\n{coordinates}    {store}({}, {call});\n}}\n",
            place(part.output, output_at)
        );
        return Ok(n);
    }
    let per = per_word(dtype);
    let (width, lane_mask) = if per == 4 { (8, "0xffu") } else { (16, "0xffffu") };
    let bits = super::code::encode(dtype, "v");
    let offset = param(output_at);
    let _ = write!(
        code.body,
        "fn bits{p}(i: u32) -> u32 {{\n{coordinates}    let v = {call};\n    return {bits};\n}}\n\
         fn map{p}(t: u32) {{\n    let lane = {offset} % {per}u;\n    if (t >= (lane + {n} + {}u) / {per}u) {{\n        return;\n    }}\n    \
         var bits = 0u;\n    var mask = 0u;\n    for (var j = 0u; j < {per}u; j++) {{\n        let i = t * {per}u + j - lane;\n        \
         if (i < {n}) {{\n            bits |= bits{p}(i) << (j * {width}u);\n            mask |= {lane_mask} << (j * {width}u);\n        \
         }}\n    }}\n    let at = {offset} / {per}u + t;\n    if (mask != 0xffffffffu) {{\n        bits |= out{p}[at] & ~mask;\n    \
         }}\n    out{p}[at] = bits;\n}}\n",
        per - 1
    );
    Ok(format!("(({offset} % {per}u + {n} + {}u) / {per}u)", per - 1))
}
