//! The smallest programs that use candle, for `cargo xtask bench size`: with the feature `llm`, `candle-size MODEL.gguf ID,ID,...`
//! prints sixteen tokens after the prompt (without a tokenizer, which candle has none of); without it, two small matrices
//! are multiplied.

#[cfg(feature = "llm")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use candle_core::{D, Device, Tensor, quantized::gguf_file::Content};
    use candle_transformers::models::quantized_llama::ModelWeights;

    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(ids)) = (arguments.next(), arguments.next()) else {
        return Err("usage: candle-size MODEL.gguf ID,ID,...".into());
    };
    let mut ids = ids.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let mut file = std::io::BufReader::new(std::fs::File::open(path)?);
    let content = Content::read(&mut file)?;
    let mut model = ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
    let mut position = 0;
    for _ in 0..16 {
        let input = Tensor::new(ids.as_slice(), &Device::Cpu)?.unsqueeze(0)?;
        let id = model.forward(&input, position)?.argmax(D::Minus1)?.flatten_all()?.to_vec1::<u32>()?[0];
        print!("{id} ");
        position += ids.len();
        ids = vec![id];
    }
    println!();
    Ok(())
}

#[cfg(not(feature = "llm"))]
fn main() -> candle_core::Result<()> {
    let a = candle_core::Tensor::new(&[[1f32, 2.], [3., 4.]], &candle_core::Device::Cpu)?;
    println!("{}", a.matmul(&a)?);
    Ok(())
}
