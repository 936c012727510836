//! Gathers with their faults, random numbers, and what the backend says of itself.

mod backend_common;

use backend_common::*;
use tallow_cpu::{CpuBackend, quant};
use tallow_graph::kernel::{Distribution, GatherKernel, RandomKernel};
use tallow_graph::{Backend, DType, Element, Error, Fault, Kernel, Scalar};

#[test]
fn rows_of_every_dtype_by_every_kind_of_index() {
    let mut noise = Noise(41);
    let backend = CpuBackend::with_threads(2).unwrap();
    let ids = [3i64, 0, 6, 6, 2];
    let kinds = [
        (DType::U8, bytes(&ids.map(|i| i as u8))),
        (DType::U32, bytes(&ids.map(|i| i as u32))),
        (DType::I32, bytes(&ids.map(|i| i as i32))),
        (DType::I64, bytes(&ids)),
    ];
    for source in DType::PLAIN {
        for (kind, index) in &kinds {
            let size = source.size_in_bytes();
            let x: Vec<u8> = (0..2 * 8 * 10 * size).map(|_| noise.bits() as u8).collect();
            let kernel = Kernel::Gather(GatherKernel { source, ids: *kind, output: source });
            // Rows 1 to 7 of [2, 8, 10], columns 2 to 9; ids backwards.
            let words = [2, 5, 7, 7, 12, 80, 10, 4, -1];
            let got = run(&backend, kernel, &[x.clone(), index.clone()], &[2 * 5 * 7 * size], &words, &[]);
            let mut want = vec![];
            for o in 0..2 {
                for i in 0..5 {
                    let at = 12 + o * 80 + ids[4 - i] as usize * 10;
                    want.extend(&x[at * size..(at + 7) * size]);
                }
            }
            assert_eq!(got[0], want, "{source} by {kind}");
        }
    }
}

#[test]
fn quantized_rows() {
    let mut noise = Noise(42);
    let backend = CpuBackend::with_threads(1).unwrap();
    for dtype in DType::QUANTIZED {
        let (k, row) = (512, dtype.bytes_for(512).unwrap());
        let mut packed = vec![];
        for _ in 0..10 {
            quant::quantize_row(dtype, &noise.floats(k), &mut packed).unwrap();
        }
        let kernel = Kernel::Gather(GatherKernel { source: dtype, ids: DType::U32, output: DType::F32 });
        // From row 2 on.
        let words = [1, 3, 8, 512, 1024, 0, 512, 0, 1];
        let got = run(&backend, kernel, &[packed.clone(), bytes(&[7u32, 0, 5])], &[3 * k * 4], &words, &[]);
        for (got, id) in values::<f32>(&got[0]).chunks(k).zip([9, 2, 7]) {
            let mut want = vec![0.0; k];
            quant::dequantize_row(dtype, &packed[id * row..(id + 1) * row], &mut want).unwrap();
            assert_eq!(got, want);
        }
    }
}

#[test]
fn an_index_out_of_range_is_a_fault_of_its_run() {
    let backend = CpuBackend::with_threads(2).unwrap();
    for (kind, ids, bad) in [
        (DType::U32, bytes(&[1u32, 4, 9]), "4"),
        (DType::I64, bytes(&[0i64, 1, -1]), "-1"),
        (DType::U64, bytes(&[u64::MAX - 1, 1, 1]), "18446744073709551614"),
    ] {
        let kernel = Kernel::Gather(GatherKernel { source: DType::F32, ids: kind, output: DType::F32 });
        let source = buffer(&backend, &bytes(&[1f32, 2.0, 3.0, 4.0]));
        let out = buffer(&backend, &[0xa5; 12]);
        let single = Single::new(
            kernel,
            vec![source, buffer(&backend, &ids)],
            vec![out.clone()],
            vec![1, 3, 4, 1, 0, 4, 1, 0, 1],
            vec![],
        );
        let prepared = backend.prepare(&single.program).unwrap();
        let faults = backend.submit(&*prepared, single.run()).unwrap();
        let [Fault { step: 0, op, message }] = &faults[..] else { panic!("{faults:?}") };
        assert!(op == "gather" && message.contains(bad) && message.contains("0..4"), "{op}: {message}");
        // The rows that were out of range are zeros.
        let got = values::<f32>(&now(backend.read(&out, 0..12)).unwrap());
        assert!(got.contains(&0.0) && got.iter().all(|x| [0.0, 1.0, 2.0].contains(x)), "{got:?}");
    }
}

