//! A persistent fork-join pool for steps that last some tens of microseconds.
//!
//! One job at a time is published in a cell and guarded by one word, `state` = {epoch, open, active}. A worker
//! joins an open job by adding 1 to `active` with a compare-exchange, takes chunk numbers from a counter, and
//! subtracts 1. The caller does the same work, closes the job, and waits until `active` is 0. So the caller never
//! waits for a worker that did not wake in time. The job cell is written only while the word is closed with
//! `active` = 0, and read only by those counted in `active`.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker spins for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Bit of `state`: the job may be joined.
const OPEN: u64 = 1 << 32;
/// One step of the epoch, above `OPEN`.
const EPOCH: u64 = 1 << 33;
/// Mask of the count of joined workers.
const ACTIVE: u64 = OPEN - 1;

thread_local! {
    /// Whether this thread is inside a chunk: a nested `run` is then done inline.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

type Task = dyn Fn(usize) + Sync;

#[derive(Clone, Copy)]
struct Job {
    /// The lifetime is erased: `run` does not return before nobody can reach this any more.
    task: *const Task,
    chunks: usize,
}

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    /// The next chunk to take.
    next: AtomicUsize,
    sleepers: AtomicUsize,
    gate: Mutex<()>,
    bell: Condvar,
    stop: AtomicBool,
    /// The first panic of the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the only part that is not Sync by itself; the protocol above keeps its writes apart from reads,
// and the task behind its pointer is Sync.
unsafe impl Sync for Shared {}
// SAFETY: the task pointer is only used while `run` keeps the task alive, from any thread (it is Sync).
unsafe impl Send for Shared {}

/// Threads that wait for chunks of work.
pub struct Pool {
    shared: Arc<Shared>,
    /// Held during a job: two callers take turns.
    turn: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads, the caller's included: 0 and 1 both mean that everything runs inline. Where a
    /// thread cannot be started (always so on wasm), the pool is as much smaller.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            gate: Mutex::new(()),
            bell: Condvar::new(),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut workers = Vec::new();
        if !cfg!(target_arch = "wasm32") {
            for index in 1..threads {
                let shared = Arc::clone(&shared);
                let worker = std::thread::Builder::new().name(format!("tallow-cpu-{index}"));
                match worker.spawn(move || shared.work()) {
                    Ok(handle) => workers.push(handle),
                    Err(_) => break,
                }
            }
        }
        Pool { shared, turn: Mutex::new(()), workers }
    }

    /// The process's pool: `TALLOW_THREADS` threads where that is a positive number, else one a core.
    pub fn global() -> &'static Pool {
        static GLOBAL: OnceLock<Pool> = OnceLock::new();
        GLOBAL.get_or_init(|| Pool::new(default_threads()))
    }

    /// Threads that work on a job, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for each `i` in `0..chunks`, on several threads, and returns when all are done. Inside a
    /// chunk, a further `run` (of any pool) is done inline. A panic in a chunk comes out of `run` after all chunks
    /// have finished (inline, at once); the pool stays usable.
    pub fn run(&self, chunks: usize, task: &(dyn Fn(usize) + Sync)) {
        if chunks <= 1 || self.workers.is_empty() || INSIDE.get() {
            for chunk in 0..chunks {
                task(chunk);
            }
            return;
        }
        let turn = lock(&self.turn);
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. The pointer is dropped from `job`'s reach before this function returns:
        // chunks run under `catch_unwind`, and the close below waits until no worker is inside.
        let task: *const Task = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const Task>(task) };
        let job = Job { task, chunks };
        // SAFETY: `turn` is held and the last job was closed with no worker inside, so nobody else reads this.
        unsafe { *shared.job.get() = Some(job) };
        shared.next.store(0, Ordering::Relaxed);
        let epoch = (shared.state.load(Ordering::Relaxed) & !(OPEN | ACTIVE)).wrapping_add(EPOCH);
        shared.state.store(epoch | OPEN, Ordering::SeqCst);
        let sleepers = shared.sleepers.load(Ordering::SeqCst);
        if sleepers > 0 {
            drop(lock(&shared.gate));
            if chunks > sleepers {
                shared.bell.notify_all();
            } else {
                (1..chunks).for_each(|_| shared.bell.notify_one());
            }
        }
        shared.take_chunks(job);
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while shared.state.load(Ordering::Acquire) & ACTIVE != 0 {
            spins = spins.saturating_add(1);
            if spins < 20_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let panic = lock(&shared.panic).take();
        drop(turn);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Splits `0..items` into ranges of at least `grain` items, some for each thread, and calls `task` on each.
    pub fn run_ranges(&self, items: usize, grain: usize, task: &(dyn Fn(std::ops::Range<usize>) + Sync)) {
        let grain = grain.max(1);
        let pieces = (items / grain).clamp(1, self.threads() * 4);
        if items == 0 {
            return;
        }
        let size = items.div_ceil(pieces);
        self.run(items.div_ceil(size), &|chunk| task(chunk * size..((chunk + 1) * size).min(items)));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.gate));
        self.shared.bell.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its chunks' panics, so this cannot fail; and there is nothing to do if it did.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut seen = 0;
        let mut idle_since = None;
        let mut spins = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            let state = self.state.load(Ordering::Acquire);
            let epoch = state & !(OPEN | ACTIVE);
            if state & OPEN != 0 && epoch != seen {
                if self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    // SAFETY: this thread is counted in `active`, so the cell is not written now.
                    if let Some(job) = unsafe { *self.job.get() } {
                        self.take_chunks(job);
                    }
                    self.state.fetch_sub(1, Ordering::AcqRel);
                    seen = epoch;
                    (idle_since, spins) = (None, 0);
                }
                continue;
            }
            std::hint::spin_loop();
            spins += 1;
            if spins.is_multiple_of(64) {
                let since = *idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SPIN {
                    self.sleep(seen);
                    (idle_since, spins) = (None, 0);
                }
            }
        }
    }

    fn sleep(&self, seen: u64) {
        let mut gate = lock(&self.gate);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        loop {
            // After `sleepers` was raised: either this load sees a new job, or its caller sees the sleeper and rings.
            let state = self.state.load(Ordering::SeqCst);
            if (state & OPEN != 0 && state & !(OPEN | ACTIVE) != seen) || self.stop.load(Ordering::SeqCst) {
                break;
            }
            gate = self.bell.wait(gate).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn take_chunks(&self, job: Job) {
        INSIDE.set(true);
        loop {
            let chunk = self.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= job.chunks {
                break;
            }
            // SAFETY: `run` keeps the task alive until every thread in here has left.
            let task = unsafe { &*job.task };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(chunk))) {
                lock(&self.panic).get_or_insert(payload);
            }
        }
        INSIDE.set(false);
    }
}

