//! [`QTensor`]: a weight in blocks, on a device.

use super::{GgmlDType, blocks};
use crate::{DType, Device, Error, Result, Shape, Tensor, block_on::block_on_named, formats::Bytes};
use std::{borrow::Cow, sync::Arc};

/// Blocks on their way to a device, for [`QTensor::new`].
#[derive(Debug, Clone)]
pub struct QStorage {
    data: Bytes,
    device: Device,
    dtype: GgmlDType,
}

impl QStorage {
    /// Blocks, as a file has them.
    ///
    /// # Errors
    /// The bytes are not whole blocks.
    pub fn from_data(data: Cow<'_, [u8]>, device: &Device, dtype: GgmlDType) -> Result<Self> {
        Self::from_bytes(data.into_owned().into(), device, dtype)
    }

    /// [`QStorage::from_data`] without a copy: a slice of a mapped file, say.
    ///
    /// # Errors
    /// The bytes are not whole blocks.
    pub fn from_bytes(data: Bytes, device: &Device, dtype: GgmlDType) -> Result<Self> {
        if !data.len().is_multiple_of(dtype.type_size()) {
            let message = format!("{} bytes are not whole blocks of {dtype}", data.len());
            return Err(Error::op("quantized", message));
        }
        Ok(Self { data, device: device.clone(), dtype })
    }
}

/// A weight in llama.cpp's blocks. The last axis is what blocks run along.
#[derive(Debug, Clone)]
pub struct QTensor {
    /// [rows, last axis]; packed where the type has a dtype, see [the module](super).
    tensor: Tensor,
    shape: Shape,
    dtype: GgmlDType,
    /// The blocks themselves, where `tensor` is something else than they.
    blocks: Option<Bytes>,
}

impl QTensor {
    /// A weight of this shape from its blocks.
    ///
    /// # Errors
    /// The last axis is not whole blocks, there are more or fewer than the shape has, or the device has no room.
    pub fn new(storage: QStorage, shape: impl crate::IntoShape) -> Result<Self> {
        let QStorage { data, device, dtype } = storage;
        let shape = shape.into_shape();
        let cols = whole_rows(&shape, dtype)?;
        if dtype.bytes_for(shape.elem_count()) != Some(data.len()) {
            let message = format!("{} bytes do not make {shape:?} of {dtype}", data.len());
            return Err(Error::op("quantized", message));
        }
        let rows = shape.elem_count() / cols.max(1);
        let (to, bytes) = blocks::for_device(dtype, &data)?;
        let tensor = if to.is_quantized() {
            let range = 0..bytes.len();
            let node = device.engine().upload_packed(to, rows, cols, Arc::new(bytes.clone()), range)?;
            Tensor::from_node(node, &device)
        } else {
            Tensor::from_bytes(&bytes, to, (rows, cols), &device)?
        };
        let blocks = (dtype.dtype() != Some(to)).then_some(data);
        Ok(Self { tensor, shape, dtype, blocks })
    }

    /// A tensor's values in blocks, on its device. Waits for them; in a browser use [`QTensor::quantize_onto_async`].
    ///
    /// # Errors
    /// The last axis is not whole blocks, or a value that cannot be computed.
    pub fn quantize(src: &Tensor, dtype: GgmlDType) -> Result<Self> {
        Self::quantize_onto(src, dtype, src.device())
    }

    /// A tensor's values in blocks, on another device.
    ///
    /// # Errors
    /// As [`QTensor::quantize`].
    pub fn quantize_onto(src: &Tensor, dtype: GgmlDType, device: &Device) -> Result<Self> {
        let call = Self::quantize_onto_async(src, dtype, device);
        block_on_named(call, "quantize", "QTensor::quantize_onto_async")
    }

    /// [`QTensor::quantize_onto`] where nothing may block.
    ///
    /// # Errors
    /// As [`QTensor::quantize`].
    pub async fn quantize_onto_async(src: &Tensor, dtype: GgmlDType, device: &Device) -> Result<Self> {
        whole_rows(src.shape(), dtype)?;
        let values = src.to_dtype(DType::F32)?.flatten_all()?.to_vec_async::<f32>().await?;
        let data = blocks::quantize(dtype, &values)?;
        Self::new(QStorage { data: data.into(), device: device.clone(), dtype }, src.shape())
    }

    /// A tensor's values in blocks of Q2K, Q3K, Q4K, Q5K or Q6K, on its device, where an error in column j counts `importance[j]`
    /// times: llama.cpp's importance matrix, the mean square of what the column is multiplied by. Waits for the values; in a
    /// browser use [`QTensor::quantize_imatrix_onto_async`].
    ///
    /// # Errors
    /// As [`QTensor::quantize`]; another type, not one importance per column, or one that is negative or not finite.
    pub fn quantize_imatrix(src: &Tensor, importance: &[f32], dtype: GgmlDType) -> Result<Self> {
        Self::quantize_imatrix_onto(src, importance, dtype, src.device())
    }

