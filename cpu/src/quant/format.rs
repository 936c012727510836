//! The five block formats: how each unpacks into the common form {quants, scale, min}.
//!
//! Layouts are llama.cpp's; [`DType`]'s documentation gives their fields. All numbers are little-endian.

use tallow_graph::{DType, Error, Result};

/// Most elements in a block of any format.
pub(crate) const MAX_BLOCK: usize = 256;
/// Most groups in a block of any format.
pub(crate) const MAX_GROUPS: usize = 16;

/// A block in the common form: element i is `scale[i / GROUP] * q[i] + min[i / GROUP]`.
#[repr(align(64))]
pub(crate) struct Unpacked {
    pub q: [i8; MAX_BLOCK],
    pub scale: [f32; MAX_GROUPS],
    pub min: [f32; MAX_GROUPS],
}

impl Unpacked {
    pub const fn new() -> Self {
        Self { q: [0; MAX_BLOCK], scale: [0.0; MAX_GROUPS], min: [0.0; MAX_GROUPS] }
    }
}

/// A block format. Kernels are generic over it, so that each format gets its own compiled copy.
pub(crate) trait Format {
    /// Elements in a block.
    const ELEMS: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// Elements that share a scale: 16 or 32.
    const GROUP: usize;
    /// Groups in a block.
    const GROUPS: usize = Self::ELEMS / Self::GROUP;
    /// Largest quant, where all are 0 or more; `None` where they use the whole range of i8.
    const MAX: Option<u8>;
    /// Whether `min` is ever other than 0.
    const HAS_MIN: bool;
    /// Reads a block of `BYTES` bytes; writes the first `ELEMS` quants and `GROUPS` scales and minima. `half` brings f16 to
    /// f32: [`half_to_f32`], or an instruction.
    fn unpack(block: &[u8], half: impl Fn(u16) -> f32, out: &mut Unpacked);
}

#[inline(always)]
fn bits_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// f16 to f32 by shifting the fields into place; one multiplication puts the exponent right, subnormals included.
/// (`half`'s own conversion asks for the processor's features at each call.)
#[inline(always)]
pub(crate) fn half_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits((254 - 15) << 23);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (u32::from(bits & 0x8000) << 16))
}

/// 32 nibbles: byte j holds element j below and element j + 16 above.
#[inline(always)]
fn nibbles_16(bytes: &[u8], q: &mut [i8]) {
    let (bytes, q) = (&bytes[..16], &mut q[..32]);
    for j in 0..16 {
        q[j] = (bytes[j] & 15) as i8;
        q[j + 16] = (bytes[j] >> 4) as i8;
    }
}

pub(crate) struct Q4_0;
impl Format for Q4_0 {
    const ELEMS: usize = 32;
    const BYTES: usize = 18;
    const GROUP: usize = 32;
    const MAX: Option<u8> = Some(15);
    const HAS_MIN: bool = true;
    #[inline(always)]
    fn unpack(block: &[u8], half: impl Fn(u16) -> f32, out: &mut Unpacked) {
        let d = half(bits_at(block, 0));
        nibbles_16(&block[2..], &mut out.q);
        out.scale[0] = d;
        out.min[0] = -8.0 * d;
    }
}

pub(crate) struct Q4_1;
impl Format for Q4_1 {
    const ELEMS: usize = 32;
    const BYTES: usize = 20;
    const GROUP: usize = 32;
    const MAX: Option<u8> = Some(15);
    const HAS_MIN: bool = true;
    #[inline(always)]
    fn unpack(block: &[u8], half: impl Fn(u16) -> f32, out: &mut Unpacked) {
        nibbles_16(&block[4..], &mut out.q);
        out.scale[0] = half(bits_at(block, 0));
        out.min[0] = half(bits_at(block, 2));
    }
}

pub(crate) struct Q8_0;
impl Format for Q8_0 {
    const ELEMS: usize = 32;
    const BYTES: usize = 34;
    const GROUP: usize = 32;
    const MAX: Option<u8> = None;
    const HAS_MIN: bool = false;
    #[inline(always)]
    fn unpack(block: &[u8], half: impl Fn(u16) -> f32, out: &mut Unpacked) {
        out.scale[0] = half(bits_at(block, 0));
        out.min[0] = 0.0;
        let (bytes, q) = (&block[2..34], &mut out.q[..32]);
        for j in 0..32 {
            q[j] = bytes[j] as i8;
        }
    }
}

/// Twelve bytes hold eight 6-bit scales and eight 6-bit minima: the first four of each in the low bits of bytes 0..4 and 4..8,
/// the last four as nibbles in 8..12 with their top two bits in the others' spare bits.
#[inline(always)]
pub fn six_bits(bytes: &[u8]) -> ([u8; 8], [u8; 8]) {
    let (s, mut scale, mut min) = (&bytes[..12], [0; 8], [0; 8]);
    for j in 0..4 {
        scale[j] = s[j] & 63;
        min[j] = s[j + 4] & 63;
        scale[j + 4] = (s[j + 8] & 15) | ((s[j] >> 6) << 4);
        min[j + 4] = (s[j + 8] >> 4) | ((s[j + 4] >> 6) << 4);
    }
    (scale, min)
}

