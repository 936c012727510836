//! Products with quantized weights, straight from llama.cpp's (GGUF) blocks as they lie in the file.
//!
//! Every format is read into one common form: groups of 16 or 32 signed 8-bit quants with an f32 `scale` and `min`,
//! where x = scale * q + min. With activations quantized in blocks of 32 (a = s * p), a group's share of a product is
//! `scale * s * sum(q p) + min * s * sum(p)`: an integer dot product, and one multiplication with a sum that was
//! made once with the activations.
//!
//! - [`format`](mod@format): the five block formats, read and written;
//! - [`acts`]: 8-bit activations;
//! - [`tile`]: `tile_q8` and `tile_f32`, some weight rows by all activation rows;
//! - [`matmul`]: the same over a [`Pool`](crate::Pool);
//! - `dot_*`: one weight row, or four, by a few activation rows (decoding, bound by memory);
//! - `panel_*`: 16 weight rows, unpacked once and used for all activation rows (prompts, bound by arithmetic).

pub mod acts;
mod dot;
mod dot_f32;
#[cfg(target_arch = "x86_64")]
mod dot_f32_x86;
#[cfg(target_arch = "x86_64")]
mod dot_x86;
pub mod format;
#[cfg(target_arch = "x86_64")]
mod load_x86;
pub mod matmul;
mod panel;
mod panel_f32;
pub mod quantize;
pub mod search;
#[cfg(test)]
pub(crate) mod tests;
pub mod tile;

pub use acts::ActivationsQ8;
pub use format::dequantize_row;
pub use matmul::{matmul_f32, matmul_q8};
pub use quantize::quantize_row;
pub use tile::{TileMut, tile_f32, tile_q8};
