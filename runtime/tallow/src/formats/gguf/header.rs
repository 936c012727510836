//! What a checked GGUF header says: metadata by key, tensors by name, both in the file's order. The tables hold
//! positions in the header's own bytes and decode on demand, so that a header of a million tiny entries costs a small
//! multiple of its size.

use std::fmt;

use tallow_graph::{DType, Error, Result};

use super::types::{GgmlType, ValueType};
use super::value::{Array, Strings, Value};
use super::{FORMAT, MAX_DIMS};
use crate::formats::{Bytes, quoted};

/// Where an entry's name lies in the header; the rest of the entry follows it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub at: usize,
    pub len: u16,
}

/// Entries with distinct names, in the file's order. `sorted` lists their indices by name, for the binary search.
#[derive(Debug, Clone)]
pub(super) struct Table {
    bytes: Bytes,
    spans: Vec<Span>,
    sorted: Vec<u32>,
}

impl Table {
    /// Sorts the names, and refuses a name that comes twice. `what` says what they name.
    pub(super) fn new(bytes: Bytes, spans: Vec<Span>, what: &str) -> Result<Self> {
        let count = u32::try_from(spans.len())
            .map_err(|_| Error::format(FORMAT, format!("{} {what}s are more than this reader takes", spans.len())))?;
        let mut sorted = Vec::with_capacity(spans.len());
        sorted.extend(0..count);
        let mut table = Self { bytes, spans, sorted };
        let mut sorted = std::mem::take(&mut table.sorted);
        sorted.sort_unstable_by(|&a, &b| table.name(a).cmp(table.name(b)).then(a.cmp(&b)));
        for (&a, &b) in sorted.iter().zip(sorted.iter().skip(1)) {
            if table.name(a) == table.name(b) {
                let at = |i| table.span(i).map_or(0, |s: Span| s.at);
                return Err(Error::format(
                    FORMAT,
                    format!("{what} {} appears twice, at bytes {} and {}", quoted(table.name(a)), at(a), at(b)),
                ));
            }
        }
        table.sorted = sorted;
        Ok(table)
    }

    fn span(&self, index: u32) -> Option<Span> {
        self.spans.get(index as usize).copied()
    }

    pub(super) fn name(&self, index: u32) -> &str {
        self.span(index).map_or("", |span| self.name_at(span))
    }

    fn name_at(&self, span: Span) -> &str {
        // The parser checked bounds and UTF-8.
        let bytes = self.bytes.get(span.at..span.at + usize::from(span.len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// The bytes behind the name.
    fn body(&self, span: Span) -> &[u8] {
        self.bytes.get(span.at + usize::from(span.len)..).unwrap_or_default()
    }

    fn find(&self, name: &str) -> Option<Span> {
        let at = self.sorted.binary_search_by(|&i| self.name(i).cmp(name)).ok()?;
        self.span(*self.sorted.get(at)?)
    }
}

/// A checked GGUF header. It owns its bytes, so that nothing which happens to the file afterwards can undo the checks.
#[derive(Clone)]
pub struct Header {
    pub(super) version: u32,
    pub(super) alignment: u64,
    pub(super) header_bytes: u64,
    pub(super) data_start: u64,
    pub(super) metadata: Metadata,
    pub(super) tensors: Tensors,
}

impl Header {
    /// The format's version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Tensor data begins at multiples of this many bytes: a power of two.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Bytes of the header, from the file's start.
    pub fn header_bytes(&self) -> u64 {
        self.header_bytes
    }

    /// Where the tensors' data begins: the header's end, aligned.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Key and value pairs.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What the file says of its tensors.
    pub fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    /// One tensor's description.
    ///
    /// # Errors
    /// Where there is no such tensor, by name.
    pub fn tensor(&self, name: &str) -> Result<TensorInfo<'_>> {
        self.tensors
            .get(name)
            .ok_or_else(|| Error::format(FORMAT, format!("the file has no tensor named {}", quoted(name))))
    }
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("version", &self.version)
            .field("alignment", &self.alignment)
            .field("data_start", &self.data_start)
            .field("metadata", &self.metadata.len())
            .field("tensors", &self.tensors.len())
            .finish()
    }
}

/// The metadata: an ordered map from key to value.
#[derive(Debug, Clone)]
pub struct Metadata(pub(super) Table);

impl Metadata {
    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.spans.is_empty()
    }

