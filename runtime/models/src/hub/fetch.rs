//! Downloads one file into its slot: resumes, repeats, verifies, and commits.
//!
//! A `.part` is continued only if the server still has the same file: by its strong entity tag (If-Range), or because
//! the sha256 is known, which then decides. A server that ignores Range, or answers with another one, means a clean
//! start. A wrong sha256 removes the `.part`; every other failure keeps it for the next run.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use tallow_graph::Error;

use super::cache::{PartInfo, Slot};
use super::http::{Client, Reply, Tail};
use super::name::HubName;
use super::seal::{CHUNK, hash_exactly, hex};
use super::words::refusal;
use super::{Failure, Options, Progress, interrupted};

/// The longest wait between two tries, whatever the server asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A try that came at least this much further than any before counts as success: earlier failures are forgotten.
const GAIN: u64 = 1 << 20;

/// What is known of the file beforehand.
pub(super) struct Wanted<'a> {
    pub name: &'a HubName,
    pub sha256: Option<&'a str>,
    pub bytes: Option<u64>,
}

/// Why a try ended.
enum Trouble {
    /// No use in trying again.
    Final(Failure),
    /// Perhaps the next try does better.
    Passing {
        why: String,
        /// The size that the `.part` reached, if this try added to it.
        reached: u64,
        /// What the server asks for.
        wait: Option<u64>,
        /// No answer came at all.
        silent: bool,
    },
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Final(Failure::Stop(error))
    }
}

/// Fetches the file and commits it to `slot`, whose lock the caller holds.
pub(super) fn download(
    client: &Client,
    wanted: &Wanted<'_>,
    slot: &Slot,
    options: &Options,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    let mut failures = 0;
    let mut furthest = 0;
    loop {
        let (why, reached, wait, silent) = match attempt(client, wanted, slot, progress) {
            Ok(()) => return Ok(()),
            Err(Trouble::Final(failure)) => return Err(failure),
            Err(Trouble::Passing { why, reached, wait, silent }) => (why, reached, wait, silent),
        };
        failures = if reached >= furthest + GAIN { 1 } else { failures + 1 };
        furthest = furthest.max(reached);
        // A host that has never answered is given one more chance only: other sources wait.
        let limit = if silent && furthest == 0 { options.retries.min(1) } else { options.retries };
        if failures > limit {
            let resume = if slot.part_info().is_some() { "; run again to resume" } else { "" };
            return Err(Failure::Source(format!("{why}{resume}")));
        }
        let backoff = options.backoff.saturating_mul(1 << (failures - 1).min(16));
        let wait = wait.map_or(backoff, |seconds| backoff.max(Duration::from_secs(seconds))).min(LONGEST_WAIT);
        progress.message(&format!("{why}; trying again"));
        pause(wait, progress).map_err(Failure::Stop)?;
    }
}

