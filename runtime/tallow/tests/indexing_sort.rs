//! Sorting, running results, counts, remainders and bits: what they mean, and their errors.

use tallow::{D, DType, Device, Result, Tensor};

const CPU: &Device = &Device::Cpu;
const NAN: f32 = f32::NAN;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn sorting_along_any_axis() -> Result<()> {
    let x = Tensor::new([[3f32, 1., 2.], [0., 5., -1.]], CPU)?;
    let (values, positions) = x.sort_last_dim(true)?;
    assert_eq!(values.to_vec2::<f32>()?, [[1., 2., 3.], [-1., 0., 5.]]);
    assert_eq!(positions.to_vec2::<u32>()?, [[1, 2, 0], [2, 0, 1]]);
    assert_eq!(x.arg_sort_last_dim(false)?.to_vec2::<u32>()?, [[0, 2, 1], [1, 0, 2]]);
    assert_eq!(x.sort(0, true)?.0.to_vec2::<f32>()?, [[3., 5., 2.], [0., 1., -1.]]);
    assert_eq!(x.t()?.sort(D::Minus1, false)?.0.to_vec2::<f32>()?, [[0., 3.], [1., 5.], [-1., 2.]]);
    let bytes = x.to_dtype(DType::U8)?.sort(1, false)?.0;
    assert_eq!(bytes.to_vec2::<u8>()?, [[1, 2, 3], [0, 0, 5]]);
    let y = Tensor::new([1f32, NAN, -0., 0., f32::NEG_INFINITY], CPU)?;
    assert_eq!(y.arg_sort(0, false)?.to_vec1::<u32>()?, [4, 2, 3, 0, 1]);
    assert_eq!(y.arg_sort(0, true)?.to_vec1::<u32>()?, [1, 0, 2, 3, 4]);
    assert!(Tensor::zeros((2, 0), DType::F32, CPU)?.sort(1, false)?.0.to_vec2::<f32>()?.iter().all(Vec::is_empty));
    assert!(error(x.sort(2, true)).contains("no axis 2"));
    Ok(())
}

#[test]
fn the_largest_and_the_middle() -> Result<()> {
    let x = Tensor::new([[3f32, 1., 2., 4.], [0., 5., -1., 5.]], CPU)?;
    let (values, positions) = x.topk(2, 1, true)?;
    assert_eq!(values.to_vec2::<f32>()?, [[4., 3.], [5., 5.]]);
    assert_eq!(positions.to_vec2::<u32>()?, [[3, 0], [1, 3]]);
    assert_eq!(x.topk(1, 0, false)?.0.to_vec2::<f32>()?, [[0., 1., -1., 4.]]);
    assert!(error(x.topk(5, 1, true)).contains("fewer than 5"));
    assert_eq!(x.median(1)?.to_vec1::<f32>()?, [2., 0.]);
    assert_eq!(x.quantile(0.5, 1)?.to_vec1::<f32>()?, [2.5, 2.5]);
    assert_eq!(x.quantile(1.0, 1)?.to_vec1::<f32>()?, [4., 5.]);
    assert!((x.quantile(0.25, 0)?.to_vec1::<f32>()?[0] - 0.75).abs() < 1e-6);
    let y = Tensor::new([1f32, NAN, 2.], CPU)?;
    assert!(y.median(0)?.to_scalar::<f32>()?.is_nan() && y.quantile(0.1, 0)?.to_scalar::<f32>()?.is_nan());
    let wide = Tensor::new([f32::NEG_INFINITY, 1., f32::INFINITY], CPU)?;
    assert_eq!(wide.quantile(1.0, 0)?.to_scalar::<f32>()?, f32::INFINITY);
    assert_eq!(Tensor::new([4u8, 2, 9], CPU)?.median(0)?.to_scalar::<u8>()?, 4);
    assert!(error(x.quantile(1.5, 0)).contains("1.5"));
    assert!(error(Tensor::zeros(0, DType::F32, CPU)?.median(0)).contains("no elements"));
    Ok(())
}

#[test]
fn running_results() -> Result<()> {
    let x = Tensor::new([[1f32, 2., 3.], [4., -5., 6.]], CPU)?;
    assert_eq!(x.cumsum(1)?.to_vec2::<f32>()?, [[1., 3., 6.], [4., -1., 5.]]);
    assert_eq!(x.cumsum(0)?.to_vec2::<f32>()?, [[1., 2., 3.], [5., -3., 9.]]);
    assert_eq!(x.cumprod(D::Minus1)?.to_vec2::<f32>()?, [[1., 2., 6.], [4., -20., -120.]]);
    assert_eq!(x.t()?.cummax(0)?.to_vec2::<f32>()?, [[1., 4.], [2., 4.], [3., 6.]]);
    assert_eq!(x.cummin(1)?.to_vec2::<f32>()?, [[1., 1., 1.], [4., -5., -5.]]);
    assert_eq!(Tensor::new([200u8, 100], CPU)?.cumsum(0)?.to_vec1::<u8>()?, [200, 44]);
    // A long sum of small numbers stays right.
    let long = Tensor::full(0.1f32, 1_000_000, CPU)?.cumsum(0)?;
    assert!((long.get(999_999)?.to_scalar::<f32>()? - 100_000.).abs() < 0.02);
    assert!(error(x.cumsum(2)).contains("no axis 2"));
    Ok(())
}

