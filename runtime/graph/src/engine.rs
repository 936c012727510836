//! The engine of a device: what is pending, the lock under which it is planned and submitted, the cached plans, and reading.

use crate::{
    Backend, BoxFuture, Buffer, DType, Error, Fault, HostBytes, MAX_RANK, Result, Scalar, Shape, View,
    kernel::Custom,
    locked::{Locked, Token},
    node::{Edge, Edges, Node, Op, State},
    plan::{self, Collected, Data, Plan},
};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use smallvec::SmallVec;
use std::{
    hash::Hasher,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Plans kept for replay.
const MAX_PLANS: usize = 256;

/// Plans of one structure whose layout classes differ.
const MAX_VARIANTS: usize = 8;

/// Nodes made before the pending list is looked through for the first time. A list that were looked through late would
/// hold on to the memory of nodes that are gone, and every new node would take memory that is in no cache.
const LOOK: usize = 256;

/// How an engine works; the defaults come from the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Fuse operations (`TALLOW_FUSE=0` switches it off).
    pub fuse: bool,
    /// 1: print each kernel of a plan when it runs, with its time (`TALLOW_DEBUG`).
    pub debug: u8,
    /// Build composites from primitives even where the backend has a kernel (`TALLOW_DECOMPOSE=1`): the test oracle.
    pub decompose: bool,
    /// Bytes of pending results that start a computation without being asked.
    pub max_pending_bytes: u64,
    /// Nodes that may be pending before a computation starts without being asked: a whole training step fits in the
    /// default, 10,000.
    pub max_pending: usize,
}

impl Default for Options {
    fn default() -> Self {
        let flag = |name: &str| std::env::var(name).ok();
        Self {
            fuse: flag("TALLOW_FUSE").as_deref() != Some("0"),
            debug: flag("TALLOW_DEBUG").and_then(|v| v.parse().ok()).unwrap_or(0),
            decompose: flag("TALLOW_DECOMPOSE").as_deref() == Some("1"),
            max_pending_bytes: 4 << 30,
            max_pending: 10_000,
        }
    }
}

/// Counts of planning, for tests and reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanCounters {
    /// Rounds: how often pending work was submitted.
    pub rounds: u64,
    /// Rounds that had to be planned; the others were replayed.
    pub planned: u64,
    /// Kernels launched.
    pub steps: u64,
    /// Composites that were built from primitives, because the device has no kernel for them.
    pub decomposed: u64,
}

/// A device's engine. Nodes hold it; `tallow::Device` wraps it.
pub struct Engine {
    backend: Arc<dyn Backend>,
    options: Options,
    id: u64,
    /// Nodes made so far.
    made: AtomicU64,
    planner: Mutex<Planner>,
    pending: Mutex<Pending>,
    decomposed: AtomicU64,
}

/// Nodes that may be waiting: some are there by now or are gone, which is found out when the list is full.
struct Pending {
    nodes: Vec<Weak<Node>>,
    bytes: u64,
    /// The list is looked through at this length, and at these bytes.
    full_nodes: usize,
    full_bytes: u64,
}

/// What the lock guards.
struct Planner {
    token: Token,
    round: u64,
    plans: FxHashMap<u64, Cached>,
    collected: Collected,
    data: Data,
    scratch: Vec<Option<Buffer>>,
    counters: PlanCounters,
    clock: u64,
    /// Whether any run ever had a fault: only then may a value have one behind it.
    had_faults: bool,
}

/// Plans whose keys have one hash: whole keys are compared.
#[derive(Default)]
struct Cached {
    structures: Vec<Structure>,
    used: u64,
}

