//! The two layouts of PyTorch's files: where the pickle lies, and each storage's bytes.
//!
//! Since 1.6 a file is a zip archive of `NAME/data.pkl`, `NAME/data/KEY` for each storage, `NAME/byteorder` and
//! `NAME/version`. Before, it was five pickles one after another (a magic number, the protocol's version, facts of the
//! machine, the object, the storages' keys), and then for each key the number of elements, in eight bytes, and the elements.

use super::{
    FORMAT, bad,
    heap::{Heap, Storage, Value},
    machine,
    torch::ELEMENTS,
};
use crate::{
    Result,
    formats::{Bytes, archive::Archive, inside, quoted},
};
use std::{collections::HashMap, ops::Range};

/// A number of ten bytes, which is the first pickle of the older layout.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// Where in the file it ends at most: before it come a protocol, a frame, and the number's own opcode.
const MAGIC_WITHIN: usize = 32;
/// How a tar archive, the layout before the first release, tells itself.
const TAR: (Range<usize>, &[u8]) = (257..262, b"ustar");

/// Where the storages' bytes are.
#[derive(Debug, Clone)]
pub(super) enum Data {
    /// Path to entry, and whether the highest byte of an element comes first.
    Zip { archive: Archive, root: String, entries: HashMap<String, usize>, big_endian: bool },
    /// Key to place.
    Plain { file: Bytes, places: HashMap<String, Range<usize>> },
}

/// The pickle of a file, where in it the object's begins, and the storages.
pub(super) fn open(file: Bytes) -> Result<(Bytes, usize, Data)> {
    let (pickle, at, data) = if file.starts_with(b"PK") {
        zip(file)?
    } else {
        let within = file.get(..MAGIC_WITHIN.min(file.len())).unwrap_or_default();
        if !within.windows(MAGIC.len()).any(|bytes| bytes == MAGIC) {
            let tar = file.get(TAR.0).is_some_and(|bytes| bytes == TAR.1);
            let what =
                if tar { "a tar archive: save it again with PyTorch 0.4 or later" } else { "no file of torch.save" };
            return Err(bad(format!("this is {what}")));
        }
        plain(file)?
    };
    if u32::try_from(pickle.len()).is_err() {
        return Err(bad("the pickle has 4 GiB or more"));
    }
    Ok((pickle, at, data))
}

fn zip(file: Bytes) -> Result<(Bytes, usize, Data)> {
    let archive = Archive::open(file, FORMAT)?;
    let names = archive.names()?;
    let mut roots = names.iter().filter_map(|(index, name)| Some((*index, name.strip_suffix("data.pkl")?)));
    let found = roots.find(|(_, root)| root.is_empty() || root.ends_with('/') && root.matches('/').count() == 1);
    let (pickle, root) = found.ok_or_else(|| bad("the zip file has no data.pkl: torch.save did not make it"))?;
    let root = root.to_string();
    let entry = |what: &str| names.iter().find(|(_, name)| name.strip_prefix(&root) == Some(what)).map(|(i, _)| *i);
    if entry("constants.pkl").is_some() {
        return Err(bad("this is a TorchScript archive; save the model's state_dict() with torch.save"));
    }
    let read = |index, most| archive.bytes(index, most).map_err(|e| inside("its pickle or byte order", e));
    let big_endian = entry("byteorder").map(|index| read(index, 8)).transpose()?.is_some_and(|order| &*order == b"big");
    let pickle = read(pickle, u32::MAX as usize)?;
    let entries = names.iter().map(|(index, name)| (name.clone(), *index)).collect();
    Ok((pickle, 0, Data::Zip { archive, root, entries, big_endian }))
}

fn plain(file: Bytes) -> Result<(Bytes, usize, Data)> {
    // 4 GiB of pickles are enough; spans into them have 32 bits.
    let pickles = file.slice(..file.len().min(u32::MAX as usize))?;
    let mut heap = Heap { pickle: &pickles, ..Heap::default() };
    let mut at = 0;
    for _ in 0..3 {
        at = machine::run(&mut heap, at)?.1;
    }
    let object = at;
    at = machine::run(&mut heap, at)?.1;
    let (keys, mut at) = machine::run(&mut heap, at)?;
    let keys = heap.row(keys).ok_or_else(|| bad("the list of storages is missing"))?.1;
    let elements: HashMap<&str, u8> = heap.storages.iter().map(|s| (heap.text(s.key), s.element)).collect();
    let mut places = HashMap::new();
    for &key in keys {
        let Value::Text(key) = key else { return Err(bad("a storage's key is no text")) };
        let key = heap.text(key);
        let Some(&element) = elements.get(key) else {
            return Err(bad(format!("no tensor tells what storage {} is", quoted(key))));
        };
        let size = ELEMENTS.get(usize::from(element)).map_or(1, |e| u64::from(e.bytes));
        let head = file.get(at..).and_then(|rest| rest.first_chunk::<8>());
        let count = head.map(|head| u64::from_le_bytes(*head));
        let bytes = count.and_then(|n| usize::try_from(n.checked_mul(size)?).ok());
        let end = bytes.and_then(|n| (at + 8).checked_add(n)).filter(|&end| end <= file.len());
        let end = end.ok_or_else(|| bad(format!("truncated in storage {}, at byte {at}", quoted(key))))?;
        places.insert(key.to_string(), at + 8..end);
        at = end;
    }
    let pickle = pickles.slice(..)?;
    Ok((pickle, object, Data::Plain { file, places }))
}

impl Data {
    /// The path of a storage: an archive's entry, or the key itself.
    pub fn path(&self, key: &str) -> String {
        match self {
            Data::Zip { root, .. } => format!("{root}data/{key}"),
            Data::Plain { .. } => key.into(),
        }
    }

    /// Whether the file has as many bytes of a storage as its pickle says.
    pub fn check(&self, path: &str, storage: &Storage, bytes: u8) -> Result<()> {
        let has = match self {
            Data::Zip { archive, entries, .. } => {
                entries.get(path).map(|&index| archive.with(index, |entry| Ok(entry.size()))).transpose()?
            }
            Data::Plain { places, .. } => places.get(path).map(|place| place.len() as u64),
        };
        let has = has.ok_or_else(|| bad(format!("the file has no storage {}", quoted(path))))?;
        let needs = storage.whole.checked_mul(bytes.into());
        if needs.is_none_or(|needs| needs > has) {
            let (path, n) = (quoted(path), storage.whole);
            return Err(bad(format!("storage {path} has {has} bytes, too few for {n} elements of {bytes} bytes")));
        }
        Ok(())
    }

    /// Bytes of a storage, in elements of `size` bytes whose lowest byte comes first.
    pub fn bytes(&self, path: &str, range: Range<usize>, size: usize) -> Result<Bytes> {
        match self {
            Data::Plain { file, places } => {
                let place = places.get(path).cloned().unwrap_or_default();
                file.slice(place)?.slice(range)
            }
            Data::Zip { archive, entries, big_endian, .. } => {
                let index =
                    entries.get(path).ok_or_else(|| bad(format!("the file has no storage {}", quoted(path))))?;
                let all = archive.bytes(*index, range.end)?;
                if all.len() < range.end {
                    return Err(bad(format!("storage {} is truncated: it has {} bytes", quoted(path), all.len())));
                }
                let bytes = all.slice(range)?;
                if !*big_endian || size == 1 {
                    return Ok(bytes);
                }
                let mut turned = bytes.to_vec();
                turned.chunks_exact_mut(size).for_each(<[u8]>::reverse);
                Ok(turned.into())
            }
        }
    }
}
