//! What the engine makes of a backend's answers: the cheapest implementation, its scratch memory, refused dtypes and
//! fusions, errors, and how many plans are kept.

use crate::common::*;
use smallvec::{SmallVec, smallvec};
use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tallow_graph::{
    Backend, BoxFuture, Buffer, Counters, DType, Engine, Error, Fault, HostBytes, Implementation, Info, Kernel,
    Options, Prepared, Program, Result, Run, Scalar, Shape, UnaryOp,
    kernel::{Custom, RowOp},
    ops,
    reference::Reference,
};

const F32: f64 = 1e-6;

/// The reference, with two ways to run a product, of which the cheaper wants scratch memory as large as its operand; and
/// with switches that make submits fail, before or after the work.
#[derive(Default)]
struct Picky {
    inner: Reference,
    fail: AtomicU64,
    late: AtomicU64,
    /// Other limits than the reference's.
    info: Option<Info>,
    /// Called before each run.
    gate: Option<Box<dyn Fn() + Send + Sync>>,
    scratch: AtomicU64,
}

impl Backend for Picky {
    fn info(&self) -> &Info {
        self.info.as_ref().unwrap_or(self.inner.info())
    }
    fn check_dtype(&self, dtype: DType) -> Result<()> {
        match dtype {
            DType::F64 => Err(Error::Device("no F64 here: use F32".into())),
            _ => Ok(()),
        }
    }
    fn lower(&self, kernel: &Kernel, words: &[i64]) -> SmallVec<[Implementation; 2]> {
        match kernel {
            Kernel::Contract(_) => smallvec![
                Implementation { id: 3, scratch: 0, cost: 2.0 },
                Implementation { id: 5, scratch: words[0] as u64 * 64, cost: 1.0 },
            ],
            other => {
                let fits = !matches!(other, Kernel::Map(_)) || words.len() <= self.info().max_words;
                assert!(fits, "{} words are too many: {other:?}", words.len());
                self.inner.lower(other, words)
            }
        }
    }
    fn check_custom(&self, custom: &Custom, _: &[DType], _: DType) -> Result<()> {
        custom.cpu().map(|_| ()).ok_or_else(|| custom.missing("a CPU closure"))
    }

    fn prepare(&self, program: &Program) -> Result<Arc<dyn Prepared>> {
        self.inner.prepare(program)
    }
    fn submit(&self, prepared: &dyn Prepared, run: Run<'_>) -> Result<Vec<Fault>> {
        if let Some(gate) = &self.gate {
            gate();
        }
        if self.fail.load(Ordering::Relaxed) > 0 {
            return Err(Error::msg("the device is on strike"));
        }
        for (i, step) in run.program.steps.iter().enumerate() {
            if let Some(scratch) = step.scratch {
                assert_eq!(step.implementation, 5);
                let bytes = run.buffers[scratch as usize].bytes();
                assert!(bytes >= run.data(i).0[0] as u64 * 64, "grows with the data");
                self.scratch.store(bytes, Ordering::Relaxed);
            }
        }
        let faults = self.inner.submit(prepared, run)?;
        match self.late.load(Ordering::Relaxed) {
            0 => Ok(faults),
            _ => Err(Error::msg("the device went home early")),
        }
    }
    fn allocate(&self, bytes: u64) -> Result<Buffer> {
        self.inner.allocate(bytes)
    }
    fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write(buffer, offset, bytes)
    }
    fn read(&self, buffer: &Buffer, range: Range<u64>) -> BoxFuture<'static, Result<Vec<u8>>> {
        self.inner.read(buffer, range)
    }
    fn ready(&self) -> BoxFuture<'static, Result<()>> {
        self.inner.ready()
    }
    fn packed_bytes(&self, dtype: DType, rows: usize, cols: usize) -> Result<u64> {
        self.inner.packed_bytes(dtype, rows, cols)
    }
    fn pack(&self, d: DType, rows: usize, cols: usize, source: HostBytes, range: Range<usize>) -> Result<Buffer> {
        self.inner.pack(d, rows, cols, source, range)
    }
    fn pack_rows(&self, b: &Buffer, d: DType, rows: usize, cols: usize, first: usize, bytes: &[u8]) -> Result<()> {
        self.inner.pack_rows(b, d, rows, cols, first, bytes)
    }
    fn unpack(&self, buffer: &Buffer, dtype: DType, rows: usize, cols: usize) -> BoxFuture<'static, Result<Vec<u8>>> {
        self.inner.unpack(buffer, dtype, rows, cols)
    }
    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[test]
