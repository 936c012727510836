//! Attention: masks, windows, caps, grouped heads, widths past one chunk.

use super::harness::*;
use tallow_graph::{
    DType, Kernel, Scalar,
    kernel::{AttentionKernel, RowClass},
};

#[test]
fn attention_of_every_kind() {
    let mut noise = Noise(30);
    // Past 128 keys, several workgroups share those of few queries; past 32 queries there are several tiles.
    for (queries, keys) in [(1i64, 1i64), (1, 150), (1, 401), (6, 300), (5, 9), (20, 70), (12, 5), (70, 75)] {
        for (heads, kv_heads, width, v_width) in
            [(4i64, 2i64, 16i64, 16i64), (3, 3, 64, 72), (2, 1, 7, 5), (1, 1, 8, 300)]
        {
            for bits in 0..8 {
                if (keys > 200 || queries > 32) && bits % 3 != 1 {
                    continue;
                }
                let on = |bit: u32| bits >> bit & 1 == 1;
                for (dtype, kv_dtype) in
                    [(DType::F32, DType::F32), (DType::F32, DType::F16), (DType::BF16, DType::BF16)]
                {
                    if (dtype == DType::BF16 || dtype != kv_dtype) && bits % 3 != 0 {
                        continue;
                    }
                    let kernel = Kernel::Attention(AttentionKernel {
                        dtype,
                        kv_dtype,
                        causal: on(0),
                        window: on(1),
                        softcap: on(2),
                        mask: on(0) != on(2),
                        rows: RowClass::of(queries as usize),
                    });
                    let mask = on(0) != on(2);
                    let batch = 2;
                    let window = if on(1) { 4 } else { 0 };
                    // Negative for more queries than keys: the first queries see nothing.
                    let position = keys - queries;
                    let mut words = vec![batch, queries, keys, heads, kv_heads, width, v_width, position, window];
                    words.extend([0, queries * heads * width, heads * width, width]);
                    words.extend([0, keys * kv_heads * width, kv_heads * width, width]);
                    words.extend([0, kv_heads * keys * v_width, v_width, keys * v_width]);
                    if mask {
                        words.extend([0, 0, 0, keys, 1]);
                    }
                    let mut inputs = vec![
                        Input::Plain(noise.elements(dtype, (batch * queries * heads * width) as usize)),
                        Input::Plain(noise.elements(kv_dtype, (batch * keys * kv_heads * width) as usize)),
                        Input::Plain(noise.elements(kv_dtype, (batch * keys * kv_heads * v_width) as usize)),
                    ];
                    if mask {
                        inputs.push(Input::Plain(noise.elements(DType::F32, (queries * keys) as usize)));
                    }
                    let n = (batch * queries * heads * v_width) as usize;
                    let scalars = [Scalar::F(1.0 / (width as f64).sqrt()), Scalar::F(5.0)];
                    let error = if dtype == DType::F32 { 1e-5 } else { 1.5e-2 };
                    let name = format!("attention {queries} {keys} {heads} {width} {v_width} {bits} {kv_dtype}");
                    check(&name, &kernel, &inputs, &[(dtype, n)], &words, &scalars, scaled(error));
                }
            }
        }
    }
}
