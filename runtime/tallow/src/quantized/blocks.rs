//! The block types that have no dtype of their own, in llama.cpp's layouts: unpacking, quantizing, and what a device gets for
//! them. The other types are `tallow_cpu`'s.

use super::GgmlDType;
use crate::{DType, Element, Error, Result, formats::Bytes};
use half::{bf16, f16};
use tallow_cpu::quant::{
    format::six_bits,
    quantize::{extreme, inverse, of_sixteen, put_affine, put_half, put_q6k, q4k, q6k, range, weigh},
    search::{Affine, affine},
};

/// A block as groups of 16 elements, x = scale * q + min.
struct Block {
    q: [i8; 256],
    scale: [f32; 16],
    min: [f32; 16],
}

/// What a device holds for these blocks, and as which dtype: the blocks themselves where they have a dtype, else other blocks of
/// the same values, else the values.
pub(super) fn for_device(kind: GgmlDType, data: &Bytes) -> Result<(DType, Bytes)> {
    if let Some(dtype) = kind.dtype() {
        return Ok((dtype, data.clone()));
    }
    let blocks = data.chunks_exact(kind.type_size());
    let mut out = Vec::new();
    let mut room = |bytes: usize| {
        let size = blocks.len().saturating_mul(bytes);
        let refused = |e| Error::op("quantized", format!("{size} bytes for {kind} cannot be held ({e})"));
        out.try_reserve_exact(size).map_err(refused)
    };
    let mut block = Block { q: [0; 256], scale: [0.0; 16], min: [0.0; 16] };
    let dtype = match kind {
        GgmlDType::Q5_0 | GgmlDType::Q8_1 => {
            room(DType::Q8_0.block_bytes())?;
            for bytes in blocks {
                unpack(kind, bytes, &mut block);
                out.extend_from_slice(&bytes[..2]);
                out.extend(block.q[..32].iter().map(|&q| q as u8));
            }
            DType::Q8_0
        }
        GgmlDType::Q3K => {
            room(DType::Q6K.block_bytes())?;
            for bytes in blocks {
                unpack(kind, bytes, &mut block);
                let (scale, q) = (q3_scales(bytes), block.q.map(|q| (q + 32) as u8));
                put_q6k(f16::from_le_bytes([bytes[108], bytes[109]]), &scale, &q, &mut out);
            }
            DType::Q6K
        }
        _ => {
            room(kind.block_size() * DType::F32.size_in_bytes())?;
            for bytes in blocks {
                unpack(kind, bytes, &mut block);
                for (i, &q) in block.q[..kind.block_size()].iter().enumerate() {
                    (block.scale[i / 16] * f32::from(q) + block.min[i / 16]).put(&mut out);
                }
            }
            DType::F32
        }
    };
    Ok((dtype, out.into()))
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Reads a block of `kind.type_size()` bytes.
fn unpack(kind: GgmlDType, block: &[u8], out: &mut Block) {
    let Block { q, scale, min } = out;
    min.fill(0.0);
    // 32 elements of five bits, the fifth in four bytes of their own.
    let mut five = |at: usize, less: i8| {
        let high = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        for (j, &byte) in block[at + 4..at + 20].iter().enumerate() {
            q[j] = ((byte & 15) | ((high >> j & 1) << 4) as u8) as i8 - less;
            q[j + 16] = ((byte >> 4) | ((high >> (j + 16) & 1) << 4) as u8) as i8 - less;
        }
    };
    match kind {
        GgmlDType::Q5_0 => {
            five(2, 16);
            scale.fill(half_at(block, 0));
        }
        GgmlDType::Q5_1 => {
            five(4, 0);
            scale.fill(half_at(block, 0));
            min.fill(half_at(block, 2));
        }
        GgmlDType::Q8_1 => {
            scale.fill(half_at(block, 0));
            q.iter_mut().zip(&block[4..36]).for_each(|(q, &byte)| *q = byte as i8);
        }
        GgmlDType::Q2K => {
            let (d, dmin) = (half_at(block, 80), half_at(block, 82));
            for (g, &byte) in block[..16].iter().enumerate() {
                scale[g] = d * f32::from(byte & 15);
                min[g] = -dmin * f32::from(byte >> 4);
            }
            for (i, q) in q.iter_mut().enumerate() {
                let (byte, shift) = pair(i);
                *q = (block[16 + byte] >> shift & 3) as i8;
            }
        }
        GgmlDType::Q3K => {
            let d = half_at(block, 108);
            scale.iter_mut().zip(q3_scales(block)).for_each(|(scale, s)| *scale = d * f32::from(s));
            for (i, q) in q.iter_mut().enumerate() {
                let (byte, shift) = pair(i);
                let high = block[i % 32] >> (i / 32) & 1;
                *q = (block[32 + byte] >> shift & 3 | high << 2) as i8 - 4;
            }
        }
        GgmlDType::Q5K => {
            let (d, dmin) = (half_at(block, 0), half_at(block, 2));
            let (s, m) = six_bits(&block[4..16]);
            for g in 0..16 {
                scale[g] = d * f32::from(s[g / 2]);
                min[g] = -dmin * f32::from(m[g / 2]);
            }
            for (i, q) in q.iter_mut().enumerate() {
                let nibble = block[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
                *q = (nibble | (block[16 + i % 32] >> (i / 32) & 1) << 4) as i8;
            }
        }
        GgmlDType::Q8K => {
            scale.fill(f32::take(block));
            q.iter_mut().zip(&block[4..260]).for_each(|(q, &byte)| *q = byte as i8);
        }
        _ => {}
    }
}

/// Byte and shift of element `i` among 64 bytes of bit pairs.
const fn pair(i: usize) -> (usize, usize) {
    (i / 128 * 32 + i % 32, i / 32 % 4 * 2)
}

/// Q3_K's sixteen 6-bit scales, less 32: nibbles in eight bytes, and their upper pairs in four.
fn q3_scales(block: &[u8]) -> [i8; 16] {
    let bytes = &block[96..108];
    std::array::from_fn(|g| {
        let low = bytes[g % 8] >> (g / 8 * 4) & 15;
        let high = bytes[8 + g % 4] >> (g / 4 * 2) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// The blocks of these values, which are whole blocks.
pub(super) fn quantize(kind: GgmlDType, x: &[f32]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(kind.bytes_for(x.len()).unwrap_or(0));
    let quantize: fn(&[f32], &mut Vec<u8>) = match kind {
        GgmlDType::F32 => |x, out| x[0].put(out),
        GgmlDType::F16 => |x, out| f16::from_f32(x[0]).put(out),
        GgmlDType::BF16 => |x, out| bf16::from_f32(x[0]).put(out),
        GgmlDType::Q5_0 => q5_0,
        GgmlDType::Q5_1 => q5_1,
        GgmlDType::Q8_1 => q8_1,
        GgmlDType::Q2K => |x, out| q2k(x, None, out),
        GgmlDType::Q3K => |x, out| q3k(x, None, out),
        GgmlDType::Q5K => |x, out| q5k(x, None, out),
        GgmlDType::Q8K => q8k,
        GgmlDType::Q4_0 | GgmlDType::Q4_1 | GgmlDType::Q8_0 | GgmlDType::Q4K | GgmlDType::Q6K => {
            let dtype = kind.dtype().ok_or_else(|| Error::op("quantize", format!("{kind} has no dtype")))?;
            tallow_cpu::quant::quantize_row(dtype, x, &mut out)?;
            return Ok(out);
        }
    };
    x.chunks_exact(kind.block_size()).for_each(|block| quantize(block, &mut out));
    Ok(out)
}

/// The blocks of rows whose columns have these importances: an error in a column counts that much more.
pub(super) fn quantize_imatrix(kind: GgmlDType, x: &[f32], importance: &[f32]) -> Result<Vec<u8>> {
    let quantize: fn(&[f32], Option<&[f32]>, &mut Vec<u8>) = match kind {
        GgmlDType::Q2K => q2k,
        GgmlDType::Q3K => q3k,
        GgmlDType::Q4K => q4k,
        GgmlDType::Q5K => q5k,
        GgmlDType::Q6K => q6k,
        _ => {
            let message = format!("{kind} has no way to weigh columns: Q2K, Q3K, Q4K, Q5K and Q6K have");
            return Err(Error::op("quantize_imatrix", message));
        }
    };
    let mut out = Vec::with_capacity(kind.bytes_for(x.len()).unwrap_or(0));
    for row in x.chunks_exact(importance.len()) {
        for (x, importance) in row.chunks_exact(256).zip(importance.chunks_exact(256)) {
            quantize(x, Some(importance), &mut out);
        }
    }
    Ok(out)
}

/// 32 quants of five bits.
fn put_five(q: [u8; 32], out: &mut Vec<u8>) {
    let high = q.iter().enumerate().fold(0u32, |high, (i, &q)| high | u32::from(q >> 4) << i);
    out.extend_from_slice(&high.to_le_bytes());
    out.extend((0..16).map(|j| (q[j] & 15) | (q[j + 16] & 15) << 4));
}

fn q5_0(x: &[f32], out: &mut Vec<u8>) {
    let d = extreme(x) / -16.0;
    put_half(d, out);
    let id = inverse(d);
    put_five(std::array::from_fn(|i| (x[i] * id + 16.5).clamp(0.0, 31.0) as u8), out);
}

fn q5_1(x: &[f32], out: &mut Vec<u8>) {
    let (low, high) = range(x);
    let d = (high - low) / 31.0;
    put_half(d, out);
    put_half(low, out);
    let id = inverse(d);
    put_five(std::array::from_fn(|i| ((x[i] - low) * id + 0.5).clamp(0.0, 31.0) as u8), out);
}

fn q8_1(x: &[f32], out: &mut Vec<u8>) {
    let d = extreme(x).abs() / 127.0;
    put_half(d, out);
    let id = inverse(d);
    let q: [i8; 32] = std::array::from_fn(|i| (x[i] * id).round() as i8);
    put_half(d * q.iter().map(|&q| f32::from(q)).sum::<f32>(), out);
    out.extend(q.map(|q| q as u8));
}

fn q2k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let weights = importance.map(|importance| weigh(x, importance));
    let by = Affine { n: 3.0, first: -0.5, steps: 15, squared: false };
    let (mut step, mut min) = ([0f32; 16], [0f32; 16]);
    for (g, group) in x.chunks_exact(16).enumerate() {
        (step[g], min[g]) = affine(group, &by, weights.as_ref().map(|weights| &weights[16 * g..16 * (g + 1)]));
    }
    let [d, dmin] = [&step, &min].map(|row| f16::from_f32(extreme(row) / 15.0));
    let four = |v: f32, d: f16| (v * inverse(d.to_f32())).round().clamp(0.0, 15.0) as u8;
    let groups: [(u8, u8); 16] = std::array::from_fn(|g| (four(step[g], d), four(min[g], dmin)));
    out.extend(groups.map(|(scale, min)| scale | min << 4));
    put_pairs(out, |i| {
        let (scale, min) = groups[i / 16];
        let (step, min) = (d.to_f32() * f32::from(scale), dmin.to_f32() * f32::from(min));
        ((x[i] + min) * inverse(step)).round().clamp(0.0, 3.0) as u8
    });
    out.extend_from_slice(&d.to_le_bytes());
    out.extend_from_slice(&dmin.to_le_bytes());
}

/// 64 bytes of bit pairs.
fn put_pairs(out: &mut Vec<u8>, two: impl Fn(usize) -> u8) {
    let mut bytes = [0u8; 64];
    for i in 0..256 {
        let (byte, shift) = pair(i);
        bytes[byte] |= (two(i) & 3) << shift;
    }
    out.extend_from_slice(&bytes);
}

fn q3k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let weights = importance.map(|importance| weigh(x, importance));
    let (d, scale, q) = of_sixteen(x, 4, 32.0, weights.as_ref().map(|weights| &weights[..]));
    out.extend((0..32).map(|l| (0..8).fold(0, |byte, j| byte | (q[32 * j + l] >> 2) << j)));
    put_pairs(out, |i| q[i]);
    let six = scale.map(|scale| (scale + 32) as u8);
    out.extend((0..8).map(|g| (six[g] & 15) | (six[g + 8] & 15) << 4));
    out.extend((0..4).map(|g| (0..4).fold(0, |byte, j| byte | (six[4 * j + g] >> 4) << (2 * j))));
    out.extend_from_slice(&d.to_le_bytes());
}

fn q5k(x: &[f32], importance: Option<&[f32]>, out: &mut Vec<u8>) {
    let q = put_affine(x, &Affine { n: 31.0, first: -0.5, steps: 15, squared: true }, importance, out);
    out.extend((0..32).map(|l| (0..8).fold(0, |byte, j| byte | (q[32 * j + l] >> 4) << j)));
    for chunk in q.chunks_exact(64) {
        out.extend((0..32).map(|j| (chunk[j] & 15) | (chunk[j + 32] & 15) << 4));
    }
}

fn q8k(x: &[f32], out: &mut Vec<u8>) {
    let id = inverse(extreme(x) / -127.0);
    inverse(id).put(out);
    let q: [i8; 256] = std::array::from_fn(|i| (x[i] * id).round().min(127.0) as i8);
    out.extend(q.map(|q| q as u8));
    q.chunks_exact(16).for_each(|group| group.iter().map(|&q| i16::from(q)).sum::<i16>().put(out));
}
