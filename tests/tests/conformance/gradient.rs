//! Gradients of the table's operations: on a device with F64 against central differences, on others against the CPU's.

use crate::{
    compare,
    inputs::{Case, cases},
    table::Row,
};
use tallow::{DType, Device, Result, Tensor, Var, generation::Philox};

/// What became of an operation's gradient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gradient {
    /// It agrees.
    Checked,
    /// The result is of an integer dtype.
    Integer,
    /// `backward` refuses, with this reason.
    Refused(String),
}

/// Elements of an input whose gradient is compared.
const TRIED: usize = 12;

/// Gradients of `sum(result * weights)` with respect to the inputs of the row's own dtype, in F64, and the dtype of the result;
/// `None` for results that are not floating-point.
fn gradients(row: &Row, case: &Case, device: &Device, dtype: DType) -> Result<Option<(Vec<Vec<f64>>, DType)>> {
    let inputs: Vec<Tensor> = case.inputs.iter().map(|input| input.on(device)).collect::<Result<_>>()?;
    let vars: Vec<Option<Var>> = inputs
        .iter()
        .map(|x| if x.dtype() == dtype { Var::from_tensor(x).map(Some) } else { Ok(None) })
        .collect::<Result<_>>()?;
    let tracked: Vec<Tensor> =
        vars.iter().zip(&inputs).map(|(var, x)| var.as_ref().map_or(x.clone(), |v| v.as_tensor().clone())).collect();
    let result = (row.run)(&tracked)?;
    if !result.dtype().is_float() {
        return Ok(None);
    }
    let grads = loss(&result, device)?.backward()?;
    let read = |var: &Var| match grads.get(var) {
        Some(grad) => grad.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>(),
        None => Ok(vec![0.0; var.elem_count()]),
    };
    let grads = vars.iter().flatten().map(read).collect::<Result<Vec<_>>>()?;
    Ok(Some((grads, result.dtype())))
}

fn loss(result: &Tensor, device: &Device) -> Result<Tensor> {
    let mut random = Philox::new(7);
    let weights: Vec<f64> = (0..result.elem_count()).map(|_| random.next_f64() * 2.0 - 1.0).collect();
    // In the result's own dtype; a wide sum keeps what small types would round away.
    let weights = Tensor::from_slice(&weights, result.dims(), &Device::Cpu)?.to_dtype(result.dtype())?;
    (result * weights.to_device(device)?)?.sum_all()
}

/// How far an input is moved, and how far a gradient may be from the difference. A result in a smaller dtype than F64 (of a
/// conversion) shows large steps only.
fn steps(result: DType) -> (f64, f64) {
    match result {
        DType::F64 => (1e-5, 2e-5),
        other => (1.0, 40.0 * compare::epsilon(other)),
    }
}

/// d loss / d element by central differences, for the first elements of each input.
fn differences(row: &Row, case: &Case, step: f64) -> Result<Vec<Vec<f64>>> {
    let inputs: Vec<Tensor> = case.inputs.iter().map(|input| input.on(&Device::Cpu)).collect::<Result<_>>()?;
    let at = |which: usize, values: &[f64]| -> Result<f64> {
        let mut moved = inputs.clone();
        moved[which] = Tensor::from_slice(values, inputs[which].dims(), &Device::Cpu)?;
        loss(&(row.run)(&moved)?, &Device::Cpu)?.to_dtype(DType::F64)?.to_scalar::<f64>()
    };
    let mut all = Vec::new();
    for (which, x) in inputs.iter().enumerate().filter(|(_, x)| x.dtype() == DType::F64) {
        let values = x.flatten_all()?.to_vec1::<f64>()?;
        let mut of_input = Vec::new();
        for i in 0..values.len().min(TRIED) {
            let step = step * values[i].abs().max(1.0);
            let moved = |by: f64| {
                let mut moved = values.clone();
                moved[i] += by;
                moved
            };
            of_input.push((at(which, &moved(step))? - at(which, &moved(-step))?) / (2.0 * step));
        }
        all.push(of_input);
    }
    Ok(all)
}

/// Checks the gradient of a row's first calls; what disagrees is added to `wrong`.
pub fn check(row: &Row, device: &Device, wrong: &mut Vec<String>) -> Gradient {
    let Some(&dtype) = [DType::F64, DType::F32].iter().find(|d| row.dtypes.contains(d)) else {
        return Gradient::Integer;
    };
    let own = if device.engine().backend().check_dtype(DType::F64).is_ok() { dtype } else { DType::F32 };
    let mut compared = 0;
    for case in cases(row, own, false).iter().filter(|case| !case.is_empty()).take(3) {
        let (got, result) = match gradients(row, case, device, own) {
            Ok(Some(got)) => got,
            Ok(None) => return Gradient::Integer,
            Err(error) => return Gradient::Refused(error.to_string()),
        };
        let (want, tolerance) = match own {
            DType::F64 => {
                let (step, tolerance) = steps(result);
                (differences(row, case, step), tolerance)
            }
            _ => (gradients(row, case, &Device::Cpu, own).map(|g| g.map_or(Vec::new(), |(g, _)| g)), 2e-4),
        };
        let want = match want {
            Ok(want) => want,
            Err(error) => {
                wrong.push(format!("{} {case:?}: {error}", row.name));
                continue;
            }
        };
        for (got, want) in got.iter().zip(&want) {
            let scale = (want.iter().map(|v| v * v).sum::<f64>() / want.len().max(1) as f64).sqrt().max(1.0);
            for (i, (g, w)) in got.iter().zip(want).enumerate() {
                let fine = (g - w).abs() <= tolerance * scale.max(w.abs());
                if !fine {
                    wrong.push(format!("{} {case:?}: d/dx[{i}] is {g}, not {w}", row.name));
                }
                compared += 1;
            }
        }
    }
    if compared == 0 {
        wrong.push(format!("{} has no element whose gradient could be compared", row.name));
    }
    Gradient::Checked
}
