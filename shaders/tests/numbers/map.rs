//! Maps: special values of every function, casts between all dtypes, layouts, parts.

use super::harness::*;
use smallvec::smallvec;
use tallow_graph::{
    BinaryOp, CompareOp, DType, Expr, Inst, Kernel, Scalar, UnaryOp,
    kernel::{Layout, MapKernel, MapPart, Operand},
};

const PLAIN: [DType; 11] = [
    DType::U8,
    DType::I8,
    DType::U16,
    DType::I16,
    DType::U32,
    DType::I32,
    DType::U64,
    DType::I64,
    DType::BF16,
    DType::F16,
    DType::F32,
];

fn linear(vector: bool, operands: Vec<Operand>, e: Expr, n: i64) -> (Kernel, Vec<i64>) {
    let mut words = vec![n, 0, 1];
    words.extend([0, 1].repeat(operands.len()));
    let part = MapPart { rank: 1, vector, operands: operands.into(), expr: e, output: Layout::Linear };
    (Kernel::Map(MapKernel { parts: smallvec![part] }), words)
}

/// Numbers at which functions go wrong, and random ones of all sizes.
fn special(noise: &mut Noise) -> Vec<f32> {
    let mut values = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-30,
        88.0,
        -88.0,
        100.0,
        -100.0,
        1e10,
        -1e10,
        3e38,
        8_388_607.5,
        0.499_999_97,
    ];
    for _ in 0..500 {
        values.push((noise.float() * 4.0) as f32);
        values.push((noise.float() * 10f64.powi((noise.bits() % 12) as i32 - 6)) as f32);
    }
    while values.len() % 4 != 0 {
        values.push(0.25);
    }
    values
}

#[test]
fn unary_functions_at_special_values() {
    let mut noise = Noise(1);
    let values = special(&mut noise);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    use UnaryOp::*;
    for (op, tolerance) in [
        (Neg, EXACT),
        (Abs, EXACT),
        (Sign, EXACT),
        (Sqr, relative(1e-6, 1e-37)),
        (Sqrt, relative(1e-6, 0.0)),
        (Rsqrt, relative(2e-6, 0.0)),
        (Recip, relative(1e-6, 0.0)),
        (Exp, relative(1e-6, 1e-37)),
        (Log, relative(2e-6, 3e-7)),
        (Sin, relative(1e-6, 3e-7)),
        (Cos, relative(1e-6, 3e-7)),
        (Tanh, relative(1e-6, 0.0)),
        (Erf, relative(1e-6, 0.0)),
        (Gelu, relative(3e-5, 1e-12)),
        (GeluErf, relative(3e-5, 1e-12)),
        (Relu, EXACT),
        (Silu, relative(1e-5, 1e-36)),
        (Sigmoid, relative(1e-5, 1e-37)),
        (Floor, EXACT),
        (Ceil, EXACT),
        (Round, EXACT),
    ] {
        let e = expr(&[(Inst::Load(0), DType::F32), (Inst::Unary(op, 0), DType::F32)]);
        for vector in [false, true] {
            let n = values.len();
            let (kernel, words) = linear(vector, vec![operand(0, DType::F32, Layout::Linear)], e.clone(), n as i64);
            let inputs = [Input::Plain(bytes.clone())];
            // The reference computes past f32's range.
            let Some(device) = device() else { return };
            let before = [vec![0u8; 4 * n]];
            let want = run(&tallow_graph::reference::Reference::default(), 0, &kernel, &inputs, &before, &words, &[]);
            let name = format!("{op:?} {vector}");
            check_against(device, &name, &kernel, &inputs, &[(DType::F32, n)], &words, &[], &want.unwrap(), tolerance);
        }
    }
}

