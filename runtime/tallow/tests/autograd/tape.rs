//! The walk over the tape: accumulation, targets, long chains, errors, and what is one plan.

use crate::check::numbers;
use tallow::{DType, Device, GradStore, Result, Tensor, Var, grad, grad_of};

const CPU: &Device = &Device::Cpu;

fn error<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(error) => error.to_string(),
    }
}

/// A CPU whose counters no other test moves.
fn own_device() -> Device {
    Device::from_backend(std::sync::Arc::new(tallow_cpu::CpuBackend::new().expect("a CPU")))
}

#[test]
fn a_variable_that_is_used_twice_gets_the_sum() -> Result<()> {
    // candle's own example: d/dx (x^2 + 5x + 4), and more uses.
    let x = Var::new([3f32, 1., 4.], CPU)?;
    let x = x.as_tensor();
    let y = (((x * x)? + x * 5f64)? + 4f64)?;
    let grads = y.backward()?;
    assert_eq!(y.to_vec1::<f32>()?, [28., 10., 40.]);
    assert_eq!(grads.get(x).expect("a gradient").to_vec1::<f32>()?, [11., 7., 13.]);
    // A clone is the same variable; backward can be called again, and starts from nothing.
    let clone = x.clone();
    assert_eq!((clone.id(), clone.is_variable()), (x.id(), true));
    let again = (&y + (&clone * 2.0)?)?.backward()?;
    assert_eq!(again.get(&clone).expect("a gradient").to_vec1::<f32>()?, [13., 9., 15.]);
    Ok(())
}

#[test]
fn only_variables_are_in_the_store() -> Result<()> {
    let (x, unused) = (Var::new(2f64, CPU)?, Var::new(2f64, CPU)?);
    let y = x.exp()?;
    let mut grads: GradStore = y.sqr()?.backward()?;
    assert!(grads.get(&y).is_none() && grads.get(&unused).is_none());
    assert_eq!(grads.get_ids().collect::<Vec<_>>(), [&x.id()]);
    assert!(grads.insert(&unused, Tensor::new(1f64, CPU)?).is_none());
    assert!(grads.get_id(unused.id()).is_some() && grads.remove(&unused).is_some() && grads.get(&unused).is_none());
    // A variable's own gradient.
    assert_eq!(x.backward()?.get(&x).expect("a gradient").to_scalar::<f64>()?, 1.);
    Ok(())
}

#[test]
fn gradients_of_any_tracked_tensor() -> Result<()> {
    let x = Var::new([1f64, 2.], CPU)?;
    let y = x.sqr()?;
    let z = (&y * &y)?;
    let both = grad(&[&z], &[&y, &x, &y], false)?;
    assert_eq!(both[0].to_vec1::<f64>()?, [2., 8.]);
    assert_eq!(both[1].to_vec1::<f64>()?, [4., 32.]);
    assert_eq!(both[2].to_vec1::<f64>()?, [2., 8.]);
    // Weighted, of two outputs.
    let weight = Tensor::new([10f64, 0.], CPU)?;
    let weighted = grad_of(&[&z, &y], &[Some(&weight), None], &[&x], false)?;
    assert_eq!(weighted[0].to_vec1::<f64>()?, [42., 4.]);
    let other = Var::new(1f64, CPU)?;
    assert!(error(grad(&[&z], &[&other], false)).contains("do not depend on input 0"));
    assert!(error(grad(&[&z], &[&weight], false)).contains("depends on no variable"));
    assert!(error(grad_of(&[&z], &[Some(&other)], &[&x], false)).contains("must be alike"));
    assert!(error(grad_of(&[&z], &[], &[&x], false)).contains("0 gradients for 1 outputs"));
    Ok(())
}

#[test]
fn higher_derivatives() -> Result<()> {
    let x = Var::new([0.3f64, -0.8], CPU)?;
    let mut y = x.sin()?;
    for (n, want) in [f64::cos, |x: f64| -x.sin(), |x: f64| -x.cos(), f64::sin].into_iter().enumerate() {
        let gradient: Tensor = grad(&[&y], &[&x], true)?.remove(0);
        let got = gradient.to_vec1::<f64>()?;
        assert!((got[0] - want(0.3)).abs() < 1e-12 && (got[1] - want(-0.8)).abs() < 1e-12, "{n}: {got:?}");
        y = gradient;
    }
    Ok(())
}

