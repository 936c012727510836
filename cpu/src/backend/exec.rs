//! Runs block code: each instruction is one loop over slices, compiled for each instruction set where it is of f32.

use half::{bf16, f16};
use tallow_graph::{BinaryOp, CompareOp, DType, UnaryOp};

use super::class::{Class, Num, binary, compare, with_class};
use super::expr::{Code, Op};
use super::small_float;
use crate::{Isa, convert, math};

/// The first `n` elements at `at`.
///
/// # Safety
/// `at` is aligned for `T`, holds `n` initialised elements, and nobody writes there while the slice lives.
#[inline(always)]
pub(crate) unsafe fn slice<'a, T>(at: *const u8, n: usize) -> &'a [T] {
    debug_assert!(at.cast::<T>().is_aligned());
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(at.cast(), n) }
}

/// The first `n` elements at `at`, to write.
///
/// # Safety
/// As [`slice`], and nobody else reads or writes there while the slice lives.
#[inline(always)]
pub(crate) unsafe fn slice_mut<'a, T>(at: *mut u8, n: usize) -> &'a mut [T] {
    debug_assert!(at.cast::<T>().is_aligned());
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), n) }
}

/// Runs `code` over blocks of `n` elements.
///
/// # Safety
/// Each place that the code reads or writes holds the address of `n` elements of its class, aligned; those that it
/// writes overlap no other place.
pub(crate) unsafe fn run(isa: Isa, code: &[Code], places: &[*mut u8], n: usize) {
    for code in code {
        let at = |place: u16| places[usize::from(place)];
        // SAFETY: the caller's, and `Block::compile` gives an instruction an output that is none of its arguments.
        unsafe {
            match code.op {
                Op::Copy => std::ptr::copy_nonoverlapping(at(code.a), at(code.out), n * code.class.size()),
                Op::Unary(op) if code.class == Class::F32 => {
                    unary_f32(isa, op, slice(at(code.a), n), slice_mut(at(code.out), n));
                }
                Op::Binary(op) if code.class == Class::F32 => {
                    binary_f32(isa, op, slice(at(code.a), n), slice(at(code.b), n), slice_mut(at(code.out), n));
                }
                Op::Compare(op) if code.class == Class::F32 => {
                    compare_f32(isa, op, slice(at(code.a), n), slice(at(code.b), n), slice_mut(at(code.out), n));
                }
                Op::Unary(op) => with_class!(code.class, T => {
                    unary::<T>(op, slice(at(code.a), n), slice_mut(at(code.out), n));
                }),
                Op::Binary(op) => with_class!(code.class, T => {
                    binary_any::<T>(op, slice(at(code.a), n), slice(at(code.b), n), slice_mut(at(code.out), n));
                }),
                Op::Compare(op) => with_class!(code.class, T => {
                    compare_any::<T>(op, slice(at(code.a), n), slice(at(code.b), n), slice_mut(at(code.out), n));
                }),
                Op::Where => {
                    let condition = slice(at(code.a), n);
                    // Bits are moved, so that one copy serves every class of a size.
                    macro_rules! select {
                        ($f:ident) => {
                            $f(isa, condition, slice(at(code.b), n), slice(at(code.c), n), slice_mut(at(code.out), n))
                        };
                    }
                    match code.class.size() {
                        1 => select!(select_8),
                        2 => select!(select_16),
                        4 => select!(select_32),
                        _ => select!(select_64),
                    }
                }
                Op::Cast(to) => with_class!(code.class, A => with_class!(to, B => {
                    cast::<A, B>(slice(at(code.a), n), slice_mut(at(code.out), n));
                })),
                Op::Round(dtype) => round(isa, dtype, slice(at(code.a), n), slice_mut(at(code.out), n)),
            }
        }
    }
}

fn unary<T: Num>(op: UnaryOp, x: &[T], out: &mut [T]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out = x.unary(op);
    }
}

