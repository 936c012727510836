//! A decoder with its tokenizer and chat template: text in, text out.

use crate::{
    DecoderConfig,
    decoder::{Decoder, DecoderOptions},
    generation::{Generation, GenerationOptions},
    loading::{DecoderBuilder, Naming, RawTensor},
};
use tallow::{
    Device, Error, Result,
    formats::{
        Bytes, Gguf,
        gguf::{Header, HeaderReader},
    },
    text::{ChatTemplate, Message, Tokenizer},
};

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
        let text = TextParts::from_gguf(header)?;
        let mut builder = DecoderBuilder::new(DecoderConfig::from_gguf(header)?, Naming::Gguf, device, options);
        for info in header.tensors().iter() {
            let (dtype, dims, bytes) = gguf.load(info.name)?;
            builder.push(info.name, RawTensor { dtype, dims, bytes })?;
        }
        text.with(builder.finish()?)
    }

    /// From the bytes of a GGUF file as they come; see [`Streaming`].
    pub fn stream(size: Option<u64>, device: &Device, options: LoadOptions) -> Streaming {
        Streaming {
            reader: Some(HeaderReader::new(size)),
            layout: None,
            builder: None,
            text: None,
            device: device.clone(),
            options,
            at: 0,
            next: 0,
            pending: Vec::new(),
        }
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
        let decoder = decoder_from_folder(folder, config, device, options)?;
        Ok(Self { decoder, tokenizer, template })
    }

    /// The ids of a prompt that is to be continued.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>> {
        self.tokenizer.encode(prompt, true)
    }

    /// The ids of a conversation, in the model's own format, up to where the assistant answers.
    ///
    /// # Errors
    /// Where the model has no chat template, or the template refuses the messages.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.template.as_ref();
        let template = template.ok_or_else(|| Error::msg("this model has no chat template: use plain text"))?;
        self.tokenizer.encode_with_special_tokens(&template.render(messages, true)?, false)
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

    fn with(self, decoder: Decoder) -> Result<LanguageModel> {
        let (known, table) = (self.tokenizer.vocab_size(), decoder.config().vocab_size);
        if known > table {
            let message = format!("the tokenizer knows {known} tokens, the network only {table}");
            return Err(Error::format("model", message));
        }
        Ok(LanguageModel { decoder, tokenizer: self.tokenizer, template: self.template })
    }
}

/// Where the tensors of a stream lie: the header, and (absolute start, bytes, name) in file order.
struct Layout {
    header: Header,
    tensors: Vec<(u64, u64, String)>,
}

/// A GGUF model that is built while its bytes arrive: each tensor goes to the device when it is complete, and its bytes are
/// dropped, so that the file is never whole in memory.
pub struct Streaming {
    reader: Option<HeaderReader>,
    layout: Option<Layout>,
    builder: Option<DecoderBuilder>,
    text: Option<TextParts>,
    device: Device,
    options: LoadOptions,
    /// Position in the file.
    at: u64,
    /// The tensor that comes next.
    next: usize,
    /// Its bytes so far.
    pending: Vec<u8>,
}

impl Streaming {
    /// Takes the next bytes of the file.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Some(reader) = &mut self.reader {
            let before = reader.buffered();
            let Some(header) = reader.push(bytes)? else {
                self.at += bytes.len() as u64;
                return Ok(());
            };
            // The chunk that completes the header goes on into the data: what lies behind the header is replayed.
            let used = (header.header_bytes().saturating_sub(before) as usize).min(bytes.len());
            self.at = header.header_bytes();
            bytes = &bytes[used..];
            let mut tensors: Vec<(u64, u64, String)> =
                header.tensors().iter().map(|info| (info.offset, info.bytes, info.name.to_string())).collect();
            tensors.sort();
            self.text = Some(TextParts::from_gguf(&header)?);
            let config = DecoderConfig::from_gguf(&header)?;
            self.builder = Some(DecoderBuilder::new(config, Naming::Gguf, &self.device, self.options));
            self.layout = Some(Layout { header, tensors });
            self.reader = None;
        }
        self.take_data(bytes)
    }

    fn take_data(&mut self, mut bytes: &[u8]) -> Result<()> {
        let (Some(Layout { header, tensors }), Some(builder)) = (&self.layout, &mut self.builder) else {
            return Ok(());
        };
        while !bytes.is_empty() {
            let Some((start, size, name)) = tensors.get(self.next) else {
                self.at += bytes.len() as u64;
                return Ok(());
            };
            // Padding before the tensor.
            let skip = (start.saturating_sub(self.at) as usize).min(bytes.len());
            self.at += skip as u64;
            bytes = &bytes[skip..];
            let wanted = (*size as usize) - self.pending.len();
            let take = wanted.min(bytes.len());
            if self.pending.is_empty() {
                self.pending.reserve_exact(*size as usize);
            }
            self.pending.extend_from_slice(&bytes[..take]);
            self.at += take as u64;
            bytes = &bytes[take..];
            if self.pending.len() as u64 == *size && self.at >= *start {
                let info = header.tensor(name)?;
                let raw = RawTensor {
                    dtype: info.require_dtype()?,
                    dims: info.dims().to_vec(),
                    bytes: Bytes::from(std::mem::take(&mut self.pending)),
                };
                builder.push(name, raw)?;
                self.next += 1;
            }
        }
        Ok(())
    }

    /// The model, once all bytes have been pushed.
    pub fn finish(self) -> Result<LanguageModel> {
        let cut = |at: u64| Error::format("GGUF", format!("the file ends after {at} bytes, before its last tensor"));
        if let Some(reader) = self.reader {
            reader.finish()?;
            return Err(cut(self.at));
        }
        match (self.layout, self.builder, self.text) {
            (Some(layout), Some(builder), Some(text)) if self.next == layout.tensors.len() => {
                text.with(builder.finish()?)
            }
            _ => Err(cut(self.at)),
        }
    }
}
