//! A participant's process: started on its cores, asked, and stopped while others are measured, so that threads which spin
//! for work take nothing from them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tallow_bench_protocol::{FIRST_TOKEN, FirstToken, Hello, InputFile, Job, Op, Reply, Request, Unit, read_u32};

use super::measure::{Answer, Seat};
use super::pin;

/// Loading a large model from a cold disk takes this long at most.
const PREPARE_LIMIT: Duration = Duration::from_secs(180);
/// One turn.
const RUN_LIMIT: Duration = Duration::from_secs(180);

/// How a participant is started.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its key in targets: `candle`, `torch`.
    pub key: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Whether it can be started to give one token; see [`FIRST_TOKEN`].
    pub starts: bool,
}

/// A participant, running or to be started again.
pub struct Participant {
    spec: Spec,
    cpus: Vec<usize>,
    log: PathBuf,
    process: Option<Process>,
    /// The case that starts processes of its own, while it is prepared: arguments, and what is measured.
    start: Option<(Vec<OsString>, Unit)>,
    /// What it said about itself.
    pub hello: Hello,
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Participant {
    /// Starts it with one thread on each of `cpus`, and asks who it is. What it writes to standard error goes to a file in
    /// `logs`.
    pub fn start(spec: Spec, cpus: &[usize], logs: &Path) -> Result<Self, String> {
        let mut participant = Self::launch(spec, cpus, logs)?;
        participant.greet()?;
        Ok(participant)
    }

    /// The first half of [`Participant::start`]: several may load their libraries at the same time.
    pub fn launch(spec: Spec, cpus: &[usize], logs: &Path) -> Result<Self, String> {
        let log = logs.join(format!("{}-{}.txt", spec.key, cpus.len()));
        let hello = Hello { name: spec.key.clone(), version: String::new(), about: String::new() };
        let mut participant = Self { spec, cpus: cpus.to_vec(), log, process: None, start: None, hello };
        participant.process = Some(participant.spawn()?);
        Ok(participant)
    }

    /// The second half.
    pub fn greet(&mut self) -> Result<(), String> {
        match self.ask(&Request::Hello, PREPARE_LIMIT)? {
            Reply::Hello(hello) => self.hello = hello,
            other => return Err(format!("it answered {other:?} when asked who it is")),
        }
        Ok(())
    }

    /// One request, one reply. After an error the process is gone, and the next request starts another.
    pub fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, String> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => self.spawn()?,
        };
        match process.ask(request, limit) {
            Ok(reply) => {
                self.process = Some(process);
                Ok(reply)
            }
            Err(error) => {
                let ended = process.end();
                Err(format!("{error} ({ended}); what it wrote is in {}", self.log.display()))
            }
        }
    }

    fn spawn(&self) -> Result<Process, String> {
        let cannot = |error: std::io::Error| format!("{} did not start: {error}", self.spec.program.display());
        let mut command = self.command().map_err(cannot)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{} has no pipes", self.spec.program.display()));
        };
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Process { child, stdin, lines })
    }

    /// The program with its arguments, on its cores.
    fn command(&self) -> std::io::Result<Command> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.spec.program);
        command.args(&self.spec.arguments).stderr(log);
        let threads = self.cpus.len().to_string();
        for name in THREAD_VARIABLES {
            command.env(name, &threads);
        }
        // Errors are told in one line.
        command.env_remove("RUST_BACKTRACE").env_remove("RUST_LIB_BACKTRACE");
        pin::pin(&mut command, &self.cpus);
        Ok(command)
    }

    /// Starts a process that gives one token, and waits for it: the token, the nanoseconds until it came, the bytes.
    fn first_token(&self, arguments: &[OsString]) -> Result<(FirstToken, u64), String> {
        let wrong = |error: &dyn std::fmt::Display| format!("its first token: {error}; see {}", self.log.display());
        let mut command = self.command().map_err(|error| wrong(&error))?;
        command.args(arguments).stdin(Stdio::null());
        let start = Instant::now();
        let done = command.output().map_err(|error| wrong(&error))?;
        let nanoseconds = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        let token = serde_json::from_slice(&done.stdout).map_err(|error| wrong(&error))?;
        Ok((token, nanoseconds))
    }

    /// A case that is about starting.
    fn prepare_start(&mut self, job: &Job) -> Result<Answer, String> {
        let (true, Some(model), [prompt]) = (self.spec.starts, &job.model, job.inputs.as_slice()) else {
            return Ok(Answer::Unsupported("it generates no tokens".into()));
        };
        let arguments = vec![FIRST_TOKEN.into(), model.into(), ids(prompt)?.into()];
        let (token, _) = self.first_token(&arguments)?;
        let bytes = (token.id as f32).to_le_bytes();
        std::fs::write(&job.result, bytes).map_err(|error| format!("the result cannot be written: {error}"))?;
        self.start = Some((arguments, job.case.unit));
        Ok(Answer::Ready(vec![1]))
    }
}

