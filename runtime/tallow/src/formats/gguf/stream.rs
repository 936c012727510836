//! Reading a GGUF header that arrives in pieces: from a download, or by ranges. Only the header is buffered; once it is
//! complete, the caller knows each tensor's byte range and takes the data from there.

use tallow_graph::{Error, Result};

use super::FORMAT;
use super::header::Header;
use super::parse::{Limit, Parser, Stop};
use crate::formats::Bytes;

/// Takes a file's first bytes in chunks of any size, until its header is complete.
///
/// ```
/// # use tallow::formats::gguf::{HeaderReader, Writer};
/// # let file = Writer::new().metadata("general.name", "tiny").to_bytes()?;
/// let mut reader = HeaderReader::new(Some(file.len() as u64));
/// let mut header = None;
/// for chunk in file.chunks(7) {
///     header = reader.push(chunk)?;
///     if header.is_some() {
///         break; // header.data_start() says where the tensors begin
///     }
/// }
/// assert_eq!(header.unwrap().metadata().get_str("general.name")?, "tiny");
/// # Ok::<(), tallow_graph::Error>(())
/// ```
pub struct HeaderReader {
    parser: Option<Parser>,
    buffer: Vec<u8>,
    size: Option<u64>,
    wanted: u64,
}

impl HeaderReader {
    /// The largest header that is buffered unless [`HeaderReader::with_limit`] says otherwise: 256 MiB, tens of times
    /// what the largest vocabularies take.
    pub const MAX_HEADER: u64 = 256 << 20;

    /// A reader of a file of `size` bytes, where that is known: then lies are found at once, instead of by waiting for
    /// bytes that never come.
    pub fn new(size: Option<u64>) -> Self {
        Self::with_limit(size, Self::MAX_HEADER)
    }

    /// As [`HeaderReader::new`], for headers of up to `max_header` bytes.
    pub fn with_limit(size: Option<u64>, max_header: u64) -> Self {
        let limit = match size {
            Some(size) if size <= max_header => Limit::File(size),
            _ => Limit::Buffer(max_header),
        };
        Self { parser: Some(Parser::new(limit)), buffer: Vec::new(), size, wanted: 4 }
    }

    /// The least number of bytes, counted from the file's start, with which reading can go on: for callers that read by
    /// ranges.
    pub fn wanted(&self) -> u64 {
        self.wanted
    }

    /// Bytes pushed so far that were buffered.
    pub fn buffered(&self) -> u64 {
        self.buffer.len() as u64
    }

    /// Takes the next bytes of the file. Gives the header once it is complete; the last chunk may reach into the data,
    /// whose bytes are the caller's to keep ([`Header::header_bytes`] says where they begin).
    ///
    /// # Errors
    /// As soon as the bytes cannot be a sound header, and on any push after the header or an error was given.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Option<Header>> {
        let Some(mut parser) = self.parser.take() else {
            return Err(Error::format(FORMAT, "the header was already read, or found to be wrong: start a new reader"));
        };
        self.buffer.extend_from_slice(chunk);
        if (self.buffer.len() as u64) < self.wanted {
            self.parser = Some(parser);
            return Ok(None);
        }
        match parser.run(&self.buffer) {
            Ok(()) => {
                let mut bytes = std::mem::take(&mut self.buffer);
                bytes.truncate(parser.position());
                bytes.shrink_to_fit();
                self.wanted = bytes.len() as u64;
                parser.finish(Bytes::from(bytes), self.size).map(Some)
            }
            Err(Stop::More(wanted)) => {
                self.wanted = wanted;
                self.parser = Some(parser);
                Ok(None)
            }
            Err(Stop::Bad(error)) => {
                self.buffer = Vec::new();
                Err(error)
            }
        }
    }

    /// Says that no more bytes come. An error where the header was still incomplete.
    ///
    /// # Errors
    /// Where the stream ended inside the header.
    pub fn finish(self) -> Result<()> {
        if self.parser.is_none() {
            return Ok(());
        }
        let text = format!(
            "truncated: the stream ended inside the header, at byte {}, and {} are needed to go on",
            self.buffer.len(),
            self.wanted
        );
        Err(Error::format(FORMAT, text))
    }
}
