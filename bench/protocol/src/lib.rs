//! What the driver of `cargo xtask bench` and its participants (Tallow and its peers, each a process) say to one another: one
//! JSON value a line, requests on standard input, replies on standard output. Here, so that the driver, Tallow's
//! participant and the peers in Rust share one description; the peers in Python read the same JSON.

mod case;
mod message;
mod serve;

pub use case::{Case, Element, Fill, Input, Op};
pub use message::{Floors, Hello, InputFile, Job, Reply, Request};
pub use serve::{Participant, Prepared, Refusal, Timed, peak_bytes, read_f32, read_u32, serve, timed};
