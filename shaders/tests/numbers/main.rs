//! The WGSL library's numbers: every kind of kernel, in every implementation, on a real (software) device, against the
//! graph's plain f64 reference.
#![cfg(not(target_arch = "wasm32"))]

mod attention;
mod contract;
mod conv;
mod gather;
mod half;
mod harness;
mod large;
mod map;
mod random;
mod row;
