//! Devices, random inputs under random views, and the naive loops.

use std::sync::Arc;
use tallow::{DType, Device, Options, Tensor, generation::Philox};
use tallow_graph::reference::Reference;

/// The devices of this machine: the CPU, the reference with its kernel and by decomposition, and WebGPU if it is there.
pub fn devices() -> Vec<(&'static str, Device)> {
    let decompose = Options { decompose: true, ..Options::default() };
    let mut all = vec![
        ("cpu", Device::Cpu),
        ("reference", Device::from_backend(Arc::new(Reference::default()))),
        ("decomposed", Device::with_options(Arc::new(Reference::default()), decompose)),
    ];
    match tallow::block_on(Device::by_name("wgpu")) {
        Ok(device) => all.push(("wgpu", device)),
        Err(error) => eprintln!("skipped: wgpu: {error}"),
    }
    all
}

/// A stream of numbers.
pub struct Random(Philox);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Philox::new(seed))
    }
    /// `from` to `to`, both included.
    pub fn pick(&mut self, from: usize, to: usize) -> usize {
        from + (self.0.next_f64() * (to - from + 1) as f64) as usize
    }
    /// Numbers that f16 holds exactly.
    pub fn values(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| (self.0.next_f64() * 64.0).floor() / 16.0 - 2.0).collect()
    }
}

/// Values with a shape.
#[derive(Clone, Debug)]
pub struct Plain {
    pub values: Vec<f64>,
    pub dims: Vec<usize>,
}

impl Plain {
    pub fn random(random: &mut Random, dims: &[usize]) -> Self {
        Self { values: random.values(dims.iter().product()), dims: dims.to_vec() }
    }

    pub fn zeros(dims: &[usize]) -> Self {
        Self { values: vec![0.0; dims.iter().product()], dims: dims.to_vec() }
    }

    /// The place of an index.
    pub fn at(&self, index: &[usize]) -> usize {
        index.iter().zip(&self.dims).fold(0, |at, (i, d)| at * d + i)
    }

    /// As a tensor; `view` 0: plain, 1: the first and last axes swapped in memory, 2: the last axis backwards in memory.
    pub fn on(&self, device: &Device, dtype: DType, view: usize) -> Tensor {
        let x = Tensor::from_vec(self.values.clone(), self.dims.as_slice(), &Device::Cpu).unwrap();
        let last = self.dims.len() - 1;
        let x = match view {
            1 => x.transpose(0, last).unwrap().force_contiguous().unwrap(),
            2 => x.flip(last).unwrap().force_contiguous().unwrap(),
            _ => x,
        };
        let x = x.to_dtype(dtype).unwrap().to_device(device).unwrap();
        match view {
            1 => x.transpose(0, last).unwrap(),
            2 => x.flip(last).unwrap(),
            _ => x,
        }
    }
}

/// Every index of a shape, in order.
pub fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &dim in dims {
        all = all.into_iter().flat_map(|i: Vec<usize>| (0..dim).map(move |k| [&i[..], &[k]].concat())).collect();
    }
    all
}

pub fn read(tensor: &Tensor) -> Vec<f64> {
    tensor.realize().unwrap();
    let here = tensor.to_device(&Device::Cpu).unwrap().to_dtype(DType::F64).unwrap();
    here.flatten_all().unwrap().to_vec1::<f64>().unwrap()
}

/// The largest difference is within `share` of the root mean square (and of 1).
pub fn assert_close(what: &str, got: &Tensor, want: &Plain, share: f64) {
    assert_eq!(got.dims(), want.dims, "{what}");
    let rms = (want.values.iter().map(|v| v * v).sum::<f64>() / want.values.len().max(1) as f64).sqrt().max(1.0);
    for (at, (g, w)) in read(got).into_iter().zip(&want.values).enumerate() {
        assert!((g - w).abs() <= share * rms, "{what}: element {at} is {g}, not {w}");
    }
}

/// The share of [`assert_close`] for sums in a dtype.
pub fn share(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-6,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}