/// Plans of one structure, the most recently used first. They differ in layout classes.
struct Structure {
    key: Box<[u64]>,
    variants: Vec<Arc<Plan>>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Engine {
    /// An engine for a backend.
    pub fn new(backend: Arc<dyn Backend>, options: Options) -> Arc<Self> {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            backend,
            options,
            id,
            made: AtomicU64::new(0),
            planner: Mutex::new(Planner {
                token: Token::new(id),
                round: 0,
                plans: FxHashMap::default(),
                collected: Collected::default(),
                data: Data::default(),
                scratch: Vec::new(),
                counters: PlanCounters::default(),
                clock: 0,
                had_faults: false,
            }),
            pending: Mutex::new(Pending {
                nodes: Vec::new(),
                bytes: 0,
                full_nodes: options.max_pending.min(LOOK),
                full_bytes: options.max_pending_bytes,
            }),
            decomposed: AtomicU64::new(0),
        })
    }

    /// The device.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// A number that tells engines apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How it works.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Counts so far.
    pub fn plan_counters(&self) -> PlanCounters {
        PlanCounters { decomposed: self.decomposed.load(Ordering::Relaxed), ..self.planner.lock().counters }
    }

    /// Whether the device runs a composite in a kernel of its own; where it does not, the caller builds it from primitives,
    /// which is counted.
    pub(crate) fn runs(&self, op: Op, dtype: DType) -> bool {
        let runs = self.backend.runs(op, dtype);
        if !runs {
            self.decomposed.fetch_add(1, Ordering::Relaxed);
        }
        runs
    }

    /// Frees cached plans, scratch memory and the backend's pool.
    pub fn trim(&self) {
        let mut planner = self.planner.lock();
        planner.plans.clear();
        planner.scratch.clear();
        drop(planner);
        self.backend.trim();
    }

    /// A node that computes `op`. The caller has checked shapes and dtypes; that no rank exceeds [`MAX_RANK`] is checked here.
    pub(crate) fn node(
        self: &Arc<Self>,
        op: Op,
        dtype: DType,
        shape: Shape,
        edges: Edges,
        scalars: SmallVec<[Scalar; 2]>,
    ) -> Result<Arc<Node>> {
        self.clone().into_node(op, dtype, shape, edges, scalars, None)
    }

    /// [`Engine::node`], perhaps with a user's kernel, by a handle of the engine that the node may keep.
    pub(crate) fn into_node(
        self: Arc<Self>,
        op: Op,
        dtype: DType,
        shape: Shape,
        edges: Edges,
        scalars: SmallVec<[Scalar; 2]>,
        custom: Option<Arc<Custom>>,
    ) -> Result<Arc<Node>> {
        let rank = edges.iter().map(|e| e.view.shape.rank()).fold(shape.rank(), usize::max);
        if rank > MAX_RANK {
            return Err(Error::op(op.name(), format!("{rank} axes are more than a tensor may have, {MAX_RANK}")));
        }
        // Addresses are signed, and bytes too.
        let fits = |shape: &Shape| {
            let bytes = dtype.size_in_bytes().checked_mul(shape.elem_count());
            bytes.is_some_and(|b| b < isize::MAX as usize)
        };
        let others = edges.iter().map(|e| &e.view.shape).filter(|&s| *s != shape);
        if let Some(shape) = others.chain([&shape]).find(|s| !fits(s)) {
            return Err(Error::op(op.name(), format!("{shape:?} of {dtype} is more than can be addressed")));
        }
        let (number, id) = (self.made.fetch_add(1, Ordering::Relaxed), self.id);
        let state = Locked::new(id, State { edges, buffer: None, fused: false, lost: None, fault: None });
        let node = Node { engine: self, op, dtype, shape, scalars, custom, mark: AtomicU64::new(0), number, state };
        let node = Arc::new(node);
        let full = {
            let mut pending = node.engine.pending.lock();
            pending.nodes.push(Arc::downgrade(&node));
            pending.bytes = pending.bytes.saturating_add(node.bytes());
            pending.nodes.len() >= pending.full_nodes || pending.bytes > pending.full_bytes
        };
        if full {
            // An error here comes up again when the value is read.
            let _ = node.engine.flush();
        }
        Ok(node)
    }

    /// A node whose value is there.
    pub fn leaf(self: &Arc<Self>, dtype: DType, shape: Shape, buffer: Buffer) -> Arc<Node> {
        Arc::new(Node {
            engine: self.clone(),
            op: Op::Leaf,
            dtype,
            shape,
            scalars: SmallVec::new(),
            custom: None,
            mark: AtomicU64::new(0),
            number: self.made.fetch_add(1, Ordering::Relaxed),
            state: Locked::new(
                self.id,
                State { edges: Edges::new(), buffer: Some(buffer), fused: false, lost: None, fault: None },
            ),
        })
    }

    /// A leaf from little-endian bytes of a plain dtype.
    pub fn upload(self: &Arc<Self>, dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Arc<Node>> {
        self.backend.check_dtype(dtype)?;
        let want = dtype.bytes_for(shape.elem_count());
        if want != Some(bytes.len()) {
            let message = format!("{} bytes do not make {shape:?} of {dtype}", bytes.len());
            return Err(Error::op("from_bytes", message));
        }
        if dtype.is_quantized() {
            return Err(Error::op("from_bytes", format!("{dtype} is a packed type: use upload_packed")));
        }
        let buffer = self.allocate(bytes)?;
        Ok(self.leaf(dtype, shape, buffer))
    }

    /// Memory that holds `bytes`, rounded up so that kernels may write whole words.
    fn allocate(&self, bytes: &[u8]) -> Result<Buffer> {
        let buffer = self.backend.allocate(plan::rounded(bytes.len() as u64))?;
        self.backend.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// A packed weight [rows, cols] from the file's bytes.
    pub fn upload_packed(
        self: &Arc<Self>,
        dtype: DType,
        rows: usize,
        cols: usize,
        source: HostBytes,
        range: std::ops::Range<usize>,
    ) -> Result<Arc<Node>> {
        if cols == 0 || !cols.is_multiple_of(dtype.block_elements()) {
            let message =
                format!("rows of {cols} elements are not whole blocks of {} ({dtype})", dtype.block_elements());
            return Err(Error::op("pack", message));
        }
        let want = rows.checked_mul(cols).and_then(|n| dtype.bytes_for(n));
        if want != Some(range.len()) || range.end > (*source).as_ref().len() {
            return Err(Error::op("pack", format!("{} bytes do not make [{rows}, {cols}] of {dtype}", range.len())));
        }
        let buffer = self.backend.pack(dtype, rows, cols, source, range)?;
        Ok(self.leaf(dtype, Shape::new(&[rows, cols]), buffer))
    }

    /// The nodes of the pending list that are held and not there yet, and their bytes.
    fn waiting(&self, nodes: &[Weak<Node>]) -> (Vec<Arc<Node>>, u64) {
        // Under the lock: while another thread plans, nobody may take hold of a node that its plan does not keep.
        let planner = self.planner.lock();
        let alive: Vec<Arc<Node>> = nodes.iter().filter_map(Weak::upgrade).collect();
        let waiting: Vec<Arc<Node>> =
            alive.iter().filter(|n| n.state.get(&planner.token).buffer.is_none()).cloned().collect();
        drop(planner);
        drop(alive);
        let bytes = waiting.iter().fold(0u64, |sum, n| sum.saturating_add(n.bytes()));
        (waiting, bytes)
    }

    /// Puts nodes back on the pending list, to be looked through when it has grown by `room` nodes or bytes.
    fn wait_on(&self, nodes: Vec<Arc<Node>>, bytes: u64, room: (usize, u64)) {
        let mut pending = self.pending.lock();
        pending.nodes.extend(nodes.iter().map(Arc::downgrade));
        pending.bytes = pending.bytes.saturating_add(bytes);
        pending.full_nodes = nodes.len().saturating_add(room.0);
        pending.full_bytes = bytes.saturating_add(room.1);
    }

    /// Where too much is pending: computes it, so that a loop that never reads does not grow.
    fn flush(self: &Arc<Self>) -> Result<()> {
        let list = {
            let mut pending = self.pending.lock();
            pending.bytes = 0;
            std::mem::take(&mut pending.nodes)
        };
        let (max_nodes, max_bytes) = (self.options.max_pending, self.options.max_pending_bytes);
        let (alive, bytes) = self.waiting(&list);
        if alive.len() < max_nodes && bytes <= max_bytes {
            // Some were read, or are gone. The room is never so small that the list would be looked through all the time,
            // nor so large that it would grow much beyond what is alive.
            let room = (max_nodes - alive.len()).max(max_nodes / 8).min(alive.len().max(LOOK));
            self.wait_on(alive, bytes, (room, (max_bytes - bytes).max(max_bytes / 8)));
            return Ok(());
        }
        // Tips: nodes that no other pending node reads. Other references are dropped at once, since planning keeps what
        // somebody holds. What needs a value of another device must wait for a read, which can fetch it; what needs a
        // value that is lost, for a read that says so.
        let roots: Vec<Arc<Node>> = {
            let planner = self.planner.lock();
            let token = &planner.token;
            let (mut read, mut blocked) = (FxHashSet::default(), FxHashSet::default());
            let mut ready = Vec::new();
            // Operands of another engine are read by a transfer only.
            let lost = |n: &Node| n.engine.id == self.id && n.state.get(token).lost.is_some();
            // Operands stand before their users.
            for node in &alive {
                let operands = || node.state.get(token).edges.iter().map(|e| Arc::as_ptr(&e.node));
                let state = node.state.get(token);
                let lost = state.lost.is_some() || state.edges.iter().any(|e| lost(&e.node));
                if node.op == Op::Transfer || lost || operands().any(|n| blocked.contains(&n)) {
                    blocked.insert(Arc::as_ptr(node));
                } else {
                    read.extend(operands());
                    ready.push(node);
                }
            }
            ready.into_iter().filter(|n| !read.contains(&Arc::as_ptr(n))).cloned().collect()
        };
        drop(alive);
        let result = self.realize_here(&roots).map(|_| ());
        drop(roots);
        // Nodes that were fused away stay while somebody holds them.
        let (rest, bytes) = self.waiting(&list);
        self.wait_on(rest, bytes, (max_nodes, max_bytes));
        result
    }

    /// Starts the computation of the nodes that are not there yet. Returns when the work is submitted, not when it is
    /// done. Values of other devices are fetched first, which waits for them.
    pub fn realize<'a>(self: &'a Arc<Self>, roots: &'a [Arc<Node>]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.realize_now(roots))
    }

    /// [`Engine::realize`], in place.
    async fn realize_now(self: &Arc<Self>, roots: &[Arc<Node>]) -> Result<()> {
        loop {
            let transfers = self.realize_here(roots)?;
            if transfers.is_empty() {
                return Ok(());
            }
            for node in transfers {
                self.fetch(&node).await?;
            }
        }
    }

    /// Like [`Engine::realize`], without waiting: false where values of other devices must be fetched first.
    pub fn try_realize(self: &Arc<Self>, roots: &[Arc<Node>]) -> Result<bool> {
        Ok(self.realize_here(roots)?.is_empty())
    }

    /// Brings a transfer's value from its device.
    async fn fetch(self: &Arc<Self>, node: &Arc<Node>) -> Result<()> {
        let source = {
            let planner = self.planner.lock();
            match node.state.get(&planner.token).edges.first() {
                Some(edge) => edge.node.clone(),
                // Another thread has fetched it.
                None => return Ok(()),
            }
        };
        let bytes = source.engine.clone().read(&source).await?;
        let buffer = self.allocate(&bytes)?;
        let mut planner = self.planner.lock();
        let state = node.state.get_mut(&mut planner.token);
        state.buffer.get_or_insert(buffer);
        let edges = std::mem::take(&mut state.edges);
        drop(planner);
        drop(edges);
        Ok(())
    }

    /// The bytes of a node's whole value, computed first if it must be.
    pub fn read<'a>(self: &'a Arc<Self>, node: &'a Arc<Node>) -> BoxFuture<'a, Result<Vec<u8>>> {
        Box::pin(async move {
            let buffer = self.value(node).await?;
            self.backend.read(&buffer, 0..node.bytes()).await
        })
    }

    /// The buffer of a node's value, computed first if it must be.
    pub async fn value(self: &Arc<Self>, node: &Arc<Node>) -> Result<Buffer> {
        self.owns(node)?;
        loop {
            let (buffer, fault) = {
                let planner = self.planner.lock();
                let state = node.state.get(&planner.token);
                (state.buffer.clone(), state.fault.clone())
            };
            if let Some(Fault { op, message, .. }) = fault.as_deref() {
                return Err(Error::Fault { op: op.clone(), message: message.clone() });
            }
            if let Some(buffer) = buffer {
                return Ok(buffer);
            }
            self.realize_now(std::slice::from_ref(node)).await?;
        }
    }

    /// An error where a node is another engine's.
    fn owns(&self, node: &Node) -> Result<()> {
        if node.engine.id == self.id {
            return Ok(());
        }
        let (here, there) = (&self.backend.info().name, &node.engine.backend.info().name);
        Err(Error::Device(format!("{node:?} lives on {there}, not on {here}: move it with to_device")))
    }

    /// The buffer of a node's value, if it is there (and this engine's).
    pub fn buffer(&self, node: &Node) -> Option<Buffer> {
        self.owns(node).ok()?;
        node.state.get(&self.planner.lock().token).buffer.clone()
    }

    /// One round under the lock. Returns the transfers that must be fetched first, if there are any.
    fn realize_here(self: &Arc<Self>, roots: &[Arc<Node>]) -> Result<Vec<Arc<Node>>> {
        if roots.is_empty() {
            return Ok(Vec::new());
        }
        roots.iter().try_for_each(|n| self.owns(n))?;
        let mut garbage: Vec<Edges> = Vec::new();
        let mut guard = self.planner.lock();
        let planner = &mut *guard;
        let mut collected = std::mem::take(&mut planner.collected);
        let result = planner.round(self, &mut collected, roots, &mut garbage);
        let transfers = std::mem::take(&mut collected.transfers);
        collected.clear();
        planner.collected = collected;
        // Under the lock: a thread that waits for it would else find operands that are on their way out, and compute them.
        // No node's end needs the lock.
        drop(garbage);
        drop(guard);
        result.map(|()| transfers)
    }
}

