//! GGUF files under candle's names: metadata and tensor descriptions from anything that can be read and sought, tensors when they
//! are asked for, and writing. Headers are checked by [`formats::gguf`](crate::formats::gguf), which also maps files and streams.

use super::{GgmlDType, QStorage, QTensor};
use crate::{
    Device, Error, Result, Shape,
    formats::{
        Bytes,
        gguf::{HeaderReader, Writer},
        quoted,
    },
};
use std::{
    collections::HashMap,
    io::{Read, Seek, SeekFrom, Write},
};

pub use crate::formats::gguf::{OwnedValue as Value, ValueType};

/// The format's name in errors.
const FORMAT: &str = "GGUF";
/// How much of a header is read at once.
const CHUNK: usize = 1 << 16;

/// The format's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum VersionedMagic {
    GgufV2,
    GgufV3,
}

/// What a file says of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// The type of its blocks.
    pub ggml_dtype: GgmlDType,
    /// Its sizes, outermost first.
    pub shape: Shape,
    /// Where its data begins, in bytes from where all tensors' data does.
    pub offset: u64,
}

impl TensorInfo {
    /// Reads the tensor from its file onto a device.
    ///
    /// # Errors
    /// The file has fewer bytes, or cannot be read, or the device has no room.
    pub fn read<R: Seek + Read>(&self, reader: &mut R, data_offset: u64, device: &Device) -> Result<QTensor> {
        let bytes = self.ggml_dtype.bytes_for(self.shape.elem_count());
        let start = data_offset.checked_add(self.offset);
        let (Some(bytes), Some(start)) = (bytes, start) else {
            return Err(Error::format(FORMAT, format!("{:?} of {} cannot be", self.shape, self.ggml_dtype)));
        };
        reader.seek(SeekFrom::Start(start)).map_err(unreadable)?;
        let data = read_exactly(reader, bytes)?;
        QTensor::new(QStorage::from_bytes(data, device, self.ggml_dtype)?, &self.shape)
    }
}

/// The next bytes of a stream. The room for them grows as they come: a header is not believed.
pub(super) fn read_exactly(reader: &mut impl Read, bytes: usize) -> Result<Bytes> {
    let mut data = Vec::new();
    reader.take(bytes as u64).read_to_end(&mut data).map_err(unreadable)?;
    if data.len() != bytes {
        return Err(Error::format(
            FORMAT,
            format!("truncated: {bytes} bytes of data are missing {}", bytes - data.len()),
        ));
    }
    Ok(data.into())
}

pub(super) fn unreadable(error: std::io::Error) -> Error {
    Error::wrap("reading a model file", error)
}

/// The header of a file.
///
/// ```
/// use tallow::quantized::{GgmlDType, QTensor, gguf_file};
/// use tallow::{Device, Tensor};
///
/// let w = QTensor::quantize(&Tensor::ones((2, 32), tallow::DType::F32, &Device::Cpu)?, GgmlDType::Q8_0)?;
/// let mut file = std::io::Cursor::new(Vec::new());
/// gguf_file::write(&mut file, &[("general.name", &"tiny".into())], &[("w", &w)])?;
/// let content = gguf_file::Content::read(&mut file)?;
/// assert_eq!(content.metadata["general.name"].to_string()?, "tiny");
/// assert_eq!(content.tensor(&mut file, "w", &Device::Cpu)?.shape().dims(), [2, 32]);
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Debug)]
pub struct Content {
    /// The format's version.
    pub magic: VersionedMagic,
    /// Keys and values.
    pub metadata: HashMap<String, Value>,
    /// The tensors, without those of types that [`GgmlDType`] has not.
    pub tensor_infos: HashMap<String, TensorInfo>,
    /// Where the tensors' data begins, in bytes from the file's start.
    pub tensor_data_offset: u64,
    /// Name to type of the others.
    others: HashMap<String, &'static str>,
}

