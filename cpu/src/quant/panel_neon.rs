//! Panels on AArch64 with `sdot`, 8 weight rows at a time.

use std::arch::aarch64::*;

use super::super::dot::neon::sdot;
use super::{Format, Kernel, ROWS};

pub(super) struct NeonDot;
impl Kernel for NeonDot {
    const KG: usize = 4;
    const UNSIGNED: bool = false;
    const LANES: usize = 8;
    type V = [float32x4_t; 2];
    #[inline(always)]
    fn zero() -> Self::V {
        // SAFETY: NEON is part of AArch64.
        unsafe { [vdupq_n_f32(0.0); 2] }
    }
    #[inline(always)]
    unsafe fn group<F: Format, const M: usize>(
        acc: &mut [Self::V; M],
        q: *const i8,
        a: [*const i8; M],
        scale: *const f32,
        s: [f32; M],
    ) {
        // SAFETY: by the caller.
        unsafe {
            let mut dot = [[vdupq_n_s32(0); 2]; M];
            for kg in 0..F::GROUP / 4 {
                let w = [vld1q_s8(q.add(kg * 4 * ROWS)), vld1q_s8(q.add(kg * 4 * ROWS + 16))];
                for i in 0..M {
                    let a = vreinterpretq_s8_s32(vdupq_n_s32(a[i].add(4 * kg).cast::<i32>().read_unaligned()));
                    dot[i] = [sdot(dot[i][0], w[0], a), sdot(dot[i][1], w[1], a)];
                }
            }
            for half in 0..2 {
                let scale = vld1q_f32(scale.add(4 * half));
                for i in 0..M {
                    let s = vmulq_n_f32(scale, s[i]);
                    acc[i][half] = vfmaq_f32(acc[i][half], vcvtq_f32_s32(dot[i][half]), s);
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn offset(acc: Self::V, min: *const f32, sum: f32) -> Self::V {
        // SAFETY: by the caller.
        unsafe { [vfmaq_n_f32(acc[0], vld1q_f32(min), sum), vfmaq_n_f32(acc[1], vld1q_f32(min.add(4)), sum)] }
    }
    #[inline(always)]
    unsafe fn store(acc: Self::V, to: *mut f32) {
        // SAFETY: by the caller.
        unsafe {
            vst1q_f32(to, acc[0]);
            vst1q_f32(to.add(4), acc[1]);
        }
    }
}
