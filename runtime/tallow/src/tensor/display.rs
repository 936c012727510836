//! Printing in PyTorch's style: aligned columns, four digits, scientific notation where sizes differ widely, and only the edges
//! of large tensors. The rules are those of PyTorch's `torch/_tensor_str.py`.

use super::Tensor;
use crate::{DType, Result};
use parking_lot::RwLock;
use std::fmt;

/// How tensors are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrintOptions {
    /// Digits after the point.
    pub precision: usize,
    /// Elements above which only edges are printed.
    pub threshold: usize,
    /// Elements at each edge of an axis.
    pub edge_items: usize,
    /// Columns of a line.
    pub line_width: usize,
    /// Whether floats are printed in scientific notation; `None`: where their sizes ask for it.
    pub sci_mode: Option<bool>,
}

/// candle's name of [`PrintOptions`].
pub type PrinterOptions = PrintOptions;

impl PrintOptions {
    /// Four digits, edges above 1000 elements, lines of 80 columns.
    pub const DEFAULT: Self = Self { precision: 4, threshold: 1000, edge_items: 3, line_width: 80, sci_mode: None };

    /// Two digits, two elements at each edge.
    pub const SHORT: Self = Self { precision: 2, edge_items: 2, ..Self::DEFAULT };

    /// All elements of any tensor.
    pub const FULL: Self = Self { threshold: usize::MAX, ..Self::DEFAULT };
}

impl Default for PrintOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

static OPTIONS: RwLock<PrintOptions> = RwLock::new(PrintOptions::DEFAULT);

/// How tensors are printed in this program.
pub fn print_options() -> PrintOptions {
    *OPTIONS.read()
}

/// Sets how tensors are printed in this program.
pub fn set_print_options(options: PrintOptions) {
    *OPTIONS.write() = options;
}

/// Back to [`PrintOptions::DEFAULT`].
pub fn set_print_options_default() {
    set_print_options(PrintOptions::DEFAULT);
}

/// [`PrintOptions::SHORT`] from now on.
pub fn set_print_options_short() {
    set_print_options(PrintOptions::SHORT);
}

/// [`PrintOptions::FULL`] from now on.
pub fn set_print_options_full() {
    set_print_options(PrintOptions::FULL);
}

/// Digits after the point.
pub fn set_precision(precision: usize) {
    OPTIONS.write().precision = precision;
}

/// Elements above which only edges are printed.
pub fn set_threshold(threshold: usize) {
    OPTIONS.write().threshold = threshold;
}

/// Elements at each edge of an axis.
pub fn set_edge_items(edge_items: usize) {
    OPTIONS.write().edge_items = edge_items;
}

/// Columns of a line.
pub fn set_line_width(line_width: usize) {
    OPTIONS.write().line_width = line_width;
}

/// Whether floats are printed in scientific notation; `None`: where their sizes ask for it.
pub fn set_sci_mode(sci_mode: Option<bool>) {
    OPTIONS.write().sci_mode = sci_mode;
}

/// An element, exactly.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    /// Of a floating-point dtype.
    Float(f64),
    /// Of an integer dtype.
    Int(i128),
}

/// How the numbers of one tensor are written.
struct Style {
    /// All are whole: a point, and no digits after it.
    whole: bool,
    scientific: bool,
    precision: usize,
    width: usize,
}

