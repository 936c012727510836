//! Reading values, and moving them between devices.

use super::Tensor;
use crate::{DType, Device, Element, Error, Result, block_on::block_on_named};
use tallow_graph::{Edge, ops};

impl Tensor {
    /// The elements in row-major order, as little-endian bytes of the tensor's dtype.
    pub async fn to_bytes_async(&self) -> Result<Vec<u8>> {
        let edge = self.edge();
        let dtype = edge.node.dtype();
        if dtype.is_quantized() {
            let (rows, cols) = self.dims2()?;
            let engine = self.device().engine();
            let buffer = engine.value(&edge.node).await?;
            return engine.backend().unpack(&buffer, dtype, rows, cols).await;
        }
        let engine = self.device().engine().clone();
        let whole = edge.view.is_whole(edge.node.shape().elem_count());
        let node = if whole { edge.node } else { ops::copy(edge)? };
        engine.read(&node).await
    }

    /// The elements in row-major order.
    pub async fn to_vec_async<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            let message = format!("the tensor is {}, not {}: convert with to_dtype", self.dtype(), T::DTYPE);
            return Err(Error::op("to_vec", message));
        }
        let bytes = self.to_bytes_async().await?;
        Ok(bytes.chunks_exact(T::DTYPE.size_in_bytes()).map(T::take).collect())
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
        let edge = self.edge();
        let whole = edge.view.is_whole(edge.node.shape().elem_count());
        let node = if whole { edge.node } else { ops::copy(edge)? };
        let moved = Tensor::from_node(ops::transfer(device.engine(), &node)?, device);
        moved.reshape(self.shape())
    }

    /// Every element as f64, for printing.
    pub(super) fn to_f64s(&self) -> Result<Vec<f64>> {
        let dtype = self.dtype();
        let bytes = block_on_named(self.to_bytes_async(), "printing", "to_vec_async")?;
        macro_rules! convert {
            ($($variant:ident $ty:ty),+) => {
                match dtype {
                    $(DType::$variant => bytes.chunks_exact(size_of::<$ty>()).map(|b| <$ty>::take(b).to_f64()).collect(),)+
                    other => return Err(Error::op("print", format!("{other} elements are packed: dequantize first"))),
                }
            };
        }
        Ok(convert!(
            U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F16 half::f16, BF16 half::bf16, F32 f32, F64 f64
        ))
    }

    /// Only the tensors' values, without those of this program's other work: an edge for third-party operations.
    pub fn as_edge(&self) -> Edge {
        self.edge()
    }
}
