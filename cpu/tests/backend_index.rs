//! Elements by index, scatter, sort, scan and users' closures against the reference, and integers under the new operations.

mod backend_common;

use backend_common::*;
use std::sync::Arc;
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{
    Custom, CustomKernel, Layout, MapKernel, MapPart, PickKernel, ScanKernel, ScanOp, ScatterKernel, ScatterOp,
    SortKernel,
};
use tallow_graph::{Backend, BinaryOp, DType, Error, Inst, Kernel, Scalar};

const IDS: [DType; 8] = [DType::U8, DType::I8, DType::U16, DType::I16, DType::U32, DType::I32, DType::U64, DType::I64];
const PICKED: [DType; 6] = [DType::U8, DType::I16, DType::F16, DType::BF16, DType::F32, DType::F64];
const WIDE: [DType; 6] = [DType::U32, DType::I32, DType::F32, DType::U64, DType::I64, DType::F64];

/// Layouts of [outer, along, inner]: words, and how many elements the buffer needs.
fn layouts([o, n, j]: [i64; 3]) -> Vec<(Vec<i64>, usize)> {
    let whole = (o * n * j).max(1) as usize;
    vec![
        (vec![0, n * j, j, 1], whole),
        // Turned: inner outermost in memory.
        (vec![0, n, 1, o * n], whole),
        // Backwards along the axis, from a gap on.
        (vec![3 + (n - 1).max(0) * j, n * j, -j, 1], whole + 3),
        // One row for all outer positions, and one element for all inner ones.
        (vec![2, 0, 1, 0], n.max(1) as usize + 2),
    ]
}

fn ids_of(noise: &mut Noise, dtype: DType, n: usize, rows: usize) -> Vec<u8> {
    let ids: Vec<u64> = (0..n).map(|_| noise.below(rows) as u64).collect();
    ids.iter().flat_map(|id| id.to_le_bytes()[..dtype.size_in_bytes()].to_vec()).collect()
}

const SIZES: [[i64; 3]; 8] =
    [[1, 7, 1], [2, 5, 3], [3, 1, 4], [1, 300, 1], [2, 3, 300], [0, 3, 2], [2, 0, 2], [1, 6000, 3]];

#[test]
fn picks_are_the_references() {
    let mut noise = Noise(1);
    let backend = CpuBackend::with_threads(3).unwrap();
    for (round, dims) in SIZES.into_iter().enumerate() {
        let [o, n, j] = dims;
        let rows = 9;
        for (source_words, source_size) in layouts([o, rows, j]) {
            for (id_words, id_size) in layouts(dims) {
                let dtype = PICKED[noise.below(PICKED.len())];
                let kind = IDS[noise.below(IDS.len())];
                let kernel = Kernel::Pick(PickKernel { dtype, ids: kind });
                let source = noise_of(&mut noise, dtype, source_size);
                let ids = ids_of(&mut noise, kind, id_size, rows as usize);
                let words = [&[o, n, j, rows][..], &source_words, &id_words].concat();
                let total = (o * n * j) as usize;
                let out = [(dtype, total)];
                check(&backend, &format!("{round} {dtype} {kind}"), &kernel, &[source, ids], &out, &words, &[], 0.0);
            }
        }
    }
}

