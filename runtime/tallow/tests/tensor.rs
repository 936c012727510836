//! The tensor layer: shapes, indexing, printing, writes, and errors that say what did not fit. Numbers are the conformance
//! tests' business.

use tallow::{D, DType, Device, IndexOp, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn shapes_views_and_indices() -> Result<()> {
    let x = Tensor::arange(0u32, 24, CPU)?.reshape((2, (), 4))?;
    assert_eq!(x.dims(), [2, 3, 4]);
    assert_eq!(x.i((1, 2, 3))?.to_scalar::<u32>()?, 23);
    assert_eq!(x.i((.., 1..=1, D1))?.dims(), [2, 1, 2]);
    assert_eq!(x.permute((2, 0, 1))?.i((3, 1))?.to_vec1::<u32>()?, [15, 19, 23]);
    assert_eq!(x.flatten_from(1)?.flip(1)?.i((0, ..3))?.to_vec1::<u32>()?, [11, 10, 9]);
    assert_eq!(x.transpose(0, D::Minus1)?.reshape((12, 2))?.i(11)?.to_vec1::<u32>()?, [11, 23]);
    assert_eq!(x.i(&Tensor::new([1u32, 0, 1], CPU)?)?.dims(), [3, 3, 4]);
    let parts = x.chunk(3, 2)?;
    assert_eq!(parts.iter().map(|p| p.dims()[2]).collect::<Vec<_>>(), [2, 1, 1]);
    assert_eq!(x.unsqueeze(D::Minus1)?.dims(), [2, 3, 4, 1]);
    assert_eq!(x.narrow(0, 1, 1)?.squeeze(0)?.broadcast_left(5)?.dims(), [5, 3, 4]);
    Ok(())
}

const D1: std::ops::Range<usize> = 1..3;

#[test]
fn errors_name_the_operation_and_the_shapes() -> Result<()> {
    let a = Tensor::zeros((2, 3), DType::F32, CPU)?;
    let b = Tensor::zeros((2, 4), DType::F32, CPU)?;
    assert_eq!(error(&a + &b), "add: shapes [2, 3] and [2, 4] differ: use broadcast_add");
    assert!(error(a.broadcast_add(&b)).contains("do not broadcast"));
    assert!(error(a.matmul(&b)).starts_with("matmul: "));
    assert!(error(a.add(&a.to_dtype(DType::F16)?)).contains("F32 and F16 differ"));
    assert!(error(a.reshape((4, 2))).contains("[2, 3] does not make [4, 2]"));
    assert!(error(a.reshape((4, ()))).contains("do not fill a hole"));
    assert!(error(a.narrow(1, 2, 2)).contains("not inside axis 1"));
    assert!(error(a.dim(2)).contains("no axis 2"));
    assert!(error(a.sum((0, 0))).contains("named twice"));
    assert!(error(a.to_vec1::<f32>()).contains("2 axes, not 1"));
    assert!(error(a.to_vec2::<u8>()).contains("F32, not U8"));
    assert!(error(a.sqrt()?.to_dtype(DType::I32)?.exp()).contains("floating-point"));
    assert!(error(Tensor::from_slice(&[1f32; 5], (2, 3), CPU)).contains("5 values do not make [2, 3]"));
    assert!(error(Tensor::arange_step(0f32, 1., 0., CPU)).contains("no range"));
    assert_eq!(
        error(Tensor::zeros(32, DType::Q4_1, CPU)),
        "full: Q4_1 is a packed type: packed weights come from files"
    );
    assert!(error(Tensor::from_bytes(&[0; 20], DType::Q4_1, (1, 32), CPU)).contains("Q4_1"));
    Ok(())
}

#[test]
fn absurd_sizes_are_errors() -> Result<()> {
    let one = Tensor::zeros(1, DType::F32, CPU)?;
    assert!(one.broadcast_as((usize::MAX, 2)).is_err());
    assert!(one.broadcast_as([1; 9]).is_err());
    assert!(one.unsqueeze(0)?.reshape([1; 9]).is_err());
    assert!(Tensor::zeros((usize::MAX, usize::MAX), DType::F32, CPU).and_then(|t| t.to_vec2::<f32>()).is_err());
    // A petabyte that is asked for, not one that is only passed through.
    let error = error(Tensor::zeros((1 << 40, 1 << 10), DType::F64, CPU).and_then(|t| t.to_vec2::<f64>()));
    assert!(error.contains("memory"), "{error}");
    Ok(())
}

#[test]
fn variables_and_versions() -> Result<()> {
    let var = Var::from_tensor(&Tensor::new([1f32, 2.], CPU)?)?;
    let (same, before) = (var.as_tensor().clone(), (var.as_tensor() * 10.0)?);
    var.set(&Tensor::new([3f32, 4.], CPU)?)?;
    assert_eq!(same.to_vec1::<f32>()?, [3., 4.]);
    assert_eq!(before.to_vec1::<f32>()?, [10., 20.]);
    assert!(error(var.set(&Tensor::new([3f32], CPU)?)).contains("cannot set [2] F32 to [1] F32"));
    let other = Device::from_backend(std::sync::Arc::new(tallow_graph::reference::Reference::default()));
    assert!(error(var.set(&Tensor::new([3f32, 4.], &other)?)).contains("to_device"));
    let stretched = Tensor::zeros(1, DType::F32, CPU)?.broadcast_as(3)?;
    assert!(error(stretched.one_set()).contains("more than once"));
    Ok(())
}

#[test]
fn scalars_and_operators() -> Result<()> {
    let x = Tensor::new([1f32, 2., 4.], CPU)?;
    let y = (1.0 - (2.0 / &x)?)?;
    assert_eq!(((&x * &x)? + &y)?.to_vec1::<f32>()?, [0., 4., 16.5]);
    assert_eq!((x.clone() + (&x * 2.0))?.to_vec1::<f32>()?, [3., 6., 12.]);
    assert_eq!(x.clamp(1.5, 3.0)?.to_vec1::<f32>()?, [1.5, 2., 3.]);
    assert_eq!(x.apply(&|t: &Tensor| t.sqr())?.to_vec1::<f32>()?, [1., 4., 16.]);
    Ok(())
}
