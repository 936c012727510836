//! Elements by index, scatter, sort, scan, and users' kernels.

use crate::common::*;
use std::sync::Arc;
use tallow_graph::{
    DType, Edge, Engine, Error, Shape,
    kernel::{Custom, ScanOp, ScatterOp},
    ops,
};

fn leaf(engine: &Arc<Engine>, dtype: DType, dims: &[usize], values: &[f64]) -> T {
    T::new(engine, dtype, dims, values.to_vec())
}

fn edge(t: &T) -> Edge {
    t.edge.clone()
}

fn got(node: Result<Arc<tallow_graph::Node>, Error>) -> Vec<f64> {
    read(&node.expect("a node"))
}

#[test]
fn elements_are_picked_along_any_axis_of_any_view() {
    let (engine, _) = engine(options());
    let x = leaf(&engine, DType::F32, &[2, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]);
    let ids = leaf(&engine, DType::I64, &[2, 2], &[2.0, 0.0, 1.0, 1.0]);
    assert_eq!(got(ops::pick(edge(&x), edge(&ids), 1)), [2.0, 0.0, 11.0, 11.0]);
    let ids = leaf(&engine, DType::U8, &[1, 3], &[1.0, 0.0, 1.0]);
    assert_eq!(got(ops::pick(edge(&x), edge(&ids), 0)), [10.0, 1.0, 12.0]);
    // Through a transposed and flipped source, and repeated ids.
    let turned = x.permute(&[1, 0]).flip(0);
    let ids = leaf(&engine, DType::U32, &[1, 1], &[2.0]).broadcast(&[2, 2]);
    assert_eq!(got(ops::pick(edge(&turned), edge(&ids), 0)), [0.0, 10.0, 0.0, 10.0]);
    assert!(ops::pick(edge(&x), edge(&ids), 1).is_ok());
    assert!(ops::pick(edge(&x), edge(&ids), 2).is_err());
    assert!(ops::pick(edge(&x), edge(&x), 1).is_err(), "ids are integers");
}

#[test]
fn an_id_out_of_range_is_a_fault() {
    let (engine, _) = engine(options());
    let x = leaf(&engine, DType::F32, &[3], &[1.0, 2.0, 3.0]);
    for bad in [3.0, -1.0] {
        let ids = leaf(&engine, DType::I32, &[2], &[0.0, bad]);
        let picked = ops::pick(edge(&x), edge(&ids), 0).expect("a node");
        assert!(block_on(engine.read(&picked)).is_err());
        let scattered = ops::scatter(ScatterOp::Add, edge(&x), edge(&ids), edge(&x.narrow(0, 0, 2)), 0);
        assert!(block_on(engine.read(&scattered.expect("a node"))).is_err());
        x.check(0.0);
    }
}

#[test]
fn a_scatter_goes_in_order_and_keeps_the_old_version() {
    let (engine, _) = engine(options());
    let x = leaf(&engine, DType::F32, &[4], &[1.0, 2.0, 3.0, 4.0]);
    let ids = leaf(&engine, DType::U32, &[5], &[3.0, 1.0, 3.0, 1.0, 0.0]);
    let y = leaf(&engine, DType::F32, &[5], &[10.0, 20.0, 30.0, -40.0, 50.0]);
    let run = |op| got(ops::scatter(op, edge(&x), edge(&ids), edge(&y), 0));
    assert_eq!(run(ScatterOp::Add), [51.0, -18.0, 3.0, 44.0]);
    assert_eq!(run(ScatterOp::Set), [50.0, -40.0, 3.0, 30.0]);
    assert_eq!(run(ScatterOp::Max), [50.0, 20.0, 3.0, 30.0]);
    assert_eq!(run(ScatterOp::Min), [1.0, -40.0, 3.0, 4.0]);
    x.check(0.0);
}

#[test]
fn a_scatter_of_small_types_is_exact_where_the_wide_one_is() {
    let (engine, _) = engine(options());
    // 2048 + 1 + 1 in f16: one by one it would stay 2048.
    let x = leaf(&engine, DType::F16, &[1], &[2048.0]);
    let ids = leaf(&engine, DType::U8, &[2], &[0.0, 0.0]);
    let ones = leaf(&engine, DType::F16, &[2], &[1.0, 1.0]);
    assert_eq!(got(ops::scatter(ScatterOp::Add, edge(&x), edge(&ids), edge(&ones), 0)), [2050.0]);
    let x = leaf(&engine, DType::U8, &[1], &[255.0]);
    let ones = leaf(&engine, DType::U8, &[2], &[1.0, 1.0]);
    assert_eq!(got(ops::scatter(ScatterOp::Add, edge(&x), edge(&ids), edge(&ones), 0)), [1.0], "wraps");
}

#[test]
fn a_scatter_is_in_place_when_nobody_holds_the_old_version() {
    let (engine, reference) = engine(options());
    let x = leaf(&engine, DType::F32, &[1, 4, 1], &[0.0; 4]);
    let ids = leaf(&engine, DType::U32, &[1, 2, 1], &[3.0, 3.0]);
    let y = leaf(&engine, DType::F32, &[1, 2, 1], &[1.0, 2.0]);
    let place = Arc::as_ptr(&engine.buffer(x.node()).expect("a value"));
    let z = ops::scatter(ScatterOp::Add, edge(&x), edge(&ids), edge(&y), 1).expect("a node");
    drop(x);
    assert_eq!(read(&z), [0.0, 0.0, 0.0, 3.0]);
    assert!(std::ptr::addr_eq(place, Arc::as_ptr(&engine.buffer(&z).expect("a value"))), "in place");
    let programs = reference.take_programs();
    assert_eq!(programs.iter().map(|p| p.steps.len()).sum::<usize>(), 1);
    // Replayed with other ids.
    let ids = leaf(&engine, DType::U32, &[1, 2, 1], &[0.0, 1.0]);
    let next = ops::scatter(ScatterOp::Add, Edge::from(&z), edge(&ids), edge(&y), 1).expect("a node");
    drop(z);
    assert_eq!(read(&next), [1.0, 2.0, 0.0, 3.0]);
    assert_eq!(engine.plan_counters().planned, 1);
}

