//! One case: everyone computes it once, results are compared, and those who agree are measured in turns. Turns are short and
//! many, so that a slow minute of the machine falls on all of them alike.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tallow_bench_protocol::{Case, InputFile, Job, Unit};

use super::compare::{Values, compare};
use super::statistics::Summary;

/// The time of one turn, about.
const TURN: Duration = Duration::from_millis(40);
/// No participant has fewer turns, however long its runs are.
const LEAST_TURNS: usize = 3;
/// Nor more, however short.
const MOST_TURNS: usize = 100;

/// Whoever takes part.
pub trait Seat {
    /// Its name in targets.
    fn key(&self) -> &str;
    /// Computes once and writes the result; `Err` when it should have worked.
    fn prepare(&mut self, job: Job) -> Result<Answer, String>;
    /// The nanoseconds of `times` runs, after `warm` others.
    fn run(&mut self, warm: u32, times: u32) -> Result<Vec<u64>, String>;
}

/// The answer to a case.
pub enum Answer {
    /// Computed; the shape of the result.
    Ready(Vec<usize>),
    /// Not possible there.
    Unsupported(String),
}

/// What came of a participant in a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Its result agrees; its times.
    Timed(Summary),
    /// It cannot do that.
    Unsupported(String),
    /// Its result is another one.
    Differs(String),
    /// It broke.
    Failed(String),
}

/// What came of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The case.
    pub case: Case,
    /// With how many threads.
    pub threads: usize,
    /// Tallow's first.
    pub verdicts: Vec<(String, Verdict)>,
}

impl Outcome {
    /// A participant's times, if it was timed.
    pub fn summary(&self, key: &str) -> Option<&Summary> {
        self.verdicts.iter().find_map(|(name, verdict)| match verdict {
            Verdict::Timed(summary) if name == key => Some(summary),
            _ => None,
        })
    }

    /// Whether a participant can do this case at all.
    pub fn takes_part(&self, key: &str) -> bool {
        self.verdicts.iter().any(|(name, verdict)| name == key && !matches!(verdict, Verdict::Unsupported(_)))
    }
}

/// What a case is measured with.
pub struct Setting<'a> {
    /// The input files.
    pub inputs: &'a [InputFile],
    /// A folder for results.
    pub folder: &'a Path,
    /// Threads of each participant.
    pub threads: usize,
    /// The model, for cases that need one.
    pub model: Option<&'a Path>,
    /// Time for all runs of all participants together.
    pub budget: Duration,
}

/// Measures one case. The first seat is Tallow's: the others' results are compared with its own. When there were
/// others and none agrees, Tallow's is taken for the wrong one, and nothing is timed.
pub fn measure(seats: &mut [&mut dyn Seat], case: &Case, setting: &Setting) -> Outcome {
    let mut verdicts: Vec<Option<Verdict>> = Vec::new();
    let mut expected = None;
    for (place, seat) in seats.iter_mut().enumerate() {
        let result = setting.folder.join(format!("result-{}", seat.key()));
        let job = Job {
            case: case.clone(),
            inputs: setting.inputs.to_vec(),
            result: result.clone(),
            threads: setting.threads,
            model: setting.model.map(Path::to_path_buf),
        };
        let answer = match seat.prepare(job) {
            Ok(Answer::Ready(dims)) => Values::read(&result, dims).map_err(Verdict::Failed),
            Ok(Answer::Unsupported(reason)) => Err(Verdict::Unsupported(reason)),
            Err(message) => Err(Verdict::Failed(message)),
        };
        // The file is ours; that it is gone already is no harm.
        let _ = std::fs::remove_file(&result);
        verdicts.push(match (answer, &expected) {
            (Err(verdict), _) => Some(verdict),
            (Ok(values), None) if place == 0 => {
                expected = Some(values);
                None
            }
            (Ok(_), None) => Some(Verdict::Unsupported("not timed: there is no result of Tallow's".into())),
            (Ok(values), Some(expected)) => compare(&values, expected, case.tolerance).err().map(Verdict::Differs),
        });
    }
    let compared =
        verdicts.iter().skip(1).filter(|verdict| matches!(verdict, None | Some(Verdict::Differs(_)))).count();
    let agree = verdicts.iter().skip(1).filter(|verdict| verdict.is_none()).count();
    if compared > 0
        && agree == 0
        && let Some(tallow @ None) = verdicts.first_mut()
    {
        *tallow = Some(Verdict::Differs("no peer has the same result".into()));
    }
    time(seats, &mut verdicts, case.unit, setting.budget);
    let verdicts = seats.iter().zip(verdicts).map(|(seat, verdict)| {
        let verdict = verdict.unwrap_or_else(|| Verdict::Failed("it was never run".into()));
        (seat.key().to_owned(), verdict)
    });
    Outcome { case: case.clone(), threads: setting.threads, verdicts: verdicts.collect() }
}

