//! The GGUF header parser: a state machine that takes the header one small item at a time (a name, a number, a string,
//! an array's head) from a growing prefix of the file, so that the same code reads a mapped file and a stream. An item
//! that has not arrived in full is asked for again later, and nothing before it is read twice.
//!
//! It stores positions only, and reserves memory only for counts that the file's true size can hold.

use tallow_graph::{Error, Result};

use super::header::{Header, Metadata, RawTensor, Span, Table, Tensors};
use super::types::{GgmlType, ValueType};
use super::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, FORMAT, MAGIC, MAX_DIMS, MAX_NAME, MAX_NESTING};
use crate::formats::{Bytes, quoted};

/// The fewest bytes of a metadata entry: name length, one byte of name, type, one byte of value.
const LEAST_ENTRY: u64 = 8 + 1 + 4 + 1;
/// The fewest bytes of a tensor's entry: name length, one byte of name, rank, type, offset.
const LEAST_TENSOR: u64 = 8 + 1 + 4 + 4 + 8;

/// Why the parser stopped short.
pub(super) enum Stop {
    /// The prefix must have this many bytes for the next item.
    More(u64),
    /// The header is wrong.
    Bad(Error),
}

/// What bounds the header.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit {
    /// The file's size, known.
    File(u64),
    /// The size of the largest header that the reader buffers.
    Buffer(u64),
}

impl Limit {
    fn bytes(self) -> u64 {
        match self {
            Limit::File(n) | Limit::Buffer(n) => n,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Magic,
    Version,
    Counts,
    Key,
    Value(ValueType),
    Tensor,
    Done,
}

/// An array whose elements differ in length, while they are walked.
struct Frame {
    element: ValueType,
    left: u64,
}

pub(super) struct Parser {
    limit: Limit,
    /// All items before this byte are read.
    pos: usize,
    stage: Stage,
    version: u32,
    entries_left: u64,
    tensors_left: u64,
    entries: Vec<Span>,
    tensors: Vec<Span>,
    frames: Vec<Frame>,
}

/// Parses a file that is in memory, or mapped, as a whole.
pub(super) fn whole(file: &Bytes) -> Result<Header> {
    let size = file.len() as u64;
    let mut parser = Parser::new(Limit::File(size));
    match parser.run(file) {
        Ok(()) => {}
        Err(Stop::Bad(error)) => return Err(error),
        // Cannot be: what the file's size does not hold is refused, not asked for.
        Err(Stop::More(n)) => return Err(Error::format(FORMAT, format!("truncated: {n} bytes needed of {size}"))),
    }
    let header = file.slice(..parser.pos)?;
    // A mapped file may be changed by others later; the tables rely on what was checked.
    let header = if header.is_mapped() { Bytes::from(header.to_vec()) } else { header };
    parser.finish(header, Some(size))
}

impl Parser {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            pos: 0,
            stage: Stage::Magic,
            version: 0,
            entries_left: 0,
            tensors_left: 0,
            entries: Vec::new(),
            tensors: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Bytes of the header, once it is complete.
    pub(super) fn position(&self) -> usize {
        self.pos
    }

    /// Reads all items that `buf`, the file's first bytes, holds in full. `Ok` means that the header is complete.
    pub(super) fn run(&mut self, buf: &[u8]) -> Result<(), Stop> {
        loop {
            match self.stage {
                Stage::Magic => self.magic(buf)?,
                Stage::Version => self.version(buf)?,
                Stage::Counts => self.counts(buf)?,
                Stage::Key => self.key(buf)?,
                Stage::Value(kind) => self.value(buf, kind)?,
                Stage::Tensor => self.tensor(buf)?,
                Stage::Done => return Ok(()),
            }
        }
    }

    /// An error at a byte, with the key or tensor it belongs to.
    fn bad(&self, buf: &[u8], at: usize, message: impl std::fmt::Display) -> Stop {
        let name = |span: Option<&Span>| {
            let span = span?;
            let bytes = buf.get(span.at..span.at.checked_add(usize::from(span.len))?)?;
            std::str::from_utf8(bytes).ok().map(quoted)
        };
        let place = match self.stage {
            Stage::Value(_) => name(self.entries.last()).map(|key| format!(", in metadata key {key}")),
            Stage::Key => Some(format!(", in metadata entry {}", self.entries.len())),
            Stage::Tensor => Some(format!(", in the entry of tensor {}", self.tensors.len())),
            _ => None,
        };
        Stop::Bad(Error::format(FORMAT, format!("{message}, at byte {at}{}", place.unwrap_or_default())))
    }

    /// The `len` bytes from `at` on, where the file can hold them and they have arrived.
    fn take<'b>(&self, buf: &'b [u8], at: usize, len: u64, what: &str) -> Result<&'b [u8], Stop> {
        self.fits(buf, at, at, len.into(), what)?;
        let end = at as u64 + len;
        let range = usize::try_from(end).ok().and_then(|end| buf.get(at..end));
        range.ok_or(Stop::More(end))
    }

