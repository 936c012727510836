//! Windows, diagonals, triangles, grids and the ways a view lies in memory: against values worked out by hand.

use tallow::{D, DType, Device, IndexOp, Result, Shape, Tensor};

const CPU: &Device = &Device::Cpu;

fn range(dims: &[usize]) -> Result<Tensor> {
    Tensor::arange(0f32, dims.iter().product::<usize>() as f32, CPU)?.reshape(dims)
}

#[test]
fn unfold_makes_windows_that_overlap() -> Result<()> {
    let x = range(&[2, 6])?;
    let windows = x.unfold(1, 4, 2)?;
    assert_eq!(windows.to_vec3::<f32>()?[1], [[6., 7., 8., 9.], [8., 9., 10., 11.]]);
    let down = x.t()?.unfold(0, 2, 3)?;
    assert_eq!(down.dims(), [2, 2, 2]);
    assert_eq!(down.to_vec3::<f32>()?, [[[0., 1.], [6., 7.]], [[3., 4.], [9., 10.]]]);
    // Through reductions, products, reshapes and further views: what is computed must not depend on how windows lie.
    assert_eq!(windows.sum(2)?.to_vec2::<f32>()?, [[6., 14.], [30., 38.]]);
    let weights = Tensor::new([[1f32], [0.], [-1.], [2.]], CPU)?;
    let products = windows.reshape((4, 4))?.matmul(&weights)?;
    assert_eq!(products.flatten_all()?.to_vec1::<f32>()?, [4., 8., 16., 20.]);
    let direct = windows.broadcast_matmul(&weights)?;
    assert_eq!(direct.flatten_all()?.to_vec1::<f32>()?, [4., 8., 16., 20.]);
    assert_eq!(windows.flip(1)?.i((0, 0))?.to_vec1::<f32>()?, [2., 3., 4., 5.]);
    assert_eq!((&windows + &windows.flip(2)?)?.i((0, 1))?.to_vec1::<f32>()?, [7., 7., 7., 7.]);
    assert!(x.unfold(1, 7, 1).is_err() && x.unfold(1, 2, 0).is_err() && x.unfold(2, 1, 1).is_err());
    Ok(())
}

#[test]
fn windows_of_windows_and_of_stretched_values() -> Result<()> {
    let x = range(&[5, 5])?;
    let patches = x.unfold(0, 3, 2)?.unfold(1, 3, 2)?;
    assert_eq!(patches.dims(), [2, 2, 3, 3]);
    assert_eq!(patches.i((1, 0))?.to_vec2::<f32>()?, [[10., 11., 12.], [15., 16., 17.], [20., 21., 22.]]);
    assert_eq!(patches.sum((2, 3))?.to_vec2::<f32>()?, [[54., 72.], [144., 162.]]);
    let row = Tensor::new([[1f32, 2., 3.]], CPU)?.broadcast_as((2, 3))?.unfold(1, 2, 1)?;
    assert_eq!(row.to_vec3::<f32>()?[1], [[1., 2.], [2., 3.]]);
    Ok(())
}

#[test]
fn windows_cannot_be_written() -> Result<()> {
    let x = range(&[6])?;
    assert!(x.unfold(0, 3, 1)?.zero_set().is_err());
    // These do not overlap.
    x.unfold(0, 1, 2)?.const_set(9.)?;
    assert_eq!(x.to_vec1::<f32>()?, [9., 1., 9., 3., 9., 5.]);
    x.reshape((2, 3))?.diagonal(1, 0, 1)?.zero_set()?;
    assert_eq!(x.to_vec1::<f32>()?, [9., 0., 9., 3., 9., 0.]);
    Ok(())
}

#[test]
fn parts_and_moved_axes() -> Result<()> {
    let x = range(&[2, 5])?;
    let parts = x.split(&[1, 0, 4], 1)?;
    assert_eq!(parts.iter().map(|p| p.dims()[1]).collect::<Vec<_>>(), [1, 0, 4]);
    assert_eq!(parts[2].to_vec2::<f32>()?[1], [6., 7., 8., 9.]);
    assert!(x.split(&[1, 3], 1).is_err());
    let y = range(&[2, 3, 4, 5])?;
    assert_eq!(y.movedim(0, D::Minus1)?.dims(), [3, 4, 5, 2]);
    assert_eq!(y.movedim((0, 1), (3, 0))?.dims(), [3, 4, 5, 2]);
    assert_eq!(y.movedim(3, 1)?.dims(), [2, 5, 3, 4]);
    assert!(y.movedim((0, 1), 2).is_err());
    Ok(())
}

