//! Writing GGUF files, version 3.

use std::borrow::Cow;
use std::io::Write;

use tallow_graph::{DType, Error, Result};

use super::types::{GgmlType, ValueType};
use super::value::OwnedValue;
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, FORMAT, MAGIC, MAX_DIMS, MAX_NAME, MAX_NESTING};
use crate::formats::quoted;

/// Collects metadata and tensors, then writes them.
///
/// ```
/// use tallow::formats::gguf::{Gguf, Writer};
/// use tallow::formats::Bytes;
/// use tallow_graph::DType;
///
/// let bytes = Writer::new()
///     .metadata("general.architecture", "llama")
///     .metadata("llama.block_count", 1u32)
///     .tensor("w", DType::F32, &[2, 3], vec![0u8; 24])
///     .to_bytes()?;
/// let file = Gguf::parse(Bytes::from(bytes))?;
/// assert_eq!(file.tensor("w")?.dims(), &[2, 3]);
/// # Ok::<(), tallow_graph::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Writer<'a> {
    metadata: Vec<(String, OwnedValue)>,
    tensors: Vec<Entry<'a>>,
}

#[derive(Debug, Clone)]
struct Entry<'a> {
    name: String,
    kind: Result<GgmlType, DType>,
    dims: Vec<usize>,
    data: Cow<'a, [u8]>,
}

/// How a tensor is stored: a [`DType`], or a type of ggml's that has none.
#[derive(Debug, Clone, Copy)]
pub struct Stored(Result<GgmlType, DType>);

impl From<DType> for Stored {
    fn from(dtype: DType) -> Self {
        Self(GgmlType::from_dtype(dtype).ok_or(dtype))
    }
}

impl From<GgmlType> for Stored {
    fn from(kind: GgmlType) -> Self {
        Self(Ok(kind))
    }
}

impl<'a> Writer<'a> {
    /// An empty file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key and its value. The key `general.alignment` (a u32, a power of two) sets the tensors' alignment.
    #[must_use]
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<OwnedValue>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor with its dimensions, outermost first, and its data: little-endian elements or ggml's blocks, row
    /// after row.
    #[must_use]
    pub fn tensor(
        mut self,
        name: impl Into<String>,
        dtype: impl Into<Stored>,
        dims: &[usize],
        data: impl Into<Cow<'a, [u8]>>,
    ) -> Self {
        let Stored(kind) = dtype.into();
        self.tensors.push(Entry { name: name.into(), kind, dims: dims.to_vec(), data: data.into() });
        self
    }

    /// The file as bytes.
    ///
    /// # Errors
    /// Where the format cannot express what was added: names that are empty, too long or used twice, a dtype that ggml
    /// has not, too many dimensions, rows that are not whole blocks, data of another size than the dimensions say,
    /// arrays of mixed types, a bad alignment.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.write_to(&mut out)?;
        Ok(out)
    }

    /// Writes the file to `out`.
    ///
    /// # Errors
    /// As [`Writer::to_bytes`], before anything is written; and where `out` fails.
    pub fn write_to(&self, out: &mut impl Write) -> Result<()> {
        let (header, alignment) = self.header()?;
        self.put(out, &header, alignment).map_err(|e| Error::msg(format!("writing a GGUF file: {e}")))
    }

    /// Writes the file at `path`, replacing what was there in one step.
    ///
    /// # Errors
    /// As [`Writer::to_bytes`]; [`Error::Io`] where the file cannot be written. Then nothing is left behind.
    #[cfg(not(target_family = "wasm"))]
    pub fn write(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        let path = path.as_ref();
        let (header, alignment) = self.header()?;
        crate::formats::replace(path, |out| Ok(self.put(out, &header, alignment)?))
    }

    fn put(&self, out: &mut impl Write, header: &[u8], alignment: u64) -> std::io::Result<()> {
        out.write_all(header)?;
        pad(out, header.len() as u64, alignment)?;
        for tensor in &self.tensors {
            out.write_all(&tensor.data)?;
            pad(out, tensor.data.len() as u64, alignment)?;
        }
        Ok(())
    }

    fn alignment(&self) -> Result<u64> {
        match self.metadata.iter().find(|(key, _)| key == ALIGNMENT_KEY) {
            None => Ok(DEFAULT_ALIGNMENT),
            Some((_, OwnedValue::U32(n))) if n.is_power_of_two() => Ok(u64::from(*n)),
            Some((_, other)) => {
                Err(Error::format(FORMAT, format!("{ALIGNMENT_KEY} must be a u32 and a power of two, not {other:?}")))
            }
        }
    }

    /// The header without its padding, and the alignment.
    fn header(&self) -> Result<(Vec<u8>, u64)> {
        let alignment = self.alignment()?;
        unique(self.metadata.iter().map(|(key, _)| key), "metadata key")?;
        unique(self.tensors.iter().map(|tensor| &tensor.name), "tensor name")?;
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_str(&mut out, key);
            out.extend(value.value_type().id().to_le_bytes());
            put_value(&mut out, value, 0)
                .map_err(|message| Error::format(FORMAT, format!("metadata key {}: {message}", quoted(key))))?;
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            let kind = tensor.check()?;
            put_str(&mut out, &tensor.name);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            for &dim in tensor.dims.iter().rev() {
                out.extend((dim as u64).to_le_bytes());
            }
            out.extend(kind.id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (tensor.data.len() as u64)
                .checked_next_multiple_of(alignment)
                .and_then(|bytes| offset.checked_add(bytes))
                .ok_or_else(|| Error::format(FORMAT, "the tensors take more than 2^64 bytes"))?;
        }
        Ok((out, alignment))
    }
}

