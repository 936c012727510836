//! Comparisons, logic, element-wise functions, statistics, products: against values worked out by hand, by plain loops, or
//! known from PyTorch.

use tallow::{CmpOp, D, DType, Device, Result, Tensor, TensorOrScalar};

const CPU: &Device = &Device::Cpu;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

/// Relative differences.
fn close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        let same = g == w || (g.is_nan() && w.is_nan());
        assert!(same || (g - w).abs() <= tolerance * w.abs(), "{g:e}, not {w:e}");
    }
}

fn ints<T: TensorOrScalar>(x: &Tensor, rhs: T, op: CmpOp) -> Vec<u8> {
    x.cmp(rhs, op).and_then(|t| t.to_vec1()).unwrap()
}

#[test]
fn comparisons_with_numbers_are_exact() -> Result<()> {
    let x = Tensor::new([0u8, 2, 3, 255], CPU)?;
    assert_eq!(ints(&x, 2.5, CmpOp::Lt), [1, 1, 0, 0]);
    assert_eq!(ints(&x, 2.5, CmpOp::Le), [1, 1, 0, 0]);
    assert_eq!(ints(&x, 2.5, CmpOp::Gt), [0, 0, 1, 1]);
    assert_eq!(ints(&x, 2.5, CmpOp::Ge), [0, 0, 1, 1]);
    assert_eq!(ints(&x, 2.5, CmpOp::Eq), [0; 4]);
    assert_eq!(ints(&x, 2.5, CmpOp::Ne), [1; 4]);
    assert_eq!(ints(&x, 3, CmpOp::Ge), [0, 0, 1, 1]);
    assert_eq!(ints(&x, 300, CmpOp::Lt), [1; 4]);
    assert_eq!(ints(&x, 300, CmpOp::Eq), [0; 4]);
    assert_eq!(ints(&x, -1i64, CmpOp::Gt), [1; 4]);
    assert_eq!(ints(&x, -0.5, CmpOp::Ge), [1; 4]);
    assert_eq!(ints(&x, -0.5, CmpOp::Le), [0; 4]);
    assert_eq!(ints(&x, f64::INFINITY, CmpOp::Lt), [1; 4]);
    assert_eq!(ints(&x, f64::NEG_INFINITY, CmpOp::Lt), [0; 4]);
    assert_eq!(ints(&x, f32::NAN, CmpOp::Ge), [0; 4]);
    assert_eq!(ints(&x, f32::NAN, CmpOp::Ne), [1; 4]);
    let big = Tensor::new([i64::MAX, i64::MAX - 1], CPU)?;
    assert_eq!(ints(&big, i64::MAX, CmpOp::Eq), [1, 0]);
    let huge = Tensor::new([u64::MAX, 1 << 63], CPU)?;
    assert_eq!(ints(&huge, u64::MAX, CmpOp::Lt), [0, 1]);
    let signed = Tensor::new([i8::MIN, -1, 1], CPU)?;
    assert_eq!(ints(&signed, -1.5, CmpOp::Lt), [1, 0, 0]);
    let halves = Tensor::new([0.1f32, 0.2], CPU)?.to_dtype(DType::F16)?;
    assert_eq!(ints(&halves, 0.1, CmpOp::Eq), [1, 0]);
    assert_eq!(halves.eq(&halves)?.to_vec1::<u8>()?, [1, 1]);
    assert!(error(halves.lt(&x)).contains("use broadcast_lt"));
    Ok(())
}

