//! Reductions, arg-reductions and norms of rows.
//!
//! Uniform block: the step's words, its scalars, then the number of rows, their length and the first element's place in
//! the output.
//! Implementations: a workgroup of 64 or 256 a row, meeting in a tree; one invocation a row (short rows, rows whose
//! elements lie apart, devices where barriers are dear); 16 rows and 16 slices a workgroup (sums over leading axes).

use super::{
    Shader, Target, address,
    code::{Code, Rep, Slots, fill_words, inputs_of, param, shared, single},
    expr,
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    BinaryOp, CompareOp, DType, Error, Implementation, Result, Scalar,
    kernel::{RowKernel, RowOp},
};

/// Implementation numbers.
const TREE_64: u32 = 0;
const SERIAL: u32 = 1;
const COLUMNS: u32 = 2;
const TREE_256: u32 = 3;

/// Values of a norm's row that an invocation of a tree keeps in registers.
fn kept(op: RowOp, implementation: u32) -> u32 {
    match implementation {
        TREE_64 if norm(op) => 8,
        TREE_256 if norm(op) => 16,
        _ => 0,
    }
}

/// Rows a workgroup of columns takes.
const COLUMN_ROWS: u64 = 16;

fn norm(op: RowOp) -> bool {
    !op.reduces()
}

fn arg(op: RowOp) -> bool {
    matches!(op, RowOp::ArgMax | RowOp::ArgMin)
}

fn own_scalars(op: RowOp) -> u16 {
    u16::from(matches!(op, RowOp::RmsNorm | RowOp::LayerNorm))
}

pub fn word_count(kernel: &RowKernel) -> usize {
    let rank = usize::from(kernel.outer) + usize::from(kernel.inner);
    rank + kernel.operands.len() * (1 + rank)
}

/// Where the first element's place in the output stands in the uniform block.
pub fn place(kernel: &RowKernel) -> Result<usize> {
    let slots = Slots::new(own_scalars(kernel.op), [&kernel.before, &kernel.after])?;
    Ok(word_count(kernel) + slots.words() + 2)
}

/// Rows and their length.
fn sizes(kernel: &RowKernel, words: &[i64]) -> Option<(u64, u64)> {
    let product = |sizes: &[i64]| sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?));
    let (outer, inner) = (usize::from(kernel.outer), usize::from(kernel.inner));
    Some((product(words.get(..outer)?)?, product(words.get(outer..outer + inner)?)?))
}

/// Inputs it binds.
pub fn inputs(kernel: &RowKernel) -> usize {
    inputs_of(&kernel.operands)
}

/// The ways to run it.
pub fn implementations(kernel: &RowKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    let dtypes = kernel.before.dtypes.iter().chain(&kernel.after.dtypes);
    let value = kernel.before.dtype().and_then(Rep::of);
    let floats = norm(kernel.op) || kernel.op == RowOp::Mean;
    if dtypes.clone().any(|&d| Rep::of(d).is_none())
        || kernel.operands.iter().any(|o| o.input.is_some() && Rep::of(o.dtype).is_none())
        || value.is_none()
        || kernel.after.dtypes.is_empty()
        || (floats && value != Some(Rep::F32))
        || (norm(kernel.op) && kernel.inner != 1)
    {
        return SmallVec::new();
    }
    let (rows, length) = sizes(kernel, words).unwrap_or((1, 1));
    let (rows, length) = (rows as f32, length as f32);
    let rank = usize::from(kernel.outer) + usize::from(kernel.inner);
    // Whether neighbours of a row are neighbours in memory, judged by the first operand.
    let apart = words.get(2 * rank).is_some_and(|&stride| stride.abs() > 1) && kernel.inner > 0;
    // A row that fits the registers is read once.
    let passes = |implementation: u32| {
        let held = kept(kernel.op, implementation) * group_size(implementation);
        if norm(kernel.op) && length > held as f32 { 3.0 } else { 1.0 }
    };
    // An imagined GPU keeps 65,536 invocations busy; an element takes one 10 ns; a tree takes half a microsecond.
    let time = |passes: f32, share: f32, tree: f32, scattered: bool| {
        let waves = (rows * share / 65_536.0).max(1.0);
        waves * ((length / share).ceil() * passes * 0.01 * if scattered { 4.0 } else { 1.0 } + tree * 0.5)
    };
    let software = |passes: f32, share: f32| rows * (length * passes * 1e-3 + share * 0.05);
    let cost = |id: u32, share: f32, tree: f32, scattered: bool| {
        1.0 + if target.software {
            software(passes(id), if tree > 0.0 { share } else { 0.0 })
        } else {
            time(passes(id), share, tree, scattered)
        }
    };
    let mut all = smallvec![
        Implementation { id: TREE_64, scratch: 0, cost: cost(TREE_64, 64.0, 1.0, apart) },
        // llvmpipe ends all loops of an invocation after 65,535 turns in all, in silence.
        Implementation {
            id: SERIAL,
            scratch: 0,
            cost: cost(SERIAL, 1.0, 0.0, !apart && length > 8.0)
                + if target.software && length * passes(SERIAL) > 60_000.0 { 1e9 } else { 0.0 },
        },
    ];
    if target.max_workgroup_invocations >= 256 {
        if !norm(kernel.op) && !arg(kernel.op) {
            all.push(Implementation { id: COLUMNS, scratch: 0, cost: cost(COLUMNS, 16.0, 1.0, !apart) });
        }
        all.push(Implementation { id: TREE_256, scratch: 0, cost: cost(TREE_256, 256.0, 1.2, apart) });
    }
    all
}

