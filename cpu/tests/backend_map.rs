//! Maps against plain loops: every dtype and operation, and nests of all ranks with broadcast, strided and flipped
//! operands and strided outputs.

mod backend_common;

use backend_common::*;
use smallvec::smallvec;
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{Layout, MapKernel, MapPart};
use tallow_graph::{BinaryOp, CompareOp, DType, Element, Expr, Inst, Kernel, Scalar, UnaryOp};

const UNARY: [UnaryOp; 21] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sign,
    UnaryOp::Sqr,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Recip,
    UnaryOp::Exp,
    UnaryOp::Log,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Gelu,
    UnaryOp::GeluErf,
    UnaryOp::Relu,
    UnaryOp::Silu,
    UnaryOp::Sigmoid,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Round,
];

/// erf by its series, in f64.
fn erf(x: f64) -> f64 {
    if x.abs() > 5.9 {
        return x.signum();
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..400 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    if x.abs() > 3.0 {
        // The alternating series loses digits there: Simpson's rule over the density instead.
        let steps = 20_000;
        let h = x / f64::from(steps);
        let f = |t: f64| (-t * t).exp();
        let mut total = f(0.0) + f(x);
        for i in 1..steps {
            total += f(f64::from(i) * h) * if i % 2 == 1 { 4.0 } else { 2.0 };
        }
        return total * h / 3.0 * std::f64::consts::FRAC_2_SQRT_PI;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn unary(op: UnaryOp, x: f64) -> f64 {
    use UnaryOp::*;
    match op {
        Neg => -x,
        Abs => x.abs(),
        Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        Sqr => x * x,
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Recip => 1.0 / x,
        Exp => x.exp(),
        Log => x.ln(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tanh => x.tanh(),
        Erf => erf(x),
        Gelu => x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh()) / 2.0,
        GeluErf => x * (1.0 + erf(x / 2f64.sqrt())) / 2.0,
        Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Silu => x / (1.0 + (-x).exp()),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Floor => x.floor(),
        Ceil => x.ceil(),
        Round => x.round(),
    }
}

fn part(rank: u8, operands: &[(u8, DType, Layout)], expr: Expr, output: Layout) -> MapPart {
    let operands = operands.iter().map(|&(input, dtype, layout)| operand(input, dtype, layout)).collect();
    MapPart { rank, vector: false, operands, expr, output }
}

fn map(part: MapPart) -> Kernel {
    Kernel::Map(MapKernel { parts: smallvec![part] })
}

/// `f` over one or more contiguous inputs of `n` elements.
fn flat<T: Element, R: Element>(inputs: &[Vec<T>], f: Expr, scalars: &[Scalar]) -> Vec<R> {
    let backend = CpuBackend::with_threads(2).unwrap();
    let n = inputs[0].len();
    let operands: Vec<_> = (0..inputs.len()).map(|i| (i as u8, T::DTYPE, Layout::Linear)).collect();
    let mut words = vec![n as i64, 0, 1];
    inputs.iter().for_each(|_| words.extend([0, 1]));
    let inputs: Vec<_> = inputs.iter().map(|x| bytes(x)).collect();
    let out = n * R::DTYPE.size_in_bytes();
    let kernel = map(part(1, &operands, f, Layout::Linear));
    values(&run(&backend, kernel, &inputs, &[out], &words, scalars)[0])
}

fn floats(n: usize) -> Vec<f32> {
    let mut noise = Noise(7);
    let mut x: Vec<f32> = (0..n).map(|i| (noise.float() * [0.5, 1.0, 4.0, 20.0][i % 4]) as f32).collect();
    let odd = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.499_999_97, f32::INFINITY, f32::NEG_INFINITY];
    x.splice(0..0, odd.into_iter().chain([f32::NAN]));
    x
}

#[test]
fn unary_operations_of_floats() {
    let x = floats(4000);
    for op in UNARY {
        let f = expr(&[(Inst::Load(0), DType::F32), (Inst::Unary(op, 0), DType::F32)]);
        let got: Vec<f32> = flat(std::slice::from_ref(&x), f, &[]);
        for (&x, &got) in x.iter().zip(&got) {
            // x of -inf times 0 is NaN by the formula; a kernel may also give the limit.
            let want = unary(op, f64::from(x));
            let limit = x == f32::NEG_INFINITY && want.is_nan() && got == 0.0;
            assert!(limit || close(f64::from(got), want, 2e-6), "{op:?}({x}) = {got}, not {want}");
            let relative = (f64::from(got) - want).abs() <= 1e-4 * want.abs() + 1e-9 || !want.is_finite();
            assert!(limit || relative || want.abs() < 1e-3, "{op:?}({x}) = {got}, not {want}");
        }
        let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let f = expr(&[(Inst::Load(0), DType::F64), (Inst::Unary(op, 0), DType::F64)]);
        let got: Vec<f64> = flat(std::slice::from_ref(&wide), f, &[]);
        for (&x, &got) in wide.iter().zip(&got) {
            let want = unary(op, x);
            let limit = x == f64::NEG_INFINITY && want.is_nan() && got == 0.0;
            assert!(limit || close(got, want, 1e-9), "{op:?}({x}) = {got}, not {want}");
        }
    }
}

macro_rules! integers {
    ($($ty:ident)*) => {$({
        let mut noise = Noise(3);
        let mut a: Vec<$ty> = (0..1500).map(|_| noise.bits() as $ty).collect();
        let mut b: Vec<$ty> = (0..1500).map(|i| if i % 3 == 0 { noise.below(4) as $ty } else { noise.bits() as $ty }).collect();
        a.extend([$ty::MIN, $ty::MIN, $ty::MAX, 0]);
        b.extend([$ty::MAX, (0 as $ty).wrapping_sub(1), 2, 0]);
        let d = <$ty as Element>::DTYPE;
        let two = |op| expr(&[(Inst::Load(0), d), (Inst::Load(1), d), (Inst::Binary(op, 0, 1), d)]);
        let check = |op, f: &dyn Fn($ty, $ty) -> $ty| {
            let got: Vec<$ty> = flat(&[a.clone(), b.clone()], two(op), &[]);
            for i in 0..a.len() {
                assert_eq!(got[i], f(a[i], b[i]), "{} {op:?} {} as {d}", a[i], b[i]);
            }
        };
        check(BinaryOp::Add, &|a, b| a.wrapping_add(b));
        check(BinaryOp::Sub, &|a, b| a.wrapping_sub(b));
        check(BinaryOp::Mul, &|a, b| a.wrapping_mul(b));
        check(BinaryOp::Div, &|a, b| if b == 0 { 0 } else { a.wrapping_div(b) });
        check(BinaryOp::Maximum, &|a, b| a.max(b));
        check(BinaryOp::Minimum, &|a, b| a.min(b));
        for (op, f) in [
            (CompareOp::Eq, (|a, b| a == b) as fn($ty, $ty) -> bool), (CompareOp::Ne, |a, b| a != b),
            (CompareOp::Lt, |a, b| a < b), (CompareOp::Le, |a, b| a <= b),
            (CompareOp::Gt, |a, b| a > b), (CompareOp::Ge, |a, b| a >= b),
        ] {
            let e = expr(&[(Inst::Load(0), d), (Inst::Load(1), d), (Inst::Compare(op, 0, 1), DType::U8)]);
            let got: Vec<u8> = flat(&[a.clone(), b.clone()], e, &[]);
            assert!(got.iter().zip(a.iter().zip(&b)).all(|(&g, (&a, &b))| g == u8::from(f(a, b))), "{op:?} {d}");
        }
        let one = |op| expr(&[(Inst::Load(0), d), (Inst::Unary(op, 0), d)]);
        let neg: Vec<$ty> = flat(&[a.clone()], one(UnaryOp::Neg), &[]);
        assert!(neg.iter().zip(&a).all(|(&g, &a)| g == a.wrapping_neg()));
        let sqr: Vec<$ty> = flat(&[a.clone()], one(UnaryOp::Sqr), &[]);
        assert!(sqr.iter().zip(&a).all(|(&g, &a)| g == a.wrapping_mul(a)));
        // Casts: to f32, wrapping to i8, and from f32 saturating.
        let e = expr(&[(Inst::Load(0), d), (Inst::Cast(0), DType::F32)]);
        let got: Vec<f32> = flat(&[a.clone()], e, &[]);
        assert!(got.iter().zip(&a).all(|(&g, &a)| g == a as f32));
        let e = expr(&[(Inst::Load(0), d), (Inst::Cast(0), DType::I8)]);
        let got: Vec<i8> = flat(&[a.clone()], e, &[]);
        assert!(got.iter().zip(&a).all(|(&g, &a)| g == a as i8), "{d}");
        let x = floats(300);
        let e = expr(&[(Inst::Load(0), DType::F32), (Inst::Cast(0), d)]);
        let got: Vec<$ty> = flat(std::slice::from_ref(&x), e, &[]);
        assert!(got.iter().zip(&x).all(|(&g, &x)| g == x as $ty));
    })*};
}

#[test]
fn integers_wrap_and_casts_of_floats_saturate() {
    integers!(u8 i8 u16 i16 u32 i32 u64 i64);
}

#[test]
fn binary_and_compare_of_floats() {
    let a = floats(3000);
    let mut b = floats(3000);
    b.rotate_left(5);
    let e =
        |op| expr(&[(Inst::Load(0), DType::F32), (Inst::Load(1), DType::F32), (Inst::Binary(op, 0, 1), DType::F32)]);
    let max = |a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) };
    let min = |a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) };
    for (op, f) in [
        (BinaryOp::Add, (&|a, b| a + b) as &dyn Fn(f32, f32) -> f32),
        (BinaryOp::Sub, &|a, b| a - b),
        (BinaryOp::Mul, &|a, b| a * b),
        (BinaryOp::Div, &|a, b| a / b),
        (BinaryOp::Maximum, &max),
        (BinaryOp::Minimum, &min),
        (BinaryOp::Pow, &|a, b| f64::from(a).powf(f64::from(b)) as f32),
    ] {
        let got: Vec<f32> = flat(&[a.clone(), b.clone()], e(op), &[]);
        for i in 0..a.len() {
            let want = f64::from(f(a[i], b[i]));
            assert!(close(f64::from(got[i]), want, 2e-6), "{} {op:?} {} = {} not {want}", a[i], b[i], got[i]);
        }
    }
    for (op, f) in [
        (CompareOp::Eq, (|a, b| a == b) as fn(f32, f32) -> bool),
        (CompareOp::Ne, |a, b| a != b),
        (CompareOp::Lt, |a, b| a < b),
        (CompareOp::Ge, |a, b| a >= b),
    ] {
        let e = expr(&[(Inst::Load(0), DType::F32), (Inst::Load(1), DType::F32), (Inst::Compare(op, 0, 1), DType::U8)]);
        let got: Vec<u8> = flat(&[a.clone(), b.clone()], e, &[]);
        assert!((0..a.len()).all(|i| got[i] == u8::from(f(a[i], b[i]))), "{op:?}");
    }
    // where(a < b, a, b * scalar) + scalar
    let f = expr(&[
        (Inst::Load(0), DType::F32),
        (Inst::Load(1), DType::F32),
        (Inst::Param(1), DType::F32),
        (Inst::Compare(CompareOp::Lt, 0, 1), DType::U8),
        (Inst::Binary(BinaryOp::Mul, 1, 2), DType::F32),
        (Inst::Where(3, 0, 4), DType::F32),
        (Inst::Param(0), DType::F32),
        (Inst::Binary(BinaryOp::Add, 5, 6), DType::F32),
    ]);
    let got: Vec<f32> = flat(&[a.clone(), b.clone()], f, &[Scalar::F(0.25), Scalar::I(-3)]);
    for i in 0..a.len() {
        let want = if a[i] < b[i] { a[i] } else { b[i] * -3.0 } + 0.25;
        assert!(got[i] == want || got[i].is_nan() && want.is_nan());
    }
}

