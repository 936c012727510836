//! A chart of one measured curve and the one that is expected, as SVG and as a table.

use std::fmt::Write as _;
use std::path::Path;

use plotters::prelude::*;
use tallow::{Error, Result};

const SIZE: (u32, u32) = (640, 360);
const MEASURED: RGBColor = RGBColor(0x1f, 0x6f, 0xb4);
const EXPECTED: RGBColor = RGBColor(0x99, 0x99, 0x99);

/// A curve beside its expectation; both axes are logarithmic.
pub struct Chart {
    /// The file's name without its end.
    pub name: &'static str,
    pub title: String,
    pub x: &'static str,
    /// With its unit.
    pub y: &'static str,
    /// What the expected curve is, for the legend.
    pub expected: &'static str,
    /// (x, measured, expected)
    pub points: Vec<(f64, f64, f64)>,
    /// What the page says above the figures.
    pub note: String,
}

impl Chart {
    /// Writes the picture: beside its place first, then renamed.
    ///
    /// # Errors
    /// Where it cannot be drawn or written.
    pub fn draw(&self, path: &Path) -> Result<()> {
        let mut svg = String::new();
        self.render(&mut svg).map_err(|error| Error::op("chart", format!("{}: {error}", self.name)))?;
        let part = path.with_extension("svg.part");
        std::fs::write(&part, svg)
            .and_then(|()| std::fs::rename(&part, path))
            .map_err(|error| Error::op("chart", format!("{} cannot be written: {error}", path.display())))
    }

    fn render(&self, svg: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let all = || self.points.iter().flat_map(|&(_, a, b)| [a, b]);
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(0., f64::max);
        let xs = || self.points.iter().map(|point| point.0);
        let (left, right) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0., f64::max));
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d((left..right).log_scale(), (low * 0.8..high * 1.25).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|&x| short(x))
            .y_label_formatter(&|&y| short(y))
            .draw()?;
        chart
            .draw_series(LineSeries::new(self.points.iter().map(|&(x, _, e)| (x, e)), EXPECTED.stroke_width(2)))?
            .label(self.expected)
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], EXPECTED.stroke_width(2)));
        chart
            .draw_series(LineSeries::new(self.points.iter().map(|&(x, m, _)| (x, m)), MEASURED.stroke_width(2)))?
            .label("measured")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], MEASURED.stroke_width(2)));
        chart.draw_series(self.points.iter().map(|&(x, m, _)| Circle::new((x, m), 3, MEASURED.filled())))?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(EXPECTED)
            .draw()?;
        area.present()?;
        Ok(())
    }

    /// The figures, in Markdown.
    pub fn table(&self) -> String {
        let mut text = format!("| {} | {} | {} |\n|---:|---:|---:|\n", self.x, self.y, self.expected);
        for &(x, measured, expected) in &self.points {
            let _ = writeln!(text, "| {} | {} | {} |", short(x), short(measured), short(expected));
        }
        text
    }
}

/// Three significant digits, no exponent.
fn short(value: f64) -> String {
    if value == 0. || !value.is_finite() {
        return format!("{value}");
    }
    let digits = 2 - value.abs().log10().floor() as i32;
    if digits <= 0 {
        format!("{value:.0}")
    } else {
        format!("{value:.*}", digits as usize).trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}
