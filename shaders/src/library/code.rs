//! A shader under construction: bindings, parameters, and how elements of each dtype are read and written.
//!
//! A storage buffer is declared as words (u32, or a vec2 or vec4 of them): floats keep all their bits on the way, and one
//! buffer may be read as several types. Where the device has f16 (tier T1), a buffer of nothing but F16 is declared as
//! such, so that single elements are read and written by themselves; values are rounded to f16 on bits at every tier.
//! Each value of an expression is held in a [`Rep`].

use super::{Target, link};
use smallvec::SmallVec;
use std::{collections::BTreeMap, fmt::Write as _};
use tallow_graph::{DType, Error, Expr, Result, Scalar, kernel::Operand};

/// How a shader holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rep {
    /// All floats up to 32 bits.
    F32,
    /// Unsigned integers up to 32 bits.
    U32,
    /// Signed integers up to 32 bits.
    I32,
    /// Two words, low and high.
    U64,
    /// Two words, low and high.
    I64,
}

impl Rep {
    /// The form of a dtype; `None` for what WebGPU cannot compute (F64, quantized blocks).
    pub fn of(dtype: DType) -> Option<Self> {
        Some(match dtype {
            DType::F8E4M3 | DType::F8E5M2 | DType::BF16 | DType::F16 | DType::F32 => Rep::F32,
            DType::U8 | DType::U16 | DType::U32 => Rep::U32,
            DType::I8 | DType::I16 | DType::I32 => Rep::I32,
            DType::U64 => Rep::U64,
            DType::I64 => Rep::I64,
            _ => return None,
        })
    }

    /// The form, or an error that names the dtype.
    pub fn need(dtype: DType) -> Result<Self> {
        Self::of(dtype).ok_or_else(|| {
            Error::op(
                "wgsl",
                format!("{dtype} cannot be computed on WebGPU: use F32 or another dtype of at most 32 bits"),
            )
        })
    }

    /// The WGSL type.
    pub const fn wgsl(self) -> &'static str {
        match self {
            Rep::F32 => "f32",
            Rep::U32 => "u32",
            Rep::I32 => "i32",
            Rep::U64 | Rep::I64 => "vec2<u32>",
        }
    }

    /// Uniform words that a scalar of this form takes.
    pub const fn words(self) -> usize {
        if self.is_64() { 2 } else { 1 }
    }

    /// Whether this is a pair of words.
    pub const fn is_64(self) -> bool {
        matches!(self, Rep::U64 | Rep::I64)
    }
}

/// Elements of `dtype` in one word: 4, 2, or 1 (64-bit types too).
pub const fn per_word(dtype: DType) -> u32 {
    match dtype {
        DType::U8 | DType::I8 | DType::F8E4M3 | DType::F8E5M2 => 4,
        DType::U16 | DType::I16 | DType::BF16 | DType::F16 => 2,
        _ => 1,
    }
}

/// How a buffer is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `array<u32>`
    Words,
    /// `array<vec2<u32>>`
    Pairs,
    /// `array<vec4<u32>>`
    Quads,
    /// `array<atomic<u32>>`: several invocations write parts of one word.
    Atomic,
    /// `array<f16>`
    Half,
    /// `array<vec4<f16>>`
    HalfQuads,
}

/// How a buffer of `dtype` is declared that is read or written by fours; `half`: whether the device has f16.
pub fn wide(dtype: DType, half: bool) -> Access {
    match per_word(dtype) {
        2 if half && dtype == DType::F16 => Access::HalfQuads,
        1 if !matches!(Rep::of(dtype), Some(Rep::I64 | Rep::U64)) => Access::Quads,
        2 => Access::Pairs,
        _ => Access::Words,
    }
}

/// How an output of `dtype` is declared whose elements are written one by one.
pub fn single(dtype: DType, half: bool) -> Access {
    match per_word(dtype) {
        2 if half && dtype == DType::F16 => Access::Half,
        1 => Access::Words,
        _ => Access::Atomic,
    }
}

