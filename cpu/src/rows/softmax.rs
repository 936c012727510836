//! Softmax and its logarithm over one row.

use super::reduce::{max_body, sum_body};
use crate::math::scalar::exp;

multiversion! {
    /// x_i becomes e^(x_i - max) / sum. A row of negative infinities alone, a NaN or a positive infinity makes the
    /// row NaN, as the formula has it. (Attention gives zeros where everything is masked.)
    pub fn softmax(x: &mut [f32]) = softmax_body;
    /// x_i becomes x_i - max - ln(sum of e^(x - max)).
    pub fn log_softmax(x: &mut [f32]) = log_softmax_body;
}

#[inline(always)]
fn softmax_body<const FMA: bool>(x: &mut [f32]) {
    let top = max_body::<FMA>(x);
    if top == f32::NEG_INFINITY {
        x.fill(f32::NAN);
        return;
    }
    for x in x.iter_mut() {
        *x = exp::<FMA>(*x - top);
    }
    let scale = 1.0 / sum_body::<FMA>(x);
    for x in x.iter_mut() {
        *x *= scale;
    }
}

#[inline(always)]
fn log_softmax_body<const FMA: bool>(x: &mut [f32]) {
    let top = max_body::<FMA>(x);
    // 256 at a time, through a buffer, as the row itself must keep its values.
    let (mut total, mut buffer) = (0f32, [0f32; 256]);
    for x in x.chunks(256) {
        for (e, x) in buffer.iter_mut().zip(x) {
            *e = exp::<FMA>(*x - top);
        }
        total += sum_body::<FMA>(&buffer[..x.len()]);
    }
    let log = total.ln();
    for x in x.iter_mut() {
        // In this order: the difference to the top is exact where it matters.
        *x = (*x - top) - log;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;
    use crate::quant::tests::Random;

    #[test]
    fn softmax_matches_f64() {
        let mut random = Random(11);
        for isa in Isa::supported() {
            for n in [1usize, 2, 31, 32, 33, 257, 1000, 49_152] {
                for scale in [1.0, 50.0, 1e4] {
                    let mut x = random.vec(n, scale);
                    if n > 2 {
                        x[n / 2] = f32::NEG_INFINITY;
                    }
                    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let e: Vec<f64> = x.iter().map(|&v| (f64::from(v) - f64::from(top)).exp()).collect();
                    let sum: f64 = e.iter().sum();
                    let (mut soft, mut log) = (x.clone(), x.clone());
                    softmax(isa, &mut soft);
                    log_softmax(isa, &mut log);
                    for i in 0..n {
                        let want = e[i] / sum;
                        let error = (f64::from(soft[i]) - want).abs();
                        // The difference to the largest rounds to half a place, and the exponential magnifies that.
                        let away = if want > 0.0 { f64::from(top - x[i]) } else { 0.0 };
                        assert!(
                            error <= (2e-6 + 1.2e-7 * away) * want + 1e-40,
                            "{isa:?} {n} {scale}: {} {want}",
                            soft[i]
                        );
                        let want = f64::from(x[i]) - f64::from(top) - sum.ln();
                        let error = (f64::from(log[i]) - want).abs();
                        assert!(error <= 2e-6 * want.abs().max(1.0) || f64::from(log[i]) == want, "{} {want}", log[i]);
                    }
                }
            }
            let mut masked = [f32::NEG_INFINITY; 40];
            softmax(isa, &mut masked);
            assert!(masked.iter().all(|v| v.is_nan()));
            let mut lost = [0.0, f32::NAN, 1.0];
            softmax(isa, &mut lost);
            assert!(lost.iter().all(|v| v.is_nan()));
            softmax(isa, &mut []);
        }
    }
}
