//! Operands from the driver's files, and results for it.

use tallow::{DType, Device, Tensor};
use tallow_bench_protocol::{Element, Fill, Job, Prepared, Refusal, read_f32, read_u32, timed};

/// The inputs of a job, in their order, on the device. Floats get the case's dtype.
pub fn load(device: &Device, job: &Job) -> Result<Vec<Tensor>, Refusal> {
    let dtype = match job.case.dtype {
        Element::F32 => DType::F32,
        Element::F16 => DType::F16,
        Element::Bf16 => DType::BF16,
        Element::U32 => DType::U32,
    };
    let load = |file: &tallow_bench_protocol::InputFile| -> Result<Tensor, Refusal> {
        let tensor = match file.fill {
            Fill::Ids { .. } | Fill::Listed { .. } => {
                Tensor::from_vec(read_u32(&file.path)?, file.dims.as_slice(), device)?
            }
            _ => Tensor::from_vec(read_f32(&file.path)?, file.dims.as_slice(), device)?.to_dtype(dtype)?,
        };
        // Stored now: the runs must not convert again.
        tensor.realize()?;
        Ok(tensor)
    };
    job.inputs.iter().map(load).collect()
}

/// The elements as floats, row-major.
pub fn values(tensor: &Tensor) -> tallow::Result<Vec<f32>> {
    tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()
}

/// A case that is one function of its inputs: each run computes it and waits for the device.
pub fn function(device: &Device, work: impl Fn() -> tallow::Result<Tensor> + 'static) -> Result<Prepared, Refusal> {
    let first = work()?;
    let (values, dims) = (values(&first)?, first.dims().to_vec());
    let device = device.clone();
    let run = move || {
        timed(|| {
            let result = work()?;
            result.realize()?;
            device.synchronize()?;
            Ok::<_, tallow::Error>(result)
        })
    };
    Ok(Prepared { values, dims, run: Box::new(run) })
}

/// Small work, whose result is read back into Rust's own numbers: that is what a user waits for.
pub fn read_back(work: impl Fn() -> tallow::Result<Tensor> + 'static) -> Result<Prepared, Refusal> {
    let first = work()?;
    let (values, dims) = (values(&first)?, first.dims().to_vec());
    Ok(Prepared { values, dims, run: Box::new(move || timed(|| work()?.to_vec2::<f32>())) })
}
