//! Values from nothing: constants, ranges, random numbers; and values from another device.

use crate::{DType, Edge, Engine, Error, Node, Op, Result, Scalar, Shape, kernel::Distribution};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Whether values of `dtype` can be made on the device; packed ones come from files only.
fn check_dtype(op: &'static str, engine: &Engine, dtype: DType) -> Result<()> {
    if dtype.is_quantized() {
        return Err(Error::op(op, format!("{dtype} is a packed type: packed weights come from files")));
    }
    engine.backend().check_dtype(dtype)
}

/// `value` everywhere.
pub fn full(engine: &Arc<Engine>, shape: Shape, dtype: DType, value: Scalar) -> Result<Arc<Node>> {
    check_dtype("full", engine, dtype)?;
    engine.node(Op::Fill, dtype, shape, SmallVec::new(), smallvec![value])
}

/// `start + step * i` for i in 0..n.
pub fn arange(engine: &Arc<Engine>, n: usize, dtype: DType, start: Scalar, step: Scalar) -> Result<Arc<Node>> {
    check_dtype("arange", engine, dtype)?;
    engine.node(Op::Iota, dtype, Shape::new(&[n]), SmallVec::new(), smallvec![start, step])
}

/// Random numbers of a floating-point dtype. `key` and `counter` name the place in the stream: equal places give equal
/// numbers on every device (uniform ones bit by bit).
pub fn random(
    engine: &Arc<Engine>,
    shape: Shape,
    dtype: DType,
    distribution: Distribution,
    params: [f64; 2],
    key: u64,
    counter: u64,
) -> Result<Arc<Node>> {
    engine.backend().check_dtype(dtype)?;
    if !dtype.is_float() {
        return Err(Error::op("rand", format!("random numbers are floating-point, not {dtype}")));
    }
    let words = [key & 0xffff_ffff, key >> 32, counter & 0xffff_ffff, counter >> 32];
    let scalars = params.into_iter().map(Scalar::F).chain(words.into_iter().map(Scalar::U)).collect();
    engine.node(Op::Random(distribution), dtype, shape, SmallVec::new(), scalars)
}

/// The whole value of a node of another engine.
pub fn transfer(engine: &Arc<Engine>, source: &Arc<Node>) -> Result<Arc<Node>> {
    if source.dtype.is_quantized() {
        return Err(Error::op("to_device", "packed weights do not move: load the weight again on that device"));
    }
    engine.backend().check_dtype(source.dtype)?;
    engine.node(Op::Transfer, source.dtype, source.shape.clone(), smallvec![Edge::from(source)], SmallVec::new())
}