#[test]
fn logic_treats_everything_but_zero_as_true() -> Result<()> {
    let a = Tensor::new([0f32, 0.5, f32::NAN, 0.], CPU)?;
    let b = Tensor::new([1i64, 2, 0, 0], CPU)?;
    assert_eq!(a.logical_not()?.to_vec1::<u8>()?, [1, 0, 0, 1]);
    assert_eq!(a.logical_and(&b)?.to_vec1::<u8>()?, [0, 1, 0, 0]);
    assert_eq!(a.logical_or(&b)?.to_vec1::<u8>()?, [1, 1, 1, 0]);
    assert_eq!(a.logical_xor(&b)?.to_vec1::<u8>()?, [1, 0, 1, 0]);
    let table = Tensor::new([[0u32, 3], [1, 2]], CPU)?;
    assert_eq!(table.any(0)?.to_vec1::<u8>()?, [1, 1]);
    assert_eq!(table.all(1)?.to_vec1::<u8>()?, [0, 1]);
    assert_eq!(table.all_keepdim(0)?.to_vec2::<u8>()?, [[0, 1]]);
    assert_eq!(table.any_all()?.to_scalar::<u8>()?, 1);
    assert_eq!(table.all_all()?.to_scalar::<u8>()?, 0);
    let nothing = Tensor::zeros((2, 0), DType::F32, CPU)?;
    assert_eq!(nothing.any(1)?.to_vec1::<u8>()?, [0, 0]);
    assert_eq!(nothing.all(1)?.to_vec1::<u8>()?, [1, 1]);
    assert_eq!(nothing.all_keepdim(0)?.dims(), [1, 0]);
    // 256 ones: a count in U8 would have wrapped to zero.
    assert_eq!(Tensor::ones(256, DType::U8, CPU)?.any_all()?.to_scalar::<u8>()?, 1);
    Ok(())
}

#[test]
fn numbers_are_classified() -> Result<()> {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64, DType::F8E5M2] {
        let x = Tensor::new([1f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.], CPU)?.to_dtype(dtype)?;
        assert_eq!(x.is_nan()?.to_vec1::<u8>()?, [0, 1, 0, 0, 0], "{dtype}");
        let infinite = x.is_inf()?.to_vec1::<u8>()?;
        // F8E5M2 saturates when it is made.
        assert!(infinite == [0, 0, 1, 1, 0] || dtype == DType::F8E5M2, "{dtype}: {infinite:?}");
        let finite: Vec<u8> = infinite.iter().zip([0, 1, 0, 0, 0]).map(|(i, n)| 1 - (i | n)).collect();
        assert_eq!(x.is_finite()?.to_vec1::<u8>()?, finite, "{dtype}");
    }
    assert_eq!(Tensor::new([3u8], CPU)?.is_finite()?.to_vec1::<u8>()?, [1]);
    Ok(())
}

#[test]
fn expm1_and_log1p_are_accurate_everywhere() -> Result<()> {
    let x: Vec<f64> = [0., 1e-12, -1e-7, 1e-4, 0.29, -0.29, 0.3, 0.31, -0.31, 0.5, -0.5, 0.51, -0.9, 2., 30.].into();
    let single: Vec<f32> = x.iter().map(|&v| v as f32).collect();
    let wide = Tensor::new(x.as_slice(), CPU)?;
    let narrow = Tensor::new(single.as_slice(), CPU)?;
    let of = |f: fn(f64) -> f64| x.iter().map(|&v| f(v)).collect::<Vec<_>>();
    let of_single = |f: fn(f64) -> f64| single.iter().map(|&v| f(v.into())).collect::<Vec<_>>();
    close(&wide.expm1()?.to_vec1()?, &of(f64::exp_m1), 1e-15);
    close(&wide.log1p()?.to_vec1()?, &of(f64::ln_1p), 1e-15);
    close(&narrow.expm1()?.to_dtype(DType::F64)?.to_vec1()?, &of_single(f64::exp_m1), 4e-7);
    close(&narrow.log1p()?.to_dtype(DType::F64)?.to_vec1()?, &of_single(f64::ln_1p), 4e-7);
    let ends = Tensor::new([f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 800.], CPU)?;
    close(&ends.expm1()?.to_vec1()?, &[f64::INFINITY, -1., f64::NAN, f64::INFINITY], 0.);
    let ends = Tensor::new([f64::INFINITY, -1., -2., f64::NAN], CPU)?;
    close(&ends.log1p()?.to_vec1()?, &[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::NAN], 0.);
    close(&Tensor::new([0.5f64, -1.2], CPU)?.tan()?.to_vec1()?, &[0.5f64.tan(), (-1.2f64).tan()], 1e-14);
    assert!(error(Tensor::new([1u8], CPU)?.log1p()).contains("floating-point"));
    Ok(())
}

