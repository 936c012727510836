//! Random numbers: Philox against its published known answers and a plain implementation; moments of the normal.

use super::harness::*;
use tallow_graph::{
    DType, Kernel, Scalar,
    kernel::{Distribution, RandomKernel},
};

fn philox(mut c: [u32; 4], mut k: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(c[0]) * 0xd251_1f53;
        let p1 = u64::from(c[2]) * 0xcd9e_8d57;
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

#[test]
fn the_plain_philox_gives_the_known_answers() {
    // From the Random123 distribution's known-answer file.
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
}

#[test]
fn uniform_is_bit_exact() {
    let Some(device) = device() else { return };
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for n in [1usize, 6, 1000] {
            let kernel = Kernel::Random(RandomKernel { distribution: Distribution::Uniform, dtype });
            let (key, counter) = ([0xdead_beefu32, 0x1234_5678], [0xffff_ffffu32, 7]);
            let words: Vec<i64> =
                [n as u32, key[0], key[1], counter[0], counter[1]].iter().map(|&w| i64::from(w)).collect();
            let mut want = Vec::new();
            for i in 0..n {
                let block = philox([(i / 4) as u32, 0, counter[0], counter[1]], key);
                put(dtype, f64::from((block[i % 4] >> 8) as f32 / 16_777_216.0), &mut want);
            }
            let scalars = [Scalar::F(0.0), Scalar::F(1.0)];
            let outputs = [(dtype, n)];
            check_against(
                device,
                &format!("uniform {dtype} {n}"),
                &kernel,
                &[],
                &outputs,
                &words,
                &scalars,
                &[want],
                EXACT,
            );
        }
    }
}

#[test]
fn normal_follows_box_muller() {
    let Some(device) = device() else { return };
    let n = 4000usize;
    let kernel = Kernel::Random(RandomKernel { distribution: Distribution::Normal, dtype: DType::F32 });
    let mut want = Vec::new();
    for i in 0..n {
        let block = philox([(i / 4) as u32, 0, 5, 6], [3, 4]);
        let (w0, w1) = if i % 4 < 2 { (block[0], block[1]) } else { (block[2], block[3]) };
        let u0 = f64::from((w0 >> 8) + 1) / 16_777_216.0;
        let u1 = f64::from(w1 >> 8) / 16_777_216.0;
        let (r, angle) = ((-2.0 * u0.ln()).sqrt(), 2.0 * std::f64::consts::PI * u1);
        put(DType::F32, 1.0 + 2.0 * r * if i % 2 == 0 { angle.cos() } else { angle.sin() }, &mut want);
    }
    let words = [n as i64, 3, 4, 5, 6];
    let scalars = [Scalar::F(1.0), Scalar::F(2.0)];
    check_against(device, "normal", &kernel, &[], &[(DType::F32, n)], &words, &scalars, &[want], relative(1e-5, 2e-5));
}