#[test]
fn sorting_is_stable_and_puts_nan_last() {
    let (engine, _) = engine(options());
    let nan = f64::NAN;
    let x = leaf(&engine, DType::F32, &[6], &[2.0, nan, 1.0, 2.0, -1.0, 1.0]);
    assert_eq!(got(ops::arg_sort(edge(&x), 0, false)), [4.0, 2.0, 5.0, 0.0, 3.0, 1.0]);
    assert_eq!(got(ops::arg_sort(edge(&x), 0, true)), [1.0, 0.0, 3.0, 2.0, 5.0, 4.0]);
    let x = leaf(&engine, DType::I64, &[2, 3], &[3.0, -1.0, 2.0, 0.0, 5.0, 1.0]);
    assert_eq!(got(ops::arg_sort(edge(&x), 1, false)), [1.0, 2.0, 0.0, 0.0, 2.0, 1.0]);
    assert_eq!(got(ops::arg_sort(edge(&x), 0, false)), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
}

#[test]
fn a_scan_runs_along_any_axis_of_any_view() {
    let (engine, _) = engine(options());
    let x = leaf(&engine, DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(got(ops::scan(ScanOp::Sum, edge(&x), 1)), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    assert_eq!(got(ops::scan(ScanOp::Prod, edge(&x), 0)), [1.0, 2.0, 3.0, 4.0, 10.0, 18.0]);
    assert_eq!(got(ops::scan(ScanOp::Sum, edge(&x.flip(1)), 1)), [3.0, 5.0, 6.0, 6.0, 11.0, 15.0]);
    assert_eq!(got(ops::scan(ScanOp::Max, edge(&x.permute(&[1, 0])), 0)), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let bytes = leaf(&engine, DType::U8, &[3], &[200.0, 100.0, 1.0]);
    assert_eq!(got(ops::scan(ScanOp::Sum, edge(&bytes), 0)), [200.0, 44.0, 45.0], "wraps");
    let nothing = leaf(&engine, DType::F32, &[0, 2], &[]);
    assert!(got(ops::scan(ScanOp::Sum, edge(&nothing), 0)).is_empty());
}

fn scaled_sum() -> Arc<Custom> {
    Arc::new(Custom::new("scaled_sum").with_cpu(Box::new(|inputs, scalars, out| {
        let (a, b) = (inputs[0].to_vec::<f32>()?, inputs[1].to_vec::<f32>()?);
        let factor = *scalars.first().ok_or_else(|| Error::op("scaled_sum", "needs a scalar"))? as f32;
        if a.len() != b.len() {
            return Err(Error::op("scaled_sum", "needs operands of one size"));
        }
        out.copy_from::<f32>(&a.iter().zip(&b).map(|(a, b)| (a + b) * factor).collect::<Vec<_>>())
    })))
}

#[test]
fn a_users_kernel_is_planned_like_any_other() {
    let (engine, _) = engine(options());
    let kernel = scaled_sum();
    let x = leaf(&engine, DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let shape = Shape::new(&[2, 2]);
    for (round, factor) in [2.0, 3.0].into_iter().enumerate() {
        // Its operands are a pending map, and a view that must be copied.
        let doubled = x.affine(2.0, 0.0);
        let edges = [edge(&doubled), edge(&x.permute(&[1, 0]))];
        let y = ops::custom(&kernel, &edges, &[factor], DType::F32, shape.clone()).expect("a node");
        let z = ops::affine(Edge::from(&y), 1.0.into(), 1.0.into()).expect("a node");
        let want: Vec<f64> = [3.0, 7.0, 8.0, 12.0].iter().map(|v| v * factor + 1.0).collect();
        assert_eq!(read(&z), want);
        assert_eq!(engine.plan_counters().planned, 1, "round {round}: a scalar is data");
    }
    let other = scaled_sum();
    let y = ops::custom(&other, &[edge(&x), edge(&x)], &[1.0], DType::F32, shape.clone()).expect("a node");
    assert_eq!(read(&y), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn a_users_kernel_that_fails_or_has_no_source_is_an_error() {
    let (engine, _) = engine(options());
    let x = leaf(&engine, DType::F32, &[2], &[1.0, 2.0]);
    let y = ops::custom(&scaled_sum(), &[edge(&x), edge(&x)], &[], DType::F32, Shape::new(&[2])).expect("a node");
    let error = block_on(engine.read(&y)).expect_err("the closure's error").to_string();
    assert!(error.contains("scaled_sum"), "{error}");
    let nothing = Arc::new(Custom::new("nothing"));
    let error = ops::custom(&nothing, &[edge(&x)], &[], DType::F32, Shape::new(&[2])).expect_err("no source");
    assert!(error.to_string().contains("'nothing' has nothing"), "{error}");
}
