//! safetensors, Hugging Face's file format: reading, of one file and of sharded checkpoints, and writing.
//!
//! A file is eight bytes of header length, a JSON header {name: {dtype, shape, data_offsets}}, and the tensors' data
//! without gaps. The `safetensors` crate serves the tests as the reference, but does not read headers here: it holds a
//! header in memory many times over before it checks it, lets a name come twice, and adds offsets without a check for
//! overflow. Its rules are kept: 100 MB of header at most, and data that the tensors cover exactly.

mod header;
mod load;
mod save;
mod sharded;

use std::path::Path;

use tallow_graph::{DType, Error, Result};

pub use header::{StDtype, TensorInfo};
pub use load::{BufferedSafetensors, Load, SliceSafetensors, TensorView, load_buffer};
#[cfg(not(target_family = "wasm"))]
pub use load::{MmapedSafetensors, load};
#[cfg(not(target_family = "wasm"))]
pub use save::save;
pub use save::to_bytes_async;
pub use sharded::Sharded;

use super::{Bytes, in_file, quoted};
use header::Header;

/// The format's name in errors.
const FORMAT: &str = "safetensors";

/// A safetensors file whose header was read and checked.
///
/// ```no_run
/// use tallow::formats::SafeTensors;
/// let file = SafeTensors::open("model.safetensors")?;
/// for name in file.names() {
///     let (dtype, shape, bytes) = file.tensor(name)?;
///     println!("{name} {dtype} {shape:?} {}", bytes.len());
/// }
/// # Ok::<(), tallow_graph::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SafeTensors {
    header: Header,
    file: Bytes,
}

impl SafeTensors {
    /// Maps the file and checks its header. See [`Bytes::open`] on changing the file meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be opened, [`Error::Format`] where it is no sound safetensors file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(Bytes::open(path)?).map_err(|error| in_file(path, error))
    }

    /// Checks the header of a whole file in memory.
    ///
    /// # Errors
    /// [`Error::Format`] where the bytes are no sound safetensors file.
    pub fn parse(file: Bytes) -> Result<Self> {
        Ok(Self { header: Header::parse(&file)?, file })
    }

    /// Opens a checkpoint that is split over several files, by its `model.safetensors.index.json`.
    ///
    /// # Errors
    /// As [`Sharded::open`].
    pub fn open_sharded(index: impl AsRef<Path>) -> Result<Sharded> {
        Sharded::open(index)
    }

    /// The tensors' names, in the order of their data.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.header.tensors().iter().map(TensorInfo::name)
    }

    /// The tensors' descriptions, in the order of their data.
    pub fn tensors(&self) -> &[TensorInfo] {
        self.header.tensors()
    }

    /// One tensor's description.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.header.get(name)
    }

    /// The free-form strings of `__metadata__`, in the file's order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.header.metadata()
    }

    /// A tensor's type, dimensions (outermost first) and data, without a copy. BOOL is read as U8.
    ///
    /// # Errors
    /// Where there is no such tensor, or its type has no [`DType`].
    pub fn tensor(&self, name: &str) -> Result<(DType, Vec<usize>, Bytes)> {
        let info = self.get(name).ok_or_else(|| no_such(name))?;
        Ok((dtype_of(info)?, info.dims().to_vec(), self.file.slice(info.range())?))
    }
}

fn no_such(name: &str) -> Error {
    Error::format(FORMAT, format!("the file has no tensor named {}", quoted(name)))
}

fn dtype_of(info: &TensorInfo) -> Result<DType> {
    info.dtype().ok_or_else(|| {
        let (name, kind) = (quoted(info.name()), info.st_dtype().name());
        Error::format(FORMAT, format!("tensor {name} has type {kind}, which Tallow does not load"))
    })
}
