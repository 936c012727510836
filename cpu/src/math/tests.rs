//! Every function against f64, over sweeps of all magnitudes and random bits, on every instruction set.

use super::*;
use crate::Isa;

type Unary = fn(Isa, &[f32], &mut [f32]);

/// Arguments of every kind: the special ones, a dense sweep of the range where most things happen, and random bits.
fn arguments() -> Vec<f32> {
    let mut x = vec![0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.499_999_97, 8_388_607.5, 16_777_216.0];
    x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -1e-45]);
    x.extend((-60_000..60_000).map(|i| i as f32 * 0.002));
    let mut seed = 9u64;
    for _ in 0..300_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x.push(f32::from_bits((seed >> 32) as u32));
    }
    x
}

/// Distance in units of the wanted value's last place.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if rounded.is_nan() || got.is_nan() {
        return if rounded.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if rounded.is_infinite() || got.is_infinite() {
        // One step past the largest is infinity.
        let near = rounded.abs() >= f32::MAX && got.abs() >= f32::MAX && (rounded > 0.0) == (got > 0.0);
        return if rounded == got {
            0.0
        } else if near {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let unit = f64::from(rounded.abs().next_up()) - f64::from(rounded.abs());
    (f64::from(got) - want).abs() / unit
}

/// The error function by its series, or by the continued fraction of its complement.
fn erf_64(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() {
        return x;
    }
    if a > 6.0 {
        return x.signum();
    }
    if a < 3.0 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-18 * f64::abs(sum) {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let mut fraction = 0.0;
    for k in (1..60).rev() {
        fraction = f64::from(k) / 2.0 / (a + fraction);
    }
    let rest = (-a * a).exp() / (std::f64::consts::PI.sqrt() * (a + fraction));
    x.signum() * (1.0 - rest)
}

fn check(name: &str, function: Unary, reference: fn(f64) -> f64, bound: f64) {
    let x = arguments();
    for isa in Isa::supported() {
        let mut out = vec![0.0; x.len()];
        function(isa, &x, &mut out);
        let mut worst = (0.0, 0.0, 0.0);
        for (&x, &got) in x.iter().zip(&out) {
            let error = ulps(got, reference(f64::from(x)));
            if error > worst.0 {
                worst = (error, x, got);
            }
        }
        assert!(worst.0 <= bound, "{name} {}: {} ulp at {:e}, got {:e}", isa.name(), worst.0, worst.1, worst.2);
        println!("{name} {}: {:.2} ulp at {:e}", isa.name(), worst.0, worst.1);
        // Every length, so that the scalar remainder of a vectorised loop is met.
        for n in 0..70 {
            let mut part = vec![7.0f32; n + 1];
            function(isa, &x[20..20 + n], &mut part[..n]);
            let same = part[..n]
                .iter()
                .zip(&out[20..])
                .all(|(a, b)| a == b || (a - b).abs() <= 4.0 * f32::EPSILON * b.abs() || (a.is_nan() && b.is_nan()));
            assert!(same && part[n] == 7.0, "{name} {} n={n}", isa.name());
        }
    }
}

#[test]
fn transcendental_functions_stay_within_4_ulp() {
    check("exp", exp, f64::exp, 2.0);
    check("ln", ln, f64::ln, 2.0);
    check("tanh", tanh, f64::tanh, 3.0);
    check("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 4.0);
    check("silu", silu, |x| x / (1.0 + (-x).exp()), 4.0);
    check("sin", sin, f64::sin, 1.0);
    check("cos", cos, f64::cos, 1.0);
    check("erf", erf, erf_64, 4.0);
}

#[test]
fn gelus_stay_within_a_millionth() {
    let x: Vec<f32> = (-200_000..200_000).map(|i| i as f32 * 0.0001).chain([1e30, f32::MAX, f32::NAN, 0.0]).collect();
    let tanh_form =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x)).tanh());
    let erf_form = |x: f64| 0.5 * x * (1.0 + erf_64(x / 2f64.sqrt()));
    type Reference = fn(f64) -> f64;
    let forms: [(Unary, Reference); 2] = [(gelu, tanh_form), (gelu_erf, erf_form)];
    for isa in Isa::supported() {
        for (function, reference) in forms {
            let mut out = vec![0.0; x.len()];
            function(isa, &x, &mut out);
            for (&x, &got) in x.iter().zip(&out) {
                let want = reference(f64::from(x));
                let error = (f64::from(got) - want).abs();
                assert!(error <= 1e-6 * f64::from(x).abs() || (want.is_nan() && got.is_nan()), "{x}: {got} {want}");
            }
            assert!(out.iter().any(|v| *v < -0.1));
        }
    }
}