#[test]
fn functions_of_elements() -> Result<()> {
    let x = Tensor::new([-2f64, -1e-9, 0., 3.], CPU)?;
    close(&x.elu(0.5)?.to_vec1()?, &[0.5 * (-2f64).exp_m1(), 0.5 * (-1e-9f64).exp_m1(), 0., 3.], 1e-12);
    let r = Tensor::new([0.125f64, -2.675, 1234.5, -0.05], CPU)?;
    assert_eq!(r.round_to(1)?.to_vec1::<f64>()?, [0.1, -2.7, 1234.5, -0.1]);
    assert_eq!(r.round_to(0)?.to_vec1::<f64>()?, [0., -3., 1235., -0.]);
    assert_eq!(r.round_to(-3)?.to_vec1::<f64>()?, [0., -0., 1000., -0.]);
    assert_eq!(Tensor::new([7u8], CPU)?.round_to(2)?.to_vec1::<u8>()?, [7]);
    let (a, b) = (Tensor::new([0f32, 10.], CPU)?, Tensor::new([1f32, 20.], CPU)?);
    assert_eq!(a.lerp(&b, 0.25)?.to_vec1::<f32>()?, [0.25, 12.5]);
    assert_eq!(a.lerp(&b, 1.0)?.to_vec1::<f32>()?, [1., 20.]);
    assert_eq!(a.lerp(&b, &Tensor::new([0f32, 0.5], CPU)?)?.to_vec1::<f32>()?, [0., 15.]);
    let mask = Tensor::new([[1u8], [0]], CPU)?;
    let square = Tensor::new([[1f32, 2.], [3., 4.]], CPU)?;
    assert_eq!(square.masked_fill(&mask, -1.)?.to_vec2::<f32>()?, [[-1., -1.], [3., 4.]]);
    assert!(error(square.to_dtype(DType::U8)?.masked_fill(&mask, 0.5)).contains("U8 cannot hold 0.5"));
    assert!(a.masked_fill(&mask, 0.).is_err());
    let ids = Tensor::new([[2i64, 0], [-1, 5]], CPU)?;
    let hot = ids.one_hot(3, DType::F32)?;
    assert_eq!(hot.to_vec3::<f32>()?, [[[0., 0., 1.], [1., 0., 0.]], [[0., 0., 0.], [0., 0., 0.]]]);
    assert!(error(a.one_hot(3, DType::F32)).contains("integer"));
    assert!(error(Tensor::new([1u8], CPU)?.one_hot(257, DType::F32)).contains("do not reach"));
    assert_eq!((-&a)?.to_vec1::<f32>()?, [-0., -10.]);
    assert_eq!((-a)?.to_vec1::<f32>()?, [-0., -10.]);
    Ok(())
}

#[test]
fn statistics_follow_pytorch() -> Result<()> {
    let x = Tensor::new([[1f64, 2., 4.], [10., 10., 13.]], CPU)?;
    close(&x.var(1)?.to_vec1()?, &[7. / 3., 3.], 1e-14);
    close(&x.var(0)?.to_vec1()?, &[40.5, 32., 40.5], 1e-14);
    close(&[x.var((0, 1))?.to_scalar()?], &[24.666_666_666_666_668], 1e-14);
    close(&x.std(1)?.to_vec1()?, &[(7f64 / 3.).sqrt(), 3f64.sqrt()], 1e-14);
    assert_eq!(x.var_keepdim(1)?.dims(), [2, 1]);
    assert_eq!(x.std_keepdim(0)?.dims(), [1, 3]);
    assert!(x.narrow(1, 0, 1)?.var(1)?.to_vec1::<f64>()?[0].is_nan());
    assert!(x.narrow(1, 0, 0)?.var(1)?.to_vec1::<f64>()?[0].is_nan());
    assert!(error(x.to_dtype(DType::U8)?.var(0)).contains("floating-point"));
    // Far from zero, where the mean of squares would cancel.
    close(&[(Tensor::new([1f32, 2., 3.], CPU)? + 1e6)?.var(0)?.to_scalar::<f32>()?.into()], &[1.], 0.);
    // Squares that F16 does not hold.
    let half = Tensor::new([300f32, -300., 300., -300.], CPU)?.to_dtype(DType::F16)?;
    let spread = half.std(0)?.to_dtype(DType::F64)?.to_scalar::<f64>()?;
    assert!((spread - 346.41).abs() < 0.3, "{spread}");
    assert_eq!(half.norm()?.to_dtype(DType::F64)?.to_scalar::<f64>()?, 600.);
    assert_eq!(Tensor::new([[3f32], [4.]], CPU)?.norm()?.to_scalar::<f32>()?, 5.);
    Ok(())
}

