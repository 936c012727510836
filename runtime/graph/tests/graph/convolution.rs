//! Convolutions: fused epilogues, the decomposition, replay, and what is refused.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{
    BinaryOp, DType, Edge, Engine, Kernel, Node, Options, Result, Shape, UnaryOp, View,
    kernel::ConvKernel,
    ops::{self, ConvAxis},
    reference::Reference,
};

const AXIS: ConvAxis = ConvAxis { out: 4, stride: 2, low: 1, dilation: 1, input_dilation: 1 };

fn leaf(engine: &Arc<Engine>, dims: &[usize], seed: u64) -> Edge {
    let mut rng = Rng(seed);
    let shape = Shape::new(dims);
    let bytes: Vec<u8> = (0..shape.elem_count()).flat_map(|_| (rng.unit() as f32).to_le_bytes()).collect();
    Edge::from(&engine.upload(DType::F32, shape, &bytes).unwrap())
}

/// relu(conv(x) + bias), the bias one number an output channel.
fn biased(engine: &Arc<Engine>, samples: usize) -> Result<Arc<Node>> {
    let x = leaf(engine, &[samples, 2, 3, 8, 8], 1);
    let filter = leaf(engine, &[2, 4, 3, 3, 3], 2);
    let bias = leaf(engine, &[8, 1, 1], 3);
    let y = ops::convolution(x, filter, &[AXIS, AXIS])?;
    let y = Edge { view: View::contiguous(Shape::new(&[samples, 8, 4, 4])), node: y };
    ops::unary(UnaryOp::Relu, Edge::from(&ops::binary(BinaryOp::Add, y, bias)?))
}

fn floats(node: &Arc<Node>) -> Vec<f32> {
    let bytes = block_on(node.engine().read(node)).unwrap();
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?}\n{b:?}");
}

#[test]
fn bias_and_activation_are_computed_with_the_sums() {
    let (engine, reference) = engine(options());
    let want = floats(&biased(&engine, 2).unwrap());
    let programs = reference.take_programs();
    assert_eq!(programs.len(), 1);
    assert!(matches!(&*programs[0].steps[0].kernel, Kernel::Conv(ConvKernel { spatial: 2, .. })));
    assert_eq!(programs[0].steps.len(), 1);
    // A device without such epilogues, one without the kernel, and no fusion at all.
    let refusing = Arc::new(Reference::refusing(|k| matches!(k, Kernel::Conv(k) if !k.epilogue.is_identity())));
    close(&floats(&biased(&Engine::new(refusing.clone(), options()), 2).unwrap()), &want);
    assert_eq!(refusing.take_programs()[0].steps.len(), 2);
    let other = |options: Options| Engine::new(Arc::new(Reference::default()), options);
    close(&floats(&biased(&other(Options { decompose: true, ..options() }), 2).unwrap()), &want);
    close(&floats(&biased(&other(Options { fuse: false, ..options() }), 2).unwrap()), &want);
}

#[test]
fn another_batch_is_replayed() {
    let (engine, _) = engine(options());
    floats(&biased(&engine, 2).unwrap());
    let planned = engine.plan_counters().planned;
    floats(&biased(&engine, 5).unwrap());
    assert_eq!(engine.plan_counters().planned, planned);
}

#[test]
fn what_is_no_convolution_is_refused() {
    let (engine, _) = engine(options());
    let x = || leaf(&engine, &[1, 2, 3, 8], 1);
    let filter = |dims: &[usize]| leaf(&engine, dims, 2);
    let error = |filter: Edge, axes: &[ConvAxis]| ops::convolution(x(), filter, axes).err().unwrap().to_string();
    assert!(error(filter(&[2, 4, 2, 3]), &[AXIS]).contains("groups or channels differ"));
    assert!(error(filter(&[2, 4, 3, 3]), &[AXIS, AXIS]).contains("spatial axes"));
    assert!(error(filter(&[2, 4, 3, 3]), &[]).contains("spatial axes"));
    assert!(error(filter(&[2, 4, 3, 3]), &[ConvAxis { stride: 0, ..AXIS }]).contains("1 or more"));
    assert!(error(filter(&[2, 4, 3, 3]), &[ConvAxis { stride: usize::MAX, ..AXIS }]).contains("addressed"));
    assert!(error(filter(&[2, 4, 3, 3]), &[ConvAxis { low: isize::MIN, ..AXIS }]).contains("addressed"));
}
