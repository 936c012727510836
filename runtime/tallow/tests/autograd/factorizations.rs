//! Matrix factorizations. Where vectors are free to change sign, only what does not change with them is looked at.

use crate::check::{Row, check};
use tallow::{D, Result, Tensor, linalg};

/// x with n on the diagonal: far from singular, with distinct values.
fn strong(x: &Tensor) -> Result<Tensor> {
    let (m, n) = (x.dim(D::Minus2)?, x.dim(D::Minus1)?);
    let heights = (0..m * n).map(|at| if at / n == at % n { 2.0 + 1.5 * (at / n) as f64 } else { 0.0 });
    let heights: Vec<f64> = heights.collect();
    let diagonal = Tensor::from_slice(&heights, (m, n), &tallow::Device::Cpu)?;
    x.broadcast_add(&diagonal.to_dtype(x.dtype())?.to_device(x.device())?)
}

fn positive(x: &Tensor) -> Result<Tensor> {
    let x = strong(x)?;
    x.matmul(&x.t()?)
}

#[test]
fn systems_and_determinants() {
    let square: &[&[usize]] = &[&[2, 3, 3]];
    let system: &[&[usize]] = &[&[2, 3, 3], &[2, 3, 2]];
    check(&[
        Row::new("inverse", square, -1.0..1.0, |x| linalg::inverse(&strong(&x[0])?)),
        Row::new("solve", system, -1.0..1.0, |x| linalg::solve(&strong(&x[0])?, &x[1])),
        Row::new("solve lower", system, -1.0..1.0, |x| linalg::solve_triangular(&strong(&x[0])?, &x[1], false, false)),
        Row::new("solve upper unit", system, -1.0..1.0, |x| linalg::solve_triangular(&x[0], &x[1], true, true)),
        Row::new("det", square, -1.0..1.0, |x| linalg::det(&strong(&x[0])?)),
        Row::new("slogdet", square, -1.0..1.0, |x| Ok(linalg::slogdet(&strong(&x[0])?)?.1)),
        Row::new("matrix_power", square, -1.0..1.0, |x| linalg::matrix_power(&strong(&x[0])?, -2)),
    ]);
}

#[test]
fn cholesky_and_qr() {
    check(&[
        Row::new("cholesky", &[&[2, 3, 3]], -1.0..1.0, |x| linalg::cholesky(&positive(&x[0])?)),
        Row::new("qr q tall", &[&[2, 4, 3]], -1.0..1.0, |x| Ok(linalg::qr(&strong(&x[0])?)?.0)),
        Row::new("qr r tall", &[&[2, 4, 3]], -1.0..1.0, |x| Ok(linalg::qr(&strong(&x[0])?)?.1)),
        Row::new("qr q wide", &[&[2, 3, 4]], -1.0..1.0, |x| Ok(linalg::qr(&strong(&x[0])?)?.0)),
        Row::new("qr r wide", &[&[2, 3, 4]], -1.0..1.0, |x| Ok(linalg::qr(&strong(&x[0])?)?.1)),
        Row::new("qr both", &[&[2, 3, 3]], -1.0..1.0, |x| {
            let (q, r) = linalg::qr(&strong(&x[0])?)?;
            q.matmul(&r.sqr()?)
        }),
    ]);
}

#[test]
fn spectra() {
    let shapes: [(&str, &[&[usize]]); 3] =
        [("square", &[&[2, 3, 3]]), ("tall", &[&[2, 4, 3]]), ("wide", &[&[2, 3, 4]])];
    let mut rows = Vec::new();
    for (_, shape) in shapes {
        rows.push(Row::new("svd values", shape, -1.0..1.0, |x| linalg::svdvals(&strong(&x[0])?)));
        rows.push(Row::new("svd left", shape, -1.0..1.0, |x| linalg::svd(&strong(&x[0])?)?.0.sqr()));
        rows.push(Row::new("svd right", shape, -1.0..1.0, |x| linalg::svd(&strong(&x[0])?)?.2.sqr()));
        rows.push(Row::new("svd all", shape, -1.0..1.0, |x| {
            let (u, s, vt) = linalg::svd(&strong(&x[0])?)?;
            u.broadcast_mul(&s.sqr()?.unsqueeze(1)?)?.matmul(&vt)
        }));
        rows.push(Row::new("pinv", shape, -1.0..1.0, |x| linalg::pinv(&strong(&x[0])?, None)));
    }
    rows.push(Row::new("eigh values", &[&[2, 3, 3]], -1.0..1.0, |x| Ok(linalg::eigh(&positive(&x[0])?)?.0)));
    rows.push(Row::new("eigh vectors", &[&[2, 3, 3]], -1.0..1.0, |x| {
        let (w, v) = linalg::eigh(&positive(&x[0])?)?;
        v.sqr()?.broadcast_mul(&w.unsqueeze(1)?.sqrt()?)
    }));
    check(&rows);
}