#[test]
fn scatters_are_the_references_whatever_the_threads() {
    let mut noise = Noise(2);
    let backends = [1, 2, 5].map(|threads| CpuBackend::with_threads(threads).unwrap());
    let reference = tallow_graph::reference::Reference::default();
    for (round, dims) in SIZES.into_iter().chain([[1, 40_000, 1], [1, 200, 700]]).enumerate() {
        let [o, n, j] = dims;
        let rows = 11;
        for (source_words, source_size) in layouts(dims) {
            for (id_words, id_size) in layouts(dims) {
                let dtype = WIDE[noise.below(WIDE.len())];
                let kind = IDS[noise.below(IDS.len())];
                let op = [ScatterOp::Set, ScatterOp::Add, ScatterOp::Max, ScatterOp::Min][noise.below(4)];
                let kernel = Kernel::Scatter(ScatterKernel { op, dtype, ids: kind });
                let source = noise_of(&mut noise, dtype, source_size);
                let ids = ids_of(&mut noise, kind, id_size, rows as usize);
                let old = noise_of(&mut noise, dtype, (o * rows * j) as usize);
                let words = [&[o, n, j, rows][..], &id_words, &source_words].concat();
                let want = scattered(&reference, &kernel, &ids, &source, &old, &words);
                let first = scattered(&backends[0], &kernel, &ids, &source, &old, &words);
                for (i, (got, want)) in as_f64(dtype, &first).into_iter().zip(as_f64(dtype, &want)).enumerate() {
                    // Sums of f32 are rounded at each step here.
                    assert!(close(got, want, 1e-3), "{round} {op:?} {dtype} {kind} {i}: {got} {want}");
                }
                if dtype.is_int() || op != ScatterOp::Add {
                    assert_eq!(first, want, "{round} {op:?} {dtype} {kind}");
                }
                for backend in &backends[1..] {
                    assert_eq!(scattered(backend, &kernel, &ids, &source, &old, &words), first, "{op:?} {dims:?}");
                }
            }
        }
    }
}

/// A scatter into `old`.
fn scattered(backend: &dyn Backend, kernel: &Kernel, ids: &[u8], source: &[u8], old: &[u8], words: &[i64]) -> Vec<u8> {
    let make = |bytes: &[u8]| {
        let buffer = backend.allocate(bytes.len() as u64).unwrap();
        backend.write(&buffer, 0, bytes).unwrap();
        buffer
    };
    assert!(!backend.lower(kernel, words).is_empty());
    let out = make(old);
    let single = Single::new(kernel.clone(), vec![make(ids), make(source)], vec![out.clone()], words.to_vec(), vec![]);
    backend.submit(&*backend.prepare(&single.program).unwrap(), single.run()).unwrap();
    now(backend.read(&out, 0..old.len() as u64)).unwrap()
}

#[test]
fn ids_out_of_range_are_faults_and_write_nothing() {
    let backend = CpuBackend::with_threads(2).unwrap();
    for (kind, ids, bad) in [
        (DType::I8, bytes(&[0i8, -1]), "-1"),
        (DType::U32, bytes(&[0u32, 3]), "3"),
        (DType::U64, bytes(&[0, u64::MAX - 1]), "18446744073709551614"),
    ] {
        let source = bytes(&[1.5f32, 2.5, 3.5]);
        let words = [1, 2, 1, 3, 0, 3, 1, 1, 0, 2, 1, 1];
        let kernel = Kernel::Pick(PickKernel { dtype: DType::F32, ids: kind });
        let error = try_run(&backend, kernel, &[source.clone(), ids.clone()], &[8], &words, &[]).unwrap_err();
        assert!(matches!(&error, Error::Fault { .. }) && error.to_string().contains(bad), "{error}");
        let kernel = Kernel::Scatter(ScatterKernel { op: ScatterOp::Set, dtype: DType::F32, ids: kind });
        let out = buffer(&backend, &bytes(&[7f32, 8.0, 9.0]));
        let inputs = vec![buffer(&backend, &ids), buffer(&backend, &source)];
        let words = vec![1, 2, 1, 3, 0, 2, 1, 1, 0, 3, 1, 1];
        let single = Single::new(kernel, inputs, vec![out.clone()], words, vec![]);
        let faults = backend.submit(&*backend.prepare(&single.program).unwrap(), single.run()).unwrap();
        assert!(matches!(&faults[..], [fault] if fault.message.contains(bad)), "{faults:?}");
        assert_eq!(values::<f32>(&now(backend.read(&out, 0..12)).unwrap()), [1.5, 8.0, 9.0]);
    }
}

