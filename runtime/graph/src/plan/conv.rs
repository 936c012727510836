//! The recipe of a convolution: where its words come from. See [`crate::kernel::ConvKernel`] for their order.

use super::{
    collect::Collected,
    recipe::{Class, Misfit, Reads},
};
use crate::{Expr, View, kernel, locked::Token, node::Op};
use smallvec::SmallVec;

/// A convolution, with what it reads and its epilogue.
#[derive(Debug, Clone)]
pub(crate) struct ConvRecipe {
    pub head: u32,
    pub input: Reads,
    pub filter: Reads,
    pub operands: Vec<Reads>,
    pub epilogue: Expr,
}

impl ConvRecipe {
    /// Appends words and the layouts of the epilogue's operands.
    pub(crate) fn words(
        &self,
        c: &Collected,
        token: &Token,
        words: &mut Vec<i64>,
        class: &mut Class,
    ) -> Result<(), Misfit> {
        let node = &c.nodes[self.head as usize];
        let Op::Conv { spatial } = node.op else { return Err(Misfit::View) };
        let input = self.input.view(c, token).ok_or(Misfit::View)?;
        let filter = self.filter.view(c, token).ok_or(Misfit::View)?;
        let out = &node.shape;
        class.push(spatial);
        words.extend([out[0], out[1], input.shape[2], out[2]].map(|d| d as i64));
        for axis in 0..spatial as usize {
            words.extend([input.shape[3 + axis], filter.shape[3 + axis], out[3 + axis]].map(|d| d as i64));
            let geometry = node.scalars.get(4 * axis..4 * axis + 4).ok_or(Misfit::View)?;
            words.extend(geometry.iter().map(|s| s.to_i64()));
        }
        put(&input, words);
        put(&filter, words);
        for read in &self.operands {
            let view = read.view(c, token).and_then(|v| v.reshape(out)).ok_or(Misfit::View)?;
            let scalar = view.strides.iter().zip(out.iter()).all(|(&s, &d)| s == 0 || d == 1);
            class.push(match (view.is_dense(), scalar) {
                (true, _) => 0,
                (_, true) => 1,
                _ => 2,
            });
            put(&view, words);
        }
        Ok(())
    }

    /// The kernel, with the operands of its epilogue; `spatial` was the first of the class.
    pub(crate) fn kernel(&self, spatial: u8, operands: SmallVec<[kernel::Operand; 3]>) -> kernel::ConvKernel {
        let binding = |r: &Reads| (r.input.unwrap_or(0), r.dtype);
        kernel::ConvKernel {
            spatial,
            input: binding(&self.input),
            filter: binding(&self.filter),
            operands,
            epilogue: self.epilogue.clone(),
        }
    }
}

/// An operand's words. The stride of an axis of one element is never used: 0.
fn put(view: &View, words: &mut Vec<i64>) {
    words.push(view.offset as i64);
    words.extend(view.strides.iter().zip(view.shape.iter()).map(|(&s, &d)| if d == 1 { 0 } else { s as i64 }));
}
