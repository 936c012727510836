//! Measures the ways to run a kernel on this very GPU, once for each kernel and class of sizes, and keeps the choices on
//! disk: a file for each device, driver and version of this crate. A file that is broken, or another device's, is ignored
//! with a note and written anew. Estimates choose where nothing is measured: in browsers, on software devices (unless
//! asked for), for kernels with one way, and once a process has measured for [`BUDGET`].

use super::{backend::Inner, open::Tune};
use crate::library::Room;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use smallvec::SmallVec;
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tallow_graph::{Args, Buffer, Implementation, Info, Kernel, Program, Result, Run, Scalar, Step};

/// The most that one process measures. What is left is measured by the next one.
const BUDGET: Duration = Duration::from_secs(3);
/// Ways that are estimated to be so many times slower than the best are not tried.
const HOPELESS: f32 = 12.0;
/// The most memory that a measurement may take.
const MEMORY: u64 = 1 << 30;
/// The shortest run that a clock on the host tells anything about, submit and wait included.
const LEAST: Duration = Duration::from_millis(2);
/// Steps of one run, at most.
const STEPS: usize = 256;

/// What a file of choices is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    version: String,
    device: String,
    driver: String,
    tier: String,
}

impl Identity {
    fn to_json(&self, choices: &BTreeMap<String, u32>) -> Value {
        let choices: Map<String, Value> = choices.iter().map(|(key, id)| (key.clone(), json!(id))).collect();
        json!({
            "tallow": self.version,
            "device": self.device,
            "driver": self.driver,
            "features": self.tier,
            "choices": choices,
        })
    }

    /// The choices of a file, if it is this identity's.
    fn choices(&self, text: &str) -> std::result::Result<BTreeMap<String, u32>, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        for (name, own) in
            [("tallow", &self.version), ("device", &self.device), ("driver", &self.driver), ("features", &self.tier)]
        {
            if json.get(name).and_then(Value::as_str) != Some(own) {
                return Err(format!("its {name} is not {own}"));
            }
        }
        let choices = json.get("choices").and_then(Value::as_object).ok_or("it has no choices")?;
        choices
            .iter()
            .map(|(key, id)| {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                id.map(|id| (key.clone(), id)).ok_or_else(|| format!("the choice of {key} is no number"))
            })
            .collect()
    }

    /// FNV-1a: a name that stays the same from build to build.
    fn file_name(&self) -> String {
        let text = [&self.version, &self.device, &self.driver, &self.tier].map(String::as_str).join("\n");
        let hash = text
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        format!("tune-{hash:016x}.json")
    }
}

struct State {
    /// By kernel and class of sizes.
    choices: BTreeMap<String, u32>,
    spent: Duration,
}

/// The choices of a device.
pub(super) struct Tuner {
    identity: Identity,
    /// `None`: nothing is kept.
    file: Option<PathBuf>,
    state: Mutex<State>,
}

impl Tuner {
    /// For a device, if it is to be measured; `folder` is where choices are kept.
    pub(super) fn new(tune: Tune, folder: Option<&Path>, info: &Info) -> Option<Self> {
        let on = match tune {
            Tune::Never => false,
            Tune::Always => true,
            Tune::Hardware => !info.software,
        };
        if !on {
            return None;
        }
        let identity = Identity {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device: info.name.clone(),
            driver: info.driver.clone(),
            tier: info.features.join(" "),
        };
        let file = folder.map(|folder| folder.join(identity.file_name()));
        let choices = file.as_deref().map_or_else(BTreeMap::new, |file| load(&identity, file));
        Some(Self { identity, file, state: Mutex::new(State { choices, spent: Duration::ZERO }) })
    }