fn the_cheapest_implementation_is_taken_with_its_scratch() {
    let device = Arc::new(Picky::default());
    let engine = Engine::new(device.clone(), options());
    let rng = &mut Rng(1);
    let w = T::random(&engine, DType::F32, &[4, 4], rng);
    let mut used = Vec::new();
    for rows in [9, 30, 12] {
        T::random(&engine, DType::F32, &[rows, 4], rng).matmul(&w).check(F32);
        used.push(device.scratch.load(Ordering::Relaxed));
    }
    assert_eq!(engine.plan_counters().planned, 1);
    assert_eq!(used, [9 * 64, 30 * 64, 30 * 64]);
}

#[test]
fn a_failed_submit_is_an_error_and_the_values_can_be_asked_for_again() {
    let device = Arc::new(Picky::default());
    let engine = Engine::new(device.clone(), options());
    let rng = &mut Rng(2);
    let x = T::random(&engine, DType::F32, &[4, 4], rng);
    let y = x.matmul(&x).write(&[(0, 1), (0, 4)], &x.narrow(0, 0, 1));
    device.fail.store(1, Ordering::Relaxed);
    assert!(realize(&[&y]).unwrap_err().to_string().contains("strike"));
    device.fail.store(0, Ordering::Relaxed);
    y.check(F32);
    assert!(engine.upload(DType::F64, Shape::new(&[1]), &[0; 8]).unwrap_err().to_string().contains("use F32"));
    assert!(ops::full(&engine, Shape::new(&[1]), DType::F64, Scalar::F(0.0)).is_err());
    assert!(ops::cast(x.edge, DType::F64).is_err());
}

#[test]
fn a_value_that_a_failed_run_may_have_overwritten_is_not_used_again() {
    let device = Arc::new(Picky::default());
    let engine = Engine::new(device.clone(), Options { max_pending: 20, ..options() });
    let x = T::new(&engine, DType::F32, &[4], vec![1.0, 2.0, 3.0, 4.0]);
    let first = x.narrow(0, 0, 1).affine(2.0, 0.0).copy();
    realize(&[&first]).unwrap();
    // In place: nobody else holds x.
    let y = x.write(&[(0, 1)], &first);
    let bystander = T::new(&engine, DType::F32, &[2], vec![1.0, 2.0]).affine(3.0, 0.0);
    drop((x, first));
    device.late.store(1, Ordering::Relaxed);
    assert!(realize(&[&y]).unwrap_err().to_string().contains("went home"));
    device.late.store(0, Ordering::Relaxed);
    let again = realize(&[&y]).unwrap_err().to_string();
    assert!(again.contains("lost") && again.contains("went home"), "{again}");
    assert!(block_on(engine.read(y.node())).is_err());
    let after = y.affine(2.0, 0.0);
    assert!(realize(&[&after]).is_err());
    // Everything else goes on, also what starts by itself.
    bystander.check(F32);
    let mut z = T::new(&engine, DType::F32, &[2], vec![0.0; 2]);
    let rounds = engine.plan_counters().rounds;
    for _ in 0..100 {
        z = z.affine(1.0, 1.0);
    }
    assert!(engine.plan_counters().rounds > rounds, "started by itself");
    z.check(F32);
}

#[test]
fn map_parts_stay_within_the_words_of_the_device() {
    for max_words in [50, 60, 100, 240] {
        let info = Info { max_words, max_bindings: 32, ..Reference::default().info().clone() };
        let engine = Engine::new(Arc::new(Picky { info: Some(info), ..Picky::default() }), options());
        let rng = &mut Rng(8);
        // Operands in orders of their own, so that nothing collapses.
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]];
        let sum = (0..24).fold(T::random(&engine, DType::F32, &[2; 4], rng), |sum, i| {
            sum.add(&T::random(&engine, DType::F32, &[2; 4], rng).permute(&orders[i % 4]))
        });
        sum.check(F32);
    }
}

