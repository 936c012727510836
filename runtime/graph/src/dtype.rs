//! Element types, plain and quantized, and the scalars that go with them.

use crate::{Error, Result};
use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};

/// The type of a tensor's elements. The quantized types hold blocks of elements in llama.cpp's layouts; they appear
/// only on packed weights, which products, row gathers and dequantization read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum DType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F8E4M3,
    F8E5M2,
    BF16,
    F16,
    F32,
    F64,
    /// 32 elements in 18 bytes: f16 scale d, 16 bytes of nibbles; x = d * (q - 8).
    Q4_0,
    /// 32 elements in 20 bytes: f16 d, f16 m, 16 bytes of nibbles; x = d * q + m.
    Q4_1,
    /// 32 elements in 34 bytes: f16 d, 32 i8; x = d * q.
    Q8_0,
    /// 256 elements in 144 bytes: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
    Q4K,
    /// 256 elements in 210 bytes: 128 bytes of low nibbles, 64 of high bit pairs, 16 i8 scales, f16 d.
    Q6K,
}

impl DType {
    /// Every plain (not quantized) type.
    pub const PLAIN: [DType; 14] = [
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::BF16,
        DType::F16,
        DType::F32,
        DType::F64,
    ];

    /// Every quantized type.
    pub const QUANTIZED: [DType; 5] = [DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::Q4K, DType::Q6K];

    /// The name as users read it: `F32`, `Q4_1`, ...
    pub const fn name(self) -> &'static str {
        match self {
            DType::U8 => "U8",
            DType::I8 => "I8",
            DType::U16 => "U16",
            DType::I16 => "I16",
            DType::U32 => "U32",
            DType::I32 => "I32",
            DType::U64 => "U64",
            DType::I64 => "I64",
            DType::F8E4M3 => "F8E4M3",
            DType::F8E5M2 => "F8E5M2",
            DType::BF16 => "BF16",
            DType::F16 => "F16",
            DType::F32 => "F32",
            DType::F64 => "F64",
            DType::Q4_0 => "Q4_0",
            DType::Q4_1 => "Q4_1",
            DType::Q8_0 => "Q8_0",
            DType::Q4K => "Q4_K",
            DType::Q6K => "Q6_K",
        }
    }

    /// The name in small letters, as files and command lines write it: `f32`, `q4_1`, ... [`str::parse`] reads it back.
    pub const fn as_str(self) -> &'static str {
        match self {
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::U16 => "u16",
            DType::I16 => "i16",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::U64 => "u64",
            DType::I64 => "i64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::Q4_0 => "q4_0",
            DType::Q4_1 => "q4_1",
            DType::Q8_0 => "q8_0",
            DType::Q4K => "q4_k",
            DType::Q6K => "q6_k",
        }
    }

    /// Elements in one block: 1 for plain types.
    pub const fn block_elements(self) -> usize {
        match self {
            DType::Q4_0 | DType::Q4_1 | DType::Q8_0 => 32,
            DType::Q4K | DType::Q6K => 256,
            _ => 1,
        }
    }

    /// Bytes of one block: the element's size for plain types.
    pub const fn block_bytes(self) -> usize {
        match self {
            DType::U8 | DType::I8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::U16 | DType::I16 | DType::BF16 | DType::F16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
            DType::Q4_0 => 18,
            DType::Q4_1 => 20,
            DType::Q8_0 => 34,
            DType::Q4K => 144,
            DType::Q6K => 210,
        }
    }

    /// Bytes of one element of a plain type.
    pub const fn size_in_bytes(self) -> usize {
        self.block_bytes()
    }

    /// Bytes that `elements` of this type take; `None` on overflow or where they are not whole blocks.
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        let block = self.block_elements();
        if !elements.is_multiple_of(block) {
            return None;
        }
        (elements / block).checked_mul(self.block_bytes())
    }

    /// Whether elements are stored in quantized blocks.
    pub const fn is_quantized(self) -> bool {
        self.block_elements() > 1
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2 | DType::BF16 | DType::F16 | DType::F32 | DType::F64)
    }

    /// The least and the largest value of an integer type.
    pub const fn int_range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.block_bytes() as u32;
        match self {
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => Some((0, (1 << bits) - 1)),
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
            _ => None,
        }
    }

    /// Whether `id` names no element on purpose: the largest value of the ids' type, where it is out of range, is a hole, which
    /// gives zeros and writes nothing, and no fault (as in candle).
    pub fn is_hole(self, id: i128) -> bool {
        self.int_range().is_some_and(|(_, high)| id == high)
    }

    /// Whether this is an integer type.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !self.is_quantized()
    }
}

impl std::str::FromStr for DType {
    type Err = Error;

