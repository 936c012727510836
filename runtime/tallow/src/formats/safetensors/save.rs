//! Writing safetensors files: a header, and the tensors' bytes without gaps.

use super::{FORMAT, header::StDtype};
use crate::{Error, Result, Tensor, formats::quoted};
use std::{collections::HashMap, hash::BuildHasher};

/// The tensors in the order of their data (the widest types first, so that each is aligned, then by name), and the header.
fn layout<K: AsRef<str>, S: BuildHasher>(tensors: &HashMap<K, Tensor, S>) -> Result<(Vec<&Tensor>, Vec<u8>)> {
    let mut sorted: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_ref(), tensor)).collect();
    sorted.sort_by_key(|(name, tensor)| (std::cmp::Reverse(tensor.dtype().size_in_bytes()), *name));
    let mut header = serde_json::Map::new();
    let mut end = 0u64;
    for (name, tensor) in &sorted {
        let dtype = StDtype::of(tensor.dtype()).ok_or_else(|| {
            let text = format!("{} is packed as {}: dequantize it first", quoted(name), tensor.dtype());
            Error::format(FORMAT, text)
        })?;
        if *name == "__metadata__" {
            return Err(Error::format(FORMAT, "a tensor cannot be named __metadata__"));
        }
        let start = end;
        end += (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64;
        let entry = serde_json::json!({"dtype": dtype.name(), "shape": tensor.dims(), "data_offsets": [start, end]});
        header.insert((*name).to_string(), entry);
    }
    let mut text = serde_json::Value::Object(header).to_string().into_bytes();
    // The data begins at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    Ok((sorted.into_iter().map(|(_, tensor)| tensor).collect(), bytes))
}

/// The bytes of a file with these tensors.
///
/// # Errors
/// A packed (quantized) tensor, or a value that cannot be computed.
pub async fn to_bytes_async<K: AsRef<str>, S: BuildHasher>(tensors: &HashMap<K, Tensor, S>) -> Result<Vec<u8>> {
    let (tensors, mut bytes) = layout(tensors)?;
    for tensor in tensors {
        bytes.extend(tensor.to_bytes_async().await?);
    }
    Ok(bytes)
}

/// Writes the tensors to a file, replacing what was there in one step.
///
/// ```no_run
/// use std::collections::HashMap;
/// use tallow::{safetensors, Device, Tensor};
///
/// let weight = Tensor::randn(0f32, 1., (2, 3), &Device::Cpu)?;
/// safetensors::save(&HashMap::from([("weight", weight)]), "model.safetensors")?;
/// let loaded = safetensors::load("model.safetensors", &Device::Cpu)?;
/// assert_eq!(loaded["weight"].dims(), [2, 3]);
/// # Ok::<(), tallow::Error>(())
/// ```
///
/// # Errors
/// A packed (quantized) tensor, a value that cannot be computed, or a file that cannot be written; then nothing is left
/// behind.
#[cfg(not(target_family = "wasm"))]
pub fn save<K: AsRef<str>, S: BuildHasher>(
    tensors: &HashMap<K, Tensor, S>,
    path: impl AsRef<std::path::Path>,
) -> Result<()> {
    use std::io::Write;
    let (tensors, header) = layout(tensors)?;
    crate::formats::replace(path.as_ref(), |out| {
        out.write_all(&header)?;
        for tensor in tensors {
            out.write_all(&crate::block_on(tensor.to_bytes_async())?)?;
        }
        Ok(())
    })
}

#[cfg(not(target_family = "wasm"))]
impl Tensor {
    /// Writes this tensor to a safetensors file under a name.
    ///
    /// # Errors
    /// As [`save`].
    pub fn save_safetensors(&self, name: &str, path: impl AsRef<std::path::Path>) -> Result<()> {
        save(&HashMap::from([(name, self.clone())]), path)
    }
}
