//! From an [`Expr`] to a WGSL function of one element: its arguments are what the expression loads and accumulates,
//! scalars come from the uniform block.

use super::code::{Code, Rep, Slots, param};
use std::fmt::Write as _;
use tallow_graph::{BinaryOp, CompareOp, DType, Error, Expr, Inst, Result, UnaryOp, kernel::Operand};

/// An expression as a WGSL function.
pub struct Function {
    /// Its name.
    pub name: String,
    /// The operands that it takes, in the order of its arguments: number, and whether as a position (the address
    /// itself, u32) instead of a loaded value.
    pub arguments: Vec<(u16, bool)>,
    /// How many accumulators follow.
    pub accumulators: u8,
}

fn broken(what: &str) -> Error {
    Error::op("wgsl", format!("malformed expression: {what}"))
}

/// Adds the function `name` to `code`. `slots_at` is the first uniform word of the scalars.
pub fn function(
    code: &mut Code,
    name: &str,
    expr: &Expr,
    operands: &[Operand],
    accumulator: Option<DType>,
    slots: &Slots,
    slots_at: usize,
) -> Result<Function> {
    let mut arguments = Vec::new();
    let mut signature = Vec::new();
    let mut accumulators = 0;
    for inst in &expr.code {
        match *inst {
            Inst::Load(n) | Inst::Position(n) => {
                let position = matches!(inst, Inst::Position(_));
                if arguments.contains(&(n, position)) {
                    continue;
                }
                let operand =
                    operands.get(usize::from(n)).ok_or_else(|| broken("it loads an operand that is not there"))?;
                arguments.push((n, position));
                let (prefix, ty) = if position { ('p', "u32") } else { ('l', Rep::need(operand.dtype)?.wgsl()) };
                signature.push(format!("{prefix}{n}: {ty}"));
            }
            Inst::Acc(n) => accumulators = accumulators.max(n + 1),
            _ => {}
        }
    }
    if accumulators > 0 {
        let dtype = accumulator.ok_or_else(|| broken("there is nothing accumulated here"))?;
        for n in 0..accumulators {
            signature.push(format!("acc{n}: {}", Rep::need(dtype)?.wgsl()));
        }
    }
    let result = Rep::need(expr.dtype().ok_or_else(|| broken("it is empty"))?)?;
    let mut text = format!("fn {name}({}) -> {} {{\n", signature.join(", "), result.wgsl());
    for (i, (inst, &dtype)) in expr.code.iter().zip(&expr.dtypes).enumerate() {
        let rep = Rep::need(dtype)?;
        let arg = |v: u16| -> Result<(String, DType)> {
            if usize::from(v) >= i {
                return Err(broken("a value names a later one"));
            }
            Ok((format!("v{v}"), expr.dtypes[usize::from(v)]))
        };
        let value = match *inst {
            Inst::Load(n) => {
                let from =
                    operands.get(usize::from(n)).ok_or_else(|| broken("it loads an operand that is not there"))?;
                cast(&format!("l{n}"), from.dtype, dtype)?
            }
            Inst::Position(n) => cast(&format!("bitcast<i32>(p{n})"), DType::I32, dtype)?,
            Inst::Acc(n) => cast(&format!("acc{n}"), accumulator.unwrap_or(dtype), dtype)?,
            Inst::Param(n) => {
                let at = slots_at + slots.at(n, rep).ok_or_else(|| broken("a scalar has no slot"))?;
                match rep {
                    Rep::F32 => format!("bitcast<f32>({})", param(at)),
                    Rep::I32 => wrap(format!("bitcast<i32>({})", param(at)), dtype),
                    Rep::U32 => wrap(param(at), dtype),
                    Rep::U64 | Rep::I64 => format!("vec2<u32>({}, {})", param(at), param(at + 1)),
                }
            }
            Inst::Unary(op, a) => wrap(unary(op, &arg(a)?.0, rep)?, dtype),
            Inst::Binary(op, a, b) => wrap(binary(op, &arg(a)?.0, &arg(b)?.0, rep), dtype),
            Inst::Compare(op, a, b) => {
                let (a, from) = arg(a)?;
                compare(op, &a, &arg(b)?.0, Rep::need(from)?)
            }
            Inst::Where(c, a, b) => {
                let (condition, from) = arg(c)?;
                let truth = match Rep::need(from)? {
                    Rep::F32 => format!("({condition} != 0.0)"),
                    Rep::U32 => format!("({condition} != 0u)"),
                    Rep::I32 => format!("({condition} != 0)"),
                    Rep::U64 | Rep::I64 => format!("(({condition}.x | {condition}.y) != 0u)"),
                };
                format!("select({}, {}, {truth})", arg(b)?.0, arg(a)?.0)
            }
            Inst::Cast(a) => {
                let (a, from) = arg(a)?;
                cast_rounded(&a, from, dtype)?
            }
        };
        let _ = writeln!(text, "    let v{i}: {} = {value};", rep.wgsl());
    }
    let _ = writeln!(text, "    return v{};\n}}", expr.code.len() - 1);
    code.function(name, || text);
    Ok(Function { name: name.to_string(), arguments, accumulators })
}

