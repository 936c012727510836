//! The JSON header of a safetensors file, read in one pass into compact tables. Nothing is kept but what is asked for
//! later, ranks are bounded, and names are unique.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tallow_graph::{DType, Error, Result};

use super::FORMAT;
use crate::formats::quoted;

/// The largest header: the limit of the reference implementation.
const MAX_HEADER: u64 = 100_000_000;
/// The most dimensions of a tensor.
const MAX_DIMS: usize = 16;
/// The entry that is not a tensor.
const METADATA: &str = "__metadata__";

/// An element type as the format names it. Only some have a [`DType`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StDtype(u8);

/// Name, bits of an element, and Tallow's type for it.
const DTYPES: &[(&str, u8, Option<DType>)] = &[
    ("BOOL", 8, Some(DType::U8)),
    ("U8", 8, Some(DType::U8)),
    ("I8", 8, Some(DType::I8)),
    ("U16", 16, Some(DType::U16)),
    ("I16", 16, Some(DType::I16)),
    ("U32", 32, Some(DType::U32)),
    ("I32", 32, Some(DType::I32)),
    ("U64", 64, Some(DType::U64)),
    ("I64", 64, Some(DType::I64)),
    ("F8_E4M3", 8, Some(DType::F8E4M3)),
    ("F8_E5M2", 8, Some(DType::F8E5M2)),
    ("BF16", 16, Some(DType::BF16)),
    ("F16", 16, Some(DType::F16)),
    ("F32", 32, Some(DType::F32)),
    ("F64", 64, Some(DType::F64)),
    ("F8_E8M0", 8, None),
    ("F8_E4M3FNUZ", 8, None),
    ("F8_E5M2FNUZ", 8, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("F4", 4, None),
    ("C64", 64, None),
];

impl StDtype {
    fn from_name(name: &str) -> Option<Self> {
        DTYPES.iter().position(|row| row.0 == name).map(|i| Self(i as u8))
    }

    /// The type that a dtype is written as; quantized ones have none.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        // The first that reads as this dtype, but for BOOL, which is not what U8 means.
        let fits = |row: &(&str, u8, Option<DType>)| row.2 == Some(dtype) && row.0 != "BOOL";
        DTYPES.iter().position(fits).map(|i| Self(i as u8))
    }

    fn row(self) -> (&'static str, u8, Option<DType>) {
        DTYPES.get(usize::from(self.0)).copied().unwrap_or(("?", 8, None))
    }

    /// The format's name for it: `F32`, `F8_E4M3`, `BOOL`, ...
    pub fn name(self) -> &'static str {
        self.row().0
    }
}

/// What a safetensors file says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    name: Box<str>,
    dims: Box<[usize]>,
    /// Of the data, from the file's start.
    start: usize,
    end: usize,
    dtype: StDtype,
}

impl TensorInfo {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Its type as the file names it.
    pub fn st_dtype(&self) -> StDtype {
        self.dtype
    }

    /// Tallow's type for it, where there is one. BOOL is U8.
    pub fn dtype(&self) -> Option<DType> {
        self.dtype.row().2
    }

