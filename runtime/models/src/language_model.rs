//! A decoder with its tokenizer and chat template: text in, text out.

use crate::{
    DecoderConfig, chat,
    decoder::{Decoder, DecoderOptions},
    generation::{Generation, GenerationOptions},
    loading::{DecoderBuilder, Naming, RawTensor},
};
use tallow::{
    Device, Error, Result,
    formats::{Gguf, gguf::Header},
    text::{ChatTemplate, Message, Tokenizer},
};

mod streaming;
pub use streaming::Streaming;

/// How to load a model.
pub type LoadOptions = DecoderOptions;

/// A language model.
pub struct LanguageModel {
    /// The network.
    pub decoder: Decoder,
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl LanguageModel {
    /// From a GGUF file, or a folder with model.safetensors (or its shards), config.json and tokenizer.json.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(path: impl AsRef<std::path::Path>, device: &Device, options: LoadOptions) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            return Self::from_folder(path, device, options);
        }
        Self::from_gguf(&Gguf::open(path)?, device, options)
    }

    /// From a parsed GGUF file.
    pub fn from_gguf(gguf: &Gguf, device: &Device, options: LoadOptions) -> Result<Self> {
        let header = gguf.header();
        let (text, mut builder) = begin(header, device, options)?;
        for info in header.tensors().iter() {
            if builder.uses(info.name) {
                let (dtype, dims, bytes) = gguf.load(info.name)?;
                builder.push(info.name, RawTensor { dtype, dims, bytes })?;
            }
        }
        Ok(text.with(builder.finish()?))
    }

    /// From the bytes of a GGUF file as they come; see [`Streaming`].
    pub fn stream(size: Option<u64>, device: &Device, options: LoadOptions) -> Streaming {
        Streaming::new(size, device, options)
    }

    #[cfg(not(target_arch = "wasm32"))]
    fn from_folder(folder: &std::path::Path, device: &Device, options: LoadOptions) -> Result<Self> {
        let text = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|error| Error::io(path, error))
        };
        let config = DecoderConfig::from_hugging_face(&text("config.json")?)?;
        let tokenizer = Tokenizer::from_json(text("tokenizer.json")?.as_bytes())?;
        let template = match text("tokenizer_config.json") {
            Ok(json) => template_of(&json)?,
            Err(_) => None,
        };
        let text = TextParts { tokenizer, template };
        text.check(&config)?;
        Ok(text.with(decoder_from_folder(folder, config, device, options)?))
    }

    /// The ids of a prompt that is to be continued.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        self.tokenizer.encode(prompt, true)
    }

    /// The ids of a conversation, in the model's own format, up to where the assistant answers. Only the template speaks
    /// in control tokens: where a message spells one, that is plain text.
    ///
    /// # Errors
    /// Where the model has no chat template, or the template refuses the messages.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.template.as_ref();
        let template = template.ok_or_else(|| Error::msg("this model has no chat template: use plain text"))?;
        chat::encode(&self.tokenizer, template, messages)
    }

    /// Whether the model can chat.
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// Starts generating after these ids. `cached`: see [`Generation::new`].
    pub fn generate(&mut self, prompt: &[u32], cached: usize, options: GenerationOptions) -> Result<Generation<'_>> {
        Generation::new(&mut self.decoder, prompt, cached, self.tokenizer.end_ids(), options)
    }
}

/// A decoder from safetensors files in a folder.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn decoder_from_folder(
    folder: &std::path::Path,
    config: DecoderConfig,
    device: &Device,
    options: LoadOptions,
) -> Result<Decoder> {
    let mut builder = DecoderBuilder::new(config, Naming::HuggingFace, device, options);
    let index = folder.join("model.safetensors.index.json");
    if index.exists() {
        let shards = tallow::formats::SafeTensors::open_sharded(&index)?;
        let names: Vec<String> = shards.names().map(str::to_string).collect();
        for name in names {
            let (dtype, dims, bytes) = shards.tensor(&name)?;
            builder.push(&name, RawTensor { dtype, dims, bytes })?;
        }
    } else {
        let file = tallow::formats::SafeTensors::open(folder.join("model.safetensors"))?;
        let names: Vec<String> = file.names().map(str::to_string).collect();
        for name in names {
            let (dtype, dims, bytes) = file.tensor(&name)?;
            builder.push(&name, RawTensor { dtype, dims, bytes })?;
        }
    }
    builder.finish()
}

impl Decoder {
    /// From a folder with config.json and model.safetensors (or its shards), without a tokenizer.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open_folder(folder: impl AsRef<std::path::Path>, device: &Device, options: LoadOptions) -> Result<Self> {
        let folder = folder.as_ref();
        let path = folder.join("config.json");
        let json = std::fs::read_to_string(&path).map_err(|error| Error::io(path, error))?;
        decoder_from_folder(folder, DecoderConfig::from_hugging_face(&json)?, device, options)
    }
}

/// The chat template of tokenizer_config.json: a string, or the one named default of a list.
#[cfg(not(target_arch = "wasm32"))]
fn template_of(json: &str) -> Result<Option<ChatTemplate>> {
    let fail = |error: serde_json::Error| Error::format("tokenizer_config.json", error.to_string());
    let json: serde_json::Value = serde_json::from_str(json).map_err(fail)?;
    let source = match &json["chat_template"] {
        serde_json::Value::String(source) => Some(source.as_str()),
        serde_json::Value::Array(list) => {
            list.iter().find(|t| t["name"] == "default").and_then(|t| t["template"].as_str())
        }
        _ => None,
    };
    let token = |name: &str| json[name].as_str().or_else(|| json[name]["content"].as_str());
    source.map(|source| ChatTemplate::new(source, token("bos_token"), token("eos_token"))).transpose()
}

/// What a model has beside its network.
struct TextParts {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
}

impl TextParts {
    fn from_gguf(header: &Header) -> Result<Self> {
        let tokenizer = Tokenizer::from_gguf(header.metadata())?;
        let source = header.metadata().read_opt::<&str>("tokenizer.chat_template")?;
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.id_to_token(id));
        let template =
            source.map(|s| ChatTemplate::new(s, token(tokenizer.bos()), token(tokenizer.eos()))).transpose()?;
        Ok(Self { tokenizer, template })
    }

    /// The tokenizer may know fewer tokens than the table has rows, for tables are padded; but not more.
    fn check(&self, config: &DecoderConfig) -> Result<()> {
        let (known, table) = (self.tokenizer.vocab_size(), config.vocab_size);
        if known > table {
            let message = format!("the tokenizer knows {known} tokens, the network only {table}");
            return Err(Error::format("model", message));
        }
        Ok(())
    }

    fn with(self, decoder: Decoder) -> LanguageModel {
        LanguageModel { decoder, tokenizer: self.tokenizer, template: self.template }
    }
}

/// What a GGUF header says, checked before any tensor is read.
fn begin(header: &Header, device: &Device, options: LoadOptions) -> Result<(TextParts, DecoderBuilder)> {
    let text = TextParts::from_gguf(header)?;
    let config = DecoderConfig::from_gguf(header)?;
    text.check(&config)?;
    Ok((text, DecoderBuilder::new(config, Naming::Gguf, device, options)))
}
