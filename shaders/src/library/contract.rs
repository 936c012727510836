//! Products: a left operand with one or several right operands, dense or quantized, each with its epilogue.
//!
//! Uniform block: the step's words, its scalars, the number of batches, then for each part where its output begins, the
//! strides of the output's batches and rows, and how far apart the columns of a pair lie; then the number of splits of k,
//! and where each part's partial sums begin in scratch memory.
//! Implementations: through workgroup memory (reduced matrix-vector products for one row or few, register tiles for
//! many: see tiles.rs); one invocation a result, without barriers; reduced by subgroup; by cooperative matrices (coop.rs). All
//! share the loaders of loaders.rs.

use super::{
    Shader, Target, address,
    code::{Code, Rep, Slots, fill_words, inputs_of, param, single},
    coop, entry, expr,
    loaders::{STRUCTS, access, batch_indices, left_code, right_code, round_code},
    preprocess::{Defines, expand},
    spread,
    start::{favour, start},
    tiles::{self, Tile},
};
use smallvec::{SmallVec, smallvec};
use std::fmt::Write as _;
use tallow_graph::{
    DType, Error, Implementation, Result, Scalar,
    kernel::{Activations, ContractKernel, ContractPart, RightUnit, RowClass, RowOp},
};

/// Implementation numbers.
pub(super) const SHARED: u32 = 0;
pub(super) const SERIAL: u32 = 1;
pub(super) const SUBGROUP: u32 = 2;
/// Tiles of 64 x 64 with split-K, which needs scratch memory; and of 128 x 64.
pub(super) const SPLIT: u32 = 3;
pub(super) const TALL: u32 = 4;
/// The same two tiles, both with split-K, multiplied by cooperative matrices.
pub(super) const COOP: u32 = 5;
pub(super) const COOP_TALL: u32 = 6;

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

/// The tile of an implementation for many rows.
const fn tile(implementation: u32) -> Tile {
    if matches!(implementation, TALL | COOP_TALL) { Tile::TALL } else { Tile::SQUARE }
}

/// Whether k may be split.
const fn splits(implementation: u32) -> bool {
    matches!(implementation, SPLIT | TALL | COOP | COOP_TALL)
}

/// The cooperative matrices of an implementation, if it is one of those.
fn coop_plan(kernel: &ContractKernel, implementation: u32, target: &Target) -> Option<coop::Plan> {
    matches!(implementation, COOP | COOP_TALL).then(|| coop::Plan::of(kernel, target)).flatten()
}

pub(super) fn quantized(part: &ContractPart) -> bool {
    part.right.1.is_quantized()
}

pub(super) fn q8(kernel: &ContractKernel, part: &ContractPart) -> bool {
    quantized(part) && kernel.activations == Activations::Q8
}

