//! Gradients of factorizations (Giles, 2008, 'An extended collection of matrix derivative results'; Townsend, 2016,
//! 'Differentiating the singular value decomposition'; for wide matrices' QR: Roberts and Roberts, 2020). G is always the
//! gradient of what the letter after it names.

use super::{
    masks::{identity, triangle},
    part, solve_triangular, vector,
};
use crate::{
    Result, Tensor,
    autograd::{Grads, Saved},
};

/// -Y^T G Y^T
pub(super) fn inverse(saved: &Saved<'_>, grad: &Tensor) -> Result<Grads> {
    saved.each(|_| {
        let t = saved.output()?.t()?;
        t.matmul(&grad.matmul(&t)?)?.neg()
    })
}

/// The mean of a matrix and its transpose.
fn symmetric(m: &Tensor) -> Result<Tensor> {
    (m + m.t()?)?.affine(0.5, 0.0)
}

/// L^-T phi(L^T G) L^-1, symmetric; phi takes the lower triangle with half the diagonal.
pub(super) fn cholesky(saved: &Saved<'_>, grad: &Tensor) -> Result<Grads> {
    saved.each(|_| {
        let l = saved.output()?;
        let n = l.dim(crate::D::Minus1)?;
        let phi = (triangle(n, false, true, &l)? - identity(n, &l)?.affine(0.5, 0.0)?)?;
        let inner = l.t()?.matmul(grad)?.broadcast_mul(&phi)?;
        let left = solve_triangular(&l.t()?, &inner, true, false)?;
        // (X L^-1)^T = L^-T X^T
        let both = solve_triangular(&l.t()?, &left.t()?, true, false)?;
        symmetric(&both)
    })
}

/// For m >= n, with M = R GR^T - GQ^T Q: (GQ + Q copyltu(M)) R^-T, where copyltu mirrors the lower triangle upwards.
fn tall_qr(q: &Tensor, r: &Tensor, of_q: &Tensor, of_r: &Tensor) -> Result<Tensor> {
    let n = r.dim(crate::D::Minus1)?;
    let m = (r.matmul(&of_r.t()?)? - of_q.t()?.matmul(q)?)?;
    let lower = m.broadcast_mul(&triangle(n, false, true, &m)?)?;
    let below = m.broadcast_mul(&triangle(n, false, false, &m)?)?;
    let inner = (of_q + q.matmul(&(lower + below.t()?)?)?)?;
    // (X R^-T)^T = R^-1 X^T
    solve_triangular(r, &inner.t()?, true, false)?.t()
}

/// A wide matrix is [X Y] with square X = Q U, and R = [U Q^T Y].
pub(super) fn qr(saved: &Saved<'_>, grad: &Tensor, m: usize, n: usize) -> Result<Grads> {
    let k = m.min(n);
    saved.each(|_| {
        let (y, last) = (saved.output()?, grad.rank());
        let (q, r) = (part(&y, 0, m, k)?, part(&y, m * k, k, n)?);
        let (of_q, of_r) = (part(grad, 0, m, k)?, part(grad, m * k, k, n)?);
        // What lies below R's diagonal is zero whatever A is.
        if m >= n {
            return tall_qr(&q, &r, &of_q, &of_r.broadcast_mul(&triangle(n, true, true, &r)?)?);
        }
        let (u, of_u) = (r.narrow(last, 0, m)?, of_r.narrow(last, 0, m)?);
        let (right, of_v) = (saved.input(0)?.narrow(last, m, n - m)?, of_r.narrow(last, m, n - m)?);
        let of_u = of_u.broadcast_mul(&triangle(m, true, true, &r)?)?;
        let of_q = (of_q + right.matmul(&of_v.t()?)?)?;
        let of_left = tall_qr(&q, &u, &of_q, &of_u)?;
        beside(&of_left, &q.matmul(&of_v)?)
    })
}

/// [A B], along the last axis.
fn beside(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Tensor::cat(&[a, b], a.rank() - 1)
}

/// 1 / (x_j - x_i) off the diagonal, 0 on it.
fn differences(x: &Tensor) -> Result<Tensor> {
    let (rank, n) = (x.rank(), x.dim(crate::D::Minus1)?);
    let eye = identity(n, x)?;
    let gaps = x.unsqueeze(rank - 1)?.broadcast_sub(&x.unsqueeze(rank)?)?;
    gaps.broadcast_add(&eye)?.recip()?.broadcast_mul(&eye.affine(-1.0, 1.0)?)
}

/// U ((F o (U^T GU)) + diag(Gw)) U^T, symmetric.
pub(super) fn eigh(saved: &Saved<'_>, grad: &Tensor, n: usize) -> Result<Grads> {
    saved.each(|_| {
        let y = saved.output()?;
        let (w, u) = (vector(&y, 0, n)?, part(&y, n, n, n)?);
        let (of_w, of_u) = (vector(grad, 0, n)?, part(grad, n, n, n)?);
        let turning = differences(&w)?.mul(&u.t()?.matmul(&of_u)?)?;
        let inner = (turning + diagonal(&of_w)?)?;
        symmetric(&u.matmul(&inner)?.matmul(&u.t()?)?)
    })
}

/// [..., n] as diagonal matrices.
fn diagonal(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(x.rank())?.broadcast_mul(&identity(x.dim(crate::D::Minus1)?, x)?)
}

/// With F_ij = 1 / (s_j^2 - s_i^2): U ((F o (U^T GU - GU^T U)) S + S (F o (V^T GV - GV^T V)) + diag(Gs)) V^T, and where U or V
/// is not square, what lies outside of its columns.
pub(super) fn svd(saved: &Saved<'_>, grad: &Tensor, m: usize, n: usize) -> Result<Grads> {
    let k = m.min(n);
    saved.each(|_| {
        let y = saved.output()?;
        let (u, s, vt) = (part(&y, 0, m, k)?, vector(&y, m * k, k)?, part(&y, m * k + k, k, n)?);
        let (of_u, of_s, of_vt) = (part(grad, 0, m, k)?, vector(grad, m * k, k)?, part(grad, m * k + k, k, n)?);
        let (v, of_v) = (vt.t()?, of_vt.t()?);
        let f = differences(&s.sqr()?)?;
        let (row, col) = (s.unsqueeze(s.rank() - 1)?, s.unsqueeze(s.rank())?);
        let skew = |x: &Tensor, of_x: &Tensor| -> Result<Tensor> {
            let p = x.t()?.matmul(of_x)?;
            f.mul(&(&p - p.t()?)?)
        };
        let inner = (skew(&u, &of_u)?.broadcast_mul(&row)? + skew(&v, &of_v)?.broadcast_mul(&col)?)?;
        let mut of_a = u.matmul(&(inner + diagonal(&of_s)?)?)?.matmul(&vt)?;
        // (1 - X X^T) G
        let outside = |x: &Tensor, of_x: &Tensor| -> Result<Tensor> { of_x - x.matmul(&x.t()?.matmul(of_x)?)? };
        if m > k {
            let left = outside(&u, &of_u)?.broadcast_div(&row)?;
            of_a = (of_a + left.matmul(&vt)?)?;
        }
        if n > k {
            let right = outside(&v, &of_v)?.broadcast_div(&row)?;
            of_a = (of_a + u.matmul(&right.t()?)?)?;
        }
        Ok(of_a)
    })
}