    /// Keys and values in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.0.spans.iter().filter_map(|&span| Some((self.0.name_at(span), self.value(span)?)))
    }

    fn value(&self, span: Span) -> Option<Value<'_>> {
        let (kind, body) = self.0.body(span).split_first_chunk::<4>()?;
        Value::at(ValueType::from_id(u32::from_le_bytes(*kind))?, body)
    }

    /// The value of `key`, as the file types it.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        self.value(self.0.find(key)?)
    }

    /// The value of `key` as a `T`; `None` where the key is absent. Integers may have any width that holds the value,
    /// and floats may be written as integers.
    ///
    /// # Errors
    /// Where the value is not a `T`, with the key, what was expected and what is there.
    pub fn read_opt<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).ok_or_else(|| {
            let text = format!("metadata key {}: expected {}, found {}", quoted(key), T::expected(), value.describe());
            Error::format(FORMAT, text)
        })
    }

    /// The value of `key` as a `T`.
    ///
    /// # Errors
    /// As [`Metadata::read_opt`], and where the key is absent.
    pub fn read<'a, T: FromValue<'a>>(&'a self, key: &str) -> Result<T> {
        self.read_opt(key)?.ok_or_else(|| {
            Error::format(FORMAT, format!("metadata key {} is missing: expected {}", quoted(key), T::expected()))
        })
    }
}

macro_rules! getters {
    ($($name:ident $ty:ty),* $(,)?) => {
        /// [`Metadata::read`] under the type's name.
        impl Metadata {$(
            #[doc = concat!("The value of `key` as `", stringify!($ty), "`; an error where it is absent or another kind of value.")]
            pub fn $name(&self, key: &str) -> Result<$ty> {
                self.read(key)
            }
        )*}
    };
}

getters! {
    get_u32 u32, get_u64 u64, get_usize usize, get_i32 i32, get_i64 i64, get_f32 f32, get_f64 f64, get_bool bool,
    get_str &str, get_array Array<'_>, get_strings Strings<'_>, get_u32s Vec<u32>, get_i32s Vec<i32>,
    get_f32s Vec<f32>,
}

/// A type that a metadata value can be read as.
pub trait FromValue<'a>: Sized {
    /// The value, or `None` where it is of another kind or out of range.
    fn from_value(value: Value<'a>) -> Option<Self>;
    /// What an error message says was expected, with its article.
    fn expected() -> String;
}

macro_rules! from_int {
    ($($ty:ty),*) => {$(
        impl<'a> FromValue<'a> for $ty {
            fn from_value(value: Value<'a>) -> Option<Self> {
                <$ty>::try_from(value.as_int()?).ok()
            }
            fn expected() -> String {
                concat!("an integer that fits ", stringify!($ty)).into()
            }
        }
    )*};
}

from_int!(u8, i8, u16, i16, u32, i32, u64, i64, usize);

impl<'a> FromValue<'a> for f64 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.as_f64()
    }
    fn expected() -> String {
        "a number".into()
    }
}

impl<'a> FromValue<'a> for f32 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        value.as_f64().map(|v| v as f32)
    }
    fn expected() -> String {
        "a number".into()
    }
}

impl<'a> FromValue<'a> for bool {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Bool(v) => Some(v),
            other => match other.as_int()? {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
        }
    }
    fn expected() -> String {
        "a bool".into()
    }
}

impl<'a> FromValue<'a> for &'a str {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }
    fn expected() -> String {
        "a string".into()
    }
}

impl<'a> FromValue<'a> for Array<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }
    fn expected() -> String {
        "an array".into()
    }
}

impl<'a> FromValue<'a> for Strings<'a> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        Array::from_value(value)?.strings()
    }
    fn expected() -> String {
        "an array of strings".into()
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Vec<T> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        Array::from_value(value)?.iter().map(T::from_value).collect()
    }
    fn expected() -> String {
        format!("an array whose elements are each {}", T::expected())
    }
}

/// The tensors' descriptions: an ordered map from name to [`TensorInfo`].
#[derive(Debug, Clone)]
pub struct Tensors {
    pub(super) table: Table,
    pub(super) data_start: u64,
}

