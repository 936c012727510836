//! Panels on WebAssembly: products of 16-bit pairs over 4 lanes.

use std::arch::wasm32::*;

use super::{Format, Kernel, ROWS};

pub(super) struct Simd128;
impl Kernel for Simd128 {
    const KG: usize = 2;
    const UNSIGNED: bool = false;
    const LANES: usize = 4;
    type V = v128;
    #[inline(always)]
    fn zero() -> v128 {
        f32x4_splat(0.0)
    }
    #[inline(always)]
    unsafe fn group<F: Format, const M: usize>(
        acc: &mut [v128; M],
        q: *const i8,
        a: [*const i8; M],
        scale: *const f32,
        s: [f32; M],
    ) {
        // SAFETY: by the caller.
        unsafe {
            let mut dot = [i32x4_splat(0); M];
            // Eight activations are widened at once; each pair is then spread over the lanes.
            for eight in 0..F::GROUP / 8 {
                let a: [v128; M] = std::array::from_fn(|i| i16x8_load_extend_i8x8(a[i].add(8 * eight)));
                let w = |pair: usize| i16x8_load_extend_i8x8(q.add((4 * eight + pair) * 2 * ROWS));
                let (w0, w1, w2, w3) = (w(0), w(1), w(2), w(3));
                for i in 0..M {
                    let p0 = i32x4_dot_i16x8(w0, i32x4_shuffle::<0, 0, 0, 0>(a[i], a[i]));
                    let p1 = i32x4_dot_i16x8(w1, i32x4_shuffle::<1, 1, 1, 1>(a[i], a[i]));
                    let p2 = i32x4_dot_i16x8(w2, i32x4_shuffle::<2, 2, 2, 2>(a[i], a[i]));
                    let p3 = i32x4_dot_i16x8(w3, i32x4_shuffle::<3, 3, 3, 3>(a[i], a[i]));
                    dot[i] = i32x4_add(dot[i], i32x4_add(i32x4_add(p0, p1), i32x4_add(p2, p3)));
                }
            }
            let scale = v128_load(scale.cast());
            for i in 0..M {
                let s = f32x4_mul(scale, f32x4_splat(s[i]));
                acc[i] = f32x4_add(acc[i], f32x4_mul(f32x4_convert_i32x4(dot[i]), s));
            }
        }
    }
    #[inline(always)]
    unsafe fn offset(acc: v128, min: *const f32, sum: f32) -> v128 {
        // SAFETY: by the caller.
        unsafe { f32x4_add(acc, f32x4_mul(v128_load(min.cast()), f32x4_splat(sum))) }
    }
    #[inline(always)]
    unsafe fn store(acc: v128, to: *mut f32) {
        // SAFETY: by the caller.
        unsafe { v128_store(to.cast(), acc) }
    }
}
