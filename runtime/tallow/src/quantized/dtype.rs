//! [`GgmlDType`]: the block types, numbered as in files.

use crate::{DType, Error, formats::gguf::GgmlType};

/// A type of ggml's, under candle's names. `as u32` is its number in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the documentation")]
#[repr(u32)]
pub enum GgmlDType {
    F32 = 0,
    F16 = 1,
    BF16 = 30,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2K = 10,
    Q3K = 11,
    Q4K = 12,
    Q5K = 13,
    Q6K = 14,
    Q8K = 15,
}

impl GgmlDType {
    /// Every type.
    pub const ALL: [Self; 15] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q8_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
        Self::Q8K,
    ];

    /// The type of this number in a file.
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Elements in a block: 1 for types that are not quantized.
    pub fn block_size(self) -> usize {
        GgmlType::from(self).block_elements() as usize
    }

    /// Bytes of a block.
    pub fn type_size(self) -> usize {
        GgmlType::from(self).block_bytes() as usize
    }

    /// Tallow's dtype for it, where packed weights of it are computed with as they are.
    pub fn dtype(self) -> Option<DType> {
        GgmlType::from(self).dtype()
    }

    /// Bytes that `elements` take; `None` on overflow or where they are not whole blocks.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        let blocks = elements.is_multiple_of(self.block_size()).then(|| elements / self.block_size())?;
        blocks.checked_mul(self.type_size())
    }

    /// Whether elements are stored in blocks.
    pub fn is_quantized(self) -> bool {
        self.block_size() > 1
    }
}

impl From<GgmlDType> for GgmlType {
    fn from(kind: GgmlDType) -> Self {
        GgmlType::numbered(kind as u32)
    }
}

impl TryFrom<DType> for GgmlDType {
    type Error = Error;

    fn try_from(dtype: DType) -> Result<Self, Error> {
        let found = GgmlType::from_dtype(dtype).and_then(|kind| Self::from_u32(kind.id()));
        found.ok_or_else(|| Error::op("quantized", format!("{dtype} is no type of quantized files: convert to F32")))
    }
}

impl std::fmt::Display for GgmlDType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        GgmlType::from(*self).fmt(f)
    }
}