impl Tensors {
    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.table.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.spans.is_empty()
    }

    /// The tensors in the file's order.
    pub fn iter(&self) -> impl Iterator<Item = TensorInfo<'_>> {
        self.table.spans.iter().filter_map(|&span| self.info(span))
    }

    /// The tensor of that name.
    pub fn get(&self, name: &str) -> Option<TensorInfo<'_>> {
        self.info(self.table.find(name)?)
    }

    /// By index in the file's order.
    pub(super) fn at(&self, index: u32) -> Option<TensorInfo<'_>> {
        self.info(self.table.span(index)?)
    }

    fn info(&self, span: Span) -> Option<TensorInfo<'_>> {
        let raw = RawTensor::decode(self.table.body(span))?;
        let kind = GgmlType::from_id(raw.kind)?;
        let mut dims = [0usize; MAX_DIMS];
        // The file has the innermost dimension first.
        for (to, &from) in dims.iter_mut().zip(raw.dims().iter().rev()) {
            *to = usize::try_from(from).ok()?;
        }
        Some(TensorInfo {
            name: self.table.name_at(span),
            ggml_type: kind,
            dims,
            rank: raw.rank,
            offset: self.data_start.checked_add(raw.offset)?,
            bytes: raw.bytes(kind).ok()?,
        })
    }
}

/// A tensor's entry behind its name, as the file has it.
pub(super) struct RawTensor {
    rank: usize,
    dims: [u64; MAX_DIMS],
    pub kind: u32,
    /// Relative to the data's start.
    pub offset: u64,
}

impl RawTensor {
    /// `None` where the bytes end too early or the rank is too high.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (rank, mut rest) = bytes.split_first_chunk::<4>()?;
        let rank = u32::from_le_bytes(*rank) as usize;
        let mut dims = [0u64; MAX_DIMS];
        for dim in dims.get_mut(..rank)? {
            let (raw, tail) = rest.split_first_chunk::<8>()?;
            *dim = u64::from_le_bytes(*raw);
            rest = tail;
        }
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let (offset, _) = rest.split_first_chunk::<8>()?;
        Some(Self { rank, dims, kind: u32::from_le_bytes(*kind), offset: u64::from_le_bytes(*offset) })
    }

    /// Innermost first, as in the file.
    pub(super) fn dims(&self) -> &[u64] {
        self.dims.get(..self.rank).unwrap_or_default()
    }

    /// The tensor's size, or why these dimensions cannot be.
    pub(super) fn bytes(&self, kind: GgmlType) -> Result<u64, String> {
        let overflow =
            || format!("dimensions {:?} (innermost first) are more than this machine can address", self.dims());
        // Zeros count as ones here, so that a zero cannot hide an overflow of the others, which strides would meet.
        let span = self.dims().iter().try_fold(1u64, |n, &d| n.checked_mul(d.max(1))).ok_or_else(overflow)?;
        let elements = if self.dims().contains(&0) { 0 } else { span };
        let row = self.dims().first().copied().unwrap_or(1);
        if !row.is_multiple_of(kind.block_elements()) {
            return Err(format!(
                "rows of {row} elements are not whole blocks of {}, which are {} elements",
                kind.name(),
                kind.block_elements()
            ));
        }
        let bytes_of = |n: u64| n.div_ceil(kind.block_elements()).checked_mul(kind.block_bytes());
        // The largest object that Rust can address has isize::MAX bytes.
        match bytes_of(span) {
            Some(bytes) if isize::try_from(bytes).is_ok() && isize::try_from(span).is_ok() => {
                bytes_of(elements).ok_or_else(overflow)
            }
            _ => Err(overflow()),
        }
    }
}

/// What a GGUF file says of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type, as ggml numbers and names it.
    pub ggml_type: GgmlType,
    dims: [usize; MAX_DIMS],
    rank: usize,
    /// Where its data begins, in bytes from the file's start.
    pub offset: u64,
    /// Bytes of its data.
    pub bytes: u64,
}

impl TensorInfo<'_> {
    /// Its dimensions, outermost first (the file has them the other way round). Empty for a scalar.
    pub fn dims(&self) -> &[usize] {
        self.dims.get(..self.rank).unwrap_or_default()
    }

    /// Tallow's type for it, where there is one.
    pub fn dtype(&self) -> Option<DType> {
        self.ggml_type.dtype()
    }

    /// Tallow's type for it.
    ///
    /// # Errors
    /// Where there is none, with the tensor's name and type.
    pub fn require_dtype(&self) -> Result<DType> {
        self.dtype().ok_or_else(|| {
            let text = format!(
                "tensor {} has type {}, which Tallow does not load: use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1, \
                 Q4_K or Q6_K",
                quoted(self.name),
                self.ggml_type
            );
            Error::format(FORMAT, text)
        })
    }
}