/// Calls `$f` with `$OP` a constant, so that the loop inside is about one operation.
macro_rules! with_binary {
    ($op:expr, $f:ident ( $($arg:expr),* )) => {
        match $op {
            BinaryOp::Add => $f!(BinaryOp::Add, $($arg),*),
            BinaryOp::Sub => $f!(BinaryOp::Sub, $($arg),*),
            BinaryOp::Mul => $f!(BinaryOp::Mul, $($arg),*),
            BinaryOp::Div => $f!(BinaryOp::Div, $($arg),*),
            BinaryOp::Maximum => $f!(BinaryOp::Maximum, $($arg),*),
            BinaryOp::Minimum => $f!(BinaryOp::Minimum, $($arg),*),
            BinaryOp::Pow => $f!(BinaryOp::Pow, $($arg),*),
            BinaryOp::Rem => $f!(BinaryOp::Rem, $($arg),*),
            BinaryOp::BitAnd => $f!(BinaryOp::BitAnd, $($arg),*),
            BinaryOp::BitOr => $f!(BinaryOp::BitOr, $($arg),*),
            BinaryOp::BitXor => $f!(BinaryOp::BitXor, $($arg),*),
            BinaryOp::Shl => $f!(BinaryOp::Shl, $($arg),*),
            BinaryOp::Shr => $f!(BinaryOp::Shr, $($arg),*),
        }
    };
}
macro_rules! with_compare {
    ($op:expr, $f:ident ( $($arg:expr),* )) => {
        match $op {
            CompareOp::Eq => $f!(CompareOp::Eq, $($arg),*),
            CompareOp::Ne => $f!(CompareOp::Ne, $($arg),*),
            CompareOp::Lt => $f!(CompareOp::Lt, $($arg),*),
            CompareOp::Le => $f!(CompareOp::Le, $($arg),*),
            CompareOp::Gt => $f!(CompareOp::Gt, $($arg),*),
            CompareOp::Ge => $f!(CompareOp::Ge, $($arg),*),
        }
    };
}
macro_rules! binary_loop {
    ($op:expr, $a:expr, $b:expr, $out:expr) => {
        for ((out, &a), &b) in $out.iter_mut().zip($a).zip($b) {
            *out = binary($op, a, b);
        }
    };
}
macro_rules! compare_loop {
    ($op:expr, $a:expr, $b:expr, $out:expr) => {
        for ((out, &a), &b) in $out.iter_mut().zip($a).zip($b) {
            *out = u8::from(compare($op, a, b));
        }
    };
}

fn binary_any<T: Num>(op: BinaryOp, a: &[T], b: &[T], out: &mut [T]) {
    with_binary!(op, binary_loop(a, b, out));
}

fn compare_any<T: Num>(op: CompareOp, a: &[T], b: &[T], out: &mut [u8]) {
    with_compare!(op, compare_loop(a, b, out));
}

multiversion! {
    fn compare_f32(op: CompareOp, a: &[f32], b: &[f32], out: &mut [u8]) = compare_f32_body;
    fn select_8(condition: &[u8], a: &[u8], b: &[u8], out: &mut [u8]) = select_8_body;
    fn select_16(condition: &[u8], a: &[u16], b: &[u16], out: &mut [u16]) = select_16_body;
    fn select_32(condition: &[u8], a: &[u32], b: &[u32], out: &mut [u32]) = select_32_body;
    fn select_64(condition: &[u8], a: &[u64], b: &[u64], out: &mut [u64]) = select_64_body;
}

#[inline(always)]
fn compare_f32_body<const FMA: bool>(op: CompareOp, a: &[f32], b: &[f32], out: &mut [u8]) {
    with_compare!(op, compare_loop(a, b, out));
}

/// `a` where the condition is not 0, else `b`. By masks: of an `if`, the compiler makes loads from one of two addresses.
macro_rules! select_body {
    ($($name:ident: $t:ty),*) => {$(
        #[inline(always)]
        fn $name<const FMA: bool>(condition: &[u8], a: &[$t], b: &[$t], out: &mut [$t]) {
            for (((out, &condition), &a), &b) in out.iter_mut().zip(condition).zip(a).zip(b) {
                let mask = <$t>::from(condition != 0).wrapping_neg();
                *out = (a & mask) | (b & !mask);
            }
        }
    )*};
}
select_body!(select_8_body: u8, select_16_body: u16, select_32_body: u32, select_64_body: u64);

fn unary_f32(isa: Isa, op: UnaryOp, x: &[f32], out: &mut [f32]) {
    let function = match op {
        UnaryOp::Neg => math::neg,
        UnaryOp::Abs => math::abs,
        UnaryOp::Sign => math::sign,
        UnaryOp::Sqr => math::sqr,
        UnaryOp::Sqrt => math::sqrt,
        UnaryOp::Rsqrt => math::rsqrt,
        UnaryOp::Recip => math::recip,
        UnaryOp::Exp => math::exp,
        UnaryOp::Log => math::ln,
        UnaryOp::Sin => math::sin,
        UnaryOp::Cos => math::cos,
        UnaryOp::Tanh => math::tanh,
        UnaryOp::Erf => math::erf,
        UnaryOp::Gelu => math::gelu,
        UnaryOp::GeluErf => math::gelu_erf,
        UnaryOp::Relu => math::relu,
        UnaryOp::Silu => math::silu,
        UnaryOp::Sigmoid => math::sigmoid,
        UnaryOp::Floor => math::floor,
        UnaryOp::Ceil => math::ceil,
        UnaryOp::Round => math::round,
    };
    function(isa, x, out);
}