/// Cuts an integer back to its dtype's width, so that it wraps as the dtype does.
pub fn wrap(value: String, dtype: DType) -> String {
    match dtype {
        DType::U8 => format!("(({value}) & 0xffu)"),
        DType::U16 => format!("(({value}) & 0xffffu)"),
        DType::I8 => format!("extractBits({value}, 0u, 8u)"),
        DType::I16 => format!("extractBits({value}, 0u, 16u)"),
        _ => value,
    }
}

fn unary(op: UnaryOp, a: &str, rep: Rep) -> Result<String> {
    use UnaryOp::*;
    if rep == Rep::F32 {
        return Ok(match op {
            Neg => format!("-({a})"),
            Abs => format!("abs({a})"),
            Sign => format!("t_sign({a})"),
            Sqr => format!("{a} * {a}"),
            Sqrt => format!("t_sqrt({a})"),
            Rsqrt => format!("t_rsqrt({a})"),
            Recip => format!("1.0 / {a}"),
            Exp => format!("t_exp({a})"),
            Log => format!("t_log({a})"),
            Sin => format!("t_sin({a})"),
            Cos => format!("t_cos({a})"),
            Tanh => format!("t_tanh({a})"),
            Erf => format!("t_erf({a})"),
            Gelu => format!("t_gelu({a})"),
            GeluErf => format!("t_gelu_erf({a})"),
            Relu => format!("t_relu({a})"),
            Silu => format!("t_silu({a})"),
            Sigmoid => format!("t_sigmoid({a})"),
            Floor => format!("floor({a})"),
            Ceil => format!("ceil({a})"),
            Round => format!("t_round({a})"),
        });
    }
    let signed = matches!(rep, Rep::I32 | Rep::I64);
    Ok(match (op, rep) {
        (Floor | Ceil | Round, _) => a.to_string(),
        (Abs, Rep::U32 | Rep::U64) | (Relu, Rep::U32 | Rep::U64) => a.to_string(),
        (Neg, Rep::U32) => format!("(0u - {a})"),
        (Neg, Rep::I32) => format!("(0 - {a})"),
        (Neg, _) => format!("t_neg64({a})"),
        (Abs, Rep::I32) => format!("abs({a})"),
        (Abs, _) => format!("t_abs64({a})"),
        (Relu, Rep::I32) => format!("max({a}, 0)"),
        (Relu, _) => format!("select({a}, vec2<u32>(0u), t_is_negative64({a}))"),
        (Sign, Rep::U32) => format!("min({a}, 1u)"),
        (Sign, Rep::I32) => format!("sign({a})"),
        (Sign, _) => format!("t_sign_{}({a})", if signed { "i64" } else { "u64" }),
        (Sqr, Rep::U32 | Rep::I32) => format!("{a} * {a}"),
        (Sqr, _) => format!("t_mul64({a}, {a})"),
        // The graph gives these floats only; as f32 they at least mean what they say.
        (op, _) => {
            let (float, int) = match rep {
                Rep::U32 => (cast(a, DType::U32, DType::F32)?, DType::U32),
                Rep::I32 => (cast(a, DType::I32, DType::F32)?, DType::I32),
                Rep::U64 => (cast(a, DType::U64, DType::F32)?, DType::U64),
                _ => (cast(a, DType::I64, DType::F32)?, DType::I64),
            };
            cast(&unary(op, &float, Rep::F32)?, DType::F32, int)?
        }
    })
}

