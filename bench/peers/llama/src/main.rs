//! llama.cpp as a participant of `cargo xtask bench llm`: `bench-llama FOLDER`, the folder of its libraries.

mod library;

use std::path::Path;
use std::process::ExitCode;

use library::{Context, Library};
use tallow_bench_protocol::{
    Hello, Job, Model, Participant, Prepared, Refusal, first_token, greedy, prepare_model, read_u32, serve,
};

/// Positions that the longest case needs; for a first token, what the library takes by default.
const CONTEXT: u32 = 1024;
const SHORT_CONTEXT: u32 = 512;

struct Llama(Context);

impl Model for Llama {
    fn logits(&mut self, prompt: &[u32]) -> Result<Vec<f32>, Refusal> {
        self.0.clear();
        self.0.decode(prompt).map(<[f32]>::to_vec).map_err(Refusal::Failed)
    }

    fn generate(&mut self, prompt: &[u32], count: usize, token: &mut dyn FnMut(u32)) -> Result<(), Refusal> {
        self.0.clear();
        let mut id = greedy(self.0.decode(prompt).map_err(Refusal::Failed)?);
        for left in (0..count).rev() {
            token(id);
            if left > 0 {
                id = greedy(self.0.decode(&[id]).map_err(Refusal::Failed)?);
            }
        }
        Ok(())
    }
}

struct Peer(&'static Library);

fn threads() -> i32 {
    std::env::var("OMP_NUM_THREADS").ok().and_then(|threads| threads.parse().ok()).unwrap_or(1)
}

fn load(library: &'static Library, path: &Path, positions: u32) -> Result<Box<dyn Model>, Refusal> {
    let context = library.load(path, positions, threads()).map_err(Refusal::Failed)?;
    Ok(Box::new(Llama(context)))
}

impl Participant for Peer {
    fn hello(&self) -> Hello {
        let about = format!("npm @node-llama-cpp/linux-x64 3.22.1, {}", self.0.instructions());
        Hello { name: "llama.cpp".into(), version: self.0.version(), about }
    }

    fn prepare(&mut self, job: &Job) -> Result<Prepared, Refusal> {
        let (Some(model), [prompt]) = (&job.model, job.inputs.as_slice()) else {
            return Err(Refusal::Unsupported("no model".into()));
        };
        prepare_model(load(self.0, model, CONTEXT)?, &job.case.op, read_u32(&prompt.path)?)
    }
}

fn main() -> ExitCode {
    let run = || -> Result<(), String> {
        let folder = std::env::args_os().nth(1).ok_or("the folder of llama.cpp's libraries is missing")?;
        let library = Library::open(Path::new(&folder))?;
        first_token(|path| load(library, path, SHORT_CONTEXT))
            .unwrap_or_else(|| serve(&mut Peer(library)).map_err(|error| error.to_string()))
    };
    if let Err(error) = run() {
        eprintln!("bench-llama: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
