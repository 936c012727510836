//! Repacked layouts of the quantized types: as in the file, but with every part of a block in whole u32 words.
//!
//! A packed weight is its rows one after the other, each a multiple of 16 bytes, so rows stream in any order. A row holds
//! planes, each for all its blocks. Nibbles stand in words of 8 elements: byte i of a word holds element i below and
//! element i + 4 above, so that masking gives four elements in order. `wgsl/quant/*.wgsl` reads what this file writes.
//!
//! ```text
//! Q4_0  [4 words of nibbles]                       [f16 d]
//! Q4_1  [4 words of nibbles]                       [f16 d, f16 m]
//! Q8_0  [8 words of i8]                            [f16 d]
//! Q4_K  [32 words of nibbles]                      [f16 d, f16 dmin, 12 bytes as in the file]
//! Q6_K  [32 words of nibbles] [16 words of pairs]  [16 i8 scales]  [f16 d]
//! ```
//! Pairs: two high bits of each of 8 elements in 16 bits, element i at bit 2 i.

use tallow_graph::{DType, Error, Result};

/// Bytes of a plane entry for one block, in the order of the planes; the last plane is padded with the row.
fn planes(dtype: DType) -> Result<&'static [usize]> {
    Ok(match dtype {
        DType::Q4_0 => &[16, 2],
        DType::Q4_1 => &[16, 4],
        DType::Q8_0 => &[32, 2],
        DType::Q4K => &[128, 16],
        DType::Q6K => &[128, 64, 16, 2],
        other => return Err(Error::op("pack", format!("{other} is not a quantized type that WebGPU weights have"))),
    })
}

/// Blocks of a row, bytes of a packed row, bytes of a row in the file.
fn row(dtype: DType, cols: usize) -> Result<(usize, usize, usize)> {
    let planes = planes(dtype)?;
    if cols == 0 || !cols.is_multiple_of(dtype.block_elements()) {
        return Err(Error::op(
            "pack",
            format!(
                "rows of {cols} elements are not whole blocks of {}: {dtype} has blocks of {}",
                dtype,
                dtype.block_elements()
            ),
        ));
    }
    let blocks = cols / dtype.block_elements();
    let too_big = || Error::op("pack", format!("rows of {cols} elements are too long"));
    let packed =
        blocks.checked_mul(planes.iter().sum()).and_then(|n| n.checked_next_multiple_of(16)).ok_or_else(too_big)?;
    Ok((blocks, packed, blocks.checked_mul(dtype.block_bytes()).ok_or_else(too_big)?))
}

/// Bytes that a packed weight of `rows` x `cols` takes.
pub fn packed_bytes(dtype: DType, rows: usize, cols: usize) -> Result<u64> {
    let (_, packed, _) = row(dtype, cols)?;
    (rows as u64)
        .checked_mul(packed as u64)
        .ok_or_else(|| Error::op("pack", format!("{rows} x {cols} elements of {dtype} are too many")))
}

/// Packs whole rows, which `bytes` holds in the file's layout, as rows `first_row` and on of a weight of `rows` x `cols`.
/// `write` gets runs of bytes with their offsets in the packed weight.
pub fn pack_rows(
    dtype: DType,
    rows: usize,
    cols: usize,
    first_row: usize,
    bytes: &[u8],
    write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let (blocks, packed, file) = row(dtype, cols)?;
    let count = bytes.len() / file;
    if !bytes.len().is_multiple_of(file) || first_row.checked_add(count).is_none_or(|end| end > rows) {
        return Err(Error::op(
            "pack",
            format!(
                "{} bytes at row {first_row} are not whole rows of {file} bytes inside a weight of {rows} rows",
                bytes.len()
            ),
        ));
    }
    // Runs of about a megabyte: one write each.
    let run = (1usize << 20).div_ceil(packed).max(1);
    let mut out = Vec::new();
    for (i, rows) in bytes.chunks(file * run).enumerate() {
        out.clear();
        out.resize(rows.len() / file * packed, 0);
        for (from, to) in rows.chunks_exact(file).zip(out.chunks_exact_mut(packed)) {
            map_row(dtype, blocks, from, to, convert_block);
        }
        write((first_row + i * run) as u64 * packed as u64, &out)?;
    }
    Ok(())
}