/// How an input is declared that is read in these ways: dtype, and whether by fours. As wide as all uses agree on.
pub fn shared(uses: impl IntoIterator<Item = (DType, bool)>, half: bool) -> Access {
    let uses: SmallVec<[(DType, bool); 4]> = uses.into_iter().collect();
    let (mut singles, fours) = (uses.iter().filter(|u| !u.1), uses.iter().filter(|u| u.1));
    if half && !uses.is_empty() && uses.iter().all(|&(dtype, _)| dtype == DType::F16) {
        return if fours.count() > 0 { Access::HalfQuads } else { Access::Half };
    }
    let mut ways = fours.map(|&(dtype, _)| wide(dtype, false));
    match ways.next() {
        Some(first) if ways.all(|way| way == first) && singles.all(|&(dtype, _)| wide(dtype, false) == first) => first,
        _ => Access::Words,
    }
}

/// The parts of a shader, collected by the kernel generators.
pub struct Code {
    /// Input declarations, by binding.
    pub inputs: Vec<Access>,
    /// Output declarations.
    pub outputs: Vec<Access>,
    /// Whether there is a scratch buffer.
    pub scratch: bool,
    /// Whether there is a fault word.
    pub fault: bool,
    /// Functions by name, so that each is emitted once.
    functions: BTreeMap<String, String>,
    /// Everything else, in order.
    pub body: String,
    /// Words of the uniform block.
    pub param_words: usize,
    /// Language extensions beyond those that the declarations need.
    pub enables: SmallVec<[&'static str; 2]>,
}

impl Code {
    /// An empty shader of so many inputs and outputs, all declared as words.
    pub fn new(inputs: usize, outputs: usize, param_words: usize) -> Self {
        Self {
            inputs: vec![Access::Words; inputs],
            outputs: vec![Access::Words; outputs],
            scratch: false,
            fault: false,
            functions: BTreeMap::new(),
            body: String::new(),
            param_words,
            enables: SmallVec::new(),
        }
    }

    /// Adds a function, unless it is there.
    pub fn function(&mut self, name: &str, text: impl FnOnce() -> String) {
        if !self.functions.contains_key(name) {
            self.functions.insert(name.to_string(), text());
        }
    }

    /// The function that reads word `i` of an input.
    pub fn word(&mut self, input: u8) -> Result<String> {
        let access = *self.inputs.get(usize::from(input)).ok_or_else(|| missing(input))?;
        let value = match access {
            Access::Words | Access::Atomic => format!("in{input}[i]"),
            Access::Pairs => format!("in{input}[i >> 1u][i & 1u]"),
            Access::Quads => format!("in{input}[i >> 2u][i & 3u]"),
            Access::Half | Access::HalfQuads => {
                return Err(Error::op("wgsl", format!("input {input} is declared as F16 and read as words")));
            }
        };
        let name = format!("word{input}");
        self.function(&name, || format!("fn {name}(i: u32) -> u32 {{\n    return {value};\n}}\n"));
        Ok(name)
    }

    /// The function that reads words `i` to `i` + 3 of an input, `i` being a multiple of 4.
    pub fn quad(&mut self, input: u8) -> Result<String> {
        let word = self.word(input)?;
        let whole = self.inputs.get(usize::from(input)) == Some(&Access::Quads);
        let name = format!("quad{input}");
        self.function(&name, || {
            let value = if whole {
                format!("in{input}[i >> 2u]")
            } else {
                format!("vec4<u32>({word}(i), {word}(i + 1u), {word}(i + 2u), {word}(i + 3u))")
            };
            format!("fn {name}(i: u32) -> vec4<u32> {{\n    return {value};\n}}\n")
        });
        Ok(name)
    }

    /// The function that reads element `i` of an input, in the form of its dtype.
    pub fn load(&mut self, input: u8, dtype: DType) -> Result<String> {
        let rep = Rep::need(dtype)?;
        let name = format!("load{input}_{}", dtype.name().to_lowercase());
        if let Some(half) = self.half(input, dtype)? {
            let element = if half == Access::Half { "i" } else { "i >> 2u][i & 3u" };
            self.function(&name, || {
                format!("fn {name}(i: u32) -> f32 {{\n    return f32(in{input}[{element}]);\n}}\n")
            });
            return Ok(name);
        }
        let word = self.word(input)?;
        self.function(&name, || {
            let value = match per_word(dtype) {
                4 => decode(dtype, &format!("(({word}(i >> 2u) >> ((i & 3u) * 8u)) & 0xffu)")),
                2 => decode(dtype, &format!("(({word}(i >> 1u) >> ((i & 1u) * 16u)) & 0xffffu)")),
                _ if rep.is_64() => format!("vec2<u32>({word}(2u * i), {word}(2u * i + 1u))"),
                _ => decode(dtype, &format!("{word}(i)")),
            };
            format!("fn {name}(i: u32) -> {} {{\n    return {value};\n}}\n", rep.wgsl())
        });
        Ok(name)
    }

