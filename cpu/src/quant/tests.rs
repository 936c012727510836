//! Every format, instruction set and kernel against a plain f64 product.

use tallow_graph::DType;

use super::*;
use crate::{Isa, Pool};

/// Numbers between -1 and 1.
pub(crate) struct Random(pub u64);
impl Random {
    pub(crate) fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 40) as f32) / (1 << 23) as f32 - 1.0
    }
    pub(crate) fn vec(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.next() * scale).collect()
    }
}

fn reference(w: &[f32], x: &[f32], k: usize) -> Vec<f64> {
    let dot = |x: &[f32], w: &[f32]| x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
    x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| dot(x, w))).collect()
}

/// Largest difference over the reference's root mean square.
fn error(got: &[f32], want: &[f64]) -> f64 {
    let rms = (want.iter().map(|v| v * v).sum::<f64>() / want.len() as f64).sqrt();
    got.iter().zip(want).map(|(g, w)| (f64::from(*g) - w).abs()).fold(0.0, f64::max) / rms
}

fn case(dtype: DType, n: usize, k: usize, m: usize, w_scale: f32, x_scale: f32, seed: u64) {
    let mut random = Random(seed);
    let x = random.vec(m * k, x_scale);
    let mut bytes = Vec::new();
    quantize_row(dtype, &random.vec(n * k, w_scale), &mut bytes).unwrap();
    let mut w = vec![0.0; n * k];
    dequantize_row(dtype, &bytes, &mut w).unwrap();
    let exact = reference(&w, &x, k);
    for isa in Isa::supported() {
        let acts = ActivationsQ8::from_rows(isa, &x, k).unwrap();
        let rounded = reference(&w, &acts.dequantize(), k);
        // A stride and an untouched gap between rows.
        let stride = n + 3;
        let mut out = vec![f32::NAN; m * stride];
        let rows = |out: &[f32]| -> Vec<f32> { out.chunks(stride).flat_map(|row| row[..n].to_vec()).collect() };
        let what = format!("{dtype} {} n={n} k={k} m={m}", isa.name());
        tile_q8(isa, dtype, &bytes, &acts, &mut TileMut::new(&mut out, m, n, stride).unwrap()).unwrap();
        let e = error(&rows(&out), &rounded);
        assert!(e < 1e-5, "q8 {what}: {e}");
        let e = error(&rows(&out), &exact);
        // With few outputs their mean square says little.
        assert!(n < 15 || e < 0.03, "q8 against exact activations, {what}: {e}");
        assert!(out.chunks(stride).all(|row| row[n..].iter().all(|v| v.is_nan())), "{what}");
        out.fill(f32::NAN);
        tile_f32(isa, dtype, &bytes, k, &x, &mut TileMut::new(&mut out, m, n, stride).unwrap()).unwrap();
        let e = error(&rows(&out), &exact);
        assert!(e < 1e-5, "f32 {what}: {e}");
        assert!(out.chunks(stride).all(|row| row[n..].iter().all(|v| v.is_nan())), "{what}");
    }
}

#[test]
fn tiles_match_f64() {
    let mut seed = 0;
    for dtype in DType::QUANTIZED {
        let block = dtype.block_elements();
        for blocks in [1, 2, 3, 5, 18] {
            for m in [1, 2, 3, 4, 5, 8, 17] {
                for n in [1, 15, 16, 35] {
                    seed += 1;
                    case(dtype, n, block * blocks.min(2048 / block), m, 1.0, 1.0, seed);
                }
            }
        }
    }
}

#[test]
fn extreme_scales() {
    for dtype in DType::QUANTIZED {
        for m in [1, 6] {
            case(dtype, 20, 768, m, 1000.0, 1e20, 7);
            case(dtype, 20, 768, m, 0.01, 1e-20, 8);
            case(dtype, 20, 768, m, 1.0, 1e-3, 9);
        }
    }
}

