//! A checkpoint split over several safetensors files, held together by an index:
//! `{"weight_map": {tensor name: file name}}`.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Deserialize;
use tallow_graph::{DType, Error, Result};

use super::{FORMAT, SafeTensors, TensorInfo, in_file};
use crate::formats::{Bytes, quoted};

/// The largest index that is read: ten times those of the largest open models.
const MAX_INDEX: u64 = 100_000_000;

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The files of a sharded checkpoint, with every tensor found.
#[derive(Debug, Clone)]
pub struct Sharded {
    shards: Vec<SafeTensors>,
    /// Tensor name to index of `shards`.
    homes: BTreeMap<String, usize>,
}

impl Sharded {
    /// Opens the index and each file that it names. The files must lie next to the index.
    ///
    /// # Errors
    /// Where the index or a file cannot be read, the index names a path instead of a plain file name, or a tensor is
    /// not in the file that the index gives for it.
    pub fn open(index: impl AsRef<Path>) -> Result<Self> {
        let path = index.as_ref();
        let bytes = Bytes::open(path)?;
        let bad = |message: String| in_file(path, Error::format(FORMAT, message));
        if bytes.len() as u64 > MAX_INDEX {
            return Err(bad(format!("the index has {} bytes; {MAX_INDEX} is the most", bytes.len())));
        }
        let index: Index = serde_json::from_slice(&bytes).map_err(|e| bad(format!("the index: {e}")))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut shards = Vec::new();
        let mut places = BTreeMap::new();
        let mut homes = BTreeMap::new();
        for (tensor, file) in index.weight_map {
            let place = match places.get(&file) {
                Some(&place) => place,
                None => {
                    if !is_plain_name(&file) {
                        let text = format!(
                            "the index puts tensor {} into {}: only names of files next to the index are allowed",
                            quoted(&tensor),
                            quoted(&file)
                        );
                        return Err(bad(text));
                    }
                    shards.push(SafeTensors::open(folder.join(&file))?);
                    places.insert(file.clone(), shards.len() - 1);
                    shards.len() - 1
                }
            };
            if shards.get(place).and_then(|shard| shard.get(&tensor)).is_none() {
                return Err(bad(format!("tensor {} is not in {}", quoted(&tensor), quoted(&file))));
            }
            homes.insert(tensor, place);
        }
        Ok(Self { shards, homes })
    }

    /// The names of all tensors, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.homes.keys().map(String::as_str)
    }

    /// The files.
    pub fn shards(&self) -> &[SafeTensors] {
        &self.shards
    }

    /// One tensor's description.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.shard(name)?.get(name)
    }

    /// A tensor's type, dimensions (outermost first) and data, without a copy. BOOL is read as U8.
    ///
    /// # Errors
    /// Where there is no such tensor, or its type has no [`DType`].
    pub fn tensor(&self, name: &str) -> Result<(DType, Vec<usize>, Bytes)> {
        self.shard(name)
            .ok_or_else(|| Error::format(FORMAT, format!("the index has no tensor named {}", quoted(name))))?
            .tensor(name)
    }

    fn shard(&self, name: &str) -> Option<&SafeTensors> {
        self.shards.get(*self.homes.get(name)?)
    }
}

/// Whether this is one plain name on every system: no separator of any kind, no drive or stream, nothing relative.
fn is_plain_name(name: &str) -> bool {
    let one = {
        let mut parts = Path::new(name).components();
        matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
    };
    one && !name.contains(['/', '\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::is_plain_name;

    #[test]
    fn only_plain_names_pass() {
        assert!(is_plain_name("model-00001-of-00002.safetensors"));
        for name in ["", ".", "..", "a/b", "/a", "../a", "a\\b", "C:a", "a/", "a:b", "a\0b", "./a"] {
            assert!(!is_plain_name(name), "{name:?}");
        }
    }
}
