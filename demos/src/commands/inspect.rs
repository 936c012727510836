//! `tallow inspect`: what a model file holds. The format is told by the content, not by the name.

use crate::{failure::Outcome, failure::one_line, output::print_line};
use clap::Args;
use indicatif::DecimalBytes;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use std::{collections::BTreeMap, io::Write, path::PathBuf};
use tallow::{
    Error,
    formats::{
        Bytes, Gguf, SafeTensors,
        gguf::{Array, Value},
    },
};

/// Arrays with more elements are cut.
const LONGEST_ARRAY: usize = 16;
/// Elements of an array that is cut.
const ARRAY_HEAD: usize = 8;
/// Characters of a string in the table; `--json` has all of it.
const LONGEST_STRING: usize = 100;

/// Shows metadata and tensors of a GGUF or safetensors file
#[derive(Args)]
pub struct Inspect {
    /// The file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A tensor of either format.
#[derive(Serialize)]
struct Tensor {
    name: String,
    dtype: &'static str,
    /// Outermost first.
    shape: Vec<usize>,
    bytes: u64,
    /// Of the first byte, from the file's start.
    offset: u64,
}

impl Tensor {
    /// Readers have checked that the product fits.
    fn elements(&self) -> u64 {
        self.shape.iter().map(|&size| size as u64).product()
    }
}

/// A file of either format.
struct Contents {
    format: String,
    file_bytes: usize,
    /// Key, short text, and JSON.
    metadata: Vec<(String, String, Json)>,
    tensors: Vec<Tensor>,
}

impl Inspect {
    /// Runs the command.
    pub fn execute(self) -> Outcome {
        let contents = self.read()?;
        if self.json {
            let json = serde_json::to_string_pretty(&contents.json())
                .map_err(|error| Error::msg(format!("the contents cannot be written: {error}")))?;
            return Ok(print_line(&json)?);
        }
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        contents.write(&mut out)?;
        Ok(out.flush()?)
    }

    fn read(&self) -> tallow::Result<Contents> {
        let file = Bytes::open(&self.file)?;
        if file.starts_with(b"GGUF") {
            return Ok(Contents::gguf(&Gguf::open(&self.file)?));
        }
        // Eight bytes of length, then JSON.
        if file.get(8) == Some(&b'{') {
            return Ok(Contents::safetensors(&SafeTensors::open(&self.file)?, file.len()));
        }
        let text = format!(
            "{} is neither a GGUF file (its first bytes are not \"GGUF\") nor a safetensors file (no JSON at byte 8)",
            self.file.display()
        );
        Err(Error::msg(text))
    }
}

impl Contents {
    fn gguf(file: &Gguf) -> Self {
        let metadata = file.metadata().iter().map(|(key, value)| (key.to_owned(), short(&value), full(&value)));
        let tensors = file.tensors().iter().map(|info| Tensor {
            name: info.name.to_owned(),
            dtype: info.ggml_type.name(),
            shape: info.dims().to_vec(),
            bytes: info.bytes,
            offset: info.offset,
        });
        Self {
            format: format!("GGUF version {}, alignment {}", file.version(), file.alignment()),
            file_bytes: file.file().len(),
            metadata: metadata.collect(),
            tensors: tensors.collect(),
        }
    }

    fn safetensors(file: &SafeTensors, file_bytes: usize) -> Self {
        let metadata = file.metadata().map(|(key, value)| (key.to_owned(), short(&Value::Str(value)), json!(value)));
        let tensors = file.tensors().iter().map(|info| Tensor {
            name: info.name().to_owned(),
            dtype: info.st_dtype().name(),
            shape: info.dims().to_vec(),
            bytes: info.range().len() as u64,
            offset: info.range().start as u64,
        });
        Self { format: "safetensors".into(), file_bytes, metadata: metadata.collect(), tensors: tensors.collect() }
    }

    fn elements(&self) -> u64 {
        self.tensors.iter().map(Tensor::elements).fold(0, u64::saturating_add)
    }

    fn tensor_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).fold(0, u64::saturating_add)
    }

    /// How many tensors there are of each dtype.
    fn dtypes(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for tensor in &self.tensors {
            *counts.entry(tensor.dtype).or_default() += 1;
        }
        counts
    }

    fn json(&self) -> Json {
        let metadata: Map<String, Json> =
            self.metadata.iter().map(|(key, _, value)| (key.clone(), value.clone())).collect();
        json!({
            "format": self.format,
            "metadata": metadata,
            "tensors": self.tensors,
            "totals": {
                "tensors": self.tensors.len(),
                "dtypes": self.dtypes(),
                "elements": self.elements(),
                "tensor_bytes": self.tensor_bytes(),
                "file_bytes": self.file_bytes,
            },
        })
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "{}\n\nmetadata ({} keys)", self.format, self.metadata.len())?;
        let wide = widest(self.metadata.iter().map(|(key, ..)| key.as_str()));
        for (key, value, _) in &self.metadata {
            writeln!(out, "  {:<wide$}  {value}", one_line(key))?;
        }
        writeln!(out, "\ntensors ({})", self.tensors.len())?;
        let wide = widest(self.tensors.iter().map(|tensor| tensor.name.as_str()));
        let shapes: Vec<String> = self.tensors.iter().map(|tensor| format!("{:?}", tensor.shape)).collect();
        let wide_shape = widest(shapes.iter().map(String::as_str));
        for (tensor, shape) in self.tensors.iter().zip(&shapes) {
            let name = one_line(&tensor.name);
            writeln!(out, "  {name:<wide$}  {:<8} {shape:<wide_shape$}  {:>12}", tensor.dtype, tensor.bytes)?;
        }
        let dtypes: Vec<String> = self.dtypes().iter().map(|(name, count)| format!("{name} x{count}")).collect();
        writeln!(
            out,
            "\ntotal: {} tensors ({}), {} elements, {} ({} bytes) of {} in the file",
            self.tensors.len(),
            if dtypes.is_empty() { "none".into() } else { dtypes.join(", ") },
            self.elements(),
            DecimalBytes(self.tensor_bytes()),
            self.tensor_bytes(),
            DecimalBytes(self.file_bytes as u64),
        )
    }
}

/// A column's width: a name that is absurdly long must not widen all lines.
fn widest<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0).min(60)
}

/// A value in one line of the table.
fn short(value: &Value<'_>) -> String {
    match value {
        Value::Str(text) => match text.char_indices().nth(LONGEST_STRING) {
            Some((end, _)) => format!("{:?}... {} bytes in all", text.get(..end).unwrap_or_default(), text.len()),
            None => format!("{text:?}"),
        },
        Value::Array(array) => {
            let cut = array.len() > LONGEST_ARRAY;
            let shown = if cut { ARRAY_HEAD } else { LONGEST_ARRAY };
            let mut items: Vec<String> = array.iter().take(shown).map(|value| short(&value)).collect();
            if cut {
                items.push(format!("... {} in all", array.len()));
            }
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// A value as JSON; a long array as its type, length and first elements.
fn full(value: &Value<'_>) -> Json {
    match *value {
        Value::Str(text) => json!(text),
        Value::Bool(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Array(array) if array.len() > LONGEST_ARRAY => json!({
            "type": array.element_type().name(),
            "len": array.len(),
            "first": elements(array, ARRAY_HEAD),
        }),
        Value::Array(array) => elements(array, LONGEST_ARRAY),
        // Every other integer fits.
        _ => json!(value.as_int().and_then(|v| i64::try_from(v).ok())),
    }
}

fn elements(array: Array<'_>, most: usize) -> Json {
    Json::Array(array.iter().take(most).map(|value| full(&value)).collect())
}