fn binary_f32(isa: Isa, op: BinaryOp, a: &[f32], b: &[f32], out: &mut [f32]) {
    let function = match op {
        BinaryOp::Add => math::add,
        BinaryOp::Sub => math::sub,
        BinaryOp::Mul => math::mul,
        BinaryOp::Div => math::div,
        BinaryOp::Maximum => math::maximum,
        BinaryOp::Minimum => math::minimum,
        BinaryOp::Pow => math::powf,
        // A remainder is a loop of its own; the graph gives bitwise operations integers only.
        _ => return binary_any(op, a, b, out),
    };
    function(isa, a, b, out);
}

fn cast<A: Num, B: Num>(x: &[A], out: &mut [B]) {
    match (A::CLASS, B::CLASS) {
        (_, Class::F32) => out.iter_mut().zip(x).for_each(|(out, x)| *out = B::from_f32(x.to_f32())),
        (_, Class::F64) => out.iter_mut().zip(x).for_each(|(out, x)| *out = B::from_f64(x.to_f64())),
        (Class::F32, _) => out.iter_mut().zip(x).for_each(|(out, x)| *out = B::from_f32(x.to_f32())),
        (Class::F64, _) => out.iter_mut().zip(x).for_each(|(out, x)| *out = B::from_f64(x.to_f64())),
        _ => out.iter_mut().zip(x).for_each(|(out, x)| *out = B::from_bits(x.wrapping_bits())),
    }
}

/// To the nearest value of a smaller float type.
fn round(isa: Isa, dtype: DType, x: &[f32], out: &mut [f32]) {
    const PIECE: usize = 64;
    for (x, out) in x.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
        let mut bytes = [0u64; PIECE / 4];
        // SAFETY: 64 elements of 2 bytes lie in `bytes`, aligned to 8, and any bits are valid.
        unsafe {
            let bytes = bytes.as_mut_ptr().cast::<u8>();
            narrow(isa, dtype, x, bytes);
            widen(isa, dtype, bytes, out);
        }
    }
}

/// Stored elements of F16, BF16 or F8 as f32: `out.len()` of them.
///
/// # Safety
/// `from` holds as many elements, aligned for them, that nobody writes meanwhile.
pub(crate) unsafe fn widen(isa: Isa, dtype: DType, from: *const u8, out: &mut [f32]) {
    let n = out.len();
    // SAFETY: the caller's.
    unsafe {
        match dtype {
            DType::F16 => convert::f16_to_f32(isa, slice::<f16>(from, n), out),
            DType::BF16 => convert::bf16_to_f32(isa, slice::<bf16>(from, n), out),
            DType::F8E4M3 => lookup(small_float::e4m3_values(), slice(from, n), out),
            DType::F8E5M2 => lookup(small_float::e5m2_values(), slice(from, n), out),
            _ => out.copy_from_slice(slice(from, n)),
        }
    }
}

fn lookup(values: &[f32; 256], codes: &[u8], out: &mut [f32]) {
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = values[usize::from(code)];
    }
}

/// Rounds to stored elements of F16, BF16 or F8.
///
/// # Safety
/// `to` has room for as many elements, aligned for them, that nobody else uses meanwhile.
pub(crate) unsafe fn narrow(isa: Isa, dtype: DType, x: &[f32], to: *mut u8) {
    let n = x.len();
    // SAFETY: the caller's.
    unsafe {
        match dtype {
            DType::F16 => convert::f32_to_f16(isa, x, slice_mut::<f16>(to, n)),
            DType::BF16 => convert::f32_to_bf16(isa, x, slice_mut::<bf16>(to, n)),
            DType::F8E4M3 => {
                slice_mut::<u8>(to, n).iter_mut().zip(x).for_each(|(to, &x)| *to = small_float::to_e4m3(x));
            }
            DType::F8E5M2 => {
                slice_mut::<u8>(to, n).iter_mut().zip(x).for_each(|(to, &x)| *to = small_float::to_e5m2(x));
            }
            _ => slice_mut::<f32>(to, n).copy_from_slice(x),
        }
    }
}