    /// The best of these ways, measured now if it was not before; `None` where that cannot be told.
    pub(super) fn choose(&self, inner: &Inner, kernel: &Kernel, words: &[i64], ways: &[Implementation]) -> Option<u32> {
        let best = ways.iter().map(|way| way.cost).fold(f32::INFINITY, f32::min);
        let hopeful: SmallVec<[&Implementation; 4]> = ways.iter().filter(|way| way.cost <= best * HOPELESS).collect();
        if hopeful.len() < 2 {
            return None;
        }
        let key = format!("{:?} {kernel:?}", classes(kernel, words)?);
        let mut state = self.state.lock();
        if let Some(&id) = state.choices.get(&key) {
            // A file may name what this version does not offer for these sizes.
            return ways.iter().any(|way| way.id == id).then_some(id);
        }
        if state.spent >= BUDGET {
            return None;
        }
        let start = Instant::now();
        let timed = hopeful.iter().filter_map(|way| Some((way.id, measure(inner, kernel, words, way).ok()??)));
        let chosen = timed.min_by(|a, b| a.1.cmp(&b.1)).map(|(id, _)| id);
        state.spent += start.elapsed();
        let id = chosen?;
        state.choices.insert(key, id);
        if let Some(file) = &self.file
            && let Err(error) = save(&self.identity, file, &mut state.choices)
        {
            log::warn!("{}: measured choices cannot be kept: {error}", file.display());
        }
        Some(id)
    }
}

/// The choices of a file; none where it is not there, and none with a note where it is of no use.
fn load(identity: &Identity, file: &Path) -> BTreeMap<String, u32> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return BTreeMap::new(),
        Err(error) => {
            log::warn!("{}: measured choices cannot be read: {error}", file.display());
            return BTreeMap::new();
        }
    };
    identity.choices(&text).unwrap_or_else(|why| {
        log::warn!("{} holds no choices for this device, and is ignored: {why}", file.display());
        BTreeMap::new()
    })
}

