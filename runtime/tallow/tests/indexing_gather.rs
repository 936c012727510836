//! gather, scatter and their kind: shapes, duplicates, writes in place, errors, and that nothing depends on the layout. Numbers
//! over many layouts are the conformance table's business, gradients that of tests/autograd.

use tallow::{DType, Device, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn gather_takes_elements_along_any_axis() -> Result<()> {
    let x = Tensor::arange(0f32, 12., CPU)?.reshape((3, 4))?;
    let ids = Tensor::new([[0u32, 3], [1, 1], [2, 0]], CPU)?;
    assert_eq!(x.gather(&ids, 1)?.to_vec2::<f32>()?, [[0., 3.], [5., 5.], [10., 8.]]);
    // Fewer columns than the source, as PyTorch allows.
    let ids = Tensor::new([[2u8, 0]], CPU)?;
    assert_eq!(x.gather(&ids, 0)?.to_vec2::<f32>()?, [[8., 1.]]);
    // Of a view, by ids that are a view.
    let ids = Tensor::new([[0i64, 1, 2]], CPU)?.t()?;
    assert_eq!(x.t()?.narrow(1, 0, 1)?.gather(&ids, 0)?.to_vec2::<f32>()?, [[0.], [1.], [2.]]);
    let none = Tensor::zeros((3, 0), DType::U32, CPU)?;
    assert_eq!(x.gather(&none, 1)?.dims(), [3, 0]);
    for dtype in [DType::U8, DType::F16, DType::BF16, DType::F64, DType::I16, DType::U64] {
        let got = x.to_dtype(dtype)?.gather(&ids, 1)?.to_dtype(DType::F32)?;
        assert_eq!(got.to_vec2::<f32>()?, [[0.], [5.], [10.]], "{dtype}");
    }
    Ok(())
}

#[test]
fn scatter_writes_adds_and_compares() -> Result<()> {
    let x = Tensor::zeros((2, 3), DType::F32, CPU)?;
    let ids = Tensor::new([[2u32, 2], [0, 1]], CPU)?;
    let source = Tensor::new([[1f32, 2.], [3., 4.]], CPU)?;
    assert_eq!(x.scatter(&ids, &source, 1)?.to_vec2::<f32>()?, [[0., 0., 2.], [3., 4., 0.]]);
    assert_eq!(x.scatter_add(&ids, &source, 1)?.to_vec2::<f32>()?, [[0., 0., 3.], [3., 4., 0.]]);
    let base = (x + 2.5)?;
    assert_eq!(base.scatter_max(&ids, &source, 1)?.to_vec2::<f32>()?, [[2.5, 2.5, 2.5], [3., 4., 2.5]]);
    assert_eq!(base.scatter_min(&ids, &source, 1)?.to_vec2::<f32>()?, [[2.5, 2.5, 1.], [2.5, 2.5, 2.5]]);
    // Ids smaller than the source and, on the other axis, than the base.
    let ids = Tensor::new([[1u32, 0]], CPU)?;
    assert_eq!(base.scatter(&ids, &source, 0)?.to_vec2::<f32>()?, [[2.5, 2., 2.5], [1., 2.5, 2.5]]);
    assert_eq!(base.scatter_add(&ids, &source, 0)?.to_vec2::<f32>()?, [[2.5, 4.5, 2.5], [3.5, 2.5, 2.5]]);
    Ok(())
}

#[test]
fn index_add_adds_slices() -> Result<()> {
    let x = Tensor::ones((3, 2), DType::F32, CPU)?;
    let source = Tensor::new([[1f32, 2.], [3., 4.], [5., 6.]], CPU)?;
    let ids = Tensor::new([2u32, 0, 2], CPU)?;
    assert_eq!(x.index_add(&ids, &source, 0)?.to_vec2::<f32>()?, [[4., 5.], [1., 1.], [7., 9.]]);
    let ids = Tensor::new([1i64, 1], CPU)?;
    assert_eq!(x.index_add(&ids, &source, 1)?.to_vec2::<f32>()?, [[1., 4.], [1., 8.], [1., 12.]]);
    assert!(error(x.index_add(&ids, &source, 0)).contains("2 ids do not fit"));
    Ok(())
}

#[test]
fn writes_in_place_are_seen_by_clones_and_not_by_older_results() -> Result<()> {
    let x = Tensor::zeros(4, DType::F32, CPU)?.copy()?;
    let (same, before) = (x.clone(), (&x + 1.0)?);
    let ids = Tensor::new([3u32, 1, 3], CPU)?;
    let source = Tensor::new([1f32, 2., 3.], CPU)?;
    x.scatter_set(&ids, &source, 0)?;
    assert_eq!(same.to_vec1::<f32>()?, [0., 2., 0., 3.]);
    x.scatter_add_set(&ids, &source, 0)?;
    assert_eq!(same.to_vec1::<f32>()?, [0., 4., 0., 7.]);
    assert_eq!(before.to_vec1::<f32>()?, [1.; 4]);
    // Into a view: the rest stays.
    let table = Tensor::zeros((2, 3), DType::U8, CPU)?;
    table.narrow(0, 1, 1)?.t()?.scatter_add_set(
        &ids.narrow(0, 0, 1)?.unsqueeze(0)?.zeros_like()?,
        &Tensor::new([[7u8]], CPU)?,
        0,
    )?;
    assert_eq!(table.to_vec2::<u8>()?, [[0, 0, 0], [7, 0, 0]]);
    // With its own elements.
    let x = Tensor::new([1f32, 2., 3.], CPU)?;
    x.scatter_set(&Tensor::new([2u32, 1, 0], CPU)?, &x, 0)?;
    assert_eq!(x.to_vec1::<f32>()?, [3., 2., 1.]);
    // A variable keeps being one.
    let var = Var::new([1f32, 2.], CPU)?;
    var.scatter_set(&Tensor::new([0u32], CPU)?, &Tensor::new([5f32], CPU)?, 0)?;
    assert_eq!(var.sqr()?.sum_all()?.backward()?.get(&var).expect("a gradient").to_vec1::<f32>()?, [10., 4.]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() -> Result<()> {
    let x = Tensor::zeros((2, 3), DType::F32, CPU)?;
    let ids = |dims: (usize, usize)| Tensor::zeros(dims, DType::U32, CPU);
    assert!(error(x.gather(&ids((3, 1))?, 1)).contains("larger than the source [2, 3] on axis 0"));
    assert!(error(x.gather(&ids((2, 1))?.flatten_all()?, 1)).contains("as many axes"));
    assert!(error(x.gather(&x, 1)).contains("integer dtype, not F32"));
    assert!(error(x.gather(&ids((2, 1))?, 2)).contains("no axis 2"));
    assert!(error(x.scatter(&ids((2, 3))?, &x.narrow(1, 0, 2)?, 1)).contains("not be larger than the source"));
    assert!(error(x.scatter(&ids((2, 3))?, &x.to_dtype(DType::F16)?, 1)).contains("cannot scatter F16 into F32"));
    assert!(error(x.scatter_add(&ids((3, 3))?, &Tensor::zeros((3, 3), DType::F32, CPU)?, 1)).contains("axis 0"));
    for bad in [-1i32, 3] {
        let bad = Tensor::new([[bad], [0]], CPU)?;
        let message = error(x.gather(&bad, 1)?.to_vec2::<f32>());
        assert!(message.contains("outside 0..3"), "{message}");
        let message = error(x.scatter(&bad, &x, 1)?.to_vec2::<f32>());
        assert!(message.contains("outside 0..3"), "{message}");
    }
    Ok(())
}
