//! Random programs of tensor operations with writes in between: every device, fused and not, must give the numbers of the
//! reference device. A program is made from a seed, the same on every device. `TALLOW_TEST_FULL=1` runs more of them.

use tallow::{Device, Options, Result, Tensor, generation::Philox};
use tallow_tests::device;

/// How far a value may be from the reference's, relative to the largest value of its tensor (at least 1). Values stay small,
/// but sums and products of 40 steps add up.
const TOLERANCE: f32 = 2e-4;

struct Program<'a> {
    device: &'a Device,
    random: Philox,
    /// All have at most 3 axes of at most 7.
    pool: Vec<Tensor>,
}

impl Program<'_> {
    fn below(&mut self, n: usize) -> usize {
        ((self.random.next_f64() * n as f64) as usize).min(n - 1)
    }

    fn leaf(&mut self, dims: &[usize]) -> Result<Tensor> {
        let values: Vec<f32> =
            (0..dims.iter().product::<usize>()).map(|_| (self.random.next_f64() * 2.0 - 1.0) as f32).collect();
        Tensor::from_vec(values, dims, self.device)
    }

    fn ids(&mut self, count: usize, below: usize) -> Result<Tensor> {
        let ids: Vec<u32> = (0..count).map(|_| self.below(below) as u32).collect();
        Tensor::from_vec(ids, count, self.device)
    }

    fn pick(&mut self) -> Tensor {
        let at = self.below(self.pool.len());
        self.pool[at].clone()
    }

    fn axis(&mut self, x: &Tensor) -> usize {
        self.below(x.rank())
    }

    /// One more value, from one or two of the pool.
    fn grow(&mut self) -> Result<Tensor> {
        let x = self.pick();
        let axis = self.axis(&x);
        let size = x.dims()[axis];
        match self.below(22) {
            0 => x.sin(),
            1 => x.gelu(),
            2 => x.sigmoid(),
            3 => x.affine(0.5, -0.25),
            4 => x.softmax_last_dim(),
            5 => x.rms_norm(0.1),
            6 => x.layer_norm(0.1),
            7 => x.sum_keepdim(axis)?.tanh(),
            8 => x.broadcast_sub(&x.mean_keepdim(axis)?),
            9 => x.max_keepdim(axis),
            10 => x.t(),
            11 => x.flip(axis),
            12 => {
                let start = self.below(size);
                let len = 1 + self.below(size - start);
                x.narrow(axis, start, len)
            }
            13 => {
                // The other operand has the last axis' size, and broadcasts.
                let other = self.leaf(&[x.dims()[x.rank() - 1]])?;
                x.broadcast_mul(&other)
            }
            14 => {
                let y = self.pick();
                match x.shape().broadcast(y.shape()) {
                    Some(_) => x.broadcast_add(&y)?.affine(0.5, 0.0),
                    None => x.sqr(),
                }
            }
            15 | 16 => {
                let (inner, n) = (x.dims()[x.rank() - 1], 1 + self.below(7));
                let right = self.leaf(&[inner, n])?;
                x.broadcast_matmul(&right)?.tanh()
            }
            17 => {
                let count = 1 + self.below(7);
                let ids = self.ids(count, size)?;
                x.index_select(&ids, axis)
            }
            18 => {
                let count = 1 + self.below(7);
                let ids = self.ids(count, size)?;
                let mut dims = x.dims().to_vec();
                dims[axis] = count;
                let source = self.leaf(&dims)?;
                x.index_add(&ids, &source, axis)?.tanh()
            }
            19 => x.cumsum(axis)?.tanh(),
            20 => {
                let other = x.affine(-1.0, 0.5)?;
                Tensor::cat(&[&x, &other], axis)?.narrow(axis, size / 2, size)
            }
            _ => {
                let zeros = x.zeros_like()?;
                x.gt(&zeros)?.where_cond(&x, &x.affine(0.1, 0.0)?)
            }
        }
    }

    /// Writes into a part of a value: later readers see it, what was built before does not.
    fn write(&mut self) -> Result<()> {
        let at = self.below(self.pool.len());
        // Of its own memory, so that views in the pool do not overlap in ways that a write refuses.
        let x = self.pool[at].copy()?;
        let axis = self.axis(&x);
        let size = x.dims()[axis];
        let start = self.below(size);
        let len = 1 + self.below(size - start);
        let before = x.affine(1.0, 0.0)?;
        let mut dims = x.dims().to_vec();
        dims[axis] = len;
        let source = self.leaf(&dims)?;
        x.slice_set(&source, axis, start)?;
        self.pool[at] = x;
        self.pool.push(before);
        Ok(())
    }
}

/// All values of the pool after the last step, and of some steps in between.
fn run(seed: u64, device: &Device) -> Result<Vec<Vec<f32>>> {
    let mut program = Program { device, random: Philox::new(seed), pool: Vec::new() };
    for _ in 0..3 {
        let rank = 2 + program.below(2);
        let dims: Vec<usize> = (0..rank).map(|_| 1 + program.below(7)).collect();
        let leaf = program.leaf(&dims)?;
        program.pool.push(leaf);
    }
    let mut values = Vec::new();
    for _ in 0..5 + program.below(36) {
        let made = program.grow()?;
        program.pool.push(made);
        if program.below(5) == 0 {
            program.write()?;
        }
        if program.below(8) == 0 {
            values.push(program.pick().flatten_all()?.to_vec1::<f32>()?);
        }
        if program.pool.len() > 7 {
            let at = program.below(program.pool.len());
            program.pool.remove(at);
        }
    }
    for x in &program.pool {
        values.push(x.flatten_all()?.to_vec1::<f32>()?);
    }
    Ok(values)
}

fn compare(name: &str, programs: u64) {
    let Some(candidate) = device(name) else { return };
    let oracle = device("reference").expect("the reference is always there").device;
    let backend = candidate.device.engine().backend();
    let unfused = Device::with_options(backend.clone(), Options { fuse: false, ..Options::default() });
    for seed in 0..programs {
        let want = run(seed, &oracle).unwrap_or_else(|error| panic!("program {seed} on the reference: {error}"));
        for (device, kind) in [(&candidate.device, "fused"), (&unfused, "unfused")] {
            let got = run(seed, device).unwrap_or_else(|error| panic!("program {seed} on {name}, {kind}: {error}"));
            assert_eq!(got.len(), want.len());
            for (v, (got, want)) in got.iter().zip(&want).enumerate() {
                let scale = want.iter().fold(1f32, |scale, w| scale.max(w.abs()));
                for (i, (g, w)) in got.iter().zip(want).enumerate() {
                    let fine = (g - w).abs() <= TOLERANCE * scale;
                    assert!(fine, "program {seed} on {name}, {kind}: value {v}, element {i} is {g}, not {w}");
                }
            }
        }
    }
}

fn programs(sample: u64) -> u64 {
    if std::env::var("TALLOW_TEST_FULL").is_ok_and(|v| v == "1") { sample * 10 } else { sample }
}

#[test]
fn cpu_runs_random_programs_as_the_reference_does() {
    compare("cpu", programs(2000));
}

#[test]
fn wgpu_runs_random_programs_as_the_reference_does() {
    compare("wgpu", programs(100));
}

/// The programs reach what they are meant to reach.
#[test]
fn the_programs_differ() {
    let mut lengths: Vec<usize> = (0..20).map(|seed| run(seed, &Device::Cpu).expect("it runs").len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    assert!(lengths.len() > 5, "{lengths:?}");
}