    /// Where its data lies, in bytes from the file's start.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// The bytes its shape and type make.
    fn expected_bytes(&self) -> Option<usize> {
        let bits =
            self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?.checked_mul(self.dtype.row().1.into())?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

/// A checked header.
#[derive(Debug, Clone)]
pub(super) struct Header {
    /// In the order of their data.
    tensors: Vec<TensorInfo>,
    /// Indices of `tensors`, by name.
    sorted: Vec<u32>,
    metadata: Texts,
}

impl Header {
    pub(super) fn parse(file: &[u8]) -> Result<Self> {
        let bad = |message: String| Error::format(FORMAT, message);
        let size = file.len();
        let Some((raw, rest)) = file.split_first_chunk::<8>() else {
            return Err(bad(format!("truncated: {size} bytes, and the header's length alone takes 8")));
        };
        let len = u64::from_le_bytes(*raw);
        if len > MAX_HEADER {
            return Err(bad(format!(
                "the header claims {len} bytes, at byte 0; {MAX_HEADER} is the most (is this a safetensors file?)"
            )));
        }
        let Some(json) = usize::try_from(len).ok().and_then(|len| rest.get(..len)) else {
            return Err(bad(format!("truncated: the header claims {len} bytes, but {} follow", rest.len())));
        };
        if json.first() != Some(&b'{') {
            return Err(bad("the header, at byte 8, does not begin with '{'".into()));
        }
        let raw: Raw = serde_json::from_slice(json).map_err(|e| bad(format!("in the header, from byte 8 on: {e}")))?;
        let header = Self::check(raw)?;
        header.place(8 + json.len(), size)
    }

    /// Sorts by name, and refuses a name that comes twice.
    fn check(raw: Raw) -> Result<Self> {
        let bad = |message: String| Error::format(FORMAT, message);
        let Raw { mut tensors, metadata } = raw;
        tensors.sort_unstable_by(|a, b| (a.start, a.end, &a.name).cmp(&(b.start, b.end, &b.name)));
        let count = u32::try_from(tensors.len()).map_err(|_| bad("too many tensors".into()))?;
        let mut sorted = Vec::with_capacity(tensors.len());
        sorted.extend(0..count);
        let name = |i: u32| tensors.get(i as usize).map_or("", |t| &*t.name);
        sorted.sort_unstable_by(|&a, &b| name(a).cmp(name(b)));
        if let Some((&a, _)) = sorted.iter().zip(sorted.iter().skip(1)).find(|(a, b)| name(**a) == name(**b)) {
            return Err(bad(format!("the header names tensor {} twice", quoted(name(a)))));
        }
        if let Some(key) = metadata.twice() {
            return Err(bad(format!("{METADATA} has the key {} twice", quoted(key))));
        }
        Ok(Self { tensors, sorted, metadata })
    }

    /// Checks that the data covers the rest of the file exactly, and makes offsets absolute.
    fn place(mut self, data_start: usize, size: usize) -> Result<Self> {
        let bad = |message: String| Error::format(FORMAT, message);
        let data = size - data_start;
        let mut reached = 0;
        for tensor in &mut self.tensors {
            let (start, end) = (tensor.start, tensor.end);
            let name = || quoted(&tensor.name);
            if end < start || end > data {
                return Err(bad(format!(
                    "tensor {}: data_offsets [{start}, {end}] do not lie in the file's {data} bytes of data: it is \
                     truncated or lying",
                    name()
                )));
            }
            if start != reached {
                let what = if start < reached { "overlaps the tensor before it" } else { "leaves a gap before it" };
                return Err(bad(format!("tensor {} {what}: it begins at {start}, not {reached}", name())));
            }
            if tensor.expected_bytes() != Some(end - start) {
                let text = format!(
                    "tensor {}: shape {:?} of {} does not take the {} bytes of its data_offsets",
                    name(),
                    tensor.dims,
                    tensor.dtype.name(),
                    end - start
                );
                return Err(bad(text));
            }
            reached = end;
            // No overflow: `end` is within the file.
            tensor.start = data_start + start;
            tensor.end = data_start + end;
        }
        if reached != data {
            return Err(bad(format!("the tensors take {reached} bytes, but the file has {data} bytes of data")));
        }
        Ok(self)
    }

    pub(super) fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    pub(super) fn get(&self, name: &str) -> Option<&TensorInfo> {
        let at = |i: u32| self.tensors.get(i as usize);
        let found = self.sorted.binary_search_by(|&i| at(i).map_or("", TensorInfo::name).cmp(name)).ok()?;
        at(*self.sorted.get(found)?)
    }

    pub(super) fn metadata(&self) -> impl Iterator<Item = (&str, &str)> {
        self.metadata.iter()
    }
}

/// Pairs of strings in one buffer: a million short ones cost little more than their bytes.
#[derive(Debug, Clone, Default)]
struct Texts {
    text: String,
    /// Lengths of key and value, one pair after the other from the buffer's start.
    pairs: Vec<(u32, u32)>,
}

impl Texts {
    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.text.as_str();
        self.pairs.iter().filter_map(move |&(key, value)| {
            let (key, tail) = rest.split_at_checked(key as usize)?;
            let (value, tail) = tail.split_at_checked(value as usize)?;
            rest = tail;
            Some((key, value))
        })
    }

    fn twice(&self) -> Option<&str> {
        let mut keys = Vec::with_capacity(self.pairs.len());
        keys.extend(self.iter().map(|(key, _)| key));
        keys.sort_unstable();
        keys.iter().zip(keys.iter().skip(1)).find(|(a, b)| a == b).map(|(a, _)| *a)
    }
}

/// The header as JSON gives it, with offsets from the data's start.
#[derive(Default)]
struct Raw {
    tensors: Vec<TensorInfo>,
    metadata: Texts,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object that describes a tensor under each name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut raw = Raw::default();
                let mut metadata = None;
                while let Some(Text(name)) = map.next_key()? {
                    if &*name == METADATA {
                        if metadata.replace(map.next_value::<Option<Texts>>()?.unwrap_or_default()).is_some() {
                            return Err(A::Error::custom(format_args!("{METADATA} appears twice")));
                        }
                        continue;
                    }
                    let entry: Entry = map
                        .next_value()
                        .map_err(|e| A::Error::custom(format_args!("tensor {}: {e}", quoted(&name))))?;
                    let Entry { dtype, dims, start, end } = entry;
                    raw.tensors.push(TensorInfo { name, dims, start, end, dtype });
                }
                raw.metadata = metadata.unwrap_or_default();
                Ok(raw)
            }
        }
        from.deserialize_map(V)
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
                let mut texts = Texts::default();
                while let Some(Text(key)) = map.next_key()? {
                    let Text(value) = map.next_value()?;
                    // Lengths fit: a header has at most 100 MB.
                    texts.pairs.push((key.len() as u32, value.len() as u32));
                    texts.text.push_str(&key);
                    texts.text.push_str(&value);
                }
                Ok(texts)
            }
        }
        from.deserialize_map(V)
    }
}

