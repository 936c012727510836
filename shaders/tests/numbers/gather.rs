//! Rows by index: every dtype, quantized sources, ids that are out of range.

use super::{contract::dequantized, harness::*};
use tallow_graph::{Backend, DType, Error, Kernel, kernel::GatherKernel};

fn ids(dtype: DType, values: &[i64]) -> Input {
    let mut bytes = Vec::new();
    for &value in values {
        match dtype {
            DType::I64 => bytes.extend(value.to_le_bytes()),
            DType::I32 => bytes.extend((value as i32).to_le_bytes()),
            DType::U32 => bytes.extend((value as u32).to_le_bytes()),
            _ => bytes.push(value as u8),
        }
    }
    Input::Plain(bytes)
}

#[test]
fn rows_by_index() {
    let mut noise = Noise(40);
    let which = [3i64, 0, 9, 3, 7];
    for id in [DType::U32, DType::I64, DType::U8, DType::I32] {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::U8, DType::I16, DType::I64, DType::U32] {
            for (outer, inner) in [(1i64, 8i64), (3, 5), (1, 1)] {
                let kernel = Kernel::Gather(GatherKernel { source: dtype, ids: id, output: dtype });
                let stride = inner + 2;
                let source = Input::Plain(noise.elements(dtype, (outer * 10 * stride + 1) as usize));
                let words = [outer, 5, 10, inner, 1, 10 * stride, stride, 0, 1];
                let inputs = [source, ids(id, &which)];
                let n = (outer * 5 * inner) as usize;
                check(
                    &format!("gather {dtype} {id} {outer} {inner}"),
                    &kernel,
                    &inputs,
                    &[(dtype, n)],
                    &words,
                    &[],
                    EXACT,
                );
            }
        }
        for dtype in DType::QUANTIZED {
            let cols = 2 * dtype.block_elements();
            let kernel = Kernel::Gather(GatherKernel { source: dtype, ids: id, output: DType::F32 });
            let source = Input::Packed(dtype, cols, noise.blocks(dtype, 12 * cols));
            let c = cols as i64;
            let words = [1, 5, 10, c, 2 * c, 0, c, 0, 1];
            let inputs = [source, ids(id, &which)];
            let n = 5 * cols;
            if matches!(dtype, DType::Q4K | DType::Q6K) {
                let Some(device) = device() else { return };
                let plain = &dequantized(&inputs[..1])[0];
                let want: Vec<u8> = which
                    .iter()
                    .flat_map(|&row| plain[(row as usize + 2) * cols..(row as usize + 3) * cols].to_vec())
                    .flat_map(f32::to_le_bytes)
                    .collect();
                check_against(
                    device,
                    &format!("gather {dtype}"),
                    &kernel,
                    &inputs,
                    &[(DType::F32, n)],
                    &words,
                    &[],
                    &[want],
                    relative(1e-6, 1e-7),
                );
            } else {
                check(
                    &format!("gather {dtype}"),
                    &kernel,
                    &inputs,
                    &[(DType::F32, n)],
                    &words,
                    &[],
                    relative(1e-6, 1e-7),
                );
            }
        }
    }
}

#[test]
fn a_bad_id_is_a_fault_that_names_it() {
    // A device of its own: a fault goes to whoever reads next.
    let Some(index) = tallow_wgpu::adapters_blocking().len().checked_sub(1) else { return };
    let device = tallow_wgpu::WgpuBackend::open_blocking(index, tallow_wgpu::Options::default()).unwrap();
    for (id, values, told) in [(DType::U32, [1i64, 10, 2], "10"), (DType::I64, [1, 77, 2], "77")] {
        let kernel = Kernel::Gather(GatherKernel { source: DType::F32, ids: id, output: DType::F32 });
        let words = [1, 3, 10, 4, 0, 0, 4, 0, 1];
        let inputs = [Input::Plain(vec![0; 160]), ids(id, &values)];
        assert!(!device.lower(&kernel, &words).is_empty());
        let result = run(&device, 0, &kernel, &inputs, &[vec![1; 48]], &words, &[]);
        match result {
            Err(Error::Fault { op, message }) => {
                assert!(op.contains("gather") && message.contains(told), "{op}: {message}");
            }
            other => panic!("{other:?}"),
        }
    }
    for (id, values) in [(DType::I32, [1i64, -1, 2]), (DType::I64, [1, -1, 2]), (DType::I64, [1, 1 << 32, 2])] {
        let kernel = Kernel::Gather(GatherKernel { source: DType::F32, ids: id, output: DType::F32 });
        let words = [1, 3, 10, 4, 0, 0, 4, 0, 1];
        let inputs = [Input::Plain(vec![0; 160]), ids(id, &values)];
        let result = run(&device, 0, &kernel, &inputs, &[vec![1; 48]], &words, &[]);
        assert!(matches!(result, Err(Error::Fault { .. })), "{result:?}");
    }
}