    /// The function that reads elements i to i + 3 of an input, `i` being a multiple of 4. Not for 64-bit types.
    pub fn load4(&mut self, input: u8, dtype: DType) -> Result<String> {
        let rep = Rep::need(dtype)?;
        let access = *self.inputs.get(usize::from(input)).ok_or_else(|| missing(input))?;
        let name = format!("load{input}_{}x4", dtype.name().to_lowercase());
        if let Some(half) = self.half(input, dtype)? {
            let value = if half == Access::HalfQuads {
                format!("in{input}[i >> 2u]")
            } else {
                let parts: Vec<String> = (0..4).map(|j| format!("in{input}[i + {j}u]")).collect();
                format!("vec4<f16>({})", parts.join(", "))
            };
            self.function(&name, || format!("fn {name}(i: u32) -> vec4<f32> {{\n    return vec4<f32>({value});\n}}\n"));
            return Ok(name);
        }
        let word = self.word(input)?;
        self.function(&name, || {
            let ty = rep.wgsl();
            let value = match (per_word(dtype), access) {
                (1, Access::Quads) => {
                    let vector = format!("in{input}[i >> 2u]");
                    if rep == Rep::U32 { vector } else { format!("bitcast<vec4<{ty}>>({vector})") }
                }
                (1, _) => {
                    let parts: Vec<String> =
                        (0..4).map(|j| decode(dtype, &format!("{word}(i + {j}u)"))).collect();
                    format!("vec4<{ty}>({})", parts.join(", "))
                }
                (2, _) => {
                    let pair = match access {
                        Access::Pairs => format!("let w = in{input}[i >> 2u];"),
                        _ => format!("let w = vec2<u32>({word}(i >> 1u), {word}((i >> 1u) + 1u));"),
                    };
                    let value = if dtype == DType::F16 {
                        "vec4<f32>(unpack2x16float(w.x), unpack2x16float(w.y))".to_string()
                    } else {
                        let parts: Vec<String> = ["(w.x & 0xffffu)", "(w.x >> 16u)", "(w.y & 0xffffu)", "(w.y >> 16u)"]
                            .iter()
                            .map(|bits| decode(dtype, bits))
                            .collect();
                        format!("vec4<{ty}>({})", parts.join(", "))
                    };
                    return format!("fn {name}(i: u32) -> vec4<{ty}> {{\n    {pair}\n    return {value};\n}}\n");
                }
                _ => {
                    let parts: Vec<String> =
                        (0..4).map(|j| decode(dtype, &format!("((w >> {}u) & 0xffu)", 8 * j))).collect();
                    return format!(
                        "fn {name}(i: u32) -> vec4<{ty}> {{\n    let w = {word}(i >> 2u);\n    return vec4<{ty}>({});\n}}\n",
                        parts.join(", ")
                    );
                }
            };
            format!("fn {name}(i: u32) -> vec4<{ty}> {{\n    return {value};\n}}\n")
        });
        Ok(name)
    }

    /// How an input is declared that is read as F16 elements; `None` where it is declared as words.
    fn half(&self, input: u8, dtype: DType) -> Result<Option<Access>> {
        let access = *self.inputs.get(usize::from(input)).ok_or_else(|| missing(input))?;
        match access {
            Access::Half | Access::HalfQuads if dtype == DType::F16 => Ok(Some(access)),
            Access::Half | Access::HalfQuads => {
                Err(Error::op("wgsl", format!("input {input} is declared as F16 and read as {dtype}")))
            }
            _ => Ok(None),
        }
    }

