//! The checker of gradients: a table of rows {name, function, shapes, range}, judged by finite differences.

use std::{cmp::Ordering, ops::Range};
use tallow::{DType, Device, Error, Result, Shape, Tensor, Var, grad};

/// The inputs of a row, after its layout.
pub type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor>>;

/// How an input lies in its variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Plain,
    /// The last two axes are stored in the other order.
    Transposed,
    /// The last axis is stored backwards.
    Flipped,
    /// A part of a larger value, every axis cut on both sides.
    Narrowed,
    /// One row for all positions of the first axis.
    Broadcast,
}

const LAYOUTS: [Layout; 5] = [Layout::Plain, Layout::Transposed, Layout::Flipped, Layout::Narrowed, Layout::Broadcast];

impl Layout {
    /// The shape of the variable for an input of `shape`.
    fn stored(self, shape: &[usize]) -> Vec<usize> {
        let mut stored = shape.to_vec();
        match self {
            Layout::Transposed if shape.len() >= 2 => stored.swap(shape.len() - 2, shape.len() - 1),
            Layout::Narrowed => stored.iter_mut().for_each(|d| *d += 2),
            Layout::Broadcast if !shape.is_empty() => stored[0] = 1,
            _ => {}
        }
        stored
    }

    /// The input for the variable's value.
    fn view(self, stored: &Tensor, shape: &[usize]) -> Result<Tensor> {
        match self {
            Layout::Transposed if shape.len() >= 2 => stored.t(),
            Layout::Flipped if !shape.is_empty() => stored.flip(shape.len() - 1),
            Layout::Narrowed => {
                let mut view = stored.clone();
                for (axis, &len) in shape.iter().enumerate() {
                    view = view.narrow(axis, 1, len)?;
                }
                Ok(view)
            }
            Layout::Broadcast => stored.broadcast_as(shape),
            _ => Ok(stored.clone()),
        }
    }
}

/// One function to check.
pub struct Row {
    name: &'static str,
    shapes: Vec<Vec<usize>>,
    range: Range<f64>,
    function: Function,
    second: bool,
    gpu: Option<f64>,
}

impl Row {
    /// A function of inputs of these shapes, whose elements are drawn from `range`. It must be differentiable there.
    pub fn new(
        name: &'static str,
        shapes: &[&[usize]],
        range: Range<f64>,
        function: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) -> Self {
        let shapes = shapes.iter().map(|s| s.to_vec()).collect();
        Self { name, shapes, range, function: Box::new(function), second: true, gpu: Some(2e-4) }
    }

    /// The second derivative is not checked: it is 0 or does not exist.
    pub fn first_only(mut self) -> Self {
        self.second = false;
        self
    }

    /// The error that is allowed on the GPU, relative to the largest element of the gradient.
    pub fn gpu_tolerance(mut self, tolerance: f64) -> Self {
        self.gpu = Some(tolerance);
        self
    }

    /// Not run on the GPU.
    #[allow(dead_code, reason = "for operations that need a dtype the GPU lacks")]
    pub fn cpu_only(mut self) -> Self {
        self.gpu = None;
        self
    }
}

/// Numbers between 0 and 1 that are far from one another and the same each time (the golden ratio's multiples, shuffled).
pub fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (state >> 33) as usize % (i + 1));
    }
    order.into_iter().map(|i| (i as f64 + 0.37) / count as f64).collect()
}

fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// A row with its inputs' values.
struct Case<'a> {
    row: &'a Row,
    layout: Layout,
    stored: Vec<(Vec<usize>, Vec<f64>)>,
}

