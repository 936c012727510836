//! Host functions as lazy values: operands go to the CPU, a closure computes matrix by matrix, the result goes back.

use super::host::{Matrix, Solver};
use crate::{DType, Device, Error, Result, Shape, Tensor};
use std::sync::{Arc, OnceLock};
use tallow_graph::{
    Edge,
    kernel::{Custom, HostView, HostViewMut},
    ops,
};

/// An operation of this module: its name, what computes it, and the kernel that is made of that once, so that plans are
/// recognised.
pub(super) struct HostOp {
    pub name: &'static str,
    pub run: Solver,
    pub kernel: OnceLock<Arc<Custom>>,
}

impl HostOp {
    pub const fn new(name: &'static str, run: Solver) -> Self {
        Self { name, run, kernel: OnceLock::new() }
    }

    fn kernel(&self) -> &Arc<Custom> {
        self.kernel.get_or_init(|| {
            let (name, run) = (self.name, self.run);
            Arc::new(
                Custom::new(name)
                    .with_cpu(Box::new(move |inputs, scalars, out| batch(name, run, inputs, scalars, out))),
            )
        })
    }

    /// `size` numbers for each matrix of operands [..., rows, cols]: [..., size]. Leading axes must be equal.
    pub fn on_host(&self, operands: &[&Tensor], scalars: &[f64], size: usize) -> Result<Tensor> {
        let Some(first) = operands.first() else { return Err(Error::op(self.name, "there is no operand")) };
        let lead = &first.dims()[..first.rank() - 2];
        let batch = Shape::new(lead).elem_count();
        let edges: Vec<Edge> = operands
            .iter()
            .map(|x| {
                let (rows, cols) = (x.dims()[x.rank() - 2], x.dims()[x.rank() - 1]);
                // The gradient is recorded for the whole: nothing in between.
                Ok(x.reshape((batch, rows, cols))?.to_device(&Device::Cpu)?.as_edge())
            })
            .collect::<Result<_>>()?;
        let shape = Shape::new(&[batch, size]);
        let node = ops::custom(self.kernel(), &edges, scalars, first.dtype(), shape)?;
        let result = Tensor::from_node(node, &Device::Cpu).to_device(first.device())?;
        result.reshape(lead.iter().copied().chain([size]).collect::<Shape>())
    }
}

/// An operand's numbers in f64.
fn wide(x: &HostView<'_>) -> Result<Vec<f64>> {
    match x.dtype {
        DType::F64 => x.to_vec::<f64>(),
        _ => Ok(x.to_vec::<f32>()?.into_iter().map(f64::from).collect()),
    }
}

/// Runs a solver for each matrix of a batch.
fn batch(
    name: &'static str,
    run: Solver,
    inputs: &[HostView<'_>],
    scalars: &[f64],
    out: &mut HostViewMut<'_>,
) -> Result<()> {
    let values = inputs.iter().map(wide).collect::<Result<Vec<_>>>()?;
    let [count, size] = *out.dims else { return Err(Error::op(name, "a result of another shape")) };
    let mut results = vec![0.0; count * size];
    for at in 0..if size == 0 { 0 } else { count } {
        let matrices: Vec<Matrix<'_>> = inputs
            .iter()
            .zip(&values)
            .map(|(view, values)| {
                let [_, rows, cols] = *view.dims else { return Err(Error::op(name, "an operand of another shape")) };
                Ok(Matrix { rows, cols, values: &values[at * rows * cols..(at + 1) * rows * cols] })
            })
            .collect::<Result<_>>()?;
        run(&matrices, scalars, &mut results[at * size..(at + 1) * size]).map_err(|why| {
            let which = if count == 1 { "the matrix".to_string() } else { format!("matrix {at} of {count}") };
            Error::op(name, format!("{which} {why}"))
        })?;
    }
    match out.dtype {
        DType::F64 => out.copy_from(&results),
        _ => out.copy_from(&results.iter().map(|&v| v as f32).collect::<Vec<_>>()),
    }
}