fn default_threads() -> usize {
    let asked = std::env::var("TALLOW_THREADS").ok().and_then(|text| text.trim().parse::<usize>().ok());
    match asked {
        Some(threads) if threads > 0 => threads.min(1024),
        _ => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(pool: &Pool, chunks: usize) {
        let hits: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(chunks, &|i| {
            hits[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(hits.iter().all(|hit| hit.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_chunk_runs_once() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for round in 0..3000 {
                count(&pool, round % 37);
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            count(&pool, 50);
        }
    }

    #[test]
    fn two_threads_and_nested_runs() {
        let pool = Pool::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let total = AtomicUsize::new(0);
                        pool.run(5, &|_| {
                            pool.run(4, &|i| {
                                total.fetch_add(i, Ordering::Relaxed);
                            });
                        });
                        assert_eq!(total.into_inner(), 5 * 6);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_comes_out_after_all_chunks() {
        let pool = Pool::new(3);
        for _ in 0..50 {
            let done = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(20, &|i| {
                    assert!(i != 7, "seven");
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }));
            assert!(result.is_err());
            assert_eq!(done.into_inner(), 19);
            count(&pool, 10);
        }
    }

    #[test]
    fn ranges_cover_everything() {
        let pool = Pool::new(2);
        for items in [0, 1, 5, 100, 1001] {
            let total = AtomicUsize::new(0);
            pool.run_ranges(items, 7, &|range| {
                total.fetch_add(range.len(), Ordering::Relaxed);
            });
            assert_eq!(total.into_inner(), items);
        }
    }
}
