//! Compiles an expression into block code: one instruction works on a block of some hundred elements, values live in
//! a few registers of a block each, which stay in L1.
//!
//! A *place* is a number in the table of block addresses. Operands, parameters, accumulators and the result have places
//! of their own, whose address the walk may point straight at memory; temporaries share the rest. An instruction never
//! writes a place that it reads, so its operands are disjoint slices.

use smallvec::SmallVec;
use tallow_graph::kernel::Operand;
use tallow_graph::{BinaryOp, CompareOp, DType, Error, Expr, Inst, Result, UnaryOp};

use super::class::Class;

/// What an instruction does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Op {
    Copy,
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compare(CompareOp),
    /// `a` is U8, the others are of the instruction's class.
    Where,
    /// From the instruction's class to this one.
    Cast(Class),
    /// f32 rounded to a smaller float type, still held in f32.
    Round(DType),
}

/// One instruction over a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code {
    pub op: Op,
    /// Of the arguments.
    pub class: Class,
    pub out: u16,
    pub a: u16,
    pub b: u16,
    pub c: u16,
}

/// An operand that the expression loads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Which of the kernel's operands.
    pub operand: u16,
    pub place: u16,
    pub dtype: DType,
    /// `None`: the address itself, as a number of class `class`.
    pub input: Option<u8>,
    pub class: Class,
    pub layout: tallow_graph::kernel::Layout,
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Block {
    pub code: Vec<Code>,
    pub loads: Vec<Load>,
    /// Scalar number, class, place.
    pub params: Vec<(u16, Class, u16)>,
    pub accs: [Option<u16>; 2],
    /// The result's place; only the last instruction writes it.
    pub result: u16,
    /// How the result is stored.
    pub dtype: DType,
    pub class: Class,
    pub places: usize,
    /// Elements of a block.
    pub block: usize,
    /// Whether the result is `Acc(0)` unchanged.
    pub is_acc: bool,
}

/// Bytes that the registers of an expression may take together; half of a usual L1.
const L1: usize = 24 << 10;

struct Places {
    next: u16,
    free: SmallVec<[u16; 16]>,
}

impl Places {
    fn fresh(&mut self) -> Result<u16> {
        let place = self.next;
        self.next = place.checked_add(1).ok_or_else(|| Error::msg("an expression has too many values: 65,536"))?;
        Ok(place)
    }
    fn temporary(&mut self) -> Result<u16> {
        self.free.pop().map_or_else(|| self.fresh(), Ok)
    }
}

/// The values that an instruction reads.
fn arguments(inst: Inst) -> SmallVec<[u16; 3]> {
    match inst {
        Inst::Load(_) | Inst::Position(_) | Inst::Acc(_) | Inst::Param(_) => SmallVec::new(),
        Inst::Unary(_, a) | Inst::Cast(a) => SmallVec::from_slice(&[a]),
        Inst::Binary(_, a, b) | Inst::Compare(_, a, b) => SmallVec::from_slice(&[a, b]),
        Inst::Where(a, b, c) => SmallVec::from_slice(&[a, b, c]),
    }
}

fn malformed(what: &str) -> Error {
    Error::msg(format!("an expression is malformed: {what}. This is an error of the planner, please report it"))
}

/// Whether a value of class f32 that becomes `dtype` has to be rounded.
fn rounds(dtype: DType) -> bool {
    Class::of(dtype) == Class::F32 && dtype != DType::F32
}

/// The class of storage that moves elements of `dtype` without looking at them.
fn raw_class(dtype: DType) -> (Class, DType) {
    match dtype.size_in_bytes() {
        1 => (Class::U8, DType::U8),
        2 => (Class::U16, DType::U16),
        4 => (Class::U32, DType::U32),
        _ => (Class::U64, DType::U64),
    }
}

impl Block {
    /// Compiles `expr`, whose loads name `operands`. `acc` is the dtype of the accumulators, where there are any.
    pub fn compile(expr: &Expr, operands: &[Operand], acc: Option<DType>) -> Result<Block> {
        Self::compile_with(expr, operands, acc, false)
    }

    /// As [`Block::compile`] for a map, whose result is only stored: a copy moves bits and does not convert.
    pub fn compile_map(expr: &Expr, operands: &[Operand]) -> Result<Block> {
        Self::compile_with(expr, operands, None, true)
    }

