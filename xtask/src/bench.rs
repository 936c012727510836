//! `cargo xtask bench`: measures Tallow and its peers in one run, side by side. Participants are processes that speak the
//! protocol of tallow-bench-protocol; this side has the case table, makes the inputs, compares results, takes turns, and
//! writes tables.

mod cases;
mod compare;
mod generate;
pub mod growth;
mod machine;
mod measure;
pub mod options;
mod page;
mod participant;
mod peers;
mod pin;
pub mod size;
mod statistics;
mod table;
pub mod web;

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tallow_bench_protocol::{Floors, Hello, Reply, Request};

use crate::context::Context;
use crate::model;
use cases::{Entry, GROUPS, Group};
use machine::Machine;
use measure::{Outcome, Seat, Setting};
use options::Options;
use participant::{Participant, Spec};

/// What a run knows before it measures.
struct Bench<'a> {
    context: &'a Context,
    options: &'a Options,
    /// Peers and results live here.
    folder: PathBuf,
    specs: Vec<Spec>,
    absent: Vec<(String, String)>,
    machine: Machine,
}

/// What came of one group, as it is kept in a file.
#[derive(Serialize)]
struct Raw<'a> {
    machine: &'a Machine,
    command: &'a str,
    participants: &'a [(String, Hello)],
    absent: &'a [(String, String)],
    floors: &'a [(usize, Floors)],
    outcomes: Vec<&'a Outcome>,
}

/// Measures what was asked for.
pub fn run(context: &Context, options: &Options) -> Result<(), String> {
    let folder = folder(context)?;
    let tallow = peers::tallow(context, &options.device)?;
    let machine = Machine::look(&context.root);
    let mut bench = Bench { context, options, folder, specs: vec![tallow.clone()], absent: Vec::new(), machine };
    // Everything is there before the first measurement.
    let groups: Vec<&Group> = GROUPS.iter().filter(|group| options.groups.contains(&group.name)).collect();
    let mut parties = Vec::new();
    for models in [false, true].into_iter().filter(|&models| groups.iter().any(|group| is_model(group) == models)) {
        let (there, absent) =
            if options.peers { peers::peers(context, &bench.folder, models) } else { Default::default() };
        for (key, reason) in &absent {
            println!("absent: {}: {reason}", peers::title(key).unwrap_or(key));
        }
        let model = if models { Some(model::locate_without_tests(context)?) } else { None };
        parties.push((models, there, absent, model));
    }
    let floors = bench.floors()?;
    for (models, there, absent, model) in parties {
        bench.specs = [vec![tallow.clone()], there].concat();
        bench.absent = absent;
        for group in groups.iter().filter(|group| is_model(group) == models) {
            bench.group(group, &floors, model.as_deref())?;
        }
    }
    Ok(())
}

/// Where peers and raw results are kept; several checkouts may share their peers.
fn folder(context: &Context) -> Result<PathBuf, String> {
    let folder = std::env::var_os("TALLOW_BENCH_DIR").map_or_else(|| context.target.join("bench"), PathBuf::from);
    for part in ["logs", "raw"] {
        make(&folder.join(part))?;
    }
    std::path::absolute(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Whether a group's cases run a language model.
fn is_model(group: &Group) -> bool {
    group.name == "llm"
}

fn make(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))
}

