//! Metadata values, borrowed from the header's own bytes. A token list of a hundred thousand strings costs no memory
//! beyond the header: arrays are decoded as they are walked.

use std::fmt;

use tallow_graph::{Error, Result};

use super::{FORMAT, types::ValueType};

/// One metadata value.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Value<'a> {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(&'a str),
    Array(Array<'a>),
}

/// An array of values of one type. `bytes` begins at the first element and may reach beyond the last.
#[derive(Clone, Copy)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// Decodes the value at the head of `bytes`, and gives back what follows where that costs nothing: `None` behind an
    /// array, whose end only a walk finds. `None` in all where the bytes are no such value.
    fn decode(kind: ValueType, bytes: &'a [u8]) -> Option<(Self, Option<&'a [u8]>)> {
        fn split<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
            bytes.split_first_chunk::<N>().map(|(head, rest)| (*head, rest))
        }
        macro_rules! number {
            ($variant:ident, $ty:ty) => {{
                let (raw, rest) = split(bytes)?;
                (Self::$variant(<$ty>::from_le_bytes(raw)), Some(rest))
            }};
        }
        Some(match kind {
            ValueType::U8 => number!(U8, u8),
            ValueType::I8 => number!(I8, i8),
            ValueType::U16 => number!(U16, u16),
            ValueType::I16 => number!(I16, i16),
            ValueType::U32 => number!(U32, u32),
            ValueType::I32 => number!(I32, i32),
            ValueType::U64 => number!(U64, u64),
            ValueType::I64 => number!(I64, i64),
            ValueType::F32 => number!(F32, f32),
            ValueType::F64 => number!(F64, f64),
            ValueType::Bool => {
                let (raw, rest) = split::<1>(bytes)?;
                (Self::Bool(raw != [0]), Some(rest))
            }
            ValueType::Str => {
                let (raw, rest) = split(bytes)?;
                let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(raw)).ok()?)?;
                (Self::Str(std::str::from_utf8(text).ok()?), Some(rest))
            }
            ValueType::Array => {
                let (raw, rest) = split(bytes)?;
                let element = ValueType::from_id(u32::from_le_bytes(raw))?;
                let (raw, rest) = split(rest)?;
                let len = usize::try_from(u64::from_le_bytes(raw)).ok()?;
                (Self::Array(Array { element, len, bytes: rest }), None)
            }
        })
    }

    /// The value at the head of `bytes`, which the parser has checked.
    pub(super) fn at(kind: ValueType, bytes: &'a [u8]) -> Option<Self> {
        Self::decode(kind, bytes).map(|(value, _)| value)
    }

    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            Value::U8(_) => ValueType::U8,
            Value::I8(_) => ValueType::I8,
            Value::U16(_) => ValueType::U16,
            Value::I16(_) => ValueType::I16,
            Value::U32(_) => ValueType::U32,
            Value::I32(_) => ValueType::I32,
            Value::U64(_) => ValueType::U64,
            Value::I64(_) => ValueType::I64,
            Value::F32(_) => ValueType::F32,
            Value::F64(_) => ValueType::F64,
            Value::Bool(_) => ValueType::Bool,
            Value::Str(_) => ValueType::Str,
            Value::Array(_) => ValueType::Array,
        }
    }

    /// The integer, whatever width and sign the file chose for it.
    pub fn as_int(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// The number as f64, integers included.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => self.as_int().map(|v| v as f64),
        }
    }

    /// A copy that owns its strings and elements.
    pub fn to_owned(&self) -> OwnedValue {
        match *self {
            Value::U8(v) => OwnedValue::U8(v),
            Value::I8(v) => OwnedValue::I8(v),
            Value::U16(v) => OwnedValue::U16(v),
            Value::I16(v) => OwnedValue::I16(v),
            Value::U32(v) => OwnedValue::U32(v),
            Value::I32(v) => OwnedValue::I32(v),
            Value::U64(v) => OwnedValue::U64(v),
            Value::I64(v) => OwnedValue::I64(v),
            Value::F32(v) => OwnedValue::F32(v),
            Value::F64(v) => OwnedValue::F64(v),
            Value::Bool(v) => OwnedValue::Bool(v),
            Value::Str(v) => OwnedValue::Str(v.to_owned()),
            Value::Array(v) => OwnedValue::Array(v.element, v.iter().map(|e| e.to_owned()).collect()),
        }
    }

    /// The type and, for short values, the value: for error messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Array(array) => format!("an array of {} values of type {}", array.len, array.element),
            Value::Str(text) => format!("the string {}", crate::formats::quoted(text)),
            other => format!("the {} {other}", other.value_type()),
        }
    }
}

/// As a listing shows it: strings escaped and in quotes, long arrays cut after eight elements.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::Str(v) => write!(f, "{v:?}"),
            Value::Array(v) => {
                const SHOWN: usize = 8;
                f.write_str("[")?;
                for (i, value) in v.iter().take(SHOWN).enumerate() {
                    write!(f, "{}{value}", if i == 0 { "" } else { ", " })?;
                }
                if v.len() > SHOWN {
                    write!(f, ", ... {} in all", v.len())?;
                }
                f.write_str("]")
            }
        }
    }
}

