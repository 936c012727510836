//! The files that llama.cpp read before GGUF (GGML, GGMF, GGJT), under candle's names: hyperparameters, a vocabulary with scores, and
//! tensors one after another. All numbers are little-endian.

use super::{
    GgmlDType, QStorage, QTensor,
    gguf_file::{read_exactly, unreadable},
};
use crate::{
    Device, Error, Result,
    formats::{inside, quoted},
};
use std::{
    collections::HashMap,
    io::{Read, Seek, SeekFrom},
};

/// The format's name in errors.
const FORMAT: &str = "GGML";
/// The longest token or name that is read.
const MAX_TEXT: u32 = 1 << 16;
/// The most dimensions a tensor has.
const MAX_DIMS: u32 = 4;
/// GGJT's tensors begin at multiples of this.
const ALIGNMENT: u64 = 32;

fn bad(message: impl Into<String>) -> Error {
    Error::format(FORMAT, message)
}

/// The format's variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum VersionedMagic {
    GgmlUnversioned,
    GgmfV1,
    GgjtV1,
    GgjtV2,
    GgjtV3,
}

impl VersionedMagic {
    fn read(reader: &mut impl Read) -> Result<Self> {
        let magic = word(reader)?;
        if magic == u32::from_be_bytes(*b"ggml") {
            return Ok(Self::GgmlUnversioned);
        }
        let name = magic.to_be_bytes();
        if !matches!(&name, b"ggmf" | b"ggjt") {
            return Err(bad(format!("this is no GGML, GGMF or GGJT file: it begins with {magic:#010x}")));
        }
        match (&name, word(reader)?) {
            (b"ggmf", 1) => Ok(Self::GgmfV1),
            (b"ggjt", 1) => Ok(Self::GgjtV1),
            (b"ggjt", 2) => Ok(Self::GgjtV2),
            (b"ggjt", 3) => Ok(Self::GgjtV3),
            (_, version) => Err(bad(format!("version {version} of {} is unknown", String::from_utf8_lossy(&name)))),
        }
    }

    fn has_scores(self) -> bool {
        self != Self::GgmlUnversioned
    }

    fn aligned(self) -> bool {
        matches!(self, Self::GgjtV1 | Self::GgjtV2 | Self::GgjtV3)
    }
}

/// The model's sizes, as LLaMA files have them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the format's")]
pub struct HParams {
    pub n_vocab: u32,
    pub n_embd: u32,
    pub n_mult: u32,
    pub n_head: u32,
    pub n_layer: u32,
    pub n_rot: u32,
    pub ftype: u32,
}

/// The tokens' bytes with their scores (0 in files that have none).
#[derive(Debug, Clone, PartialEq)]
pub struct Vocab {
    /// By the token's number.
    pub token_score_pairs: Vec<(Vec<u8>, f32)>,
}

/// A whole file.
#[derive(Debug, Clone)]
pub struct Content {
    /// The variant.
    pub magic: VersionedMagic,
    /// The model's sizes.
    pub hparams: HParams,
    /// The tokens.
    pub vocab: Vocab,
    /// The tensors.
    pub tensors: HashMap<String, QTensor>,
    /// Where they live.
    pub device: Device,
}

impl Content {
    /// Reads a file from its start, its tensors onto a device.
    ///
    /// # Errors
    /// This is no sound file, or one whose blocks have a layout that llama.cpp gave up (before GGJT's version 3), or it cannot be
    /// read, or the device has no room.
    pub fn read<R: Seek + Read>(reader: &mut R, device: &Device) -> Result<Self> {
        let size = reader.seek(SeekFrom::End(0)).map_err(unreadable)?;
        reader.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let magic = VersionedMagic::read(reader)?;
        let mut next = || word(reader);
        let hparams = HParams {
            n_vocab: next()?,
            n_embd: next()?,
            n_mult: next()?,
            n_head: next()?,
            n_layer: next()?,
            n_rot: next()?,
            ftype: next()?,
        };
        let mut vocab = Vocab { token_score_pairs: Vec::new() };
        for _ in 0..hparams.n_vocab {
            let token = text(reader)?;
            let score = if magic.has_scores() { f32::from_bits(word(reader)?) } else { 0.0 };
            vocab.token_score_pairs.push((token, score));
        }
        let mut tensors = HashMap::new();
        while reader.stream_position().map_err(unreadable)? < size {
            let (name, tensor) = tensor(reader, magic, size, device)?;
            if let Some(twice) = tensors.insert(name.clone(), tensor) {
                drop(twice);
                return Err(bad(format!("two tensors are named {}", quoted(&name))));
            }
        }
        Ok(Self { magic, hparams, vocab, tensors, device: device.clone() })
    }

    /// Takes a tensor out.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn remove(&mut self, name: &str) -> Result<QTensor> {
        self.tensors.remove(name).ok_or_else(|| bad(format!("the file has no tensor named {}", quoted(name))))
    }
}

fn word(reader: &mut impl Read) -> Result<u32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).map_err(|e| bad(format!("truncated ({e})")))?;
    Ok(u32::from_le_bytes(bytes))
}

fn bytes(reader: &mut impl Read, length: u32) -> Result<Vec<u8>> {
    if length > MAX_TEXT {
        return Err(bad(format!("a token or name of {length} bytes; {MAX_TEXT} are the most")));
    }
    let mut bytes = vec![0; length as usize];
    reader.read_exact(&mut bytes).map_err(|e| bad(format!("truncated ({e})")))?;
    Ok(bytes)
}

fn text(reader: &mut impl Read) -> Result<Vec<u8>> {
    let length = word(reader)?;
    bytes(reader, length)
}

fn tensor<R: Seek + Read>(
    reader: &mut R,
    magic: VersionedMagic,
    size: u64,
    device: &Device,
) -> Result<(String, QTensor)> {
    let (rank, length, number) = (word(reader)?, word(reader)?, word(reader)?);
    if rank > MAX_DIMS {
        return Err(bad(format!("a tensor has {rank} dimensions; {MAX_DIMS} are the most")));
    }
    let mut dims = (0..rank).map(|_| word(reader).map(|n| n as usize)).collect::<Result<Vec<_>>>()?;
    // The file has the innermost first.
    dims.reverse();
    let name = String::from_utf8_lossy(&bytes(reader, length)?).into_owned();
    let at = |error| inside(format_args!("tensor {}", quoted(&name)), error);
    let kind = GgmlDType::from_u32(number).ok_or_else(|| at(bad(format!("type {number} is unknown"))))?;
    if kind.is_quantized() && magic != VersionedMagic::GgjtV3 {
        let text =
            format!("{kind} in a file of {magic:?} has a layout that was given up; convert the model anew, to GGUF");
        return Err(at(bad(text)));
    }
    if magic.aligned() {
        let here = reader.stream_position().map_err(unreadable)?;
        reader.seek(SeekFrom::Start(here.next_multiple_of(ALIGNMENT))).map_err(unreadable)?;
    }
    let left = size.saturating_sub(reader.stream_position().map_err(unreadable)?);
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let needs = elements.and_then(|n| kind.bytes_for(n)).filter(|&n| n as u64 <= left);
    let needs = needs.ok_or_else(|| at(bad(format!("{dims:?} of {kind} do not fit into the {left} bytes left"))))?;
    let data = read_exactly(reader, needs).map_err(at)?;
    let tensor = QTensor::new(QStorage::from_bytes(data, device, kind)?, dims.as_slice()).map_err(at)?;
    Ok((name, tensor))
}
