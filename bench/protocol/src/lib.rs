//! What the driver of `cargo xtask bench` and its participants (Tallow and its peers, each a process) say to one another: one
//! JSON value a line, requests on standard input, replies on standard output. Here, so that the driver, Tallow's
//! participant and the peers in Rust share one description; the peers in Python read the same JSON.

mod case;
mod message;
mod model;
mod serve;

pub use case::{Case, Element, Fill, Input, Op, Unit};
pub use message::{Floors, Hello, InputFile, Job, Reply, Request};
pub use model::{FIRST_TOKEN, FirstToken, Model, first_token, greedy, prepare_model};
pub use serve::{Participant, Prepared, Refusal, Timed, peak_bytes, read_f32, read_u32, serve, timed};
