//! Loops over vectors, compiled once an instruction set, for the parts of other kernels that read or write panels.

/// `vectorised! { unsafe fn name(x: *const u8) = body; }` makes `name(isa, wide, x)`, which calls `body::<S>(x)` with the
/// vectors of f32 (of f64 where `wide`) of the instruction set. The body is `#[inline(always)] unsafe fn body<S: Simd>`; its
/// arguments cannot name the element type, so pointers come as bytes.
macro_rules! vectorised {
    ($($(#[$meta:meta])* $vis:vis unsafe fn $name:ident($($arg:ident: $ty:ty),* $(,)?) = $body:ident;)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
        $vis unsafe fn $name(isa: $crate::Isa, wide: bool, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                use $crate::gemm::x86::{Avx2, Avx2F64, Avx512, Avx512F64, Sse, Sse64};
                use $crate::isa::Level;
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn avx2<S: $crate::gemm::Simd>($($arg: $ty),*) {
                    // SAFETY: the caller's.
                    unsafe { $body::<S>($($arg),*) }
                }
                #[target_feature(
                    enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
                )]
                unsafe fn avx512<S: $crate::gemm::Simd>($($arg: $ty),*) {
                    // SAFETY: the caller's.
                    unsafe { $body::<S>($($arg),*) }
                }
                // SAFETY: the caller's; an `Isa` of a level exists only where the processor has its features.
                unsafe {
                    match (isa.level(), wide) {
                        (Level::Avx512 | Level::Avx512Vnni, false) => avx512::<Avx512>($($arg),*),
                        (Level::Avx512 | Level::Avx512Vnni, true) => avx512::<Avx512F64>($($arg),*),
                        (Level::Avx2, false) => avx2::<Avx2>($($arg),*),
                        (Level::Avx2, true) => avx2::<Avx2F64>($($arg),*),
                        (_, false) => $body::<Sse>($($arg),*),
                        (_, true) => $body::<Sse64>($($arg),*),
                    }
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                let _ = isa;
                // SAFETY: the caller's; these vectors belong to the whole build.
                unsafe {
                    if wide {
                        $body::<$crate::gemm::VectorsF64>($($arg),*)
                    } else {
                        $body::<$crate::gemm::Vectors>($($arg),*)
                    }
                }
            }
        }
    )*};
}
pub(crate) use vectorised;
