//! Running results along an axis. Uniform block: the step's 7 words, the number of rows, and blocks of a row.
//!
//! Implementations: a workgroup a row; an invocation a row; blocks of a row in three launches (few long rows).

use super::{
    Shader, Target,
    axes::{Three, combine, operand, take, wide, words_of},
    code::{Code, Rep, fill_words, param},
    preprocess::{Defines, expand},
    row, spread,
};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{
    BinaryOp, Implementation, Result,
    kernel::{RowOp, ScanKernel, ScanOp},
};

const GROUP: u32 = 0;
const SERIAL: u32 = 1;
const BLOCKS: u32 = 2;

const WORDS: usize = 7;
/// Elements of a block.
const BLOCK: u64 = 2048;

fn blocks(three: Three) -> u64 {
    three.n.div_ceil(BLOCK).max(1)
}

/// The ways to run it.
pub fn implementations(kernel: &ScanKernel, words: &[i64], target: &Target) -> SmallVec<[Implementation; 2]> {
    if !wide(kernel.dtype) {
        return SmallVec::new();
    }
    let three = Three::of(words).unwrap_or_default();
    let (rows, n, count) = (three.rows() as f32, three.n as f32, blocks(three) as f32);
    // An imagined GPU keeps 65,536 invocations busy; neighbours that lie apart in memory take four times as long.
    let waves = |invocations: f32| (invocations / 65_536.0).max(1.0);
    let apart = |yes: bool| if yes { 4.0 } else { 1.0 };
    let block = 8.0 * 0.02 * apart(three.inner > 1) + 0.8;
    let (serial, group, three_launches) = if target.software {
        // Past a million elements an invocation meets llvmpipe's limit of turns.
        let serial = rows * n * 2e-3 + if three.n > 1 << 20 { 1e9 } else { 0.0 };
        let meet = rows * count * 100.0 + if three.n > 1 << 22 { 1e9 } else { 0.0 };
        (serial, rows * n * 4e-3 + meet, rows * n * 8e-3 + rows * count * 200.0 + 150.0)
    } else {
        let wide = waves(rows * count * 256.0) * 2.0 * block;
        (
            waves(rows) * n * 0.02 * apart(three.inner == 1),
            waves(rows * 256.0) * count * block,
            10.0 + wide + (count / 256.0).ceil() * waves(rows * 256.0),
        )
    };
    let scratch = three.rows().saturating_mul(blocks(three)).saturating_mul(4 * words_of(kernel.dtype)).max(16);
    let mut all = smallvec![Implementation { id: SERIAL, scratch: 0, cost: 1.0 + serial }];
    if target.max_workgroup_invocations >= 256 {
        all.push(Implementation { id: GROUP, scratch: 0, cost: 1.0 + group });
        all.push(Implementation { id: BLOCKS, scratch, cost: 1.0 + three_launches });
    }
    all
}

/// The uniform block.
pub fn params(_: &ScanKernel, words: &[i64], out: &mut Vec<u32>) -> Result<()> {
    let words = take("scan", words, WORDS)?;
    fill_words("scan", words, out)?;
    let three = Three::checked(words, "scan")?;
    out.extend([three.rows() as u32, blocks(three) as u32]);
    Ok(())
}

/// The grids.
pub fn grids(_: &ScanKernel, implementation: u32, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let three = Three::of(words).unwrap_or_default();
    let rows = if three.n == 0 { 0 } else { three.rows() };
    match implementation {
        SERIAL => smallvec![spread(rows.div_ceil(64), target)],
        BLOCKS => {
            let all = spread(rows.saturating_mul(blocks(three)), target);
            smallvec![all, spread(rows, target), all]
        }
        _ => smallvec![spread(rows, target)],
    }
}

/// The shader.
pub fn shader(kernel: &ScanKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let param_words = WORDS + 2;
    let mut code = Code::new(1, 1, param_words);
    code.scratch = implementation == BLOCKS;
    let rep = Rep::need(kernel.dtype)?;
    let (op, like) = match kernel.op {
        ScanOp::Sum => (BinaryOp::Add, RowOp::Sum),
        ScanOp::Prod => (BinaryOp::Mul, RowOp::Prod),
        ScanOp::Max => (BinaryOp::Maximum, RowOp::Max),
        ScanOp::Min => (BinaryOp::Minimum, RowOp::Min),
    };
    combine(&mut code, Some(op), rep);
    let (ty, start) = (rep.wgsl(), row::identity(like, kernel.dtype)?);
    code.function("identity", || format!("fn identity() -> {ty} {{\n    return {start};\n}}\n"));
    if code.scratch {
        let (put, get) = if rep.is_64() {
            (
                "scratch[2u * i] = v.x;\n    scratch[2u * i + 1u] = v.y;".into(),
                "vec2<u32>(scratch[2u * i], scratch[2u * i + 1u])".into(),
            )
        } else {
            ("scratch[i] = bitcast<u32>(v);".to_string(), format!("bitcast<{ty}>(scratch[i])"))
        };
        code.function("keep", || format!("fn keep(i: u32, v: {ty}) {{\n    {put}\n}}\n"));
        code.function("kept", || format!("fn kept(i: u32) -> {ty} {{\n    return {get};\n}}\n"));
    }
    let mut defines = Defines::default();
    operand(&mut defines, "SOURCE", 3);
    defines
        .set("T", ty)
        .set("N", param(1))
        .set("INNER", param(2))
        .set("ROWS", param(WORDS))
        .set("COUNT", param(WORDS + 1))
        .set("LOAD", code.load(0, kernel.dtype)?)
        .set("STORE", code.store(0, kernel.dtype)?)
        .flag("SERIAL", implementation == SERIAL)
        .flag("BLOCKS", implementation == BLOCKS);
    code.body = expand("scan.wgsl", &defines)?;
    Ok(Shader {
        label: format!("scan {:?} {} {implementation}", kernel.op, kernel.dtype).to_lowercase(),
        source: code.finish(target, false),
        entries: if implementation == BLOCKS { smallvec!["totals", "carries", "main"] } else { smallvec!["main"] },
        inputs: 1,
        outputs: 1,
        scratch: implementation == BLOCKS,
        fault: false,
        param_words,
    })
}
