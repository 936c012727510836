//! The commands, one file each: its options, and what it does.

pub mod chat;
pub mod devices;
pub mod inspect;
pub mod pull;
pub mod run;