#[test]
fn half_floats_are_computed_in_f32_and_rounded_once() {
    use half::{bf16, f16};
    let mut noise = Noise(1);
    let a: Vec<f16> = (0..1111).map(|_| f16::from_f64(noise.float())).collect();
    let b: Vec<f16> = (0..1111).map(|_| f16::from_f64(noise.float())).collect();
    let d = DType::F16;
    let code = [
        (Inst::Load(0), d),
        (Inst::Load(1), d),
        (Inst::Binary(BinaryOp::Mul, 0, 1), d),
        (Inst::Binary(BinaryOp::Add, 2, 1), d),
    ];
    let got: Vec<f16> = flat(&[a.clone(), b.clone()], expr(&code), &[]);
    for i in 0..a.len() {
        assert_eq!(got[i], f16::from_f32(a[i].to_f32() * b[i].to_f32() + b[i].to_f32()));
    }
    // A cast in the middle rounds.
    let code = [
        (Inst::Load(0), d),
        (Inst::Load(1), d),
        (Inst::Binary(BinaryOp::Mul, 0, 1), d),
        (Inst::Cast(2), DType::BF16),
        (Inst::Cast(3), DType::F32),
    ];
    let got: Vec<f32> = flat(&[a.clone(), b.clone()], expr(&code), &[]);
    for i in 0..a.len() {
        assert_eq!(got[i], bf16::from_f32(a[i].to_f32() * b[i].to_f32()).to_f32());
    }
    // 8-bit floats: every code survives a copy and a trip through f32.
    let backend = CpuBackend::with_threads(1).unwrap();
    let codes: Vec<u8> = (0..=255).collect();
    for d in [DType::F8E4M3, DType::F8E5M2] {
        for code in
            [vec![(Inst::Load(0), d)], vec![(Inst::Load(0), d), (Inst::Cast(0), DType::F32), (Inst::Cast(1), d)]]
        {
            let kernel = map(part(1, &[(0, d, Layout::Linear)], expr(&code), Layout::Linear));
            let got = run(&backend, kernel, std::slice::from_ref(&codes), &[256], &[256, 0, 1, 0, 1], &[]);
            for (code, &got) in codes.iter().zip(&got[0]) {
                let nan = if d == DType::F8E4M3 { code & 0x7f == 0x7f } else { code & 0x7f > 0x7c };
                assert!(got == *code || nan && got & 0x7f == 0x7f, "{d} {code:#x} {got:#x}");
            }
        }
    }
}

