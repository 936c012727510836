//! dot, axpy, sum, max, min, argmax over slices.

use crate::multiversion::fma;

/// Lanes that reductions keep apart: two vectors of the widest kind, four of AVX2's.
pub(crate) const LANES: usize = 32;

/// The sum of a power of two of lanes, halving each time.
///
/// The black box makes the compiler put the lanes in memory as whole vectors. Without it, the halving below is what
/// it vectorises the caller's loop for, with two lanes a vector.
#[inline(always)]
pub(crate) fn sum_lanes<const N: usize>(lanes: &[f32; N]) -> f32 {
    let mut lanes = *std::hint::black_box(lanes);
    let mut n = N;
    while n > 1 {
        n /= 2;
        for i in 0..n {
            lanes[i] += lanes[i + n];
        }
    }
    lanes[0]
}

multiversion! {
    /// The sum of a_i * b_i over the shorter length.
    pub fn dot(a: &[f32], b: &[f32]) -> f32 = dot_body;
    /// y_i += a * x_i over the shorter length.
    pub fn axpy(a: f32, x: &[f32], y: &mut [f32]) = axpy_body;
    /// total_i += x_i, and x_i becomes 0.
    pub(crate) fn carry(x: &mut [f32], total: &mut [f64]) = carry_body;
    /// The sum, in 32 separate lanes: more exact than one running sum.
    pub fn sum(x: &[f32]) -> f32 = sum_body;
    /// The sums of slices of one length, each the very number that [`sum`] gives. Rows are read side by side: each is a
    /// stream of its own to the prefetcher, and several keep memory busier than one.
    pub(crate) fn sums(x: [&[f32]; 4]) -> [f32; 4] = sums_body;
    /// The largest value; NaN if there is one; negative infinity for an empty slice.
    pub fn max(x: &[f32]) -> f32 = max_body;
    /// The smallest value; NaN if there is one; infinity for an empty slice.
    pub fn min(x: &[f32]) -> f32 = min_body;
    /// The index of the first largest value; of the first NaN if there is one, as in PyTorch. `None` for an empty slice.
    pub fn argmax(x: &[f32]) -> Option<usize> = argmax_body;
    /// The index of the first smallest value; of the first NaN if there is one. `None` for an empty slice.
    pub fn argmin(x: &[f32]) -> Option<usize> = argmin_body;
    /// Value `at` of each of several rows meets the best of those before it.
    pub(crate) fn arg_columns(x: &[f32], at: u32, smallest: bool, best: &mut [f32], index: &mut [u32]) = arg_columns_body;
}

#[inline(always)]
pub(crate) fn dot_body<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len().min(b.len());
    let ((a, a_rest), (b, b_rest)) = (a[..n].as_chunks::<LANES>(), b[..n].as_chunks::<LANES>());
    let mut acc = [0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            acc[i] = fma::<FMA>(a[i], b[i], acc[i]);
        }
    }
    let mut total = sum_lanes(&acc);
    for (a, b) in a_rest.iter().zip(b_rest) {
        total = fma::<FMA>(*a, *b, total);
    }
    total
}

#[inline(always)]
fn carry_body<const FMA: bool>(x: &mut [f32], total: &mut [f64]) {
    for (x, total) in x.iter_mut().zip(total) {
        *total += f64::from(*x);
        *x = 0.0;
    }
}

#[inline(always)]
pub(crate) fn axpy_body<const FMA: bool>(a: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = fma::<FMA>(a, *x, *y);
    }
}

/// Adds whole chunks to the lanes, and gives the values that are left over.
#[inline(always)]
fn add_chunks<'a>(acc: &mut [f32; LANES], x: &'a [f32]) -> &'a [f32] {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut lanes = *acc;
    for x in x {
        for i in 0..LANES {
            lanes[i] += x[i];
        }
    }
    *acc = lanes;
    rest
}

#[inline(always)]
pub(crate) fn sum_body<const FMA: bool>(x: &[f32]) -> f32 {
    let mut acc = [0f32; LANES];
    let rest = add_chunks(&mut acc, x);
    rest.iter().fold(sum_lanes(&acc), |a, b| a + b)
}

#[inline(always)]
fn sums_body<const FMA: bool>(x: [&[f32]; 4]) -> [f32; 4] {
    const STRETCH: usize = 2 * LANES;
    let whole = x.iter().map(|x| x.len()).min().unwrap_or(0) / STRETCH * STRETCH;
    let mut acc = [[0f32; LANES]; 4];
    for at in (0..whole).step_by(STRETCH) {
        for (acc, x) in acc.iter_mut().zip(x) {
            add_chunks(acc, &x[at..at + STRETCH]);
        }
    }
    std::array::from_fn(|i| {
        let rest = add_chunks(&mut acc[i], &x[i][whole..]);
        rest.iter().fold(sum_lanes(&acc[i]), |a, b| a + b)
    })
}