/// Writes the choices, with those that another process has made meanwhile.
fn save(identity: &Identity, file: &Path, choices: &mut BTreeMap<String, u32>) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    if let Ok(others) = std::fs::read_to_string(file).map(|text| identity.choices(&text)) {
        for (key, id) in others.unwrap_or_default() {
            choices.entry(key).or_insert(id);
        }
    }
    // Whole or not at all: a reader never sees half a file.
    let part = file.with_extension(format!("part-{}", std::process::id()));
    let written =
        std::fs::write(&part, format!("{:#}\n", identity.to_json(choices))).and_then(|()| std::fs::rename(&part, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// The sizes that matter to the choice, each to a power of two; `None` for kernels that are not measured.
fn classes(kernel: &Kernel, words: &[i64]) -> Option<SmallVec<[u32; 8]>> {
    let sizes: SmallVec<[i64; 8]> = match kernel {
        Kernel::Contract(k) => {
            let batch = usize::from(k.batch);
            let at = crate::library::contract_sizes(k);
            words.get(..batch + 2)?.iter().copied().chain(at.iter().filter_map(|&n| words.get(n).copied())).collect()
        }
        Kernel::Attention(_) => words.get(..7)?.into(),
        Kernel::Row(k) => words.get(..usize::from(k.outer) + usize::from(k.inner))?.into(),
        _ => return None,
    };
    Some(sizes.iter().map(|&size| u64::try_from(size).unwrap_or(0).max(1).next_power_of_two().ilog2()).collect())
}

/// Bytes of each input and output that a step of these words reaches; `None` where that is too much.
fn extents(inner: &Inner, kernel: &Kernel, words: &[i64]) -> Result<Option<Vec<u64>>> {
    let room = Room { binding: u64::MAX >> 8, align: 16, buffers: inner.target.max_storage_buffers as usize };
    let cut = (inner.library.split)(kernel, words, SCALARS, &room)?;
    let mut bytes: Vec<u64> = Vec::new();
    for window in cut.pieces.iter().flat_map(|piece| &piece.windows) {
        if bytes.len() <= window.buffer {
            bytes.resize(window.buffer + 1, 16);
        }
        bytes[window.buffer] = bytes[window.buffer].max(window.offset.saturating_add(window.bytes));
    }
    let most = inner.gpu.limits.max_storage_buffer_binding_size;
    let fits = cut.temporaries.is_empty()
        && !bytes.is_empty()
        && bytes.iter().all(|&bytes| bytes <= most)
        && bytes.iter().fold(0u64, |sum, &bytes| sum.saturating_add(bytes)) <= MEMORY;
    Ok(fits.then_some(bytes))
}

/// Scalars that a measured step brings: more than any needs.
const SCALARS: usize = 64;

/// The time of one step; `None` where it cannot be measured. The buffers hold whatever memory held.
fn measure(inner: &Inner, kernel: &Kernel, words: &[i64], way: &Implementation) -> Result<Option<Duration>> {
    let Some(bytes) = extents(inner, kernel, words)? else { return Ok(None) };
    let allocate = |bytes: u64| -> Result<Buffer> { Ok(Arc::new(inner.pool.allocate(bytes)?)) };
    let mut buffers = bytes.iter().map(|&bytes| allocate(bytes)).collect::<Result<Vec<Buffer>>>()?;
    let outputs = match kernel {
        Kernel::Contract(k) => k.parts.len(),
        _ => 1,
    };
    let count = buffers.len() as u32;
    let first = count.saturating_sub(outputs as u32);
    let scratch = (way.scratch > 0).then_some(count);
    if way.scratch > 0 {
        buffers.push(allocate(way.scratch)?);
    }
    let step = Step {
        kernel: Arc::new(kernel.clone()),
        implementation: way.id,
        inputs: (0..first).collect(),
        outputs: (first..count).collect(),
        in_place: false,
        scratch,
        after: SmallVec::new(),
    };
    let scalars = [Scalar::F(1.0); SCALARS];
    let time = |steps: usize| -> Result<Duration> {
        let program = Program { steps: vec![step.clone(); steps], buffers: buffers.len() };
        let args = vec![Args { words: 0..words.len() as u32, scalars: 0..SCALARS as u32 }; steps];
        let prepared = inner.prepare_program(&program)?;
        let run = Run { program: &program, buffers: &buffers, args: &args, words, scalars: &scalars };
        let start = Instant::now();
        inner.run(&prepared, run)?;
        inner.wait_for_all()?;
        Ok(start.elapsed())
    };
    // The first one compiles, and wakes the device.
    time(1)?;
    let mut steps = 1;
    let mut once = time(steps)?;
    while once < LEAST && steps < STEPS {
        steps = (steps * 4).min(STEPS);
        once = time(steps)?;
    }
    let best = (0..2).try_fold(once, |best, _| Ok::<_, tallow_graph::Error>(best.min(time(steps)?)))?;
    Ok(Some(best / steps as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            version: "1".into(),
            device: "A \"GPU\"".into(),
            driver: "Vulkan 1".into(),
            tier: "shader-f16".into(),
        }
    }

    #[test]
    fn files_of_others_and_broken_ones_hold_no_choices() {
        let own = identity();
        let choices = BTreeMap::from([("a {\"b\"}".to_string(), 3u32), ("c".to_string(), 0)]);
        let text = own.to_json(&choices).to_string();
        assert_eq!(own.choices(&text).unwrap(), choices);
        for other in [
            Identity { version: "2".into(), ..identity() },
            Identity { device: "B".into(), ..identity() },
            Identity { driver: "Vulkan 2".into(), ..identity() },
            Identity { tier: String::new(), ..identity() },
        ] {
            assert!(other.choices(&text).is_err(), "{other:?}");
            assert_ne!(other.file_name(), own.file_name());
        }
        for broken in
            [&text[..text.len() / 2], "", "[]", "{}", &text.replace(":3", ":-3"), &text.replace(":3", ":\"x\"")]
        {
            assert!(own.choices(broken).is_err(), "{broken}");
        }
    }
}