impl Planner {
    fn round(
        &mut self,
        engine: &Engine,
        c: &mut Collected,
        roots: &[Arc<Node>],
        garbage: &mut Vec<Edges>,
    ) -> Result<()> {
        if self.round + 1 >= plan::MAX_ROUNDS {
            return Err(Error::msg("this device has computed as often as it can count: open it again"));
        }
        self.round += 1;
        c.collect(&self.token, self.round, roots)?;
        if !c.transfers.is_empty() || c.nodes.is_empty() {
            return Ok(());
        }
        let plan = self.plan(engine, c)?;
        let backend = &*engine.backend;
        let buffers = plan.buffers(c, &self.token, &self.data, backend, &mut self.scratch)?;
        let run = crate::Run {
            program: &plan.program,
            buffers: &buffers,
            args: &self.data.args,
            words: &self.data.words,
            scalars: &self.data.scalars,
        };
        let submitted = if engine.options.debug > 0 {
            crate::debug::run(backend, &run, |i| c.nodes[plan.head(i) as usize].clone())
        } else {
            backend.submit(&*plan.prepared, run)
        };
        let faults = submitted.inspect_err(|error| {
            // Some steps may have run. What they wrote into is neither the old value nor the new one, so a second try
            // from there would be wrong: the value is lost, and whoever reads what depends on it learns why.
            let why: Arc<str> = error.to_string().into();
            for &leaf in &plan.taken {
                let state = c.leaves[leaf as usize].state.get_mut(&mut self.token);
                state.buffer = None;
                state.lost = Some(why.clone());
            }
        })?;
        self.counters.rounds += 1;
        self.counters.steps += plan.program.steps.len() as u64;
        self.had_faults |= !faults.is_empty();
        let behind = if self.had_faults { plan.spread(c, &self.token, faults) } else { Vec::new() };
        for &(node, buffer) in &plan.commits {
            let state = c.nodes[node as usize].state.get_mut(&mut self.token);
            state.buffer = Some(buffers[buffer as usize].clone());
            state.fault = behind.get(buffer as usize).cloned().flatten();
            garbage.push(std::mem::take(&mut state.edges));
        }
        for &node in &plan.fused {
            c.nodes[node as usize].state.get_mut(&mut self.token).fused = true;
        }
        Ok(())
    }

