//! Linear algebra on square and rectangular matrices: [`inverse`], [`solve`], determinants, [`cholesky`], [`qr`], [`svd`],
//! [`eigh`], and what is made of them: [`pinv`], [`lstsq`], [`matrix_power`], [`matrix_norm`].
//!
//! All take tensors [..., rows, columns] and work on each matrix of the leading axes. F32 and F64 are taken; other dtypes are
//! refused (convert with `to_dtype`). Numbers are computed in f64 whatever the dtype.
//!
//! # Where it runs
//! On the CPU, by the crate `faer`, on one thread. Operands that live on another device travel there, and the result travels
//! back. Like every operation it is lazy: the call only records it. The work, the two copies and any error that depends on
//! the numbers (a singular matrix) come when the result is read; the error names the operation and the matrix's place in the
//! batch. In a browser read with the `_async` functions, as always.
//!
//! # Gradients
//! Each has one, by the formulas of Giles (2008) and Townsend (2016), made of tensor operations, so that higher derivatives exist.
//! Singular vectors and eigenvectors are not unique where values repeat: their gradients are then infinite or NaN, as in
//! PyTorch. They are right only for results that do not depend on the vectors' signs.
//!
//! ```
//! use tallow::{Device, Tensor, linalg};
//! let a = Tensor::new([[4f64, 1.], [2., 3.]], &Device::Cpu)?;
//! let b = Tensor::new([[1f64], [2.]], &Device::Cpu)?;
//! let x = linalg::solve(&a, &b)?;
//! assert!((a.matmul(&x)? - &b)?.abs()?.max_all()?.to_scalar::<f64>()? < 1e-12);
//! assert!((linalg::det(&a)?.to_scalar::<f64>()? - 10.0).abs() < 1e-12);
//! # Ok::<(), tallow::Error>(())
//! ```

mod derived;
mod gradients;
mod host;
mod masks;
mod node;

pub use derived::{MatrixNorm, lstsq, matrix_norm, matrix_power, pinv};

use crate::{DType, Error, Result, Shape, Tensor, autograd::Keep};
use node::HostOp;

static INVERSE: HostOp = HostOp::new("inverse", host::inverse);
static SOLVE: HostOp = HostOp::new("solve", host::solve);
static SOLVE_TRIANGULAR: HostOp = HostOp::new("solve_triangular", host::solve_triangular);
static SLOGDET: HostOp = HostOp::new("slogdet", host::slogdet);
static CHOLESKY: HostOp = HostOp::new("cholesky", host::cholesky);
static QR: HostOp = HostOp::new("qr", host::qr);
static SVD: HostOp = HostOp::new("svd", host::svd);
static EIGH: HostOp = HostOp::new("eigh", host::eigh);

/// Rows and columns of a matrix in a dtype that is computed.
fn matrix(op: &'static str, a: &Tensor) -> Result<(usize, usize)> {
    if !matches!(a.dtype(), DType::F32 | DType::F64) {
        let message = format!("takes F32 or F64, not {}: convert with to_dtype", a.dtype());
        return Err(Error::op(op, message));
    }
    match a.dims() {
        // A result holds at most three times the larger size squared.
        &[.., rows, cols] if rows.max(cols).checked_pow(2).and_then(|n| n.checked_mul(4)).is_some() => Ok((rows, cols)),
        [.., rows, cols] => Err(Error::op(op, format!("{rows} x {cols} is more than can be addressed"))),
        other => Err(Error::op(op, format!("takes matrices [..., rows, columns], not {other:?}"))),
    }
}

/// The size of a square matrix.
fn square(op: &'static str, a: &Tensor) -> Result<usize> {
    match matrix(op, a)? {
        (n, m) if n == m => Ok(n),
        (n, m) => Err(Error::op(op, format!("takes square matrices, not {n} x {m}"))),
    }
}

/// A part [..., rows * cols] from `start` of results [..., size], as [..., rows, cols].
fn part(packed: &Tensor, start: usize, rows: usize, cols: usize) -> Result<Tensor> {
    let last = packed.rank() - 1;
    let lead = packed.dims()[..last].iter().copied();
    let shape: Shape = lead.chain([rows, cols]).collect();
    packed.narrow(last, start, rows * cols)?.reshape(shape)
}