/// Values with many ties, zeros of both signs, infinities and NaN.
fn with_ties(noise: &mut Noise, dtype: DType, n: usize) -> Vec<u8> {
    let special = [f64::NAN, -0.0, 0.0, f64::INFINITY, f64::NEG_INFINITY, -f64::NAN];
    let mut value = || match noise.below(8) {
        0 => special[noise.below(6)],
        _ => noise.below(9) as f64 - 4.0,
    };
    match dtype {
        DType::F32 => bytes(&(0..n).map(|_| value() as f32).collect::<Vec<_>>()),
        DType::F64 => bytes(&(0..n).map(|_| value()).collect::<Vec<_>>()),
        DType::U32 => bytes(&(0..n).map(|_| [0, 1, u32::MAX, 1 << 31][noise.below(4)]).collect::<Vec<_>>()),
        DType::I32 => bytes(&(0..n).map(|_| [0, -1, i32::MIN, i32::MAX][noise.below(4)]).collect::<Vec<_>>()),
        DType::U64 => bytes(&(0..n).map(|_| [0, 1, u64::MAX, 1 << 63][noise.below(4)]).collect::<Vec<_>>()),
        _ => bytes(&(0..n).map(|_| [0, -1, i64::MIN, i64::MAX][noise.below(4)]).collect::<Vec<_>>()),
    }
}

#[test]
fn sorts_are_stable_with_nan_last() {
    let mut noise = Noise(3);
    let backend = CpuBackend::with_threads(3).unwrap();
    // Long enough for each way of sorting.
    for dims in SIZES.into_iter().chain([[2, 300, 1], [1, 40_000, 1]]) {
        for (source_words, size) in layouts(dims) {
            for descending in [false, true] {
                let dtype = WIDE[noise.below(WIDE.len())];
                let kernel = Kernel::Sort(SortKernel { dtype, descending });
                let source = with_ties(&mut noise, dtype, size);
                let words = [&dims[..], &source_words].concat();
                let out = [(DType::U32, dims.iter().product::<i64>() as usize)];
                check(&backend, &format!("{dtype} {dims:?}"), &kernel, &[source], &out, &words, &[], 0.0);
            }
        }
    }
}

#[test]
fn a_long_row_is_sorted_by_all_threads() {
    let mut noise = Noise(4);
    let n = 70_001i64;
    for dtype in WIDE {
        let source = if dtype.is_float() {
            with_ties(&mut noise, dtype, n as usize)
        } else {
            (0..n as usize * dtype.size_in_bytes()).map(|_| noise.bits() as u8).collect()
        };
        for descending in [false, true] {
            let kernel = || Kernel::Sort(SortKernel { dtype, descending });
            let words = [1, n, 1, 0, n, 1, 1];
            let sort = |threads: usize| {
                let backend = CpuBackend::with_threads(threads).unwrap();
                run(&backend, kernel(), std::slice::from_ref(&source), &[n as usize * 4], &words, &[])
            };
            let got = sort(1);
            assert_eq!(sort(3), got, "{dtype}");
            assert_eq!(sort(4), got, "{dtype}");
            check(
                &CpuBackend::with_threads(5).unwrap(),
                "long",
                &kernel(),
                std::slice::from_ref(&source),
                &[(DType::U32, n as usize)],
                &words,
                &[],
                0.0,
            );
        }
    }
}

#[test]
fn scans_are_the_references() {
    let mut noise = Noise(5);
    let backend = CpuBackend::with_threads(3).unwrap();
    for dims in SIZES {
        for (source_words, size) in layouts(dims) {
            for op in [ScanOp::Sum, ScanOp::Prod, ScanOp::Max, ScanOp::Min] {
                let dtype = WIDE[noise.below(WIDE.len())];
                let kernel = Kernel::Scan(ScanKernel { op, dtype });
                let source = match op {
                    ScanOp::Max | ScanOp::Min => with_ties(&mut noise, dtype, size),
                    _ => noise_of(&mut noise, dtype, size),
                };
                let words = [&dims[..], &source_words].concat();
                let out = [(dtype, dims.iter().product::<i64>() as usize)];
                check(&backend, &format!("{op:?} {dtype}"), &kernel, &[source], &out, &words, &[], 1e-5);
            }
        }
    }
}