/// Whether four neighbouring columns are read as one vector.
pub(super) fn n_vector(kernel: &ContractKernel, part: &ContractPart) -> bool {
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

/// Units that an invocation of a matrix-vector product loads at once: a core must have some 5 KB under way to keep memory
/// busy. A unit of quantized weights is 16 bytes or more, and registers bound it where there are several rows.
fn unroll(kernel: &ContractKernel, part: &ContractPart, implementation: u32) -> u32 {
    match (kernel.rows, implementation) {
        (RowClass::Many, _) | (_, SERIAL) => 1,
        _ if quantized(part) || kernel.rows == RowClass::Few => 1,
        _ => 2,
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
    // Of costs that are equal, the first is taken: split-K costs nothing where k is not split.
    // The tiles' workgroup memory holds one kind of operand at a time.
    let mixed = kernel.parts.iter().any(|p| q8(kernel, p)) && kernel.parts.iter().any(|p| !q8(kernel, p));
    let tiles = target.max_workgroup_invocations >= 256 && target.max_workgroup_storage >= 16_384 && !mixed;
    if many && tiles {
        let bytes = tiles::scratch(kernel, words).1.saturating_mul(4).max(16);
        for (id, split) in [(SHARED, false), (SPLIT, true), (TALL, true)] {
            let (scratch, slower) = if split { (bytes, 110.0) } else { (0, 100.0) };
            let gpu = tiles::cost(kernel, words, target, tile(id), split);
            all.push(Implementation { id, scratch, cost: if target.software { cost(0.0, slower) } else { gpu } });
        }
    } else if !many {
        all.push(Implementation { id: SHARED, scratch: 0, cost: cost(1.5, 100.0) });
    }
    if many && target.max_workgroup_invocations >= 256 {
        let scratch = tiles::scratch(kernel, words).1.saturating_mul(4).max(16);
        for id in [COOP, COOP_TALL] {
            let plan = coop_plan(kernel, id, target);
            if plan.is_some_and(|plan| plan.bytes(tile(id)) <= target.max_workgroup_storage) {
                // Two to four times as fast as registers where others measured; nothing on a CPU.
                let gpu = tiles::cost(kernel, words, target, tile(id), true) * 0.4;
                all.push(Implementation { id, scratch, cost: if target.software { cost(0.0, 120.0) } else { gpu } });
            }
        }
    }
    all.push(Implementation { id: SERIAL, scratch: 0, cost: cost(8.0, 10.0) });
    if !many && subgroup(target).is_some() && kernel.parts.iter().all(|p| p.right_unit == RightUnit::K) {
        let small = subgroup(target).is_some_and(|size| size < 16);
        all.push(Implementation { id: SUBGROUP, scratch: 0, cost: cost(if small { 2.0 } else { 1.0 }, 50.0) });
    }
    let start = start(target);
    if !many {
        favour(&mut all, start.matvec);
    } else if tiles::fill(kernel, words, target, tile(start.gemm)) {
        // Cooperative matrices of the same tile, if there are any.
        let coop = if tile(start.gemm) == Tile::TALL { COOP_TALL } else { COOP };
        let there = all.iter().any(|way| way.id == coop) && !target.software;
        favour(&mut all, if there { coop } else { start.gemm });
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
    out.push(tiles::splits(kernel, words) as u32);
    // Where splits are worth it, results are few.
    out.extend(tiles::scratch(kernel, words).0.iter().map(|&offset| offset as u32));
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
            (RowClass::Many, _) => tiles * m.div_ceil(u64::from(tile(implementation).rows())),
            _ if m == 0 => 0,
            _ => tiles,
        }
    });
    let groups: u64 = groups.sum();
    if !splits(implementation) {
        return smallvec![spread(groups, target)];
    }
    let splits = tiles::splits(kernel, words);
    let results = kernel.parts.iter().zip(&at.parts).map(|(_, (n, ..))| batches * m * size(*n)).sum::<u64>();
    let combine = if splits > 1 { results.div_ceil(64) } else { 0 };
    smallvec![spread(groups * splits, target), spread(combine, target)]
}

