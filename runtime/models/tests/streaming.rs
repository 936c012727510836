//! Models from bytes as they come: chunks of any size give the same model, and no file makes the loader panic or wait.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "common/model.rs"]
mod model;

use model::Tiny;
use tallow::{
    DType, Device, Result, block_on,
    formats::{Bytes, Gguf, gguf::OwnedValue, gguf::Writer},
    generation::SamplingConfig,
};
use tallow_models::{GenerationOptions, LanguageModel, LoadOptions};

fn stream(file: &[u8], sizes: impl IntoIterator<Item = usize>, size: Option<u64>) -> Result<LanguageModel> {
    let mut stream = LanguageModel::stream(size, &Device::Cpu, LoadOptions::default());
    let mut rest = file;
    for size in sizes {
        let (chunk, more) = rest.split_at(size.min(rest.len()));
        stream.push(chunk)?;
        rest = more;
        if rest.is_empty() {
            break;
        }
    }
    stream.push(rest)?;
    stream.finish()
}

fn whole(file: &[u8]) -> Result<LanguageModel> {
    stream(file, [], Some(file.len() as u64))
}

fn error(result: Result<LanguageModel>) -> String {
    result.err().expect("an error").to_string()
}

/// The most likely continuation of a text, by 12 tokens.
fn ids(model: &mut LanguageModel) -> Vec<u32> {
    let prompt = model.encode("abc").unwrap();
    let sampling = SamplingConfig { temperature: 0.0, ..SamplingConfig::default() };
    let options = GenerationOptions { sampling, max_tokens: Some(12), ..GenerationOptions::default() };
    let mut generation = model.generate(&prompt, 0, options).unwrap();
    while block_on(generation.next()).unwrap().is_some() {}
    generation.tokens().to_vec()
}

fn header_end(file: &[u8]) -> usize {
    Gguf::parse(Bytes::from(file.to_vec())).unwrap().header().header_bytes() as usize
}

/// Where the entry of a tensor goes on behind its name: its rank.
fn entry(file: &[u8], name: &str) -> usize {
    let header = &file[..header_end(file)];
    header.windows(name.len()).rposition(|window| window == name.as_bytes()).unwrap() + name.len()
}

#[test]
fn chunks_of_any_size_give_the_model_of_the_file() {
    let file = Tiny::default().bytes();
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("streaming.gguf");
    std::fs::write(&path, &file).unwrap();
    let wanted = ids(&mut LanguageModel::open(&path, &Device::Cpu, LoadOptions::default()).unwrap());
    assert_eq!(wanted.len(), 3 + 12);
    let end = header_end(&file);
    for size in [Some(file.len() as u64), None] {
        for chunk in [7, 4096, file.len()] {
            let sizes = std::iter::repeat(chunk);
            assert_eq!(ids(&mut stream(&file, sizes, size).unwrap()), wanted, "chunks of {chunk}");
        }
        for first in [end - 1, end, end + 1] {
            assert_eq!(ids(&mut stream(&file, [first], size).unwrap()), wanted, "first {first}");
        }
    }
    assert_eq!(ids(&mut stream(&file, std::iter::repeat(1), None).unwrap()), wanted);
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let file = Tiny::default().bytes();
    let end = header_end(&file);
    for cut in [0, 1, end - 1, end, end + 1, file.len() / 2, file.len() - 1] {
        let said = error(stream(&file[..cut], [10], None));
        assert!(said.contains("end"), "{cut}: {said}");
    }
    // What comes after the last tensor does not matter.
    assert!(whole(&[&file[..], &[0; 100]].concat()).is_ok());
}

#[test]
fn after_an_error_the_stream_refuses() {
    let mut stream = LanguageModel::stream(None, &Device::Cpu, LoadOptions::default());
    assert!(stream.push(b"this is no GGUF file, and long enough to see").is_err());
    assert!(stream.push(b"more").is_err());
    assert!(stream.finish().is_err());
}

#[test]
fn claimed_sizes_take_no_memory() {
    let file = Tiny::default().bytes();
    // The last tensor of the file is the only one whose size can grow without meeting another.
    let at = entry(&file, "output_norm.weight") + 4;
    for claimed in [1u64 << 40, (1 << 61) - 64, u64::MAX / 4, u64::MAX] {
        let mut lie = file.clone();
        lie[at..at + 8].copy_from_slice(&claimed.to_le_bytes());
        for size in [None, Some(file.len() as u64), Some(u64::MAX)] {
            error(stream(&lie, [file.len() / 2], size));
        }
    }
}

