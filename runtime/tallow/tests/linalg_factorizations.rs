//! Matrix factorizations: they put their matrix together again, solve what they were asked, and say what a matrix lacks. On the
//! CPU, and with operands on a WebGPU device where there is one.
#![cfg(feature = "linalg")]

use tallow::{D, DType, Device, Result, Tensor, generation::Philox, linalg};

const CPU: &Device = &Device::Cpu;

fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    all.extend(tallow::block_on(Device::by_name("wgpu")).map_err(|error| eprintln!("skipped: wgpu: {error}")));
    all
}

/// Each device with the dtypes that it has, and what may be off in them.
fn settings() -> Vec<(Device, DType, f64)> {
    let mut all = vec![(Device::Cpu, DType::F64, 1e-12)];
    all.extend(devices().into_iter().map(|d| (d, DType::F32, 2e-5)));
    all
}

fn noise(shape: &[usize], seed: u64, dtype: DType, device: &Device) -> Result<Tensor> {
    let mut random = Philox::new(seed);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| 2.0 * random.next_f64() - 1.0).collect();
    Tensor::from_slice(&values, shape, CPU)?.to_dtype(dtype)?.to_device(device)
}

fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.to_device(CPU)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

#[track_caller]
fn near(got: &Tensor, want: &Tensor, limit: f64) -> Result<()> {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
    let (got, want) = (numbers(got)?, numbers(want)?);
    let off = got.iter().zip(&want).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
    assert!(off < limit && got.iter().all(|v| v.is_finite()), "off by {off:e}:\n{got:?}, not\n{want:?}");
    Ok(())
}

fn eye(n: usize, like: &Tensor) -> Result<Tensor> {
    let one: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i / n == i % n))).collect();
    Tensor::from_slice(&one, (n, n), CPU)?.to_dtype(like.dtype())?.to_device(like.device())
}

fn identities(x: &Tensor) -> Result<Tensor> {
    eye(x.dim(D::Minus1)?, x)?.broadcast_as(x.shape())
}

/// Q^T Q is 1, for columns.
#[track_caller]
fn orthonormal(q: &Tensor, limit: f64) -> Result<()> {
    let product = q.t()?.matmul(q)?;
    near(&product, &identities(&product)?, limit)
}

#[test]
fn inverses_and_solutions() -> Result<()> {
    for (device, dtype, limit) in settings() {
        for n in [1, 2, 5, 20] {
            // Away from singular.
            let a = noise(&[2, 3, n, n], n as u64, dtype, &device)?;
            let a = a.broadcast_add(&(eye(n, &a)? * (n as f64).sqrt())?)?;
            let inverse = linalg::inverse(&a)?;
            near(&a.matmul(&inverse)?, &identities(&a)?, 20.0 * limit)?;
            let b = noise(&[2, 3, n, 4], 9, dtype, &device)?;
            near(&a.matmul(&linalg::solve(&a, &b)?)?, &b, 20.0 * limit)?;
            // A view as an operand.
            near(&a.t()?.matmul(&linalg::solve(&a.t()?, &b)?)?, &b, 20.0 * limit)?;

            let big = a.abs()?.broadcast_add(&eye(n, &a)?)?;
            for (upper, unit) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut t = numbers(&big)?;
                for (at, value) in t.iter_mut().enumerate() {
                    let (i, j) = (at / n % n, at % n);
                    *value = match (i == j, if upper { j > i } else { j < i }) {
                        (true, _) if unit => 1.0,
                        (true, _) => *value,
                        (_, true) => *value / n as f64,
                        _ => 0.0,
                    };
                }
                let read = Tensor::from_slice(&t, big.shape(), CPU)?.to_dtype(dtype)?.to_device(&device)?;
                // What the other triangle holds does not matter, and with `unit` nor does the diagonal.
                let shown = if unit { (&read - identities(&read)?)? } else { read.clone() };
                let mask = shown.ne(&read.zeros_like()?)?;
                let given = mask.where_cond(&read, &read.affine(1.0, 7.0)?)?;
                let x = linalg::solve_triangular(&given, &b, upper, unit)?;
                near(&read.matmul(&x)?, &b, 20.0 * limit)?;
            }
        }
    }
    Ok(())
}

