//! The last column of docs/cheatsheet.md: `build.rs` makes a test of each cell.

#![allow(
    unused_variables,
    unused_imports,
    clippy::let_unit_value,
    reason = "each cell uses some of the values at hand"
)]

use tallow::{D, DType, Device, IndexOp, Result, Tensor, Var};

/// What a cell gives. Tensors are computed, so that an error comes up.
struct Probe<T>(T);

trait Computed {
    fn run(&self) -> Result<()>;
}

impl Computed for Probe<Tensor> {
    fn run(&self) -> Result<()> {
        self.0.realize()
    }
}

/// Everything else has been read already, or is no tensor. Method resolution prefers [`Computed`], which needs one reference
/// less.
trait Plain {
    fn run(&self) -> Result<()>;
}

impl<T> Plain for &Probe<T> {
    fn run(&self) -> Result<()> {
        Ok(())
    }
}

#[allow(
    clippy::all,
    unused_variables,
    unused_imports,
    reason = "written for readers; a cell uses some of the values at hand"
)]
mod cells {
    use super::{Computed, Plain, Probe};
    use tallow::quantized::{GgmlDType, QMatMul, QTensor, gguf_file};
    use tallow::{D, DType, Device, IndexOp, Module, Tensor, Var};
    include!(concat!(env!("OUT_DIR"), "/cheatsheet.rs"));
}

/// The page and its tests cannot part: a table whose cells were not found would test nothing.
#[test]
fn there_are_as_many_tests_as_rows() {
    let page = include_str!("../../docs/cheatsheet.md");
    let rows = page.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| |")).count();
    let tests = include_str!(concat!(env!("OUT_DIR"), "/cheatsheet.rs")).matches("#[test]").count();
    assert_eq!(tests, rows);
    assert!(tests > 60);
}