/// The file's layout again, byte for byte.
pub fn unpack(dtype: DType, rows: usize, cols: usize, packed: &[u8]) -> Result<Vec<u8>> {
    let (blocks, row_bytes, file) = row(dtype, cols)?;
    let needed = packed_bytes(dtype, rows, cols)?;
    if (packed.len() as u64) < needed {
        return Err(Error::op(
            "unpack",
            format!("{} bytes, but {rows} x {cols} of {dtype} take {needed}", packed.len()),
        ));
    }
    let mut out = vec![0; rows * file];
    for (from, to) in packed.chunks_exact(row_bytes).zip(out.chunks_exact_mut(file)) {
        restore_row(dtype, blocks, from, to);
    }
    Ok(out)
}

/// The planes' parts of one block, and the block itself.
type Convert = fn(DType, &[u8], &mut [&mut [u8]]);

fn map_row(dtype: DType, blocks: usize, from: &[u8], to: &mut [u8], convert: Convert) {
    let sizes = planes(dtype).unwrap_or_default();
    let mut rest = to;
    let mut cut: Vec<&mut [u8]> = Vec::with_capacity(sizes.len());
    for size in sizes {
        let (plane, after) = rest.split_at_mut(size * blocks);
        cut.push(plane);
        rest = after;
    }
    for (b, block) in from.chunks_exact(dtype.block_bytes()).enumerate() {
        let mut parts: Vec<&mut [u8]> =
            cut.iter_mut().zip(sizes).map(|(plane, size)| &mut plane[b * size..(b + 1) * size]).collect();
        convert(dtype, block, &mut parts);
    }
}

fn restore_row(dtype: DType, blocks: usize, from: &[u8], to: &mut [u8]) {
    let sizes = planes(dtype).unwrap_or_default();
    for (b, block) in to.chunks_exact_mut(dtype.block_bytes()).enumerate() {
        let mut at = 0;
        let parts: Vec<&[u8]> = sizes
            .iter()
            .map(|size| {
                let part = &from[at + b * size..at + (b + 1) * size];
                at += size * blocks;
                part
            })
            .collect();
        restore_block(dtype, &parts, block);
    }
}

/// Element `e` of nibbles in packed order: byte and shift.
const fn place(e: usize) -> (usize, u32) {
    (e / 8 * 4 + e % 4, if e % 8 < 4 { 0 } else { 4 })
}

fn set_nibble(q: &mut [u8], e: usize, value: u8) {
    let (byte, shift) = place(e);
    q[byte] |= value << shift;
}

fn nibble(q: &[u8], e: usize) -> u8 {
    let (byte, shift) = place(e);
    (q[byte] >> shift) & 15
}

/// Element of the low and of the high nibble of byte `i` in a file's run of 32 or 128 nibble bytes.
const fn elements_of(dtype: DType, i: usize) -> (usize, usize) {
    match dtype {
        DType::Q4K => (i / 32 * 64 + i % 32, i / 32 * 64 + 32 + i % 32),
        DType::Q6K => (i / 64 * 128 + i % 64, i / 64 * 128 + 64 + i % 64),
        _ => (i, i + 16),
    }
}

/// Element of bit pair `j` of byte `i` among Q6_K's 64 bytes of high bits.
const fn pair_element(i: usize, j: usize) -> usize {
    i / 32 * 128 + j * 32 + i % 32
}

fn convert_block(dtype: DType, block: &[u8], to: &mut [&mut [u8]]) {
    let nibbles = |q: &[u8], out: &mut [u8]| {
        for (i, &byte) in q.iter().enumerate() {
            let (low, high) = elements_of(dtype, i);
            set_nibble(out, low, byte & 15);
            set_nibble(out, high, byte >> 4);
        }
    };
    match (dtype, to) {
        (DType::Q4_0, [q, d]) => {
            d.copy_from_slice(&block[..2]);
            nibbles(&block[2..], q);
        }
        (DType::Q4_1, [q, dm]) => {
            dm.copy_from_slice(&block[..4]);
            nibbles(&block[4..], q);
        }
        (DType::Q8_0, [q, d]) => {
            d.copy_from_slice(&block[..2]);
            q.copy_from_slice(&block[2..]);
        }
        (DType::Q4K, [q, scales]) => {
            scales.copy_from_slice(&block[..16]);
            nibbles(&block[16..], q);
        }
        (DType::Q6K, [q, pairs, scales, d]) => {
            nibbles(&block[..128], q);
            for (i, &byte) in block[128..192].iter().enumerate() {
                for j in 0..4 {
                    let e = pair_element(i, j);
                    pairs[e / 4] |= ((byte >> (2 * j)) & 3) << (2 * (e % 4));
                }
            }
            scales.copy_from_slice(&block[192..208]);
            d.copy_from_slice(&block[208..]);
        }
        _ => {}
    }
}

