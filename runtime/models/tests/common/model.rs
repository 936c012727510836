//! A LLaMA of two layers with random Q8_0 weights and a byte-level tokenizer, complete in one GGUF file of some 150 KB.
//!
//! Only printable ASCII has embeddings that are not zero. With tied output, all other logits are 0, and the most likely token
//! is always printable: answers are plain text, and read back as the tokens that they were made of.

use std::ops::RangeInclusive;
use tallow::{
    DType,
    formats::gguf::{OwnedValue, Writer},
};

const HIDDEN: usize = 64;
const INTERMEDIATE: usize = 128;
const LAYERS: usize = 2;
const PRINTABLE: RangeInclusive<usize> = 33..=126;
/// Ids behind the 256 bytes.
pub const START: u32 = 256;
/// Ends a turn.
pub const END: u32 = 257;

/// Like the usual ones: a message is its role on a line, and its text.
pub const TEMPLATE: &str = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}\
                            {% if add_generation_prompt %}<|start|>assistant\n{% endif %}";

/// A hundred million rounds.
pub const LOOPING_TEMPLATE: &str = "{% for i in range(10000) %}{% for j in range(10000) %}x{% endfor %}{% endfor %}";

/// What a model has; the rest is the same in all.
pub struct Tiny {
    pub tokenizer: bool,
    pub template: Option<&'static str>,
    pub context: u32,
}

impl Default for Tiny {
    fn default() -> Self {
        Self { tokenizer: true, template: Some(TEMPLATE), context: 100_000 }
    }
}

impl Tiny {
    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        self.file().to_bytes().unwrap()
    }

    /// The file, to which more can be added.
    pub fn file(&self) -> Writer<'static> {
        let mut random = Random(7);
        let mut file = Writer::new()
            .metadata("general.architecture", "llama")
            .metadata("general.name", "tiny")
            .metadata("llama.block_count", LAYERS as u32)
            .metadata("llama.embedding_length", HIDDEN as u32)
            .metadata("llama.feed_forward_length", INTERMEDIATE as u32)
            .metadata("llama.attention.head_count", 4u32)
            .metadata("llama.attention.head_count_kv", 2u32)
            .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
            .metadata("llama.context_length", self.context);
        if self.tokenizer {
            file = file
                .metadata("tokenizer.ggml.model", "gpt2")
                .metadata("tokenizer.ggml.pre", "gpt-2")
                .metadata("tokenizer.ggml.tokens", OwnedValue::from(tokens()))
                .metadata("tokenizer.ggml.token_type", OwnedValue::from(types()))
                .metadata("tokenizer.ggml.merges", OwnedValue::from(Vec::<String>::new()))
                .metadata("tokenizer.ggml.eos_token_id", END);
        }
        if let Some(template) = self.template {
            file = file.metadata("tokenizer.chat_template", template);
        }
        let ones = |n: usize| 1f32.to_le_bytes().repeat(n);
        let vocab = tokens().len();
        let mut embedding = random.q8_0(vocab, HIDDEN);
        let row = embedding.len() / vocab;
        for id in (0..vocab).filter(|id| !PRINTABLE.contains(id)) {
            embedding[id * row..(id + 1) * row].fill(0);
        }
        file = file.tensor("token_embd.weight", DType::Q8_0, &[vocab, HIDDEN], embedding);
        for layer in 0..LAYERS {
            for (name, rows, cols) in [
                ("attn_q", HIDDEN, HIDDEN),
                ("attn_k", HIDDEN / 2, HIDDEN),
                ("attn_v", HIDDEN / 2, HIDDEN),
                ("attn_output", HIDDEN, HIDDEN),
                ("ffn_gate", INTERMEDIATE, HIDDEN),
                ("ffn_up", INTERMEDIATE, HIDDEN),
                ("ffn_down", HIDDEN, INTERMEDIATE),
            ] {
                let data = random.q8_0(rows, cols);
                file = file.tensor(format!("blk.{layer}.{name}.weight"), DType::Q8_0, &[rows, cols], data);
            }
            for name in ["attn_norm", "ffn_norm"] {
                file = file.tensor(format!("blk.{layer}.{name}.weight"), DType::F32, &[HIDDEN], ones(HIDDEN));
            }
        }
        file.tensor("output_norm.weight", DType::F32, &[HIDDEN], ones(HIDDEN))
    }
}

/// The 256 bytes as GPT-2 writes them, in the order of the bytes, and two control tokens.
fn tokens() -> Vec<String> {
    let plain = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut moved = 0x100..;
    let byte = |byte: u32| if plain(byte) { byte } else { moved.next().unwrap() };
    let bytes: Vec<u32> = (0..256).map(byte).collect();
    let bytes = bytes.into_iter().map(|c| char::from_u32(c).unwrap().to_string());
    bytes.chain(["<|start|>", "<|end|>"].map(String::from)).collect()
}

fn types() -> Vec<i32> {
    let mut types = vec![1; tokens().len()];
    types[START as usize] = 3;
    types[END as usize] = 3;
    types
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
    }

    /// Blocks of a scale of 2^-9 as f16 and 32 signed bytes: a standard deviation of 0.14.
    fn q8_0(&mut self, rows: usize, cols: usize) -> Vec<u8> {
        let block = |_| {
            let mut block = 0x1800u16.to_le_bytes().to_vec();
            block.extend((0..32).map(|_| self.byte()));
            block
        };
        (0..rows * cols / 32).flat_map(block).collect()
    }
}
