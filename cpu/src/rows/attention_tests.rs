//! Attention against a plain f64 softmax over the whole row of scores.

use super::*;
use crate::quant::tests::Random;

fn reference(a: &Attention<'_>, t: usize, g: usize) -> Vec<f64> {
    let q = &a.q[t * a.q_rows.step + g * a.q_rows.head..][..a.width];
    let mut scores = vec![f64::NEG_INFINITY; a.keys];
    for (s, score) in scores.iter_mut().enumerate() {
        let hidden = a.causal.is_some_and(|p| s > p + t || (a.window > 0 && s + a.window <= p + t));
        if hidden {
            continue;
        }
        let k = &a.k[s * a.k_stride..][..a.width];
        let dot: f64 = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
        *score = dot * f64::from(a.scale);
        if a.softcap > 0.0 {
            *score = f64::from(a.softcap) * (*score / f64::from(a.softcap)).tanh();
        }
        if let Some(mask) = a.mask {
            *score += f64::from(mask.data[t * mask.rows.step + g * mask.rows.head + s * mask.key]);
        }
    }
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut out = vec![0.0; a.v_width];
    if top == f64::NEG_INFINITY {
        return out;
    }
    let sum: f64 = scores.iter().map(|s| (s - top).exp()).sum();
    for (s, score) in scores.iter().enumerate() {
        for (out, v) in out.iter_mut().zip(&a.v[s * a.v_stride..]) {
            *out += (score - top).exp() / sum * f64::from(*v);
        }
    }
    out
}

fn check_case(a: &Attention<'_>) {
    let out_rows = Rows { step: a.group * a.v_width + 1, head: a.v_width };
    for isa in Isa::supported() {
        let mut out = vec![7.0; a.positions * out_rows.step];
        attention_tile(isa, a, &mut out, out_rows).unwrap();
        for t in 0..a.positions {
            for g in 0..a.group {
                let row = &out[t * out_rows.step + g * out_rows.head..];
                for (got, want) in row.iter().zip(reference(a, t, g)) {
                    let what = (isa.name(), a.positions, a.group, a.keys, a.width, a.v_width, a.causal, a.window, t);
                    assert!((f64::from(*got) - want).abs() < 3e-6, "{what:?}: {got} {want}");
                }
            }
            assert_eq!(out[(t + 1) * out_rows.step - 1], 7.0, "the gap between rows was written");
        }
    }
}

#[test]
fn every_shape_matches_f64() {
    let mut random = Random(17);
    for (width, v_width) in [(64, 64), (5, 3), (16, 40), (33, 17)] {
        for keys in [1usize, 7, 63, 64, 65, 200] {
            for (positions, group) in [(1, 1), (1, 3), (1, 9), (3, 1), (7, 3), (40, 1)] {
                if positions > keys {
                    continue;
                }
                let q = random.vec(positions * group * width, 2.0);
                let (k, v) = (random.vec(keys * (width + 2), 2.0), random.vec(keys * v_width, 1.0));
                let mask = random.vec(positions * keys, 3.0);
                let plain = Attention {
                    q: &q,
                    q_rows: Rows { step: group * width, head: width },
                    positions,
                    group,
                    k: &k,
                    k_stride: if keys > 1 { width + 2 } else { width },
                    v: &v,
                    v_stride: v_width,
                    keys,
                    width,
                    v_width,
                    scale: 1.0 / (width as f32).sqrt(),
                    softcap: 0.0,
                    causal: None,
                    window: 0,
                    mask: None,
                };
                check_case(&plain);
                let causal = Attention { causal: Some(keys - positions), ..plain };
                check_case(&causal);
                check_case(&Attention { window: 5, ..causal });
                check_case(&Attention { window: 70, softcap: 1.5, ..causal });
                let rows = Rows { step: keys, head: 0 };
                check_case(&Attention { mask: Some(Mask { data: &mask, rows, key: 1 }), ..causal });
            }
        }
    }
}

#[test]
fn hidden_rows_extremes_and_nan() {
    let mut random = Random(23);
    let (width, keys) = (16, 100);
    let (q, v) = (random.vec(10 * width, 1.0), random.vec(keys * width, 1.0));
    let k = random.vec(keys * width, 1.0);
    let hidden = vec![f32::NEG_INFINITY; keys];
    let rows = Rows { step: width, head: 0 };
    let base = Attention {
        q: &q,
        q_rows: rows,
        positions: 10,
        group: 1,
        k: &k,
        k_stride: width,
        v: &v,
        v_stride: width,
        keys,
        width,
        v_width: width,
        scale: 1.0,
        softcap: 0.0,
        causal: None,
        window: 0,
        mask: Some(Mask { data: &hidden, rows: Rows { step: 0, head: 0 }, key: 1 }),
    };
    check_case(&base);
    // Scores of thousands: only the difference to the largest may be taken to the exponent.
    check_case(&Attention { mask: None, scale: 3000.0, positions: 1, ..base });
    check_case(&Attention { mask: None, keys: 0, ..base });
    for isa in Isa::supported() {
        let mut out = vec![0.0; 10 * width];
        let short = Attention { k: &base.k[1..], ..base };
        assert!(attention_tile(isa, &short, &mut out, rows).unwrap_err().to_string().contains("k has"));
        assert!(attention_tile(isa, &Attention { mask: None, ..base }, &mut out[1..], rows).is_err());
    }
    let mut k = k.clone();
    k[70 * width] = f32::NAN;
    for isa in Isa::supported() {
        let mut out = vec![0.0; 10 * width];
        attention_tile(isa, &Attention { k: &k, mask: None, ..base }, &mut out, rows).unwrap();
        assert!(out.iter().all(|v| v.is_nan()));
        // A key that is hidden does no harm.
        attention_tile(isa, &Attention { k: &k, mask: None, causal: Some(59), ..base }, &mut out, rows).unwrap();
        assert!(out.iter().all(|v| v.is_finite()));
    }
}
