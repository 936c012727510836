//! Printing in PyTorch's style: aligned columns, four digits, scientific notation where sizes differ widely, and only the edges
//! of large tensors.

use super::Tensor;
use crate::DType;
use std::{
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
};

/// How tensors are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrintOptions {
    /// Digits after the point.
    pub precision: usize,
    /// Elements above which only edges are printed.
    pub threshold: usize,
    /// Elements at each edge.
    pub edge_items: usize,
    /// Columns of a line.
    pub line_width: usize,
}

static PRECISION: AtomicUsize = AtomicUsize::new(4);
static THRESHOLD: AtomicUsize = AtomicUsize::new(1000);
static EDGE_ITEMS: AtomicUsize = AtomicUsize::new(3);
static LINE_WIDTH: AtomicUsize = AtomicUsize::new(80);

/// Sets how tensors are printed in this program.
pub fn set_print_options(options: PrintOptions) {
    PRECISION.store(options.precision, Ordering::Relaxed);
    THRESHOLD.store(options.threshold, Ordering::Relaxed);
    EDGE_ITEMS.store(options.edge_items.max(1), Ordering::Relaxed);
    LINE_WIDTH.store(options.line_width, Ordering::Relaxed);
}

/// An element, exactly.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    /// Of a floating-point dtype.
    Float(f64),
    /// Of an integer dtype.
    Int(i128),
}

impl Number {
    fn to_f64(self) -> f64 {
        match self {
            Number::Float(v) => v,
            Number::Int(v) => v as f64,
        }
    }
}

/// How the numbers of one tensor are written.
struct Style {
    whole: bool,
    scientific: bool,
    precision: usize,
    width: usize,
}

impl Style {
    /// The rules of PyTorch's formatter: floats that are whole get a point only; scientific where the largest magnitude is
    /// above 1e8, the ratio to the smallest above 1000, or (where not all are whole) the smallest below 1e-4.
    fn of(values: &[Number], integer: bool) -> Self {
        let precision = PRECISION.load(Ordering::Relaxed);
        let finite = || values.iter().map(|v| v.to_f64()).filter(|v| v.is_finite());
        let nonzero = || finite().filter(|v| *v != 0.0).map(f64::abs);
        let (low, high) = (nonzero().fold(f64::INFINITY, f64::min), nonzero().fold(0.0, f64::max));
        let whole = finite().all(|v| v.fract() == 0.0);
        let wide = high > 1e8 || high / low > 1e3 || (!whole && low < 1e-4);
        let scientific = !integer && high > 0.0 && wide;
        let mut style = Self { whole, scientific, precision, width: 0 };
        style.width = values.iter().map(|&v| style.write(v).chars().count()).max().unwrap_or(0);
        style
    }

    fn write(&self, number: Number) -> String {
        let v = match number {
            Number::Int(v) => return v.to_string(),
            Number::Float(v) => v,
        };
        if v.is_nan() {
            "nan".into()
        } else if v.is_infinite() {
            if v > 0.0 { "inf".into() } else { "-inf".into() }
        } else if self.scientific {
            // PyTorch writes two digits of exponent, with a sign.
            let text = format!("{v:.*e}", self.precision);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        } else if self.whole {
            format!("{v:.0}.")
        } else {
            format!("{v:.*}", self.precision)
        }
    }
}

/// Positions of an axis that are printed; `None` stands for what is left out.
fn shown(size: usize, summarise: bool) -> Vec<Option<usize>> {
    let edge = EDGE_ITEMS.load(Ordering::Relaxed);
    if !summarise || size <= 2 * edge {
        return (0..size).map(Some).collect();
    }
    (0..edge).map(Some).chain([None]).chain((size - edge..size).map(Some)).collect()
}

struct Printer<'a> {
    dims: &'a [usize],
    values: &'a [Number],
    style: Style,
    summarise: bool,
}

impl Printer<'_> {
    fn print(&self, f: &mut fmt::Formatter<'_>, axis: usize, start: usize) -> fmt::Result {
        let Some(&size) = self.dims.get(axis) else {
            return f.write_str(&self.style.write(self.values[start]));
        };
        let step: usize = self.dims[axis + 1..].iter().product();
        let last = axis + 1 == self.dims.len();
        f.write_str("[")?;
        let per_line = (LINE_WIDTH.load(Ordering::Relaxed).saturating_sub(axis + 1) / (self.style.width + 2)).max(1);
        for (i, at) in shown(size, self.summarise).into_iter().enumerate() {
            if i > 0 && last {
                f.write_str(if i % per_line == 0 { ",\n" } else { ", " })?;
                if i % per_line == 0 {
                    f.write_str(&" ".repeat(axis + 1))?;
                }
            } else if i > 0 {
                f.write_str(",")?;
                f.write_str(&"\n".repeat(self.dims.len() - axis - 1))?;
                f.write_str(&" ".repeat(axis + 1))?;
            }
            match at {
                None => f.write_str("...")?,
                Some(at) if last => {
                    write!(f, "{:>w$}", self.style.write(self.values[start + at]), w = self.style.width)?
                }
                Some(at) => self.print(f, axis + 1, start + at * step)?,
            }
        }
        f.write_str("]")
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = self.dtype();
        let footer = format!("Tensor[{:?}, {dtype}, {}]", self.dims(), self.device().location());
        match self.to_numbers() {
            Err(error) => write!(f, "{footer}: {error}"),
            Ok(values) => {
                let summarise = values.len() > THRESHOLD.load(Ordering::Relaxed);
                let mut visible = Vec::new();
                visit(self.dims(), 0, 0, summarise, &mut |at| visible.push(values[at]));
                let style = Style::of(&visible, dtype.is_int());
                Printer { dims: self.dims(), values: &values, style, summarise }.print(f, 0, 0)?;
                write!(f, "\n{footer}")
            }
        }
    }
}

/// Calls `each` for every element that is printed.
fn visit(dims: &[usize], axis: usize, start: usize, summarise: bool, each: &mut dyn FnMut(usize)) {
    let Some(&size) = dims.get(axis) else { return each(start) };
    let step: usize = dims[axis + 1..].iter().product();
    for at in shown(size, summarise).into_iter().flatten() {
        visit(dims, axis + 1, start + at * step, summarise, each);
    }
}

impl fmt::Debug for Tensor {
    /// Shape, dtype and device only: debug output must not compute a model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype: DType = self.dtype();
        write!(f, "Tensor[{:?}, {dtype}, {}]", self.dims(), self.device().location())
    }
}
