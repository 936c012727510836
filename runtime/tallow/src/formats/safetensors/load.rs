//! Tensors from safetensors files, under candle's names.

use super::{FORMAT, SafeTensors, TensorInfo, dtype_of, header::Header, no_such};
use crate::{DType, Device, Error, Result, Tensor, formats::Bytes};
use std::collections::HashMap;

fn tensor(file: &SafeTensors, name: &str, device: &Device) -> Result<Tensor> {
    let (dtype, dims, bytes) = file.tensor(name)?;
    Tensor::from_bytes(&bytes, dtype, dims.as_slice(), device)
}

fn all(file: &SafeTensors, device: &Device) -> Result<HashMap<String, Tensor>> {
    file.names().map(|name| Ok((name.to_string(), tensor(file, name, device)?))).collect()
}

/// All tensors of a file, by name, on a device.
///
/// # Errors
/// The file cannot be read, or is no sound safetensors file, or holds a type that Tallow has not.
#[cfg(not(target_family = "wasm"))]
pub fn load(path: impl AsRef<std::path::Path>, device: &Device) -> Result<HashMap<String, Tensor>> {
    all(&SafeTensors::open(path)?, device)
}

/// All tensors of a file in memory, by name, on a device.
///
/// # Errors
/// As [`SafeTensors::parse`] and [`SafeTensors::tensor`].
pub fn load_buffer(bytes: &[u8], device: &Device) -> Result<HashMap<String, Tensor>> {
    all(&SafeTensors::parse(Bytes::from(bytes.to_vec()))?, device)
}

/// One or several mapped files, from which tensors are loaded by name.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug, Clone)]
pub struct MmapedSafetensors {
    files: Vec<SafeTensors>,
}

#[cfg(not(target_family = "wasm"))]
impl MmapedSafetensors {
    /// Maps a file. (candle's is unsafe, because another program may change the file: see [`Bytes::open`].)
    ///
    /// # Errors
    /// As [`SafeTensors::open`].
    pub fn new(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::multi(&[path])
    }

    /// Maps several files: the shards of one model.
    ///
    /// # Errors
    /// As [`SafeTensors::open`].
    pub fn multi<P: AsRef<std::path::Path>>(paths: &[P]) -> Result<Self> {
        Ok(Self { files: paths.iter().map(SafeTensors::open).collect::<Result<_>>()? })
    }

    /// Loads a tensor from the first file that has it.
    ///
    /// # Errors
    /// No file has a tensor of this name, or its type is one that Tallow has not.
    pub fn load(&self, name: &str, device: &Device) -> Result<Tensor> {
        let file = self.files.iter().find(|file| file.get(name).is_some()).or(self.files.first());
        let file = file.ok_or_else(|| Error::format(FORMAT, "there are no files to load from"))?;
        tensor(file, name, device)
    }

    /// A look at a tensor in the first file that has it.
    ///
    /// # Errors
    /// No file has a tensor of this name.
    pub fn get(&self, name: &str) -> Result<TensorView<'_>> {
        let file = self.files.iter().find(|file| file.get(name).is_some()).ok_or_else(|| no_such(name))?;
        view(&file.header, &file.file, name)
    }

    /// All tensors, file by file.
    pub fn tensors(&self) -> Vec<(String, TensorView<'_>)> {
        self.files.iter().flat_map(|file| views(&file.header, &file.file)).collect()
    }

    /// The names of all tensors, file by file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flat_map(SafeTensors::names)
    }
}

/// What has a tensor's values: a [`TensorView`].
pub trait Load {
    /// The tensor on a device.
    ///
    /// # Errors
    /// Its type is one that Tallow has not, or the device has no room.
    fn load(&self, device: &Device) -> Result<Tensor>;
}

/// A tensor of a file, not yet loaded.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    info: &'a TensorInfo,
    data: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Name, dimensions and type.
    pub fn info(&self) -> &'a TensorInfo {
        self.info
    }

    /// The type.
    ///
    /// # Errors
    /// It is one that Tallow has not.
    pub fn dtype(&self) -> Result<DType> {
        dtype_of(self.info)
    }

    /// The dimensions, outermost first.
    pub fn shape(&self) -> &'a [usize] {
        self.info.dims()
    }

    /// The values, little-endian.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }
}

impl Load for TensorView<'_> {
    fn load(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(self.data, self.dtype()?, self.shape(), device)
    }
}

fn view<'a>(header: &'a Header, file: &'a [u8], name: &str) -> Result<TensorView<'a>> {
    let info = header.get(name).ok_or_else(|| no_such(name))?;
    let data =
        file.get(info.range()).ok_or_else(|| Error::format(FORMAT, "the file is shorter than its header says"))?;
    Ok(TensorView { info, data })
}

fn views<'a>(header: &'a Header, file: &'a [u8]) -> impl Iterator<Item = (String, TensorView<'a>)> {
    let view =
        |info: &'a TensorInfo| Some((info.name().to_string(), TensorView { info, data: file.get(info.range())? }));
    header.tensors().iter().filter_map(view)
}

/// A file in memory that someone else owns, from which tensors are loaded by name.
#[derive(Debug, Clone)]
pub struct SliceSafetensors<'a> {
    header: Header,
    file: &'a [u8],
}

impl<'a> SliceSafetensors<'a> {
    /// Checks the header.
    ///
    /// # Errors
    /// The bytes are no sound safetensors file.
    pub fn new(file: &'a [u8]) -> Result<Self> {
        Ok(Self { header: Header::parse(file)?, file })
    }

    /// Loads a tensor.
    ///
    /// # Errors
    /// There is none of this name, or its type is one that Tallow has not.
    pub fn load(&self, name: &str, device: &Device) -> Result<Tensor> {
        self.get(name)?.load(device)
    }

    /// A look at a tensor.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn get(&self, name: &str) -> Result<TensorView<'_>> {
        view(&self.header, self.file, name)
    }

    /// All tensors, in the order of their data.
    pub fn tensors(&self) -> Vec<(String, TensorView<'_>)> {
        views(&self.header, self.file).collect()
    }
}

/// A file in memory, from which tensors are loaded by name.
#[derive(Debug, Clone)]
pub struct BufferedSafetensors {
    header: Header,
    file: Vec<u8>,
}

impl BufferedSafetensors {
    /// Checks the header.
    ///
    /// # Errors
    /// The bytes are no sound safetensors file.
    pub fn new(file: Vec<u8>) -> Result<Self> {
        Ok(Self { header: Header::parse(&file)?, file })
    }

    /// Loads a tensor.
    ///
    /// # Errors
    /// There is none of this name, or its type is one that Tallow has not.
    pub fn load(&self, name: &str, device: &Device) -> Result<Tensor> {
        self.get(name)?.load(device)
    }

    /// A look at a tensor.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn get(&self, name: &str) -> Result<TensorView<'_>> {
        view(&self.header, &self.file, name)
    }

    /// All tensors, in the order of their data.
    pub fn tensors(&self) -> Vec<(String, TensorView<'_>)> {
        views(&self.header, &self.file).collect()
    }
}