    /// The function that reads element `i` of an output of less than a word an element, for what stays as it is.
    pub fn reload(&mut self, output: usize, dtype: DType) -> Result<String> {
        let rep = Rep::need(dtype)?;
        let access = *self.outputs.get(output).ok_or_else(|| missing(output))?;
        let name = format!("reload{output}");
        let value = match (access, per_word(dtype)) {
            (Access::Half, _) => format!("f32(out{output}[i])"),
            (Access::HalfQuads, _) => format!("f32(out{output}[i >> 2u][i & 3u])"),
            (Access::Words, 4) => decode(dtype, &format!("((out{output}[i >> 2u] >> ((i & 3u) * 8u)) & 0xffu)")),
            (Access::Words, 2) => decode(dtype, &format!("((out{output}[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu)")),
            _ => return Err(Error::op("wgsl", format!("output {output} of {dtype} is not read back"))),
        };
        self.function(&name, || format!("fn {name}(i: u32) -> {} {{\n    return {value};\n}}\n", rep.wgsl()));
        Ok(name)
    }

    /// The function that writes element `i` of an output. Types of less than a word need [`Access::Atomic`]: invocations
    /// that own parts of one word write their own bits only.
    pub fn store(&mut self, output: usize, dtype: DType) -> Result<String> {
        let rep = Rep::need(dtype)?;
        let access = *self.outputs.get(output).ok_or_else(|| missing(output))?;
        let name = format!("store{output}");
        let bits = encode(dtype, "v");
        let packed = |shift: u32, mask: &str, bits: u32| {
            let lane = (1u32 << shift) - 1;
            format!(
                "let at = (i & {lane}u) * {bits}u;\n    atomicAnd(&out{output}[i >> {shift}u], ~({mask} << at));\n    \
                 atomicOr(&out{output}[i >> {shift}u], ({}) << at);",
                encode(dtype, "v")
            )
        };
        let body = match (per_word(dtype), access) {
            (4, Access::Atomic) => packed(2, "0xffu", 8),
            (2, Access::Atomic) => packed(1, "0xffffu", 16),
            (2, Access::Half) if dtype == DType::F16 => {
                // Exact: the value is rounded already, however the device rounds.
                format!("out{output}[i] = f16(t_round_f16(v));")
            }
            (4 | 2, _) => return Err(Error::op("wgsl", format!("single elements of {dtype} need an atomic output"))),
            (_, Access::Words) if rep.is_64() => {
                format!("out{output}[2u * i] = v.x;\n    out{output}[2u * i + 1u] = v.y;")
            }
            (_, Access::Words) => format!("out{output}[i] = {bits};"),
            (_, Access::Atomic) => format!("atomicStore(&out{output}[i], {bits});"),
            (_, Access::Pairs | Access::Quads) => format!("out{output}[i >> 2u][i & 3u] = {bits};"),
            (_, Access::Half | Access::HalfQuads) => {
                return Err(Error::op("wgsl", format!("an output of {dtype} is declared as F16")));
            }
        };
        self.function(&name, || format!("fn {name}(i: u32, v: {}) {{\n    {body}\n}}\n", rep.wgsl()));
        Ok(name)
    }

    /// The function that writes elements i to i + 3, `i` being a multiple of 4, given as four values.
    pub fn store4(&mut self, output: usize, dtype: DType) -> Result<String> {
        let rep = Rep::need(dtype)?;
        let access = *self.outputs.get(output).ok_or_else(|| missing(output))?;
        let name = format!("store{output}x4");
        let e = |v: &str| encode(dtype, v);
        let set = |index: String, value: String| match access {
            Access::Atomic => format!("    atomicStore(&out{output}[{index}], {value});\n"),
            _ => format!("    out{output}[{index}] = {value};\n"),
        };
        let mut body = String::new();
        match per_word(dtype) {
            4 => {
                body += &set(
                    "i >> 2u".into(),
                    format!("({}) | (({}) << 8u) | (({}) << 16u) | (({}) << 24u)", e("a"), e("b"), e("c"), e("d")),
                )
            }
            2 => {
                let low = format!("({}) | (({}) << 16u)", e("a"), e("b"));
                let high = format!("({}) | (({}) << 16u)", e("c"), e("d"));
                if access == Access::HalfQuads {
                    let four = ["a", "b", "c", "d"].map(|v| format!("t_round_f16({v})")).join(", ");
                    body += &set("i >> 2u".into(), format!("vec4<f16>(vec4<f32>({four}))"));
                } else if access == Access::Pairs {
                    body += &set("i >> 2u".into(), format!("vec2<u32>({low}, {high})"));
                } else {
                    body += &set("i >> 1u".into(), low);
                    body += &set("(i >> 1u) + 1u".into(), high);
                }
            }
            _ if rep.is_64() => {
                for (j, v) in ["a", "b", "c", "d"].iter().enumerate() {
                    body += &set(format!("2u * i + {}u", 2 * j), format!("{v}.x"));
                    body += &set(format!("2u * i + {}u", 2 * j + 1), format!("{v}.y"));
                }
            }
            _ if access == Access::Quads => {
                body += &set("i >> 2u".into(), format!("vec4<u32>({}, {}, {}, {})", e("a"), e("b"), e("c"), e("d")));
            }
            _ => {
                for (j, v) in ["a", "b", "c", "d"].iter().enumerate() {
                    body += &set(format!("i + {j}u"), e(v));
                }
            }
        }
        let ty = rep.wgsl();
        self.function(&name, || format!("fn {name}(i: u32, a: {ty}, b: {ty}, c: {ty}, d: {ty}) {{\n{body}}}\n"));
        Ok(name)
    }