#[test]
fn determinants() -> Result<()> {
    for (device, dtype, limit) in settings() {
        let a = Tensor::new([[[2f64, 1.], [4., 5.]], [[0., 1.], [1., 0.]], [[1., 2.], [2., 4.]]], CPU)?;
        let a = a.to_dtype(dtype)?.to_device(&device)?;
        let want = Tensor::new([6f64, -1., 0.], CPU)?.to_dtype(dtype)?;
        near(&linalg::det(&a)?.to_device(CPU)?, &want, limit)?;
        let (sign, log) = linalg::slogdet(&a)?;
        assert_eq!(numbers(&sign)?, [1., -1., 0.]);
        let log = numbers(&log)?;
        assert!((log[0] - 6f64.ln()).abs() < limit && log[1].abs() < limit && log[2] == f64::NEG_INFINITY, "{log:?}");
    }
    // A product of triangles with a known determinant, and permutations of every cycle.
    let p = Tensor::new([[0f64, 0., 1., 0.], [1., 0., 0., 0.], [0., 1., 0., 0.], [0., 0., 0., 1.]], CPU)?;
    near(&linalg::det(&p)?, &Tensor::new(1f64, CPU)?, 1e-15)?;
    let a = noise(&[6, 6], 4, DType::F64, CPU)?;
    let b = noise(&[6, 6], 5, DType::F64, CPU)?;
    near(&linalg::det(&a.matmul(&b)?)?, &(linalg::det(&a)? * linalg::det(&b)?)?, 1e-12)?;
    assert_eq!(linalg::det(&Tensor::zeros((0, 0), DType::F64, CPU)?)?.to_scalar::<f64>()?, 1.0);
    Ok(())
}

#[test]
fn factors_put_their_matrix_together() -> Result<()> {
    for (device, dtype, limit) in settings() {
        for (m, n) in [(1, 1), (4, 4), (7, 3), (3, 7), (40, 24)] {
            let a = noise(&[3, m, n], (m * n) as u64, dtype, &device)?;
            let k = m.min(n);
            let (q, r) = linalg::qr(&a)?;
            assert_eq!((q.dims(), r.dims()), ([3, m, k].as_slice(), [3, k, n].as_slice()));
            near(&q.matmul(&r)?, &a, limit)?;
            orthonormal(&q, limit)?;
            let below = numbers(&r)?.into_iter().enumerate().filter(|(at, _)| at / n % k > at % n);
            assert!(below.into_iter().all(|(_, v)| v == 0.0));

            let (u, s, vt) = linalg::svd(&a)?;
            assert_eq!(
                (u.dims(), s.dims(), vt.dims()),
                ([3, m, k].as_slice(), [3, k].as_slice(), [3, k, n].as_slice())
            );
            near(&u.broadcast_mul(&s.unsqueeze(1)?)?.matmul(&vt)?, &a, limit)?;
            orthonormal(&u, limit)?;
            orthonormal(&vt.t()?, limit)?;
            let s = numbers(&s)?;
            assert!(s.chunks(k).all(|row| row.is_sorted_by(|a, b| a >= b) && row.iter().all(|&v| v >= 0.0)), "{s:?}");
        }
        for n in [1, 2, 6, 30] {
            let x = noise(&[2, n, n], n as u64, dtype, &device)?;
            let symmetric = (&x + x.t()?)?;
            let (w, v) = linalg::eigh(&symmetric)?;
            near(&v.broadcast_mul(&w.unsqueeze(1)?)?.matmul(&v.t()?)?, &symmetric, limit)?;
            orthonormal(&v, limit)?;
            assert!(numbers(&w)?.chunks(n).all(|row| row.is_sorted()));

            let positive = (x.matmul(&x.t()?)? + identities(&x)?)?;
            let l = linalg::cholesky(&positive)?;
            near(&l.matmul(&l.t()?)?, &positive, 4.0 * limit)?;
            let values = numbers(&l)?;
            assert!(values.iter().enumerate().all(|(at, &v)| match (at / n % n).cmp(&(at % n)) {
                std::cmp::Ordering::Less => v == 0.0,
                std::cmp::Ordering::Equal => v > 0.0,
                std::cmp::Ordering::Greater => true,
            }));
        }
    }
    Ok(())
}

#[test]
fn known_values() -> Result<()> {
    let a = Tensor::new([[3f64, 0.], [4., 5.]], CPU)?;
    let (_, s, _) = linalg::svd(&a)?;
    near(&s, &Tensor::new([45f64.sqrt(), 5f64.sqrt()], CPU)?, 1e-14)?;
    let (w, _) = linalg::eigh(&Tensor::new([[2f64, 99.], [1., 2.]], CPU)?)?;
    near(&w, &Tensor::new([1f64, 3.], CPU)?, 1e-14)?;
    let l = linalg::cholesky(&Tensor::new([[4f64, 99.], [2., 5.]], CPU)?)?;
    near(&l, &Tensor::new([[2f64, 0.], [1., 2.]], CPU)?, 1e-14)?;
    let inverse = linalg::inverse(&Tensor::new([[1f32, 2.], [3., 4.]], CPU)?)?;
    near(&inverse, &Tensor::new([[-2f32, 1.], [1.5, -0.5]], CPU)?, 1e-6)
}