#[test]
fn a_budget_that_is_spent_during_a_run_does_not_revive_what_the_run_fuses_away() {
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let started = barrier.clone();
    let first = AtomicU64::new(0);
    let gate = move || {
        if first.fetch_add(1, Ordering::Relaxed) > 0 {
            return;
        }
        started.wait();
        // Long enough for the other thread to run into its budget, which makes it wait for this run.
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let device = Arc::new(Picky { gate: Some(Box::new(gate)), ..Picky::default() });
    // Enough for the chain below alone, and for the other thread's value alone.
    let engine = Engine::new(device, Options { max_pending_bytes: 4 * 4096 + 4096, ..options() });
    let x = T::new(&engine, DType::F32, &[1024], vec![0.5; 1024]);
    let y = (0..4).fold(x.clone(), |y, _| y.affine(0.5, 1.0));
    let waiting = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            barrier.wait();
            x.broadcast(&[3, 1024]).unary(UnaryOp::Exp)
        });
        realize(&[&y]).unwrap();
        other.join().unwrap()
    });
    assert_eq!(engine.plan_counters().rounds, 1, "only the other thread's value is left, and it fits");
    assert!(engine.buffer(waiting.node()).is_none());
    y.check(F32);
}

#[test]
fn plans_are_kept_up_to_a_bound() {
    let (engine, _) = engine(options());
    let x = T::new(&engine, DType::F32, &[2], vec![0.25, 0.5]);
    let run = |length: usize| {
        let y = (0..length).fold(x.clone(), |y, _| y.affine(0.5, 1.0));
        y.check(F32);
        engine.plan_counters().planned
    };
    for length in 1..=300 {
        assert_eq!(run(length), length as u64);
    }
    assert_eq!(run(300), 300, "the latest are there");
    assert_eq!(run(1), 301, "the oldest had to go");
}

#[test]
fn layout_classes_are_variants_of_one_structure() {
    let (engine, _) = engine(options());
    let rng = &mut Rng(3);
    let x = T::random(&engine, DType::F32, &[40, 8], rng);
    let run = |start: usize, len: usize| {
        x.narrow(0, start, len).reduce(RowOp::Sum, 2).check(F32);
        x.narrow(1, start % 4, 4).unary(UnaryOp::Exp).check(F32);
        engine.plan_counters().planned
    };
    run(1, 20);
    let after = run(4, 30);
    // Aligned and unaligned starts are classes; sizes and offsets inside a class are data.
    for i in 1..10 {
        assert_eq!(run(i * 4 % 24, 10 + i), after);
        assert_eq!(run(1 + i * 4 % 24, 10 + i), after);
    }
}

#[test]
fn debug_mode_gives_the_same_numbers() {
    let (engine, _) = engine(Options { debug: 1, ..options() });
    let rng = &mut Rng(4);
    let x = T::random(&engine, DType::F32, &[4, 4], rng);
    x.matmul(&x).norm(RowOp::Softmax, 0.0).add(&x).check(F32);
}

#[test]
fn composites_are_built_from_primitives_where_the_backend_asks_for_it() {
    let refuse =
        |k: &Kernel| matches!(k, Kernel::Row(r) if !r.op.reduces() || r.operands.len() > 1 || r.after.code.len() > 1);
    // Decomposed, and every fusion into a reduction refused.
    let engine = Engine::new(Arc::new(Reference::refusing(refuse)), Options { decompose: true, ..options() });
    let rng = &mut Rng(5);
    let x = T::random(&engine, DType::F32, &[3, 8], rng);
    x.unary(UnaryOp::Exp).add(&x).norm(RowOp::LayerNorm, 1e-5).mul(&x).check(F32);
    x.norm(RowOp::Softmax, 0.0).reduce(RowOp::Sum, 1).affine(2.0, 0.0).check(F32);
    // A kernel that nothing replaces is an error that names it.
    let engine = Engine::new(Arc::new(Reference::refusing(|k| matches!(k, Kernel::Gather(_)))), options());
    let x = T::random(&engine, DType::F32, &[3, 8], rng);
    let ids = T::new(&engine, DType::U32, &[1], vec![0.0]);
    let error = block_on(engine.read(&ops::gather(x.edge, ids.edge, 0).unwrap())).unwrap_err().to_string();
    assert!(error.contains("reference cannot compute gather"), "{error}");
}
