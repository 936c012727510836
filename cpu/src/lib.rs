//! CPU kernels of Tallow: plain functions over slices, chosen by instruction set at run time.
//!
//! Every kernel takes an [`Isa`] as its first argument and runs on the calling thread over a row or a small tile;
//! [`Pool`] spreads tiles over cores. So a backend can cut work as it likes and append its own epilogue to a tile
//! while the numbers are still in cache.
//!
//! - [`isa`]: which instruction sets this processor has, and which one to use;
//! - [`pool`]: fork-join threads, quick enough for steps of some tens of microseconds;
//! - [`quant`]: products with weights in llama.cpp's block formats, by 8-bit or f32 activations;
//! - [`rows`]: norms, softmax, reductions, rotary embedding, attention;
//! - [`math`]: element-wise functions over slices;
//! - [`convert`]: f16 and bf16 to and from f32.

#![allow(clippy::needless_range_loop, reason = "loops over lanes read best, and vectorise surest, by index")]

#[macro_use]
mod multiversion;

mod backend;
pub mod convert;
mod gemm;
pub mod isa;
pub mod math;
mod pages;
pub mod pool;
mod prefetch;
pub mod quant;
pub mod rows;

pub use backend::CpuBackend;
pub use isa::Isa;
pub use pool::Pool;
