//! The numbers GGUF uses for types: of tensors (ggml's) and of metadata values. Sizes follow ggml's block layouts.

use std::fmt;

use tallow_graph::DType;

/// A tensor's type as the file numbers it. Only some have a [`DType`]: the others can be listed, but not loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GgmlType(u32);

/// Number, name, elements in a block, bytes of a block, and Tallow's type for it.
type Row = (u32, &'static str, u32, u32, Option<DType>);

#[rustfmt::skip]
const TYPES: &[Row] = &[
    (0, "F32", 1, 4, Some(DType::F32)),
    (1, "F16", 1, 2, Some(DType::F16)),
    (2, "Q4_0", 32, 18, Some(DType::Q4_0)),
    (3, "Q4_1", 32, 20, Some(DType::Q4_1)),
    (6, "Q5_0", 32, 22, None),
    (7, "Q5_1", 32, 24, None),
    (8, "Q8_0", 32, 34, Some(DType::Q8_0)),
    (9, "Q8_1", 32, 36, None),
    (10, "Q2_K", 256, 84, None),
    (11, "Q3_K", 256, 110, None),
    (12, "Q4_K", 256, 144, Some(DType::Q4K)),
    (13, "Q5_K", 256, 176, None),
    (14, "Q6_K", 256, 210, Some(DType::Q6K)),
    (15, "Q8_K", 256, 292, None),
    (16, "IQ2_XXS", 256, 66, None),
    (17, "IQ2_XS", 256, 74, None),
    (18, "IQ3_XXS", 256, 98, None),
    (19, "IQ1_S", 256, 50, None),
    (20, "IQ4_NL", 32, 18, None),
    (21, "IQ3_S", 256, 110, None),
    (22, "IQ2_S", 256, 82, None),
    (23, "IQ4_XS", 256, 136, None),
    (24, "I8", 1, 1, Some(DType::I8)),
    (25, "I16", 1, 2, Some(DType::I16)),
    (26, "I32", 1, 4, Some(DType::I32)),
    (27, "I64", 1, 8, Some(DType::I64)),
    (28, "F64", 1, 8, Some(DType::F64)),
    (29, "IQ1_M", 256, 56, None),
    (30, "BF16", 1, 2, Some(DType::BF16)),
    (34, "TQ1_0", 256, 54, None),
    (35, "TQ2_0", 256, 66, None),
    (39, "MXFP4", 32, 17, None),
    (40, "NVFP4", 64, 36, None),
    (41, "Q1_0", 128, 18, None),
];

/// Numbers that ggml once gave out and took back: files that use them must be converted anew.
const REMOVED: &[(u32, &str)] = &[
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl GgmlType {
    /// The type numbered `id`, where its layout is known.
    pub fn from_id(id: u32) -> Option<Self> {
        TYPES.iter().any(|row| row.0 == id).then_some(Self(id))
    }

    /// The type numbered `id`, which has a row.
    pub(crate) const fn numbered(id: u32) -> Self {
        Self(id)
    }

    /// ggml's type for `dtype`. Unsigned integers and 8-bit floats have none.
    pub fn from_dtype(dtype: DType) -> Option<Self> {
        TYPES.iter().find(|row| row.4 == Some(dtype)).map(|row| Self(row.0))
    }

    /// The name of a number that ggml no longer reads.
    pub(crate) fn removed(id: u32) -> Option<&'static str> {
        REMOVED.iter().find(|row| row.0 == id).map(|row| row.1)
    }

    fn row(self) -> Row {
        // Every constructor looked the number up.
        TYPES.iter().find(|row| row.0 == self.0).copied().unwrap_or((self.0, "?", 1, 0, None))
    }

    /// The number in the file.
    pub fn id(self) -> u32 {
        self.0
    }

    /// ggml's name: `F32`, `Q5_K`, ...
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements in one block.
    pub fn block_elements(self) -> u64 {
        u64::from(self.row().2)
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> u64 {
        u64::from(self.row().3)
    }

    /// Tallow's type, where it has one.
    pub fn dtype(self) -> Option<DType> {
        self.row().4
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of a metadata value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the documentation")]
#[repr(u8)]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Str = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    /// The type numbered `id` in the file.
    pub fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::Str,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The number in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// A value's bytes; `None` for strings and arrays, whose values differ in length.
    pub fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::Str | Self::Array => None,
        }
    }

    /// The fewest bytes a value can take: an empty string is its length, an empty array its type and length.
    pub(crate) fn least_bytes(self) -> usize {
        match self {
            Self::Str => 8,
            Self::Array => 12,
            other => other.size().unwrap_or(1),
        }
    }

    /// The name in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::Str => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_agree_with_the_dtypes() {
        for row in TYPES {
            let kind = GgmlType::from_id(row.0).unwrap();
            if let Some(dtype) = kind.dtype() {
                assert_eq!(kind.name(), dtype.name());
                assert_eq!(kind.block_elements(), dtype.block_elements() as u64);
                assert_eq!(kind.block_bytes(), dtype.block_bytes() as u64);
                assert_eq!(GgmlType::from_dtype(dtype), Some(kind));
            }
        }
        for dtype in DType::QUANTIZED {
            assert!(GgmlType::from_dtype(dtype).is_some(), "{dtype}");
        }
        assert!(GgmlType::from_id(9999).is_none() && GgmlType::from_id(4).is_none());
    }

    #[test]
    fn value_types_round_trip() {
        for id in 0..13 {
            assert_eq!(ValueType::from_id(id).unwrap().id(), id);
        }
        assert!(ValueType::from_id(13).is_none());
    }
}
