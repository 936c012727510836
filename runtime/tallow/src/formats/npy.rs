//! npy and npz, NumPy's file formats: reading and writing.
//!
//! An npy file is one array: a header (see `header.rs`) and the elements. An npz file is a zip archive of npy files; see
//! `npz.rs`. Everything that NumPy writes of Tallow's dtypes is read: versions 1 to 3, both byte orders, Fortran's order
//! (as a view with its axes turned round), booleans (as U8). What is written is version 1, little-endian and row-major. The
//! layout is that of NumPy Enhancement Proposal 1 and `numpy.lib.format`.

mod header;
mod npz;

use crate::{Device, Error, Result, Tensor};
use header::Header;
use std::{borrow::Cow, io::Read};

pub use npz::{NpzTensors, npz_to_bytes_async};

/// The format's name in errors.
const FORMAT: &str = "npy";

/// The array of an npy file in memory, on a device.
///
/// # Errors
/// The bytes are no sound npy file, or hold a type that Tallow has not.
pub fn load_buffer(bytes: &[u8], device: &Device) -> Result<Tensor> {
    let mut rest = bytes;
    let header = Header::read(&mut rest)?;
    tensor(&header, rest.into(), device)
}

/// The bytes of an npy file with this tensor.
///
/// # Errors
/// A dtype that NumPy has not (BF16, F8, packed weights), or a value that cannot be computed.
pub async fn to_bytes_async(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = Header::write(tensor.dtype(), tensor.shape())?;
    bytes.append(&mut tensor.to_bytes_async().await?);
    Ok(bytes)
}

/// The array of an npy file whose bytes come from a stream of about `expected` bytes.
fn read(from: &mut impl Read, expected: usize, device: &Device) -> Result<Tensor> {
    let header = Header::read(from)?;
    // One byte more than there should be tells whether there are more. Memory is not taken on the header's word.
    let want = header.bytes().saturating_add(1);
    let mut data = Vec::new();
    let room = data.try_reserve_exact(want.min(expected));
    room.map_err(|e| Error::format(FORMAT, format!("{want} bytes cannot be held ({e})")))?;
    let read = from.take(want as u64).read_to_end(&mut data);
    read.map_err(|e| Error::format(FORMAT, format!("the data cannot be read ({e})")))?;
    tensor(&header, data.into(), device)
}

fn tensor(header: &Header, mut data: Cow<'_, [u8]>, device: &Device) -> Result<Tensor> {
    let (want, got) = (header.bytes(), data.len());
    if got != want {
        let what = if got < want { "truncated" } else { "too long" };
        let (shape, dtype) = (&header.shape, header.dtype);
        let text = format!("{what}: an array of shape {shape:?} of {dtype} takes {want} bytes of data, not {got}");
        let text = if got < want { text } else { format!("{text} or more") };
        return Err(Error::format(FORMAT, text));
    }
    if header.big_endian {
        data.to_mut().chunks_exact_mut(header.dtype.size_in_bytes()).for_each(<[u8]>::reverse);
    }
    if !header.fortran || header.shape.rank() < 2 {
        return Tensor::from_bytes(&data, header.dtype, &header.shape, device);
    }
    let turned: Vec<usize> = header.shape.iter().rev().copied().collect();
    let order: Vec<usize> = (0..turned.len()).rev().collect();
    Tensor::from_bytes(&data, header.dtype, turned.as_slice(), device)?.permute(order.as_slice())
}

#[cfg(not(target_family = "wasm"))]
mod files {
    use super::{NpzTensors, load_buffer, npz, to_bytes_async};
    use crate::{
        Device, Result, Tensor,
        formats::{Bytes, in_file, replace},
    };
    use std::{io::Write, path::Path};

    /// Files of NumPy, on the CPU.
    impl Tensor {
        /// The array of an npy file. [`load_buffer`] takes bytes, and any device.
        ///
        /// # Errors
        /// The file cannot be read, or is no sound npy file, or holds a type that Tallow has not.
        pub fn read_npy(path: impl AsRef<Path>) -> Result<Tensor> {
            let path = path.as_ref();
            load_buffer(&Bytes::open(path)?, &Device::Cpu).map_err(|error| in_file(path, error))
        }

        /// Writes an npy file, replacing what was there in one step.
        ///
        /// ```no_run
        /// use tallow::{Device, Tensor};
        /// let x = Tensor::randn(0f32, 1., (2, 3), &Device::Cpu)?;
        /// x.write_npy("x.npy")?;
        /// assert_eq!(Tensor::read_npy("x.npy")?.dims(), [2, 3]);
        /// # Ok::<(), tallow::Error>(())
        /// ```
        ///
        /// # Errors
        /// A dtype that NumPy has not (BF16, F8, packed weights), a value that cannot be computed, or a file that cannot be
        /// written; then nothing is left behind.
        pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
            let bytes = crate::block_on(to_bytes_async(self))?;
            replace(path.as_ref(), |out| Ok(out.write_all(&bytes)?))
        }

        /// All arrays of an npz file with their names, in the file's order. [`NpzTensors`] reads only those asked for.
        ///
        /// # Errors
        /// As [`NpzTensors::new`] and [`NpzTensors::get`].
        pub fn read_npz(path: impl AsRef<Path>) -> Result<Vec<(String, Tensor)>> {
            let file = NpzTensors::new(path)?;
            file.names().into_iter().map(|name| Ok((name.clone(), file.require(name)?))).collect()
        }

        /// The arrays of these names of an npz file.
        ///
        /// # Errors
        /// As [`NpzTensors::new`] and [`NpzTensors::get`], and where there is no array of a name.
        pub fn read_npz_by_name(path: impl AsRef<Path>, names: &[&str]) -> Result<Vec<Tensor>> {
            let file = NpzTensors::new(path)?;
            names.iter().map(|name| file.require(name)).collect()
        }

        /// Writes an npz file of named arrays, uncompressed as `numpy.savez` does, replacing what was there in one step.
        ///
        /// ```no_run
        /// use tallow::{Device, Tensor};
        /// let (a, b) = (Tensor::new(&[1f32, 2.], &Device::Cpu)?, Tensor::new(3u8, &Device::Cpu)?);
        /// Tensor::write_npz(&[("a", &a), ("b", &b)], "both.npz")?;
        /// let b = Tensor::read_npz_by_name("both.npz", &["b"])?.remove(0);
        /// assert_eq!(b.to_scalar::<u8>()?, 3);
        /// # Ok::<(), tallow::Error>(())
        /// ```
        ///
        /// # Errors
        /// Two arrays of one name, and as [`Tensor::write_npy`].
        pub fn write_npz<S: AsRef<str>, T: AsRef<Tensor>, P: AsRef<Path>>(ts: &[(S, T)], path: P) -> Result<()> {
            replace(path.as_ref(), |out| crate::block_on(async { Ok(npz::put(out, ts).await) })?.map(drop))
        }
    }
}
