//! GGUF, the file format of llama.cpp: reading (versions 2 and 3) and writing (version 3).
//!
//! A file is a header (metadata as key and value pairs, then the tensors' names, shapes, types and offsets), padding to
//! the alignment, and the tensors' data. [`Gguf`] maps a whole file; [`HeaderReader`] takes a header piece by piece, for
//! a stream or for ranges, and leaves the data to the caller. Both run the same parser. The layout is that of the
//! GGUF specification in ggml's documentation (docs/gguf.md); all numbers are little-endian.

mod header;
mod parse;
mod stream;
mod types;
mod value;
mod writer;

use std::ops::Deref;
use std::path::Path;

use tallow_graph::{DType, Error, Result};

pub use header::{FromValue, Header, Metadata, TensorInfo, Tensors};
pub use stream::HeaderReader;
pub use types::{GgmlType, ValueType};
pub use value::{Array, OwnedValue, Strings, Value, Values};
pub use writer::{Stored, Writer};

use super::{Bytes, in_file, quoted};

/// The format's name in errors.
const FORMAT: &str = "GGUF";
/// The first four bytes.
const MAGIC: [u8; 4] = *b"GGUF";
/// The most dimensions a tensor has, as in ggml.
const MAX_DIMS: usize = 4;
/// Arrays inside arrays inside a value. Files in use have one level.
const MAX_NESTING: usize = 4;
/// The longest name of a key (the specification's limit) or a tensor.
const MAX_NAME: u64 = u16::MAX as u64;
/// The alignment where `general.alignment` says nothing.
const DEFAULT_ALIGNMENT: u64 = 32;
/// The key that changes it.
const ALIGNMENT_KEY: &str = "general.alignment";

/// A GGUF file whose header was read and checked. It dereferences to its [`Header`].
///
/// ```no_run
/// use tallow::formats::Gguf;
/// let file = Gguf::open("model.gguf")?;
/// println!("{}", file.metadata().get_str("general.architecture")?);
/// for tensor in file.tensors().iter() {
///     println!("{} {} {:?}", tensor.name, tensor.ggml_type, tensor.dims());
/// }
/// let (dtype, dims, bytes) = file.load("output_norm.weight")?;
/// # Ok::<(), tallow_graph::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Gguf {
    header: Header,
    file: Bytes,
}

impl Gguf {
    /// Maps the file and checks its header. See [`Bytes::open`] on changing the file meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be opened, [`Error::Format`] where it is no sound GGUF file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(Bytes::open(path)?).map_err(|error| in_file(path, error))
    }

    /// Checks the header of a whole file in memory.
    ///
    /// # Errors
    /// [`Error::Format`] where the bytes are no sound GGUF file, with what was wrong and at which byte.
    pub fn parse(file: Bytes) -> Result<Self> {
        let header = parse::whole(&file)?;
        Ok(Self { header, file })
    }

    /// The header alone.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The whole file.
    pub fn file(&self) -> &Bytes {
        &self.file
    }

    /// A tensor's data, of whatever type, without a copy.
    ///
    /// # Errors
    /// Where there is no such tensor.
    pub fn tensor_bytes(&self, name: &str) -> Result<Bytes> {
        let info = self.header.tensor(name)?;
        let range = || {
            let from = usize::try_from(info.offset).ok()?;
            Some(from..from.checked_add(usize::try_from(info.bytes).ok()?)?)
        };
        let range = range().ok_or_else(|| Error::format(FORMAT, format!("tensor {} is too large", quoted(name))))?;
        self.file.slice(range)
    }

    /// A tensor's type, dimensions (outermost first) and data, without a copy.
    ///
    /// # Errors
    /// Where there is no such tensor, or its type has no [`DType`].
    pub fn load(&self, name: &str) -> Result<(DType, Vec<usize>, Bytes)> {
        let info = self.header.tensor(name)?;
        Ok((info.require_dtype()?, info.dims().to_vec(), self.tensor_bytes(name)?))
    }
}

impl Deref for Gguf {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}