    /// Refuses `what` where its `len` bytes or more from `at` on are more than can follow. The error points to `claim`,
    /// the byte that says so.
    fn fits(&self, buf: &[u8], claim: usize, at: usize, len: u128, what: &str) -> Result<(), Stop> {
        let left = self.limit.bytes().saturating_sub(at as u64);
        if len <= u128::from(left) {
            return Ok(());
        }
        let message = match self.limit {
            Limit::File(_) => format!("truncated or lying: {what} takes {len} bytes or more, but {left} follow"),
            Limit::Buffer(most) => {
                format!("too large or lying: {what} takes {len} bytes or more, and headers of {most} bytes are read")
            }
        };
        Err(self.bad(buf, claim, message))
    }

    fn take_u32(&self, buf: &[u8], at: usize, what: &str) -> Result<u32, Stop> {
        let bytes = self.take(buf, at, 4, what)?;
        bytes.first_chunk().map(|raw| u32::from_le_bytes(*raw)).ok_or(Stop::More(at as u64 + 4))
    }

    fn take_u64(&self, buf: &[u8], at: usize, what: &str) -> Result<u64, Stop> {
        let bytes = self.take(buf, at, 8, what)?;
        bytes.first_chunk().map(|raw| u64::from_le_bytes(*raw)).ok_or(Stop::More(at as u64 + 8))
    }

