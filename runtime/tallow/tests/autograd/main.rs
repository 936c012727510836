//! Gradients: every operation against finite differences on the CPU in F64, first and second derivatives, and on the GPU in
//! F32 against the CPU. To add an operation, add rows to a module's table; see [`check::Row`].

mod attention;
mod breadth;
mod check;
mod conv;
mod elementwise;
#[cfg(feature = "linalg")]
mod factorizations;
mod index;
mod inplace;
mod linalg;
mod memory;
mod modes;
mod reduce;
mod spectra;
mod tape;
mod views;