/// The uniform block.
pub fn params(kernel: &RowKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let words = words.get(..word_count(kernel)).ok_or_else(|| Error::op("row", "the step brings too few words"))?;
    fill_words("row", words, out)?;
    Slots::new(own_scalars(kernel.op), [&kernel.before, &kernel.after])?.fill(scalars, out)?;
    let fits = sizes(kernel, words).filter(|&(rows, length)| rows < 1 << 31 && length < 1 << 31);
    let fits = fits.filter(|&(rows, length)| !norm(kernel.op) || rows * length < 1 << 32);
    let (rows, length) =
        fits.ok_or_else(|| Error::op("row", "2^31 rows or elements of a row, or more: split the tensor"))?;
    out.extend([rows as u32, length as u32, 0]);
    Ok(())
}

fn group_size(implementation: u32) -> u32 {
    if implementation == TREE_256 { 256 } else { 64 }
}

/// The grid.
pub fn grids(kernel: &RowKernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let (rows, length) = sizes(kernel, words).unwrap_or((0, 0));
    if norm(kernel.op) && length == 0 {
        return smallvec![[0; 3]];
    }
    smallvec![spread(
        match implementation {
            SERIAL => rows.div_ceil(64),
            COLUMNS => rows.div_ceil(COLUMN_ROWS),
            _ => rows,
        },
        target
    )]
}

/// The value that changes nothing: what a row of length 0 gives.
pub fn identity(op: RowOp, dtype: DType) -> Result<String> {
    let rep = Rep::need(dtype)?;
    let number = |n: u32| match rep {
        Rep::F32 => format!("{n}.0"),
        Rep::U32 => format!("{n}u"),
        Rep::I32 => format!("{n}"),
        Rep::U64 | Rep::I64 => format!("vec2<u32>({n}u, 0u)"),
    };
    let high = matches!(op, RowOp::Min | RowOp::ArgMin);
    Ok(match op {
        RowOp::Prod => number(1),
        RowOp::Max | RowOp::ArgMax | RowOp::Min | RowOp::ArgMin => match (dtype, high) {
            (DType::U8, true) => "255u".into(),
            (DType::U16, true) => "65535u".into(),
            (DType::U32, true) => "0xffffffffu".into(),
            (DType::I8, true) => "127".into(),
            (DType::I8, false) => "-128".into(),
            (DType::I16, true) => "32767".into(),
            (DType::I16, false) => "-32768".into(),
            (DType::I32, true) => "0x7fffffff".into(),
            (DType::I32, false) => "-2147483647 - 1".into(),
            (DType::U64, true) => "vec2<u32>(0xffffffffu, 0xffffffffu)".into(),
            (DType::I64, true) => "vec2<u32>(0xffffffffu, 0x7fffffffu)".into(),
            (DType::I64, false) => "vec2<u32>(0u, 0x80000000u)".into(),
            (_, high) if rep == Rep::F32 => if high { "t_inf()" } else { "-t_inf()" }.into(),
            _ => number(0),
        },
        _ => number(0),
    })
}

