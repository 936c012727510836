//! The backend that runs the WGSL library through wgpu: everything between [`tallow_graph::Backend`] and a GPU.
//!
//! ```text
//! adapters   what can be opened, software devices told apart     open       features, limits, the library's Target
//! pool       device memory by size class                         write      uploads in bounded chunks
//! pipelines  compiled kernels, by whole-key equality             binds      bind groups, by buffers
//! submit     one pass, one uniform arena, large steps in pieces  read       downloads, faults, waiting
//! errors     how asynchronous failures reach a Result            backend    the trait itself
//! tune       which way to run a kernel is fastest here, measured
//! ```
//!
//! The order of everything is the queue's: writes, submits and reads happen on the device in the order of the calls. So
//! a buffer that comes back to the pool can be handed out at once, and uniform memory can be overwritten at once.
//!
//! A buffer may be larger than one binding (`max_storage_buffer_binding_size`, 128 MiB by WebGPU's default), up to
//! `max_buffer_size`. A step that uses one is cut into pieces by [`crate::library::split`], each of which binds windows of
//! its buffers. What cannot be cut, such as one row that is longer than a binding, is an error that names the limit. Steps
//! whose buffers all fit pay a comparison for it.
//!
//! A kernel that can fault writes {code, its number, index} to the fault word. It finds its number in the last word that
//! `params` wrote, which the host fills in: the number outlives the program, and a read may come many submits later.

mod adapters;
mod backend;
mod binds;
mod errors;
mod open;
mod pipelines;
mod pool;
mod read;
mod submit;
#[cfg(not(target_arch = "wasm32"))]
mod tune;
mod write;

#[cfg(not(target_arch = "wasm32"))]
pub use adapters::adapters_blocking;
pub use adapters::{AdapterDescription, adapters};
pub use backend::WgpuBackend;
pub use open::{Library, Options, Tier, Tune};
pub use pool::WgpuBuffer;
