//! Random numbers. Uniform block: the step's five words, its two scalars, then the first block of four numbers.

use super::{
    Shader, Target,
    code::{Code, Slots, fill_words, param, per_word, wide},
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{
    DType, Error, Result, Scalar,
    kernel::{Distribution, RandomKernel},
};

/// Words of a step.
pub const WORDS: usize = 5;
/// Where the first block stands in the uniform block.
pub const PLACE: usize = WORDS + 2;

/// Whether the dtype can be drawn.
pub fn supported(kernel: &RandomKernel) -> bool {
    matches!(kernel.dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// The uniform block.
pub fn params(_: &RandomKernel, words: &[i64], scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
    let words = words.get(..WORDS).ok_or_else(|| Error::op("random", "the step brings too few words"))?;
    if words[0] >= 0xffff_fff0 {
        return Err(Error::op("random", "2^32 elements or more: draw fewer at once"));
    }
    fill_words("random", words, out)?;
    Slots::new(2, [])?.fill(scalars, out)?;
    out.push(0);
    Ok(())
}

/// The grid.
pub fn grids(_: &RandomKernel, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let n = words.first().map_or(0, |&n| n.max(0) as u64);
    smallvec![spread(n.div_ceil(4).div_ceil(64), target)]
}

/// The shader.
pub fn shader(kernel: &RandomKernel, target: &Target) -> Result<Shader> {
    let param_words = PLACE + 1;
    let mut code = Code::new(0, 1, param_words);
    let packed = per_word(kernel.dtype) > 1;
    if packed {
        code.outputs[0] = wide(kernel.dtype, target.f16);
    }
    let mut defines = Defines::default();
    defines
        .set("COUNT", param(0))
        .set("KEY_LOW", param(1))
        .set("KEY_HIGH", param(2))
        .set("COUNTER_LOW", param(3))
        .set("COUNTER_HIGH", param(4))
        .set("BLOCK", param(PLACE))
        .set("FIRST", format!("bitcast<f32>({})", param(5)))
        .set("SECOND", format!("bitcast<f32>({})", param(6)))
        .flag("NORMAL", kernel.distribution == Distribution::Normal)
        .flag("PACKED", packed)
        .set("STORE4", code.store4(0, kernel.dtype)?);
    if !packed {
        defines.set("STORE", code.store(0, kernel.dtype)?);
    }
    code.body = expand("random.wgsl", &defines)?;
    Ok(Shader {
        label: format!("random {:?} {}", kernel.distribution, kernel.dtype).to_lowercase(),
        source: code.finish(target, false),
        entries: smallvec!["main"],
        inputs: 0,
        outputs: 1,
        scratch: false,
        fault: false,
        param_words,
    })
}