/// `f(a, b)` in the given form; integers narrower than a word still need [`wrap`].
pub fn binary(op: BinaryOp, a: &str, b: &str, rep: Rep) -> String {
    use BinaryOp::*;
    let symbol = match op {
        Add => "+",
        Sub => "-",
        Mul => "*",
        _ => "/",
    };
    match (op, rep) {
        (Add | Sub | Mul, Rep::F32 | Rep::U32 | Rep::I32) | (Div, Rep::F32) => format!("({a} {symbol} {b})"),
        (Add, _) => format!("t_add64({a}, {b})"),
        (Sub, _) => format!("t_sub64({a}, {b})"),
        (Mul, _) => format!("t_mul64({a}, {b})"),
        (Div, Rep::U32) => format!("t_div_u32({a}, {b})"),
        (Div, Rep::I32) => format!("t_div_i32({a}, {b})"),
        (Div, Rep::U64) => format!("t_div_u64({a}, {b})"),
        (Div, Rep::I64) => format!("t_div_i64({a}, {b})"),
        (Maximum, Rep::F32) => format!("t_maximum({a}, {b})"),
        (Minimum, Rep::F32) => format!("t_minimum({a}, {b})"),
        (Maximum, Rep::U32 | Rep::I32) => format!("max({a}, {b})"),
        (Minimum, Rep::U32 | Rep::I32) => format!("min({a}, {b})"),
        (Maximum, Rep::U64) => format!("t_max_u64({a}, {b})"),
        (Minimum, Rep::U64) => format!("t_min_u64({a}, {b})"),
        (Maximum, Rep::I64) => format!("t_max_i64({a}, {b})"),
        (Minimum, Rep::I64) => format!("t_min_i64({a}, {b})"),
        (Pow, Rep::F32) => format!("t_pow({a}, {b})"),
        (Pow, Rep::U32) => format!("t_pow_u32({a}, {b})"),
        (Pow, Rep::I32) => format!("t_pow_i32({a}, {b})"),
        (Pow, Rep::U64) => format!("t_pow_u64({a}, {b})"),
        (Pow, Rep::I64) => format!("t_pow_i64({a}, {b})"),
        (Rem, Rep::F32) => format!("t_rem({a}, {b})"),
        (Rem, Rep::U32) => format!("t_rem_u32({a}, {b})"),
        (Rem, Rep::I32) => format!("t_rem_i32({a}, {b})"),
        (Rem, Rep::U64) => format!("t_sub64({a}, t_mul64(t_div_u64({a}, {b}), {b}))"),
        (Rem, Rep::I64) => format!("t_sub64({a}, t_mul64(t_div_i64({a}, {b}), {b}))"),
        // The graph gives these integers only.
        (BitAnd | BitOr | BitXor | Shl | Shr, Rep::F32) => format!("t_rem({a}, 0.0)"),
        (BitAnd, _) => format!("({a} & {b})"),
        (BitOr, _) => format!("({a} | {b})"),
        (BitXor, _) => format!("({a} ^ {b})"),
        (Shl, Rep::U32) => format!("t_shl_u32({a}, {b})"),
        (Shl, Rep::I32) => format!("bitcast<i32>(t_shl_u32(bitcast<u32>({a}), bitcast<u32>({b})))"),
        (Shl, _) => format!("t_shl64({a}, {b})"),
        (Shr, Rep::U32) => format!("t_shr_u32({a}, {b})"),
        (Shr, Rep::I32) => format!("t_shr_i32({a}, {b})"),
        (Shr, Rep::U64) => format!("t_shr64({a}, {b}, 0u)"),
        (Shr, Rep::I64) => format!("t_shr64({a}, {b}, select(0u, 0xffffffffu, t_is_negative64({a})))"),
    }
}

