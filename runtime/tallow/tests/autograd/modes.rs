//! Recording on and off, and blocks that are computed twice.

use tallow::{Device, Result, Tensor, Var, checkpoint, grad, no_grad};

const CPU: &Device = &Device::Cpu;

fn of(grads: &tallow::GradStore, var: &Tensor) -> Result<Vec<f64>> {
    grads.get(var).expect("a gradient").flatten_all()?.to_vec1()
}

#[test]
fn no_grad_records_nothing() -> Result<()> {
    let x = Var::new([1f64, 2.], CPU)?;
    let (y, view) = no_grad(|| -> Result<_> { Ok((x.sqr()?, x.get(1)?)) })?;
    assert!(!y.is_tracked() && !view.is_tracked() && !view.sqr()?.is_tracked());
    // It ends with the block, also if that panics; backward works inside.
    let panicked = std::panic::catch_unwind(|| no_grad(|| panic!("on purpose")));
    assert!(panicked.is_err());
    let z = x.sqr()?;
    assert!(z.is_tracked());
    let grads = no_grad(|| z.backward())?;
    assert_eq!(of(&grads, &x)?, [2., 4.]);
    Ok(())
}

#[test]
fn a_checkpoint_has_the_same_gradients() -> Result<()> {
    let x = Var::new([[0.1f64, -0.7], [1.2, 0.4]], CPU)?;
    let w = Var::new([[0.5f64, -0.3], [0.8, 1.1]], CPU)?;
    // An input twice, a captured variable, and a captured result.
    let between = w.sqr()?;
    let block = {
        let (w, between) = (w.as_tensor().clone(), between.clone());
        move |x: &[Tensor]| ((x[0].matmul(&w)?.tanh()? * &x[1])? + &between)?.exp()
    };
    let inputs = [x.as_tensor(), x.as_tensor()];
    let plain = block(&inputs.map(Clone::clone))?;
    let again = checkpoint(block, &inputs)?;
    assert_eq!(plain.to_vec2::<f64>()?, again.to_vec2::<f64>()?);
    let (a, b) = (plain.backward()?, again.backward()?);
    for var in [&x, &w] {
        assert_eq!(of(&a, var)?, of(&b, var)?);
    }
    // Second derivatives.
    let second = |y: &Tensor| -> Result<Vec<Vec<f64>>> {
        let first = grad(&[y], &[&x, &w], true)?;
        let slope = ((&first[0] * &first[1])?.sqr()?).sum_all()?;
        grad(&[&slope], &[&x, &w], false)?.iter().map(|g| g.flatten_all()?.to_vec1()).collect()
    };
    let (a, b) = (second(&plain)?, second(&again)?);
    for (a, b) in a.iter().flatten().zip(b.iter().flatten()) {
        assert!((a - b).abs() < 1e-9 * a.abs().max(1.0), "{a} {b}");
    }
    Ok(())
}

#[test]
fn a_checkpoint_inside_another_draws_the_same_numbers() -> Result<()> {
    let device = Device::from_backend(std::sync::Arc::new(tallow_graph::reference::Reference::default()));
    let x = Var::ones(8, tallow::DType::F64, &device)?;
    let noisy = |x: &Tensor| x * Tensor::rand(0f64, 1., x.shape(), x.device())?;
    let block = move |x: &[Tensor]| {
        let inner = checkpoint(move |x: &[Tensor]| noisy(&x[0])?.sqr(), &[&noisy(&x[0])?])?;
        noisy(&inner)
    };
    let run = |checkpointed: bool| -> Result<(Vec<f64>, Vec<f64>)> {
        device.set_seed(7)?;
        let y = if checkpointed { checkpoint(block, &[&x])? } else { block(&[x.as_tensor().clone()])? };
        // Other draws in between change nothing.
        Tensor::rand(0f64, 1., 3, &device)?;
        Ok((y.to_vec1()?, of(&y.backward()?, &x)?))
    };
    let (plain, recomputed) = (run(false)?, run(true)?);
    assert_eq!(plain, recomputed);
    assert!(plain.1.windows(2).any(|w| w[0] != w[1]));
    Ok(())
}

#[test]
fn a_variable_that_is_set_in_between_is_an_error() -> Result<()> {
    let (x, w) = (Var::new([1f64], CPU)?, Var::new([2f64], CPU)?);
    let weight = w.as_tensor().clone();
    let y = checkpoint(move |x: &[Tensor]| (&x[0] * &weight)?.sqr(), &[&x])?;
    assert_eq!(of(&y.backward()?, &w)?, [4.]);
    w.set(&Tensor::new([3f64], CPU)?)?;
    let error = y.backward().expect_err("an error").to_string();
    assert!(error.contains("was set between"), "{error}");
    // An input may be set: its old value was kept.
    let weight = w.as_tensor().clone();
    let y = checkpoint(move |x: &[Tensor]| (&x[0] * &weight)?.sqr(), &[&x])?;
    x.set(&Tensor::new([100f64], CPU)?)?;
    assert_eq!(of(&y.backward()?, &w)?, [6.]);
    // Without variables there is nothing to record.
    let constant = Tensor::new([3f64], CPU)?;
    assert!(!checkpoint(|x: &[Tensor]| x[0].sqr(), &[&constant])?.is_tracked());
    assert!(no_grad(|| checkpoint(|x: &[Tensor]| x[0].sqr(), &[&x])).is_ok_and(|y| !y.is_tracked()));
    Ok(())
}

#[test]
fn a_checkpoint_notices_a_variable_that_was_written_without_recording() -> Result<()> {
    let (x, w) = (Var::new([1f32, 2.], &Device::Cpu)?, Var::new([3f32, 4.], &Device::Cpu)?);
    let weight = w.as_tensor().clone();
    let y = checkpoint(move |x| &x[0] * &weight, &[&x])?;
    no_grad(|| w.const_set(7.0))?;
    let error = y.backward().expect_err("the block would compute with the new value").to_string();
    assert!(error.contains("a variable was set"), "{error}");
    Ok(())
}
