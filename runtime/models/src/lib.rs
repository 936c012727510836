//! See the crate's description in Cargo.toml.

#[cfg(feature = "hub")]
pub mod hub;
