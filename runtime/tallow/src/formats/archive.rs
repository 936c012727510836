//! Zip archives, of which npz files and PyTorch's are made: a directory that is checked when it is opened (no name twice, no
//! entries that overlap, so that a small file cannot claim its bytes many times), and entries, stored or deflated.

use super::Bytes;
use crate::{Error, Result};
use std::io::{Cursor, Read};
use zip::{CompressionMethod, ZipArchive, read::ZipFile, result::ZipError};

/// An archive whose directory was checked. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Archive {
    archive: ZipArchive<Cursor<Bytes>>,
    file: Bytes,
    /// The format's name in errors.
    format: &'static str,
}

impl Archive {
    /// Checks the directory of a whole file.
    pub fn open(file: Bytes, format: &'static str) -> Result<Self> {
        let unsound = |e: ZipError| Error::format(format, format!("this is no sound zip file ({e})"));
        let mut archive = ZipArchive::new(Cursor::new(file.clone())).map_err(unsound)?;
        if archive.has_overlapping_entries().map_err(unsound)? {
            let text = "this is no sound zip file: parts of it belong to several entries";
            return Err(Error::format(format, text));
        }
        if archive.has_duplicate_names() {
            return Err(Error::format(format, "the archive has two entries of one name"));
        }
        Ok(Self { archive, file, format })
    }

    /// The file's size in bytes.
    pub fn size(&self) -> usize {
        self.file.len()
    }

    /// The numbers and names of the entries, in the file's order, without the folders that some tools put in.
    pub fn names(&self) -> Result<Vec<(usize, String)>> {
        let mut names = Vec::with_capacity(self.archive.len());
        for (index, name) in self.archive.file_names().enumerate() {
            let name = name.map_err(|e| Error::format(self.format, format!("an entry's name cannot be read ({e})")))?;
            if !name.ends_with('/') {
                names.push((index, name.into_owned()));
            }
        }
        Ok(names)
    }

    /// Does something with an entry, whose checksum is compared when its end is read.
    pub fn with<T>(&self, index: usize, what: impl FnOnce(ZipFile<'_, Cursor<Bytes>>) -> Result<T>) -> Result<T> {
        // A copy shares the file and its directory; it has a position of its own.
        let mut archive = self.archive.clone();
        let entry = archive.by_index(index);
        what(entry.map_err(|e| Error::format(self.format, format!("cannot be unpacked ({e})")))?)
    }

    /// An entry's bytes, up to `most` of them: a slice of the file where it is stored (then its checksum is not compared,
    /// which would read it all), else unpacked.
    pub fn bytes(&self, index: usize, most: usize) -> Result<Bytes> {
        self.with(index, |entry| {
            let plain = entry.compression() == CompressionMethod::Stored && entry.compressed_size() == entry.size();
            if plain && let Some(start) = entry.data_start().and_then(|start| usize::try_from(start).ok()) {
                let size = usize::try_from(entry.size()).unwrap_or(usize::MAX).min(most);
                return self.file.slice(start..start.saturating_add(size));
            }
            // What is compressed may be larger than the file: the room grows as the bytes come.
            let mut bytes = Vec::new();
            let read = entry.take(most as u64).read_to_end(&mut bytes);
            read.map_err(|e| Error::format(self.format, format!("cannot be unpacked ({e})")))?;
            Ok(bytes.into())
        })
    }
}
