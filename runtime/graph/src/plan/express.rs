//! From nodes to expressions: dissolves inlined maps, and the maps of an epilogue, into one straight-line program.

use super::{
    collect::{Collected, Target},
    draft::{Path, Role, half_of, resolve},
};
use crate::{BinaryOp, DType, Expr, Inst, MapOp, Shape, locked::Token, node::Op};

/// The dtype in which values of `dtype` are computed.
pub(crate) const fn compute(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => DType::F32,
        other => other,
    }
}

/// Something an expression loads.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    /// `None`: the operand's address is its value.
    pub target: Option<Target>,
    pub dtype: DType,
    pub path: Path,
    /// The path from its first edge on that is not the whole of a value. Loads that agree in it read the same elements
    /// whatever the sizes, so they share an operand; other views may coincide by chance only.
    partial: Path,
}

/// What a step's expressions share: operands and scalars are numbered across them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tables {
    pub operands: Vec<Operand>,
    /// (node, which of its scalars).
    pub params: Vec<(u32, u8)>,
}

/// Builds the expressions of one step.
pub(crate) struct Express<'a> {
    pub c: &'a Collected,
    pub token: &'a Token,
    pub roles: &'a [Role],
    /// The node whose result is `Acc`.
    pub head: Option<u32>,
    /// Its columns come in pairs, over this space.
    pub paired: Option<&'a Shape>,
    /// The dtype of `Acc`.
    pub accumulator: DType,
}

impl Express<'_> {
    /// The expression of node `n`'s value, stored in its dtype.
    pub(crate) fn tail(&self, n: u32, tables: &mut Tables) -> Expr {
        let mut expr = Expr::default();
        let value = if Some(n) == self.head {
            expr.push(Inst::Acc(0), self.accumulator)
        } else {
            self.value(n, &Path::default(), &mut expr, tables)
        };
        self.finish(expr, value, self.c.nodes[n as usize].dtype)
    }

    /// The expression of an edge's value: what a reduction or a write reads. Its result keeps the computing dtype, unless
    /// `store` asks for the dtype of the edge.
    pub(crate) fn edge(&self, n: u32, e: u8, store: Option<DType>, tables: &mut Tables) -> Expr {
        let mut expr = Expr::default();
        let value = self.operand(n, e, &Path::default(), &mut expr, tables);
        let dtype = store.unwrap_or_else(|| compute(self.c.edge(self.token, n, e).node.dtype));
        self.finish(expr, value, dtype)
    }

    /// Makes `value` the last one, in `dtype`.
    fn finish(&self, mut expr: Expr, value: u16, dtype: DType) -> Expr {
        let last = value as usize + 1 == expr.code.len();
        if !last || expr.dtypes[value as usize] != dtype {
            expr.code.push(Inst::Cast(value));
            expr.dtypes.push(dtype);
        }
        expr
    }

    fn operand(&self, n: u32, e: u8, path: &Path, expr: &mut Expr, tables: &mut Tables) -> u16 {
        let edge = self.c.edge(self.token, n, e);
        let target = self.c.target(edge);
        let path = path.then(n, e);
        if let Target::Node(t) = target {
            match self.roles[t as usize] {
                Role::Inline => return self.value(t, &path, expr, tables),
                Role::Inside(_) if Some(t) == self.head => {
                    let half = self.paired.and_then(|space| self.half(&path, space, t)).unwrap_or(0);
                    return expr.push(Inst::Acc(half), self.accumulator);
                }
                // A map in the middle of the epilogue: read as a whole, so its own axes serve.
                Role::Inside(_) => return self.value(t, &Path::default(), expr, tables),
                Role::Tail(_) => {}
            }
        }
        let partial = self.partial(&path);
        let at = self.load(Operand { target: Some(target), dtype: edge.node.dtype, path, partial }, tables);
        expr.push(Inst::Load(at), compute(edge.node.dtype))
    }

    fn partial(&self, path: &Path) -> Path {
        let whole = |&&(n, e): &&(u32, u8)| {
            let edge = self.c.edge(self.token, n, e);
            edge.view.is_whole(edge.node.shape.elem_count())
        };
        Path(path.0.iter().skip(path.0.iter().take_while(whole).count()).copied().collect())
    }

    fn load(&self, operand: Operand, tables: &mut Tables) -> u16 {
        // Ranges have no target: as wholes all are alike, and parts of one edge are parts of one range.
        let same = tables.operands.iter().position(|o| o.target == operand.target && o.partial == operand.partial);
        same.unwrap_or_else(|| {
            tables.operands.push(operand);
            tables.operands.len() - 1
        }) as u16
    }

    fn half(&self, path: &Path, space: &Shape, head: u32) -> Option<u8> {
        let view = resolve(self.c, self.token, path)?.reshape(space)?;
        half_of(&view, *self.c.nodes[head as usize].shape.last()?)
    }

    /// The value of map (or constant) `n`, read along `path`.
    fn value(&self, n: u32, path: &Path, expr: &mut Expr, tables: &mut Tables) -> u16 {
        let node = &self.c.nodes[n as usize];
        let dtype = compute(node.dtype);
        let param = |k: u8, expr: &mut Expr, tables: &mut Tables| {
            let at = tables.params.iter().position(|&p| p == (n, k)).unwrap_or_else(|| {
                tables.params.push((n, k));
                tables.params.len() - 1
            });
            expr.push(Inst::Param(at as u16), dtype)
        };
        match node.op {
            Op::Fill => param(0, expr, tables),
            Op::Iota => {
                let partial = self.partial(path);
                let operand = Operand { target: None, dtype: DType::U32, path: path.clone(), partial };
                let at = self.load(operand, tables);
                let index = expr.push(Inst::Position(at), dtype);
                let step = param(1, expr, tables);
                let scaled = expr.push(Inst::Binary(BinaryOp::Mul, index, step), dtype);
                let start = param(0, expr, tables);
                expr.push(Inst::Binary(BinaryOp::Add, scaled, start), dtype)
            }
            Op::Map(op) => {
                let arity = self.c.edges(self.token, n).len() as u8;
                let mut args = [0u16; 3];
                for e in 0..arity.min(3) {
                    args[e as usize] = self.operand(n, e, path, expr, tables);
                }
                let [a, b, c] = args;
                match op {
                    MapOp::Unary(op) => expr.push(Inst::Unary(op, a), dtype),
                    MapOp::Binary(op) => expr.push(Inst::Binary(op, a, b), dtype),
                    MapOp::Compare(op) => expr.push(Inst::Compare(op, a, b), dtype),
                    MapOp::Where => expr.push(Inst::Where(a, b, c), dtype),
                    MapOp::Cast if expr.dtypes[a as usize] == node.dtype => a,
                    MapOp::Cast => expr.push(Inst::Cast(a), node.dtype),
                    MapOp::Copy => a,
                    MapOp::BinaryScalar(op) => {
                        let scalar = param(0, expr, tables);
                        expr.push(Inst::Binary(op, a, scalar), dtype)
                    }
                    MapOp::Affine => {
                        let factor = param(0, expr, tables);
                        let scaled = expr.push(Inst::Binary(BinaryOp::Mul, a, factor), dtype);
                        let term = param(1, expr, tables);
                        expr.push(Inst::Binary(BinaryOp::Add, scaled, term), dtype)
                    }
                }
            }
            // Only maps and constants are inlined or grown into epilogues.
            _ => expr.push(Inst::Acc(0), dtype),
        }
    }
}
