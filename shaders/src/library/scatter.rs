//! Elements written by index. Uniform block: the step's 12 words, the four of [`Sizes::words`], the half of the scratch
//! buffer in which the sorted ids are, and last the step's number for the fault word.
//!
//! Implementations: an invocation walks a column, in n steps, which suits many columns; or the ids of each column are
//! sorted, n log n in all and in parallel, and an invocation folds all elements of one id.

use super::{
    Shader, Target,
    axes::{Three, combine, hole, id_function, operand, take, wide},
    code::{Code, Rep, fill_words, param},
    preprocess::{Defines, expand},
    sort::{self, Sizes},
    spread,
};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{
    BinaryOp, Error, Implementation, Result,
    kernel::{ScatterKernel, ScatterOp},
};

const COLUMNS: u32 = 0;
const SORTED: u32 = 1;

const WORDS: usize = 12;

/// The ways to run it.
pub fn implementations(kernel: &ScatterKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    if !wide(kernel.dtype) || !kernel.ids.is_int() || Rep::of(kernel.ids).is_none() {
        return SmallVec::new();
    }
    let three = Three::of(words).unwrap_or_default();
    let sizes = Sizes::of(three);
    // A step of a column waits for the memory that it reads and writes.
    let columns = if target.software {
        // Past a million elements an invocation meets llvmpipe's limit of turns.
        three.count() as f32 * 5e-3 + if three.n > 1 << 20 { 1e9 } else { 0.0 }
    } else {
        three.n as f32 * 0.3 * (three.rows() as f32 / 65_536.0).max(1.0)
    };
    let mut all = smallvec![Implementation { id: COLUMNS, scratch: 0, cost: 1.0 + columns }];
    if target.max_workgroup_invocations >= 256 {
        let cost = sizes.cost(target) + 5.0 + three.count() as f32 * 5e-4;
        all.push(Implementation { id: SORTED, scratch: sizes.scratch(1, false), cost });
    }
    all
}

/// The uniform block.
pub fn params(_: &ScatterKernel, words: &[i64], out: &mut Vec<u32>) -> Result<()> {
    let words = take("scatter", words, WORDS)?;
    fill_words("scatter", words, out)?;
    let three = Three::checked(words, "scatter")?;
    let fits = u64::try_from(words[3]).is_ok_and(|rows| three.rows().saturating_mul(rows) < 1 << 32);
    if !fits {
        return Err(Error::op("scatter", "2^32 elements or more: split the tensor"));
    }
    let sizes = Sizes::of(three);
    // A scratch buffer past what a u32 numbers, 16 GiB, is more than any device binds.
    out.extend(sizes.words());
    // The step's number comes from the host.
    out.extend([sizes.merges() % 2, 0]);
    Ok(())
}

/// The grids.
pub fn grids(_: &ScatterKernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let three = Three::of(words).unwrap_or_default();
    if implementation == COLUMNS {
        let columns = if three.n == 0 { 0 } else { three.rows() };
        return smallvec![spread(columns.div_ceil(64), target)];
    }
    let mut grids = Sizes::of(three).grids(target);
    grids.push(spread(three.count().div_ceil(64), target));
    grids
}

/// The shader.
pub fn shader(kernel: &ScatterKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let param_words = WORDS + 6;
    let sorted = implementation == SORTED;
    let mut code = Code::new(2, 1, param_words);
    code.fault = true;
    code.scratch = sorted;
    id_function(&mut code, 0, kernel.ids)?;
    let rep = Rep::need(kernel.dtype)?;
    let op = match kernel.op {
        ScatterOp::Set => None,
        ScatterOp::Add => Some(BinaryOp::Add),
        ScatterOp::Max => Some(BinaryOp::Maximum),
        ScatterOp::Min => Some(BinaryOp::Minimum),
    };
    combine(&mut code, op, rep);
    let ty = rep.wgsl();
    let old = if rep.is_64() {
        "vec2<u32>(out0[2u * i], out0[2u * i + 1u])".into()
    } else {
        format!("bitcast<{ty}>(out0[i])")
    };
    code.function("old", || format!("fn old(i: u32) -> {ty} {{\n    return {old};\n}}\n"));
    let mut defines = Defines::default();
    hole(&mut defines, kernel.ids);
    operand(&mut defines, "IDS", 4);
    operand(&mut defines, "SOURCE", 8);
    defines
        .set("T", ty)
        .set("N", param(1))
        .set("INNER", param(2))
        .set("HEIGHT", param(3))
        .set("ROWS", param(WORDS))
        .set("HALF", param(WORDS + 4))
        .set("STEP", param(WORDS + 5))
        .set("LOAD", code.load(1, kernel.dtype)?)
        .set("STORE", code.store(0, kernel.dtype)?)
        .flag("SORTED", sorted);
    code.body = expand("scatter.wgsl", &defines)?;
    let mut entries: SmallVec<[&'static str; 2]> = smallvec!["main"];
    if sorted {
        sort::less(&mut code, 1);
        code.body += &sort::body(1, WORDS, None)?;
        entries = sort::entries();
        entries.push("apply");
    }
    Ok(Shader {
        label: format!("scatter {:?} {} {implementation}", kernel.op, kernel.dtype).to_lowercase(),
        source: code.finish(target, false),
        entries,
        inputs: 2,
        outputs: 1,
        scratch: sorted,
        fault: true,
        param_words,
    })
}
