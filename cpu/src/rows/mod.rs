//! Kernels over one row or a small tile.

pub mod reduce;