/// Philox 4x32-10 as its paper writes it.
fn philox(mut key: [u32; 2], mut c: [u32; 4]) -> [u32; 4] {
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

#[test]
fn random_numbers_are_the_documented_ones() {
    let n = 20_003;
    let words = [n as i64, 7, 0xffff_ffff, 5, 6];
    let scalars = [Scalar::F(-1.0), Scalar::F(3.0)];
    let word = |i: usize| philox([7, 0xffff_ffff], [(i / 4) as u32, 0, 5, 6]);
    for dtype in [DType::F32, DType::F64, DType::F16] {
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            let kernel = || Kernel::Random(RandomKernel { distribution, dtype });
            let size = n * dtype.size_in_bytes();
            let one = CpuBackend::with_threads(1).unwrap();
            let got = run(&one, kernel(), &[], &[size], &words, &scalars);
            let three = CpuBackend::with_threads(3).unwrap();
            assert_eq!(run(&three, kernel(), &[], &[size], &words, &scalars), got);
            let got = as_f64(dtype, &got[0]);
            let tolerance = if dtype == DType::F16 { 1e-3 } else { 1e-6 };
            for (i, &got) in got.iter().enumerate() {
                let w = word(i);
                let unit = |w: u32| f64::from(w >> 8) / 16_777_216.0;
                let want = match distribution {
                    Distribution::Uniform => -1.0 + 4.0 * unit(w[i % 4]),
                    Distribution::Normal => {
                        let (a, b) = (w[i % 4 / 2 * 2], w[i % 4 / 2 * 2 + 1]);
                        let r = (-2.0 * ((f64::from(a >> 8) + 1.0) / 16_777_216.0).ln()).sqrt();
                        let angle = std::f64::consts::TAU * unit(b);
                        -1.0 + 3.0 * r * if i % 2 == 0 { angle.cos() } else { angle.sin() }
                    }
                };
                assert!((got - want).abs() < 20.0 * tolerance, "{dtype} {distribution:?} {i}: {got} {want}");
            }
            let mean = got.iter().sum::<f64>() / n as f64;
            let expected = if distribution == Distribution::Uniform { 1.0 } else { -1.0 };
            assert!((mean - expected).abs() < 0.1, "{mean}");
        }
    }
}

#[test]
fn the_device_describes_itself() {
    let backend = CpuBackend::with_threads(3).unwrap();
    let info = backend.info();
    assert_eq!((info.backend, info.software, info.can_block), ("cpu", false, true));
    assert!(info.name.contains("3 threads"), "{}", info.name);
    assert!(DType::PLAIN.into_iter().chain(DType::QUANTIZED).all(|d| backend.check_dtype(d).is_ok()));
    let before = backend.counters();
    let a = backend.allocate(100).unwrap();
    assert_eq!(backend.counters().buffers, before.buffers + 1);
    backend.write(&a, 0, &bytes(&[1.5f32])).unwrap();
    assert_eq!(f32::take(&now(backend.read(&a, 0..4)).unwrap()), 1.5);
    assert!(now(backend.read(&a, 0..101)).is_err());
    assert!(backend.write(&a, 98, &[0; 4]).is_err());
    assert!(matches!(backend.allocate(1 << 60), Err(Error::OutOfMemory { .. })));
    drop(a);
    backend.trim();
    assert_eq!(backend.counters().bytes, 0);
}
