//! The host with the crate's own library: that both agree on bindings, parameters, grids and the fault word. Whether
//! every kernel computes the right numbers is for the conformance tests.
#![cfg(not(target_arch = "wasm32"))]

mod device_support;

use device_support::*;
use smallvec::smallvec;
use std::sync::Arc;
use tallow_graph::{
    Backend, BinaryOp, DType, Error, Expr, Inst, Kernel,
    kernel::{GatherKernel, Layout, MapKernel, MapPart, Operand},
};
use tallow_wgpu::host::{Options, Tier};

/// out = a * b + scalar 0 over a linear nest.
fn multiply_add() -> Arc<Kernel> {
    let operand = |i| Operand { input: Some(i), dtype: DType::F32, layout: Layout::Linear };
    let mut expr = Expr::default();
    let a = expr.push(Inst::Load(0), DType::F32);
    let b = expr.push(Inst::Load(1), DType::F32);
    let c = expr.push(Inst::Param(0), DType::F32);
    let product = expr.push(Inst::Binary(BinaryOp::Mul, a, b), DType::F32);
    expr.push(Inst::Binary(BinaryOp::Add, product, c), DType::F32);
    Arc::new(Kernel::Map(MapKernel {
        parts: smallvec![MapPart {
            rank: 1,
            vector: false,
            operands: smallvec![operand(0), operand(1)],
            expr,
            output: Layout::Linear,
        }],
    }))
}

fn gather_rows() -> Arc<Kernel> {
    Arc::new(Kernel::Gather(GatherKernel { source: DType::F32, ids: DType::U32, output: DType::F32 }))
}

#[test]
fn a_map_and_a_gather_run_at_every_tier() {
    for tier in [Tier::T0, Tier::T1, Tier::T2, Tier::T3, Tier::T4] {
        let Some(backend) = open(Options { tier, ..Options::default() }) else { return };
        let n = 1001usize;
        let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let a = upload(&backend, &values);
        let ids = upload_words(&backend, &[5, 0, 6]);
        let product = backend.allocate(4 * n as u64).unwrap();
        let rows = backend.allocate(3 * 7 * 4).unwrap();
        let kernels = [multiply_add(), gather_rows()];
        for kernel in &kernels {
            assert_eq!(backend.lower(kernel, &[n as i64, 0, 1, 0, 1, 0, 1, 0, 0]).first().map(|i| i.id), Some(0));
        }
        let mut builder = Builder::default();
        builder
            .step(&kernels[0], &[0, 0], 1, None, &[n as i64, 0, 1, 0, 1, 0, 1], &[0.5])
            // 143 rows of 7.
            .step(&kernels[1], &[1, 2], 3, None, &[1, 3, 143, 7, 0, 1001, 7, 0, 1], &[]);
        builder.run(&backend, &[a, Arc::clone(&product), ids, Arc::clone(&rows)]).unwrap();
        let squares: Vec<f32> = values.iter().map(|x| x * x + 0.5).collect();
        assert_eq!(download(&backend, &product).unwrap(), squares, "{tier:?}");
        let expected: Vec<f32> = [5, 0, 6].iter().flat_map(|row| squares[row * 7..row * 7 + 7].to_vec()).collect();
        assert_eq!(download(&backend, &rows).unwrap(), expected, "{tier:?}");
    }
}

#[test]
fn a_gather_out_of_range_names_itself_and_the_index() {
    let Some(backend) = open(Options::default()) else { return };
    let source = upload(&backend, &[1.0, 2.0, 3.0, 4.0]);
    let ids = upload_words(&backend, &[1, 9]);
    let out = backend.allocate(4 * 4).unwrap();
    let mut builder = Builder::default();
    builder.step(&gather_rows(), &[0, 1], 2, None, &[1, 2, 2, 2, 0, 4, 2, 0, 1], &[]);
    builder.run(&backend, &[source, ids, Arc::clone(&out)]).unwrap();
    match download(&backend, &out) {
        Err(Error::Fault { op, message }) => {
            assert_eq!(op, "gather");
            assert!(message.contains('9'), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(download(&backend, &out).unwrap(), [3.0, 4.0, 0.0, 0.0]);
}
