//! What the tests of kernels of three axes [outer, along, inner] share: operands in several layouts, values with ties and
//! extremes, and the comparison, bit by bit for integers.

use super::harness::*;
use tallow_graph::{Backend, DType, Kernel, reference::Reference};
use tallow_wgpu::{Options, WgpuBackend};

pub const WIDE: [DType; 5] = [DType::F32, DType::I32, DType::U32, DType::I64, DType::U64];

/// Offset and strides of an operand, and how many elements its buffer must have.
pub struct Place {
    pub words: [i64; 4],
    pub elements: usize,
}

/// Contiguous, transposed, flipped, or broadcast over the outer axis, by `kind`.
pub fn place([outer, n, inner]: [i64; 3], kind: usize) -> Place {
    let words = match kind % 4 {
        0 => [0, n * inner, inner, 1],
        1 => [3, 1, outer * inner, outer],
        2 => [(n - 1).max(0) * inner + 1, n * inner, -inner, 1],
        _ => [2, 0, inner, 1],
    };
    Place { words, elements: (outer * n * inner) as usize + 4 }
}

/// Elements with many ties, extremes of the dtype, and any bits; floats with NaN, infinities and both zeros.
pub fn values(noise: &mut Noise, dtype: DType, count: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..count {
        let bits = noise.bits();
        match (dtype, i % 3) {
            (DType::F32, 0) => {
                let special = [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0, f32::MIN, 2e-40];
                out.extend(special[bits as usize % special.len()].to_le_bytes());
            }
            (DType::F32, 1) => out.extend(((bits % 7) as f32 - 3.0).to_le_bytes()),
            (DType::F32, _) => out.extend((noise.float() as f32 * 1e3).to_le_bytes()),
            (_, 0) => {
                let size = dtype.size_in_bytes();
                let top = 1u64 << (8 * size - 1);
                out.extend(
                    &[0, 1, u64::MAX, top, top - 1, 1 << 31, u64::MAX << 20][bits as usize % 7].to_le_bytes()[..size],
                );
            }
            (_, 1) => out.extend(&((bits % 7).wrapping_sub(3)).to_le_bytes()[..dtype.size_in_bytes()]),
            _ => out.extend(&bits.to_le_bytes()[..dtype.size_in_bytes()]),
        }
    }
    out
}

/// Ids below `rows`.
pub fn ids(noise: &mut Noise, dtype: DType, rows: i64, count: usize) -> Vec<u8> {
    (0..count)
        .flat_map(|_| (noise.bits() % rows.max(1) as u64).to_le_bytes()[..dtype.size_in_bytes()].to_vec())
        .collect()
}

/// Every implementation against the reference; `before` is what the output holds.
pub fn agree(
    name: &str,
    kernel: &Kernel,
    inputs: &[Input],
    before: &[u8],
    dtype: DType,
    words: &[i64],
    tolerance: Tolerance,
) {
    let Some(device) = device() else { return };
    let before = [before.to_vec()];
    let want = run(&Reference::default(), 0, kernel, inputs, &before, words, &[]).unwrap();
    let implementations = device.lower(kernel, words);
    assert!(!implementations.is_empty(), "{name}: no implementation");
    for implementation in implementations {
        let start = std::time::Instant::now();
        let name = format!("{name} #{}", implementation.id);
        let got = run(device, implementation.id, kernel, inputs, &before, words, &[]);
        let got = got.unwrap_or_else(|error| panic!("{name}: {error}"));
        if std::env::var_os("TALLOW_TIMES").is_some() {
            eprintln!("{:6.2} s  {name}", start.elapsed().as_secs_f64());
        }
        if dtype.is_int() || tolerance.relative + tolerance.scaled + tolerance.absolute == 0.0 && dtype != DType::F32 {
            let size = dtype.size_in_bytes();
            let wrong = got[0].chunks(size).zip(want[0].chunks(size)).position(|(g, w)| g != w);
            let told = wrong.map(|i| (i, &got[0][i * size..(i + 1) * size], &want[0][i * size..(i + 1) * size]));
            assert!(got[0].len() == want[0].len() && told.is_none(), "{name}: {told:x?}");
        } else {
            compare(&name, dtype, &got[0], &want[0], tolerance);
        }
    }
}

/// A device of its own, for tests of faults: a fault goes to whoever reads next.
pub fn own_device() -> Option<WgpuBackend> {
    let index = tallow_wgpu::adapters_blocking().len().checked_sub(1)?;
    Some(WgpuBackend::open_blocking(index, Options::default()).unwrap())
}