#[test]
fn binary_functions_and_comparisons_of_all_dtypes() {
    let mut noise = Noise(2);
    for dtype in PLAIN {
        let n = 404;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for i in 0..n {
            let pick = |noise: &mut Noise| match i % 7 {
                0 if dtype == DType::F32 => {
                    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0][noise.bits() as usize % 4]
                }
                1 => (noise.bits() % 5) as f64 - if dtype.is_float() { 2.0 } else { 0.0 },
                _ => noise.float() * if dtype.is_float() { 3.0 } else { 50.0 },
            };
            put(dtype, pick(&mut noise), &mut a);
            // Powers of integers to negative exponents are left to each backend.
            put(dtype, if dtype.is_int() { pick(&mut noise).abs() } else { pick(&mut noise) }, &mut b);
        }
        use BinaryOp::*;
        for op in [Add, Sub, Mul, Div, Maximum, Minimum, Pow, Rem, BitAnd, BitOr, BitXor, Shl, Shr] {
            let bits = matches!(op, BitAnd | BitOr | BitXor | Shl | Shr);
            if (op == Pow && dtype.is_float() && dtype != DType::F32) || (bits && dtype.is_float()) {
                continue;
            }
            let e = expr(&[(Inst::Load(0), dtype), (Inst::Load(1), dtype), (Inst::Binary(op, 0, 1), dtype)]);
            for vector in [false, true] {
                let operands = vec![operand(0, dtype, Layout::Linear), operand(1, dtype, Layout::Linear)];
                let (kernel, words) = linear(vector, operands, e.clone(), n);
                let inputs = [Input::Plain(a.clone()), Input::Plain(b.clone())];
                let tolerance = match dtype {
                    DType::F32 if op == Pow => relative(2e-5, 1e-36),
                    // The remainder of two numbers is a number of their type.
                    _ if op == Rem => EXACT,
                    DType::F32 => relative(1e-6, 0.0),
                    DType::F16 => relative(1e-3, 1e-7),
                    DType::BF16 => relative(8e-3, 0.0),
                    _ => EXACT,
                };
                check(
                    &format!("{op:?} {dtype} {vector}"),
                    &kernel,
                    &inputs,
                    &[(dtype, n as usize)],
                    &words,
                    &[],
                    tolerance,
                );
            }
        }
        use CompareOp::*;
        for op in [Eq, Ne, Lt, Le, Gt, Ge] {
            let e = expr(&[(Inst::Load(0), dtype), (Inst::Load(1), dtype), (Inst::Compare(op, 0, 1), DType::U8)]);
            for vector in [false, true] {
                let operands = vec![operand(0, dtype, Layout::Linear), operand(1, dtype, Layout::Linear)];
                let count = if vector { n } else { n - 3 };
                let (kernel, words) = linear(vector, operands, e.clone(), count);
                let inputs = [Input::Plain(a.clone()), Input::Plain(b.clone())];
                check(&format!("{op:?} {dtype}"), &kernel, &inputs, &[(DType::U8, count as usize)], &words, &[], EXACT);
            }
        }
    }
}

/// All bits of integers, and remainders of floats of very different sizes.
#[test]
fn remainders_bits_and_shifts_over_the_whole_range() {
    let mut noise = Noise(5);
    let Some(device) = device() else { return };
    for dtype in PLAIN {
        let size = dtype.size_in_bytes();
        let n = 4096;
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for i in 0..n {
            let edges = [0u64, 1, u64::MAX, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1];
            let mut pick = |wide: bool| match i % 5 {
                0 => edges[noise.bits() as usize % 5],
                1 => noise.bits() % 70,
                2 if wide => noise.bits() % 1000,
                3 => noise.bits() >> (noise.bits() % 64),
                _ => noise.bits(),
            };
            let (x, y) = (pick(false), pick(true));
            if dtype.is_float() {
                put(dtype, noise.float() * 10f64.powi((x % 13) as i32 - 4), &mut a);
                put(dtype, noise.float() * 10f64.powi((y % 9) as i32 - 4), &mut b);
            } else {
                a.extend(&x.to_le_bytes()[..size]);
                b.extend(&y.to_le_bytes()[..size]);
            }
        }
        use BinaryOp::*;
        for op in [Rem, BitAnd, BitOr, BitXor, Shl, Shr] {
            if dtype.is_float() && op != Rem {
                continue;
            }
            let e = expr(&[(Inst::Load(0), dtype), (Inst::Load(1), dtype), (Inst::Binary(op, 0, 1), dtype)]);
            let operands = vec![operand(0, dtype, Layout::Linear), operand(1, dtype, Layout::Linear)];
            let (kernel, words) = linear(false, operands, e, n);
            let inputs = [Input::Plain(a.clone()), Input::Plain(b.clone())];
            let before = [vec![0u8; n as usize * size]];
            let reference = tallow_graph::reference::Reference::default();
            let want = run(&reference, 0, &kernel, &inputs, &before, &words, &[]).unwrap();
            let got = run(device, 0, &kernel, &inputs, &before, &words, &[]).unwrap();
            if dtype.is_float() {
                compare(&format!("{op:?} {dtype}"), dtype, &got[0], &want[0], EXACT);
                continue;
            }
            for (i, (got, want)) in got[0].chunks(size).zip(want[0].chunks(size)).enumerate() {
                let at = i * size..(i + 1) * size;
                let (x, y) = (&a[at.clone()], &b[at]);
                assert!(got == want, "{op:?} {dtype}: {x:x?}, {y:x?} gives {got:x?}, not {want:x?}");
            }
        }
    }
}

#[test]
fn casts_saturate_and_round() {
    let mut noise = Noise(3);
    for from in PLAIN {
        let mut bytes = Vec::new();
        let n = 250;
        for i in 0..n {
            let value = match i {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => 4294967296.0,
                4 => -2147483648.0,
                5 => 9.3e18,
                6 => 65519.0,
                7 => 65520.0,
                8 => 1.9e19,
                9 => 255.9,
                10 => -0.9,
                11 => 6e-8,
                12 => 16777217.0,
                13 => 4611686293305294850.0,
                _ => noise.float() * 10f64.powi((noise.bits() % 14) as i32 - 3),
            };
            // Between integers, only what fits both is defined alike everywhere.
            put(from, if from.is_int() { (noise.bits() % 128) as f64 } else { value }, &mut bytes);
        }
        for to in PLAIN {
            let e = expr(&[(Inst::Load(0), from), (Inst::Cast(0), to)]);
            let (kernel, words) = linear(false, vec![operand(0, from, Layout::Linear)], e, n);
            let tolerance = match to {
                DType::F32 if from.is_int() => relative(6.1e-8, 0.0),
                _ => EXACT,
            };
            let inputs = [Input::Plain(bytes.clone())];
            check(&format!("cast {from} {to}"), &kernel, &inputs, &[(to, n as usize)], &words, &[], tolerance);
        }
    }
}