#[test]
fn log_sum_exp_neither_overflows_nor_underflows() -> Result<()> {
    let inf = f64::INFINITY;
    let x = Tensor::new([[1000f64, 1000.], [-1000., -1001.], [-inf, -inf], [inf, 0.], [-inf, 2.]], CPU)?;
    let want = [1000. + 2f64.ln(), -1000. + (1. + (-1f64).exp()).ln(), -inf, inf, 2.];
    close(&x.log_sum_exp(1)?.to_vec1()?, &want, 1e-15);
    assert_eq!(x.log_sum_exp((0, 1))?.to_scalar::<f64>()?, inf);
    assert!(Tensor::new([f32::NAN, 1.], CPU)?.log_sum_exp(0)?.to_scalar::<f32>()?.is_nan());
    assert_eq!(
        Tensor::zeros((2, 0), DType::F32, CPU)?.log_sum_exp(D::Minus1)?.to_vec1::<f32>()?,
        [f32::NEG_INFINITY; 2]
    );
    Ok(())
}

#[test]
fn products_of_vectors() -> Result<()> {
    let (a, b) = (Tensor::new([1f32, 2., 3.], CPU)?, Tensor::new([4f32, -5., 6.], CPU)?);
    assert_eq!(a.dot(&b)?.to_scalar::<f32>()?, 12.);
    assert_eq!(a.dot(&b.flip(0)?)?.to_scalar::<f32>()?, 8.);
    let m = Tensor::new([[1f32, 0., 2.], [0., 1., -1.]], CPU)?;
    assert_eq!(m.mv(&a)?.to_vec1::<f32>()?, [7., -1.]);
    assert_eq!(a.narrow(0, 0, 2)?.outer(&b)?.to_vec2::<f32>()?, [[4., -5., 6.], [8., -10., 12.]]);
    assert_eq!(Tensor::new([2u32, 3], CPU)?.dot(&Tensor::new([4u32, 5], CPU)?)?.to_scalar::<u32>()?, 23);
    assert!(error(a.dot(&b.narrow(0, 0, 2)?)).contains("3 and 2"));
    assert!(error(m.mv(&b.narrow(0, 0, 2)?)).contains("[2, 3]"));
    Ok(())
}

#[test]
fn random_like_and_devices() -> Result<()> {
    let x = Tensor::zeros((64, 64), DType::F16, CPU)?;
    let u = x.rand_like(2., 3.)?;
    assert_eq!((u.dtype(), u.dims()), (DType::F16, &[64, 64][..]));
    let mean = u.to_dtype(DType::F64)?.mean_all()?.to_scalar::<f64>()?;
    assert!((mean - 2.5).abs() < 0.02, "{mean}");
    let n = x.to_dtype(DType::F64)?.randn_like(-1., 0.5)?;
    let (mean, std) = (n.mean_all()?.to_scalar::<f64>()?, n.std((0, 1))?.to_scalar::<f64>()?);
    assert!((mean + 1.).abs() < 0.04 && (std - 0.5).abs() < 0.03, "{mean} {std}");
    assert!(x.to_dtype(DType::U8)?.rand_like(0., 1.).is_err());
    assert!(CPU.is_cpu() && !CPU.is_cuda() && !CPU.is_metal() && !CPU.is_wgpu());
    assert!(error(Device::new_cuda(0)).contains("no CUDA"));
    assert!(Device::cuda_if_available(0)?.is_cpu());
    assert_eq!(CPU.bf16_default_to_f32(), DType::BF16);
    assert!(tallow::utils::get_num_threads() >= 1);
    CPU.synchronize()
}

#[test]
fn modules_and_training() -> Result<()> {
    struct Double;
    impl tallow::ModuleT for Double {
        fn forward_t(&self, x: &Tensor, train: bool) -> Result<Tensor> {
            if train { x * 2.0 } else { Ok(x.clone()) }
        }
    }
    let x = Tensor::new([1f32], CPU)?;
    assert_eq!(x.apply_t(&Double, true)?.to_vec1::<f32>()?, [2.]);
    assert_eq!(x.apply_t(&Double, false)?.to_vec1::<f32>()?, [1.]);
    let negative = |x: &Tensor| x.neg();
    assert_eq!(x.apply_t(&negative, true)?.to_vec1::<f32>()?, [-1.]);
    assert_eq!(x.apply(&Some(&negative))?.to_vec1::<f32>()?, [-1.]);
    Ok(())
}