    /// The whole source.
    pub fn finish(self, target: &Target, subgroups: bool) -> String {
        let mut source = String::new();
        let half = |access: &Access| matches!(access, Access::Half | Access::HalfQuads);
        let f16 = self.inputs.iter().chain(&self.outputs).any(half).then_some("f16");
        let subgroups = (subgroups && !target.naga).then_some("subgroups");
        let others = self.enables.iter().copied().filter(|&name| Some(name) != f16);
        for name in f16.into_iter().chain(subgroups).chain(others) {
            let _ = writeln!(source, "enable {name};");
        }
        let mut binding = 0;
        let mut declare = |line: String| {
            let _ = writeln!(source, "@group(0) @binding({binding}) {line};");
            binding += 1;
        };
        let ty = |access: &Access| match access {
            Access::Words => "u32",
            Access::Pairs => "vec2<u32>",
            Access::Quads => "vec4<u32>",
            Access::Atomic => "atomic<u32>",
            Access::Half => "f16",
            Access::HalfQuads => "vec4<f16>",
        };
        for (i, access) in self.inputs.iter().enumerate() {
            declare(format!("var<storage, read> in{i}: array<{}>", ty(access)));
        }
        for (i, access) in self.outputs.iter().enumerate() {
            declare(format!("var<storage, read_write> out{i}: array<{}>", ty(access)));
        }
        if self.scratch {
            declare("var<storage, read_write> scratch: array<u32>".into());
        }
        if self.fault {
            declare("var<storage, read_write> fault: array<atomic<u32>, 3>".into());
        }
        declare(format!("var<uniform> params: array<vec4<u32>, {}>", self.param_words.div_ceil(4).max(1)));
        for text in self.functions.values() {
            source += text;
        }
        source += &self.body;
        link::link(&mut source);
        source
    }
}

fn missing(number: impl std::fmt::Display) -> Error {
    Error::op("wgsl", format!("the kernel names buffer {number}, which its structure does not have"))
}

/// The value of a dtype from its bits, which are a parenthesised expression.
fn decode(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::F32 => format!("bitcast<f32>({bits})"),
        DType::F16 => format!("t_from_f16({bits})"),
        DType::BF16 => format!("t_from_bf16({bits})"),
        DType::F8E4M3 => format!("t_from_e4m3({bits})"),
        DType::F8E5M2 => format!("t_from_e5m2({bits})"),
        DType::I8 => format!("extractBits(bitcast<i32>({bits}), 0u, 8u)"),
        DType::I16 => format!("extractBits(bitcast<i32>({bits}), 0u, 16u)"),
        DType::I32 => format!("bitcast<i32>({bits})"),
        _ => bits.to_string(),
    }
}

/// The bits of a value, clean above the dtype's width.
pub fn encode(dtype: DType, v: &str) -> String {
    match dtype {
        DType::F32 | DType::I32 => format!("bitcast<u32>({v})"),
        DType::F16 => format!("t_to_f16({v})"),
        DType::BF16 => format!("t_to_bf16({v})"),
        DType::F8E4M3 => format!("t_to_e4m3({v})"),
        DType::F8E5M2 => format!("t_to_e5m2({v})"),
        DType::I8 => format!("bitcast<u32>({v}) & 0xffu"),
        DType::I16 => format!("bitcast<u32>({v}) & 0xffffu"),
        DType::U8 => format!("{v} & 0xffu"),
        DType::U16 => format!("{v} & 0xffffu"),
        _ => v.to_string(),
    }
}

