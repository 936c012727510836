//! PyTorch's files (.pt, .pth, .bin): reading what `torch.save` wrote, in its zip layout and in the one before version 1.6.
//!
//! Such a file is a pickle, a program that builds Python objects, and storages beside it. Here the program runs on a machine
//! that knows numbers, text, lists, dictionaries, and the few names of which tensors are made; calling anything else
//! gives an opaque value, which is skipped, and never runs. So no file can do more than describe tensors.
//!
//! A tensor's name is the way to it through dictionaries and lists, joined by dots, as in a `state_dict()`: `model.conv.weight` is
//! `conv.weight` of the dictionary `model`, `params.0` the first of a list. A file of one tensor names it with the empty string.
//! A key (`Some("state_dict")`) starts inside the dictionary of that name.
//!
//! Booleans are read as U8. Transposed and other views are views here too, of the part of the storage that they show; tensors
//! that share a storage in PyTorch do not here. Complex and quantized tensors are refused by name when they are asked for, and do not
//! keep the others from being read.

mod container;
mod heap;
mod machine;
mod names;
mod torch;

use super::{Bytes, in_file, inside, quoted};
use crate::{DType, Device, Error, Result, Tensor, View};
use container::Data;
use heap::Heap;
use names::Found;
#[cfg(not(target_family = "wasm"))]
use std::path::Path;
use std::{
    collections::{HashMap, hash_map::Entry},
    path::PathBuf,
};

/// The format's name in errors.
const FORMAT: &str = "pth";

fn bad(message: impl Into<String>) -> Error {
    Error::format(FORMAT, message)
}

/// What a file says of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorInfo {
    /// The way to it through dictionaries and lists, joined by dots.
    pub name: String,
    /// Its dtype.
    pub dtype: DType,
    /// Its place in the storage: offset, shape and strides, in elements.
    pub layout: View,
    /// The storage: its place in a zip archive, or its key.
    pub path: String,
    /// Elements of the storage.
    pub storage_size: usize,
}

/// A file of PyTorch's, whose tensors are read when they are asked for.
///
/// ```no_run
/// use tallow::pickle::PthTensors;
/// let file = PthTensors::new("pytorch_model.bin", None)?;
/// for name in file.names() {
///     let info = &file.tensor_infos()[name];
///     println!("{name} {} {:?}", info.dtype, info.layout.shape);
/// }
/// let bias = file.get("classifier.bias")?;
/// # Ok::<(), tallow::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PthTensors {
    data: Data,
    /// In the file's order.
    names: Vec<String>,
    infos: HashMap<String, TensorInfo>,
    /// Name to why there is no tensor.
    refused: HashMap<String, String>,
    /// Where it was opened, for errors.
    path: Option<PathBuf>,
}

impl PthTensors {
    /// Maps a file and checks what it says of its tensors. See [`Bytes::open`] on changing the file meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be opened, [`Error::Format`] where it is none of PyTorch's, is damaged, has no
    /// dictionary `key`, or holds a whole model rather than its `state_dict()`.
    #[cfg(not(target_family = "wasm"))]
    pub fn new(path: impl AsRef<Path>, key: Option<&str>) -> Result<Self> {
        let path = path.as_ref();
        let file = Self::parse(Bytes::open(path)?, key).map_err(|error| in_file(path, error))?;
        Ok(Self { path: Some(path.to_path_buf()), ..file })
    }

    /// Checks a whole file in memory.
    ///
    /// # Errors
    /// As [`PthTensors::new`].
    pub fn parse(file: Bytes, key: Option<&str>) -> Result<Self> {
        let (pickle, at, data) = container::open(file)?;
        let mut heap = Heap { pickle: &pickle, ..Heap::default() };
        let (root, _) = machine::run(&mut heap, at)?;
        let root = names::select(&heap, root, key)?;
        let found = names::walk(&heap, root, &data)?;
        let mut read = Self {
            names: Vec::with_capacity(found.len()),
            infos: HashMap::with_capacity(found.len()),
            refused: HashMap::new(),
            path: None,
            data,
        };
        for (name, found) in found {
            match found {
                Found::Refused(why) => drop(read.refused.insert(name, why)),
                Found::Tensor(info) => read.add(info)?,
            }
        }
        Ok(read)
    }

    fn add(&mut self, info: TensorInfo) -> Result<()> {
        match self.infos.entry(info.name.clone()) {
            Entry::Occupied(_) => Err(bad(format!("two tensors are named {}; give a key", quoted(&info.name)))),
            Entry::Vacant(free) => {
                self.names.push(info.name.clone());
                free.insert(info);
                Ok(())
            }
        }
    }

