//! Matrix products of floats: packed panels, a micro-kernel an instruction set, and tiles that threads share.
//!
//! - [`simd`]: vectors of an instruction set ([`x86`], `neon`, `simd128`; plain arrays elsewhere);
//! - [`micro`]: the micro-kernel over them; [`kernel`]: which ones an instruction set has;
//! - [`pack`]: operands in the order that the micro-kernel reads, half types converted on the way;
//! - [`few`]: products of a few rows, which read the right operand as it lies;
//! - [`tiles`]: a product cut into tiles, and its packed operands shared;
//! - [`vectorised`]: other loops over the same vectors.
//!
//! Products are summed over the depth in an order that depends on its length alone: results are the same bits whatever
//! the number of threads, and a value that is not finite reaches exactly the sums that it is part of.
//!
//! Others build on the parts: pack a left operand's rows and a right operand's columns by [`Kernel::pack`], or fill the
//! panels themselves, then call [`Kernel::run`] for each pair of panels.

mod few;
mod kernel;
mod micro;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
mod simd;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;
mod tiles;
mod vectorised;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

pub(crate) use few::{FEW, Few};
pub(crate) use kernel::{Element, Kernel, Stored};
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{Neon as Vectors, NeonF64 as VectorsF64};
pub(crate) use simd::{MAX_LANES, Simd};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) use simd128::{Simd128 as Vectors, Simd128F64 as VectorsF64};
pub(crate) use tiles::{Cut, Product, Strip, Tile};
pub(crate) use vectorised::vectorised;

/// The vectors of a machine without an instruction set of its own here.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "wasm32", target_feature = "simd128")
)))]
pub(crate) type Vectors = simd::Array<f32>;
/// As [`Vectors`], of f64.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_arch = "wasm32", target_feature = "simd128")
)))]
pub(crate) type VectorsF64 = simd::Array<f64>;

#[cfg(test)]
mod tests;
