//! The device-independent core of Tallow: dtypes, shapes, views, the lazy graph, fusion, planning, and the contract
//! that every backend implements. See docs/architecture.md for the way of a value through it.

mod dtype;
mod error;

pub use dtype::{DType, Element};
pub use error::{Error, Result};