#[test]
fn an_operation_without_a_gradient_is_named() -> Result<()> {
    let x = Var::new([1f32, 2.], CPU)?;
    let node = tallow_graph::ops::copy(x.as_edge())?;
    let y = Tensor::from_operation("my_kernel", node, &[&x])?;
    assert_eq!(y.to_vec1::<f32>()?, [1., 2.]);
    let message = error((&y * 2.0)?.sum_all()?.backward());
    assert!(message.starts_with("my_kernel: has no gradient"), "{message}");
    // Not on the way: no error.
    let kept = x.sqr()?;
    assert!(grad(&[&(&kept + &y)?], &[&kept], false).is_ok());
    assert!(y.detach().sqr().is_ok());
    Ok(())
}

#[test]
fn what_depends_on_no_variable_is_an_error() -> Result<()> {
    let x = Var::new([1f32, 2.], CPU)?;
    for tensor in [Tensor::new(1f32, CPU)?, x.detach().sqr()?, x.to_dtype(DType::U8)?.to_dtype(DType::F32)?] {
        assert!(error(tensor.backward()).starts_with("backward: the tensor"));
        assert!(!tensor.is_tracked());
    }
    Ok(())
}

#[test]
fn a_chain_of_100_000_operations() -> Result<()> {
    let x = Var::new([1f64], CPU)?;
    let mut y = x.as_tensor().clone();
    for _ in 0..50_000 {
        y = ((y * 0.5)? + 1.0)?;
    }
    let grads = y.backward()?;
    let of_x = grads.get(&x).expect("a gradient").to_vec1::<f64>()?;
    assert_eq!(of_x, [0.5f64.powi(50_000)]);
    assert_eq!(y.to_vec1::<f64>()?, [2.0]);
    drop(grads);
    drop(y);
    Ok(())
}

#[test]
fn values_that_no_gradient_needs_are_not_kept() -> Result<()> {
    // Sums, and products with constants: the tape holds no value, so nothing but the ends is alive.
    let device = own_device();
    let x = Var::new(&numbers(1, 1000)[..], &device)?;
    let mut y = x.as_tensor().clone();
    let counters = || device.engine().backend().counters();
    y.realize()?;
    let before = counters().bytes;
    for _ in 0..20 {
        y = ((&y + &y)? * 0.5)?;
        y.realize()?;
    }
    assert!(counters().bytes <= before + 3 * 8000, "{} after {before}", counters().bytes);
    assert_eq!(y.backward()?.get(&x).expect("a gradient").get(0)?.to_scalar::<f64>()?, 1.0);
    Ok(())
}

#[test]
fn forward_backward_and_update_are_one_plan() -> Result<()> {
    // A GPU of its own too: submits are counted.
    let gpu = crate::check::gpu().map(|_| tallow::block_on(Device::by_name("wgpu"))).transpose()?;
    for device in [Some(own_device()), gpu].into_iter().flatten() {
        let data = |seed, shape: (usize, usize)| -> Result<Tensor> {
            let values: Vec<f32> = numbers(seed, shape.0 * shape.1).iter().map(|&v| v as f32 - 0.5).collect();
            Tensor::from_slice(&values, shape, &device)
        };
        let (w1, b1) = (Var::from_tensor(&data(1, (8, 4))?)?, Var::zeros(8, DType::F32, &device)?);
        let (w2, b2) = (Var::from_tensor(&data(2, (3, 8))?)?, Var::zeros(3, DType::F32, &device)?);
        let vars = [&w1, &b1, &w2, &b2];
        let (x, target) = (data(3, (16, 4))?, data(4, (16, 3))?);
        let nodes: Vec<_> = vars.iter().map(|v| v.node()).chain([x.node(), target.node()]).collect();
        tallow::block_on(device.engine().realize(&nodes))?;
        let mut losses = Vec::new();
        for _ in 0..3 {
            let before = (device.engine().plan_counters().rounds, device.engine().backend().counters().submits);
            let hidden = x.matmul(&w1.t()?)?.broadcast_add(&b1)?.gelu()?;
            let out = hidden.matmul(&w2.t()?)?.broadcast_add(&b2)?;
            let loss = (out - &target)?.sqr()?.mean_all()?;
            let grads = loss.backward()?;
            for var in vars {
                let grad = grads.get(var).expect("a gradient");
                var.set(&(var.as_tensor() - (grad * 0.5)?)?)?;
            }
            let roots: Vec<_> = vars.iter().map(|v| v.node()).chain([loss.node()]).collect();
            tallow::block_on(device.engine().realize(&roots))?;
            let after = (device.engine().plan_counters().rounds, device.engine().backend().counters().submits);
            assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "{device:?}");
            losses.push(loss.to_scalar::<f32>()?);
        }
        assert!(losses[2] < losses[1] && losses[1] < losses[0], "{losses:?}");
    }
    Ok(())
}
