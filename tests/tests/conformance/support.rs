//! What is supported where: the cells of docs/ops.md. A device's test measures its own part of the page and compares; with
//! `TALLOW_WRITE_OPS=1` (`cargo xtask ops`) it writes the part instead.

use crate::{
    compare,
    gradient::{self, Gradient},
    inputs::{Case, cases},
    table::{INDEXING, Row, TABLE},
};
use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};
use tallow::{DType, Device, Result, Tensor};

/// What became of an operation on a device for a dtype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// It agrees with the reference.
    Pass,
    /// It agrees, by way of simpler operations.
    Decomposed,
    /// It is refused, with this reason.
    Refused(String),
}

/// The rows of a page: one an operation, with a cell for each dtype, and its gradient.
pub struct Page {
    device: &'static str,
    rows: Vec<(&'static str, Vec<Cell>, Gradient)>,
}

fn run(row: &Row, case: &Case, device: &Device) -> Result<Tensor> {
    let inputs: Vec<Tensor> = case.inputs.iter().map(|input| input.on(device)).collect::<Result<_>>()?;
    let result = (row.run)(&inputs)?;
    result.realize()?;
    Ok(result)
}

/// The reason of a refusal, without the names of the operation and the dtype, which the cell's place gives.
fn reason(error: &tallow::Error, dtype: DType) -> String {
    let text = error.to_string().replace(dtype.name(), "this dtype");
    text.split_once(": ").map_or(text.clone(), |(_, rest)| rest.to_string())
}

/// Tries the first call of a row with elements, for dtypes that the table lists (whose other calls `cpu` and `wgpu` try) and for
/// all others.
fn cell(row: &Row, dtype: DType, device: &Device, oracle: &Device, wrong: &mut Vec<String>) -> Cell {
    let cases = cases(row, dtype, false);
    let Some(case) = cases.iter().find(|case| !case.is_empty()) else { return Cell::Refused("no case".into()) };
    let before = device.engine().plan_counters().decomposed;
    let got = match run(row, case, device) {
        Ok(got) => got,
        Err(error) => return Cell::Refused(reason(&error, dtype)),
    };
    match run(row, case, oracle) {
        Ok(want) => {
            if let Err(why) = compare::close(&got, &want, row.tolerance) {
                wrong.push(format!("{} {dtype}: {why}", row.name));
            }
        }
        Err(error) => wrong.push(format!("{} {dtype}: the reference refuses what the device runs: {error}", row.name)),
    }
    if device.engine().plan_counters().decomposed > before { Cell::Decomposed } else { Cell::Pass }
}

impl Page {
    /// Runs every operation for every dtype on a device.
    pub fn measure(name: &'static str, device: &Device, oracle: &Device) -> Self {
        let mut wrong = Vec::new();
        let rows = TABLE
            .iter()
            .chain(INDEXING)
            .map(|row| {
                let cells = DType::PLAIN.iter().map(|&dtype| cell(row, dtype, device, oracle, &mut wrong)).collect();
                (row.name, cells, gradient::check(row, device, &mut wrong))
            })
            .collect();
        assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
        Self { device: name, rows }
    }

    /// Compares with this device's part of docs/ops.md, or writes it.
    pub fn hold_against_the_docs(&self) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/ops.md");
        let text = std::fs::read_to_string(&path).expect("docs/ops.md is there");
        let (begin, end) = (format!("<!-- {} -->\n", self.device), format!("<!-- end of {} -->\n", self.device));
        let from = text.find(&begin).expect("docs/ops.md has a part for the device") + begin.len();
        let to = text.find(&end).expect("the part ends");
        let now = self.to_string();
        if std::env::var("TALLOW_WRITE_OPS").is_ok_and(|v| v == "1") {
            let written = format!("{}{now}{}", &text[..from], &text[to..]);
            std::fs::write(&path, written).expect("docs/ops.md can be written");
            return;
        }
        for (old, new) in text[from..to].lines().zip(now.lines()) {
            assert_eq!(old, new, "docs/ops.md is stale: run `cargo xtask ops`");
        }
        assert_eq!(text[from..to].lines().count(), now.lines().count(), "docs/ops.md is stale: run `cargo xtask ops`");
    }
}

impl std::fmt::Display for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |of: fn(&Cell) -> bool| self.rows.iter().flat_map(|(_, cells, _)| cells).filter(|c| of(c)).count();
        let gradients = self.rows.iter().filter(|(_, _, g)| *g == Gradient::Checked).count();
        writeln!(
            f,
            "{} operations; {} cells pass, {} of them by decomposition; {gradients} gradients are checked.\n",
            self.rows.len(),
            count(|c| !matches!(c, Cell::Refused(_))),
            count(|c| *c == Cell::Decomposed),
        )?;
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut order: Vec<String> = Vec::new();
        let mut number = |reason: &str| {
            let next = reasons.len() + 1;
            *reasons.entry(reason.to_string()).or_insert_with(|| {
                order.push(reason.to_string());
                next
            })
        };
        let mut table = String::new();
        for (name, cells, gradient) in &self.rows {
            let _ = write!(table, "| {name} ");
            for cell in cells {
                let _ = match cell {
                    Cell::Pass => write!(table, "| yes "),
                    Cell::Decomposed => write!(table, "| parts "),
                    Cell::Refused(reason) => write!(table, "| [{}] ", number(reason)),
                };
            }
            let _ = match gradient {
                Gradient::Checked => writeln!(table, "| yes |"),
                Gradient::Integer => writeln!(table, "| integers |"),
                Gradient::Refused(reason) => writeln!(table, "| [{}] |", number(reason)),
            };
        }
        let names: Vec<&str> = DType::PLAIN.iter().map(|d| d.name()).collect();
        writeln!(f, "| operation | {} | gradient |", names.join(" | "))?;
        writeln!(f, "|---|{}---|", "---|".repeat(names.len()))?;
        writeln!(f, "{table}")?;
        for (at, reason) in order.iter().enumerate() {
            writeln!(f, "{}. {reason}", at + 1)?;
        }
        Ok(())
    }
}