/// The larger of the two; NaN wins.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    // A NaN in `a` stays, because no comparison with it holds; one in `b` is taken by the second condition.
    if b > a || b.is_nan() { b } else { a }
}

#[inline(always)]
pub(crate) fn max_body<const FMA: bool>(x: &[f32]) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut acc = [f32::NEG_INFINITY; LANES];
    for x in x {
        for i in 0..LANES {
            acc[i] = larger(acc[i], x[i]);
        }
    }
    rest.iter().chain(&acc).copied().fold(f32::NEG_INFINITY, larger)
}

#[inline(always)]
pub(crate) fn min_body<const FMA: bool>(x: &[f32]) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut acc = [f32::INFINITY; LANES];
    for x in x {
        for i in 0..LANES {
            acc[i] = -larger(-acc[i], -x[i]);
        }
    }
    -rest.iter().chain(&acc).map(|v| -v).fold(f32::NEG_INFINITY, larger)
}

/// Values among which a winner is looked for, once it is known that they have one.
const STRETCH: usize = 256;

/// The index of the first value that `top` says is a stretch's best, of those stretches the first one whose best beats all
/// before it.
#[inline(always)]
fn first_best(x: &[f32], top: impl Fn(&[f32]) -> f32, beats: impl Fn(f32, f32) -> bool) -> Option<usize> {
    let (mut best, mut stretch) = (*x.first()?, 0);
    for (i, x) in x.chunks(STRETCH).enumerate() {
        let own = top(x);
        if own.is_nan() {
            return x.iter().position(|v| v.is_nan()).map(|at| i * STRETCH + at);
        }
        if beats(own, best) {
            (best, stretch) = (own, i);
        }
    }
    let from = stretch * STRETCH;
    x[from..].iter().position(|&v| v == best).map(|at| from + at)
}

#[inline(always)]
fn argmax_body<const FMA: bool>(x: &[f32]) -> Option<usize> {
    first_best(x, max_body::<FMA>, |a, b| a > b)
}

#[inline(always)]
fn argmin_body<const FMA: bool>(x: &[f32]) -> Option<usize> {
    first_best(x, min_body::<FMA>, |a, b| a < b)
}

/// Takes value `at` of each of several rows: `best` is the largest (or smallest) value of each so far, a NaN if there was
/// one, and `index` its position.
#[inline(always)]
fn arg_columns_body<const FMA: bool>(x: &[f32], at: u32, smallest: bool, best: &mut [f32], index: &mut [u32]) {
    // Without branches, so that several rows are compared at once.
    for ((best, index), &x) in best.iter_mut().zip(index).zip(x) {
        let better = if smallest { x < *best } else { x > *best };
        let wins = (at == 0) | (!best.is_nan() & (x.is_nan() | better));
        *best = if wins { x } else { *best };
        *index = if wins { at } else { *index };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn reductions_match_f64_on_every_isa() {
        for isa in Isa::supported() {
            for n in [0usize, 1, 7, 31, 32, 33, 100, 577] {
                let a: Vec<f32> = (0..n).map(|i| ((i * 7919 + 3) % 101) as f32 / 50.0 - 1.0).collect();
                let b: Vec<f32> = (0..n).map(|i| ((i * 104_729 + 5) % 89) as f32 / 40.0 - 1.0).collect();
                let want: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                assert!((f64::from(dot(isa, &a, &b)) - want).abs() < 1e-4, "{isa:?} {n}");
                let want: f64 = a.iter().map(|a| f64::from(*a)).sum();
                assert!((f64::from(sum(isa, &a)) - want).abs() < 1e-4);
                let rows = [&a[..], &b[..], &b[..n / 2], &a[n / 2..]];
                assert_eq!(sums(isa, rows), rows.map(|row| sum(isa, row)));
                let top = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                assert_eq!(max(isa, &a), top);
                assert_eq!(min(isa, &a), a.iter().copied().fold(f32::INFINITY, f32::min));
                assert_eq!(argmax(isa, &a), a.iter().position(|&v| v == top));
                let mut y = b.clone();
                axpy(isa, 0.5, &a, &mut y);
                assert!(y.iter().zip(&a).zip(&b).all(|((y, a), b)| (y - (0.5 * a + b)).abs() < 1e-6));
            }
        }
    }

    #[test]
    fn nan_wins_everywhere() {
        for isa in Isa::supported() {
            for at in (0..70).chain([STRETCH - 1, STRETCH, 3 * STRETCH]) {
                let mut x = [1.0f32; 3 * STRETCH + 1];
                x[3 * STRETCH - at / 2] = f32::INFINITY;
                x[at] = f32::NAN;
                assert!(max(isa, &x).is_nan() && min(isa, &x).is_nan());
                assert_eq!((argmax(isa, &x), argmin(isa, &x)), (Some(at), Some(at)));
            }
            assert_eq!(argmax(isa, &[f32::NEG_INFINITY; 3]), Some(0));
        }
    }
}
