//! Kernels that users write: sources by language, and how they are launched.

use crate::{DType, Element, Error, Result};
use bytemuck::Pod;
use smallvec::SmallVec;
use std::{
    hash::{Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// An operand as a closure on the CPU sees it: contiguous, in row-major order.
#[derive(Debug, Clone, Copy)]
pub struct HostView<'a> {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The sizes of the axes, outermost first.
    pub dims: &'a [usize],
    /// The elements, little-endian.
    pub bytes: &'a [u8],
}

/// The result as a closure on the CPU sees it: contiguous, in row-major order, with undefined contents.
#[derive(Debug)]
pub struct HostViewMut<'a> {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The sizes of the axes, outermost first.
    pub dims: &'a [usize],
    /// The elements, little-endian.
    pub bytes: &'a mut [u8],
}

fn check<T: Element>(dtype: DType) -> Result<()> {
    if T::DTYPE == dtype {
        return Ok(());
    }
    Err(Error::op("custom", format!("the operand is {dtype}, not {}", T::DTYPE)))
}

/// Why bytes cannot be looked at as they lie.
fn unfit(error: bytemuck::PodCastError) -> Error {
    Error::op("custom", format!("the elements cannot be read in place ({error}): use to_vec and copy_from"))
}

/// Elements are little-endian.
fn check_in_place<T: Element>(dtype: DType) -> Result<()> {
    check::<T>(dtype)?;
    if cfg!(target_endian = "big") && size_of::<T>() > 1 {
        return Err(Error::op(
            "custom",
            "elements are little-endian, which this processor is not: use to_vec and copy_from",
        ));
    }
    Ok(())
}

impl<'a> HostView<'a> {
    /// The elements where they lie; an error where the dtype is another.
    pub fn as_slice<T: Element + Pod>(&self) -> Result<&'a [T]> {
        check_in_place::<T>(self.dtype)?;
        if self.bytes.is_empty() { Ok(&[]) } else { bytemuck::try_cast_slice(self.bytes).map_err(unfit) }
    }

    /// A copy of the elements; an error where the dtype is another.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        check::<T>(self.dtype)?;
        Ok(T::take_all(self.bytes))
    }
}

impl HostViewMut<'_> {
    /// The elements where they lie, to be written; an error where the dtype is another.
    pub fn as_mut_slice<T: Element + Pod>(&mut self) -> Result<&mut [T]> {
        check_in_place::<T>(self.dtype)?;
        if self.bytes.is_empty() { Ok(&mut []) } else { bytemuck::try_cast_slice_mut(self.bytes).map_err(unfit) }
    }

    /// Writes all elements; an error where the dtype or the number is another.
    pub fn copy_from<T: Element>(&mut self, values: &[T]) -> Result<()> {
        check::<T>(self.dtype)?;
        let size = self.dtype.size_in_bytes();
        if values.len() * size != self.bytes.len() {
            let message = format!("{} elements do not fill {:?}", values.len(), self.dims);
            return Err(Error::op("custom", message));
        }
        let mut bytes = Vec::with_capacity(size);
        for (place, &value) in self.bytes.chunks_exact_mut(size).zip(values) {
            bytes.clear();
            value.put(&mut bytes);
            place.copy_from_slice(&bytes);
        }
        Ok(())
    }
}

/// A kernel for the CPU: operands, scalars, result. An error comes up where the result is read.
pub type HostFn = dyn Fn(&[HostView<'_>], &[f64], &mut HostViewMut<'_>) -> Result<()> + Send + Sync;

/// Workgroups along x, y and z for the sizes of the operands and of the result.
pub type GridFn = dyn Fn(&[&[usize]], &[usize]) -> [u32; 3] + Send + Sync;

/// A kernel in WGSL.
///
/// Before the source stand the bindings: `in0`, `in1`, ... (`array<f32>`, `array<i32>` or `array<u32>`, read only) and
/// `out` (read and write); functions `in0_dim(axis)`, `out_dim(axis)`, `in0_len()`, `out_len()` (u32); and `param(i)`, scalar i
/// as f32.
pub enum Wgsl {
    /// The source defines `fn element(i: u32)`, which runs once for each element of the result (`i` is its row-major
    /// position) and stores `out[i]`.
    Elements(String),
    /// The source defines an entry point `main` (`@compute @workgroup_size(...) fn main(...)`), launched over this grid.
    Kernel(String, Box<GridFn>),
}

/// A user's kernel: a table from language to source. A device runs the one that it understands.
pub struct Custom {
    id: u64,
    name: String,
    cpu: Option<Box<HostFn>>,
    wgsl: Option<Wgsl>,
    cuda: Option<String>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Custom {
    /// A kernel without sources yet. The name appears in messages.
    pub fn new(name: impl Into<String>) -> Self {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, name: name.into(), cpu: None, wgsl: None, cuda: None }
    }

    /// With a closure for the CPU.
    #[must_use]
    pub fn with_cpu(mut self, run: Box<HostFn>) -> Self {
        self.cpu = Some(run);
        self
    }

    /// With a source in WGSL.
    #[must_use]
    pub fn with_wgsl(mut self, wgsl: Wgsl) -> Self {
        self.wgsl = Some(wgsl);
        self
    }

    /// With a source in CUDA C.
    #[must_use]
    pub fn with_cuda(mut self, source: impl Into<String>) -> Self {
        self.cuda = Some(source.into());
        self
    }

    /// A number of its own in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The closure for the CPU.
    pub fn cpu(&self) -> Option<&HostFn> {
        self.cpu.as_deref()
    }

    /// The source in WGSL.
    pub fn wgsl(&self) -> Option<&Wgsl> {
        self.wgsl.as_ref()
    }

    /// The source in CUDA C.
    pub fn cuda(&self) -> Option<&str> {
        self.cuda.as_deref()
    }

    /// The error of a device that has no source of its language.
    pub fn missing(&self, language: &str) -> Error {
        let has: Vec<&str> = [
            self.cpu.is_some().then_some("a CPU closure"),
            self.wgsl.is_some().then_some("WGSL"),
            self.cuda.is_some().then_some("CUDA C"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let has = if has.is_empty() { "nothing".into() } else { has.join(", ") };
        let message =
            format!("'{}' has {has}, and this device needs {language}: give it one, or move the operands", self.name);
        Error::op("custom", message)
    }
}

impl std::fmt::Debug for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}#{}", self.name, self.id)
    }
}

/// A user's kernel for operands of these dtypes and ranks; one is equal to itself only.
///
/// Inputs: the operands, contiguous from the beginning of their buffers. Words: the sizes of each operand, then those of
/// the result. Scalars: the user's own. Output contiguous.
#[derive(Debug, Clone)]
pub struct CustomKernel {
    /// The sources.
    pub custom: Arc<Custom>,
    /// Dtype and rank of each operand.
    pub inputs: SmallVec<[(DType, u8); 3]>,
    /// Dtype and rank of the result.
    pub output: (DType, u8),
    /// How many scalars.
    pub scalars: u8,
}

impl PartialEq for CustomKernel {
    fn eq(&self, other: &Self) -> bool {
        self.custom.id == other.custom.id
            && self.inputs == other.inputs
            && self.output == other.output
            && self.scalars == other.scalars
    }
}

impl Eq for CustomKernel {}

impl Hash for CustomKernel {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.custom.id, &self.inputs, self.output, self.scalars).hash(state);
    }
}
