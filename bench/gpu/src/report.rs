//! The figures: readable tables, and the same as JSON behind them, in one file.

use crate::clock::Clock;
use serde_json::{Value, json};
use std::fmt::Write as _;
use tallow::Device;

/// What a figure is a share of.
#[derive(Clone, Copy)]
pub enum Unit {
    /// Bytes a second, of the copy bandwidth.
    Bytes,
    /// Floating-point operations a second, of the fused multiply-adds.
    Flops,
    /// 8-bit operations a second, of the packed dot products.
    Ops,
    /// Tokens a second, of what the bandwidth allows.
    Tokens,
}

impl Unit {
    fn show(self, rate: f64) -> String {
        match self {
            Unit::Bytes => format!("{:.1} GB/s", rate / 1e9),
            Unit::Flops => format!("{:.1} GFLOP/s", rate / 1e9),
            Unit::Ops => format!("{:.1} G op/s", rate / 1e9),
            Unit::Tokens => format!("{rate:.1} tokens/s"),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes_per_second",
            Unit::Flops => "flops",
            Unit::Ops => "ops_per_second",
            Unit::Tokens => "tokens_per_second",
        }
    }
}

struct Row {
    group: &'static str,
    name: String,
    seconds: f64,
    rate: f64,
    unit: Unit,
    ceiling: Option<f64>,
}

/// The figures of a run.
pub struct Report {
    head: Vec<(String, Value)>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub fn new(device: &Device, minutes: f64, small: bool) -> Self {
        let info = device.info();
        let head = [
            ("tallow", json!(env!("CARGO_PKG_VERSION"))),
            ("device", json!(info.name)),
            ("driver", json!(info.driver)),
            ("software", json!(info.software)),
            ("features", json!(info.features)),
            ("minutes", json!(minutes)),
            ("small", json!(small)),
        ];
        Self { head: head.map(|(name, value)| (name.to_owned(), value)).into(), rows: Vec::new(), notes: Vec::new() }
    }

    /// A figure: so much work in so many seconds; without seconds, that there was no time for it.
    pub fn row(
        &mut self,
        group: &'static str,
        name: impl Into<String>,
        seconds: Option<f64>,
        work: f64,
        unit: Unit,
        ceiling: Option<f64>,
    ) {
        let name = name.into();
        let Some(seconds) = seconds else {
            self.note(format!("skipped: {group} {name}: no time left"));
            return;
        };
        let row = Row { group, name, seconds, rate: work / seconds, unit, ceiling };
        eprintln!("{}", line(&row));
        self.rows.push(row);
    }

    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        eprintln!("{text}");
        self.notes.push(text);
    }

    /// The file's text.
    pub fn finish(&self, clock: &Clock) -> String {
        let mut text = String::from("# What this GPU reaches\n\n");
        for (name, value) in &self.head {
            let _ = writeln!(text, "- {name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        let _ = writeln!(text, "- seconds: {:.0}", clock.spent().as_secs_f64());
        text += "\nShares are of the ceilings, which were measured first. Seconds are medians of one computation.\n\n\
                 | group | what | seconds | rate | share |\n|---|---|---|---|---|\n";
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        if !self.notes.is_empty() {
            text.push('\n');
            self.notes.iter().for_each(|note| {
                let _ = writeln!(text, "- {note}");
            });
        }
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "group": row.group, "name": row.name, "seconds": row.seconds, "rate": row.rate,
                    "unit": row.unit.name(), "ceiling": row.ceiling,
                    "share": row.ceiling.map(|ceiling| row.rate / ceiling),
                })
            })
            .collect();
        let mut json: serde_json::Map<String, Value> = self.head.iter().cloned().collect();
        json.insert("seconds".into(), json!(clock.spent().as_secs_f64()));
        json.insert("rows".into(), Value::Array(rows));
        json.insert("notes".into(), json!(self.notes));
        let _ = write!(text, "\n```json\n{:#}\n```\n", Value::Object(json));
        text
    }
}

fn line(row: &Row) -> String {
    let share = row.ceiling.map_or(String::new(), |ceiling| format!("{:.1}%", 100.0 * row.rate / ceiling));
    format!("| {} | {} | {:.3e} | {} | {share} |", row.group, row.name, row.seconds, row.unit.show(row.rate))
}
