//! The parts that model families share.

mod attention;
mod kv_cache;
mod linear;
mod mlp;
mod norm;
mod rope;

pub use attention::SelfAttention;
pub use kv_cache::KvCache;
pub use linear::{FusedLinear, Linear};
pub use mlp::Mlp;
pub use norm::Norm;
pub use rope::Rope;