impl<'a> Array<'a> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements' type.
    pub fn element_type(&self) -> ValueType {
        self.element
    }

    /// The elements in order.
    pub fn iter(&self) -> Values<'a> {
        Values { element: self.element, left: self.len, bytes: self.bytes }
    }

    /// The elements as strings, where that is what they are.
    pub fn strings(&self) -> Option<Strings<'a>> {
        (self.element == ValueType::Str).then(|| Strings(self.iter()))
    }

    /// What follows the last element.
    fn rest(&self) -> Option<&'a [u8]> {
        if let Some(size) = self.element.size() {
            return self.bytes.get(self.len.checked_mul(size)?..);
        }
        let mut values = self.iter();
        for _ in values.by_ref() {}
        Some(values.bytes)
    }
}

impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.element == other.element && self.len == other.len && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Value::Array(*self))
    }
}

impl<'a> IntoIterator for Array<'a> {
    type Item = Value<'a>;
    type IntoIter = Values<'a>;

    fn into_iter(self) -> Values<'a> {
        self.iter()
    }
}

/// The elements of an [`Array`], decoded one by one.
#[derive(Clone)]
pub struct Values<'a> {
    element: ValueType,
    left: usize,
    bytes: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (value, rest) = Value::decode(self.element, self.bytes)?;
        self.bytes = match (rest, value) {
            (Some(rest), _) => rest,
            // Arrays nest a few levels deep at most: the parser checked that.
            (None, Value::Array(inner)) => inner.rest()?,
            (None, _) => return None,
        };
        Some(value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Values<'_> {}

/// The strings of an array, in order, without copies.
#[derive(Clone)]
pub struct Strings<'a>(Values<'a>);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        match self.0.next()? {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Strings<'_> {}

/// A metadata value on its way into a file, or kept beyond the header's life.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum OwnedValue {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    /// The elements' type, which an empty array has too, and the elements.
    Array(ValueType, Vec<OwnedValue>),
}

impl OwnedValue {
    /// Its type.
    pub fn value_type(&self) -> ValueType {
        match self {
            OwnedValue::U8(_) => ValueType::U8,
            OwnedValue::I8(_) => ValueType::I8,
            OwnedValue::U16(_) => ValueType::U16,
            OwnedValue::I16(_) => ValueType::I16,
            OwnedValue::U32(_) => ValueType::U32,
            OwnedValue::I32(_) => ValueType::I32,
            OwnedValue::U64(_) => ValueType::U64,
            OwnedValue::I64(_) => ValueType::I64,
            OwnedValue::F32(_) => ValueType::F32,
            OwnedValue::F64(_) => ValueType::F64,
            OwnedValue::Bool(_) => ValueType::Bool,
            OwnedValue::Str(_) => ValueType::Str,
            OwnedValue::Array(..) => ValueType::Array,
        }
    }
}

/// candle's readers: of exactly this type, except [`to_u64`](OwnedValue::to_u64).
impl OwnedValue {
    fn no(&self, wanted: &str) -> Error {
        Error::format(FORMAT, format!("a value is no {wanted}, but a {}", self.value_type()))
    }

    /// The unsigned integer, of whatever width, or 0 and 1 of a bool.
    ///
    /// # Errors
    /// Another type.
    pub fn to_u64(&self) -> Result<u64> {
        match *self {
            OwnedValue::U64(v) => Ok(v),
            OwnedValue::U32(v) => Ok(v.into()),
            OwnedValue::U16(v) => Ok(v.into()),
            OwnedValue::U8(v) => Ok(v.into()),
            OwnedValue::Bool(v) => Ok(v.into()),
            _ => Err(self.no("unsigned integer")),
        }
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// Another type.
    pub fn to_vec(&self) -> Result<&Vec<OwnedValue>> {
        match self {
            OwnedValue::Array(_, values) => Ok(values),
            _ => Err(self.no("array")),
        }
    }

    /// The text.
    ///
    /// # Errors
    /// Another type.
    #[allow(clippy::inherent_to_string, reason = "candle's name; it may fail")]
    pub fn to_string(&self) -> Result<&String> {
        match self {
            OwnedValue::Str(text) => Ok(text),
            _ => Err(self.no("string")),
        }
    }
}

macro_rules! owned_to {
    ($($name:ident $variant:ident $ty:ty),*) => { impl OwnedValue { $(
        #[doc = concat!("The ", stringify!($ty), ".\n\n# Errors\nAnother type.")]
        pub fn $name(&self) -> Result<$ty> {
            match *self {
                OwnedValue::$variant(value) => Ok(value),
                _ => Err(self.no(stringify!($ty))),
            }
        }
    )* } };
}

owned_to!(to_u8 U8 u8, to_i8 I8 i8, to_u16 U16 u16, to_i16 I16 i16, to_u32 U32 u32, to_i32 I32 i32, to_i64 I64 i64,
    to_f32 F32 f32, to_f64 F64 f64, to_bool Bool bool);

macro_rules! owned_from {
    ($($variant:ident $ty:ty),*) => {$(
        impl From<$ty> for OwnedValue {
            fn from(value: $ty) -> Self {
                OwnedValue::$variant(value)
            }
        }

        impl From<Vec<$ty>> for OwnedValue {
            fn from(values: Vec<$ty>) -> Self {
                OwnedValue::Array(ValueType::$variant, values.into_iter().map(OwnedValue::$variant).collect())
            }
        }
    )*};
}

owned_from!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64, Bool bool, Str String);

impl From<&str> for OwnedValue {
    fn from(value: &str) -> Self {
        OwnedValue::Str(value.to_owned())
    }
}

impl From<Vec<&str>> for OwnedValue {
    fn from(values: Vec<&str>) -> Self {
        OwnedValue::Array(ValueType::Str, values.into_iter().map(OwnedValue::from).collect())
    }
}