#[test]
fn copies_between_layouts() {
    let mut noise = Noise(4);
    for dtype in PLAIN {
        let bytes = noise.elements(dtype, 4096);
        let e = expr(&[(Inst::Load(0), dtype)]);
        // A transposed and flipped read, written contiguously at an odd offset.
        for offset in [0, 1, 3, 7] {
            let operand_ = operand(0, dtype, Layout::Strided);
            let part = MapPart {
                rank: 3,
                vector: false,
                operands: smallvec![operand_],
                expr: e.clone(),
                output: Layout::Linear,
            };
            let kernel = Kernel::Map(MapKernel { parts: smallvec![part] });
            let words = [3, 5, 7, offset, 35, 7, 1, 600, 1, 7, -40];
            check(
                &format!("copy {dtype} at {offset}"),
                &kernel,
                &[Input::Plain(bytes.clone())],
                &[(dtype, 130)],
                &words,
                &[],
                EXACT,
            );
        }
        // Into parts of a buffer: rows of odd length at odd places.
        let part = |vector, rank| MapPart {
            rank,
            vector,
            operands: smallvec![operand(0, dtype, Layout::Strided)],
            expr: e.clone(),
            output: Layout::Strided,
        };
        let kernel = Kernel::Map(MapKernel { parts: smallvec![part(false, 2)] });
        let words = [9, 5, 3, 11, 1, 2, 5, 1];
        check(&format!("insert {dtype}"), &kernel, &[Input::Plain(bytes.clone())], &[(dtype, 120)], &words, &[], EXACT);
        // The same by fours, with a broadcast operand.
        let kernel = Kernel::Map(MapKernel { parts: smallvec![part(true, 2)] });
        for (stride, inner) in [(8, 1), (3, 0)] {
            let words = [9, 8, 4, 12, 1, 4 * inner, stride, inner];
            check(
                &format!("insert by four {dtype}"),
                &kernel,
                &[Input::Plain(bytes.clone())],
                &[(dtype, 120)],
                &words,
                &[],
                EXACT,
            );
        }
    }
}

#[test]
fn positions_parameters_and_where() {
    for dtype in [DType::F32, DType::I64, DType::U32, DType::I32, DType::BF16] {
        for vector in [false, true] {
            let operands =
                vec![Operand { input: None, dtype, layout: Layout::Strided }, operand(0, DType::U8, Layout::Strided)];
            let e = expr(&[
                (Inst::Position(0), dtype),
                (Inst::Load(1), DType::U8),
                (Inst::Param(1), dtype),
                (Inst::Where(1, 0, 2), dtype),
            ]);
            let part = MapPart { rank: 2, vector, operands: operands.into(), expr: e, output: Layout::Linear };
            let kernel = Kernel::Map(MapKernel { parts: smallvec![part] });
            let words = [5, 8, 0, 8, 1, 3, 100, 2, 0, 8, 1];
            let mask: Vec<u8> = (0..40).map(|i| (i % 3) as u8).collect();
            let scalars = [Scalar::F(1.0), Scalar::I(7)];
            check(&format!("where {dtype}"), &kernel, &[Input::Plain(mask)], &[(dtype, 40)], &words, &scalars, EXACT);
        }
    }
}

#[test]
fn several_parts_and_many_workgroups() {
    let mut noise = Noise(5);
    let n = 64 * 65_536 + 3;
    let a = noise.elements(DType::U8, n);
    let b = noise.elements(DType::F32, 1000);
    let part = |input: u8, dtype: DType, vector| MapPart {
        rank: 1,
        vector,
        operands: smallvec![operand(input, dtype, Layout::Linear)],
        expr: expr(&[
            (Inst::Load(0), dtype),
            (Inst::Cast(0), DType::F32),
            (Inst::Param(0), DType::F32),
            (Inst::Binary(BinaryOp::Mul, 1, 2), DType::F32),
        ]),
        output: Layout::Linear,
    };
    let kernel = Kernel::Map(MapKernel {
        parts: smallvec![part(1, DType::F32, true), part(0, DType::U8, false), part(1, DType::F32, false)],
    });
    let words = [1000, 0, 1, 0, 1, n as i64, 0, 1, 0, 1, 999, 0, 1, 1, 1];
    let outputs = [(DType::F32, 1000), (DType::F32, n), (DType::F32, 999)];
    check("parts", &kernel, &[Input::Plain(a), Input::Plain(b)], &outputs, &words, &[Scalar::F(0.5)], EXACT);
}