impl Bench<'_> {
    /// The numbers of threads that are measured: one, and two where there are two cores.
    fn threads(&self) -> Vec<usize> {
        match self.options.threads {
            Some(threads) => vec![threads],
            None => (1..=2).filter(|&threads| pin::cpus(threads).len() == threads).collect(),
        }
    }

    /// Asks Tallow's participant what the machine can do, for each number of threads.
    fn floors(&mut self) -> Result<Vec<(usize, Floors)>, String> {
        let mut all = Vec::new();
        for threads in self.threads() {
            let cpus = pin::cpus(threads);
            if cpus.len() < threads {
                return Err(format!("{threads} threads do not fit on {} cores", cpus.len()));
            }
            let Some(spec) = self.specs.first() else { return Err("nobody takes part".into()) };
            let mut tallow = Participant::start(spec.clone(), &cpus, &self.folder.join("logs"))
                .map_err(|error| format!("Tallow's participant: {error}"))?;
            match tallow.ask(&Request::Floors, Duration::from_secs(60))? {
                Reply::Floors(floors) => {
                    println!("{}", floor_line(threads, &floors));
                    all.push((threads, floors));
                }
                other => return Err(format!("Tallow's participant answered {other:?} when asked for floors")),
            }
        }
        Ok(all)
    }

    fn group(&mut self, group: &Group, floors: &[(usize, Floors)], model: Option<&Path>) -> Result<(), String> {
        let wanted = self.options.case.as_deref().unwrap_or_default();
        let entries: Vec<Entry> =
            (group.entries)().into_iter().filter(|entry| entry.case.name.contains(wanted)).collect();
        if entries.is_empty() {
            return Ok(());
        }
        let bar = ProgressBar::new((self.threads().len() * entries.len()) as u64);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        let mut found: Vec<Vec<Outcome>> = entries.iter().map(|_| Vec::new()).collect();
        let mut hellos = Vec::new();
        for threads in self.threads() {
            let mut seats = self.start(threads)?;
            hellos = seats.iter().map(|seat| (seat.key().to_owned(), seat.hello.clone())).collect();
            for (entry, found) in entries.iter().zip(&mut found) {
                bar.set_message(format!("{} {}, {threads} threads", group.name, entry.case.name));
                found.push(self.case(entry, threads, model, &mut seats)?);
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let outcomes: Vec<(Entry, Outcome)> = entries
            .into_iter()
            .zip(found)
            .flat_map(|(entry, found)| found.into_iter().map(move |outcome| (entry.clone(), outcome)))
            .collect();
        self.report(group, &outcomes, &hellos, floors)
    }

    /// Starts everyone; a peer that does not start is absent from now on.
    fn start(&mut self, threads: usize) -> Result<Vec<Participant>, String> {
        let cpus = pin::cpus(threads);
        let logs = self.folder.join("logs");
        let specs = std::mem::take(&mut self.specs);
        let launched: Vec<_> =
            specs.into_iter().map(|spec| (spec.clone(), Participant::launch(spec, &cpus, &logs))).collect();
        let mut seats = Vec::new();
        for (spec, participant) in launched {
            let greeted = participant.and_then(|mut seat| {
                seat.greet()?;
                Ok(seat)
            });
            match greeted {
                Ok(seat) => {
                    self.specs.push(spec);
                    seats.push(seat);
                }
                Err(error) if spec.key == "tallow" => return Err(format!("Tallow's participant: {error}")),
                Err(error) => {
                    println!("absent: {}: {error}", peers::title(&spec.key).unwrap_or(&spec.key));
                    self.absent.push((spec.key, error));
                }
            }
        }
        Ok(seats)
    }

    fn case(
        &self,
        entry: &Entry,
        threads: usize,
        model: Option<&Path>,
        seats: &mut [Participant],
    ) -> Result<Outcome, String> {
        let folder = self.folder.join(format!("inputs-{}", std::process::id()));
        make(&folder)?;
        let inputs = generate::write_inputs(&entry.case, &folder)
            .map_err(|error| format!("the inputs of {} cannot be written: {error}", entry.case.name))?;
        let setting = Setting { inputs: &inputs, folder: &folder, threads, model, budget: self.options.budget };
        let mut seats: Vec<&mut dyn Seat> = seats.iter_mut().map(|seat| seat as &mut dyn Seat).collect();
        let outcome = measure::measure(&mut seats, &entry.case, &setting);
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{} stays: {error}", folder.display()))?;
        Ok(outcome)
    }

    /// Prints the table, keeps the raw figures, and writes the page's section.
    fn report(
        &self,
        group: &Group,
        outcomes: &[(Entry, Outcome)],
        hellos: &[(String, Hello)],
        floors: &[(usize, Floors)],
    ) -> Result<(), String> {
        // Who can do none of the group's cases gets no column.
        let (hellos, _): (Vec<_>, Vec<_>) =
            hellos.iter().cloned().partition(|(key, _)| outcomes.iter().any(|(_, outcome)| outcome.takes_part(key)));
        let keys: Vec<String> = hellos.iter().map(|(key, _)| key.clone()).collect();
        let table = table::render(outcomes, floors, &keys);
        let notes = table::notes(outcomes);
        println!("\n{}: {}\n\n{table}", group.name, group.about);
        notes.iter().for_each(|note| println!("{note}"));
        let section = match self.options.device.as_str() {
            "cpu" => group.name.to_owned(),
            device => format!("{}-{}", group.name, device.replace(':', "-")),
        };
        let raw = Raw {
            machine: &self.machine,
            command: &self.options.command,
            participants: &hellos,
            absent: &self.absent,
            floors,
            outcomes: outcomes.iter().map(|(_, outcome)| outcome).collect(),
        };
        let json = serde_json::to_string_pretty(&raw).map_err(|error| error.to_string())?;
        page::write_whole(&self.folder.join("raw").join(format!("{section}.json")), &json)?;
        if !self.options.write {
            return Ok(());
        }
        let body = self.body(group, &table, &notes, &hellos, floors);
        page::update(&self.context.root.join("docs/performance.md"), &section, &body)
    }

    /// A section of the page.
    fn body(
        &self,
        group: &Group,
        table: &str,
        notes: &[String],
        hellos: &[(String, Hello)],
        floors: &[(usize, Floors)],
    ) -> String {
        let Machine { processor, cores, compiler, commit, date } = &self.machine;
        let versions: Vec<String> =
            hellos.iter().map(|(_, hello)| format!("{} {} ({})", hello.name, hello.version, hello.about)).collect();
        let mut text = format!("## {}\n\n{}.\n\n{table}\n", group.name, group.about);
        text +=
            &format!("`{}`, {date}, commit {commit}, {processor}, {cores} cores, {compiler}.\n", self.options.command);
        text += &format!("{}.\n", versions.join("; "));
        floors.iter().for_each(|(threads, floors)| text += &format!("{}.\n", floor_line(*threads, floors)));
        for (key, reason) in &self.absent {
            text += &format!("\nAbsent: {}: {}\n", peers::title(key).unwrap_or(key), self.portable(reason));
        }
        notes.iter().for_each(|note| text += &format!("\n{}\n", self.portable(note)));
        text
    }

    /// A message without this machine's folders.
    fn portable(&self, text: &str) -> String {
        let root = self.context.root.to_string_lossy();
        text.replace(&*self.folder.to_string_lossy(), "target/bench").replace(&*root, ".")
    }
}

fn floor_line(threads: usize, floors: &Floors) -> String {
    let giga = 1e-9;
    let int8 = floors.int8.map_or(String::new(), |rate| format!(", {:.0} G 8-bit dot operations/s", rate * giga));
    format!(
        "Floors with {threads} thread{}: reading {:.1} GB/s, copying {:.1} GB/s, f32 {:.0} GFLOP/s{int8}",
        if threads == 1 { "" } else { "s" },
        floors.read * giga,
        floors.copy * giga,
        floors.flops * giga,
    )
}