/// A string without spare capacity.
struct Text(Box<str>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
        }
        from.deserialize_str(V)
    }
}

/// One tensor's entry.
struct Entry {
    dtype: StDtype,
    dims: Box<[usize]>,
    start: usize,
    end: usize,
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Entry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with dtype, shape and data_offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entry, A::Error> {
                fn once<T, E: serde::de::Error>(slot: &mut Option<T>, value: T, what: &'static str) -> Result<(), E> {
                    if slot.replace(value).is_some() { Err(E::duplicate_field(what)) } else { Ok(()) }
                }
                let (mut dtype, mut dims, mut offsets) = (None, None, None);
                while let Some(Text(key)) = map.next_key()? {
                    match &*key {
                        "dtype" => {
                            let Text(name) = map.next_value()?;
                            let known = StDtype::from_name(&name)
                                .ok_or_else(|| A::Error::custom(format_args!("unknown dtype {}", quoted(&name))))?;
                            once(&mut dtype, known, "dtype")?;
                        }
                        "shape" => once(&mut dims, map.next_value::<Dims<MAX_DIMS>>()?, "shape")?,
                        "data_offsets" => once(&mut offsets, map.next_value::<Dims<2>>()?, "data_offsets")?,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                let dtype = dtype.ok_or_else(|| A::Error::missing_field("dtype"))?;
                let dims = dims.ok_or_else(|| A::Error::missing_field("shape"))?;
                let offsets = offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?;
                let &[start, end] = offsets.get() else {
                    return Err(A::Error::custom("data_offsets must be two numbers"));
                };
                Ok(Entry { dtype, dims: dims.get().into(), start, end })
            }
        }
        from.deserialize_map(V)
    }
}

/// Up to `N` numbers, on the stack.
struct Dims<const N: usize> {
    values: [usize; N],
    len: usize,
}

impl<const N: usize> Dims<N> {
    fn get(&self) -> &[usize] {
        self.values.get(..self.len).unwrap_or_default()
    }
}

impl<'de, const N: usize> Deserialize<'de> for Dims<N> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct V<const N: usize>;
        impl<'de, const N: usize> Visitor<'de> for V<N> {
            type Value = Dims<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {N} non-negative numbers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dims<N>, A::Error> {
                let mut dims = Dims { values: [0; N], len: 0 };
                while let Some(value) = seq.next_element()? {
                    let slot = dims.values.get_mut(dims.len).ok_or_else(|| {
                        A::Error::custom(format_args!("an array has more than {N} numbers, the most that is read"))
                    })?;
                    *slot = value;
                    dims.len += 1;
                }
                Ok(dims)
            }
        }
        from.deserialize_seq(V::<N>)
    }
}
