//! The graph's tests on the reference backend, one file a topic; `common` holds the model that they compare with.

mod basics;
mod common;
mod random;