#[test]
fn exact_functions_are_exact() {
    check("sqrt", sqrt, f64::sqrt, 0.5);
    check("recip", recip, |x| 1.0 / x, 0.5);
    check("rsqrt", rsqrt, |x| 1.0 / x.sqrt(), 1.5);
    check("neg", neg, |x| -x, 0.0);
    check("abs", abs, f64::abs, 0.0);
    check("sqr", sqr, |x| x * x, 0.5);
    check("floor", floor, f64::floor, 0.0);
    check("ceil", ceil, f64::ceil, 0.0);
    check("round", round, f64::round, 0.0);
    check("relu", relu, |x| if x < 0.0 { 0.0 } else { x }, 0.0);
    check("sign", sign, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }, 0.0);
    for isa in Isa::supported() {
        let (x, mut out) = ([-0.0, -0.3, 0.3, -2.0], [9.0; 4]);
        floor(isa, &x, &mut out);
        assert_eq!(out.map(f32::to_bits), x.map(|v: f32| v.floor().to_bits()));
        round(isa, &x, &mut out);
        assert_eq!(out.map(f32::to_bits), x.map(|v: f32| v.round().to_bits()));
        ceil(isa, &x, &mut out);
        assert_eq!(out.map(f32::to_bits), x.map(|v: f32| v.ceil().to_bits()));
        sin(isa, &x[..1], &mut out[..1]);
        assert_eq!(out[0].to_bits(), (-0.0f32).to_bits());
    }
}

#[test]
fn powers_stay_within_4_ulp() {
    let all = arguments();
    let special =
        [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, -0.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, 7e9];
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for &a in &special {
        for &b in special.iter().chain(&all[..60]) {
            x.extend([a, b]);
            y.extend([b, a]);
        }
    }
    for (i, &a) in all.iter().enumerate() {
        // Exponents that keep most results in range, and whole ones.
        x.push(a);
        y.push(all[(i * 7919) % all.len()] % 8.0);
        x.push(a);
        y.push((i % 13) as f32 - 6.0);
        x.push(a.abs() % 3.0);
        y.push(all[(i * 104_729) % all.len()] % 100.0);
    }
    for isa in Isa::supported() {
        let mut out = vec![0.0; x.len()];
        powf(isa, &x, &y, &mut out);
        for ((&x, &y), &got) in x.iter().zip(&y).zip(&out) {
            let error = ulps(got, f64::from(x).powf(f64::from(y)));
            assert!(error <= 1.0, "{} {x:e}^{y:e} = {got:e}: {error} ulp", isa.name());
        }
    }
}

#[test]
fn arithmetic_and_nan() {
    let a = [1.0, f32::NAN, 3.0, -0.0, f32::INFINITY, 2.0, 5.0];
    let b = [2.0, 1.0, f32::NAN, 0.0, 1.0, 2.0, -5.0];
    for isa in Isa::supported() {
        let mut out = [0.0; 7];
        maximum(isa, &a, &b, &mut out);
        assert!(out[1].is_nan() && out[2].is_nan() && out[0] == 2.0 && out[4] == f32::INFINITY && out[6] == 5.0);
        minimum(isa, &a, &b, &mut out);
        assert!(out[1].is_nan() && out[2].is_nan() && out[0] == 1.0 && out[4] == 1.0 && out[6] == -5.0);
        let (p, q, c) = ([1.5, -2.0, 8.0], [2.0, 0.5, -4.0], [1.0, 1.0, 1.0]);
        let mut out = [0.0; 3];
        add(isa, &p, &q, &mut out);
        assert_eq!(out, [3.5, -1.5, 4.0]);
        sub(isa, &p, &q, &mut out);
        assert_eq!(out, [-0.5, -2.5, 12.0]);
        mul(isa, &p, &q, &mut out);
        assert_eq!(out, [3.0, -1.0, -32.0]);
        div(isa, &p, &q, &mut out);
        assert_eq!(out, [0.75, -4.0, -2.0]);
        mul_add(isa, &p, &q, &c, &mut out);
        assert_eq!(out, [4.0, 0.0, -31.0]);
        affine(isa, &p, 2.0, 1.0, &mut out);
        assert_eq!(out, [4.0, -3.0, 17.0]);
    }
}
