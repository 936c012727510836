//! Gradients where a formula would divide by zero or have nothing to work on: as PyTorch has them, on every device.

use tallow::{D, DType, Device, Result, Tensor, Var};

fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    all.extend(tallow::block_on(Device::by_name("wgpu")).map_err(|error| eprintln!("skipped: wgpu: {error}")));
    all
}

type Function = fn(&Tensor) -> Result<Tensor>;

/// A function of a vector, its elements, and the gradient of the sum of all results.
const ROWS: &[(&str, Function, &[f32], &[f32])] = &[
    ("norm at 0", |x| x.norm(), &[0., 0.], &[0., 0.]),
    ("norm", |x| x.norm(), &[3., 4.], &[0.6, 0.8]),
    ("std of equal elements", |x| x.std(0), &[2., 2.], &[0., 0.]),
    ("std_keepdim of equal elements", |x| x.std_keepdim(0), &[2., 2., 2.], &[0., 0., 0.]),
    ("std", |x| x.std(0), &[0., 2.], &[-std::f32::consts::FRAC_1_SQRT_2, std::f32::consts::FRAC_1_SQRT_2]),
    ("var of equal elements", |x| x.var(0), &[2., 2.], &[0., 0.]),
    ("powf 0 at 0", |x| x.powf(0.), &[0., 2.], &[0., 0.]),
    ("powf 1 at 0", |x| x.powf(1.), &[0., 2.], &[1., 1.]),
    ("powf 2 at 0", |x| x.powf(2.), &[0., -2.], &[0., -4.]),
    ("pow of 0", |x| x.pow(&x.detach()), &[2., 1.], &[4., 1.]),
    ("0 to a power", |x| x.zeros_like()?.pow(x), &[0., 2.], &[0., 0.]),
    ("abs at 0", |x| x.abs(), &[0., -1.], &[0., -1.]),
    ("relu at 0", |x| x.relu(), &[0., 1.], &[0., 1.]),
    ("clamp at its limits", |x| x.clamp(-1., 1.), &[-1., 1., 1.5], &[1., 1., 0.]),
    ("prod with a zero", |x| x.prod(0), &[0., 2., 3.], &[6., 0., 0.]),
    ("prod with two", |x| x.prod(0), &[0., 2., 0.], &[0., 0., 0.]),
    ("max of equal elements", |x| x.max(0), &[1., 3., 3.], &[0., 1., 0.]),
    ("max_all of equal elements", |x| x.max_all(), &[1., 3., 3.], &[0., 0.5, 0.5]),
    ("maximum of equal elements", |x| x.maximum(x.detach()), &[1., 3.], &[0.5, 0.5]),
    ("sigmoid far out", |x| x.sigmoid(), &[-1e30, -200., 200., 1e30], &[0.; 4]),
    ("silu far out", |x| x.silu(), &[-1e30, -200., 200., 1e30], &[0., 0., 1., 1.]),
    ("gelu far out", |x| x.gelu(), &[-1e10, -200., 200., 1e10], &[0., 0., 1., 1.]),
    ("gelu_erf far out", |x| x.gelu_erf(), &[-1e30, -200., 200., 1e30], &[0., 0., 1., 1.]),
    ("tanh far out", |x| x.tanh(), &[-1e30, 1e30], &[0., 0.]),
    ("elu far out", |x| x.elu(1.), &[-1e30, 1e30], &[0., 1.]),
    ("erf far out", |x| x.erf(), &[-1e30, 1e30], &[0., 0.]),
    ("log_sum_exp far out", |x| x.log_sum_exp(0), &[-1e30, 1e30], &[0., 1.]),
    ("softmax far out", |x| x.softmax_last_dim()?.narrow(0, 0, 1), &[1e30, -1e30], &[0., 0.]),
    ("sort of equal elements", |x| x.sort(0, false)?.0.narrow(0, 0, 1), &[1., 1.], &[1., 0.]),
    ("gather of one element twice", |x| x.gather(&Tensor::new([1u32, 1], x.device())?, 0), &[1., 2.], &[0., 2.]),
    ("a hole", |x| x.index_select(&Tensor::new([u32::MAX, 0], x.device())?, 0), &[1., 2.], &[1., 0.]),
    ("repeat by 0", |x| x.repeat(0), &[1., 2.], &[0., 0.]),
    ("nothing of it", |x| x.narrow(0, 1, 0), &[1., 2.], &[0., 0.]),
    ("through F16", |x| x.to_dtype(DType::F16)?.sqr()?.to_dtype(DType::F32), &[1., 2.], &[2., 4.]),
    ("round", |x| x.round(), &[0.4, 1.6], &[0., 0.]),
    ("where, both sides finite", |x| x.gt(0.)?.where_cond(&x.sqrt()?, &x.zeros_like()?), &[4., 1.], &[0.25, 0.5]),
    ("layer_norm of equal elements", |x| x.layer_norm(1e-5)?.narrow(0, 0, 1), &[1., 1.], &[158.11389, -158.11389]),
    ("rms_norm of zeros", |x| x.rms_norm(1e-6), &[0., 0.], &[1000., 1000.]),
    ("cumprod with a zero", |x| x.cumprod(0), &[0., 2.], &[3., 0.]),
    (
        "matmul by nothing",
        |x| x.reshape((2, 1))?.matmul(&Tensor::zeros((1, 0), DType::F32, x.device())?),
        &[1., 2.],
        &[0., 0.],
    ),
];