#[test]
fn positions_and_counts() -> Result<()> {
    let x = Tensor::new([[0f32, 1., NAN], [-0., 0., 2.]], CPU)?;
    assert_eq!(x.nonzero()?.to_vec2::<u32>()?, [[0, 1], [0, 2], [1, 2]]);
    assert_eq!(x.t()?.nonzero()?.to_vec2::<u32>()?, [[1, 0], [2, 0], [2, 1]]);
    assert_eq!(x.zeros_like()?.nonzero()?.dims(), [0, 2]);
    assert_eq!(Tensor::new(3u8, CPU)?.nonzero()?.dims(), [1, 0]);
    assert_eq!(Tensor::new([[1u8, 3], [1, 0]], CPU)?.bincount(5)?.to_vec1::<u32>()?, [1, 2, 0, 1, 0]);
    assert!(error(Tensor::new([5u8], CPU)?.bincount(5)?.to_vec1::<u32>()).contains("outside 0..5"));
    let y = Tensor::new([0f32, 0.5, 1., 2., 2.1, -0.1, NAN, 1.99], CPU)?;
    assert_eq!(y.histogram(2, 0., 2.)?.to_vec1::<u32>()?, [2, 3]);
    assert!(error(y.histogram(0, 0., 2.)).contains("no histogram"));
    let limits = Tensor::new([1f32, 3., 5.], CPU)?;
    let z = Tensor::new([[0f32, 1.], [3.5, 9.]], CPU)?;
    assert_eq!(z.bucketize(&limits, false)?.to_vec2::<u32>()?, [[0, 0], [2, 3]]);
    assert_eq!(z.bucketize(&limits, true)?.to_vec2::<u32>()?, [[0, 1], [2, 3]]);
    Ok(())
}

#[test]
fn remainders_and_bits() -> Result<()> {
    let (x, y) = (Tensor::new([5i32, -5, 5, -5], CPU)?, Tensor::new([3i32, 3, -3, -3], CPU)?);
    assert_eq!((&x % &y)?.to_vec1::<i32>()?, [2, -2, 2, -2]);
    assert_eq!(x.remainder(&y)?.to_vec1::<i32>()?, [2, 1, -1, -2]);
    let (f, g) = (x.to_dtype(DType::F32)?, y.to_dtype(DType::F32)?);
    assert_eq!((&f % &g)?.to_vec1::<f32>()?, [2., -2., 2., -2.]);
    assert_eq!(f.remainder(&g)?.to_vec1::<f32>()?, [2., 1., -1., -2.]);
    assert_eq!((&f % 2.0)?.to_vec1::<f32>()?, [1., -1., 1., -1.]);
    assert_eq!(x.broadcast_rem(&Tensor::new([0i32], CPU)?)?.to_vec1::<i32>()?, [5, -5, 5, -5]);
    let (a, b) = (Tensor::new([0b1100u8, 0xff], CPU)?, Tensor::new([0b1010u8, 1], CPU)?);
    assert_eq!((&a & &b)?.to_vec1::<u8>()?, [0b1000, 1]);
    assert_eq!((&a | &b)?.to_vec1::<u8>()?, [0b1110, 0xff]);
    assert_eq!((&a ^ &b)?.to_vec1::<u8>()?, [0b0110, 0xfe]);
    assert_eq!((!&a)?.to_vec1::<u8>()?, [0xf3, 0]);
    assert_eq!((&a << &b)?.to_vec1::<u8>()?, [0, 0xfe]);
    assert_eq!((&a >> 2)?.to_vec1::<u8>()?, [3, 0x3f]);
    assert_eq!((&x >> 1)?.to_vec1::<i32>()?, [2, -3, 2, -3]);
    assert_eq!((!x.to_dtype(DType::I64)?)?.to_vec1::<i64>()?, [-6, 4, -6, 4]);
    assert_eq!(((&a & 0x0f)? | (&b & 0xf0))?.to_vec1::<u8>()?, [0b1100, 0x0f]);
    assert!(error(&a & 0x1ff).contains("more bits than U8"));
    assert!(error(&f & &g).contains("integer dtype, not F32"));
    assert!(error(f.bitwise_not()).contains("integer dtype, not F32"));
    assert!(error(&a & &b.narrow(0, 0, 1)?).contains("broadcast_bitwise_and"));
    Ok(())
}
