//! Each operation of the case table, as candle's own models write it; where candle has two ways, the faster one.

use candle_core::{D, Device, Result, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::ops;
use tallow_bench_protocol::{Job, Op, Prepared, Refusal, timed};

use crate::{function, load, train};

/// Reads a job's inputs, computes once, and gives back how to compute again.
pub fn prepare(job: &Job) -> std::result::Result<Prepared, Refusal> {
    let inputs = load(job)?;
    match (job.case.op.clone(), inputs.as_slice()) {
        (Op::Matmul, [x, y]) => with([x, y], |[x, y]| x.matmul(y)),
        (Op::GeluAffineMul { a, b }, [x, c]) => with([x, c], move |[x, c]| x.affine(a, b)?.gelu()? * c),
        (Op::Softmax, [x]) => with([x], |[x]| ops::softmax_last_dim(x)),
        (Op::LayerNorm { eps }, [x, w, b]) => with([x, w, b], move |[x, w, b]| ops::layer_norm(x, w, b, eps as f32)),
        (Op::RmsNorm { eps }, [x, w]) => with([x, w], move |[x, w]| ops::rms_norm(x, w, eps as f32)),
        (Op::Sum { axis }, [x]) => with([x], move |[x]| x.sum(axis)),
        (Op::Argmax { axis }, [x]) => with([x], move |[x]| x.argmax(axis)),
        (Op::Attention { causal, .. }, [q, k, v]) => attention([q, k, v], causal),
        (Op::Conv2d { stride, padding, groups }, [x, w]) => {
            with([x, w], move |[x, w]| x.conv2d(w, padding, stride, 1, groups))
        }
        (Op::Conv1d { stride, padding }, [x, w]) => with([x, w], move |[x, w]| x.conv1d(w, padding, stride, 1, 1)),
        (Op::ConvTranspose2d { stride, padding, output_padding }, [x, w]) => {
            with([x, w], move |[x, w]| x.conv_transpose2d(w, padding, output_padding, stride, 1))
        }
        (Op::Transpose, [x]) => with([x], |[x]| x.t()?.contiguous()),
        (Op::Cat { axis }, parts) => {
            let parts = parts.to_vec();
            function(move || Tensor::cat(&parts, axis))
        }
        (Op::Gather { axis }, [x, ids]) => with([x, ids], move |[x, ids]| x.gather(ids, axis)),
        (Op::IndexSelect, [x, ids]) => with([x, ids], |[x, ids]| x.index_select(ids, 0)),
        (Op::IndexAdd, [x, ids, y]) => with([x, ids, y], |[x, ids, y]| x.index_add(ids, y, 0)),
        (Op::Sort, [x]) => with([x], |[x]| Ok(x.sort_last_dim(true)?.0)),
        (Op::Add, [x, y]) => with([x, y], |[x, y]| read(x + y)),
        (Op::Chain { length }, [x, factor, term]) => with([x, factor, term], move |[x, factor, term]| {
            let mut y = x.clone();
            for _ in 0..length / 2 {
                y = ((y * factor)? + term)?;
            }
            read(Ok(y))
        }),
        (Op::TrainCnn, inputs) => train::cnn(inputs),
        (Op::TrainDecoder { layers, heads }, inputs) => train::decoder(inputs, layers, heads),
        (op, inputs) => Err(Refusal::Failed(format!("{op:?} of {} inputs", inputs.len()))),
    }
}

fn with<const N: usize>(
    inputs: [&Tensor; N],
    work: impl Fn(&[Tensor; N]) -> Result<Tensor> + 'static,
) -> std::result::Result<Prepared, Refusal> {
    let inputs = inputs.map(Tensor::clone);
    function(move || work(&inputs))
}

/// Small work is read back into Rust's own numbers: that is what a user waits for.
fn read(result: Result<Tensor>) -> Result<Tensor> {
    let result = result?;
    std::hint::black_box(result.to_vec2::<f32>()?);
    Ok(result)
}

fn attention(inputs: [&Tensor; 3], causal: bool) -> std::result::Result<Prepared, Refusal> {
    let fused = move |[q, k, v]: &[Tensor; 3]| {
        let scale = 1. / (q.dim(D::Minus1)? as f32).sqrt();
        let mask = if causal { AttnMask::causal() } else { AttnMask::None };
        flash_attn::<f32>(q, k, v, scale, mask, None, None)?.transpose(1, 2)?.contiguous()
    };
    let plain = move |[q, k, v]: &[Tensor; 3]| {
        let (_, positions, _, width) = q.dims4()?;
        let (q, k, v) = (heads_first(q)?, heads_first(k)?, heads_first(v)?);
        let mut scores = (q.matmul(&k.t()?)? / (width as f64).sqrt())?;
        if causal {
            scores = scores.broadcast_add(&causal_mask(positions)?)?;
        }
        ops::softmax_last_dim(&scores)?.matmul(&v)?.transpose(1, 2)?.contiguous()
    };
    let (mut fused, mut plain) = (with(inputs, fused)?, with(inputs, plain)?);
    // Both have run once: they are warm.
    let prefer_fused = (fused.run)()? < (plain.run)()?;
    Ok(if prefer_fused { fused } else { plain })
}

/// [batch, positions, heads, width] -> [batch, heads, positions, width].
fn heads_first(x: &Tensor) -> Result<Tensor> {
    x.transpose(1, 2)?.contiguous()
}

/// 0 where a query may look, minus infinity after it.
pub fn causal_mask(positions: usize) -> Result<Tensor> {
    let row = |query| (0..positions).map(move |key| if key > query { f32::NEG_INFINITY } else { 0. });
    Tensor::from_vec((0..positions).flat_map(row).collect(), (positions, positions), &Device::Cpu)
}

/// Runs that give loss and gradients; the result is all of them, one after the other.
pub fn gradients(work: impl Fn() -> Result<Vec<Tensor>> + 'static) -> std::result::Result<Prepared, Refusal> {
    let flat: Vec<Tensor> = work()?.iter().map(Tensor::flatten_all).collect::<Result<_>>()?;
    let values = Tensor::cat(&flat, 0)?.to_vec1::<f32>()?;
    let dims = vec![values.len()];
    Ok(Prepared { values, dims, run: Box::new(move || timed(&work)) })
}
