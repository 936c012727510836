//! The graph's tests on the reference backend, one file a topic; `common` holds the model that they compare with.

mod basics;
mod common;
mod counts;
mod decoder;
mod memory;
mod random;
mod threads;
mod versions;