    /// The tensors' names, in the file's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What the file says of its tensors, by name.
    pub fn tensor_infos(&self) -> &HashMap<String, TensorInfo> {
        &self.infos
    }

    /// A tensor, on the CPU; `None` where there is none of this name.
    ///
    /// # Errors
    /// The file has something of this name that Tallow has no tensor for, or its bytes cannot be unpacked.
    pub fn get(&self, name: &str) -> Result<Option<Tensor>> {
        self.load(name, &Device::Cpu)
    }

    /// A tensor, on a device; `None` where there is none of this name.
    ///
    /// # Errors
    /// As [`PthTensors::get`], and where the device has no room or not the dtype.
    pub fn load(&self, name: &str, device: &Device) -> Result<Option<Tensor>> {
        if let Some(info) = self.infos.get(name) {
            return self.tensor(info, device).map(Some).map_err(|error| self.at(name, error));
        }
        match self.refused.get(name) {
            Some(why) => Err(self.at(name, bad(why.as_str()))),
            None => Ok(None),
        }
    }

    fn tensor(&self, info: &TensorInfo, device: &Device) -> Result<Tensor> {
        let TensorInfo { dtype, layout: view, path, .. } = info;
        let size = dtype.size_in_bytes();
        let reach: usize =
            view.shape.iter().zip(&view.strides).map(|(d, s)| d.saturating_sub(1) * s.unsigned_abs()).sum();
        let elements = if view.shape.elem_count() == 0 { 0 } else { reach + 1 };
        let bytes = self.data.bytes(path, view.offset * size..(view.offset + elements) * size, size)?;
        if elements == 0 || view.is_dense() {
            return Tensor::from_bytes(&bytes, *dtype, &view.shape, device);
        }
        let part = Tensor::from_bytes(&bytes, *dtype, elements, device)?;
        Ok(part.viewed("get", |_| View { offset: 0, ..view.clone() }))
    }

    /// An error with the file and the tensor that it is about.
    fn at(&self, name: &str, error: Error) -> Error {
        let error = inside(format_args!("tensor {}", quoted(name)), error);
        match &self.path {
            Some(path) => in_file(path, error),
            None => error,
        }
    }
}

/// All tensors of a file in memory, with their names, in the file's order, on a device. `key` is as in the
/// [module's words](self).
///
/// # Errors
/// As [`PthTensors::new`] and [`PthTensors::get`].
pub fn load_buffer(bytes: &[u8], key: Option<&str>, device: &Device) -> Result<Vec<(String, Tensor)>> {
    all(&PthTensors::parse(bytes.into(), key)?, device)
}

fn all(file: &PthTensors, device: &Device) -> Result<Vec<(String, Tensor)>> {
    let load = |name: &String| Ok(file.load(name, device)?.map(|tensor| (name.clone(), tensor)));
    file.names.iter().filter_map(|name| load(name).transpose()).collect()
}

/// All tensors of a file, with their names, in the file's order, on the CPU.
///
/// # Errors
/// As [`PthTensors::new`] and [`PthTensors::get`].
#[cfg(not(target_family = "wasm"))]
pub fn read_all(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
    read_all_with_key(path, None)
}

/// All tensors below a key of a file's dictionary (`"state_dict"`, `"model"`), on the CPU.
///
/// # Errors
/// As [`PthTensors::new`] and [`PthTensors::get`].
#[cfg(not(target_family = "wasm"))]
pub fn read_all_with_key(path: impl AsRef<Path>, key: Option<&str>) -> Result<Vec<(String, Tensor)>> {
    all(&PthTensors::new(path, key)?, &Device::Cpu)
}

/// What a file says of its tensors, in its order; `verbose` prints a line for each.
///
/// # Errors
/// As [`PthTensors::new`].
#[cfg(not(target_family = "wasm"))]
pub fn read_pth_tensor_info(path: impl AsRef<Path>, verbose: bool, key: Option<&str>) -> Result<Vec<TensorInfo>> {
    let file = PthTensors::new(path, key)?;
    let infos: Vec<TensorInfo> = file.names.iter().filter_map(|name| file.infos.get(name).cloned()).collect();
    for info in infos.iter().filter(|_| verbose) {
        println!("{}: {} {:?} of {}", info.name, info.dtype, info.layout.shape, info.path);
    }
    Ok(infos)
}
