//! Rows by index, from plain and quantized sources.
//!
//! Uniform block: the step's 9 words, the number of output elements, the rows of the source that are bound (first, count),
//! where the output begins, and last the step's number for the fault word.

use super::{
    Shader, Target, axes,
    code::{Code, Rep, fill_words, param, per_word, shared, wide},
    expr,
    loaders::{STRUCTS, quant_template},
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{DType, Error, Result, kernel::GatherKernel};

/// Words of a step.
pub const WORDS: usize = 9;
/// Where the bound rows and the output's place stand in the uniform block.
pub const PLACE: usize = WORDS + 1;

/// Whether the dtypes can be gathered.
pub fn supported(kernel: &GatherKernel) -> bool {
    let source =
        if kernel.source.is_quantized() { kernel.output == DType::F32 } else { Rep::of(kernel.source).is_some() };
    source && Rep::of(kernel.output).is_some() && kernel.ids.is_int() && Rep::of(kernel.ids).is_some()
}

/// Output elements that an invocation writes.
pub fn unit(kernel: &GatherKernel) -> u64 {
    if kernel.source.is_quantized() {
        8
    } else if per_word(kernel.output) > 1 {
        4
    } else {
        1
    }
}

fn count(words: &[i64]) -> Option<u64> {
    let [outer, ids, _, inner, ..] = *words else { return None };
    [outer, ids, inner].iter().try_fold(1u64, |n, &size| n.checked_mul(u64::try_from(size).ok()?))
}

/// The uniform block.
pub fn params(kernel: &GatherKernel, words: &[i64], out: &mut Vec<u32>) -> Result<()> {
    let words = words.get(..WORDS).ok_or_else(|| Error::op("gather", "the step brings too few words"))?;
    fill_words("gather", words, out)?;
    let n = count(words).filter(|&n| n < 0xffff_fff0);
    out.push(n.ok_or_else(|| Error::op("gather", "2^32 elements or more: gather fewer rows at once"))? as u32);
    if kernel.source.is_quantized() && !(words[3] as u64).is_multiple_of(kernel.source.block_elements() as u64) {
        return Err(Error::op(
            "gather",
            format!("rows of {} elements are not whole blocks of {}", words[3], kernel.source),
        ));
    }
    // Last the step's number, which the host knows.
    out.extend([0, words[2] as u32, 0, 0]);
    Ok(())
}

/// The grid.
pub fn grids(kernel: &GatherKernel, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    smallvec![spread(count(words).unwrap_or(0).div_ceil(unit(kernel)).div_ceil(64), target)]
}

/// The shader.
pub fn shader(kernel: &GatherKernel, target: &Target) -> Result<Shader> {
    let param_words = PLACE + 4;
    let mut code = Code::new(2, 1, param_words);
    code.fault = true;
    let quantized = kernel.source.is_quantized();
    if !quantized {
        code.inputs[0] = shared([(kernel.source, kernel.source.is_quantized())], target.f16);
    }
    if unit(kernel) == 4 && target.f16 && kernel.output == DType::F16 {
        code.outputs[0] = wide(DType::F16, true);
    }
    let id = axes::id(&mut code, 1, kernel.ids, &format!("{} + i * {}", param(7), param(8)))?;
    code.body = format!("fn id_of(i: u32) -> vec2<u32> {{\n    return {id};\n}}\n");
    let mut defines = Defines::default();
    axes::hole(&mut defines, kernel.ids);
    defines
        .set("IDS", param(1))
        .set("ROWS", param(2))
        .set("INNER", param(3))
        .set("OFFSET", param(4))
        .set("OUTER_STRIDE", param(5))
        .set("ROW_STRIDE", param(6))
        .set("COUNT", param(WORDS))
        .set("FIRST", param(PLACE))
        .set("BOUND", param(PLACE + 1))
        .set("OUT", param(PLACE + 2))
        .set("STEP", param(PLACE + 3))
        .set("UNIT", unit(kernel))
        .set("T", Rep::need(kernel.output)?.wgsl())
        .flag("QUANTIZED", quantized)
        .flag("SINGLE", unit(kernel) == 1)
        .set("STORE4", code.store4(0, kernel.output)?);
    if quantized {
        defines.set("P", "q").set("W", code.word(0)?).set("V", code.quad(0)?).flag("Q8", false);
        code.body += STRUCTS;
        code.body += &expand(quant_template(kernel.source)?, &defines)?;
    } else {
        defines.set("LOAD", code.load(0, kernel.source)?);
        defines.set("CAST", expr::cast("from_", kernel.source, kernel.output)?);
        if unit(kernel) == 1 {
            defines.set("STORE", code.store(0, kernel.output)?);
        } else {
            defines.set("KEPT", code.reload(0, kernel.output)?);
        }
    }
    code.body += &expand("gather.wgsl", &defines)?;
    Ok(Shader {
        label: format!("gather {} {}", kernel.source, kernel.ids),
        source: code.finish(target, false),
        entries: smallvec!["main"],
        inputs: 2,
        outputs: 1,
        scratch: false,
        fault: true,
        param_words,
    })
}