#[test]
fn triangles_diagonals_and_grids() -> Result<()> {
    assert_eq!(Tensor::eye(2, DType::F64, CPU)?.to_vec2::<f64>()?, [[1., 0.], [0., 1.]]);
    assert_eq!(Tensor::tril2(3, DType::U8, CPU)?.to_vec2::<u8>()?, [[1, 0, 0], [1, 1, 0], [1, 1, 1]]);
    assert_eq!(Tensor::triu2(3, DType::I64, CPU)?.to_vec2::<i64>()?, [[1, 1, 1], [0, 1, 1], [0, 0, 1]]);
    assert_eq!(Tensor::eye(0, DType::F32, CPU)?.dims(), [0, 0]);
    let x = (range(&[2, 2, 3])? + 1.0)?;
    assert_eq!(x.tril(0)?.to_vec3::<f32>()?[1], [[7., 0., 0.], [10., 11., 0.]]);
    assert_eq!(x.tril(1)?.to_vec3::<f32>()?[0], [[1., 2., 0.], [4., 5., 6.]]);
    assert_eq!(x.tril(-1)?.to_vec3::<f32>()?[0], [[0., 0., 0.], [4., 0., 0.]]);
    assert_eq!(x.triu(0)?.to_vec3::<f32>()?[1], [[7., 8., 9.], [0., 11., 12.]]);
    assert_eq!(x.triu(2)?.to_vec3::<f32>()?[0], [[0., 0., 3.], [0., 0., 0.]]);
    assert_eq!(x.triu(-1)?.to_vec3::<f32>()?[0], [[1., 2., 3.], [4., 5., 6.]]);
    assert_eq!(x.triu(i64::MIN)?.to_vec3::<f32>()?, x.to_vec3::<f32>()?);
    assert_eq!(x.tril(i64::MAX)?.to_vec3::<f32>()?, x.to_vec3::<f32>()?);
    assert_eq!(x.tril(i64::MIN)?.sum_all()?.to_scalar::<f32>()?, 0.);
    assert!(range(&[3])?.tril(0).is_err());

    let m = range(&[3, 4])?;
    assert_eq!(m.diagonal(0, 0, 1)?.to_vec1::<f32>()?, [0., 5., 10.]);
    assert_eq!(m.diagonal(-1, 0, 1)?.to_vec1::<f32>()?, [4., 9.]);
    assert_eq!(m.diagonal(2, 0, D::Minus1)?.to_vec1::<f32>()?, [2., 7.]);
    assert_eq!(m.diagonal(2, 1, 0)?.to_vec1::<f32>()?, [8.]);
    assert_eq!(m.diagonal(9, 0, 1)?.dims(), [0]);
    assert_eq!(x.diagonal(0, 0, 2)?.to_vec2::<f32>()?, [[1., 8.], [4., 11.]]);
    assert!(m.diagonal(0, 1, 1).is_err());
    assert_eq!(m.narrow(1, 0, 3)?.trace()?.to_scalar::<f32>()?, 15.);
    let v = Tensor::new([1f32, 2.], CPU)?;
    assert_eq!(v.diag(0)?.to_vec2::<f32>()?, [[1., 0.], [0., 2.]]);
    assert_eq!(v.diag(1)?.to_vec2::<f32>()?, [[0., 1., 0.], [0., 0., 2.], [0., 0., 0.]]);
    assert_eq!(v.diag(-1)?.to_vec2::<f32>()?, [[0., 0., 0.], [1., 0., 0.], [0., 2., 0.]]);
    assert_eq!(m.diag(1)?.to_vec1::<f32>()?, [1., 6., 11.]);

    let (a, b) = (Tensor::new([1u32, 2], CPU)?, Tensor::new([3u32, 4, 5], CPU)?);
    let ij = Tensor::meshgrid(&[&a, &b], false)?;
    assert_eq!(ij[0].to_vec2::<u32>()?, [[1, 1, 1], [2, 2, 2]]);
    assert_eq!(ij[1].to_vec2::<u32>()?, [[3, 4, 5], [3, 4, 5]]);
    let xy = Tensor::meshgrid(&[&a, &b], true)?;
    assert_eq!(xy[0].to_vec2::<u32>()?, [[1, 2], [1, 2], [1, 2]]);
    assert_eq!(xy[1].to_vec2::<u32>()?, [[3, 3], [4, 4], [5, 5]]);
    assert_eq!(Tensor::meshgrid(&[&a, &b, &a], true)?[2].dims(), [3, 2, 2]);
    Ok(())
}