#[test]
fn copies_move_every_dtype_as_it_is() {
    let backend = CpuBackend::with_threads(1).unwrap();
    for d in DType::PLAIN {
        let size = d.size_in_bytes();
        let source: Vec<u8> = (0..5 * 7 * size).map(|i| (i * 37 + 11) as u8).collect();
        // Transposed.
        let kernel = map(part(2, &[(0, d, Layout::Strided)], load(d), Layout::Linear));
        let got = run(&backend, kernel, std::slice::from_ref(&source), &[source.len()], &[7, 5, 0, 5, 1, 0, 1, 7], &[]);
        for i in 0..7 {
            for j in 0..5 {
                let (to, from) = ((i * 5 + j) * size, (j * 7 + i) * size);
                assert_eq!(got[0][to..to + size], source[from..from + size], "{d}");
            }
        }
    }
}

#[test]
fn nests_of_all_ranks_and_strides() {
    let mut noise = Noise(99);
    for threads in [1, 3] {
        let backend = CpuBackend::with_threads(threads).unwrap();
        for case in 0..400 {
            let rank = case % 9;
            let most = [1, 9000, 120, 30, 9, 6, 4, 4, 3][rank];
            let mut sizes: Vec<i64> = (0..rank).map(|_| 1 + noise.below(most) as i64).collect();
            if case % 40 == 39 && rank > 0 {
                sizes[noise.below(rank)] = 0;
            }
            let strided = |noise: &mut Noise| -> (Vec<i64>, usize) {
                // A permuted, padded, perhaps flipped and broadcast layout; returns words and elements.
                let mut order: Vec<usize> = (0..rank).collect();
                for i in (1..rank).rev() {
                    if noise.below(3) == 0 {
                        order.swap(i, noise.below(i + 1));
                    }
                }
                let mut words = vec![noise.below(5) as i64; rank + 1];
                let mut step = 1 + noise.below(2) as i64 * noise.below(3) as i64;
                for &axis in order.iter().rev() {
                    words[axis + 1] = step;
                    step *= sizes[axis].max(1) + noise.below(2) as i64;
                }
                let total = words[0] + step + 1;
                for axis in 0..rank {
                    match noise.below(6) {
                        0 => words[axis + 1] = 0,
                        1 => {
                            words[0] += (sizes[axis] - 1).max(0) * words[axis + 1];
                            words[axis + 1] = -words[axis + 1];
                        }
                        _ => {}
                    }
                }
                (words, total as usize)
            };
            let (wa, na) = strided(&mut noise);
            let (wb, nb) = strided(&mut noise);
            let total: i64 = sizes.iter().product();
            let (a, b) = (noise.floats(na), noise.floats(nb));
            // Output: contiguous, or into a wider buffer.
            let wide = case % 3 == 0;
            let mut wo = contiguous(&sizes);
            if wide {
                let mut step = 1;
                for axis in (0..rank).rev() {
                    wo[axis + 1] = step;
                    step *= sizes[axis].max(1) + 1;
                }
                wo[0] = 3;
            }
            let out = (wo[0] + sizes.iter().zip(&wo[1..]).map(|(n, s)| (n - 1).max(0) * s).sum::<i64>() + 1) as usize;
            let f = expr(&[
                (Inst::Load(0), DType::F32),
                (Inst::Load(1), DType::F32),
                (Inst::Position(2), DType::F32),
                (Inst::Binary(BinaryOp::Sub, 0, 1), DType::F32),
                (Inst::Binary(BinaryOp::Add, 3, 2), DType::F32),
            ]);
            let mut p = part(
                rank as u8,
                &[(0, DType::F32, Layout::Strided), (1, DType::F32, Layout::Strided), (2, DType::I64, Layout::Strided)],
                f,
                if wide { Layout::Strided } else { Layout::Linear },
            );
            p.operands[2].input = None;
            let wp: Vec<i64> = [&[5][..], &vec![2; rank]].concat();
            let words = [&sizes[..], &wo, &wa, &wb, &wp].concat();
            let got = run(&backend, map(p), &[bytes(&a), bytes(&b)], &[out * 4], &words, &[]);
            let got: Vec<f32> = values(&got[0]);
            let mut want = values::<f32>(&vec![0xa5; out * 4]);
            for index in indices(&sizes) {
                want[address(&wo, &index)] =
                    a[address(&wa, &index)] - b[address(&wb, &index)] + address(&wp, &index) as f32;
            }
            assert!(total == 0 || got == want, "case {case}: {sizes:?} {wa:?} {wb:?} {wo:?}");
        }
    }
}

