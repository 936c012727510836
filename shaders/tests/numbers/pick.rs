//! Elements by index: every dtype and width of ids, layouts, sizes that fill no word, ids that are out of range.

use super::{axes::*, harness::*};
use tallow_graph::{Backend, DType, Error, Kernel, kernel::PickKernel};

const IDS: [DType; 8] = [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];

#[test]
fn elements_by_index() {
    let mut noise = Noise(50);
    let plain = [DType::BF16, DType::F16, DType::F32, DType::F8E4M3, DType::F8E5M2];
    for (d, dtype) in IDS.into_iter().chain(plain).enumerate() {
        for (k, id) in IDS.into_iter().enumerate() {
            for (s, dims) in [[1i64, 7, 1], [3, 5, 7], [2, 1, 33], [1, 0, 4], [2, 130, 3]].into_iter().enumerate() {
                let rows = 11;
                let (source, which) =
                    (place([dims[0], rows, dims[2]], d + s), place(dims, if s == 3 { 0 } else { k + s }));
                let words: Vec<i64> =
                    [dims[0], dims[1], dims[2], rows].into_iter().chain(source.words).chain(which.words).collect();
                let elements = match dtype {
                    // Codes without NaN.
                    DType::F8E4M3 | DType::F8E5M2 => {
                        (0..source.elements).map(|_| (noise.bits() % 0x70) as u8).collect()
                    }
                    _ => noise.elements(dtype, source.elements),
                };
                let inputs = [Input::Plain(elements), Input::Plain(ids(&mut noise, id, rows, which.elements))];
                let before = vec![0x3c; dims.iter().product::<i64>() as usize * dtype.size_in_bytes()];
                let kernel = Kernel::Pick(PickKernel { dtype, ids: id });
                agree(&format!("pick {dtype} {id} {dims:?}"), &kernel, &inputs, &before, DType::U8, &words, EXACT);
            }
        }
    }
}

#[test]
fn a_bad_id_is_a_fault_that_names_it() {
    let Some(device) = own_device() else { return };
    let words = [1, 3, 1, 10, 0, 0, 1, 0, 0, 0, 1, 0];
    for (id, bad, told) in [
        (DType::U32, 10i64, Some("10")),
        (DType::U8, 200, Some("200")),
        (DType::I64, 77, Some("77")),
        (DType::I32, -1, None),
        (DType::I8, -5, None),
        (DType::I64, -1, None),
        (DType::U64, 1 << 32, None),
    ] {
        for dtype in [DType::F32, DType::U8, DType::I64] {
            let size = id.size_in_bytes();
            let which: Vec<u8> = [1i64, bad, 2].iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect();
            let kernel = Kernel::Pick(PickKernel { dtype, ids: id });
            let inputs = [Input::Plain(vec![1; 80]), Input::Plain(which)];
            assert!(!device.lower(&kernel, &words).is_empty());
            match run(&device, 0, &kernel, &inputs, &[vec![1; 24]], &words, &[]) {
                Err(Error::Fault { op, message }) => {
                    assert!(op.contains("pick") && message.contains(told.unwrap_or("")), "{op}: {message}");
                }
                other => panic!("{id} {bad}: {other:?}"),
            }
        }
    }
}
