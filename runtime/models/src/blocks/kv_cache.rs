//! Keys and values of past positions. A token costs a write of its own keys and values and nothing else; when the buffers are
//! full, their capacity doubles, up to the context.

use tallow::{DType, Device, Error, Result, Tensor};

/// The cache of one layer: [batch, kv heads, capacity, width] each.
pub struct KvCache {
    keys: Option<Tensor>,
    values: Option<Tensor>,
    len: usize,
    limit: usize,
    /// Times that the capacity has grown.
    grown: usize,
}

/// Positions of the smallest buffer.
const SMALLEST: usize = 128;

impl KvCache {
    /// An empty cache for at most `limit` positions.
    pub fn new(limit: usize) -> Self {
        Self { keys: None, values: None, len: 0, limit, grown: 0 }
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How often the buffers were made anew: a step in which this grows allocates and copies.
    pub fn growths(&self) -> usize {
        self.grown
    }

    /// Forgets everything, keeping the buffers.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Forgets the positions from `len` on, keeping the buffers.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Appends k and v of some positions: [batch, positions, kv heads, ...], where the trailing axes make up the width.
    /// Returns all keys and values as [batch, positions, kv heads, width].
    pub fn append(&mut self, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let positions = k.dim(1)?;
        let end = self.len + positions;
        if end > self.limit {
            let message = format!("{end} positions do not fit a context of {}", self.limit);
            return Err(Error::op("kv_cache", message));
        }
        let mut grown = false;
        for (buffer, new) in [(&mut self.keys, k), (&mut self.values, v)] {
            // An empty cache may go on with another batch.
            let kept = buffer.as_ref().filter(|b| self.len > 0 || suits(b, new));
            let capacity = kept.map_or(0, |b| b.dims()[2]);
            if end > capacity {
                *buffer =
                    Some(grow(buffer.as_ref(), new, self.len, end.next_power_of_two().max(SMALLEST).min(self.limit))?);
                grown = true;
            }
        }
        self.grown += usize::from(grown);
        let (Some(keys), Some(values)) = (&self.keys, &self.values) else {
            return Err(Error::msg("the cache has no buffers"));
        };
        put(keys, k, self.len)?;
        put(values, v, self.len)?;
        self.len = end;
        let all = |buffer: &Tensor| buffer.narrow(2, 0, end)?.transpose(1, 2);
        Ok((all(keys)?, all(values)?))
    }
}

/// Whether a buffer [batch, kv heads, capacity, width] is for keys [batch, positions, kv heads, ...] like these.
fn suits(buffer: &Tensor, new: &Tensor) -> bool {
    let (old, dims) = (buffer.dims(), new.dims());
    dims.len() >= 3
        && [old[0], old[1], old[3]] == [dims[0], dims[2], dims[3..].iter().product()]
        && buffer.dtype() == new.dtype()
}

/// A buffer of `capacity` positions with the first `len` of the old one.
fn grow(old: Option<&Tensor>, new: &Tensor, len: usize, capacity: usize) -> Result<Tensor> {
    let dims = new.dims();
    let width: usize = dims[3..].iter().product();
    let (dtype, device): (DType, &Device) = (new.dtype(), new.device());
    let buffer = Tensor::zeros((dims[0], dims[2], capacity, width), dtype, device)?;
    if let Some(old) = old.filter(|_| len > 0) {
        buffer.narrow(2, 0, len)?.assign(&old.narrow(2, 0, len)?)?;
    }
    Ok(buffer)
}

/// Writes [batch, positions, kv heads, ...] at position `start`. The window takes the shape of what is written, so that the
/// computation of `new` fuses into the write.
fn put(buffer: &Tensor, new: &Tensor, start: usize) -> Result<()> {
    let swapped = new.transpose(1, 2)?;
    let window = buffer.narrow(2, start, new.dim(1)?)?;
    window.reshape(swapped.shape())?.assign(&swapped)
}