impl Case<'_> {
    fn variables(&self, device: &Device, dtype: DType) -> Result<Vec<Var>> {
        let make = |(shape, values): &(Vec<usize>, Vec<f64>)| {
            let cpu = Tensor::from_slice(values, shape.as_slice(), &Device::Cpu)?.to_dtype(dtype)?;
            Var::from_tensor(&cpu.to_device(device)?)
        };
        self.stored.iter().map(make).collect()
    }

    /// The sum of the results, each with a weight of its own.
    fn value(&self, vars: &[Var]) -> Result<Tensor> {
        let inputs: Vec<Tensor> = vars
            .iter()
            .zip(&self.row.shapes)
            .map(|(var, shape)| self.layout.view(var, shape))
            .collect::<Result<_>>()?;
        let result = (self.row.function)(&inputs)?;
        weighted(&result, 77)
    }

    /// The weighted sum of the first derivatives.
    fn slope(&self, vars: &[Var]) -> Result<Tensor> {
        let of = self.value(vars)?.backward_with_graph()?;
        let mut total: Option<Tensor> = None;
        for (i, var) in vars.iter().enumerate() {
            if let Some(grad) = of.get(var) {
                let part = weighted(grad, 1000 + i as u64)?;
                total = Some(match total {
                    None => part,
                    Some(total) => (total + part)?,
                });
            }
        }
        Ok(total.expect("a gradient"))
    }

    /// The derivative of `f` with respect to each variable, by central differences.
    fn differences(&self, step: f64, f: impl Fn(&[Var]) -> Result<Tensor>) -> Result<Vec<Vec<f64>>> {
        let vars = self.variables(&Device::Cpu, DType::F64)?;
        let mut all = Vec::new();
        for (i, (shape, values)) in self.stored.iter().enumerate() {
            let mut of_input = Vec::new();
            for at in 0..values.len() {
                let evaluate = |step: f64| -> Result<f64> {
                    let mut moved = values.clone();
                    moved[at] += step;
                    vars[i].set(&Tensor::from_slice(&moved, shape.as_slice(), &Device::Cpu)?)?;
                    f(&vars)?.to_scalar::<f64>()
                };
                of_input.push((evaluate(step)? - evaluate(-step)?) / (2.0 * step));
            }
            vars[i].set(&Tensor::from_slice(values, shape.as_slice(), &Device::Cpu)?)?;
            all.push(of_input);
        }
        Ok(all)
    }

    fn gradients(&self, vars: &[Var], of: &Tensor) -> Result<Vec<Vec<f64>>> {
        let grads = of.backward()?;
        vars.iter()
            .map(|var| match grads.get(var) {
                None => Ok(vec![0.0; var.elem_count()]),
                Some(grad) => {
                    assert_eq!((grad.shape(), grad.dtype()), (var.shape(), var.dtype()));
                    assert!(!grad.is_tracked(), "a gradient is tracked");
                    values(grad)
                }
            })
            .collect()
    }

    fn compare(&self, what: &str, got: &[Vec<f64>], want: &[Vec<f64>], tolerance: f64) -> Result<()> {
        let scale = want.iter().flatten().fold(1e-2f64, |top, v| top.max(v.abs()));
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_eq!(got.len(), want.len());
            let far = |(g, w): (&f64, &f64)| (g - w).abs().partial_cmp(&(tolerance * scale)) != Some(Ordering::Less);
            if got.iter().zip(want).any(far) {
                return Err(Error::msg(format!("{what} of input {i} is\n{got:?}, not\n{want:?}")));
            }
        }
        Ok(())
    }
}

fn weighted(tensor: &Tensor, seed: u64) -> Result<Tensor> {
    let weights: Vec<f64> = numbers(seed, tensor.elem_count()).iter().map(|v| v - 0.4).collect();
    let weights = Tensor::from_slice(&weights, tensor.shape(), &Device::Cpu)?.to_dtype(tensor.dtype())?;
    (tensor * weights.to_device(tensor.device())?)?.sum_all()
}

/// The GPU, if this machine has one (a software one will do). Said once, where there is none.
pub fn gpu() -> Option<&'static Device> {
    static GPU: std::sync::OnceLock<Option<Device>> = std::sync::OnceLock::new();
    GPU.get_or_init(|| match tallow::block_on(Device::by_name("wgpu")) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped: wgpu: {error}");
            None
        }
    })
    .as_ref()
}

/// Checks all rows in all layouts: the first derivative against finite differences of the function, the second against finite
/// differences of the first, and the GPU's first derivative against the CPU's.
pub fn check(rows: &[Row]) {
    let mut wrong = Vec::new();
    for row in rows {
        for layout in LAYOUTS {
            if let Err(error) = check_one(row, layout) {
                wrong.push(format!("{} ({layout:?}): {error}", row.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check_one(row: &Row, layout: Layout) -> Result<()> {
    let stored = |(i, shape): (usize, &Vec<usize>)| {
        let shape = layout.stored(shape);
        let count = Shape::new(&shape).elem_count();
        let span = row.range.end - row.range.start;
        let values = numbers(row.name.len() as u64 + 31 * i as u64, count);
        // No element of one input equals one of another: maximum has no derivative there.
        let values = values.into_iter().map(|v| row.range.start + (v - 0.07 * i as f64 / count as f64) * span);
        (shape, values.collect())
    };
    let case = Case { row, layout, stored: row.shapes.iter().enumerate().map(stored).collect() };
    let vars = case.variables(&Device::Cpu, DType::F64)?;
    let first = case.gradients(&vars, &case.value(&vars)?)?;
    case.compare("the gradient", &first, &case.differences(1e-5, |vars| case.value(vars))?, 1e-6)?;
    if row.second {
        let got = case.gradients(&vars, &case.slope(&vars)?)?;
        case.compare("the second derivative", &got, &case.differences(1e-5, |vars| case.slope(vars))?, 1e-5)?;
    }
    // The layouts are the tape's business, not the device's.
    if let (Some(tolerance), Some(gpu), Layout::Plain | Layout::Transposed) = (row.gpu, gpu(), layout) {
        let vars = case.variables(gpu, DType::F32)?;
        let got = case.gradients(&vars, &case.value(&vars)?)?;
        case.compare("the GPU's gradient", &got, &first, tolerance)?;
    }
    Ok(())
}

/// The gradient of the sum of `f` at a variable, as numbers.
pub fn gradient_at(x: &Var, f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let y = f(x)?;
    values(&grad(&[&y], &[x], false)?[0])
}
