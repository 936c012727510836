//! The WGSL library's numbers: every kind of kernel, in every implementation, on a real (software) device, against the
//! graph's plain f64 reference.
#![cfg(not(target_arch = "wasm32"))]

mod attention;
mod axes;
mod contract;
mod conv;
mod custom;
mod gather;
mod half;
mod harness;
mod large;
mod map;
mod pick;
mod random;
mod row;
mod scan;
mod scatter;
mod sort;
