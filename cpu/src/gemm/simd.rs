//! Vectors of an instruction set, as the micro-kernels and the packing use them.
//!
//! The functions are unsafe because they run instructions of their set: whoever calls them is compiled for it and has an
//! [`Isa`](crate::Isa) as the proof that the processor has it. All are inlined into their callers.

use std::ops::Add;

/// Vectors of one element type on one instruction set.
///
/// # Safety
/// Each function asks that the processor has the instruction set. Loads and stores ask for as many elements at their
/// address as they touch: `LANES`, or `n` at most `LANES`.
pub(crate) trait Simd: Copy + 'static {
    type T: Copy + Default + Add<Output = Self::T> + Send + Sync + 'static;
    type V: Copy;
    const LANES: usize;
    /// Whether there are 32 registers, not 16.
    const MANY: bool;
    unsafe fn zero() -> Self::V;
    unsafe fn load(at: *const Self::T) -> Self::V;
    unsafe fn store(at: *mut Self::T, v: Self::V);
    /// One element in all lanes.
    unsafe fn splat(at: *const Self::T) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a * b + c: one rounding where the set has such an instruction, else two.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The first `n` lanes; the others are zero.
    #[inline(always)]
    unsafe fn load_some(at: *const Self::T, n: usize) -> Self::V {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: the caller's; `lanes` has room for a vector.
        unsafe {
            std::ptr::copy_nonoverlapping(at, lanes.as_mut_ptr(), n.min(Self::LANES));
            Self::load(lanes.as_ptr())
        }
    }
    /// Stores the first `n` lanes.
    #[inline(always)]
    unsafe fn store_some(at: *mut Self::T, v: Self::V, n: usize) {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: the caller's; `lanes` has room for a vector.
        unsafe {
            Self::store(lanes.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), at, n.min(Self::LANES));
        }
    }
    /// The sum of the lanes, halving each time.
    #[inline(always)]
    unsafe fn sum(v: Self::V) -> Self::T {
        let mut lanes = [Self::T::default(); MAX_LANES];
        // SAFETY: `lanes` has room for a vector.
        unsafe { Self::store(lanes.as_mut_ptr(), v) };
        let mut n = Self::LANES;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                lanes[i] = lanes[i] + lanes[i + n];
            }
        }
        lanes[0]
    }
    /// Lane j of vector i becomes lane i of vector j, of a block of `LANES` vectors at `block`.
    #[inline(always)]
    unsafe fn transpose(block: &mut [Self::V]) {
        let mut all = [Self::T::default(); MAX_LANES * MAX_LANES];
        let n = Self::LANES;
        // SAFETY: `all` has room for `LANES` vectors.
        unsafe {
            for (i, v) in block.iter().enumerate().take(n) {
                Self::store(all.as_mut_ptr().add(i * n), *v);
            }
            for i in 0..n {
                for j in i + 1..n {
                    all.swap(i * n + j, j * n + i);
                }
            }
            for (i, v) in block.iter_mut().enumerate().take(n) {
                *v = Self::load(all.as_ptr().add(i * n));
            }
        }
    }
    /// Asks for a line of memory. Any address will do.
    #[inline(always)]
    unsafe fn prefetch(_: *const Self::T) {}
}

/// Lanes of the longest vector.
pub(crate) const MAX_LANES: usize = 16;

/// An element of a source, brought into vectors of `S`.
pub(crate) trait Source<S: Simd>: Copy {
    /// One element.
    fn get(self) -> S::T;
    /// The first `n` lanes from `at`, of at most `LANES`; the others are zero.
    ///
    /// # Safety
    /// As [`Simd`]'s.
    #[inline(always)]
    unsafe fn load_some(at: *const Self, n: usize) -> S::V {
        let mut lanes = [S::T::default(); MAX_LANES];
        // SAFETY: the caller's; `lanes` has room for a vector.
        unsafe {
            for (i, lane) in lanes.iter_mut().enumerate().take(n.min(S::LANES)) {
                *lane = at.add(i).read_unaligned().get();
            }
            S::load(lanes.as_ptr())
        }
    }
    /// `LANES` elements from `at`.
    ///
    /// # Safety
    /// As [`Simd`]'s.
    #[inline(always)]
    unsafe fn load(at: *const Self) -> S::V {
        // SAFETY: the caller's.
        unsafe { Self::load_some(at, S::LANES) }
    }
}

