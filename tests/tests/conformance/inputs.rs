//! Inputs: seeded values under many layouts.

use crate::table::{Row, Shapes};
use tallow::{DType, Device, Tensor, generation::Philox};

/// How an input lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layouts {
    /// As made.
    Plain,
    /// The last two axes were swapped.
    Transposed,
    /// A part of something larger, with a gap after each row.
    Sliced,
    /// The last axis read backwards.
    Flipped,
    /// The first axis repeats one row.
    Repeated,
}

impl Layouts {
    pub const ALL: [Layouts; 5] =
        [Layouts::Plain, Layouts::Transposed, Layouts::Sliced, Layouts::Flipped, Layouts::Repeated];
}

/// An input: values, and how they are laid out.
#[derive(Clone)]
pub struct Input {
    values: Vec<f64>,
    dims: Vec<usize>,
    dtype: DType,
    layout: Layouts,
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} {:?}", self.dims, self.dtype, self.layout)
    }
}

impl Input {
    fn new(random: &mut Philox, dims: &[usize], dtype: DType, layout: Layouts, row: &Row) -> Self {
        let count = dims.iter().product::<usize>();
        let (low, high) = row.range;
        let values = (0..count)
            .map(|_| {
                let v = low + (high - low) * random.next_f64();
                if dtype.is_int() { v.floor().max(if is_signed(dtype) { f64::MIN } else { 0.0 }) } else { v }
            })
            .collect();
        Self { values, dims: dims.to_vec(), dtype, layout }
    }

    /// The tensor on a device, with the layout made of views there.
    pub fn on(&self, device: &Device) -> tallow::Result<Tensor> {
        let rank = self.dims.len();
        let make = |values: Vec<f64>, dims: &[usize]| -> tallow::Result<Tensor> {
            let wide = Tensor::from_slice(&values, dims, &Device::Cpu)?.to_dtype(self.dtype)?;
            let bytes = tallow::block_on(wide.to_bytes_async())?;
            Tensor::from_bytes(&bytes, self.dtype, dims, device)
        };
        let values = || self.values.clone();
        match self.layout {
            Layouts::Transposed if rank >= 2 => {
                let mut dims = self.dims.clone();
                dims.swap(rank - 1, rank - 2);
                make(values(), &dims)?.t()
            }
            Layouts::Sliced if rank >= 1 => {
                let last = self.dims[rank - 1];
                let rows = self.values.len().checked_div(last).unwrap_or(0);
                let mut padded = Vec::new();
                for r in 0..rows {
                    padded.push(777.0_f64.min(if self.dtype == DType::I8 { 77.0 } else { 777.0 }));
                    padded.extend_from_slice(&self.values[r * last..(r + 1) * last]);
                    padded.extend([77.0, 77.0]);
                }
                let mut dims = self.dims.clone();
                dims[rank - 1] += 3;
                if rows == 0 {
                    padded = vec![0.0; dims.iter().product()];
                }
                make(padded, &dims)?.narrow(rank - 1, 1, last)
            }
            Layouts::Flipped if rank >= 1 => make(values(), &self.dims)?.flip(rank - 1),
            Layouts::Repeated if rank >= 1 && self.dims[0] > 0 => {
                let row = self.values.len() / self.dims[0];
                let mut dims = self.dims.clone();
                dims[0] = 1;
                make(self.values[..row].to_vec(), &dims)?.broadcast_as(self.dims.as_slice())
            }
            _ => make(values(), &self.dims),
        }
    }
}

fn is_signed(dtype: DType) -> bool {
    !matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

/// One call of an operation.
#[derive(Debug)]
pub struct Case {
    pub inputs: Vec<Input>,
}

impl Case {
    /// Whether an input has no elements.
    pub fn is_empty(&self) -> bool {
        self.inputs.iter().any(|input| input.values.is_empty())
    }

    /// The layouts that it tries.
    pub fn layouts(&self) -> Vec<Layouts> {
        self.inputs.iter().map(|i| i.layout).collect()
    }
}

/// The shapes of all inputs of one call.
type Call = Vec<Vec<usize>>;

fn shapes(row: &Row, full: bool) -> Vec<Call> {
    let of = |list: &[&[&[usize]]]| list.iter().map(|call| call.iter().map(|s| s.to_vec()).collect()).collect();
    let mut calls: Vec<Call> = match row.shapes {
        Shapes::One => {
            of(&[&[&[7]], &[&[3, 5]], &[&[2, 3, 4]], &[&[1]], &[&[]], &[&[0, 3]], &[&[4, 64]], &[&[2, 1, 3, 2, 5]]])
        }
        Shapes::Two => of(&[
            &[&[7], &[7]],
            &[&[3, 5], &[3, 5]],
            &[&[3, 5], &[5]],
            &[&[3, 1, 4], &[2, 1]],
            &[&[], &[2, 3]],
            &[&[0, 3], &[3]],
            &[&[4, 64], &[4, 1]],
        ]),
        Shapes::Rows => of(&[&[&[5]], &[&[3, 33]], &[&[2, 3, 64]], &[&[1, 1]], &[&[4, 257]], &[&[0, 8]]]),
        Shapes::Matrices => of(&[
            &[&[3, 5], &[5, 7]],
            &[&[1, 64], &[64, 33]],
            &[&[17, 36], &[36, 19]],
            &[&[2, 4, 8], &[2, 8, 4]],
            &[&[3, 1, 6], &[1, 6, 5]],
            &[&[2, 3], &[3, 0]],
            &[&[4, 0], &[0, 2]],
        ]),
        Shapes::Fixed(list) => of(list),
    };
    if full {
        match row.shapes {
            // More than 65,535 workgroups of 64.
            Shapes::One => calls.push(vec![vec![65_537, 67]]),
            Shapes::Two => calls.push(vec![vec![1031, 1, 67], vec![67, 1]]),
            Shapes::Rows => calls.push(vec![vec![2, 70_001]]),
            Shapes::Matrices => calls.push(vec![vec![129, 257], vec![257, 131]]),
            Shapes::Fixed(_) => {}
        }
    }
    calls
}

/// The calls of a row: each shape with plain inputs, and each with every other layout of one input.
pub fn cases(row: &Row, dtype: DType, full: bool) -> Vec<Case> {
    // One stream a row and dtype, so that adding rows changes no other's values.
    let seed = row.name.bytes().fold(u64::from(dtype as u8) + 1, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let mut random = Philox::new(seed);
    let mut all = Vec::new();
    for (at, call) in shapes(row, full).into_iter().enumerate() {
        for (l, layout) in Layouts::ALL.into_iter().enumerate() {
            // The sample takes the plain layout of every shape and one other.
            if !full && l != 0 && l != 1 + at % 4 {
                continue;
            }
            for moved in 0..call.len().min(if l == 0 { 1 } else { 2 }) {
                let inputs = call
                    .iter()
                    .enumerate()
                    .map(|(i, dims)| {
                        let layout = if i == moved { layout } else { Layouts::Plain };
                        let dtype = row.input_dtypes.get(i).copied().flatten().unwrap_or(dtype);
                        Input::new(&mut random, dims, dtype, layout, row)
                    })
                    .collect();
                all.push(Case { inputs });
            }
        }
    }
    all
}
