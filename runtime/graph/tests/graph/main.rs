//! The graph's tests on the reference backend, one file a topic; `common` holds the model that they compare with.

mod basics;
mod choices;
mod common;
mod convolution;
mod corners;
mod counts;
mod decoder;
mod faults;
mod indexing;
mod memory;
mod random;
mod replay;
mod threads;
mod versions;
