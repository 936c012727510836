//! Elements by index. Uniform block: the step's 12 words, the number of output elements, and last the step's number for
//! the fault word.

use super::{
    Shader, Target,
    axes::{Three, hole, id_function, operand, take},
    code::{Code, Rep, fill_words, param, per_word},
    preprocess::{Defines, expand},
    spread,
};
use smallvec::{SmallVec, smallvec};
use tallow_graph::{DType, Result, kernel::PickKernel};

const WORDS: usize = 12;

/// Whether the dtypes can be picked.
pub fn supported(kernel: &PickKernel) -> bool {
    Rep::of(kernel.dtype).is_some() && kernel.ids.is_int() && Rep::of(kernel.ids).is_some()
}

/// The unsigned dtype of the same width: elements are moved as bits.
fn carrier(dtype: DType) -> DType {
    match (per_word(dtype), Rep::of(dtype)) {
        (4, _) => DType::U8,
        (2, _) => DType::U16,
        (_, Some(Rep::I64 | Rep::U64)) => DType::U64,
        _ => DType::U32,
    }
}

/// The uniform block.
pub fn params(_: &PickKernel, words: &[i64], out: &mut Vec<u32>) -> Result<()> {
    let words = take("pick", words, WORDS)?;
    fill_words("pick", words, out)?;
    let three = Three::checked(words, "pick")?;
    // The step's number comes from the host.
    out.extend([three.count() as u32, 0]);
    Ok(())
}

/// The grid.
pub fn grids(kernel: &PickKernel, words: &[i64], target: &Target) -> SmallVec<[[u32; 3]; 2]> {
    let count = Three::of(words).unwrap_or_default().count();
    smallvec![spread(count.div_ceil(per_word(kernel.dtype).into()).div_ceil(64), target)]
}

/// The shader.
pub fn shader(kernel: &PickKernel, target: &Target) -> Result<Shader> {
    let param_words = WORDS + 2;
    let mut code = Code::new(2, 1, param_words);
    code.fault = true;
    id_function(&mut code, 1, kernel.ids)?;
    let dtype = carrier(kernel.dtype);
    let per = per_word(dtype);
    let mut defines = Defines::default();
    hole(&mut defines, kernel.ids);
    operand(&mut defines, "SOURCE", 4);
    operand(&mut defines, "IDS", 8);
    defines
        .set("N", param(1))
        .set("INNER", param(2))
        .set("ROWS", param(3))
        .set("COUNT", param(WORDS))
        .set("STEP", param(WORDS + 1))
        .set("PER", per)
        .flag("SINGLE", per == 1)
        .set("T", Rep::need(dtype)?.wgsl())
        .set("LOAD", code.load(0, dtype)?);
    if per == 1 {
        defines.set("STORE", code.store(0, dtype)?);
    }
    code.body = expand("pick.wgsl", &defines)?;
    Ok(Shader {
        label: format!("pick {} {}", kernel.dtype, kernel.ids),
        source: code.finish(target, false),
        entries: smallvec!["main"],
        inputs: 2,
        outputs: 1,
        scratch: false,
        fault: true,
        param_words,
    })
}
