//! Tensors from safetensors files, under candle's names.

use super::SafeTensors;
use crate::{Device, Result, Tensor, formats::Bytes};
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
        let file = file.ok_or_else(|| crate::Error::format(super::FORMAT, "there are no files to load from"))?;
        tensor(file, name, device)
    }

    /// The names of all tensors, file by file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().flat_map(SafeTensors::names)
    }
}
