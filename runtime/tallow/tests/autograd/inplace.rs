//! Writes: gradients go through them, or an error says why not; old results keep their gradients.

use crate::check::{Row, check};
use tallow::{DType, Device, Result, Tensor, Var, no_grad};

const CPU: &Device = &Device::Cpu;

fn of(grads: &tallow::GradStore, var: &Var) -> Result<Vec<f64>> {
    grads.get(var).expect("a gradient").flatten_all()?.to_vec1()
}

#[test]
fn what_is_written_is_recorded() {
    check(&[
        Row::new("into a constant", &[&[2, 3]], -2.0..2.0, |x| {
            let cell = Tensor::ones((2, 5), x[0].dtype(), x[0].device())?;
            cell.slice_set(&x[0].exp()?, 1, 1)?;
            cell.sqr()
        }),
        Row::new("into a result", &[&[2, 3], &[2, 1]], -2.0..2.0, |x| {
            let y = (&x[0] * 2.0)?;
            let before = y.sqr()?;
            y.slice_set(&x[1].exp()?, 1, 1)?;
            // The second write hides a part of the first, and the old version stays what it was.
            y.narrow(0, 1, 1)?.slice_set(&x[0].narrow(0, 0, 1)?.narrow(1, 0, 2)?, 1, 0)?;
            y.sqr()? + before
        }),
        Row::new("over a result", &[&[2, 3]], -2.0..2.0, |x| {
            let y = x[0].sqr()?;
            y.narrow(1, 0, 2)?.const_set(0.5)?;
            y.exp()
        }),
        Row::new("through a flipped view", &[&[2, 3], &[3]], -2.0..2.0, |x| {
            let y = x[0].exp()?;
            let view = y.t()?.flip(0)?;
            // The source is stretched over the window.
            view.narrow(1, 1, 1)?.assign(&x[1].unsqueeze(1)?)?;
            view.sqr()? * y.t()?
        }),
        Row::new("a view made before", &[&[2, 3]], -2.0..2.0, |x| {
            let y = x[0].exp()?;
            let column = y.narrow(1, 0, 1)?;
            y.slice_set(&x[0].narrow(1, 1, 1)?.sqr()?, 1, 0)?;
            column.exp()
        }),
        Row::new("a cache that grows", &[&[3, 2]], -2.0..2.0, |x| {
            let cache = Tensor::zeros((3, 2), x[0].dtype(), x[0].device())?;
            let mut total = x[0].zeros_like()?;
            for step in 0..3 {
                cache.slice_set(&x[0].narrow(0, step, 1)?, 0, step)?;
                total = (total + cache.sqr()?.sum_keepdim(0)?.broadcast_as((3, 2))?)?;
            }
            Ok(total)
        }),
    ]);
}

#[test]
fn a_variable_that_is_set_keeps_old_gradients() -> Result<()> {
    let x = Var::new([1f64, 2.], CPU)?;
    let same = x.as_tensor().clone();
    let before = x.sqr()?;
    x.set(&Tensor::new([10f64, 20.], CPU)?)?;
    let after = same.sqr()?;
    assert_eq!(of(&before.backward()?, &x)?, [2., 4.]);
    assert_eq!(of(&after.backward()?, &x)?, [20., 40.]);
    // A write of constants is an update too.
    x.slice_set(&Tensor::new([7f64], CPU)?, 0, 1)?;
    assert_eq!(of(&same.sqr()?.backward()?, &x)?, [20., 14.]);
    assert_eq!(of(&after.backward()?, &x)?, [20., 40.]);
    assert!(x.is_variable());
    Ok(())
}

#[test]
fn a_tracked_value_is_not_written_into_a_variable() -> Result<()> {
    let (x, y) = (Var::new([1f64, 2.], CPU)?, Var::new([3f64], CPU)?);
    let error = x.slice_set(&y.sqr()?, 0, 0).expect_err("an error").to_string();
    assert!(error.starts_with("slice_set: ") && error.contains("detach") && error.contains("slice_assign"), "{error}");
    assert_eq!(x.to_vec1::<f64>()?, [1., 2.]);
    x.slice_set(&y.sqr()?.detach(), 0, 0)?;
    no_grad(|| x.slice_set(&y.as_tensor().affine(2., 0.)?, 0, 1))?;
    assert_eq!(x.to_vec1::<f64>()?, [9., 6.]);
    // An update that is computed from the variable itself, as optimizers do.
    x.set(&(x.as_tensor() * 2.0)?)?;
    assert_eq!(of(&x.sqr()?.backward()?, &x)?, [36., 24.]);
    Ok(())
}

#[test]
fn a_part_as_the_result_of_a_checkpoint_is_not_written_as_if_it_were_whole() -> Result<()> {
    let x = Var::new([[1f64, 2.], [3., 4.]], CPU)?;
    let part = tallow::checkpoint(|x| x[0].sqr()?.narrow(1, 0, 1), &[&x])?;
    assert!(part.zero_set().expect_err("an error").to_string().contains("copy it"));
    let copy = part.copy()?;
    copy.narrow(0, 0, 1)?.zero_set()?;
    assert_eq!(of(&copy.sum_all()?.backward()?, &x)?, [0., 0., 6., 0.]);
    Ok(())
}

#[test]
fn untracked_writes_stay_untracked() -> Result<()> {
    let cell = Tensor::zeros(3, DType::F32, CPU)?;
    cell.slice_set(&Tensor::ones(1, DType::F32, CPU)?, 0, 1)?;
    assert!(!cell.is_tracked());
    // A value of integers is written without a trace.
    let x = Var::new([1f32], CPU)?;
    let ids = Tensor::zeros(3, DType::U32, CPU)?;
    ids.slice_set(&x.to_dtype(DType::U32)?, 0, 0)?;
    assert!(!ids.is_tracked());
    // A detached tensor shows the write, and stays detached.
    let detached = cell.detach();
    cell.slice_set(&x, 0, 0)?;
    assert!(cell.is_tracked() && !detached.is_tracked());
    assert_eq!(detached.to_vec1::<f32>()?, [1., 1., 0.]);
    Ok(())
}