    fn compile_with(expr: &Expr, operands: &[Operand], acc: Option<DType>, raw: bool) -> Result<Block> {
        let dtype = expr.dtype().ok_or_else(|| malformed("it is empty"))?;
        if expr.dtypes.len() != expr.code.len() || expr.dtypes.iter().any(|d| d.is_quantized()) {
            return Err(malformed("dtypes"));
        }
        if dtype.is_quantized() {
            return Err(malformed("a quantized result"));
        }
        if let ([Inst::Load(0)], [operand, ..]) = (expr.code.as_slice(), operands)
            && raw
            && operand.dtype == dtype
            && operand.input.is_some()
        {
            return Ok(Self::copy(operand, dtype));
        }
        let last = expr.code.len() - 1;
        let mut uses = vec![0u32; expr.code.len()];
        uses[last] = 1;
        for (i, &inst) in expr.code.iter().enumerate().rev() {
            if uses[i] > 0 {
                for a in arguments(inst) {
                    if usize::from(a) >= i {
                        return Err(malformed("a value is used before it is defined"));
                    }
                    uses[usize::from(a)] += 1;
                }
            }
        }

        let mut places = Places { next: 0, free: SmallVec::new() };
        let result = places.fresh()?;
        let mut block = Block {
            code: Vec::new(),
            loads: Vec::new(),
            params: Vec::new(),
            accs: [None; 2],
            result,
            dtype,
            class: Class::of(dtype),
            places: 0,
            block: 0,
            is_acc: matches!(expr.code.as_slice(), [Inst::Acc(0)]) && acc == Some(dtype),
        };
        // Where each value lies, and whether that place may be reused after its last use.
        let mut at: Vec<(u16, bool)> = vec![(0, false); expr.code.len()];
        let mut widest = 1;
        for (i, (&inst, &dtype)) in expr.code.iter().zip(&expr.dtypes).enumerate() {
            if uses[i] == 0 {
                continue;
            }
            let class = Class::of(dtype);
            widest = widest.max(class.size());
            let value = |v: u16| at[usize::from(v)].0;
            let class_of = |v: u16| Class::of(expr.dtypes[usize::from(v)]);
            // A source that must become `dtype` first; else the source's own place serves.
            let mut source = |block: &mut Block, places: &mut Places, place: u16, from: DType| -> Result<(u16, bool)> {
                widest = widest.max(Class::of(from).size());
                let ops = conversion(from, dtype, false);
                convert(block, places, &ops, place, (i == last).then_some(result))
            };
            at[i] = match inst {
                Inst::Load(n) => {
                    let operand = operands.get(usize::from(n)).ok_or_else(|| malformed("no such operand"))?;
                    if operand.dtype.is_quantized() {
                        return Err(malformed("a quantized operand"));
                    }
                    let place = block.load(&mut places, n, operand, Class::of(operand.dtype))?;
                    source(&mut block, &mut places, place, operand.dtype)?
                }
                Inst::Position(n) => {
                    let operand = operands.get(usize::from(n)).ok_or_else(|| malformed("no such operand"))?;
                    let operand = Operand { input: None, ..operand.clone() };
                    (block.load(&mut places, n, &operand, class)?, false)
                }
                Inst::Acc(n) => {
                    let acc = acc.ok_or_else(|| malformed("an accumulator where there is none"))?;
                    let slot = block.accs.get(usize::from(n)).ok_or_else(|| malformed("accumulator"))?;
                    let place = match *slot {
                        Some(place) => place,
                        None => {
                            let place = places.fresh()?;
                            block.accs[usize::from(n)] = Some(place);
                            place
                        }
                    };
                    // A wider acc may carry a narrower dtype's name (F16 for F32): it is not rounded then.
                    let from = if Class::of(acc) == class { dtype } else { acc };
                    source(&mut block, &mut places, place, from)?
                }
                Inst::Param(n) => {
                    let place = places.fresh()?;
                    block.params.push((n, class, place));
                    (place, false)
                }
                Inst::Cast(a) => {
                    let ops = conversion(expr.dtypes[usize::from(a)], dtype, true);
                    if ops.is_empty() && i != last {
                        // The same values: this one lives where the other does, whose use is never given up.
                        at[i] = (value(a), false);
                        continue;
                    }
                    convert(&mut block, &mut places, &ops, value(a), (i == last).then_some(result))?
                }
                Inst::Unary(op, a) => block.push(&mut places, Op::Unary(op), class, [value(a); 3], i == last)?,
                Inst::Binary(op, a, b) => {
                    if class_of(a) != class || class_of(b) != class {
                        return Err(malformed("operands of different dtypes"));
                    }
                    block.push(&mut places, Op::Binary(op), class, [value(a), value(b), value(b)], i == last)?
                }
                Inst::Compare(op, a, b) => {
                    if class_of(a) != class_of(b) || class != Class::U8 {
                        return Err(malformed("operands of different dtypes"));
                    }
                    block.push(&mut places, Op::Compare(op), class_of(a), [value(a), value(b), value(b)], i == last)?
                }
                Inst::Where(a, b, c) => {
                    if class_of(a) != Class::U8 || class_of(b) != class || class_of(c) != class {
                        return Err(malformed("operands of different dtypes"));
                    }
                    block.push(&mut places, Op::Where, class, [value(a), value(b), value(c)], i == last)?
                }
            };
            for a in arguments(inst) {
                let a = usize::from(a);
                uses[a] -= 1;
                if uses[a] == 0 && at[a].1 {
                    places.free.push(at[a].0);
                }
            }
        }
        // The result needs an instruction of its own to land in its place.
        if at[last].0 != result {
            let class = block.class;
            block.code.push(Code { op: Op::Copy, class, out: result, a: at[last].0, b: 0, c: 0 });
        }
        block.places = usize::from(places.next);
        // Where nothing is computed, nothing has to stay in L1.
        let most = if matches!(block.code.as_slice(), [Code { op: Op::Copy, .. }]) { 4096 } else { 1024 };
        block.block = (L1 / (widest * block.places)).clamp(256, most).next_multiple_of(64);
        Ok(block)
    }