    /// From a name in small or capital letters.
    fn from_str(name: &str) -> Result<Self> {
        let all = DType::PLAIN.into_iter().chain(DType::QUANTIZED);
        let found = all.into_iter().find(|dtype| dtype.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Error::op("dtype", format!("there is no dtype '{name}'")))
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type whose values are elements of a tensor.
pub trait Element: Copy + Send + Sync + 'static {
    /// The tensor's dtype for this type.
    const DTYPE: DType;
    /// To f64, rounding where it must.
    fn to_f64(self) -> f64;
    /// From f64, rounding to nearest and saturating.
    fn from_f64(value: f64) -> Self;
    /// Writes the little-endian bytes.
    fn put(self, out: &mut Vec<u8>);
    /// Reads `size_in_bytes` little-endian bytes; missing bytes read as zero.
    fn take(bytes: &[u8]) -> Self;
    /// Reads all whole elements of little-endian bytes.
    fn take_all(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element_of_8_bits {
    ($ty:ident) => {
        impl Element for $ty {
            const DTYPE: DType = DType::$ty;
            fn to_f64(self) -> f64 {
                $ty::to_f64(&self)
            }
            fn from_f64(value: f64) -> Self {
                $ty::from_f64(value)
            }
            fn put(self, out: &mut Vec<u8>) {
                out.push(self.to_bits());
            }
            fn take(bytes: &[u8]) -> Self {
                $ty::from_bits(bytes.first().copied().unwrap_or(0))
            }
            fn take_all(bytes: &[u8]) -> Vec<Self> {
                bytes.iter().map(|&bits| $ty::from_bits(bits)).collect()
            }
        }
    };
}

element_of_8_bits!(F8E4M3);
element_of_8_bits!(F8E5M2);

macro_rules! element {
    ($ty:ty, $dtype:ident, $to:expr, $from:expr) => {
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
            fn to_f64(self) -> f64 {
                ($to)(self)
            }
            fn from_f64(value: f64) -> Self {
                ($from)(value)
            }
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(bytes: &[u8]) -> Self {
                let mut raw = [0u8; size_of::<$ty>()];
                let n = raw.len().min(bytes.len());
                raw[..n].copy_from_slice(&bytes[..n]);
                Self::from_le_bytes(raw)
            }
            fn take_all(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks().0.iter().map(|&raw| Self::from_le_bytes(raw)).collect()
            }
        }
    };
}

element!(u8, U8, f64::from, |v: f64| v as u8);
element!(i8, I8, f64::from, |v: f64| v as i8);
element!(u16, U16, f64::from, |v: f64| v as u16);
element!(i16, I16, f64::from, |v: f64| v as i16);
element!(u32, U32, f64::from, |v: f64| v as u32);
element!(i32, I32, f64::from, |v: f64| v as i32);
element!(u64, U64, |v| v as f64, |v: f64| v as u64);
element!(i64, I64, |v| v as f64, |v: f64| v as i64);
element!(f16, F16, |v: f16| v.to_f64(), f16::from_f64);
element!(bf16, BF16, |v: bf16| v.to_f64(), bf16::from_f64);
element!(f32, F32, f64::from, |v: f64| v as f32);
element!(f64, F64, |v| v, |v| v);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_for_counts_whole_blocks_only() {
        assert_eq!(DType::F32.bytes_for(5), Some(20));
        assert_eq!(DType::Q4_1.bytes_for(64), Some(40));
        assert_eq!(DType::Q4_1.bytes_for(63), None);
        assert_eq!(DType::Q6K.bytes_for(256), Some(210));
        assert_eq!(DType::F64.bytes_for(usize::MAX), None);
    }

    #[test]
    fn elements_of_8_bits_round_to_the_nearest() {
        assert_eq!(<F8E4M3 as Element>::from_f64(1.0625).to_bits(), <F8E4M3 as Element>::from_f64(1.0).to_bits());
        assert_eq!(Element::to_f64(<F8E4M3 as Element>::from_f64(-1.1)), -1.125);
        assert_eq!(Element::to_f64(<F8E5M2 as Element>::from_f64(57_344.0)), 57_344.0);
        let mut bytes = Vec::new();
        <F8E5M2 as Element>::from_f64(-0.25).put(&mut bytes);
        assert_eq!(Element::to_f64(F8E5M2::take(&bytes)), -0.25);
    }

    #[test]
    fn names_are_read_back() {
        for dtype in DType::PLAIN.into_iter().chain(DType::QUANTIZED) {
            assert_eq!(dtype.as_str(), dtype.name().to_lowercase());
            assert_eq!(dtype.as_str().parse::<DType>().unwrap(), dtype);
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        assert!("f33".parse::<DType>().is_err());
    }

    #[test]
    fn elements_round_trip() {
        let mut bytes = Vec::new();
        (-1.5f32).put(&mut bytes);
        assert_eq!(f32::take(&bytes), -1.5);
        assert_eq!(f32::take(&bytes[..2]).to_bits() >> 16, 0);
        assert_eq!(f32::take_all(&[&bytes[..], &bytes, &[7]].concat()), [-1.5, -1.5]);
        assert_eq!(u8::from_f64(300.0), 255);
    }
}