impl Style {
    /// Floats are scientific where the largest magnitude is above 1e8, the ratio to the smallest above 1000, or the smallest
    /// below 1e-4. Zeros, infinities and NaN count for neither this nor the width.
    fn of(values: &[Number], options: &PrintOptions) -> Self {
        let counted = |v: &&Number| match v {
            Number::Int(_) => true,
            Number::Float(v) => v.is_finite() && *v != 0.0,
        };
        let floats = || {
            values.iter().filter(counted).filter_map(|v| if let Number::Float(v) = v { Some(v.abs()) } else { None })
        };
        let (low, high) = (floats().fold(f64::INFINITY, f64::min), floats().fold(0.0, f64::max));
        let uneven = high > 0.0 && (high / low > 1000.0 || high > 1e8 || low < 1e-4);
        let mut style = Self {
            whole: floats().all(|v| v.fract() == 0.0),
            scientific: high > 0.0 && options.sci_mode.unwrap_or(uneven),
            precision: options.precision,
            width: 1,
        };
        let widest = values.iter().filter(counted).map(|&v| style.write(v).len()).max();
        style.width = widest.unwrap_or(1);
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
            // Two digits of exponent, with a sign.
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

/// Elements to print, and where some are left out.
struct Printer<'a> {
    /// The sizes of what is printed.
    dims: &'a [usize],
    /// Axes of which the middle is left out: after `edge` elements.
    cut: &'a [bool],
    edge: usize,
    line_width: usize,
    values: &'a [Number],
    style: Style,
}

impl Printer<'_> {
    fn print(&self, f: &mut fmt::Formatter<'_>, axis: usize, start: usize) -> fmt::Result {
        let Some(&size) = self.dims.get(axis) else {
            return f.write_str(&self.style.write(self.values[start]));
        };
        let step: usize = self.dims[axis + 1..].iter().product();
        let last = axis + 1 == self.dims.len();
        let per_line = (self.line_width.saturating_sub(axis) / (self.style.width + 2)).max(1);
        // What is left out takes one place among the elements.
        let middle = self.cut[axis].then_some(self.edge);
        f.write_str("[")?;
        for place in 0..size + usize::from(self.cut[axis]) {
            if place > 0 {
                if !last {
                    write!(f, ",{}{}", "\n".repeat(self.dims.len() - axis - 1), " ".repeat(axis + 1))?;
                } else if place % per_line == 0 {
                    write!(f, ",\n{}", " ".repeat(axis + 1))?;
                } else {
                    f.write_str(", ")?;
                }
            }
            if Some(place) == middle {
                f.write_str(if last && self.edge > 0 { " ..." } else { "..." })?;
                continue;
            }
            let at = start + (place - usize::from(middle.is_some_and(|m| place > m))) * step;
            if last {
                write!(f, "{:>w$}", self.style.write(self.values[at]), w = self.style.width)?;
            } else {
                self.print(f, axis + 1, at)?;
            }
        }
        f.write_str("]")
    }
}

impl Tensor {
    /// This tensor without the middle of long axes, and which axes those are.
    fn edges(&self, edge: usize) -> Result<(Tensor, Vec<bool>)> {
        let cut: Vec<bool> = self.dims().iter().map(|&size| size > edge.saturating_mul(2)).collect();
        let mut part = self.clone();
        for (axis, &size) in self.dims().iter().enumerate().filter(|(axis, _)| cut[*axis]) {
            part = Tensor::cat(&[part.narrow(axis, 0, edge)?, part.narrow(axis, size - edge, edge)?], axis)?;
        }
        Ok((part, cut))
    }

    /// The text of the elements.
    fn print(&self, f: &mut fmt::Formatter<'_>) -> Result<fmt::Result> {
        let options = print_options();
        if self.elem_count() == 0 {
            return Ok(f.write_str("[]"));
        }
        let plain = if self.dtype().is_quantized() { self.dequantize()? } else { self.clone() };
        let (part, cut) = if plain.elem_count() > options.threshold {
            plain.edges(options.edge_items)?
        } else {
            (plain.clone(), vec![false; plain.rank()])
        };
        let values = part.to_numbers()?;
        let style = Style::of(&values, &options);
        let (edge, line_width) = (options.edge_items, options.line_width);
        Ok(Printer { dims: part.dims(), cut: &cut, edge, line_width, values: &values, style }.print(f, 0, 0))
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.print(f) {
            Err(error) => write!(f, "{self:?}: {error}"),
            Ok(done) => {
                done?;
                write!(f, "\n{self:?}")
            }
        }
    }
}

impl fmt::Debug for Tensor {
    /// Shape, dtype and device only: debug output must not compute a model.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype: DType = self.dtype();
        write!(f, "Tensor[{:?}, {dtype}, {}]", self.dims(), self.device().location())
    }
}