    /// A length and as many bytes of UTF-8.
    fn take_str<'b>(&self, buf: &'b [u8], at: usize, what: &str) -> Result<&'b str, Stop> {
        let len = self.take_u64(buf, at, what)?;
        self.fits(buf, at, at + 8, len.into(), what)?;
        let bytes = self.take(buf, at + 8, len, what)?;
        std::str::from_utf8(bytes).map_err(|e| self.bad(buf, at + 8 + e.valid_up_to(), format!("{what} is not UTF-8")))
    }

    /// A string that names an entry.
    fn take_name(&self, buf: &[u8], at: usize, what: &str) -> Result<Span, Stop> {
        let len = self.take_u64(buf, at, what)?;
        if len == 0 || len > MAX_NAME {
            return Err(self.bad(buf, at, format!("{what} claims {len} bytes; 1 to {MAX_NAME} are allowed")));
        }
        let name = self.take_str(buf, at, what)?;
        // In range: checked against `MAX_NAME`.
        Ok(Span { at: at + 8, len: name.len() as u16 })
    }

    fn magic(&mut self, buf: &[u8]) -> Result<(), Stop> {
        let magic = self.take(buf, 0, 4, "the magic number")?;
        if magic != MAGIC {
            let shown = magic.escape_ascii();
            return Err(self.bad(buf, 0, format!("this is no GGUF file: it begins with \"{shown}\", not \"GGUF\"")));
        }
        self.pos = 4;
        self.stage = Stage::Version;
        Ok(())
    }

    fn version(&mut self, buf: &[u8]) -> Result<(), Stop> {
        let version = self.take_u32(buf, 4, "the version")?;
        let refused = match version {
            2 | 3 => None,
            1 => Some("version 1 is not read (it was in use for weeks in 2023): convert the model anew".to_owned()),
            v if matches!(v.swap_bytes(), 1..=9) => {
                Some("the file is big-endian, which is not read: convert it to little-endian".to_owned())
            }
            v => Some(format!("version {v} is unknown: versions 2 and 3 are read")),
        };
        if let Some(message) = refused {
            return Err(self.bad(buf, 4, message));
        }
        self.version = version;
        self.pos = 8;
        self.stage = Stage::Counts;
        Ok(())
    }

    fn counts(&mut self, buf: &[u8]) -> Result<(), Stop> {
        let tensors = self.take_u64(buf, 8, "the tensor count")?;
        let entries = self.take_u64(buf, 16, "the metadata count")?;
        self.pos = 24;
        let least = u128::from(entries) * u128::from(LEAST_ENTRY) + u128::from(tensors) * u128::from(LEAST_TENSOR);
        let what = format!("a header of {tensors} tensors and {entries} metadata entries");
        self.fits(buf, 8, 24, least, &what)?;
        if let Limit::File(_) = self.limit {
            // The file is large enough for these entries, so this costs less than its size. A stream's tables grow.
            self.entries.reserve_exact(usize::try_from(entries).unwrap_or(0));
            self.tensors.reserve_exact(usize::try_from(tensors).unwrap_or(0));
        }
        self.entries_left = entries;
        self.tensors_left = tensors;
        self.next_entry();
        Ok(())
    }

    fn next_entry(&mut self) {
        self.stage = match (self.entries_left, self.tensors_left) {
            (0, 0) => Stage::Done,
            (0, _) => Stage::Tensor,
            _ => Stage::Key,
        };
    }

    fn key(&mut self, buf: &[u8]) -> Result<(), Stop> {
        let span = self.take_name(buf, self.pos, "a metadata key")?;
        let at = span.at + usize::from(span.len);
        let kind = self.value_type(buf, at, "a metadata value's type")?;
        self.entries.push(span);
        self.entries_left -= 1;
        self.pos = at + 4;
        self.stage = Stage::Value(kind);
        Ok(())
    }

    fn value_type(&self, buf: &[u8], at: usize, what: &str) -> Result<ValueType, Stop> {
        let id = self.take_u32(buf, at, what)?;
        ValueType::from_id(id).ok_or_else(|| self.bad(buf, at, format!("{what} is {id}; 0 to 12 are defined")))
    }

    fn value(&mut self, buf: &[u8], kind: ValueType) -> Result<(), Stop> {
        match (kind, kind.size()) {
            (ValueType::Array, _) => return self.array(buf),
            (ValueType::Str, _) => {
                let text = self.take_str(buf, self.pos, "a string")?;
                self.pos += 8 + text.len();
            }
            (kind, size) => self.numbers(buf, self.pos, kind, size.unwrap_or(1) as u64)?,
        }
        self.next_value();
        Ok(())
    }

    /// Passes `len` bytes of numbers or bools.
    fn numbers(&mut self, buf: &[u8], at: usize, kind: ValueType, len: u64) -> Result<(), Stop> {
        let bytes = self.take(buf, at, len, if kind == ValueType::Bool { "bools" } else { "numbers" })?;
        if kind == ValueType::Bool
            && let Some((i, value)) = bytes.iter().enumerate().find(|(_, b)| **b > 1)
        {
            return Err(self.bad(buf, at + i, format!("a bool is {value}; 0 and 1 are allowed")));
        }
        self.pos = at + bytes.len();
        Ok(())
    }

    fn array(&mut self, buf: &[u8]) -> Result<(), Stop> {
        let at = self.pos;
        let element = self.value_type(buf, at, "an array's element type")?;
        let len = self.take_u64(buf, at + 4, "an array's length")?;
        let body = at + 12;
        let least = u128::from(len) * element.least_bytes() as u128;
        self.fits(buf, at + 4, body, least, &format!("an array of {len} values of type {element}"))?;
        if let Some(size) = element.size() {
            // No overflow: `least` is this product, and fits.
            self.numbers(buf, body, element, len * size as u64)?;
            self.next_value();
            return Ok(());
        }
        if element == ValueType::Array && self.frames.len() + 1 >= MAX_NESTING {
            return Err(self.bad(buf, at, format!("arrays are nested more than {MAX_NESTING} deep")));
        }
        self.pos = body;
        self.frames.push(Frame { element, left: len });
        self.next_value();
        Ok(())
    }

    /// Moves on to the innermost open array's next element, or to the next entry.
    fn next_value(&mut self) {
        while let Some(frame) = self.frames.last_mut() {
            if frame.left > 0 {
                frame.left -= 1;
                self.stage = Stage::Value(frame.element);
                return;
            }
            self.frames.pop();
        }
        self.next_entry();
    }

    fn tensor(&mut self, buf: &[u8]) -> Result<(), Stop> {
        let span = self.take_name(buf, self.pos, "a tensor's name")?;
        let at = span.at + usize::from(span.len);
        let rank = self.take_u32(buf, at, "a tensor's number of dimensions")?;
        if rank as usize > MAX_DIMS {
            return Err(self.bad(buf, at, format!("a tensor claims {rank} dimensions; {MAX_DIMS} is the most")));
        }
        let len = 4 + 8 * u64::from(rank) + 4 + 8;
        let body = self.take(buf, at, len, "a tensor's entry")?;
        let raw = RawTensor::decode(body).ok_or(Stop::More(at as u64 + len))?;
        // The type lies in front of the offset, which ends the entry.
        let end = at + body.len();
        let Some(kind) = GgmlType::from_id(raw.kind) else {
            let text = match GgmlType::removed(raw.kind) {
                Some(name) => format!("a tensor has type {name}, which ggml gave up: convert the model anew"),
                None => format!("a tensor has the unknown type {}", raw.kind),
            };
            return Err(self.bad(buf, end - 12, text));
        };
        raw.bytes(kind).map_err(|message| self.bad(buf, at + 4, message))?;
        self.tensors.push(span);
        self.tensors_left -= 1;
        self.pos = end;
        self.next_entry();
        Ok(())
    }

    /// Builds the tables from a complete header, and checks what only all entries together can show. `header` holds the
    /// bytes up to [`Parser::position`]; `size` is the file's, where it is known.
    pub(super) fn finish(self, header: Bytes, size: Option<u64>) -> Result<Header> {
        let bad = |message: String| Error::format(FORMAT, message);
        let header_bytes = self.pos as u64;
        let metadata = Metadata(Table::new(header.clone(), self.entries, "metadata key")?);
        let alignment = metadata.read_opt::<u64>(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() {
            return Err(bad(format!("metadata key \"{ALIGNMENT_KEY}\" is {alignment}, not a power of two")));
        }
        let data_start = header_bytes
            .checked_next_multiple_of(alignment)
            .ok_or_else(|| bad(format!("metadata key \"{ALIGNMENT_KEY}\" is {alignment}, which is absurd")))?;
        let table = Table::new(header, self.tensors, "tensor name")?;
        let header = Header {
            version: self.version,
            alignment,
            header_bytes,
            data_start,
            metadata,
            tensors: Tensors { table, data_start },
        };
        header.check_offsets()?;
        if let Some(size) = size {
            header.check_size(size)?;
        }
        Ok(header)
    }
}