    /// [`QTensor::quantize_imatrix`] on another device.
    ///
    /// # Errors
    /// As [`QTensor::quantize_imatrix`].
    pub fn quantize_imatrix_onto(src: &Tensor, importance: &[f32], dtype: GgmlDType, device: &Device) -> Result<Self> {
        let call = Self::quantize_imatrix_onto_async(src, importance, dtype, device);
        block_on_named(call, "quantize_imatrix", "QTensor::quantize_imatrix_onto_async")
    }

    /// [`QTensor::quantize_imatrix_onto`] where nothing may block.
    ///
    /// # Errors
    /// As [`QTensor::quantize_imatrix`].
    pub async fn quantize_imatrix_onto_async(
        src: &Tensor,
        importance: &[f32],
        dtype: GgmlDType,
        device: &Device,
    ) -> Result<Self> {
        let bad = |message: String| Error::op("quantize_imatrix", message);
        let cols = whole_rows(src.shape(), dtype)?;
        if importance.len() != cols {
            return Err(bad(format!("{} importances for the {cols} columns of {:?}", importance.len(), src.shape())));
        }
        if let Some(at) = importance.iter().position(|v| !v.is_finite() || *v < 0.0) {
            return Err(bad(format!("the importance of column {at} is {}, not a number from 0 on", importance[at])));
        }
        let values = src.to_dtype(DType::F32)?.flatten_all()?.to_vec_async::<f32>().await?;
        let data = blocks::quantize_imatrix(dtype, &values, importance)?;
        Self::new(QStorage { data: data.into(), device: device.clone(), dtype }, src.shape())
    }

    /// The values as F32, on a device.
    ///
    /// # Errors
    /// The device has no room.
    pub fn dequantize(&self, device: &Device) -> Result<Tensor> {
        self.tensor.dequantize()?.reshape(&self.shape)?.to_device(device)
    }

    /// The values as F16, on a device.
    ///
    /// # Errors
    /// The device has no room.
    pub fn dequantize_f16(&self, device: &Device) -> Result<Tensor> {
        self.dequantize(device)?.to_dtype(DType::F16)
    }

    /// The sizes of the axes, outermost first.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The type of the blocks.
    pub fn dtype(&self) -> GgmlDType {
        self.dtype
    }

    /// Where it lives.
    pub fn device(&self) -> Device {
        self.tensor.device().clone()
    }

    /// Bytes of the blocks, as files have them.
    pub fn storage_size_in_bytes(&self) -> usize {
        self.dtype.bytes_for(self.shape.elem_count()).unwrap_or(0)
    }

    /// The blocks, as files have them. Waits for them; in a browser use [`QTensor::data_async`].
    ///
    /// # Errors
    /// They cannot be read back from the device.
    pub fn data(&self) -> Result<Cow<'_, [u8]>> {
        block_on_named(self.data_async(), "data", "data_async")
    }

    /// [`QTensor::data`] where nothing may block.
    ///
    /// # Errors
    /// They cannot be read back from the device.
    pub async fn data_async(&self) -> Result<Cow<'_, [u8]>> {
        match &self.blocks {
            Some(blocks) => Ok(Cow::Borrowed(blocks)),
            None => self.tensor.to_bytes_async().await.map(Cow::Owned),
        }
    }

    /// The rows of a weight of two axes at these places: ids [...] -> [..., last axis], in F32.
    ///
    /// # Errors
    /// The weight has another number of axes, or the ids are no integers.
    pub fn embedding(&self, ids: &Tensor) -> Result<Tensor> {
        let cols = self.matrix()?.dims2()?.1;
        let shape: Shape = ids.dims().iter().copied().chain([cols]).collect();
        self.tensor.index_select(&ids.flatten_all()?, 0)?.to_dtype(DType::F32)?.reshape(shape)
    }

    /// The weight as products take it.
    pub(super) fn matrix(&self) -> Result<&Tensor> {
        match self.rank() {
            2 => Ok(&self.tensor),
            _ => Err(Error::op("quantized", format!("{:?} is no matrix: a product takes [rows, columns]", self.shape))),
        }
    }
}

/// The last axis, if it is whole blocks.
fn whole_rows(shape: &Shape, dtype: GgmlDType) -> Result<usize> {
    let cols = shape.last().copied().unwrap_or(1);
    if !cols.is_multiple_of(dtype.block_size()) || (dtype.is_quantized() && cols == 0) {
        let message = format!(
            "the last axis of {shape:?} is not whole blocks of {dtype}, which have {} elements",
            dtype.block_size()
        );
        return Err(Error::op("quantized", message));
    }
    Ok(cols)
}
