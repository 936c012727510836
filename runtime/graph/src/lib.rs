//! The device-independent core of Tallow: dtypes, shapes, views, the lazy graph, fusion, planning, and the contract
//! that every backend implements. See docs/architecture.md for the way of a value through it.

mod backend;
mod dtype;
mod error;
pub mod kernel;
mod scalar;
mod shape;
mod view;

pub use backend::{
    Args, Backend, BoxFuture, Buffer, Counters, DeviceBuffer, FAULT_INDEX, HostBytes, Implementation, Info, Prepared,
    Program, Run, Step,
};
pub use dtype::{DType, Element};
pub use error::{Error, Result};
pub use kernel::Kernel;
pub use scalar::{BinaryOp, CompareOp, Expr, Inst, MapOp, Scalar, UnaryOp};
pub use shape::{MAX_RANK, Shape};
pub use view::{Strides, View};