impl Entry<'_> {
    fn check(&self) -> Result<GgmlType> {
        let bad = |message: String| Error::format(FORMAT, format!("tensor {}: {message}", quoted(&self.name)));
        let no_type = |dtype| bad(format!("GGUF has no type for {dtype}; store it as another"));
        let kind = self.kind.map_err(no_type)?;
        if self.dims.len() > MAX_DIMS {
            return Err(bad(format!("{:?} has more than {MAX_DIMS} dimensions", self.dims)));
        }
        let row = self.dims.last().copied().unwrap_or(1);
        let rows = self.dims.iter().rev().skip(1).try_fold(1usize, |n, &d| n.checked_mul(d));
        let (elements, size) = (kind.block_elements() as usize, kind.block_bytes() as usize);
        let blocks = row.is_multiple_of(elements).then_some(row / elements);
        let bytes =
            blocks.and_then(|n| n.checked_mul(size)).zip(rows).and_then(|(bytes, rows)| bytes.checked_mul(rows));
        match bytes {
            Some(bytes) if bytes == self.data.len() => Ok(kind),
            Some(bytes) => {
                Err(bad(format!("{:?} of {kind} take {bytes} bytes, but {} were given", self.dims, self.data.len())))
            }
            None => Err(bad(format!(
                "rows of {row} elements are not whole blocks of {kind} ({elements} elements), or the size overflows"
            ))),
        }
    }
}

fn unique<'n>(names: impl Iterator<Item = &'n String>, what: &str) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if name.is_empty() || name.len() as u64 > MAX_NAME {
            let text = format!("{what} {} has {} bytes; 1 to {MAX_NAME} are allowed", quoted(name), name.len());
            return Err(Error::format(FORMAT, text));
        }
        if !seen.insert(name) {
            return Err(Error::format(FORMAT, format!("{what} {} was added twice", quoted(name))));
        }
    }
    Ok(())
}

fn pad(out: &mut impl Write, len: u64, alignment: u64) -> std::io::Result<()> {
    let zeros = [0u8; 64];
    let mut left = len.next_multiple_of(alignment) - len;
    while left > 0 {
        let n = left.min(zeros.len() as u64) as usize;
        out.write_all(zeros.get(..n).unwrap_or_default())?;
        left -= n as u64;
    }
    Ok(())
}

fn put_str(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &OwnedValue, depth: usize) -> Result<(), String> {
    match value {
        OwnedValue::U8(v) => out.extend(v.to_le_bytes()),
        OwnedValue::I8(v) => out.extend(v.to_le_bytes()),
        OwnedValue::U16(v) => out.extend(v.to_le_bytes()),
        OwnedValue::I16(v) => out.extend(v.to_le_bytes()),
        OwnedValue::U32(v) => out.extend(v.to_le_bytes()),
        OwnedValue::I32(v) => out.extend(v.to_le_bytes()),
        OwnedValue::U64(v) => out.extend(v.to_le_bytes()),
        OwnedValue::I64(v) => out.extend(v.to_le_bytes()),
        OwnedValue::F32(v) => out.extend(v.to_le_bytes()),
        OwnedValue::F64(v) => out.extend(v.to_le_bytes()),
        OwnedValue::Bool(v) => out.push(u8::from(*v)),
        OwnedValue::Str(v) => put_str(out, v),
        OwnedValue::Array(..) if depth >= MAX_NESTING => {
            return Err(format!("arrays are nested more than {MAX_NESTING} deep"));
        }
        OwnedValue::Array(element, values) => {
            out.extend(element.id().to_le_bytes());
            out.extend((values.len() as u64).to_le_bytes());
            for value in values {
                let kind = value.value_type();
                if kind != *element {
                    return Err(format!("an array of {element} holds a value of type {kind}"));
                }
                put_value(out, value, depth + 1)?;
            }
        }
    }
    Ok(())
}

impl From<(ValueType, Vec<OwnedValue>)> for OwnedValue {
    /// An array, for element types that have no vector of their own (arrays of arrays).
    fn from((element, values): (ValueType, Vec<OwnedValue>)) -> Self {
        OwnedValue::Array(element, values)
    }
}