#[test]
fn largest_quants_do_not_saturate() {
    // All quants and activations at their extremes, equal and opposite signs.
    for dtype in DType::QUANTIZED {
        for sign in [1.0, -1.0] {
            for m in [1, 4] {
                let k = 512;
                let mut bytes: Vec<u8> = Vec::new();
                let w: Vec<f32> = (0..k).map(|i| if i % 64 < 60 { -1.0 } else { 1.0 }).collect();
                quantize_row(dtype, &w, &mut bytes).unwrap();
                if dtype == DType::Q8_0 {
                    bytes.chunks_exact_mut(34).for_each(|block| block[2..].fill(0x80));
                }
                let mut w = vec![0.0; k];
                dequantize_row(dtype, &bytes, &mut w).unwrap();
                let x = vec![sign; m * k];
                for isa in Isa::supported() {
                    let acts = ActivationsQ8::from_rows(isa, &x, k).unwrap();
                    let mut out = vec![0.0; m];
                    tile_q8(isa, dtype, &bytes, &acts, &mut TileMut::new(&mut out, m, 1, 1).unwrap()).unwrap();
                    let e = error(&out, &reference(&w, &x, k));
                    assert!(e < 1e-4, "{dtype} {isa:?} {e}");
                }
            }
        }
    }
}

#[test]
fn a_pool_gives_the_same() {
    let (pool, mut random) = (Pool::new(3), Random(3));
    for dtype in [DType::Q4_1, DType::Q6K] {
        for (m, n) in [(1, 1000), (7, 333), (0, 5), (2, 1)] {
            let k = 256;
            let mut bytes = Vec::new();
            quantize_row(dtype, &random.vec(n * k, 1.0), &mut bytes).unwrap();
            let x = random.vec(m * k, 1.0);
            let isa = Isa::best();
            let acts = ActivationsQ8::from_rows(isa, &x, k).unwrap();
            let (mut a, mut b) = (vec![0.0; m * n], vec![0.0; m * n]);
            matmul_q8(&pool, isa, dtype, &bytes, n, &acts, &mut a).unwrap();
            tile_q8(isa, dtype, &bytes, &acts, &mut TileMut::new(&mut b, m, n, n).unwrap()).unwrap();
            assert_eq!(a, b);
            matmul_f32(&pool, isa, dtype, &bytes, n, k, &x, &mut a).unwrap();
            tile_f32(isa, dtype, &bytes, k, &x, &mut TileMut::new(&mut b, m, n, n).unwrap()).unwrap();
            assert_eq!(a, b);
        }
    }
}

#[test]
fn nan_activations_are_not_lost() {
    for dtype in DType::QUANTIZED {
        for m in [1, 4] {
            let mut x = vec![1.0; m * 256];
            x[77] = f32::NAN;
            let mut bytes = Vec::new();
            quantize_row(dtype, &Random(1).vec(256, 1.0), &mut bytes).unwrap();
            for isa in Isa::supported() {
                let acts = ActivationsQ8::from_rows(isa, &x, 256).unwrap();
                let mut out = vec![0.0; m];
                tile_q8(isa, dtype, &bytes, &acts, &mut TileMut::new(&mut out, m, 1, 1).unwrap()).unwrap();
                assert!(out[0].is_nan() && out[1..].iter().all(|v| v.is_finite()), "{dtype} {isa:?} {out:?}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let acts = ActivationsQ8::from_rows(Isa::SCALAR, &[0.0; 64], 64).unwrap();
    let mut out = [0.0; 4];
    let mut tile = TileMut::new(&mut out, 1, 2, 2).unwrap();
    let text = tile_q8(Isa::SCALAR, DType::Q4_1, &[0; 79], &acts, &mut tile).unwrap_err().to_string();
    assert!(text.contains("79 bytes"), "{text}");
    assert!(tile_q8(Isa::SCALAR, DType::Q4K, &[0; 80], &acts, &mut tile).is_err());
    assert!(tile_q8(Isa::SCALAR, DType::F32, &[0; 80], &acts, &mut tile).is_err());
    assert!(tile_f32(Isa::SCALAR, DType::Q4_1, &[0; 80], 64, &[0.0; 65], &mut tile).is_err());
    assert!(TileMut::new(&mut [0.0; 4], 2, 3, 2).is_err());
    assert!(TileMut::new(&mut [0.0; 4], 2, 3, 3).is_err());
    assert!(TileMut::new(&mut [0.0; 4], usize::MAX, 1, usize::MAX).is_err());
}
