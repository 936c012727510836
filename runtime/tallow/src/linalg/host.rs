//! The factorizations themselves: pure functions over f64 matrices on the host, by the crate `faer`.

use crate::Result;
use faer::{Mat, MatRef, Side, linalg::solvers::DenseSolveCore, prelude::Solve};

/// A matrix in row-major order.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    pub rows: usize,
    pub cols: usize,
    pub values: &'a [f64],
}

impl Matrix<'_> {
    fn load(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice(self.values, self.rows, self.cols)
    }

    fn is_finite(&self) -> bool {
        self.values.iter().all(|v| v.is_finite())
    }
}

/// Computes results, one after another in `out`, from matrices and numbers. The error says what is wrong with the matrix.
pub(super) type Solver = fn(&[Matrix<'_>], &[f64], &mut [f64]) -> Result<(), &'static str>;

const SINGULAR: &str = "is singular";
const NOT_FINITE: &str = "holds NaN or infinity";
const NO_CONVERGENCE: &str = "could not be decomposed: the iteration did not converge";

/// Writes results in row-major order.
struct Writer<'a>(&'a mut [f64]);

impl Writer<'_> {
    fn number(&mut self, value: f64) {
        if let Some((place, rest)) = std::mem::take(&mut self.0).split_first_mut() {
            *place = value;
            self.0 = rest;
        }
    }

    fn matrix(&mut self, m: MatRef<'_, f64>) {
        for i in 0..m.nrows() {
            for j in 0..m.ncols() {
                self.number(m[(i, j)]);
            }
        }
    }
}

/// (A) -> its inverse.
pub(super) fn inverse(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a] = inputs else { return Err("is missing") };
    let lu = a.load().partial_piv_lu();
    if has_zero_pivot(lu.U()) {
        return Err(SINGULAR);
    }
    Writer(out).matrix(lu.inverse().as_ref());
    Ok(())
}

fn has_zero_pivot(u: MatRef<'_, f64>) -> bool {
    (0..u.nrows().min(u.ncols())).any(|i| u[(i, i)] == 0.0)
}

/// (A, B) -> X with A X = B.
pub(super) fn solve(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a, b] = inputs else { return Err("is missing") };
    let lu = a.load().partial_piv_lu();
    if has_zero_pivot(lu.U()) {
        return Err(SINGULAR);
    }
    let x: Mat<f64> = lu.solve(b.load());
    Writer(out).matrix(x.as_ref());
    Ok(())
}

/// (A, B), [upper, unit] -> X with A X = B, where only one triangle of A is read.
pub(super) fn solve_triangular(inputs: &[Matrix<'_>], flags: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let ([a, b], [upper, unit]) = (inputs, flags) else { return Err("is missing") };
    let (t, unit) = (a.load(), *unit != 0.0);
    if !unit && has_zero_pivot(t) {
        return Err(SINGULAR);
    }
    let mut x = b.load().to_owned();
    match (*upper != 0.0, unit) {
        (true, false) => t.solve_upper_triangular_in_place(&mut x),
        (true, true) => t.solve_unit_upper_triangular_in_place(&mut x),
        (false, false) => t.solve_lower_triangular_in_place(&mut x),
        (false, true) => t.solve_unit_lower_triangular_in_place(&mut x),
    }
    Writer(out).matrix(x.as_ref());
    Ok(())
}

/// (A) -> the sign of its determinant, and the logarithm of the determinant's absolute value.
pub(super) fn slogdet(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a] = inputs else { return Err("is missing") };
    let (mut sign, mut log) = (1.0, 0.0);
    if a.rows > 0 {
        let lu = a.load().partial_piv_lu();
        (0..a.rows).for_each(|i| {
            let pivot = lu.U()[(i, i)];
            sign *= if pivot == 0.0 { 0.0 } else { pivot.signum() };
            log += pivot.abs().ln();
        });
        if is_odd(lu.P().arrays().0) {
            sign = -sign;
        }
    }
    let mut out = Writer(out);
    out.number(sign);
    out.number(log);
    Ok(())
}

/// Whether a permutation is an odd number of swaps.
fn is_odd(permutation: &[usize]) -> bool {
    let mut seen = vec![false; permutation.len()];
    let mut odd = false;
    for start in 0..permutation.len() {
        let mut at = start;
        // A cycle of k places is k - 1 swaps.
        while !seen[at] {
            seen[at] = true;
            at = permutation[at];
            odd ^= at != start;
        }
    }
    odd
}

/// (A) -> the lower triangular L with L L^T = A; the lower triangle of A is read.
pub(super) fn cholesky(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a] = inputs else { return Err("is missing") };
    let llt = a.load().llt(Side::Lower).map_err(|_| "is not positive definite")?;
    let l = llt.L();
    let mut out = Writer(out);
    for i in 0..a.rows {
        (0..a.rows).for_each(|j| out.number(if j <= i { l[(i, j)] } else { 0.0 }));
    }
    Ok(())
}

/// (A) -> Q (m x k), R (k x n), k the smaller of m and n.
pub(super) fn qr(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a] = inputs else { return Err("is missing") };
    let qr = a.load().qr();
    let (q, r) = (qr.compute_thin_Q(), qr.thin_R());
    let mut out = Writer(out);
    out.matrix(q.as_ref());
    for i in 0..a.rows.min(a.cols) {
        (0..a.cols).for_each(|j| out.number(if j >= i { r[(i, j)] } else { 0.0 }));
    }
    Ok(())
}

/// (A) -> U (m x k), the singular values in descending order, V^T (k x n).
pub(super) fn svd(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a] = inputs else { return Err("is missing") };
    if !a.is_finite() {
        return Err(NOT_FINITE);
    }
    let svd = a.load().thin_svd().map_err(|_| NO_CONVERGENCE)?;
    let mut out = Writer(out);
    out.matrix(svd.U());
    svd.S().column_vector().iter().for_each(|&s| out.number(s));
    out.matrix(svd.V().transpose());
    Ok(())
}

/// (A) -> the eigenvalues in ascending order, the eigenvectors as columns; the lower triangle of A is read.
pub(super) fn eigh(inputs: &[Matrix<'_>], _: &[f64], out: &mut [f64]) -> Result<(), &'static str> {
    let [a] = inputs else { return Err("is missing") };
    if !a.is_finite() {
        return Err(NOT_FINITE);
    }
    let eigen = a.load().self_adjoint_eigen(Side::Lower).map_err(|_| NO_CONVERGENCE)?;
    let mut out = Writer(out);
    eigen.S().column_vector().iter().for_each(|&s| out.number(s));
    out.matrix(eigen.U());
    Ok(())
}