#[test]
fn a_tensor_without_bytes_is_complete_at_once() {
    // The model has no use for these; they are told apart from a file that ends early.
    let file = Tiny::default().file().tensor("unused", DType::F32, &[0], Vec::new()).to_bytes().unwrap();
    assert!(whole(&file).is_ok());
    assert!(stream(&file, std::iter::repeat(7), None).is_ok());
    // One that it uses has the wrong shape, and is not waited for.
    let file = Tiny::default().file().tensor("output.weight", DType::F32, &[0, 64], Vec::new()).to_bytes().unwrap();
    let said = error(whole(&file));
    assert!(said.contains("output.weight"), "{said}");
}

#[test]
fn tensors_of_no_use_may_have_any_dtype() {
    let data = vec![0; 1024];
    let mut file = Tiny::default().file().tensor("unused", DType::F32, &[256], data).to_bytes().unwrap();
    let at = entry(&file, "unused") + 4 + 8;
    // IQ2_XXS: a type of ggml's that Tallow does not compute with.
    file[at..at + 4].copy_from_slice(&16u32.to_le_bytes());
    assert!(whole(&file).is_ok());
    let gguf = Gguf::parse(Bytes::from(file.clone())).unwrap();
    assert!(gguf.load("unused").is_err());
    assert!(LanguageModel::from_gguf(&gguf, &Device::Cpu, LoadOptions::default()).is_ok());
    // Cut off, the file is still not whole.
    let end = gguf.header().tensor("unused").unwrap().offset as usize;
    error(whole(&file[..end]));
}

#[test]
fn a_vocabulary_that_does_not_fit_is_told_with_the_header() {
    let mut file = Tiny::default().bytes();
    let at = entry(&file, "token_embd.weight") + 4 + 8;
    file[at..at + 8].copy_from_slice(&200u64.to_le_bytes());
    let mut stream = LanguageModel::stream(None, &Device::Cpu, LoadOptions::default());
    let said = stream.push(&file[..header_end(&file)]).unwrap_err().to_string();
    assert!(said.contains("258 tokens") && said.contains("200"), "{said}");
}

#[test]
fn layers_without_tensors_are_refused_with_the_header() {
    let tokens = OwnedValue::from(vec!["a".to_string()]);
    let file = Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "gpt-2")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.merges", OwnedValue::from(Vec::<String>::new()))
        .metadata("llama.block_count", 10_000u32)
        .metadata("llama.embedding_length", 64u32)
        .metadata("llama.feed_forward_length", 64u32)
        .metadata("llama.attention.head_count", 4u32)
        .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
        .metadata("llama.context_length", 64u32)
        .tensor("token_embd.weight", DType::F32, &[1, 64], vec![0; 256])
        .to_bytes()
        .unwrap();
    let said = error(whole(&file));
    assert!(said.contains("10000 layers"), "{said}");
}

#[test]
fn parts_that_cannot_be_joined_are_named_each() {
    let mut file = Tiny::default().bytes();
    // q and v are of Q8_0; k as a Q8_0 of three axes of which two are 1 is a shape of its own.
    let at = entry(&file, "blk.0.attn_k.weight");
    file[at + 4..at + 12].copy_from_slice(&32u64.to_le_bytes());
    file[at + 12..at + 20].copy_from_slice(&64u64.to_le_bytes());
    let said = error(whole(&file));
    assert!(said.contains("attn_q") || said.contains("attn_k"), "{said}");
    // Two equal sizes: a first axis that upload itself refuses says whose it is.
    let rank = Tiny::default().file().tensor("blk.0.attn_k.bias", DType::F32, &[2, 1, 1], vec![0; 8]);
    let rank = rank.tensor("blk.0.attn_q.bias", DType::F32, &[2], vec![0; 8]);
    let rank = rank.tensor("blk.0.attn_v.bias", DType::F32, &[2], vec![0; 8]).to_bytes().unwrap();
    let said = error(whole(&rank));
    assert!(said.contains("blk.0.attn_k.bias") && said.contains("more axes"), "{said}");
}
