//! Each operation of the case table, as a user of Tallow would write it.

use tallow::{Attention, Device, Result, Tensor};
use tallow_bench_protocol::{Job, Op, Prepared, Refusal, prepare_model, read_u32};

use crate::operands::{function, load, read_back};
use crate::{models, train};

/// Reads a job's inputs, computes once, and gives back how to compute again.
pub fn prepare(device: &Device, job: &Job) -> std::result::Result<Prepared, Refusal> {
    if let (Some(model), [prompt]) = (&job.model, job.inputs.as_slice()) {
        return prepare_model(models::load(device, model)?, &job.case.op, read_u32(&prompt.path)?);
    }
    let inputs = load(device, job)?;
    match (job.case.op.clone(), inputs.as_slice()) {
        (Op::Matmul, [x, y]) => with(device, [x, y], |[x, y]| x.matmul(y)),
        (Op::GeluAffineMul { a, b }, [x, c]) => with(device, [x, c], move |[x, c]| x.affine(a, b)?.gelu()? * c),
        (Op::Softmax, [x]) => with(device, [x], |[x]| x.softmax_last_dim()),
        (Op::LayerNorm { eps }, [x, w, b]) => {
            with(device, [x, w, b], move |[x, w, b]| x.layer_norm(eps)?.broadcast_mul(w)?.broadcast_add(b))
        }
        (Op::RmsNorm { eps }, [x, w]) => with(device, [x, w], move |[x, w]| x.rms_norm(eps)?.broadcast_mul(w)),
        (Op::Sum { axis }, [x]) => with(device, [x], move |[x]| x.sum(axis)),
        (Op::Argmax { axis }, [x]) => with(device, [x], move |[x]| x.argmax(axis)),
        (Op::Attention { width, causal, .. }, [q, k, v]) => {
            let options = Attention { scale: 1. / (width as f64).sqrt(), causal, window: None, softcap: None };
            with(device, [q, k, v], move |[q, k, v]| q.attention(k, v, None, options))
        }
        (Op::Conv2d { stride, padding, groups }, [x, w]) => {
            with(device, [x, w], move |[x, w]| x.conv2d(w, padding, stride, 1, groups))
        }
        (Op::Conv1d { stride, padding }, [x, w]) => {
            with(device, [x, w], move |[x, w]| x.conv1d(w, padding, stride, 1, 1))
        }
        (Op::ConvTranspose2d { stride, padding, output_padding }, [x, w]) => {
            with(device, [x, w], move |[x, w]| x.conv_transpose2d(w, padding, output_padding, stride, 1))
        }
        (Op::Transpose, [x]) => with(device, [x], |[x]| x.t()?.force_contiguous()),
        (Op::Cat { axis }, parts) => {
            let parts = parts.to_vec();
            function(device, move || Tensor::cat(&parts, axis))
        }
        (Op::Gather { axis }, [x, ids]) => with(device, [x, ids], move |[x, ids]| x.gather(ids, axis)),
        (Op::IndexSelect, [x, ids]) => with(device, [x, ids], |[x, ids]| x.index_select(ids, 0)),
        (Op::IndexAdd, [x, ids, y]) => with(device, [x, ids, y], |[x, ids, y]| x.index_add(ids, y, 0)),
        (Op::Sort, [x]) => with(device, [x], |[x]| Ok(x.sort_last_dim(true)?.0)),
        (Op::Add, [x, y]) => {
            let (x, y) = (x.clone(), y.clone());
            read_back(move || &x + &y)
        }
        (Op::Chain { length }, [x, factor, term]) => {
            let (x, factor, term) = (x.clone(), factor.clone(), term.clone());
            read_back(move || {
                let mut y = x.clone();
                for _ in 0..length / 2 {
                    y = ((y * &factor)? + &term)?;
                }
                Ok(y)
            })
        }
        (Op::TrainCnn, inputs) => train::cnn(device, inputs),
        (Op::TrainDecoder { layers, heads }, inputs) => train::decoder(device, inputs, layers, heads),
        (op, inputs) => Err(Refusal::Failed(format!("{op:?} of {} inputs", inputs.len()))),
    }
}

fn with<const N: usize>(
    device: &Device,
    inputs: [&Tensor; N],
    work: impl Fn(&[Tensor; N]) -> Result<Tensor> + 'static,
) -> std::result::Result<Prepared, Refusal> {
    let inputs = inputs.map(Tensor::clone);
    function(device, move || work(&inputs))
}