impl Content {
    /// Reads a header, from the file's start, and checks it.
    ///
    /// # Errors
    /// This is no sound GGUF file, with what was wrong and at which byte; or it cannot be read.
    pub fn read<R: Seek + Read>(reader: &mut R) -> Result<Self> {
        let size = reader.seek(SeekFrom::End(0)).map_err(unreadable)?;
        reader.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let mut header = HeaderReader::new(Some(size));
        let mut chunk = Vec::with_capacity(CHUNK);
        let header = loop {
            chunk.clear();
            reader.by_ref().take(CHUNK as u64).read_to_end(&mut chunk).map_err(unreadable)?;
            if chunk.is_empty() {
                header.finish()?;
                return Err(Error::format(FORMAT, "the file is empty"));
            }
            if let Some(header) = header.push(&chunk)? {
                break header;
            }
        };
        header.check_size(size)?;
        let mut content = Self {
            magic: if header.version() == 2 { VersionedMagic::GgufV2 } else { VersionedMagic::GgufV3 },
            metadata: header.metadata().iter().map(|(key, value)| (key.to_string(), value.to_owned())).collect(),
            tensor_infos: HashMap::with_capacity(header.tensors().len()),
            tensor_data_offset: header.data_start(),
            others: HashMap::new(),
        };
        for info in header.tensors().iter() {
            let name = info.name.to_string();
            match GgmlDType::from_u32(info.ggml_type.id()) {
                Some(ggml_dtype) => {
                    let (shape, offset) = (Shape::new(info.dims()), info.offset - header.data_start());
                    content.tensor_infos.insert(name, TensorInfo { ggml_dtype, shape, offset });
                }
                None => drop(content.others.insert(name, info.ggml_type.name())),
            }
        }
        Ok(content)
    }

    /// Reads a tensor from the file onto a device.
    ///
    /// # Errors
    /// There is none of this name, or it has a type that [`GgmlDType`] has not; and as [`TensorInfo::read`].
    pub fn tensor<R: Seek + Read>(&self, reader: &mut R, name: &str, device: &Device) -> Result<QTensor> {
        let info = self.tensor_infos.get(name).ok_or_else(|| {
            let shown = quoted(name);
            match self.others.get(name) {
                Some(kind) => Error::format(FORMAT, format!("tensor {shown} has type {kind}, which no QTensor has")),
                None => Error::format(FORMAT, format!("the file has no tensor named {shown}")),
            }
        })?;
        let read = info.read(reader, self.tensor_data_offset, device);
        read.map_err(|error| crate::formats::inside(format_args!("tensor {}", quoted(name)), error))
    }
}

/// Writes a file (version 3). Waits for the tensors' blocks; in a browser use [`to_bytes_async`]. [`Writer::write`] replaces a file
/// in one step.
///
/// # Errors
/// What GGUF cannot say (see [`Writer::to_bytes`]), blocks that cannot be read back, or `w` fails.
pub fn write<W: Seek + Write>(w: &mut W, metadata: &[(&str, &Value)], tensors: &[(&str, &QTensor)]) -> Result<()> {
    let mut writer = described(metadata);
    for (name, tensor) in tensors {
        writer = writer.tensor(*name, stored(tensor), tensor.shape().dims(), tensor.data()?);
    }
    writer.write_to(w)
}

/// The bytes of a file, where nothing may block.
///
/// # Errors
/// As [`write()`].
pub async fn to_bytes_async(metadata: &[(&str, &Value)], tensors: &[(&str, &QTensor)]) -> Result<Vec<u8>> {
    let mut writer = described(metadata);
    for (name, tensor) in tensors {
        writer = writer.tensor(*name, stored(tensor), tensor.shape().dims(), tensor.data_async().await?);
    }
    writer.to_bytes()
}

fn described<'a>(metadata: &[(&str, &Value)]) -> Writer<'a> {
    metadata.iter().fold(Writer::new(), |writer, (key, value)| writer.metadata(*key, (*value).clone()))
}

fn stored(tensor: &QTensor) -> crate::formats::gguf::GgmlType {
    tensor.dtype().into()
}
