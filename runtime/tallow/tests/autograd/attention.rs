//! Attention with all its options.

use crate::check::{Row, check};
use tallow::{Attention, DType, Device, Result, Tensor, Var};

const PLAIN: Attention = Attention { scale: 0.7, causal: false, window: None, softcap: None };

fn row(name: &'static str, [queries, keys]: [usize; 2], [heads, kv_heads]: [usize; 2], options: Attention) -> Row {
    let (q, k, v) = ([2, queries, heads, 3], [2, keys, kv_heads, 3], [2, keys, kv_heads, 2]);
    Row::new(name, &[&q, &k, &v], -1.5..1.5, move |x| x[0].attention(&x[1], &x[2], None, options))
}

#[test]
fn options() {
    check(&[
        row("plain", [2, 3], [1, 1], PLAIN),
        row("causal", [3, 3], [1, 1], Attention { causal: true, ..PLAIN }),
        row("causal, more keys", [2, 4], [1, 1], Attention { causal: true, ..PLAIN }),
        row("causal, more queries", [3, 2], [1, 1], Attention { causal: true, ..PLAIN }),
        row("window", [3, 3], [1, 1], Attention { causal: true, window: Some(2), ..PLAIN }),
        row("softcap", [2, 2], [1, 1], Attention { softcap: Some(0.8), ..PLAIN }),
        row("grouped", [2, 2], [4, 2], PLAIN).first_only(),
        row("grouped, causal, capped", [3, 3], [2, 1], Attention { causal: true, softcap: Some(2.0), ..PLAIN })
            .first_only(),
    ]);
}

#[test]
fn one_tensor_as_query_key_and_value() {
    check(&[Row::new("self-attention", &[&[1, 3, 1, 2]], -1.5..1.5, |x| {
        x[0].attention(&x[0], &x[0], None, Attention { causal: true, ..PLAIN })
    })]);
}

/// The mask is F32 whatever the rest is: its gradient is compared with that of the same attention from other operations.
#[test]
fn the_mask_has_a_gradient() -> Result<()> {
    let cpu = &Device::Cpu;
    let shape = (2, 3, 2, 4);
    let (q, k, v) =
        (Var::randn(0f32, 1., shape, cpu)?, Var::randn(0f32, 1., shape, cpu)?, Var::randn(0f32, 1., shape, cpu)?);
    // Stretched over batch and heads, and one key is hidden.
    let mask = Var::new([[0.5f32, -1., 0.], [0.25, f32::NEG_INFINITY, 2.], [0., 0., 1.]], cpu)?;
    let weights = Tensor::rand(-1f32, 1., shape, cpu)?;
    let fused = q.attention(&k, &v, Some(&mask), PLAIN)?;
    let turn = |t: &Tensor| t.transpose(1, 2);
    let scores = (turn(&q)?.matmul(&turn(&k)?.t()?)? * PLAIN.scale)?.broadcast_add(&mask)?;
    let plain = turn(&scores.softmax_last_dim()?.matmul(&turn(&v)?)?)?;
    let (a, b) = ((fused * &weights)?.backward()?, (plain * &weights)?.backward()?);
    for var in [&q, &k, &v, &mask] {
        let [a, b] = [&a, &b].map(|grads| grads.get(var).expect("a gradient"));
        assert_eq!((a.shape(), a.dtype()), (var.shape(), DType::F32));
        let (a, b) = (a.flatten_all()?.to_vec1::<f32>()?, b.flatten_all()?.to_vec1::<f32>()?);
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?}\n{b:?}");
        assert!(a.iter().any(|a| a.abs() > 1e-2));
    }
    Ok(())
}