impl Header {
    /// Every tensor begins at the alignment, ends within 2^63 bytes, and shares no byte with another.
    fn check_offsets(&self) -> Result<()> {
        let count = self.tensors.len() as u32;
        let mut order = Vec::with_capacity(self.tensors.len());
        for i in 0..count {
            let name = || quoted(self.tensors.table.name(i));
            let Some(info) = self.tensors.at(i) else {
                return Err(Error::format(FORMAT, format!("tensor {} lies at an offset beyond 2^64 bytes", name())));
            };
            let relative = info.offset - self.data_start;
            if !relative.is_multiple_of(self.alignment) {
                let text = format!("tensor {}: offset {relative} is no multiple of {}", name(), self.alignment);
                return Err(Error::format(FORMAT, text));
            }
            if info.offset.checked_add(info.bytes).is_none_or(|end| end > i64::MAX as u64) {
                let text = format!("tensor {}: {} bytes at offset {relative} end beyond 2^63", name(), info.bytes);
                return Err(Error::format(FORMAT, text));
            }
            if info.bytes > 0 {
                order.push(i);
            }
        }
        let range = |i: u32| self.tensors.at(i).map_or((0, 0), |info| (info.offset, info.offset + info.bytes));
        order.sort_unstable_by_key(|&i| range(i));
        for (&a, &b) in order.iter().zip(order.iter().skip(1)) {
            let (first, second) = (range(a), range(b));
            if second.0 < first.1 {
                let name = |i| quoted(self.tensors.table.name(i));
                let text = format!(
                    "tensors {} (bytes {} to {}) and {} (bytes {} to {}) overlap",
                    name(a),
                    first.0,
                    first.1,
                    name(b),
                    second.0,
                    second.1
                );
                return Err(Error::format(FORMAT, text));
            }
        }
        Ok(())
    }

    /// Checks that a file of `size` bytes holds every tensor: what [`HeaderReader`](super::HeaderReader) could not check
    /// where the size was unknown.
    ///
    /// # Errors
    /// Where a tensor ends past the file's end, with its name.
    pub fn check_size(&self, size: u64) -> Result<()> {
        for info in self.tensors.iter() {
            let end = info.offset.saturating_add(info.bytes);
            if end > size {
                let text = format!(
                    "tensor {} takes {} bytes from byte {} on, but the file ends at byte {size}: it is truncated",
                    quoted(info.name),
                    info.bytes,
                    info.offset
                );
                return Err(Error::format(FORMAT, text));
            }
        }
        Ok(())
    }

    /// Where the last tensor's data ends: the fewest bytes that the file must have.
    pub fn data_end(&self) -> u64 {
        self.tensors.iter().map(|info| info.offset.saturating_add(info.bytes)).max().unwrap_or(self.header_bytes)
    }
}