/// One request and its body.
fn attempt(client: &Client, wanted: &Wanted<'_>, slot: &Slot, progress: &dyn Progress) -> Result<(), Trouble> {
    let mut part = slot.open_part()?;
    let info = slot.part_info().unwrap_or_default();
    let have = resumable(&part, &info, wanted, slot)?;
    if have > 0 && Some(have) == info.size.or(wanted.bytes) {
        // The last run died between the last byte and the rename.
        let expected = wanted.sha256.map(str::to_string).or(info.sha256);
        return finish(slot, part, have, None, expected.as_deref(), progress, "the earlier run", true);
    }
    let tail = (have > 0).then_some(Tail { from: have, if_etag: info.etag.as_deref() });
    let url = wanted.name.url(client.endpoint());
    progress.message(&match have {
        0 => format!("fetching {} from {}", wanted.name, client.endpoint()),
        _ => format!("resuming {} at {have} bytes", wanted.name),
    });
    let reply = client.get(&url, tail.as_ref()).map_err(|no| match no.lasting {
        true => Trouble::Final(Failure::Source(no.message)),
        false => Trouble::Passing { why: no.message, reached: 0, wait: None, silent: true },
    })?;
    let have = match reply.status {
        200 => 0,
        206 if tail.is_some() && continues(&reply, have, &info) => have,
        206 | 416 if tail.is_some() => return restart(slot, "the server has another file than before"),
        408 | 429 | 500.. => {
            let wait = reply.retry_after();
            return passing(refusal(&reply, client, wanted.name), 0, wait);
        }
        _ => return Err(source(refusal(&reply, client, wanted.name))),
    };
    if reply.is_encoded() {
        return Err(source(format!("{} sends the file compressed, though that was not asked for", reply.host)));
    }
    let total = total(&reply, have);
    let expected = judge(&reply, wanted, total).map_err(source)?;
    if have > 0 && info.sha256.is_some() && expected.is_some() && info.sha256 != expected {
        return restart(slot, "the file on the hub has changed since the earlier run");
    }
    if have == 0 {
        truncate(&part, slot)?;
    }
    slot.set_part_info(&PartInfo {
        etag: reply.strong_etag().map(str::to_string),
        sha256: expected.clone(),
        size: total,
    })?;
    let mut hasher = Sha256::new();
    if have > 0 && slot_io(hash_exactly(&mut part, have, &mut hasher, progress), slot)? != have {
        return if progress.cancelled() {
            Err(interrupted().into())
        } else {
            restart(slot, "what was fetched before has become shorter")
        };
    }
    slot_io(part.seek(SeekFrom::Start(have)), slot)?;
    progress.start(total, have);
    let host = reply.host.clone();
    let mut sink = Sink { part, hasher, size: have, total };
    copy(reply.body, &mut sink, slot, progress, &host)?;
    let Sink { part, hasher, size, .. } = sink;
    if let Some(total) = total
        && size != total
    {
        return passing(format!("{host} broke off after {size} of {total} bytes"), size, None);
    }
    finish(slot, part, size, Some(hasher), expected.as_deref(), progress, &host, have > 0)
}

/// How many bytes of the `.part` can be built upon; the rest is cut off.
fn resumable(part: &File, info: &PartInfo, wanted: &Wanted<'_>, slot: &Slot) -> Result<u64, Trouble> {
    let have = slot_io(part.metadata(), slot)?.len();
    let same = match (wanted.sha256, info.sha256.as_deref()) {
        (Some(wanted), Some(found)) => wanted == found,
        (Some(_), None) | (None, Some(_)) => true,
        // Without a sha256, only the server's tag can promise that it is still the same file.
        (None, None) => info.etag.is_some() && info.size != Some(have),
    };
    let fits = info.size.or(wanted.bytes).is_none_or(|size| have <= size);
    let known = *info != PartInfo::default();
    if known && same && fits {
        return Ok(have);
    }
    truncate(part, slot)?;
    Ok(0)
}

fn truncate(part: &File, slot: &Slot) -> Result<(), Trouble> {
    if slot_io(part.metadata(), slot)?.len() > 0 {
        slot_io(part.set_len(0), slot)?;
    }
    Ok(())
}

/// Whether a 206 is the rest of what is there.
fn continues(reply: &Reply, have: u64, info: &PartInfo) -> bool {
    let Some((first, total)) = reply.content_range() else { return false };
    let same_size = match (total, info.size) {
        (Some(total), Some(size)) => total == size,
        _ => true,
    };
    let same_tag = match (reply.strong_etag(), info.etag.as_deref()) {
        (Some(now), Some(then)) => now == then,
        _ => true,
    };
    first == have && total.is_none_or(|total| total >= have) && same_size && same_tag
}

/// The size of the whole file, if any header says it.
fn total(reply: &Reply, have: u64) -> Option<u64> {
    let told = match reply.status {
        206 => reply.content_range().and_then(|(_, total)| total),
        _ => reply.content_length(),
    };
    told.or(reply.linked_size).filter(|total| *total >= have)
}