#[test]
fn indices_of_many_kinds() -> Result<()> {
    let x = range(&[3, 4])?;
    assert_eq!(x.i((.., [2u32, 0]))?.to_vec2::<f32>()?, [[2., 0.], [6., 4.], [10., 8.]]);
    assert_eq!(x.i(vec![2u32])?.to_vec2::<f32>()?, [[8., 9., 10., 11.]]);
    assert_eq!(x.i((&[0u32, 0][..], 1..))?.to_vec2::<f32>()?, [[1., 2., 3.], [1., 2., 3.]]);
    let between = (std::ops::Bound::Excluded(0usize), std::ops::Bound::Included(1usize));
    assert_eq!(x.i(between)?.dims(), [1, 4]);
    let deep = range(&[1, 1, 1, 1, 1, 1, 2])?;
    assert_eq!(deep.i((0, 0, .., 0, 0, 0, 1))?.to_vec1::<f32>()?, [1.]);
    Ok(())
}

#[test]
fn strides_offsets_and_bytes() -> Result<()> {
    let x = range(&[2, 3])?;
    assert_eq!(x.strided_index().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(x.t()?.strided_index().collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
    assert_eq!(x.narrow(1, 1, 2)?.flip(0)?.strided_index().collect::<Vec<_>>(), [4, 5, 1, 2]);
    assert_eq!(x.i((1, 2))?.strided_index().len(), 1);
    assert_eq!(x.narrow(0, 0, 0)?.strided_index().next(), None);
    assert!(x.is_contiguous() && !x.is_fortran_contiguous());
    assert!(x.t()?.is_fortran_contiguous() && !x.t()?.is_contiguous());
    assert!(range(&[3])?.is_fortran_contiguous());
    let mut bytes = Vec::new();
    x.narrow(1, 2, 1)?.write_bytes(&mut bytes)?;
    assert_eq!(bytes, [2f32.to_le_bytes(), 5f32.to_le_bytes()].concat());
    let mut again = Vec::new();
    tallow::block_on(x.narrow(1, 2, 1)?.write_bytes_async(&mut again))?;
    assert_eq!(again, bytes);
    Ok(())
}

#[test]
fn shapes_from_anything() -> Result<()> {
    fn made(shape: impl Into<Shape>) -> Result<Tensor> {
        Tensor::zeros(shape, DType::U8, CPU)
    }
    assert_eq!(made((1, 2, 3, 4, 5, 6, 7))?.rank(), 7);
    let (sizes, axes) = (&[2usize, 2], &[0usize, 2]);
    assert_eq!(made(vec![2, 2])?.dims(), made(sizes)?.dims());
    assert_eq!(made(())?.rank(), 0);
    assert_eq!(Tensor::from_vec(vec![1u8; 12], (2, (), 3), CPU)?.dims(), [2, 2, 3]);
    assert_eq!(Tensor::from_slice(&[1u8; 12], ((), 6), CPU)?.dims(), [2, 6]);
    assert!(Tensor::from_vec(vec![1u8; 12], ((), 5), CPU).is_err());
    assert_eq!(range(&[24])?.reshape((1, 2, (), 3, 1))?.dims(), [1, 2, 4, 3, 1]);
    assert_eq!(range(&[24])?.reshape((1, 2, 2, 3, 1, ()))?.dims(), [1, 2, 2, 3, 1, 2]);
    assert_eq!(range(&[2, 2, 2])?.sum(axes)?.to_vec1::<f32>()?, [10., 18.]);
    assert_eq!(range(&[2, 2, 2])?.flip(vec![0, 1, 2])?.flatten_all()?.to_vec1::<f32>()?[0], 7.);
    Ok(())
}