/// Word `i` of the uniform block, as an expression.
pub fn param(i: usize) -> String {
    format!("params[{}].{}", i / 4, ["x", "y", "z", "w"][i % 4])
}

/// `base + sum of index * stride`: `indices` are WGSL expressions, the strides stand in the uniform block from word
/// `first` + 1 on, the offset at `first`. Wrapping u32 arithmetic serves negative strides too.
pub fn address(first: usize, indices: &[String]) -> String {
    let mut text = param(first);
    for (a, index) in indices.iter().enumerate() {
        let _ = write!(text, " + {index} * {}", param(first + 1 + a));
    }
    text
}

/// Where each scalar of a step stands in the uniform block: by number and form, as the expressions name them.
#[derive(Debug, Default)]
pub struct Slots {
    slots: Vec<(u16, Rep, bool)>,
}

impl Slots {
    /// The kernel's own scalars, all f32, numbered 0 and on; then those of the expressions.
    pub fn new<'a>(own: u16, exprs: impl IntoIterator<Item = &'a Expr>) -> Result<Self> {
        let mut slots: Vec<(u16, Rep, bool)> = (0..own).map(|i| (i, Rep::F32, true)).collect();
        for expr in exprs {
            for (inst, &dtype) in expr.code.iter().zip(&expr.dtypes) {
                if let tallow_graph::Inst::Param(number) = *inst {
                    let slot = (number, Rep::need(dtype)?, dtype.is_float());
                    if !slots.contains(&slot) {
                        slots.push(slot);
                    }
                }
            }
        }
        Ok(Self { slots })
    }

    /// Words of all slots.
    pub fn words(&self) -> usize {
        self.slots.iter().map(|s| s.1.words()).sum()
    }

    /// The first word of a scalar, counted from the first slot.
    pub fn at(&self, number: u16, rep: Rep) -> Option<usize> {
        let mut at = 0;
        for slot in &self.slots {
            if slot.0 == number && slot.1 == rep {
                return Some(at);
            }
            at += slot.1.words();
        }
        None
    }

    /// Appends the scalars' words.
    pub fn fill(&self, scalars: &[Scalar], out: &mut Vec<u32>) -> Result<()> {
        for &(number, rep, _) in &self.slots {
            let scalar = *scalars
                .get(usize::from(number))
                .ok_or_else(|| Error::op("wgsl", format!("the step brings no scalar {number}")))?;
            let whole = match scalar {
                Scalar::F(v) => v as i128,
                Scalar::I(v) => i128::from(v),
                Scalar::U(v) => i128::from(v),
            };
            match rep {
                Rep::F32 => out.push((scalar.to_f64() as f32).to_bits()),
                Rep::U32 | Rep::I32 => {
                    if !(-(1i128 << 31)..1 << 32).contains(&whole) {
                        return Err(Error::op("wgsl", format!("scalar {number} is {whole}, which needs over 32 bits")));
                    }
                    out.push(whole as u32);
                }
                Rep::U64 | Rep::I64 => {
                    let clamped = if rep == Rep::U64 {
                        whole.clamp(i128::from(i64::MIN), i128::from(u64::MAX))
                    } else {
                        whole.clamp(i128::from(i64::MIN), i128::from(i64::MAX))
                    };
                    out.extend([clamped as u32, (clamped >> 32) as u32]);
                }
            }
        }
        Ok(())
    }
}

/// Appends words (sizes, offsets, strides) as 32 bits each; negative strides as two's complement.
pub fn fill_words(kernel: &'static str, words: &[i64], out: &mut Vec<u32>) -> Result<()> {
    for &word in words {
        if !(-(1i64 << 31)..1 << 32).contains(&word) {
            return Err(Error::op(
                kernel,
                format!("a size, offset or stride is {word}, which needs over 32 bits: split the tensor"),
            ));
        }
        out.push(word as u32);
    }
    Ok(())
}

/// One more than the largest input that is named.
pub fn inputs_of<'a>(operands: impl IntoIterator<Item = &'a Operand>) -> usize {
    operands.into_iter().filter_map(|o| o.input).map(|i| usize::from(i) + 1).max().unwrap_or(0)
}