fn restore_block(dtype: DType, from: &[&[u8]], block: &mut [u8]) {
    let nibbles = |q: &[u8], out: &mut [u8]| {
        for (i, byte) in out.iter_mut().enumerate() {
            let (low, high) = elements_of(dtype, i);
            *byte = nibble(q, low) | (nibble(q, high) << 4);
        }
    };
    match (dtype, from) {
        (DType::Q4_0, [q, d]) => {
            block[..2].copy_from_slice(d);
            nibbles(q, &mut block[2..]);
        }
        (DType::Q4_1, [q, dm]) => {
            block[..4].copy_from_slice(dm);
            nibbles(q, &mut block[4..]);
        }
        (DType::Q8_0, [q, d]) => {
            block[..2].copy_from_slice(d);
            block[2..].copy_from_slice(q);
        }
        (DType::Q4K, [q, scales]) => {
            block[..16].copy_from_slice(scales);
            nibbles(q, &mut block[16..]);
        }
        (DType::Q6K, [q, pairs, scales, d]) => {
            nibbles(q, &mut block[..128]);
            for (i, byte) in block[128..192].iter_mut().enumerate() {
                *byte = (0..4)
                    .map(|j| {
                        let e = pair_element(i, j);
                        ((pairs[e / 4] >> (2 * (e % 4))) & 3) << (2 * j)
                    })
                    .sum();
            }
            block[192..208].copy_from_slice(scales);
            block[208..].copy_from_slice(d);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(n: usize) -> Vec<u8> {
        let mut state = 12345u32;
        (0..n)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect()
    }

    #[test]
    fn every_type_round_trips() {
        for dtype in DType::QUANTIZED {
            for blocks in [1, 3, 4] {
                let (rows, cols) = (5, blocks * dtype.block_elements());
                let file = noise(rows * blocks * dtype.block_bytes());
                let mut packed = vec![0; packed_bytes(dtype, rows, cols).unwrap() as usize];
                let (head, tail) = file.split_at(2 * blocks * dtype.block_bytes());
                for (first, bytes) in [(2, tail), (0, head)] {
                    pack_rows(dtype, rows, cols, first, bytes, &mut |at, bytes| {
                        packed[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
                        Ok(())
                    })
                    .unwrap();
                }
                assert_eq!(unpack(dtype, rows, cols, &packed).unwrap(), file, "{dtype}");
            }
        }
    }

    #[test]
    fn nibbles_stand_in_order() {
        // Element e holds e % 16: byte i of the file has element i below, i + 16 above.
        let mut file = vec![0u8; 18];
        for i in 0..16 {
            file[2 + i] = (i as u8) | ((i as u8) << 4);
        }
        let mut packed = Vec::new();
        pack_rows(DType::Q4_0, 1, 32, 0, &file, &mut |_, bytes| {
            packed.extend_from_slice(bytes);
            Ok(())
        })
        .unwrap();
        assert_eq!(packed.len(), 32);
        let word = u32::from_le_bytes(packed[..4].try_into().unwrap());
        assert_eq!(word & 0x0f0f_0f0f, 0x0302_0100);
        assert_eq!((word >> 4) & 0x0f0f_0f0f, 0x0706_0504);
    }

    #[test]
    fn wrong_sizes_are_refused() {
        let mut none = |_: u64, _: &[u8]| Ok(());
        assert!(packed_bytes(DType::F32, 1, 32).is_err());
        assert!(packed_bytes(DType::Q4_0, 1, 33).is_err());
        assert!(packed_bytes(DType::Q4_0, usize::MAX, 32).is_err());
        assert!(pack_rows(DType::Q4_0, 1, 32, 0, &[0; 17], &mut none).is_err());
        assert!(pack_rows(DType::Q4_0, 1, 32, 1, &[0; 18], &mut none).is_err());
        assert!(pack_rows(DType::Q4_0, 2, 32, usize::MAX, &[0; 18], &mut none).is_err());
        assert!(unpack(DType::Q4_0, 1, 32, &[0; 16]).is_err());
    }
}