/// The ids of a prompt, separated by commas.
fn ids(file: &InputFile) -> Result<String, String> {
    let ids = read_u32(&file.path).map_err(|error| format!("{} cannot be read: {error}", file.path.display()))?;
    Ok(ids.iter().map(u32::to_string).collect::<Vec<_>>().join(","))
}

/// What each of the libraries calls its number of threads.
const THREAD_VARIABLES: [&str; 5] =
    ["TALLOW_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"];

impl Process {
    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Reply, String> {
        let line = serde_json::to_string(request).map_err(|error| format!("a request cannot be written: {error}"))?;
        pin::resume(&self.child);
        writeln!(self.stdin, "{line}").map_err(|error| format!("it does not listen: {error}"))?;
        let reply = match self.lines.recv_timeout(limit) {
            Ok(reply) => parse(&reply),
            Err(RecvTimeoutError::Timeout) => Err(format!("no answer within {} s", limit.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err("it ended without an answer".to_owned()),
        };
        pin::pause(&self.child);
        reply
    }

    /// Ends the process, and says how it ended.
    fn end(&mut self) -> String {
        // It may have ended by itself: then its own status is told.
        if let Ok(Some(status)) = self.child.try_wait() {
            return status.to_string();
        }
        // Ending it can only fail when it has just ended.
        let _ = self.child.kill();
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a reply.
fn parse(line: &str) -> Result<Reply, String> {
    serde_json::from_str(line).map_err(|error| {
        let start: String = line.chars().take(120).collect();
        format!("it answered {start:?}, which is no reply: {error}")
    })
}

impl Seat for Participant {
    fn key(&self) -> &str {
        &self.spec.key
    }

    fn prepare(&mut self, job: Job) -> Result<Answer, String> {
        self.start = None;
        if job.case.op == Op::LlmStart {
            return self.prepare_start(&job);
        }
        match self.ask(&Request::Prepare(Box::new(job)), PREPARE_LIMIT)? {
            Reply::Ready { dims } => Ok(Answer::Ready(dims)),
            Reply::Unsupported { reason } => Ok(Answer::Unsupported(reason)),
            Reply::Failed { message } => Err(message),
            other => Err(format!("it answered {other:?} to a case")),
        }
    }

    fn run(&mut self, warm: u32, times: u32) -> Result<Vec<u64>, String> {
        if let Some((arguments, unit)) = &self.start {
            // Each is a whole process: there is nothing to warm but the file's pages, which preparing did.
            let all = (0..times).map(|_| self.first_token(arguments));
            return all
                .map(|done| done.map(|(token, time)| if *unit == Unit::Bytes { token.peak } else { time }))
                .collect();
        }
        match self.ask(&Request::Run { warm, times }, RUN_LIMIT)? {
            Reply::Ran { nanoseconds } if nanoseconds.len() == times as usize => Ok(nanoseconds),
            Reply::Ran { nanoseconds } => Err(format!("it ran {} times, not {times}", nanoseconds.len())),
            Reply::Failed { message } => Err(message),
            other => Err(format!("it answered {other:?} to a run")),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn start(script: &str) -> Result<Participant, String> {
        let spec = Spec {
            key: format!("test-{}", std::process::id()),
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            starts: false,
        };
        Participant::start(spec, &pin::cpus(1), &std::env::temp_dir())
    }

    const HELLO: &str = r#"read line; echo '{"is":"hello","name":"N","version":"1","about":"a"}'; "#;

    #[test]
    fn answers_come_back_in_turn() {
        let script = format!(r#"{HELLO} read line; echo '{{"is":"ran","nanoseconds":[3,4]}}'"#);
        let mut participant = start(&script).unwrap();
        assert_eq!(participant.hello.name, "N");
        assert_eq!(participant.run(0, 2), Ok(vec![3, 4]));
    }

    #[test]
    fn nonsense_an_early_end_and_a_wrong_count_are_errors() {
        assert!(start("read line; echo nonsense").err().unwrap().contains("\"nonsense\", which is no reply"));
        assert!(start("exit 3").err().unwrap().contains("exit status: 3"));
        assert!(start(r#"read line; echo '{"is":"ready","dims":[]}'"#).err().unwrap().contains("who it is"));
        let script = format!(r#"{HELLO} read line; echo '{{"is":"ran","nanoseconds":[3]}}'"#);
        assert!(start(&script).unwrap().run(0, 2).unwrap_err().contains("1 times, not 2"));
    }

    #[test]
    fn silence_is_an_error_and_the_process_is_started_anew() {
        let mut participant = start(&format!("{HELLO} read line; sleep 60")).unwrap();
        let error = participant.ask(&Request::Floors, Duration::from_millis(100)).unwrap_err();
        assert!(error.contains("no answer"), "{error}");
        assert!(matches!(participant.ask(&Request::Hello, PREPARE_LIMIT), Ok(Reply::Hello(_))));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let spec =
            Spec { key: "none".into(), program: "/no/such/program".into(), arguments: Vec::new(), starts: false };
        let error = Participant::start(spec, &[0], &std::env::temp_dir()).err().unwrap();
        assert!(error.contains("/no/such/program"), "{error}");
    }
}