/// Runs, in turns, whoever has no verdict yet.
fn time(seats: &mut [&mut dyn Seat], verdicts: &mut [Option<Verdict>], unit: Unit, budget: Duration) {
    struct Turns {
        place: usize,
        times: u32,
        all: Vec<u64>,
        turns: usize,
        spent: Duration,
    }
    let mut running = Vec::new();
    for (place, verdict) in verdicts.iter_mut().enumerate().filter(|(_, verdict)| verdict.is_none()) {
        match seats[place].run(1, 1).map(|times| times.first().copied().unwrap_or(1).max(1)) {
            Ok(once) => {
                let times = match unit {
                    Unit::Time | Unit::Tokens(_) => (TURN.as_nanos() as u64 / once).clamp(1, 2000) as u32,
                    Unit::Bytes => 1,
                };
                let mut turns = Turns { place, times, all: Vec::new(), turns: 0, spent: Duration::ZERO };
                // Preparing was the warm-up of a run that fills a turn by itself.
                if times == 1 {
                    turns = Turns { all: vec![once], turns: 1, spent: Duration::from_nanos(once), ..turns };
                }
                running.push(turns);
            }
            Err(message) => *verdict = Some(Verdict::Failed(message)),
        }
    }
    let each = budget / running.len().max(1) as u32;
    for round in 0..MOST_TURNS {
        let count = running.len();
        let mut ran = false;
        for step in 0..count {
            // Another one begins each round: whoever follows a slow neighbour does so seldom.
            let turns = &mut running[(round + step) % count];
            if verdicts[turns.place].is_some() || (turns.spent >= each && turns.turns >= LEAST_TURNS) {
                continue;
            }
            let start = std::time::Instant::now();
            // A run that fills a turn by itself finds nothing that the one before it has warmed.
            let warm = if turns.times == 1 { 0 } else { 1 + turns.times / 10 };
            match seats[turns.place].run(warm, turns.times) {
                Ok(times) => turns.all.extend(times),
                Err(message) => verdicts[turns.place] = Some(Verdict::Failed(message)),
            }
            turns.spent += start.elapsed();
            turns.turns += 1;
            ran = true;
        }
        if !ran {
            break;
        }
    }
    for turns in running {
        if verdicts[turns.place].is_none() {
            verdicts[turns.place] = Summary::of(&turns.all).map(Verdict::Timed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallow_bench_protocol::{Element, Op};

    /// Writes `result`, or refuses; counts its runs.
    struct Fake {
        key: &'static str,
        result: Option<Vec<f32>>,
        nanoseconds: u64,
        breaks: bool,
        runs: u32,
    }

    fn fake(key: &'static str, result: &[f32], nanoseconds: u64) -> Fake {
        Fake { key, result: Some(result.to_vec()), nanoseconds, breaks: false, runs: 0 }
    }

    impl Seat for Fake {
        fn key(&self) -> &str {
            self.key
        }
        fn prepare(&mut self, job: Job) -> Result<Answer, String> {
            let Some(result) = &self.result else { return Ok(Answer::Unsupported("no such thing".into())) };
            let bytes: Vec<u8> = result.iter().flat_map(|v| v.to_le_bytes()).collect();
            std::fs::write(&job.result, bytes).map_err(|error| error.to_string())?;
            Ok(Answer::Ready(vec![result.len()]))
        }
        fn run(&mut self, warm: u32, times: u32) -> Result<Vec<u64>, String> {
            if self.breaks {
                return Err("broken".into());
            }
            self.runs += warm + times;
            Ok(vec![self.nanoseconds; times as usize])
        }
    }

    fn outcome(seats: &mut [&mut dyn Seat], name: &str) -> Outcome {
        let case = Case {
            group: "g".into(),
            name: name.into(),
            op: Op::Matmul,
            dtype: Element::F32,
            inputs: Vec::new(),
            flops: 0.,
            bytes: 0.,
            tolerance: 1e-3,
            unit: Unit::Time,
        };
        let folder = std::env::temp_dir().join(format!("tallow-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let setting =
            Setting { inputs: &[], folder: &folder, threads: 1, model: None, budget: Duration::from_millis(1) };
        let outcome = measure(seats, &case, &setting);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "results are removed");
        std::fs::remove_dir(&folder).unwrap();
        outcome
    }

    #[test]
    fn a_wrong_result_is_reported_and_never_run() {
        let (mut tallow, mut right, mut wrong) =
            (fake("tallow", &[1., 2.], 10), fake("right", &[1., 2.0001], 20), fake("wrong", &[1., 2.5], 1));
        let outcome = outcome(&mut [&mut tallow, &mut right, &mut wrong], "wrong");
        assert_eq!(outcome.summary("tallow").unwrap().median, 10.);
        assert_eq!(outcome.summary("right").unwrap().best, 20.);
        assert!(matches!(&outcome.verdicts[2].1, Verdict::Differs(error) if error.contains("element 1 is 2.5, not 2")));
        assert_eq!(wrong.runs, 0);
        assert!(tallow.runs > 0 && right.runs > 0);
    }

    #[test]
    fn when_no_peer_agrees_nothing_is_timed() {
        let (mut tallow, mut one, mut other) =
            (fake("tallow", &[9.], 10), fake("one", &[1.], 20), fake("other", &[1.], 30));
        let outcome = outcome(&mut [&mut tallow, &mut one, &mut other], "alone");
        assert!(outcome.verdicts.iter().all(|(_, verdict)| matches!(verdict, Verdict::Differs(_))));
        assert_eq!((tallow.runs, one.runs, other.runs), (0, 0, 0));
    }

    #[test]
    fn one_that_cannot_and_one_that_breaks_leave_the_others_alone() {
        let (mut tallow, mut cannot, mut breaks) =
            (fake("tallow", &[1.], 10), fake("cannot", &[], 1), fake("breaks", &[1.], 1));
        cannot.result = None;
        breaks.breaks = true;
        let outcome = outcome(&mut [&mut tallow, &mut cannot, &mut breaks], "break");
        assert!(outcome.summary("tallow").is_some());
        assert_eq!(outcome.verdicts[1].1, Verdict::Unsupported("no such thing".into()));
        assert_eq!(outcome.verdicts[2].1, Verdict::Failed("broken".into()));
        assert_eq!(["tallow", "cannot", "breaks"].map(|key| outcome.takes_part(key)), [true, false, true]);
    }

    #[test]
    fn tallow_runs_alone_too() {
        let mut tallow = fake("tallow", &[1.], 20_000_000);
        let outcome = outcome(&mut [&mut tallow], "solo");
        assert!(outcome.summary("tallow").unwrap().runs >= 2 * LEAST_TURNS);
        assert!(tallow.runs as usize > outcome.summary("tallow").unwrap().runs, "the first of a turn is a warm-up");
    }

    #[test]
    fn without_tallow_s_result_nobody_is_timed() {
        let (mut tallow, mut peer) = (fake("tallow", &[], 10), fake("peer", &[1.], 20));
        tallow.result = None;
        let outcome = outcome(&mut [&mut tallow, &mut peer], "absent");
        assert!(outcome.verdicts.iter().all(|(_, verdict)| matches!(verdict, Verdict::Unsupported(_))));
        assert_eq!(peer.runs, 0);
    }
}
