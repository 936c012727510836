//! Tensors put together, padded, repeated, and parts replaced: against values worked out by hand.

use tallow::{D, DType, Device, Result, Tensor};

const CPU: &Device = &Device::Cpu;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

fn range(dims: &[usize]) -> Result<Tensor> {
    Tensor::arange(0f32, dims.iter().product::<usize>() as f32, CPU)?.reshape(dims)
}

#[test]
fn cat_joins_along_every_axis() -> Result<()> {
    let (a, b) = (range(&[2, 2])?, (range(&[2, 3])? + 10.0)?);
    let joined = Tensor::cat(&[&a, &b, &a.t()?], 1)?;
    assert_eq!(joined.to_vec2::<f32>()?, [[0., 1., 10., 11., 12., 0., 2.], [2., 3., 13., 14., 15., 1., 3.]]);
    let down = Tensor::cat(&[a.flip(0)?, a.narrow(0, 0, 1)?], D::Minus2)?;
    assert_eq!(down.to_vec2::<f32>()?, [[2., 3.], [0., 1.], [0., 1.]]);
    let cube = Tensor::cat(&[range(&[2, 1, 2])?, range(&[2, 2, 2])?], 1)?;
    assert_eq!(cube.to_vec3::<f32>()?, [[[0., 1.], [0., 1.], [2., 3.]], [[2., 3.], [4., 5.], [6., 7.]]]);
    let with_nothing = Tensor::cat(&[&a.narrow(1, 0, 0)?, &a, &a.narrow(1, 0, 0)?], 1)?;
    assert_eq!(with_nothing.to_vec2::<f32>()?, [[0., 1.], [2., 3.]]);
    assert_eq!(Tensor::cat(&[&a.narrow(1, 0, 0)?, &a.narrow(1, 0, 0)?], 1)?.dims(), [2, 0]);
    let many: Vec<Tensor> = (0..300u32).map(|i| Tensor::new([i], CPU)).collect::<Result<_>>()?;
    assert_eq!(Tensor::cat(&many, 0)?.to_vec1::<u32>()?, (0..300).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn every_dtype_is_joined() -> Result<()> {
    for dtype in DType::PLAIN {
        let x = Tensor::new([1f32, 0., 2., 1.], CPU)?.to_dtype(dtype)?;
        let y = Tensor::cat(&[&x, &x.flip(0)?], 0)?;
        assert_eq!(y.dtype(), dtype);
        assert_eq!(y.to_dtype(DType::F32)?.to_vec1::<f32>()?, [1., 0., 2., 1., 1., 2., 0., 1.], "{dtype}");
    }
    Ok(())
}

#[test]
fn results_do_not_follow_later_writes() -> Result<()> {
    let a = range(&[3])?;
    let b = (&a * 1.0)?;
    let before = Tensor::cat(&[&a, &b], 0)?;
    let scattered = a.slice_scatter(&b.narrow(0, 0, 1)?, 0, 2)?;
    a.const_set(9.)?;
    assert_eq!(before.to_vec1::<f32>()?, [0., 1., 2., 0., 1., 2.]);
    assert_eq!(scattered.to_vec1::<f32>()?, [0., 1., 0.]);
    assert_eq!(a.to_vec1::<f32>()?, [9., 9., 9.]);
    Ok(())
}

#[test]
fn wrong_parts_are_named() -> Result<()> {
    let (a, b) = (range(&[2, 2])?, range(&[3, 3])?);
    assert_eq!(error(Tensor::cat(&[&a, &b], 0)), "cat: [2, 2] and [3, 3] differ in more than axis 0");
    assert!(error(Tensor::cat(&[&a, &a.to_dtype(DType::F16)?], 0)).contains("F32 and F16 differ"));
    assert!(error(Tensor::cat::<Tensor, _>(&[], 0)).contains("no tensors"));
    assert!(error(Tensor::cat(&[&a, &a], 2)).contains("no axis 2"));
    assert!(error(Tensor::stack(&[&a, &b], 0)).contains("differ"));
    let other = Device::from_backend(std::sync::Arc::new(tallow_graph::reference::Reference::default()));
    assert!(error(Tensor::cat(&[&a, &a.to_device(&other)?], 0)).contains("to_device"));
    assert!(error(a.slice_scatter(&b, 0, 0)).contains("does not fit"));
    assert!(error(a.slice_scatter(&a, 0, 1)).contains("not inside"));
    assert!(error(a.slice_assign(&[0..1, 0..1], &a)).contains("another size"));
    assert!(error(range(&[2, 0])?.pad_with_same(1, 1, 0)).contains("no element"));
    assert!(error(a.pad_with_reflection(1, 2, 0)).contains("too few"));
    assert!(error(a.to_dtype(DType::U8)?.pad_with_value(0, 1, 0, 300.)).contains("U8 cannot hold 300"));
    assert!(a.pad_with_zeros(0, usize::MAX, 5).is_err());
    assert!(a.repeat((usize::MAX, 2)).is_err());
    Ok(())
}

#[test]
fn stack_makes_a_new_axis() -> Result<()> {
    let (a, b) = (range(&[2])?, (range(&[2])? + 5.0)?);
    assert_eq!(Tensor::stack(&[&a, &b], 0)?.to_vec2::<f32>()?, [[0., 1.], [5., 6.]]);
    assert_eq!(Tensor::stack(&[&a, &b], D::Minus1)?.to_vec2::<f32>()?, [[0., 5.], [1., 6.]]);
    let scalars = [Tensor::new(1u8, CPU)?, Tensor::new(2u8, CPU)?];
    assert_eq!(Tensor::stack(&scalars, 0)?.to_vec1::<u8>()?, [1, 2]);
    Ok(())
}

#[test]
fn repeat_and_tile_choose_their_axes() -> Result<()> {
    let x = range(&[2, 2])?;
    assert_eq!(x.repeat(2)?.to_vec2::<f32>()?, [[0., 1.], [2., 3.], [0., 1.], [2., 3.]]);
    assert_eq!(x.tile(2)?.to_vec2::<f32>()?, [[0., 1., 0., 1.], [2., 3., 2., 3.]]);
    assert_eq!(x.repeat((1, 3))?.to_vec2::<f32>()?[1], [2., 3., 2., 3., 2., 3.]);
    assert_eq!(x.repeat((2, 2, 1))?.to_vec3::<f32>()?[1], [[0., 1.], [2., 3.], [0., 1.], [2., 3.]]);
    assert_eq!(x.repeat((0, 2))?.dims(), [0, 4]);
    let deep = range(&[1, 2, 1, 1, 1, 1, 1, 2])?.repeat([2, 1, 1, 1, 1, 1, 1, 2])?;
    assert_eq!(deep.flatten_all()?.to_vec1::<f32>()?, [0., 1., 0., 1., 2., 3., 2., 3., 0., 1., 0., 1., 2., 3., 2., 3.]);
    Ok(())
}

#[test]
fn roll_goes_round() -> Result<()> {
    let x = range(&[2, 3])?;
    assert_eq!(x.roll(1, 1)?.to_vec2::<f32>()?, [[2., 0., 1.], [5., 3., 4.]]);
    assert_eq!(x.roll(-4, 1)?.to_vec2::<f32>()?, [[1., 2., 0.], [4., 5., 3.]]);
    assert_eq!(x.roll(3, 0)?.to_vec2::<f32>()?, [[3., 4., 5.], [0., 1., 2.]]);
    assert_eq!(x.roll(6, 1)?.to_vec2::<f32>()?, x.to_vec2::<f32>()?);
    assert_eq!(range(&[0])?.roll(2, 0)?.dims(), [0]);
    Ok(())
}

#[test]
fn padding_of_every_kind() -> Result<()> {
    let x = range(&[2, 3])?;
    let zeros = x.pad_with_zeros(0, 1, 0)?.pad_with_zeros(D::Minus1, 0, 2)?;
    assert_eq!(zeros.to_vec2::<f32>()?, [[0., 0., 0., 0., 0.], [0., 1., 2., 0., 0.], [3., 4., 5., 0., 0.]]);
    assert_eq!(x.pad_with_value(1, 1, 1, -7.)?.to_vec2::<f32>()?, [[-7., 0., 1., 2., -7.], [-7., 3., 4., 5., -7.]]);
    assert_eq!(x.pad_with_same(1, 2, 1)?.to_vec2::<f32>()?, [[0., 0., 0., 1., 2., 2.], [3., 3., 3., 4., 5., 5.]]);
    let mirrored = x.pad_with_reflection(1, 2, 2)?;
    assert_eq!(mirrored.to_vec2::<f32>()?, [[2., 1., 0., 1., 2., 1., 0.], [5., 4., 3., 4., 5., 4., 3.]]);
    assert_eq!(range(&[0, 2])?.pad_with_zeros(0, 1, 1)?.to_vec2::<f32>()?, [[0., 0.], [0., 0.]]);
    let infinite = x.pad_with_value(1, 0, 1, f64::NEG_INFINITY)?.max(1)?;
    assert_eq!(infinite.to_vec1::<f32>()?, [2., 5.]);
    Ok(())
}

#[test]
fn parts_are_replaced_without_changing_the_tensor() -> Result<()> {
    let x = range(&[3, 4])?;
    let source = (range(&[2, 2])? + 20.0)?;
    let y = x.slice_assign(&[1..3, 1..3], &source)?;
    assert_eq!(y.to_vec2::<f32>()?, [[0., 1., 2., 3.], [4., 20., 21., 7.], [8., 22., 23., 11.]]);
    let z = x.t()?.slice_scatter(&source.t()?.repeat((2, 1))?.narrow(1, 0, 1)?, 1, 2)?;
    assert_eq!(z.to_vec2::<f32>()?, [[0., 4., 20.], [1., 5., 21.], [2., 6., 20.], [3., 7., 21.]]);
    let first = x.slice_scatter0(&x.narrow(0, 2, 1)?, 0)?;
    assert_eq!(first.to_vec2::<f32>()?[0], [8., 9., 10., 11.]);
    assert_eq!(x.slice_assign(&[..], &(&x * 0.0)?)?.sum_all()?.to_scalar::<f32>()?, 0.);
    assert_eq!(x.slice_assign(&[2..=2], &x.narrow(0, 0, 1)?)?.to_vec2::<f32>()?[2], [0., 1., 2., 3.]);
    assert_eq!(x.to_vec2::<f32>()?[1], [4., 5., 6., 7.]);
    Ok(())
}

#[test]
fn sizes_of_nothing_are_counted_without_overflow() -> tallow::Result<()> {
    let (most, device) = (usize::MAX, &tallow::Device::Cpu);
    let none = |dims: &[usize]| tallow::Tensor::zeros(dims, tallow::DType::F32, device);
    assert_eq!(none(&[2, 2, 2, 0])?.repeat((most, most, 2, 1))?.elem_count(), 0);
    assert_eq!(none(&[most, most, 0, 3])?.var((0, 1))?.elem_count(), 0);
    assert_eq!(tallow::linalg::inverse(&none(&[most, most, 0, 3, 3])?)?.elem_count(), 0);
    assert!(tallow::linalg::svd(&none(&[0, most, most])?).is_err());
    Ok(())
}