/// Implements [`Simd`] from the names of intrinsics.
macro_rules! vectors {
    (
        $(#[$meta:meta])* $name:ident, $t:ty, $v:ty, $lanes:literal of $registers:literal,
        $zero:expr, $load:expr, $store:expr, $splat:expr, $add:expr, $fma:expr $(, $($more:tt)*)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
        #[allow(unused_unsafe, reason = "some sets' functions are safe where the whole build has the set")]
        impl $crate::gemm::simd::Simd for $name {
            type T = $t;
            type V = $v;
            const LANES: usize = $lanes;
            const MANY: bool = $registers == 32;
            #[inline(always)]
            unsafe fn zero() -> $v {
                // SAFETY: the caller's, here and below.
                unsafe { $zero }
            }
            #[inline(always)]
            unsafe fn load(at: *const $t) -> $v {
                // SAFETY: the caller's.
                unsafe { $load(at.cast()) }
            }
            #[inline(always)]
            unsafe fn store(at: *mut $t, v: $v) {
                // SAFETY: the caller's.
                unsafe { $store(at.cast(), v) }
            }
            #[inline(always)]
            unsafe fn splat(at: *const $t) -> $v {
                // SAFETY: the caller's.
                unsafe { $splat(*at) }
            }
            #[inline(always)]
            unsafe fn add(a: $v, b: $v) -> $v {
                // SAFETY: the caller's.
                unsafe { $add(a, b) }
            }
            #[inline(always)]
            unsafe fn fma(a: $v, b: $v, c: $v) -> $v {
                // SAFETY: the caller's.
                unsafe { $fma(a, b, c) }
            }
            $($($more)*)?
        }
    };
}
pub(crate) use vectors;

/// Plain arrays, for processors without vectors of their own here.
#[derive(Clone, Copy)]
pub(crate) struct Array<T>(std::marker::PhantomData<T>);

macro_rules! array {
    ($t:ty) => {
        impl Simd for Array<$t> {
            type T = $t;
            type V = [$t; 4];
            const LANES: usize = 4;
            const MANY: bool = false;
            #[inline(always)]
            unsafe fn zero() -> [$t; 4] {
                [0.0; 4]
            }
            #[inline(always)]
            unsafe fn load(at: *const $t) -> [$t; 4] {
                // SAFETY: the caller's.
                unsafe { at.cast::<[$t; 4]>().read_unaligned() }
            }
            #[inline(always)]
            unsafe fn store(at: *mut $t, v: [$t; 4]) {
                // SAFETY: the caller's.
                unsafe { at.cast::<[$t; 4]>().write_unaligned(v) }
            }
            #[inline(always)]
            unsafe fn splat(at: *const $t) -> [$t; 4] {
                // SAFETY: the caller's.
                [unsafe { *at }; 4]
            }
            #[inline(always)]
            unsafe fn add(a: [$t; 4], b: [$t; 4]) -> [$t; 4] {
                std::array::from_fn(|i| a[i] + b[i])
            }
            #[inline(always)]
            unsafe fn fma(a: [$t; 4], b: [$t; 4], c: [$t; 4]) -> [$t; 4] {
                std::array::from_fn(|i| a[i] * b[i] + c[i])
            }
        }
    };
}
array!(f32);
array!(f64);

/// Sources of a set's own type, by its own loads.
macro_rules! own {
    ($($name:ty),*) => {$(
        impl $crate::gemm::simd::Source<$name> for <$name as $crate::gemm::simd::Simd>::T {
            #[inline(always)]
            fn get(self) -> Self {
                self
            }
            #[inline(always)]
            unsafe fn load_some(at: *const Self, n: usize) -> <$name as $crate::gemm::simd::Simd>::V {
                // SAFETY: the caller's.
                unsafe { <$name as $crate::gemm::simd::Simd>::load_some(at, n) }
            }
            #[inline(always)]
            unsafe fn load(at: *const Self) -> <$name as $crate::gemm::simd::Simd>::V {
                // SAFETY: the caller's.
                unsafe { <$name as $crate::gemm::simd::Simd>::load(at) }
            }
        }
    )*};
}
pub(crate) use own;

/// f16 and bf16 as sources of a set of f32, with its loads where it has better ones than by element.
macro_rules! halves {
    ($name:ty; f16 { $($f16:tt)* } bf16 { $($bf16:tt)* }) => {
        impl $crate::gemm::simd::Source<$name> for half::f16 {
            #[inline(always)]
            fn get(self) -> f32 {
                $crate::quant::format::half_to_f32(self.to_bits())
            }
            $($f16)*
        }
        impl $crate::gemm::simd::Source<$name> for half::bf16 {
            #[inline(always)]
            fn get(self) -> f32 {
                f32::from_bits(u32::from(self.to_bits()) << 16)
            }
            $($bf16)*
        }
    };
}
pub(crate) use halves;

own!(Array<f32>, Array<f64>);
halves!(Array<f32>; f16 {} bf16 {});
