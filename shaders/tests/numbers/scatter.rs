//! Elements written by index: every operation and dtype, in columns and sorted, with many writes to one place, and with
//! order that matters.

use super::{axes::*, harness::*};
use tallow_graph::{
    Backend, DType, Error, Kernel,
    kernel::{ScatterKernel, ScatterOp},
};

const OPS: [ScatterOp; 4] = [ScatterOp::Set, ScatterOp::Add, ScatterOp::Max, ScatterOp::Min];

fn words(dims: [i64; 3], rows: i64, which: &Place, source: &Place) -> Vec<i64> {
    [dims[0], dims[1], dims[2], rows].into_iter().chain(which.words).chain(source.words).collect()
}

#[test]
fn elements_written_by_index() {
    let mut noise = Noise(60);
    for (o, op) in OPS.into_iter().enumerate() {
        for (d, dtype) in WIDE.into_iter().enumerate() {
            for (s, (dims, rows, id)) in [
                ([1i64, 7, 1], 5i64, DType::U32),
                ([3, 40, 7], 6, DType::I64),
                ([2, 1, 33], 3, DType::U8),
                ([1, 0, 4], 2, DType::I32),
                ([1, 5000, 1], 300, DType::U32),
                ([1, 3000, 2], 1, DType::I16),
                ([70, 2, 40], 9, DType::U64),
                ([2, 1030, 1], 2000, DType::I32),
            ]
            .into_iter()
            .enumerate()
            {
                let kind = if dims[1] == 0 { 0 } else { o + d + s };
                let (which, source) = (place(dims, kind), place(dims, kind / 2));
                // Sums of floats: infinities would hide the rest.
                let elements = match (dtype, op) {
                    (DType::F32, ScatterOp::Add) => noise.elements(dtype, source.elements),
                    _ => values(&mut noise, dtype, source.elements),
                };
                let inputs = [Input::Plain(ids(&mut noise, id, rows, which.elements)), Input::Plain(elements)];
                let before = noise.elements(dtype, (dims[0] * rows * dims[2]) as usize);
                let kernel = Kernel::Scatter(ScatterKernel { op, dtype, ids: id });
                // Devices may flush subnormal numbers.
                let tolerance = relative(0.0, if op == ScatterOp::Add { 2e-4 } else { 1e-37 });
                let name = format!("scatter {op:?} {dtype} {id} {dims:?}");
                agree(&name, &kernel, &inputs, &before, dtype, &words(dims, rows, &which, &source), tolerance);
            }
        }
    }
}

/// f32 sums in the order of i, exactly: both ways must give what a loop gives, bit by bit.
#[test]
fn sums_are_in_order() {
    let Some(device) = device() else { return };
    let mut noise = Noise(61);
    let (n, rows) = (4000usize, 7usize);
    let source: Vec<f32> = (0..n).map(|_| (noise.float() * 10f64.powi((noise.bits() % 9) as i32)) as f32).collect();
    let which: Vec<u32> = (0..n).map(|_| (noise.bits() % rows as u64) as u32).collect();
    let mut want = vec![0.25f32; rows];
    for (&id, &value) in which.iter().zip(&source) {
        want[id as usize] += value;
    }
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let inputs = [Input::Plain(which.iter().flat_map(|v| v.to_le_bytes()).collect()), Input::Plain(bytes(&source))];
    let kernel = Kernel::Scatter(ScatterKernel { op: ScatterOp::Add, dtype: DType::F32, ids: DType::U32 });
    let words = [1, n as i64, 1, rows as i64, 0, 0, 1, 0, 0, 0, 1, 0];
    let implementations = device.lower(&kernel, &words);
    assert_eq!(implementations.len(), 2);
    for implementation in implementations {
        let before = [bytes(&vec![0.25f32; rows])];
        let got = run(device, implementation.id, &kernel, &inputs, &before, &words, &[]).unwrap();
        assert_eq!(got[0], bytes(&want), "#{}", implementation.id);
    }
}

#[test]
fn a_bad_id_is_a_fault_and_writes_nothing() {
    let Some(device) = own_device() else { return };
    let words = [1, 3, 1, 10, 0, 0, 1, 0, 0, 0, 1, 0];
    for (id, bad) in [(DType::U32, 10i64), (DType::I32, -1), (DType::I64, 1 << 32), (DType::I8, -3)] {
        let size = id.size_in_bytes();
        let which: Vec<u8> = [1i64, bad, 2].iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect();
        let kernel = Kernel::Scatter(ScatterKernel { op: ScatterOp::Add, dtype: DType::I32, ids: id });
        let source: Vec<u8> = [5i32, 6, 7].iter().flat_map(|v| v.to_le_bytes()).collect();
        for implementation in device.lower(&kernel, &words) {
            let inputs = [Input::Plain(which.clone()), Input::Plain(source.clone())];
            match run(&device, implementation.id, &kernel, &inputs, &[vec![0; 40]], &words, &[]) {
                Err(Error::Fault { op, message }) => {
                    assert!(op.contains("scatter"), "{op}: {message}");
                    assert!(bad != 10 || message.contains("10"), "{message}");
                }
                other => panic!("{id} {bad}: {other:?}"),
            }
        }
    }
}

/// A million writes into one axis: what each way costs, and that sorting is chosen on a GPU.
#[test]
fn a_long_axis_is_sorted() {
    let mut noise = Noise(62);
    let (n, rows) = (1 << 18, 1 << 16);
    let dims = [1, n, 1];
    let (which, source) = (place(dims, 0), place(dims, 0));
    let inputs = [
        Input::Plain(ids(&mut noise, DType::U32, rows, which.elements)),
        Input::Plain(values(&mut noise, DType::I32, source.elements)),
    ];
    let before = noise.elements(DType::I32, rows as usize);
    let kernel = Kernel::Scatter(ScatterKernel { op: ScatterOp::Add, dtype: DType::I32, ids: DType::U32 });
    let words = words(dims, rows, &which, &source);
    agree("scatter of a long axis", &kernel, &inputs, &before, DType::I32, &words, EXACT);
    let Some(device) = device() else { return };
    let target = tallow_wgpu::library::Target { software: false, ..device.target().clone() };
    let cheapest = |words: &[i64]| {
        let all = tallow_wgpu::library::implementations(&kernel, words, &target);
        all.iter().min_by(|a, b| a.cost.total_cmp(&b.cost)).map(|i| i.id)
    };
    assert_eq!(cheapest(&words), Some(1));
    assert_eq!(cheapest(&[64, 10, 1024, 100, 0, 10240, 1024, 1, 0, 10240, 1024, 1]), Some(0));
}
