//! Vectors of WebAssembly.

use std::arch::wasm32::*;

use super::simd::{halves, own, vectors};

vectors! {
    /// simd128, f32.
    Simd128, f32, v128, 4 of 16, f32x4_splat(0.0), v128_load, v128_store, f32x4_splat, f32x4_add,
    |a, b, c| f32x4_add(f32x4_mul(a, b), c),
    #[inline(always)]
    unsafe fn transpose(block: &mut [v128]) {
        let [a, b, c, d] = block else { return };
        let low = |x, y| i32x4_shuffle::<0, 4, 1, 5>(x, y);
        let high = |x, y| i32x4_shuffle::<2, 6, 3, 7>(x, y);
        let (e, f, g, h) = (low(*a, *c), low(*b, *d), high(*a, *c), high(*b, *d));
        (*a, *b, *c, *d) = (low(e, f), high(e, f), low(g, h), high(g, h));
    }
}
vectors! {
    /// simd128, f64.
    Simd128F64, f64, v128, 2 of 16, f64x2_splat(0.0), v128_load, v128_store, f64x2_splat, f64x2_add,
    |a, b, c| f64x2_add(f64x2_mul(a, b), c)
}
own!(Simd128, Simd128F64);
halves!(Simd128; f16 {} bf16 {});