    /// The cached plan that fits, or a new one; `self.data` is then filled.
    fn plan(&mut self, engine: &Engine, c: &Collected) -> Result<Arc<Plan>> {
        let mut hasher = FxHasher::default();
        for &word in &c.key {
            hasher.write_u64(word);
        }
        let hash = hasher.finish();
        self.clock += 1;
        if let Some(cached) = self.plans.get_mut(&hash) {
            cached.used = self.clock;
            if let Some(Structure { variants, .. }) = cached.structures.iter_mut().find(|s| *s.key == *c.key) {
                for at in 0..variants.len() {
                    if variants[at].fill(c, &self.token, &mut self.data) {
                        // The most recent one first: classes tend to stay.
                        variants.swap(0, at);
                        return Ok(variants[0].clone());
                    }
                }
            }
        }
        self.counters.planned += 1;
        let plan = Arc::new(plan::plan(c, &self.token, &*engine.backend, engine.options.fuse)?);
        if !plan.fill(c, &self.token, &mut self.data) {
            return Err(Error::msg("a new plan does not fit its own data; this is a bug in Tallow"));
        }
        if self.plans.len() >= MAX_PLANS
            && let Some(oldest) = self.plans.iter().min_by_key(|(_, cached)| cached.used).map(|(&hash, _)| hash)
        {
            self.plans.remove(&oldest);
        }
        let cached = self.plans.entry(hash).or_default();
        cached.used = self.clock;
        match cached.structures.iter_mut().find(|s| *s.key == *c.key) {
            Some(Structure { variants, .. }) => {
                variants.insert(0, plan.clone());
                variants.truncate(MAX_VARIANTS);
            }
            None => {
                let key = c.key.clone().into_boxed_slice();
                cached.structures.push(Structure { key, variants: vec![plan.clone()] });
            }
        }
        Ok(plan)
    }
}

