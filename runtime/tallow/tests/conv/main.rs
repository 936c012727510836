//! Convolution, pooling and resizing on every device, against loops in f64 and published numbers.

mod common;
mod convolution;
mod pooling;
mod resizing;