#[test]
fn what_is_made_of_factors() -> Result<()> {
    use linalg::MatrixNorm::{Frobenius, Infinity, Nuclear, One, Spectral};
    for (device, dtype, limit) in settings() {
        let limit = 20.0 * limit;
        let a = noise(&[2, 5, 3], 1, dtype, &device)?;
        let p = linalg::pinv(&a, None)?;
        near(&a.matmul(&p)?.matmul(&a)?, &a, limit)?;
        near(&p.matmul(&a)?.matmul(&p)?, &p, limit)?;
        // Of rank 1: what is dropped would be enormous if it were not.
        let thin = a.narrow(2, 0, 1)?.matmul(&a.narrow(1, 0, 1)?)?;
        let p = linalg::pinv(&thin, None)?;
        near(&thin.matmul(&p)?.matmul(&thin)?, &thin, limit)?;

        let b = noise(&[2, 5, 2], 2, dtype, &device)?;
        let rest = (a.matmul(&linalg::lstsq(&a, &b, None)?)? - &b)?;
        // What is left is orthogonal to the columns.
        let left = a.t()?.matmul(&rest)?;
        near(&left, &left.zeros_like()?, limit)?;

        let square = noise(&[2, 3, 3], 3, dtype, &device)?;
        let cube = square.matmul(&square)?.matmul(&square)?;
        near(&linalg::matrix_power(&square, 3)?, &cube, limit)?;
        near(&linalg::matrix_power(&square, 0)?, &identities(&square)?, limit)?;
        near(&linalg::matrix_power(&square, -1)?, &linalg::inverse(&square)?, limit)?;

        let a = Tensor::new([[3f64, 0.], [-4., 5.]], CPU)?.to_dtype(dtype)?.to_device(&device)?;
        let roots = (45f64.sqrt(), 5f64.sqrt());
        let norms =
            [(Frobenius, 50f64.sqrt()), (Nuclear, roots.0 + roots.1), (Spectral, roots.0), (One, 7.0), (Infinity, 9.0)];
        for (norm, want) in norms {
            let got = numbers(&linalg::matrix_norm(&a, norm)?)?;
            assert!(got.len() == 1 && (got[0] - want).abs() < limit, "{norm:?}: {got:?}, not {want}");
        }
    }
    Ok(())
}

#[test]
fn what_a_matrix_lacks_is_said_at_the_read() -> Result<()> {
    let words = |r: Result<Vec<f64>>| r.unwrap_err().to_string();
    for device in devices() {
        let a = Tensor::new([[[1f32, 2.], [3., 4.]], [[1., 2.], [2., 4.]], [[1., 0.], [0., 1.]]], CPU)?;
        let a = a.to_device(&device)?;
        let lost = linalg::inverse(&a)?;
        assert!(words(numbers(&lost)).contains("inverse: matrix 1 of 3 is singular"));
        assert!(words(numbers(&linalg::solve(&a, &a)?)).contains("solve: matrix 1 of 3 is singular"));
        assert!(words(numbers(&linalg::cholesky(&a.get(1)?.neg()?)?)).contains("the matrix is not positive definite"));
        let nan = (a.get(0)? * f64::NAN)?;
        assert!(words(numbers(&linalg::svd(&nan)?.1)).contains("svd: the matrix holds NaN or infinity"));
        assert!(words(numbers(&linalg::eigh(&nan)?.0)).contains("eigh: the matrix holds NaN or infinity"));
        // The device goes on.
        assert_eq!(numbers(&linalg::inverse(&a.get(2)?)?)?, [1., 0., 0., 1.]);
    }
    Ok(())
}

#[test]
fn wrong_operands_are_refused_at_once() -> Result<()> {
    let words = |r: Result<Tensor>| r.unwrap_err().to_string();
    let wide = Tensor::zeros((2, 3), DType::F32, CPU)?;
    assert!(words(linalg::inverse(&wide)).contains("square matrices, not 2 x 3"));
    assert!(words(linalg::det(&Tensor::zeros(3, DType::F32, CPU)?)).contains("[..., rows, columns]"));
    assert!(
        words(linalg::inverse(&Tensor::zeros((2, 2), DType::F16, CPU)?)).contains("not F16: convert with to_dtype")
    );
    assert!(words(linalg::svdvals(&Tensor::zeros((2, 2), DType::I32, CPU)?)).contains("not I32"));
    let a = Tensor::zeros((2, 2, 2), DType::F32, CPU)?;
    assert!(words(linalg::solve(&a, &Tensor::zeros((2, 2), DType::F32, CPU)?)).contains("leading axes"));
    assert!(words(linalg::solve(&a, &Tensor::zeros((2, 3, 1), DType::F32, CPU)?)).contains("do not fit"));
    // Nothing to compute.
    let none = Tensor::zeros((0, 3, 3), DType::F32, CPU)?;
    assert_eq!(numbers(&linalg::inverse(&none)?)?.len(), 0);
    assert_eq!(numbers(&linalg::svd(&none)?.1)?.len(), 0);
    assert_eq!(numbers(&linalg::inverse(&Tensor::zeros((2, 0, 0), DType::F64, CPU)?)?)?.len(), 0);
    assert_eq!(linalg::pinv(&Tensor::zeros((2, 0, 4), DType::F64, CPU)?, None)?.dims(), [2, 4, 0]);
    Ok(())
}
