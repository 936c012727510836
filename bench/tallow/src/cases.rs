//! Each operation of the case table, as a user of Tallow would write it.

use tallow::{Device, Tensor};
use tallow_bench_protocol::{Job, Op, Prepared, Refusal};

use crate::operands::{function, load};

/// Reads a job's inputs, computes once, and gives back how to compute again.
pub fn prepare(device: &Device, job: &Job) -> Result<Prepared, Refusal> {
    let inputs = load(device, job)?;
    match (job.case.op.clone(), inputs.as_slice()) {
        (Op::Matmul, [x, y]) => with(device, [x, y], |[x, y]| x.matmul(y)),
        (Op::GeluAffineMul { a, b }, [x, c]) => with(device, [x, c], move |[x, c]| x.affine(a, b)?.gelu()? * c),
        (op, inputs) => Err(Refusal::Failed(format!("{op:?} of {} inputs", inputs.len()))),
    }
}

fn with<const N: usize>(
    device: &Device,
    inputs: [&Tensor; N],
    work: impl Fn(&[Tensor; N]) -> tallow::Result<Tensor> + 'static,
) -> Result<Prepared, Refusal> {
    let inputs = inputs.map(Tensor::clone);
    function(device, move || work(&inputs))
}
