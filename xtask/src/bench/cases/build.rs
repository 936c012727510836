//! Words that the table is written in.

use tallow_bench_protocol::{Case, Element, Fill, Input, Op, Unit};

use super::Entry;

/// An operand with values in [-1, 1).
pub fn uniform(name: &str, dims: &[usize]) -> Input {
    Input { name: name.into(), dims: dims.to_vec(), fill: Fill::Uniform { scale: 1. } }
}

/// A case in f32 whose operands are read once and whose result of `result` elements is written once.
pub fn case(group: &str, name: impl Into<String>, op: Op, inputs: Vec<Input>, result: usize) -> Entry {
    let elements = inputs.iter().map(Input::elements).sum::<usize>() + result;
    let case = Case {
        group: group.into(),
        name: name.into(),
        op,
        dtype: Element::F32,
        inputs,
        flops: 0.,
        bytes: 4. * elements as f64,
        tolerance: 1e-4,
        unit: Unit::Time,
    };
    Entry { case, targets: Vec::new() }
}

impl Entry {
    /// With so many floating-point operations.
    pub fn flops(mut self, flops: f64) -> Self {
        self.case.flops = flops;
        self
    }

    /// With floats of another type, and bytes and tolerance to match.
    pub fn dtype(mut self, dtype: Element) -> Self {
        self.case.bytes *= dtype.bytes() / self.case.dtype.bytes();
        self.case.dtype = dtype;
        // A few units in the last place of a result that is rounded once; partial sums in the same type add some.
        self.case.tolerance = match dtype {
            Element::F16 => 1e-2,
            Element::Bf16 => 5e-2,
            _ => self.case.tolerance,
        };
        self
    }

    /// With another tolerance.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        self.case.tolerance = tolerance;
        self
    }

    /// With targets: (peer, Tallow's speed over the peer's).
    pub fn targets(mut self, targets: &[(&'static str, f64)]) -> Self {
        self.targets = targets.to_vec();
        self
    }
}
