//! What the kernels of three axes [outer, along, inner] share: their sizes, their operands' addresses, ids, and how a
//! running value is combined.

use super::{
    code::{Code, Rep, param},
    expr,
    preprocess::Defines,
};
use tallow_graph::{BinaryOp, DType, Error, Result};

/// Sizes of [outer, along, inner].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Three {
    pub outer: u64,
    pub n: u64,
    pub inner: u64,
}

impl Three {
    /// From the first three words; `None` where a size is negative or missing.
    pub fn of(words: &[i64]) -> Option<Self> {
        let [outer, n, inner, ..] = *words else { return None };
        let size = |v: i64| u64::try_from(v).ok();
        Some(Self { outer: size(outer)?, n: size(n)?, inner: size(inner)? })
    }

    /// Rows along the middle axis.
    pub fn rows(self) -> u64 {
        self.outer.saturating_mul(self.inner)
    }

    /// Elements.
    pub fn count(self) -> u64 {
        self.rows().saturating_mul(self.n)
    }

    /// The same, or an error where a shader's u32 cannot number the elements.
    pub fn checked(words: &[i64], kernel: &'static str) -> Result<Self> {
        Self::of(words)
            .filter(|three| three.count() < 0xffff_fff0 && three.n < 1 << 31)
            .ok_or_else(|| Error::op(kernel, "2^32 elements, or 2^31 along the axis, or more: split the tensor"))
    }
}

/// The words that a kernel needs, or an error.
pub fn take<'a>(kernel: &'static str, words: &'a [i64], count: usize) -> Result<&'a [i64]> {
    words.get(..count).ok_or_else(|| Error::op(kernel, "the step brings too few words"))
}

/// Defines NAME, NAME_O, NAME_N and NAME_J: offset and strides of an operand, which stand in the uniform block from word
/// `at` on.
pub fn operand(defines: &mut Defines, name: &str, at: usize) {
    defines
        .set(name, param(at))
        .set(&format!("{name}_O"), param(at + 1))
        .set(&format!("{name}_N"), param(at + 2))
        .set(&format!("{name}_J"), param(at + 3));
}

/// The id at an address as an expression: the word to check, and another that is 0 if it fits 32 bits. A negative 32-bit
/// id is a large u32, so it is past the last row.
pub fn id(code: &mut Code, input: u8, dtype: DType, at: &str) -> Result<String> {
    let load = code.load(input, dtype)?;
    Ok(match Rep::need(dtype)? {
        Rep::U64 | Rep::I64 => format!("{load}({at})"),
        Rep::I32 => format!("vec2<u32>(bitcast<u32>({load}({at})), 0u)"),
        _ => format!("vec2<u32>({load}({at}), 0u)"),
    })
}

/// Defines HOLE, the id of a dtype that names nothing (`DType::is_hole`), as [`id`] gives it.
pub fn hole(defines: &mut Defines, dtype: DType) {
    let largest = dtype.int_range().map_or(0, |(_, high)| high as u64);
    defines.set("HOLE", format!("vec2<u32>({}u, {}u)", largest as u32, largest >> 32));
}

/// The function `id_of(at)` over ids of an input.
pub fn id_function(code: &mut Code, input: u8, dtype: DType) -> Result<()> {
    let value = id(code, input, dtype, "at")?;
    code.function("id_of", || format!("fn id_of(at: u32) -> vec2<u32> {{\n    return {value};\n}}\n"));
    Ok(())
}

/// The function `combine(a, b)` of an operation; without one, b.
pub fn combine(code: &mut Code, op: Option<BinaryOp>, rep: Rep) {
    let value = op.map_or_else(|| "b".to_string(), |op| expr::binary(op, "a", "b", rep));
    let ty = rep.wgsl();
    code.function("combine", || format!("fn combine(a: {ty}, b: {ty}) -> {ty} {{\n    return {value};\n}}\n"));
}

/// Whether scatter, sort and scan take the dtype: 32 or 64 bits.
pub fn wide(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

/// Words of an element.
pub fn words_of(dtype: DType) -> u64 {
    if matches!(dtype, DType::I64 | DType::U64) { 2 } else { 1 }
}
