//! Reading values, and moving them between devices.

use super::{Tensor, display::Number};
use crate::{DType, Device, Element, Error, Result, autograd::Keep, block_on::block_on_named};
use tallow_graph::{Edge, ops};

impl Tensor {
    /// The elements in row-major order, as little-endian bytes of the tensor's dtype.
    pub async fn to_bytes_async(&self) -> Result<Vec<u8>> {
        let edge = self.edge();
        let dtype = edge.node.dtype();
        if dtype.is_quantized() {
            let (rows, cols) = self.dims2()?;
            if edge.view != crate::View::contiguous(edge.node.shape().clone()) {
                let message = format!(
                    "a part or another order of a weight packed as {dtype} cannot be read: dequantize it first"
                );
                return Err(Error::op("to_bytes", message));
            }
            let engine = self.device().engine();
            let buffer = engine.value(&edge.node).await?;
            return engine.backend().unpack(&buffer, dtype, rows, cols).await;
        }
        let engine = self.device().engine().clone();
        let whole = edge.view.is_whole(edge.node.shape().elem_count());
        let node = if whole { edge.node } else { ops::copy(edge)? };
        engine.read(&node).await
    }

    /// Writes the elements in row-major order, as little-endian bytes of the tensor's dtype.
    pub fn write_bytes<W: std::io::Write>(&self, to: &mut W) -> Result<()> {
        let bytes = block_on_named(self.to_bytes_async(), "write_bytes", "to_bytes_async")?;
        to.write_all(&bytes).map_err(|error| Error::wrap("write_bytes", error))
    }

    /// [`Tensor::write_bytes`] where nothing may block: only the writing itself does.
    pub async fn write_bytes_async<W: std::io::Write>(&self, to: &mut W) -> Result<()> {
        let bytes = self.to_bytes_async().await?;
        to.write_all(&bytes).map_err(|error| Error::wrap("write_bytes", error))
    }

    /// The elements in row-major order.
    pub async fn to_vec_async<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            let message = format!("the tensor is {}, not {}: convert with to_dtype", self.dtype(), T::DTYPE);
            return Err(Error::op("to_vec", message));
        }
        let bytes = self.to_bytes_async().await?;
        Ok(T::take_all(&bytes))
    }

    fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        block_on_named(self.to_vec_async(), "to_vec", "to_vec_async")
    }

    /// The single element of a tensor without axes.
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        self.dims0()?;
        self.to_vec()?.first().copied().ok_or_else(|| Error::op("to_scalar", "no element came back"))
    }

    /// Another name of [`Tensor::to_scalar`].
    pub fn to_vec0<T: Element>(&self) -> Result<T> {
        self.to_scalar()
    }

    /// The elements of a vector.
    pub fn to_vec1<T: Element>(&self) -> Result<Vec<T>> {
        self.dims1()?;
        self.to_vec()
    }

    /// The rows of a matrix.
    pub fn to_vec2<T: Element>(&self) -> Result<Vec<Vec<T>>> {
        let (rows, cols) = self.dims2()?;
        let all = self.to_vec()?;
        Ok((0..rows).map(|r| all[r * cols..(r + 1) * cols].to_vec()).collect())
    }

    /// The elements of a tensor of three axes.
    pub fn to_vec3<T: Element>(&self) -> Result<Vec<Vec<Vec<T>>>> {
        let (a, b, c) = self.dims3()?;
        let all = self.to_vec()?;
        let row = |i: usize, j: usize| all[(i * b + j) * c..(i * b + j + 1) * c].to_vec();
        Ok((0..a).map(|i| (0..b).map(|j| row(i, j)).collect()).collect())
    }

    /// On another device. The copy is made when the value is needed.
    pub fn to_device(&self, device: &Device) -> Result<Tensor> {
        if self.device().same_device(device) {
            return Ok(self.clone());
        }
        let input = self.input();
        let edge = input.edge();
        let whole = edge.view.is_whole(edge.node.shape().elem_count());
        let node = if whole { edge.node } else { ops::copy(edge)? };
        let moved = Tensor::from_node(ops::transfer(device.engine(), &node)?, device);
        let (home, shape) = (self.device().clone(), self.shape().clone());
        let moved = moved.recorded("to_device", &[&input], &[Keep::NOTHING], move |saved, grad| {
            saved.each(|_| grad.to_device(&home)?.reshape(&shape))
        });
        moved.reshape(self.shape())
    }

    /// Every element, for printing.
    pub(super) fn to_numbers(&self) -> Result<Vec<Number>> {
        let dtype = self.dtype();
        if dtype.is_quantized() || matches!(dtype, DType::F8E4M3 | DType::F8E5M2) {
            return self.to_dtype(DType::F32)?.to_numbers();
        }
        let bytes = block_on_named(self.to_bytes_async(), "printing", "to_vec_async")?;
        macro_rules! convert {
            ($($variant:ident $ty:ty: $number:expr),+) => {
                match dtype {
                    $(DType::$variant => bytes.chunks_exact(size_of::<$ty>()).map(|b| $number(<$ty>::take(b))).collect(),)+
                    other => return Err(Error::op("print", format!("{other} cannot be shown as numbers"))),
                }
            };
        }
        Ok(convert!(
            U8 u8: |v| Number::Int(i128::from(v)),
            I8 i8: |v| Number::Int(i128::from(v)),
            U16 u16: |v| Number::Int(i128::from(v)),
            I16 i16: |v| Number::Int(i128::from(v)),
            U32 u32: |v| Number::Int(i128::from(v)),
            I32 i32: |v| Number::Int(i128::from(v)),
            U64 u64: |v| Number::Int(i128::from(v)),
            I64 i64: |v| Number::Int(i128::from(v)),
            F16 half::f16: |v: half::f16| Number::Float(v.to_f64()),
            BF16 half::bf16: |v: half::bf16| Number::Float(v.to_f64()),
            F32 f32: |v| Number::Float(f64::from(v)),
            F64 f64: Number::Float
        ))
    }

    /// The value as an operand of a graph node: for operations that are built outside this crate. Their results are made with
    /// [`Tensor::from_operation`], so that a gradient that they would lose is an error.
    pub fn as_edge(&self) -> Edge {
        self.edge()
    }
}
