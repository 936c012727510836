//! Language models, with inputs of 8 bits on the CPU as its peers have them.

use std::path::Path;

use tallow::{Activations, Device, generation::SamplingConfig};
use tallow_bench_protocol::{Model, Refusal};
use tallow_models::{Generation, GenerationOptions, LanguageModel, LoadOptions};

struct Language(LanguageModel);

/// Loads a GGUF file.
pub fn load(device: &Device, path: &Path) -> Result<Box<dyn Model>, Refusal> {
    let activations = if device.is_cpu() { Activations::Q8 } else { Activations::F32 };
    let model = LanguageModel::open(path, device, LoadOptions { activations, ..LoadOptions::default() })?;
    Ok(Box::new(Language(model)))
}

impl Language {
    fn begin(&mut self, prompt: &[u32]) -> tallow::Result<Generation<'_>> {
        let options = GenerationOptions { sampling: SamplingConfig::greedy(), ..GenerationOptions::default() };
        Generation::new(&mut self.0.decoder, prompt, 0, &[], options)
    }
}

impl Model for Language {
    fn logits(&mut self, prompt: &[u32]) -> Result<Vec<f32>, Refusal> {
        Ok(tallow::block_on(self.begin(prompt)?.logits())?)
    }

    fn generate(&mut self, prompt: &[u32], count: usize, token: &mut dyn FnMut(u32)) -> Result<(), Refusal> {
        let mut generation = self.begin(prompt)?;
        for _ in 0..count {
            let id = tallow::block_on(generation.next())?;
            token(id.ok_or_else(|| Refusal::Failed("the generation ended early".into()))?);
        }
        Ok(())
    }
}