#[test]
fn where_formulas_divide_by_zero() -> Result<()> {
    let mut faults = Vec::new();
    for device in devices() {
        for (name, function, at, want) in ROWS {
            let x = Var::from_slice(at, at.len(), &device)?;
            let run =
                || function(&x)?.sum_all()?.backward()?.get(&x).map_or(Ok(vec![0.; at.len()]), |g| g.to_vec1::<f32>());
            match run() {
                Ok(got) if got.iter().zip(*want).all(|(g, w)| (g - w).abs() <= 1e-3 * w.abs().max(1e-3)) => {}
                Ok(got) => faults.push(format!("{device:?} {name}: {got:?}, not {want:?}")),
                Err(error) => faults.push(format!("{device:?} {name}: {error}")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

#[test]
fn of_nothing() -> Result<()> {
    for device in devices() {
        let x = Var::zeros((0, 3), DType::F32, &device)?;
        let w = Var::ones((3, 2), DType::F32, &device)?;
        let kernel = Var::ones((2, 1, 3, 3), DType::F32, &device)?;
        let sums = [
            x.sum_all()?,
            x.matmul(&w)?.sum_all()?,
            x.matmul(&w)?.softmax_last_dim()?.sum_all()?,
            x.sort(D::Minus1, true)?.0.sum_all()?,
            x.cumsum(0)?.max(1)?.sum_all()?,
            Tensor::cat(&[x.as_tensor(), &w.t()?], 0)?.sum_all()?,
        ];
        for loss in &sums {
            let grads = loss.backward()?;
            if let Some(grad) = grads.get(&x) {
                assert_eq!(grad.dims(), [0, 3]);
                grad.realize()?;
            }
            if let Some(grad) = grads.get(&w) {
                assert!(grad.flatten_all()?.to_vec1::<f32>()?.iter().all(|g| [0., 1.].contains(g)));
            }
        }
        let image = Tensor::zeros((0, 1, 4, 4), DType::F32, &device)?;
        let grads = image.conv2d(&kernel, 0, 1, 1, 1)?.sum_all()?.backward()?;
        let grad = grads.get(&kernel).expect("the loss depends on it");
        assert_eq!(grad.flatten_all()?.to_vec1::<f32>()?, [0.; 18]);
    }
    Ok(())
}
