//! Attention against the reference: grouped heads, causal, windows, caps, masks, f16, strides, few and many queries.

mod backend_common;

use backend_common::*;
use tallow_cpu::CpuBackend;
use tallow_graph::kernel::{AttentionKernel, RowClass};
use tallow_graph::{DType, Kernel, Scalar};

struct Case {
    batch: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    kv_heads: usize,
    width: usize,
    v_width: usize,
    window: usize,
}

fn attend(case: &Case, flags: usize, dtype: DType, kv_dtype: DType, noise: &mut Noise) {
    let &Case { batch, queries, keys, heads, kv_heads, width, v_width, window } = case;
    let kernel = AttentionKernel {
        dtype,
        kv_dtype,
        causal: flags & 1 != 0,
        window: flags & 2 != 0,
        softcap: flags & 4 != 0,
        mask: flags & 8 != 0,
        rows: RowClass::of(queries),
    };
    let backend = CpuBackend::with_threads(2).unwrap();
    // q as [batch, queries, heads, width]; k as [batch, kv_heads, keys + 2, width]; v as [batch, keys, kv_heads, v_width].
    let i = |n: usize| n as i64;
    let words = [
        vec![
            i(batch),
            i(queries),
            i(keys),
            i(heads),
            i(kv_heads),
            i(width),
            i(v_width),
            i(keys) - i(queries),
            i(window),
        ],
        vec![0, i(queries * heads * width), i(heads * width), i(width)],
        vec![i(width), i(kv_heads * (keys + 2) * width), i(width), i((keys + 2) * width)],
        vec![3, i(keys * kv_heads * v_width), i(kv_heads * v_width), i(v_width)],
        // The mask is shared by the heads.
        if kernel.mask { vec![0, i(queries * keys), 0, i(keys), 1] } else { vec![] },
    ]
    .concat();
    let mut inputs = vec![
        noise_of(noise, dtype, batch * queries * heads * width),
        noise_of(noise, kv_dtype, batch * kv_heads * (keys + 2) * width + width),
        noise_of(noise, kv_dtype, batch * keys * kv_heads * v_width + 3),
    ];
    if kernel.mask {
        let mut mask = noise.floats(batch * queries * keys);
        mask.iter_mut().for_each(|m| {
            if *m > 1.2 {
                *m = f32::MIN;
            }
        });
        inputs.push(bytes(&mask));
    }
    let scalars = [Scalar::F(0.3), Scalar::F(1.7)];
    let size = batch * queries * heads * v_width;
    let tolerance = if dtype == DType::F16 { 2e-3 } else { 1e-5 };
    let what = format!("flags {flags:#b} {dtype} {kv_dtype} queries {queries} keys {keys}");
    check(&backend, &what, &Kernel::Attention(kernel), &inputs, &[(dtype, size)], &words, &scalars, tolerance);
}

#[test]
fn all_flags_and_shapes() {
    let mut noise = Noise(31);
    let cases = [
        Case { batch: 1, queries: 1, keys: 1, heads: 1, kv_heads: 1, width: 8, v_width: 8, window: 1 },
        Case { batch: 2, queries: 1, keys: 70, heads: 6, kv_heads: 2, width: 16, v_width: 16, window: 9 },
        Case { batch: 1, queries: 5, keys: 12, heads: 4, kv_heads: 4, width: 7, v_width: 5, window: 3 },
        Case { batch: 1, queries: 40, keys: 40, heads: 3, kv_heads: 1, width: 32, v_width: 32, window: 17 },
        Case { batch: 1, queries: 90, keys: 130, heads: 2, kv_heads: 1, width: 16, v_width: 24, window: 200 },
        // More queries than keys: the first see nothing, and give zeros.
        Case { batch: 1, queries: 9, keys: 4, heads: 2, kv_heads: 2, width: 8, v_width: 8, window: 2 },
    ];
    for case in &cases {
        for flags in 0..16 {
            attend(case, flags, DType::F32, DType::F32, &mut noise);
        }
        for flags in [0, 1, 15] {
            attend(case, flags, DType::F32, DType::F16, &mut noise);
            attend(case, flags, DType::F16, DType::F16, &mut noise);
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gives_zeros() {
    let backend = CpuBackend::with_threads(1).unwrap();
    for causal in [true, false] {
        let kernel = AttentionKernel {
            dtype: DType::F32,
            kv_dtype: DType::F32,
            causal,
            window: !causal,
            softcap: false,
            mask: false,
            rows: RowClass::Few,
        };
        // Three queries, two keys. Causal with position -2: only the last sees a key. Window 1 at position 2: none does.
        let (position, window) = if causal { (-2, 0) } else { (2, 1) };
        let words = [1, 3, 2, 1, 1, 4, 4, position, window, 0, 12, 4, 4, 0, 8, 4, 4, 0, 8, 4, 4];
        let inputs = [bytes(&[1f32; 12]), bytes(&[1f32; 8]), bytes(&[5f32; 8])];
        let got = run(&backend, Kernel::Attention(kernel), &inputs, &[48], &words, &[Scalar::F(1.0), Scalar::F(0.0)]);
        let got = values::<f32>(&got[0]);
        assert_eq!(got[..8], [0.0; 8]);
        assert_eq!(got[8..], if causal { [5.0f32; 4] } else { [0.0; 4] });
    }
}
