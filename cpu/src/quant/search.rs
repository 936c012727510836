//! Scales that lose least: a few steps are tried around the one that the extremes give, each with the least-squares scale for the
//! quants that it rounds to. The weights of the errors, and how many steps are tried, are those of llama.cpp's k-quants.

/// Below this, all is zero.
const TINY: f32 = 1e-15;

/// The scale d of x = d * q for q in -n..n, errors weighted by x^2 or by these weights, one per element.
pub fn symmetric(x: &[f32], n: i32, weights: Option<&[f32]>) -> f32 {
    let extreme = x.iter().copied().fold(0.0f32, |a, b| if b.abs() > a.abs() { b } else { a });
    if extreme.abs() < TINY {
        return 0.0;
    }
    // The extreme becomes -n where no element has a weight.
    let (mut scale, mut best) = (extreme / -n as f32, 0.0);
    for step in -9..=9 {
        let inverse = -(n as f32 + 0.1 * step as f32) / extreme;
        let (mut xq, mut qq) = (0f32, 0f32);
        for (i, &x) in x.iter().enumerate() {
            let q = (x * inverse).round().clamp(-n as f32, n as f32 - 1.0);
            let weight = weights.map_or(x * x, |weights| weights[i]);
            xq += weight * x * q;
            qq += weight * q * q;
        }
        if qq > 0.0 && xq * xq > best * qq {
            scale = xq / qq;
            best = scale * xq;
        }
    }
    scale
}

/// How [`affine`] tries: largest quant, offset of the first step and steps, and what an error weighs beside |x|.
pub struct Affine {
    /// The largest quant.
    pub n: f32,
    /// Added to it for the first step; each further one adds 0.1.
    pub first: f32,
    /// Steps after the first.
    pub steps: usize,
    /// Errors weigh |x| plus the root of the mean square, and are squared; else |x|, and are not.
    pub squared: bool,
}

/// The scale d and the minimum m, not below 0, of x = d * q - m for q in 0..=n. With weights, one per element, errors weigh those
/// and are squared.
pub fn affine(x: &[f32], by: &Affine, weights: Option<&[f32]>) -> (f32, f32) {
    let (low, high) = x.iter().fold((0f32, f32::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)));
    if high <= low {
        return (0.0, -low);
    }
    let mean = (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt();
    let squared = by.squared || weights.is_some();
    let weight = |i: usize, x: f32| match weights {
        Some(weights) => weights[i],
        None if by.squared => mean + x.abs(),
        None => x.abs(),
    };
    let quant = |x: f32, inverse: f32| (inverse * (x - low)).round().clamp(0.0, by.n);
    let loss = |inverse: f32, d: f32, m: f32| -> f32 {
        let error = |x: f32| d * quant(x, inverse) + m - x;
        let loss = |x: f32| if squared { error(x).powi(2) } else { error(x).abs() };
        x.iter().enumerate().map(|(i, &x)| weight(i, x) * loss(x)).sum()
    };
    let inverse = by.n / (high - low);
    let (mut d, mut m) = (1.0 / inverse, low);
    let mut best = loss(inverse, d, m);
    for step in 0..=by.steps {
        let inverse = (by.n + by.first + 0.1 * step as f32) / (high - low);
        let [mut w, mut wq, mut wqq, mut wx, mut wxq] = [0f32; 5];
        for (i, &x) in x.iter().enumerate() {
            let (q, weight) = (quant(x, inverse), weight(i, x));
            w += weight;
            wq += weight * q;
            wqq += weight * q * q;
            wx += weight * x;
            wxq += weight * x * q;
        }
        let det = w * wqq - wq * wq;
        if det <= 0.0 {
            continue;
        }
        let (mut this_d, mut this_m) = ((w * wxq - wx * wq) / det, (wqq * wx - wq * wxq) / det);
        if this_m > 0.0 {
            (this_d, this_m) = (wxq / wqq, 0.0);
        }
        let this = loss(inverse, this_d, this_m);
        if this < best {
            (best, d, m) = (this, this_d, this_m);
        }
    }
    (d, -m)
}
