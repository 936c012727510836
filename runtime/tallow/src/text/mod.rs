//! Text in and out of a language model: tokenizers, streaming decoding, and chat templates.

mod byte_level;
mod chat_template;
mod date;
mod decode_stream;
mod gguf;
mod json;
mod merge;
mod pieces;
mod pretokenizer;
mod python;
mod sentence_piece;
mod special;
mod tokenizer;
mod vocabulary;

pub use chat_template::{ChatTemplate, Message};
pub use decode_stream::DecodeStream;
pub use tokenizer::Tokenizer;
pub use vocabulary::Vocabulary;
