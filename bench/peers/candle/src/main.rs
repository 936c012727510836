//! candle as a participant of `cargo xtask bench`.

mod cases;
mod train;

use candle_core::{DType, Device, Tensor};
use tallow_bench_protocol::{
    Element, Fill, Hello, InputFile, Job, Participant, Prepared, Refusal, read_f32, read_u32, serve, timed,
};

struct Candle;

impl Participant for Candle {
    fn hello(&self) -> Hello {
        // The lock file pins it.
        Hello { name: "candle".into(), version: "0.11.0".into(), about: "built with target-cpu=native".into() }
    }

    fn prepare(&mut self, job: &Job) -> Result<Prepared, Refusal> {
        cases::prepare(job).map_err(|refusal| match refusal {
            Refusal::Failed(message) if message.contains("unsupported dtype") => Refusal::Unsupported(message),
            other => other,
        })
    }
}

/// The inputs of a job, in their order. Floats get the case's dtype.
fn load(job: &Job) -> Result<Vec<Tensor>, Refusal> {
    let dtype = match job.case.dtype {
        Element::F32 => DType::F32,
        Element::F16 => DType::F16,
        Element::Bf16 => DType::BF16,
        Element::U32 => DType::U32,
    };
    let load = |file: &InputFile| -> Result<Tensor, Refusal> {
        Ok(match file.fill {
            Fill::Ids { .. } | Fill::Listed { .. } => {
                Tensor::from_vec(read_u32(&file.path)?, file.dims.as_slice(), &Device::Cpu)?
            }
            _ => Tensor::from_vec(read_f32(&file.path)?, file.dims.as_slice(), &Device::Cpu)?.to_dtype(dtype)?,
        })
    };
    job.inputs.iter().map(load).collect()
}

/// A case that is one function of its inputs. candle computes at once: there is nothing to wait for.
fn function(work: impl Fn() -> candle_core::Result<Tensor> + 'static) -> Result<Prepared, Refusal> {
    let first = work()?;
    let values = first.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    Ok(Prepared { values, dims: first.dims().to_vec(), run: Box::new(move || timed(&work)) })
}

fn main() -> std::io::Result<()> {
    serve(&mut Candle)
}