/// A part [..., len] from `start` of results [..., size].
fn vector(packed: &Tensor, start: usize, len: usize) -> Result<Tensor> {
    packed.narrow(packed.rank() - 1, start, len)
}

/// The inverse of square matrices. A singular one is an error when the result is read.
pub fn inverse(a: &Tensor) -> Result<Tensor> {
    let n = square("inverse", a)?;
    let input = a.input();
    let packed = INVERSE.on_host(&[&a.detach()], &[], n * n)?;
    let y = packed.reshape(a.shape())?;
    Ok(y.recorded("inverse", &[&input], &[Keep::OUTPUT], gradients::inverse))
}

/// The two operands of a system, checked: rows of A, columns of B.
fn system(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(usize, usize)> {
    let n = square(op, a)?;
    let (rows, cols) = matrix(op, b)?;
    let lead = |t: &Tensor| t.dims()[..t.rank() - 2].to_vec();
    if rows != n || lead(a) != lead(b) || a.dtype() != b.dtype() || !a.device().same_device(b.device()) {
        let message =
            format!("A {a:?} and B {b:?} do not fit: B is [..., {n}, k] with the same leading axes, dtype and device");
        return Err(Error::op(op, message));
    }
    Ok((n, cols))
}

/// X with A X = B, for square A [..., n, n] and B [..., n, k] with equal leading axes. A singular A is an error when the
/// result is read.
pub fn solve(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (n, k) = system("solve", a, b)?;
    let (left, right) = (a.input(), b.input());
    let x = SOLVE.on_host(&[&a.detach(), &b.detach()], &[], n * k)?.reshape(b.shape())?;
    let needs = Keep::input(0);
    Ok(x.recorded("solve", &[&left, &right], &[needs.and(Keep::OUTPUT), needs], |saved, grad| {
        let a = saved.input(0)?;
        // dB = A^-T G, dA = -dB X^T.
        let of_b = solve(&a.t()?, grad)?;
        saved.each(|i| if i == 1 { Ok(of_b.clone()) } else { of_b.matmul(&saved.output()?.t()?)?.neg() })
    }))
}

/// X with A X = B for triangular A: with `upper` its upper triangle is read, else its lower one; with `unit` its diagonal is
/// taken as 1.
pub fn solve_triangular(a: &Tensor, b: &Tensor, upper: bool, unit: bool) -> Result<Tensor> {
    let (n, k) = system("solve_triangular", a, b)?;
    let (left, right) = (a.input(), b.input());
    let flags = [f64::from(u8::from(upper)), f64::from(u8::from(unit))];
    let x = SOLVE_TRIANGULAR.on_host(&[&a.detach(), &b.detach()], &flags, n * k)?.reshape(b.shape())?;
    let needs = Keep::input(0);
    Ok(x.recorded("solve_triangular", &[&left, &right], &[needs.and(Keep::OUTPUT), needs], move |saved, grad| {
        let a = saved.input(0)?;
        let of_b = solve_triangular(&a.t()?, grad, !upper, unit)?;
        saved.each(|i| {
            if i == 1 {
                return Ok(of_b.clone());
            }
            // Only what was read has a gradient.
            let whole = of_b.matmul(&saved.output()?.t()?)?.neg()?;
            let mask = masks::triangle(n, upper, !unit, &whole)?;
            whole.broadcast_mul(&mask)
        })
    }))
}

/// The sign of the determinant of square matrices (0 for a singular one) and the logarithm of its absolute value (-inf), both
/// [...]. The gradient goes through the logarithm, and needs an invertible matrix.
pub fn slogdet(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let packed = packed_slogdet("slogdet", a)?;
    let last = packed.rank() - 1;
    // The sign is constant wherever it has a derivative.
    Ok((packed.get_on_dim(last, 0)?.detach(), packed.get_on_dim(last, 1)?))
}

fn packed_slogdet(op: &'static str, a: &Tensor) -> Result<Tensor> {
    square(op, a)?;
    let input = a.input();
    let packed = SLOGDET.on_host(&[&a.detach()], &[], 2)?;
    Ok(packed.recorded("slogdet", &[&input], &[Keep::input(0)], |saved, grad| {
        // d log |det A| = tr(A^-1 dA)
        let of_log = grad.narrow(grad.rank() - 1, 1, 1)?.unsqueeze(grad.rank())?;
        saved.each(|_| inverse(&saved.input(0)?)?.t()?.broadcast_mul(&of_log))
    }))
}

/// The determinant of square matrices: [...]. The gradient needs an invertible matrix.
pub fn det(a: &Tensor) -> Result<Tensor> {
    let packed = packed_slogdet("det", a)?;
    let last = packed.rank() - 1;
    packed.get_on_dim(last, 0)?.detach() * packed.get_on_dim(last, 1)?.exp()?
}

/// The lower triangular L with a positive diagonal and L L^T = A. A must be symmetric and positive definite: its lower triangle
/// is read, and a matrix that is not is an error when the result is read. The gradient is that of a symmetric matrix.
pub fn cholesky(a: &Tensor) -> Result<Tensor> {
    let n = square("cholesky", a)?;
    let input = a.input();
    let l = CHOLESKY.on_host(&[&a.detach()], &[], n * n)?.reshape(a.shape())?;
    Ok(l.recorded("cholesky", &[&input], &[Keep::OUTPUT], gradients::cholesky))
}

/// The reduced factors of A [..., m, n]: Q [..., m, k] with orthonormal columns and the upper triangular R [..., k, n], Q R = A,
/// k the smaller of m and n. The signs of R's diagonal are not fixed.
pub fn qr(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let (m, n) = matrix("qr", a)?;
    let k = m.min(n);
    let input = a.input();
    let packed = QR.on_host(&[&a.detach()], &[], m * k + k * n)?;
    let packed = packed.recorded("qr", &[&input], &[Keep::OUTPUT.and(Keep::input(0))], move |saved, grad| {
        gradients::qr(saved, grad, m, n)
    });
    Ok((part(&packed, 0, m, k)?, part(&packed, m * k, k, n)?))
}

/// The reduced singular value decomposition of A [..., m, n]: U [..., m, k], S [..., k], V^T [..., k, n] with
/// U diag(S) V^T = A, k the smaller of m and n. Columns of U and V are orthonormal, S descends and is not negative. The sign
/// of each pair of vectors is not fixed. A matrix with NaN or infinity is an error when a result is read.
pub fn svd(a: &Tensor) -> Result<(Tensor, Tensor, Tensor)> {
    let (m, n) = matrix("svd", a)?;
    let k = m.min(n);
    let input = a.input();
    let packed = SVD.on_host(&[&a.detach()], &[], m * k + k + k * n)?;
    let packed =
        packed.recorded("svd", &[&input], &[Keep::OUTPUT], move |saved, grad| gradients::svd(saved, grad, m, n));
    Ok((part(&packed, 0, m, k)?, vector(&packed, m * k, k)?, part(&packed, m * k + k, k, n)?))
}

/// The singular values of A [..., m, n], in descending order: [..., k].
pub fn svdvals(a: &Tensor) -> Result<Tensor> {
    Ok(svd(a)?.1)
}

/// Eigenvalues [..., n] in ascending order and orthonormal eigenvectors [..., n, n], as columns, of symmetric matrices, whose
/// lower triangle is read. The sign of each vector is not fixed. A matrix with NaN or infinity is an error when a result is read.
/// The gradient is that of a symmetric matrix.
pub fn eigh(a: &Tensor) -> Result<(Tensor, Tensor)> {
    let n = square("eigh", a)?;
    let input = a.input();
    let packed = EIGH.on_host(&[&a.detach()], &[], n + n * n)?;
    let packed =
        packed.recorded("eigh", &[&input], &[Keep::OUTPUT], move |saved, grad| gradients::eigh(saved, grad, n));
    Ok((vector(&packed, 0, n)?, part(&packed, n, n, n)?))
}