impl From<&Arc<Node>> for Edge {
    fn from(node: &Arc<Node>) -> Self {
        Edge { node: node.clone(), view: View::contiguous(node.shape.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ops, reference::Reference};

    #[test]
    fn marks_of_rounds_long_ago_are_not_taken_for_new_ones() {
        let engine = Engine::new(Arc::new(Reference::default()), Options::default());
        let x = engine.upload(DType::F32, Shape::new(&[1]), &1f32.to_le_bytes()).unwrap();
        let double = |x: &Arc<Node>| ops::affine(x.whole(), Scalar::F(2.0), Scalar::F(0.0)).unwrap();
        // x is number 0 of the leaves in round 1.
        assert!(engine.try_realize(&[double(&x)]).unwrap());
        engine.planner.lock().round = 1 << 32;
        let y = engine.upload(DType::F32, Shape::new(&[1]), &3f32.to_le_bytes()).unwrap();
        let sum = ops::binary(crate::BinaryOp::Add, y.whole(), x.whole()).unwrap();
        assert!(engine.try_realize(std::slice::from_ref(&sum)).unwrap());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match engine.read(&sum).as_mut().poll(&mut context) {
            std::task::Poll::Ready(bytes) => assert_eq!(bytes.unwrap(), 4f32.to_le_bytes()),
            std::task::Poll::Pending => panic!("the reference is always ready"),
        };
        engine.planner.lock().round = plan::MAX_ROUNDS - 1;
        assert!(engine.try_realize(&[double(&x)]).unwrap_err().to_string().contains("open it again"));
    }
}
