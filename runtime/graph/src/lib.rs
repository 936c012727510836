//! The device-independent core of Tallow: dtypes, shapes, views, the lazy graph, fusion, planning, and the contract
//! that every backend implements. See docs/architecture.md for the way of a value through it.

mod backend;
mod debug;
mod dtype;
mod engine;
mod error;
pub mod kernel;
mod locked;
mod node;
pub mod ops;
mod plan;
pub mod reference;
mod scalar;
mod shape;
mod view;

pub use backend::{
    Args, Backend, BoxFuture, Buffer, Counters, DeviceBuffer, FAULT_INDEX, Fault, HostBytes, Implementation, Info,
    Prepared, Program, Run, Step,
};
pub use dtype::{DType, Element};
pub use engine::{Engine, Options, PlanCounters};
pub use error::{Error, Result};
pub use float8::{F8E4M3, F8E5M2};
pub use kernel::Kernel;
pub use node::{Edge, Edges, Node, Op};
pub use scalar::{BinaryOp, CompareOp, Expr, Inst, MapOp, Scalar, UnaryOp};
pub use shape::{MAX_RANK, Shape};
pub use view::{Strides, View};
