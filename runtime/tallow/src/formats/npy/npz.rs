//! npz files: zip archives of npy files, stored or deflated. The archive's directory is checked when it is opened (see
//! `archive.rs`), an entry's checksum when it is read.

use super::{header::Header, read, to_bytes_async};
use crate::{
    DType, Device, Error, Result, Shape, Tensor,
    formats::{Bytes, Failed, archive::Archive, inside, quoted},
};
use std::{
    collections::{HashMap, HashSet},
    io::{Cursor, Seek, Write},
    path::{Path, PathBuf},
};
use zip::{CompressionMethod, ZipWriter, read::ZipFile, result::ZipError, write::SimpleFileOptions};

/// The format's name in errors.
const FORMAT: &str = "npz";
/// What an array's name has behind it in the archive.
const SUFFIX: &str = ".npy";
/// From here on sizes take the format's 64-bit fields.
const LARGE: u64 = 0xFFFF_FFFF;

fn bad(message: impl Into<String>) -> Error {
    Error::format(FORMAT, message)
}

/// An npz file, whose arrays are read when they are asked for.
///
/// ```no_run
/// use tallow::npy::NpzTensors;
/// let file = NpzTensors::new("weights.npz")?;
/// for name in file.names() {
///     let (shape, dtype) = file.get_shape_and_dtype(name)?;
///     println!("{name} {dtype} {shape:?}");
/// }
/// let bias = file.get("bias")?;
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct NpzTensors {
    archive: Archive,
    names: Vec<String>,
    /// Name to entry of the archive.
    entries: HashMap<String, usize>,
    /// Where it was opened, for errors.
    path: Option<PathBuf>,
}

impl NpzTensors {
    /// Maps a file and checks its directory. See [`Bytes::open`] on changing the file meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be opened, [`Error::Format`] where it is no sound zip archive.
    #[cfg(not(target_family = "wasm"))]
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::open(Bytes::open(path)?, Some(path))
    }

    /// Checks the directory of a whole file in memory.
    ///
    /// # Errors
    /// [`Error::Format`] where the bytes are no sound zip archive.
    pub fn parse(file: Bytes) -> Result<Self> {
        Self::open(file, None)
    }

    fn open(file: Bytes, path: Option<&Path>) -> Result<Self> {
        let directory = || {
            let archive = Archive::open(file, FORMAT)?;
            let all = archive.names()?;
            let mut names = Vec::with_capacity(all.len());
            let mut entries = HashMap::with_capacity(all.len());
            for (index, name) in all {
                let name = name.strip_suffix(SUFFIX).unwrap_or(&name).to_string();
                if entries.insert(name.clone(), index).is_some() {
                    return Err(bad(format!("the archive has two arrays named {}", quoted(&name))));
                }
                names.push(name);
            }
            Ok(Self { archive, names, entries, path: path.map(Path::to_path_buf) })
        };
        directory().map_err(|error| match path {
            Some(path) => crate::formats::in_file(path, error),
            None => error,
        })
    }

    /// The arrays' names, without `.npy`, in the file's order.
    pub fn names(&self) -> Vec<&String> {
        self.names.iter().collect()
    }

    /// What an array is, without reading it.
    ///
    /// # Errors
    /// There is no array of this name, or its header is not sound, or its type is one that Tallow has not.
    pub fn get_shape_and_dtype(&self, name: &str) -> Result<(Shape, DType)> {
        let found = self.with(name, |mut entry| Header::read(&mut entry))?;
        found.map(|header| (header.shape, header.dtype)).ok_or_else(|| self.absent(name))
    }

    /// An array, on the CPU; `None` where there is none of this name.
    ///
    /// # Errors
    /// The array is damaged, or its type is one that Tallow has not.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>> {
        // What is compressed may be larger than the file; then the room grows as the bytes come.
        self.with(name, |mut entry| read(&mut entry, self.archive.size(), &Device::Cpu))
    }

    /// An array that must be there.
    #[cfg(not(target_family = "wasm"))]
    pub(super) fn require(&self, name: &str) -> Result<Tensor> {
        self.get(name)?.ok_or_else(|| self.absent(name))
    }

    fn absent(&self, name: &str) -> Error {
        self.at(name, bad("the file has no array of this name"))
    }

    /// Does something with an entry of the archive.
    fn with<T>(&self, name: &str, what: impl FnOnce(ZipFile<'_, Cursor<Bytes>>) -> Result<T>) -> Result<Option<T>> {
        let Some(&index) = self.entries.get(name) else { return Ok(None) };
        self.archive.with(index, what).map(Some).map_err(|error| self.at(name, error))
    }

    /// An error with the file and the array that it is about.
    fn at(&self, name: &str, error: Error) -> Error {
        let error = inside(format_args!("array {}", quoted(name)), error);
        match &self.path {
            Some(path) => crate::formats::in_file(path, error),
            None => error,
        }
    }
}

/// The bytes of an npz file with these named tensors, uncompressed.
///
/// # Errors
/// Two tensors of one name, a dtype that NumPy has not (BF16, F8, packed weights), or a value that cannot be computed.
pub async fn npz_to_bytes_async<S: AsRef<str>, T: AsRef<Tensor>>(ts: &[(S, T)]) -> Result<Vec<u8>> {
    match put(Cursor::new(Vec::new()), ts).await {
        Ok(out) => Ok(out.into_inner()),
        Err(Failed::Value(error)) => Err(error),
        Err(Failed::Write(error)) => Err(Error::wrap("npz", error)),
    }
}

/// Writes an archive of these tensors.
pub(super) async fn put<W: Write + Seek, S: AsRef<str>, T: AsRef<Tensor>>(out: W, ts: &[(S, T)]) -> Result<W, Failed> {
    let at = |name: &str, error| inside(format_args!("array {}", quoted(name)), error);
    let mut names = HashSet::new();
    for (name, tensor) in ts {
        let (name, tensor) = (name.as_ref(), tensor.as_ref());
        Header::write(tensor.dtype(), tensor.shape()).map_err(|error| at(name, error))?;
        if !names.insert(name) {
            return Err(at(name, bad("two tensors have this name")).into());
        }
    }
    let mut archive = ZipWriter::new(out);
    for (name, tensor) in ts {
        let bytes = to_bytes_async(tensor.as_ref()).await?;
        let name = name.as_ref();
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let entry = archive.start_file(format!("{name}{SUFFIX}"), options.large_file(bytes.len() as u64 >= LARGE));
        entry.map_err(|e| failed(name, e))?;
        archive.write_all(&bytes)?;
    }
    archive.finish().map_err(|e| failed("", e))
}

fn failed(name: &str, error: ZipError) -> Failed {
    match error {
        ZipError::Io(error) => Failed::Write(error),
        other => Failed::Value(bad(format!("array {} cannot be written ({other})", quoted(name)))),
    }
}