#[test]
fn several_parts_write_several_outputs() {
    let backend = CpuBackend::with_threads(3).unwrap();
    let mut noise = Noise(5);
    let sizes = [100_000usize, 1, 0, 5000];
    let inputs: Vec<Vec<f32>> = sizes.iter().map(|&n| noise.floats(n)).collect();
    let mut words = vec![];
    let parts = (0..4u8).map(|i| {
        let f = expr(&[
            (Inst::Load(0), DType::F32),
            (Inst::Param(u16::from(i)), DType::F32),
            (Inst::Binary(BinaryOp::Mul, 0, 1), DType::F32),
        ]);
        part(1, &[(i, DType::F32, Layout::Linear)], f, Layout::Linear)
    });
    let kernel = Kernel::Map(MapKernel { parts: parts.collect() });
    sizes.iter().for_each(|&n| words.extend([n as i64, 0, 1, 0, 1]));
    let scalars: Vec<Scalar> = (2..6).map(Scalar::I).collect();
    let outs: Vec<usize> = sizes.iter().map(|n| n * 4).collect();
    let got = run(&backend, kernel, &inputs.iter().map(|x| bytes(x)).collect::<Vec<_>>(), &outs, &words, &scalars);
    for (i, (got, x)) in got.iter().zip(&inputs).enumerate() {
        let got: Vec<f32> = values(got);
        assert!(got.iter().zip(x).all(|(&g, &x)| g == x * (i + 2) as f32));
    }
}

