//! Views, copies, and where values lie.

use crate::check::{Row, check, gpu, gradient_at};
use tallow::{D, Device, IndexOp, Result, Tensor, Var};

const CPU: &Device = &Device::Cpu;

fn one(name: &'static str, f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Row {
    // The square makes the derivative depend on the place.
    Row::new(name, &[&[2, 3, 4]], -2.0..2.0, move |x| f(&x[0])?.sqr())
}

#[test]
fn views() {
    check(&[
        one("transpose", |x| x.transpose(0, 2)),
        one("permute", |x| x.permute((2, 0, 1))),
        one("narrow", |x| x.narrow(1, 1, 2)),
        one("narrow to nothing", |x| x.narrow(1, 1, 0)).first_only(),
        one("narrow twice", |x| x.narrow(2, 1, 3)?.narrow(0, 1, 1)),
        one("flip", |x| x.flip((0, 2))),
        one("flip of a part", |x| x.narrow(2, 1, 2)?.flip(2)?.t()),
        one("get", |x| x.get(1)),
        one("get_on_dim", |x| x.get_on_dim(D::Minus1, 2)),
        one("i", |x| x.i((1, .., 1..3))),
        one("reshape", |x| x.reshape((4, ()))),
        one("reshape of a transposed one", |x| x.transpose(0, 1)?.reshape((6, 4))),
        one("reshape that copies", |x| x.t()?.reshape(24)),
        one("squeeze and unsqueeze", |x| x.unsqueeze(1)?.unsqueeze(D::Minus1)?.squeeze(1)?.squeeze(3)),
        one("broadcast_as", |x| x.unsqueeze(1)?.broadcast_as((3, 2, 2, 3, 4))),
        one("broadcast_left", |x| x.broadcast_left((2, 2))),
        one("flatten", |x| x.flatten(0, 1)?.flatten_all()),
        one("chunk", |x| {
            let parts = x.chunk(3, 2)?;
            parts[0].narrow(2, 0, 1)? * (&parts[1] * &parts[2])?
        }),
        one("broadcast then narrow", |x| x.narrow(0, 0, 1)?.broadcast_as((3, 3, 4))?.narrow(0, 1, 2)),
        one("contiguous", |x| x.t()?.contiguous()),
        one("copy", |x| x.copy()? * x.force_contiguous()?),
    ]);
}

#[test]
fn a_scalar_has_views_too() -> Result<()> {
    let x = Var::new(3f64, CPU)?;
    assert_eq!(gradient_at(&x, |x| x.unsqueeze(0)?.broadcast_as((2, 3))?.flip(1)?.sqr())?, [36.]);
    Ok(())
}

#[test]
fn gradients_come_home() -> Result<()> {
    let other = Device::from_backend(std::sync::Arc::new(tallow_graph::reference::Reference::default()));
    let devices = [Some(&other), gpu()];
    for device in devices.into_iter().flatten() {
        let x = Var::new([[1f32, 2., 3.], [4., 5., 6.]], CPU)?;
        let there = x.t()?.to_device(device)?.sqr()?;
        let grads = there.backward()?;
        let of_x = grads.get(&x).expect("a gradient");
        assert!(of_x.device().same_device(CPU));
        assert_eq!(of_x.to_vec2::<f32>()?, [[2., 4., 6.], [8., 10., 12.]]);
    }
    Ok(())
}
