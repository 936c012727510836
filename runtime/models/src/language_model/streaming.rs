//! [`Streaming`]: a model from the bytes of a GGUF file as they come. The header may lie about sizes, so memory is taken as
//! bytes arrive and not as the header claims.

use super::{LanguageModel, LoadOptions, TextParts, begin};
use crate::loading::{DecoderBuilder, RawTensor};
use tallow::{
    DType, Device, Error, Result,
    formats::{Bytes, gguf::HeaderReader},
};

/// Memory taken at once for a tensor whose bytes are yet to come, at least; more where as many are already there.
const STEP: usize = 64 << 20;

/// A GGUF model that is built while its bytes arrive: each tensor goes to the device when it is complete, and its bytes are
/// dropped, so that the file is never whole in memory.
pub struct Streaming {
    state: State,
    device: Device,
    options: LoadOptions,
    /// Position in the file.
    at: u64,
}

enum State {
    Header(HeaderReader),
    Data(Box<Data>),
    /// After an error.
    Failed,
}

/// What is under way behind the header.
struct Data {
    text: TextParts,
    builder: DecoderBuilder,
    /// The tensors that the model uses, in file order.
    tensors: Vec<Place>,
    /// Where the last tensor of the file ends.
    end: u64,
    /// The tensor that comes next.
    next: usize,
    /// Its bytes so far.
    pending: Vec<u8>,
}

/// Where a tensor lies, and what it is.
#[derive(Clone)]
struct Place {
    start: u64,
    size: usize,
    name: String,
    dtype: DType,
    dims: Vec<usize>,
}

impl Streaming {
    pub(super) fn new(size: Option<u64>, device: &Device, options: LoadOptions) -> Self {
        Self { state: State::Header(HeaderReader::new(size)), device: device.clone(), options, at: 0 }
    }

    /// Takes the next bytes of the file.
    ///
    /// # Errors
    /// A header or tensor that makes no model; and any push after an error.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.state = match std::mem::replace(&mut self.state, State::Failed) {
            State::Header(reader) => self.take_header(reader, bytes)?,
            State::Data(mut data) => {
                data.take(&mut self.at, bytes)?;
                State::Data(data)
            }
            State::Failed => return Err(failed()),
        };
        Ok(())
    }

    fn take_header(&mut self, mut reader: HeaderReader, bytes: &[u8]) -> Result<State> {
        let before = reader.buffered();
        let Some(header) = reader.push(bytes)? else {
            self.at += bytes.len() as u64;
            return Ok(State::Header(reader));
        };
        let (text, builder) = begin(&header, &self.device, self.options)?;
        let mut tensors = Vec::new();
        for info in header.tensors().iter().filter(|info| builder.uses(info.name)) {
            let size = usize::try_from(info.bytes).map_err(|_| too_large(info.name, info.bytes))?;
            let (dtype, dims) = (info.require_dtype()?, info.dims().to_vec());
            tensors.push(Place { start: info.offset, size, name: info.name.to_string(), dtype, dims });
        }
        tensors.sort_by_key(|place| (place.start, place.size));
        let end = header.tensors().iter().map(|info| info.offset.saturating_add(info.bytes)).max().unwrap_or(0);
        let mut data = Data { text, builder, tensors, end, next: 0, pending: Vec::new() };
        // The chunk that completes the header goes on into the data.
        let used = header.header_bytes().saturating_sub(before).min(bytes.len() as u64) as usize;
        self.at = header.header_bytes();
        data.take(&mut self.at, &bytes[used..])?;
        Ok(State::Data(Box::new(data)))
    }

    /// The model, once all bytes have been pushed.
    pub fn finish(self) -> Result<LanguageModel> {
        match self.state {
            State::Header(reader) => {
                reader.finish()?;
                Err(Error::format("GGUF", "the file ends inside its header"))
            }
            State::Data(data) if data.next == data.tensors.len() && self.at >= data.end => {
                Ok(data.text.with(data.builder.finish()?))
            }
            State::Data(data) => {
                let message = format!("the file ends after {} bytes, its last tensor only at {}", self.at, data.end);
                Err(Error::format("GGUF", message))
            }
            State::Failed => Err(failed()),
        }
    }
}

impl Data {
    /// Takes the bytes at `at`, which moves on.
    fn take(&mut self, at: &mut u64, mut bytes: &[u8]) -> Result<()> {
        while let Some(place) = self.tensors.get(self.next) {
            // What lies between: padding, and tensors that the model does not use.
            if self.pending.is_empty() && *at < place.start {
                let skip = (place.start - *at).min(bytes.len() as u64) as usize;
                *at += skip as u64;
                bytes = &bytes[skip..];
            }
            let wanted = place.size - self.pending.len();
            // A tensor without bytes waits for none.
            if wanted > 0 {
                if bytes.is_empty() {
                    return Ok(());
                }
                if self.pending.is_empty() && *at > place.start {
                    let message = format!("the tensor {} begins inside another", place.name);
                    return Err(Error::format("GGUF", message));
                }
                let taken = &bytes[..wanted.min(bytes.len())];
                reserve(&mut self.pending, taken.len(), wanted, place)?;
                self.pending.extend_from_slice(taken);
                *at += taken.len() as u64;
                bytes = &bytes[taken.len()..];
                if self.pending.len() < place.size {
                    return Ok(());
                }
            }
            let raw = RawTensor {
                dtype: place.dtype,
                dims: place.dims.clone(),
                bytes: Bytes::from(std::mem::take(&mut self.pending)),
            };
            self.builder.push(&place.name, raw)?;
            self.next += 1;
        }
        *at += bytes.len() as u64;
        Ok(())
    }
}

/// Makes room for `coming` bytes of the `wanted` ones: in large steps, but never for all of what a header claims at once.
fn reserve(pending: &mut Vec<u8>, coming: usize, wanted: usize, place: &Place) -> Result<()> {
    if pending.capacity() - pending.len() >= coming {
        return Ok(());
    }
    let room = wanted.min(STEP.max(pending.len()).max(coming));
    pending.try_reserve_exact(room).map_err(|_| too_large(&place.name, place.size as u64))
}

fn too_large(name: &str, bytes: u64) -> Error {
    Error::format("GGUF", format!("the tensor {name} of {bytes} bytes does not fit into this machine's memory"))
}

fn failed() -> Error {
    Error::msg("this stream has failed: begin a new one")
}