pub(crate) struct Q4K;
impl Format for Q4K {
    const ELEMS: usize = 256;
    const BYTES: usize = 144;
    const GROUP: usize = 32;
    const MAX: Option<u8> = Some(15);
    const HAS_MIN: bool = true;
    #[inline(always)]
    fn unpack(block: &[u8], half: impl Fn(u16) -> f32, out: &mut Unpacked) {
        let (d, dmin) = (half(bits_at(block, 0)), half(bits_at(block, 2)));
        let (scale, min) = six_bits(&block[4..16]);
        for j in 0..8 {
            out.scale[j] = d * f32::from(scale[j]);
            out.min[j] = -dmin * f32::from(min[j]);
        }
        for chunk in 0..4 {
            let (bytes, q) = (&block[16 + 32 * chunk..][..32], &mut out.q[64 * chunk..][..64]);
            for j in 0..32 {
                q[j] = (bytes[j] & 15) as i8;
                q[j + 32] = (bytes[j] >> 4) as i8;
            }
        }
    }
}

pub(crate) struct Q6K;
impl Format for Q6K {
    const ELEMS: usize = 256;
    const BYTES: usize = 210;
    const GROUP: usize = 16;
    const MAX: Option<u8> = Some(63);
    const HAS_MIN: bool = true;
    #[inline(always)]
    fn unpack(block: &[u8], half: impl Fn(u16) -> f32, out: &mut Unpacked) {
        let d = half(bits_at(block, 208));
        for j in 0..16 {
            let scale = d * f32::from(block[192 + j] as i8);
            out.scale[j] = scale;
            out.min[j] = -32.0 * scale;
        }
        for part in 0..2 {
            let (low, high) = (&block[64 * part..][..64], &block[128 + 32 * part..][..32]);
            let q = &mut out.q[128 * part..][..128];
            for j in 0..32 {
                let h = high[j];
                q[j] = ((low[j] & 15) | ((h & 3) << 4)) as i8;
                q[j + 32] = ((low[j + 32] & 15) | ((h << 2) & 0x30)) as i8;
                q[j + 64] = ((low[j] >> 4) | (h & 0x30)) as i8;
                q[j + 96] = ((low[j + 32] >> 4) | ((h >> 2) & 0x30)) as i8;
            }
        }
    }
}

/// Calls `$body` with the type `$F` set to the format of `$dtype`, or returns an error that names `$op`.
macro_rules! with_format {
    ($op:expr, $dtype:expr, $F:ident => $body:expr) => {
        match $dtype {
            tallow_graph::DType::Q4_0 => {
                type $F = $crate::quant::format::Q4_0;
                $body
            }
            tallow_graph::DType::Q4_1 => {
                type $F = $crate::quant::format::Q4_1;
                $body
            }
            tallow_graph::DType::Q8_0 => {
                type $F = $crate::quant::format::Q8_0;
                $body
            }
            tallow_graph::DType::Q4K => {
                type $F = $crate::quant::format::Q4K;
                $body
            }
            tallow_graph::DType::Q6K => {
                type $F = $crate::quant::format::Q6K;
                $body
            }
            other => {
                return Err(tallow_graph::Error::op(
                    $op,
                    format!("{other} is not a quantized dtype; use Q4_0, Q4_1, Q8_0, Q4_K or Q6_K"),
                ))
            }
        }
    };
}
pub(crate) use with_format;

/// Bytes of a row of `k` elements of `dtype`.
pub(crate) fn row_bytes(op: &'static str, dtype: DType, k: usize) -> Result<usize> {
    dtype.bytes_for(k).filter(|_| dtype.is_quantized()).ok_or_else(|| {
        Error::op(op, format!("rows of {k} elements cannot be {dtype}: it holds blocks of {}", dtype.block_elements()))
    })
}

fn dequantize_blocks<F: Format>(bytes: &[u8], out: &mut [f32]) {
    let mut block = Unpacked::new();
    for (bytes, out) in bytes.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::ELEMS)) {
        F::unpack(bytes, half_to_f32, &mut block);
        for (i, out) in out.iter_mut().enumerate() {
            *out = block.scale[i / F::GROUP] * f32::from(block.q[i]) + block.min[i / F::GROUP];
        }
    }
}

/// Writes the values of the blocks in `bytes` to `out`.
///
/// # Errors
/// `dtype` is not quantized, `out` is not whole blocks, or `bytes` has another length than `out` takes.
pub fn dequantize_row(dtype: DType, bytes: &[u8], out: &mut [f32]) -> Result<()> {
    let needed = row_bytes("dequantize", dtype, out.len())?;
    if needed != bytes.len() {
        let message = format!("{} elements of {dtype} are {needed} bytes, not {}", out.len(), bytes.len());
        return Err(Error::op("dequantize", message));
    }
    with_format!("dequantize", dtype, F => dequantize_blocks::<F>(bytes, out));
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn halves_convert_exactly() {
        for bits in 0..=u16::MAX {
            let (got, want) = (half_to_f32(bits), f16::from_bits(bits).to_f32());
            assert!(got == want || (got.is_nan() && want.is_nan()), "{bits:#x}: {got} {want}");
        }
    }

    #[test]
    fn wrong_sizes_are_named() {
        let text = dequantize_row(DType::Q4_1, &[0; 19], &mut [0.0; 32]).unwrap_err().to_string();
        assert!(text.contains("20 bytes, not 19"), "{text}");
        assert!(dequantize_row(DType::F32, &[0; 4], &mut [0.0; 1]).is_err());
        assert!(dequantize_row(DType::Q6K, &[0; 210], &mut [0.0; 255]).is_err());
    }
}
