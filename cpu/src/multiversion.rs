//! One body, compiled once an instruction set, and a safe function that picks the copy at run time.
//!
//! The bodies are plain Rust over arrays of lanes, which the compiler vectorises for the features of the function
//! it inlines them into. They take a const `FMA`: where it is false (no fused multiply-add in hardware), `fma`
//! must stay two roundings, because `f32::mul_add` would call a slow library function.

/// `multiversion! { pub fn name(x: &[f32]) -> f32 = body; }` makes `name(isa, x)` from
/// `#[inline(always)] fn body<const FMA: bool>(x: &[f32]) -> f32`.
macro_rules! multiversion {
    ($($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:ident;)*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "a kernel's operands")]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                #[target_feature(
                    enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"
                )]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                match isa.level() {
                    // SAFETY: an `Isa` of this level exists only where the processor has these features.
                    $crate::isa::Level::Avx512 | $crate::isa::Level::Avx512Vnni => unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::isa::Level::Avx2 => unsafe { avx2($($arg),*) },
                    _ => $body::<false>($($arg),*),
                }
            }
            // NEON and simd128 belong to the whole build there, so the plain copy is vectorised already.
            #[cfg(not(target_arch = "x86_64"))]
            {
                let _ = isa;
                $body::<{ cfg!(target_arch = "aarch64") }>($($arg),*)
            }
        }
    )*};
}

/// a * b + c, fused where that is one instruction.
#[inline(always)]
pub(crate) fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}