#[test]
fn words_that_leave_the_buffer_are_refused() {
    let backend = CpuBackend::with_threads(1).unwrap();
    let kernel = || map(part(1, &[(0, DType::F32, Layout::Linear)], load(DType::F32), Layout::Linear));
    for words in [vec![8, 0, 1, 1, 1], vec![8, 1, 1, 0, 1], vec![8, 0, 1, -1, 1], vec![-1, 0, 1, 0, 1], vec![8, 0, 1]] {
        let result = try_run(&backend, kernel(), &[vec![0; 32]], &[32], &words, &[]);
        assert!(result.is_err(), "{words:?}");
    }
    let text = try_run(&backend, kernel(), &[vec![0; 32]], &[32], &[9, 0, 1, 0, 1], &[]).unwrap_err().to_string();
    assert!(text.contains("buffer of 8"), "{text}");
}

#[test]
fn transposed_copies() {
    let mut noise = Noise(8);
    for d in [DType::U8, DType::F16, DType::F32, DType::I64] {
        for (outer, rows, cols) in [(1i64, 16i64, 16i64), (2, 50, 33), (1, 17, 300), (3, 100, 16)] {
            for flipped in [false, true] {
                let backend = CpuBackend::with_threads(2).unwrap();
                let x = noise_of(&mut noise, d, (outer * rows * cols) as usize);
                // x is [outer, cols, rows]; the copy is [outer, rows, cols], perhaps from the last column on.
                let (start, step) = if flipped { ((cols - 1) * rows, -rows) } else { (0, rows) };
                let kernel = map(part(3, &[(0, d, Layout::Strided)], load(d), Layout::Linear));
                let words = [outer, rows, cols, 0, rows * cols, cols, 1, start, rows * cols, 1, step];
                let out = [(d, x.len() / d.size_in_bytes())];
                check(&backend, "transposed", &kernel, &[x], &out, &words, &[], 0.0);
            }
        }
    }
}
