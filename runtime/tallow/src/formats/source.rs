//! [`Bytes`]: a shared, read-only slice of a file or of memory. Readers cut it up without copying, so that a tensor's
//! bytes go from the page cache straight to the device.

use std::fmt;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::Path;
use std::sync::Arc;

use tallow_graph::{Error, Result};

/// A cheap-to-clone, read-only run of bytes: a mapped file, or owned memory. Slices keep the whole alive.
///
/// ```
/// use tallow::formats::Bytes;
/// let all = Bytes::from(vec![1, 2, 3, 4]);
/// assert_eq!(&*all.slice(1..3)?, &[2, 3]);
/// assert!(all.slice(3..9).is_err());
/// # Ok::<(), tallow_graph::Error>(())
/// ```
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<Owner>,
    start: usize,
    end: usize,
}

enum Owner {
    Memory(Vec<u8>),
    #[cfg(not(target_family = "wasm"))]
    Map(memmap2::Mmap),
}

impl Owner {
    fn bytes(&self) -> &[u8] {
        match self {
            Owner::Memory(bytes) => bytes,
            #[cfg(not(target_family = "wasm"))]
            Owner::Map(map) => map,
        }
    }
}

impl Bytes {
    /// Opens a regular file. It is mapped, not read: pages come in as they are touched. Where the target has no memory
    /// mapping (wasm), the file is read.
    ///
    /// The file must not be shortened or overwritten in place while the bytes are in use; replacing it by a rename, as
    /// downloads and the writers here do, is safe.
    ///
    /// # Errors
    /// [`Error::Io`] where the file is absent, unreadable, or not a regular file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = {
            // Looked at before it is opened: opening a named pipe would wait for its writer.
            let kind = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
            if !kind.is_file() {
                let why = if kind.is_dir() { "a folder, not a file" } else { "not a regular file" };
                return Err(Error::io(path, std::io::Error::new(std::io::ErrorKind::InvalidInput, why)));
            }
            std::fs::File::open(path).map_err(|e| Error::io(path, e))?
        };
        Self::from_file(&file).map_err(|e| Error::io(path, e))
    }

    #[cfg(not(target_family = "wasm"))]
    fn from_file(file: &std::fs::File) -> std::io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        // SAFETY: the map is read-only and private to this process, and lives as long as any slice of it. What no
        // program can rule out is another process that changes the file underneath: then the bytes seen here change
        // too (so parsers keep their own copy of the header that they checked, and weights of any value are harmless),
        // and where the file was shortened, touching a lost page ends the process with a signal (SIGBUS). Model files
        // are written once and replaced by renames, which leave the mapped file alone; `open` documents the rule.
        let map = unsafe { memmap2::Mmap::map(file)? };
        let end = map.len();
        Ok(Self { owner: Arc::new(Owner::Map(map)), start: 0, end })
    }

    #[cfg(target_family = "wasm")]
    fn from_file(mut file: &std::fs::File) -> std::io::Result<Self> {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok(Self::from(bytes))
    }

    /// The bytes of `range`, counted from this slice's start, without a copy.
    ///
    /// # Errors
    /// Where the range is reversed or reaches past the end.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let len = self.len();
        let from = match range.start_bound() {
            Bound::Included(&n) => Some(n),
            Bound::Excluded(&n) => n.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let to = match range.end_bound() {
            Bound::Included(&n) => n.checked_add(1),
            Bound::Excluded(&n) => Some(n),
            Bound::Unbounded => Some(len),
        };
        match (from, to) {
            (Some(from), Some(to)) if from <= to && to <= len => {
                Ok(Self { owner: Arc::clone(&self.owner), start: self.start + from, end: self.start + to })
            }
            _ => Err(Error::op(
                "slice",
                format!("bytes {:?} to {:?} of {len} bytes", range.start_bound(), range.end_bound()),
            )),
        }
    }

    /// Gives the memory of a mapped file's pages back to the system, where these bytes have been copied and will hardly be
    /// read again. They stay valid: a page that is touched comes back from the file.
    pub fn release(&self) {
        #[cfg(unix)]
        if let Owner::Map(map) = &*self.owner
            && self.start < self.end
        {
            // SAFETY: the map is read-only, so no page has contents that the file has not; whoever reads one later, or
            // at the same time, gets the file's. Where the system refuses, nothing but memory is lost.
            let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, self.start, self.len()) };
        }
    }

    /// Whether the bytes are a mapped file, which another process could change.
    pub fn is_mapped(&self) -> bool {
        match *self.owner {
            Owner::Memory(_) => false,
            #[cfg(not(target_family = "wasm"))]
            Owner::Map(_) => true,
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // `start..end` lies inside: `slice` checked it. The fallback only spares a panic path.
        self.owner.bytes().get(self.start..self.end).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        Self { owner: Arc::new(Owner::Memory(bytes)), start: 0, end }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_mapped() { "mapped" } else { "owned" };
        write!(f, "Bytes({} bytes, {kind})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_slices_share_memory() {
        let all = Bytes::from((0..10).collect::<Vec<u8>>());
        let part = all.slice(2..8).unwrap().slice(1..=2).unwrap();
        assert_eq!(&*part, &[3, 4]);
        assert_eq!(part.as_ptr(), all[3..].as_ptr());
        assert_eq!(all.slice(..).unwrap().len(), 10);
        assert!(all.slice(10..).unwrap().is_empty());
    }

    #[test]
    fn slices_past_the_end_are_refused() {
        let part = Bytes::from(vec![0; 10]).slice(4..6).unwrap();
        assert!(part.slice(0..3).is_err());
        #[allow(clippy::reversed_empty_ranges, reason = "the point of the test")]
        let reversed = part.slice(2..1);
        assert!(reversed.is_err());
        assert!(part.slice(..=usize::MAX).is_err());
        assert!(part.slice(usize::MAX..).is_err());
    }

    #[test]
    fn released_bytes_come_back_from_the_file() {
        let path = std::env::temp_dir().join(format!("tallow-release-{}", std::process::id()));
        let wanted: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &wanted).unwrap();
        let part = Bytes::open(&path).unwrap().slice(5000..60_000).unwrap();
        assert_eq!(&*part, &wanted[5000..60_000]);
        part.release();
        part.slice(10..10).unwrap().release();
        assert_eq!(&*part, &wanted[5000..60_000]);
        drop(part);
        std::fs::remove_file(&path).unwrap();
        Bytes::from(vec![1, 2]).release();
    }

    #[test]
    fn bytes_may_cross_threads() {
        fn check<T: Send + Sync + Clone>() {}
        check::<Bytes>();
    }

    #[test]
    fn a_folder_and_a_missing_file_are_named() {
        let folder = Bytes::open(std::env::temp_dir()).unwrap_err().to_string();
        assert!(folder.contains("a folder"), "{folder}");
        let missing = Bytes::open("no/such/file.gguf").unwrap_err().to_string();
        assert!(missing.contains("no/such/file.gguf"), "{missing}");
    }
}