#[test]
fn integers_wrap_and_shift_as_the_reference_does() {
    let mut noise = Noise(6);
    let backend = CpuBackend::with_threads(2).unwrap();
    let ops = [BinaryOp::Rem, BinaryOp::BitAnd, BinaryOp::BitOr, BinaryOp::BitXor, BinaryOp::Shl, BinaryOp::Shr];
    for dtype in IDS.into_iter().chain([DType::F32, DType::F64, DType::F16, DType::BF16]) {
        for op in ops.into_iter().filter(|op| dtype.is_int() || !op.is_bitwise()) {
            let n = 1000usize;
            let mut any = || -> Vec<u8> {
                if dtype.is_float() {
                    return noise_of(&mut noise, dtype, n);
                }
                // Bits, and many small numbers and extremes among them.
                let mut all = Vec::new();
                for _ in 0..n {
                    let value = match noise.below(4) {
                        0 => noise.bits(),
                        1 => [0, u64::MAX, 1 << (8 * dtype.size_in_bytes() - 1)][noise.below(3)],
                        _ => noise.below(70) as u64,
                    };
                    all.extend(&value.to_le_bytes()[..dtype.size_in_bytes()]);
                }
                all
            };
            let inputs = [any(), any()];
            let code = expr(&[(Inst::Load(0), dtype), (Inst::Load(1), dtype), (Inst::Binary(op, 0, 1), dtype)]);
            let operands = [operand(0, dtype, Layout::Linear), operand(1, dtype, Layout::Linear)];
            let part = MapPart {
                rank: 1,
                vector: false,
                operands: operands.into_iter().collect(),
                expr: code,
                output: Layout::Linear,
            };
            let kernel = Kernel::Map(MapKernel { parts: [part].into_iter().collect() });
            let words = [n as i64, 0, 1, 0, 1, 0, 1];
            let sizes = [n * dtype.size_in_bytes()];
            let got = run(&backend, kernel.clone(), &inputs, &sizes, &words, &[]);
            let want = reference(kernel, &inputs, &sizes, &words, &[]);
            if dtype.is_int() {
                assert_eq!(got, want, "{op:?} {dtype}");
            } else {
                let tolerance = if dtype == DType::BF16 { 0.01 } else { 1e-3 };
                for (got, want) in as_f64(dtype, &got[0]).into_iter().zip(as_f64(dtype, &want[0])) {
                    assert!(close(got, want, tolerance), "{op:?} {dtype}: {got} {want}");
                }
            }
        }
    }
}

fn custom(run: impl Fn(f64) -> Result<f64, Error> + Send + Sync + 'static) -> Kernel {
    let custom = Custom::new("mine").with_cpu(Box::new(move |inputs, scalars, out| {
        let x = inputs[0].as_slice::<f32>()?;
        assert_eq!((inputs[0].dims, out.dims), (&[2usize, 2][..], &[4usize][..]));
        let out = out.as_mut_slice::<f32>()?;
        for (out, &x) in out.iter_mut().zip(x) {
            *out = run(f64::from(x) * scalars[0])? as f32;
        }
        Ok(())
    }));
    Kernel::Custom(CustomKernel {
        custom: Arc::new(custom),
        inputs: [(DType::F32, 2)].into_iter().collect(),
        output: (DType::F32, 1),
        scalars: 1,
    })
}

#[test]
fn closures_run_and_their_errors_and_panics_are_errors() {
    let backend = CpuBackend::with_threads(2).unwrap();
    let input = [bytes(&[1f32, 2.0, 3.0, 4.0])];
    let go = |kernel| try_run(&backend, kernel, &input, &[16], &[2, 2, 4], &[Scalar::F(3.0)]);
    let got = go(custom(|x| Ok(x + 1.0))).unwrap();
    assert_eq!(values::<f32>(&got[0]), [4.0, 7.0, 10.0, 13.0]);
    let error = go(custom(|_| Err(Error::op("mine", "no luck")))).unwrap_err().to_string();
    assert!(error.contains("'mine'") && error.contains("no luck"), "{error}");
    let error = go(custom(|x| panic!("at {x}"))).unwrap_err().to_string();
    assert!(error.contains("'mine' panicked: at 3"), "{error}");
    // The backend works on.
    assert!(go(custom(Ok)).is_ok());
}
