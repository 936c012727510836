//! A participant's side: read requests, answer them, keep the clock.

use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::message::{Floors, Hello, Job, Reply, Request};

/// Why a case is not computed.
pub enum Refusal {
    /// This participant has no way of doing it.
    Unsupported(String),
    /// It should have worked.
    Failed(String),
}

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Refusal::Failed(error.to_string())
    }
}

/// How long the measured part of a run took.
pub type Timed = Result<Duration, Refusal>;

/// A case that is ready to be measured.
pub struct Prepared {
    /// The result of a first run.
    pub values: Vec<f32>,
    /// Its shape.
    pub dims: Vec<usize>,
    /// Computes once more.
    pub run: Box<dyn FnMut() -> Timed>,
}

/// Something that can be measured.
pub trait Participant {
    /// Its name and version.
    fn hello(&self) -> Hello;
    /// Reads the inputs and computes once.
    fn prepare(&mut self, job: &Job) -> Result<Prepared, Refusal>;
    /// The machine's limits, if it can measure them.
    fn floors(&mut self) -> Result<Floors, Refusal> {
        Err(Refusal::Unsupported("this participant measures no floors".into()))
    }
}

/// Runs `work` with a clock. What it gives back is dropped after the clock has stopped.
pub fn timed<T, E: Into<Refusal>>(work: impl FnOnce() -> Result<T, E>) -> Timed {
    let start = Instant::now();
    let result = work();
    let taken = start.elapsed();
    result.map(|_| taken).map_err(Into::into)
}

/// Answers requests until standard input ends.
pub fn serve(participant: &mut dyn Participant) -> io::Result<()> {
    let mut prepared = None;
    let mut stdout = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let reply = match serde_json::from_str(&line) {
            Ok(request) => answer(participant, &mut prepared, request).unwrap_or_else(|refusal| match refusal {
                Refusal::Unsupported(reason) => Reply::Unsupported { reason },
                Refusal::Failed(message) => Reply::Failed { message },
            }),
            Err(error) => Reply::Failed { message: format!("{line:?} is no request: {error}") },
        };
        serde_json::to_writer(&mut stdout, &reply)?;
        stdout.write_all(b"\n")?;
        stdout.flush()?;
    }
    Ok(())
}

fn answer(
    participant: &mut dyn Participant,
    prepared: &mut Option<Prepared>,
    request: Request,
) -> Result<Reply, Refusal> {
    match request {
        Request::Hello => Ok(Reply::Hello(participant.hello())),
        Request::Floors => participant.floors().map(Reply::Floors),
        Request::Prepare(job) => {
            // The memory of the case before is given back first.
            *prepared = None;
            let mut ready = participant.prepare(&job)?;
            write_f32(&job.result, &std::mem::take(&mut ready.values))?;
            let dims = ready.dims.clone();
            *prepared = Some(ready);
            Ok(Reply::Ready { dims })
        }
        Request::Run { warm, times } => {
            let ready = prepared.as_mut().ok_or_else(|| Refusal::Failed("`run` before `prepare`".into()))?;
            for _ in 0..warm {
                (ready.run)()?;
            }
            let mut nanoseconds = Vec::new();
            for _ in 0..times {
                nanoseconds.push((ready.run)()?.as_nanos().try_into().unwrap_or(u64::MAX));
            }
            Ok(Reply::Ran { nanoseconds })
        }
    }
}

fn write_f32(path: &Path, values: &[f32]) -> io::Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    for value in values {
        file.write_all(&value.to_le_bytes())?;
    }
    file.flush()
}

/// The floats of an input file.
pub fn read_f32(path: &Path) -> io::Result<Vec<f32>> {
    words(path, f32::from_le_bytes)
}

/// The ids of an input file.
pub fn read_u32(path: &Path) -> io::Result<Vec<u32>> {
    words(path, u32::from_le_bytes)
}

fn words<T>(path: &Path, from: impl Fn([u8; 4]) -> T) -> io::Result<Vec<T>> {
    let bytes = std::fs::read(path)?;
    let (words, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        let message = format!("{} holds {} bytes, which is no multiple of 4", path.display(), bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(words.iter().map(|&word| from(word)).collect())
}

/// The most memory that this process has had so far, in bytes, where the system tells.
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