/// The shader.
pub fn shader(kernel: &ContractKernel, implementation: u32, target: &Target) -> Result<Shader> {
    let at = Words::of(kernel);
    let slots = slots(kernel)?;
    let slots_at = at.total;
    let batches_at = slots_at + slots.words();
    let place = place(kernel)?;
    let splits_at = place + PLACE * kernel.parts.len();
    let param_words = splits_at + 1 + kernel.parts.len();
    let inputs = inputs(kernel);
    let mut code = Code::new(inputs, kernel.parts.len(), param_words);
    code.scratch = splits(implementation);
    let plan = coop_plan(kernel, implementation, target);
    if let Some(plan) = plan {
        code.enables.extend_from_slice(plan.enables());
    }
    let tile = tile(implementation);
    let (swizzle_shift, swizzle_mask) = tile.swizzle();
    for input in 0..inputs {
        code.inputs[input] = access(kernel, input, target.f16);
    }
    let many = kernel.rows == RowClass::Many;
    let rows = if kernel.rows == RowClass::One { 1 } else { 8 };
    let mut body = STRUCTS.to_string();
    left_code(&mut code, &mut body, kernel, &at)?;
    if plan.is_none() && kernel.parts.iter().any(|part| q8(kernel, part)) {
        body += &round_code(target);
    }
    let group = kernel.parts.first().map_or(64, |part| cut(kernel, part, implementation, target).group);
    memory(&mut body, kernel, implementation, target, rows, group);

    let mut dispatch = String::new();
    let mut combine = String::new();
    for (p, part) in kernel.parts.iter().enumerate() {
        let (n, right, epilogue) = &at.parts[p];
        right_code(&mut code, &mut body, kernel, &at, p, *right)?;
        epilogue_code(&mut code, &mut body, part, p, &at, place + PLACE * p, epilogue, &slots, slots_at, target.f16)?;
        let cut = cut(kernel, part, implementation, target);
        let by_k = part.right_unit == RightUnit::K;
        let q8 = q8(kernel, part) && plan.is_none();
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
            // Unused words of the block make no difference: the functions that read them are not there.
            let keep = if splits(implementation) { "keep" } else { "store" };
            defines
                .set("RM", tile.each)
                .set("ROWS", tile.rows())
                .set("BLOCKS", tile.blocks)
                .set("ROUNDERS", tile.rows() * tile.blocks)
                .set("BK", if q8 { 32 * tile.blocks } else { tile.k })
                .set("UNITS", tile.k / 8)
                .set("U", tile.k / 4)
                .set("SHIFT", swizzle_shift)
                .set("MASK", swizzle_mask)
                .set("SPLITS", param(splits_at))
                .set("OFFSET", param(splits_at + 1 + p))
                .set("SUMS", if part.paired { 2 } else { 1 })
                .set("KEEP", format!("{keep}_part{p}"))
                .set("SPLIT_ARGS", if splits(implementation) { "split, " } else { "" })
                .flag("SPLIT", splits(implementation));
            if let Some(plan) = plan {
                plan.define(tile, &mut defines);
            }
            if splits(implementation) {
                body += &expand("matmul_combine.wgsl", &defines)?;
                let results = format!("{} * {} * {}", param(batches_at), param(at.m), param(*n));
                let _ = write!(
                    combine,
                    "    let results{p} = {results};\n    if (i < results{p}) {{\n        combine_part{p}(i);\n        return;\n    }}\n    \
                     i -= results{p};\n"
                );
            }
        } else {
            let unit = if quantized(part) { 32 } else { 8 };
            let unroll = unroll(kernel, part, implementation);
            defines
                .flag("RAW", quantized(part))
                .set("UNIT", unit)
                .set("UNITS", unit / 8)
                .set("UNROLL", if unroll > 1 { unroll } else { 0 })
                .set("STEP", cut.slices * unit)
                .set("TURN", cut.slices * unit * unroll)
                .set("LAST", cut.slices * unit * (unroll - 1));
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
            (true, _) => {
                let rows = tile.rows();
                let times = if splits(implementation) { format!(" * {}", param(splits_at)) } else { String::new() };
                format!("{} * {tiles} * (({} + {}u) / {rows}u){times}", param(batches_at), param(at.m), rows - 1)
            }
            _ => format!("{} * {tiles}", param(batches_at)),
        };
        let _ = write!(
            dispatch,
            "    let groups{p} = {all};\n    if (g < groups{p}) {{\n        part{p}(g, lid);\n        return;\n    }}\n    g -= \
             groups{p};\n"
        );
    }
    let (more, first) = if plan.is_some() { (coop::BUILTINS, coop::REMEMBER) } else { ("", "") };
    body += &entry("main", group, more, &format!("{first}    var g = group;\n{dispatch}"));
    let mut entries: SmallVec<[&'static str; 2]> = smallvec!["main"];
    if splits(implementation) {
        body += &entry("combine", 64, "", &format!("    var i = group * 64u + lid;\n{combine}"));
        entries.push("combine");
    }
    code.body = body;
    let kinds: Vec<&str> = kernel.parts.iter().map(|part| part.right.1.name()).collect();
    Ok(Shader {
        label: format!("matmul {:?} {} {implementation}", kernel.rows, kinds.join(",")),
        source: code.finish(target, implementation == SUBGROUP),
        entries,
        inputs,
        outputs: kernel.parts.len(),
        scratch: splits(implementation),
        fault: false,
        param_words,
    })
}

/// Workgroup memory, and the norm's meeting function.
fn memory(body: &mut String, kernel: &ContractKernel, implementation: u32, target: &Target, rows: u32, group: u32) {
    let many = kernel.rows == RowClass::Many;
    if let Some(plan) = coop_plan(kernel, implementation, target) {
        plan.memory(tile(implementation), coop::any_quantized(kernel), body);
        return;
    }
    if many && implementation != SERIAL {
        let tile = tile(implementation);
        let (a, b) = if kernel.parts.iter().any(|part| q8(kernel, part)) {
            let (rows, columns) = (tile.rows() * tile.blocks, 64 * tile.blocks);
            let _ = write!(
                body,
                "var<workgroup> scale_a: array<vec2<f32>, {rows}>;\nvar<workgroup> scale_b: array<vec4<f32>, {columns}>;\n"
            );
            (format!("array<u32, {}>", 8 * rows), format!("array<u32, {}>", 8 * columns))
        } else {
            let quads = |rows: u32| format!("array<vec4<f32>, {}>", rows * tile.k / 4);
            (quads(tile.rows()), quads(64))
        };
        let _ = write!(body, "var<workgroup> tile_a: {a};\nvar<workgroup> tile_b: {b};\n");
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
