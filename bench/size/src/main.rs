//! The smallest programs that use Tallow, for `cargo xtask bench size`: with the feature `llm`, `tallow-size MODEL.gguf ID,ID,...`
//! prints sixteen tokens after the prompt; without it, two small matrices are multiplied.

#[cfg(feature = "llm")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use tallow_models::{GenerationOptions, LanguageModel, LoadOptions};

    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(ids)) = (arguments.next(), arguments.next()) else {
        return Err("usage: tallow-size MODEL.gguf ID,ID,...".into());
    };
    let prompt = ids.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let mut model = LanguageModel::open(path, &tallow::Device::Cpu, LoadOptions::default())?;
    let sampling = tallow::generation::SamplingConfig::greedy();
    let mut generation =
        model.generate(&prompt, 0, GenerationOptions { sampling, max_tokens: Some(16), ..Default::default() })?;
    while let Some(id) = tallow::block_on(generation.next())? {
        print!("{id} ");
    }
    println!();
    Ok(())
}

#[cfg(not(feature = "llm"))]
fn main() -> tallow::Result<()> {
    let device = tallow::block_on(tallow::Device::by_name("cpu"))?;
    let a = tallow::Tensor::new([[1f32, 2.], [3., 4.]], &device)?;
    println!("{}", a.matmul(&a)?);
    Ok(())
}