/// The condition `a op b` as a bool; NaN is unequal to everything.
pub fn condition(op: CompareOp, a: &str, b: &str, rep: Rep) -> String {
    use CompareOp::*;
    match rep {
        Rep::F32 => match op {
            Eq => format!("t_eq({a}, {b})"),
            Ne => format!("!t_eq({a}, {b})"),
            Lt => format!("t_lt({a}, {b})"),
            Le => format!("t_le({a}, {b})"),
            Gt => format!("t_lt({b}, {a})"),
            Ge => format!("t_le({b}, {a})"),
        },
        Rep::U32 | Rep::I32 => {
            let symbol = match op {
                Eq => "==",
                Ne => "!=",
                Lt => "<",
                Le => "<=",
                Gt => ">",
                Ge => ">=",
            };
            format!("{a} {symbol} {b}")
        }
        Rep::U64 | Rep::I64 => {
            let lt = if rep == Rep::U64 { "t_lt_u64" } else { "t_lt_i64" };
            match op {
                Eq => format!("t_eq64({a}, {b})"),
                Ne => format!("!t_eq64({a}, {b})"),
                Lt => format!("{lt}({a}, {b})"),
                Le => format!("!{lt}({b}, {a})"),
                Gt => format!("{lt}({b}, {a})"),
                Ge => format!("!{lt}({a}, {b})"),
            }
        }
    }
}

fn compare(op: CompareOp, a: &str, b: &str, rep: Rep) -> String {
    format!("select(0u, 1u, {})", condition(op, a, b, rep))
}

/// A value of one dtype in the form of another. Floats stay f32: only [`cast_rounded`] rounds them.
pub fn cast(a: &str, from: DType, to: DType) -> Result<String> {
    let (f, t) = (Rep::need(from)?, Rep::need(to)?);
    let value = match (f, t) {
        (Rep::F32, Rep::F32) => a.to_string(),
        (Rep::F32, Rep::U32) => format!("t_f32_to_u32({a})"),
        (Rep::F32, Rep::I32) => format!("t_f32_to_i32({a})"),
        (Rep::F32, Rep::U64) => format!("t_f32_to_u64({a})"),
        (Rep::F32, Rep::I64) => format!("t_f32_to_i64({a})"),
        (Rep::U32 | Rep::I32, Rep::F32) => format!("f32({a})"),
        (Rep::U32, Rep::U32) | (Rep::I32, Rep::I32) | (Rep::U64, Rep::U64) | (Rep::I64, Rep::I64) => a.to_string(),
        // Integers to integers wrap: the low bits are kept.
        (Rep::U32, Rep::I32) => format!("bitcast<i32>({a})"),
        (Rep::I32, Rep::U32) => format!("bitcast<u32>({a})"),
        (Rep::U32, Rep::U64 | Rep::I64) => format!("vec2<u32>({a}, 0u)"),
        (Rep::I32, Rep::U64 | Rep::I64) => format!("t_i32_to_i64({a})"),
        (Rep::U64, Rep::F32) => format!("t_u64_to_f32({a})"),
        (Rep::I64, Rep::F32) => format!("t_i64_to_f32({a})"),
        (Rep::U64 | Rep::I64, Rep::U32) => format!("{a}.x"),
        (Rep::U64 | Rep::I64, Rep::I32) => format!("bitcast<i32>({a}.x)"),
        (Rep::U64, Rep::I64) | (Rep::I64, Rep::U64) => a.to_string(),
    };
    if from == to {
        return Ok(value);
    }
    Ok(match to {
        // Floats saturate.
        DType::U8 if f == Rep::F32 => format!("min({value}, 255u)"),
        DType::U16 if f == Rep::F32 => format!("min({value}, 65535u)"),
        DType::I8 if f == Rep::F32 => format!("clamp({value}, -128, 127)"),
        DType::I16 if f == Rep::F32 => format!("clamp({value}, -32768, 32767)"),
        DType::U8 => format!("({value} & 255u)"),
        DType::U16 => format!("({value} & 65535u)"),
        DType::I8 => format!("(({value} << 24u) >> 24u)"),
        DType::I16 => format!("(({value} << 16u) >> 16u)"),
        _ => value,
    })
}

fn cast_rounded(a: &str, from: DType, to: DType) -> Result<String> {
    let value = cast(a, from, to)?;
    if from == to {
        return Ok(value);
    }
    Ok(match to {
        DType::F16 => format!("t_round_f16({value})"),
        DType::BF16 => format!("t_round_bf16({value})"),
        DType::F8E4M3 => format!("t_round_e4m3({value})"),
        DType::F8E5M2 => format!("t_round_e5m2({value})"),
        _ => value,
    })
}