/// Compares what the server announces with what is wanted, before any byte is stored; gives the sha256 to expect.
fn judge(reply: &Reply, wanted: &Wanted<'_>, total: Option<u64>) -> Result<Option<String>, String> {
    let host = &reply.host;
    if let (Some(total), Some(bytes)) = (total, wanted.bytes)
        && total != bytes
    {
        return Err(format!("{host} offers another file: {total} bytes instead of {bytes}"));
    }
    match (wanted.sha256, &reply.linked_sha256) {
        (Some(wanted), Some(linked)) if wanted != linked => {
            Err(format!("{host} offers another file: wrong sha256 {linked} instead of {wanted}"))
        }
        (Some(wanted), _) => Ok(Some(wanted.into())),
        (None, linked) => Ok(linked.clone()),
    }
}

/// Where a body goes.
struct Sink {
    part: File,
    hasher: Sha256,
    /// Bytes in `part` and `hasher`.
    size: u64,
    /// Bytes that there will be, if known.
    total: Option<u64>,
}

/// Moves the body into the `.part`; a server that sends more than it announced is cut off.
fn copy(
    mut body: Box<dyn Read>,
    sink: &mut Sink,
    slot: &Slot,
    progress: &dyn Progress,
    host: &str,
) -> Result<(), Trouble> {
    let mut buffer = vec![0; CHUNK];
    loop {
        if progress.cancelled() {
            return Err(interrupted().into());
        }
        let n = match body.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => {
                let of = sink.total.map_or_else(String::new, |total| format!(" of {total}"));
                return passing(format!("{host} broke off after {}{of} bytes ({e})", sink.size), sink.size, None);
            }
        };
        if sink.total.is_some_and(|total| sink.size + n as u64 > total) {
            slot.discard_part()?;
            return Err(source(format!("{host} sends more bytes than it announced")));
        }
        let chunk = buffer.get(..n).unwrap_or_default();
        slot_io(sink.part.write_all(chunk), slot)?;
        sink.hasher.update(chunk);
        sink.size += n as u64;
        progress.advance(n as u64);
    }
}

/// Checks the sha256 of the complete `.part` and commits it.
#[allow(clippy::too_many_arguments)]
fn finish(
    slot: &Slot,
    mut part: File,
    size: u64,
    hasher: Option<Sha256>,
    expected: Option<&str>,
    progress: &dyn Progress,
    host: &str,
    resumed: bool,
) -> Result<(), Trouble> {
    let hasher = match hasher {
        Some(hasher) => hasher,
        None => {
            let mut hasher = Sha256::new();
            slot_io(hash_exactly(&mut part, size, &mut hasher, progress), slot)?;
            if progress.cancelled() {
                return Err(interrupted().into());
            }
            hasher
        }
    };
    let found = hex(&hasher.finalize());
    if let Some(expected) = expected
        && found != expected
    {
        if resumed {
            // The two halves may come from different files: one clean start decides.
            return restart(slot, "the resumed file has a wrong sha256");
        }
        slot.discard_part()?;
        return Err(source(format!(
            "what {host} sent has a wrong sha256 ({found} instead of {expected}) and was removed"
        )));
    }
    slot.commit(part, &found)?;
    progress.finish();
    Ok(())
}

fn restart<T>(slot: &Slot, why: &str) -> Result<T, Trouble> {
    slot.discard_part()?;
    passing(format!("{why}: starting anew"), 0, Some(0))
}

fn passing<T>(why: String, reached: u64, wait: Option<u64>) -> Result<T, Trouble> {
    Err(Trouble::Passing { why, reached, wait, silent: false })
}

fn source(why: String) -> Trouble {
    Trouble::Final(Failure::Source(why))
}

fn slot_io<T>(result: io::Result<T>, slot: &Slot) -> Result<T, Trouble> {
    result.map_err(|e| slot.cannot_write(&slot.part, e).into())
}

/// Sleeps, but hears a cancellation.
pub(super) fn pause(time: Duration, progress: &dyn Progress) -> tallow_graph::Result<()> {
    let end = Instant::now() + time;
    loop {
        if progress.cancelled() {
            return Err(interrupted());
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
