//! The command line, by running its binary on small files that the tests make. Everything computes on the CPU.

mod chat;
mod devices;
mod errors;
mod inspect;
#[cfg(unix)]
mod interrupt;
mod pull;
mod run;
mod support;
