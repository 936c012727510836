//! candle's quantized LLaMA as a participant of `cargo xtask bench llm`.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use tallow_bench_protocol::{
    Hello, Job, Model, Participant, Prepared, Refusal, first_token, greedy, prepare_model, read_u32, serve,
};

struct Llama(ModelWeights);

fn load(path: &Path) -> Result<Box<dyn Model>, Refusal> {
    let mut file = BufReader::new(File::open(path)?);
    let content = Content::read(&mut file)?;
    Ok(Box::new(Llama(ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?)))
}

impl Llama {
    fn step(&mut self, ids: &[u32], position: usize) -> candle_core::Result<Vec<f32>> {
        let ids = Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?;
        self.0.forward(&ids, position)?.flatten_all()?.to_vec1::<f32>()
    }
}

impl Model for Llama {
    fn logits(&mut self, prompt: &[u32]) -> Result<Vec<f32>, Refusal> {
        self.0.clear_kv_cache();
        Ok(self.step(prompt, 0)?)
    }

    fn generate(&mut self, prompt: &[u32], count: usize, token: &mut dyn FnMut(u32)) -> Result<(), Refusal> {
        let mut id = greedy(&self.logits(prompt)?);
        for position in prompt.len()..prompt.len() + count {
            token(id);
            if position + 1 < prompt.len() + count {
                id = greedy(&self.step(&[id], position)?);
            }
        }
        Ok(())
    }
}

struct Candle;

impl Participant for Candle {
    fn hello(&self) -> Hello {
        // The lock file pins it.
        Hello { name: "candle".into(), version: "0.11.0".into(), about: "built with target-cpu=native".into() }
    }

    fn prepare(&mut self, job: &Job) -> Result<Prepared, Refusal> {
        let (Some(model), [prompt]) = (&job.model, job.inputs.as_slice()) else {
            return Err(Refusal::Unsupported("no model".into()));
        };
        prepare_model(load(model)?, &job.case.op, read_u32(&prompt.path)?)
    }
}

fn main() -> ExitCode {
    let outcome = first_token(load).unwrap_or_else(|| serve(&mut Candle).map_err(|error| error.to_string()));
    if let Err(error) = outcome {
        eprintln!("bench-candle-llm: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
