//! Rotary position embedding (Su et al., 2021): each pair (a, b) of a head becomes (a cos - b sin, b cos + a sin), with an
//! angle that grows with the position. Written as maps over views: a pair's partner is the flip of an axis of size 2, so the
//! rotation fuses into what reads it.

use crate::config::{RopeConfig, RopePairing};
use std::sync::Mutex;
use tallow::{Device, Error, Result, Tensor};

/// Tables of cosines and signed sines that grow with the positions used.
pub struct Rope {
    pairing: RopePairing,
    frequencies: Vec<f64>,
    limit: usize,
    device: Device,
    tables: Mutex<Option<Tables>>,
}

#[derive(Clone)]
struct Tables {
    positions: usize,
    /// [positions, half] (see `pairing` for where the axis of 2 goes)
    cos: Tensor,
    /// The same with an axis of 2: -sin for the first of a pair, +sin for the second.
    sin: Tensor,
}

/// Positions of the smallest table.
const SMALLEST: usize = 256;

impl Rope {
    /// For heads of `width` elements and positions below `limit`.
    pub fn new(config: &RopeConfig, width: usize, limit: usize, device: &Device) -> Result<Self> {
        Ok(Self {
            pairing: config.pairing,
            frequencies: config.frequencies(width)?,
            limit,
            device: device.clone(),
            tables: Mutex::new(None),
        })
    }

    fn tables(&self, positions: usize) -> Result<Tables> {
        let mut tables = self.tables.lock().map_err(|_| Error::msg("the rope tables were lost in a panic"))?;
        if let Some(tables) = tables.as_ref().filter(|t| t.positions >= positions) {
            return Ok(tables.clone());
        }
        let count = positions.next_power_of_two().max(SMALLEST).min(self.limit.max(positions));
        let half = self.frequencies.len();
        let mut cos = Vec::with_capacity(count * half);
        let mut sin = vec![0f32; count * half * 2];
        for p in 0..count {
            for (i, f) in self.frequencies.iter().enumerate() {
                let angle = p as f64 * f;
                cos.push(angle.cos() as f32);
                let (first, second) = match self.pairing {
                    RopePairing::Half => (p * 2 * half + i, p * 2 * half + half + i),
                    RopePairing::Interleaved => ((p * half + i) * 2, (p * half + i) * 2 + 1),
                };
                sin[first] = -angle.sin() as f32;
                sin[second] = angle.sin() as f32;
            }
        }
        let (cos_shape, sin_shape) = match self.pairing {
            RopePairing::Half => ([count, 1, half], [count, 2, half]),
            RopePairing::Interleaved => ([count, half, 1], [count, half, 2]),
        };
        let fresh = Tables {
            positions: count,
            cos: Tensor::from_slice(&cos, cos_shape, &self.device)?,
            sin: Tensor::from_slice(&sin, sin_shape, &self.device)?,
        };
        *tables = Some(fresh.clone());
        Ok(fresh)
    }

    /// Rotates x [batch, positions, heads, width], whose first position is `start`. The result has its width split into the
    /// axes of a pair: [batch, positions, heads, 2, width / 2] or [..., width / 2, 2]; a reshape joins them.
    pub fn forward(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        let (b, t, h, width) = x.dims4()?;
        let half = self.frequencies.len();
        if width != 2 * half {
            return Err(Error::op("rope", format!("heads are {width} wide, the tables are for {}", 2 * half)));
        }
        let tables = self.tables(start + t)?;
        let (pairs, two) = match self.pairing {
            RopePairing::Half => (x.reshape((b, t, h, 2, half))?, 3),
            RopePairing::Interleaved => (x.reshape((b, t, h, half, 2))?, 4),
        };
        // [positions, 1 (heads), ...]
        let cos = tables.cos.narrow(0, start, t)?.unsqueeze(1)?;
        let sin = tables.sin.narrow(0, start, t)?.unsqueeze(1)?;
        pairs.broadcast_mul(&cos)? + pairs.flip(two)?.broadcast_mul(&sin)?
    }
}
