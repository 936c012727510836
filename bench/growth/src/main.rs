//! How cost grows with size, for `cargo xtask bench growth`: `tallow-growth DEVICE FOLDER [MODEL.gguf]` measures each curve,
//! draws it as an SVG file in FOLDER, and prints the page's text. Time is the best of several runs: what is wanted is the
//! shape of the curve, and other programs only ever add to it.

mod attention;
mod chart;
mod clock;
mod compile;
mod decode;
mod matmul;
mod planning;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use chart::Chart;
use tallow::{Device, Result};

struct Run {
    device: Device,
    folder: PathBuf,
    model: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(device), Some(folder)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: tallow-growth DEVICE FOLDER [MODEL.gguf]");
        return ExitCode::FAILURE;
    };
    let outcome = tallow::block_on(Device::by_name(&device))
        .and_then(|device| Run { device, folder: folder.into(), model: arguments.next().map(PathBuf::from) }.all());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tallow-growth: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Run {
    fn all(&self) -> Result<()> {
        self.show(&planning::measure(&self.device)?)?;
        self.show(&attention::measure(&self.device)?)?;
        self.show(&matmul::measure(&self.device)?)?;
        let Some(model) = &self.model else {
            println!("Decoding was not measured: no model was named.\n");
            return Ok(());
        };
        for chart in decode::measure(model, &self.device)? {
            self.show(&chart)?;
        }
        println!("{}", compile::measure(model, &self.device)?);
        Ok(())
    }

    /// Draws the chart, and prints how the page shows it.
    fn show(&self, chart: &Chart) -> Result<()> {
        let device = if self.device.is_cpu() { "cpu" } else { "wgpu" };
        let file = format!("{}-{device}.svg", chart.name);
        chart.draw(&self.folder.join(&file))?;
        let folder = self.folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let link = Path::new(&folder).join(&file);
        println!("### {}\n\n![{}]({})\n", chart.title, chart.title, link.display());
        println!("{}\n\n{}", chart.note, chart.table());
        Ok(())
    }
}