/// The shader.
pub fn shader(kernel: &RowKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let (outer, inner) = (usize::from(kernel.outer), usize::from(kernel.inner));
    let rank = outer + inner;
    let slots = Slots::new(own_scalars(kernel.op), [&kernel.before, &kernel.after])?;
    let slots_at = word_count(kernel);
    let rows_at = slots_at + slots.words();
    let param_words = rows_at + 3;
    let value = kernel.before.dtype().ok_or_else(|| Error::op("row", "an empty expression"))?;
    let stored = kernel.after.dtype().ok_or_else(|| Error::op("row", "an empty expression"))?;
    let rep = Rep::need(value)?;
    let inputs = inputs(kernel);
    let mut code = Code::new(inputs, 1, param_words);
    for (input, access) in code.inputs.iter_mut().enumerate() {
        let uses = kernel.operands.iter().filter(|o| o.input.map(usize::from) == Some(input));
        *access = shared(uses.map(|operand| (operand.dtype, false)), target.f16);
    }
    code.outputs[0] = single(stored, target.f16);
    let accumulator = if arg(kernel.op) { DType::U32 } else { value };
    let before = expr::function(&mut code, "before_value", &kernel.before, &kernel.operands, None, &slots, slots_at)?;
    let after =
        expr::function(&mut code, "after_value", &kernel.after, &kernel.operands, Some(accumulator), &slots, slots_at)?;
    let store = code.store(0, stored)?;

    let mut body = String::new();
    let operand_at = |o: usize| rank + o * (1 + rank);
    for o in 0..kernel.operands.len() {
        let _ = writeln!(body, "var<private> base{o}: u32;");
    }
    // The row's index along each outer axis, then each operand's base.
    body += "fn begin(row: u32) {\n";
    if outer > 0 {
        body += "    var rest = row;\n";
        for a in (1..outer).rev() {
            let size = param(a);
            let _ = write!(body, "    let i{a} = rest % {size};\n    rest = rest / {size};\n");
        }
        body += "    let i0 = rest;\n";
    }
    let indices: Vec<String> = (0..outer).map(|a| format!("i{a}")).collect();
    for o in 0..kernel.operands.len() {
        let _ = writeln!(body, "    base{o} = {};", address(operand_at(o), &indices));
    }
    body += "}\n";
    // The same along the inner axes.
    let mut decode = String::new();
    if inner > 0 {
        decode += "    var left = j;\n";
        for a in (1..inner).rev() {
            let size = param(outer + a);
            let _ = write!(decode, "    let j{a} = left % {size};\n    left = left / {size};\n");
        }
        decode += "    let j0 = left;\n";
    }
    let mut call = |function: &expr::Function, accumulators: &[&str]| -> Result<String> {
        let mut loads = Vec::new();
        for &(o, position) in &function.arguments {
            let operand = &kernel.operands[usize::from(o)];
            let at = operand_at(usize::from(o)) + 1 + outer;
            let mut place = format!("base{o}");
            for a in 0..inner {
                let _ = write!(place, " + j{a} * {}", param(at + a));
            }
            loads.push(match operand.input.filter(|_| !position) {
                None => place,
                Some(input) => format!("{}({place})", code.load(input, operand.dtype)?),
            });
        }
        loads.extend(accumulators.iter().take(usize::from(function.accumulators)).map(ToString::to_string));
        Ok(format!("{}({})", function.name, loads.join(", ")))
    };
    let ty = rep.wgsl();
    let _ = write!(body, "fn before(j: u32) -> {ty} {{\n{decode}    return {};\n}}\n", call(&before, &[])?);
    let place = if norm(kernel.op) { format!("r * {} + j", param(rows_at + 1)) } else { "r".to_string() };
    let place = format!("{} + {place}", param(rows_at + 2));
    let _ = write!(
        body,
        "fn finish(r: u32, j: u32, acc: {}) {{\n{decode}    {store}({place}, {});\n}}\n",
        Rep::need(accumulator)?.wgsl(),
        call(&after, &["acc"])?
    );
    let combined = match kernel.op {
        RowOp::Prod => expr::binary(BinaryOp::Mul, "a", "b", rep),
        RowOp::Max => expr::binary(BinaryOp::Maximum, "a", "b", rep),
        RowOp::Min => expr::binary(BinaryOp::Minimum, "a", "b", rep),
        _ => expr::binary(BinaryOp::Add, "a", "b", rep),
    };
    let _ = write!(
        body,
        "fn combine(a: {ty}, b: {ty}) -> {ty} {{\n    return {};\n}}\nfn identity() -> {ty} {{\n    return {};\n}}\n",
        expr::wrap(combined, value),
        identity(kernel.op, value)?
    );
    if arg(kernel.op) {
        let op = if kernel.op == RowOp::ArgMax { CompareOp::Gt } else { CompareOp::Lt };
        let mut wins = expr::condition(op, "a", "b", rep);
        if rep == Rep::F32 {
            wins = format!("(t_is_nan(a) && !t_is_nan(b)) || (!t_is_nan(b) && {wins})");
        }
        let _ = write!(body, "fn wins(a: {ty}, b: {ty}) -> bool {{\n    return {wins};\n}}\n");
    }

    let serial = implementation == SERIAL;
    let group = group_size(implementation);
    let step = if serial { 1 } else { group };
    let mut defines = Defines::default();
    defines
        .set("T", ty)
        .set("WG", group)
        .set("STEP", step)
        .set("RUN", step * 64)
        .set("ROWS", param(rows_at))
        .set("LENGTH", param(rows_at + 1))
        .set("EPS", format!("bitcast<f32>({})", param(slots_at)))
        .set("KEEP", kept(kernel.op, implementation))
        .flag("NORM_ANY", norm(kernel.op))
        .flag("SERIAL", serial)
        .flag("ARG", arg(kernel.op))
        .flag("NORM", kernel.op == RowOp::Softmax)
        .flag("REDUCE", kernel.op.reduces() && !arg(kernel.op))
        .flag("MEAN", kernel.op == RowOp::Mean)
        .flag("RMS", kernel.op == RowOp::RmsNorm)
        .flag("LAYER", kernel.op == RowOp::LayerNorm)
        .flag("SOFTMAX", kernel.op == RowOp::Softmax);
    let template = if implementation == COLUMNS { "row_columns.wgsl" } else { "row.wgsl" };
    code.body = body + &expand(template, &defines)?;
    Ok(Shader {
        label: format!("{:?} {implementation}", kernel.op).to_lowercase(),
        source: code.finish(target, false),
        entries: smallvec!["main"],
        inputs,
        outputs: 1,
        scratch: false,
        fault: false,
        param_words,
    })
}