    /// One operand, moved and not looked at.
    fn copy(operand: &Operand, dtype: DType) -> Block {
        let (class, raw) = raw_class(dtype);
        let load = Load { operand: 0, place: 0, dtype: raw, input: operand.input, class, layout: operand.layout };
        Block {
            code: vec![Code { op: Op::Copy, class, out: 1, a: 0, b: 0, c: 0 }],
            loads: vec![load],
            params: Vec::new(),
            accs: [None; 2],
            result: 1,
            dtype: raw,
            class,
            places: 2,
            block: 1024,
            is_acc: false,
        }
    }

    fn load(&mut self, places: &mut Places, n: u16, operand: &Operand, class: Class) -> Result<u16> {
        let same = |l: &&Load| l.operand == n && l.class == class && l.input == operand.input;
        if let Some(load) = self.loads.iter().find(same) {
            return Ok(load.place);
        }
        let place = places.fresh()?;
        let Operand { input, dtype, layout } = *operand;
        self.loads.push(Load { operand: n, place, dtype, input, class, layout });
        Ok(place)
    }

    fn push(
        &mut self,
        places: &mut Places,
        op: Op,
        class: Class,
        [a, b, c]: [u16; 3],
        last: bool,
    ) -> Result<(u16, bool)> {
        // Allocated before the arguments are freed, so that it is none of them.
        let out = if last { self.result } else { places.temporary()? };
        self.code.push(Code { op, class, out, a, b, c });
        Ok((out, !last))
    }
}

/// The instructions that make `to` of `from`. `explicit`: a cast of the program, which rounds to a small float; a load
/// converts between dtypes of one class without.
fn conversion(from: DType, to: DType, explicit: bool) -> SmallVec<[(Op, Class); 2]> {
    let (a, b) = (Class::of(from), Class::of(to));
    let mut ops = SmallVec::new();
    if a != b {
        ops.push((Op::Cast(b), a));
    }
    if rounds(to) && (explicit || from != to) {
        ops.push((Op::Round(to), Class::F32));
    }
    ops
}

/// Appends `ops`, starting from `place`; the last one writes `result` where there is one.
fn convert(
    block: &mut Block,
    places: &mut Places,
    ops: &[(Op, Class)],
    place: u16,
    result: Option<u16>,
) -> Result<(u16, bool)> {
    let mut from = (place, false);
    for (i, &(op, class)) in ops.iter().enumerate() {
        let to = match result {
            Some(result) if i + 1 == ops.len() => (result, false),
            _ => (places.temporary()?, true),
        };
        block.code.push(Code { op, class, out: to.0, a: from.0, b: from.0, c: from.0 });
        if from.1 {
            places.free.push(from.0);
        }
        from = to;
    }
    Ok(from)
}
