//! Plans: from pending nodes to a program for a backend, once for each structure; then filled with data at every run.

mod collect;
mod draft;
mod emit;
mod express;
mod memory;
mod nest;
mod order;
mod recipe;

pub(crate) use collect::Collected;

use crate::{Args, Backend, Buffer, Error, Kernel, Prepared, Program, Result, Scalar, Step, locked::Token};
use draft::{Drafter, Refusal, Rules};
use emit::{Emitter, Learned};
use memory::Place;
use recipe::{Class, Misfit, Recipe};
use std::sync::Arc;

/// A cached plan.
pub(crate) struct Plan {
    pub program: Program,
    pub prepared: Arc<dyn Prepared>,
    steps: Vec<PlanStep>,
    pub places: Vec<Place>,
    /// (node, buffer number) of the nodes that keep their value.
    pub commits: Vec<(u32, u32)>,
    /// Nodes that somebody holds although they were fused away.
    pub fused: Vec<u32>,
}

struct PlanStep {
    recipe: Recipe,
    class: Class,
    params: Vec<(u32, u8)>,
    head: u32,
}

/// The data of a run.
#[derive(Default)]
pub(crate) struct Data {
    pub words: Vec<i64>,
    pub scalars: Vec<Scalar>,
    pub args: Vec<Args>,
}

impl Plan {
    /// Fills in the data of a round. False where the plan's classes do not fit it.
    pub(crate) fn fill(&self, c: &Collected, token: &Token, data: &mut Data) -> bool {
        data.words.clear();
        data.scalars.clear();
        data.args.clear();
        for step in &self.steps {
            let words = data.words.len() as u32;
            let scalars = data.scalars.len() as u32;
            match step.recipe.words(c, token, &mut data.words) {
                Ok(class) if class == step.class => {}
                _ => return false,
            }
            put_scalars(&step.recipe, &step.params, c, &mut data.scalars);
            data.args.push(Args { words: words..data.words.len() as u32, scalars: scalars..data.scalars.len() as u32 });
        }
        true
    }

    /// The buffers of a run, in order: of leaves, fresh ones, and scratch slots that grow as they must.
    pub(crate) fn buffers(
        &self,
        c: &Collected,
        token: &Token,
        data: &Data,
        backend: &dyn Backend,
        scratch: &mut Vec<Option<Buffer>>,
    ) -> Result<Vec<Buffer>> {
        let size = |values: &[emit::Value]| values.iter().map(|&v| memory::bytes(c, token, v)).max().unwrap_or(16);
        let mut slot = |slot: u32, bytes: u64| -> Result<Buffer> {
            let slot = slot as usize;
            if scratch.len() <= slot {
                scratch.resize(slot + 1, None);
            }
            match &scratch[slot] {
                Some(buffer) if buffer.bytes() >= bytes => Ok(buffer.clone()),
                _ => {
                    // Give the small one back first: both at once may not fit.
                    scratch[slot] = None;
                    let buffer = backend.allocate(bytes)?;
                    scratch[slot] = Some(buffer.clone());
                    Ok(buffer)
                }
            }
        };
        self.places
            .iter()
            .map(|place| match place {
                Place::Leaf(l) => c.leaves[*l as usize]
                    .state
                    .get(token)
                    .buffer
                    .clone()
                    .ok_or_else(|| Error::msg("a value is gone; this is a bug in Tallow")),
                Place::Fresh(values) => backend.allocate(size(values)),
                Place::Slot(at, values) => slot(*at, size(values)),
                Place::Work(at, step) => {
                    let step = *step as usize;
                    let words = &data.words[data.args[step].words.start as usize..data.args[step].words.end as usize];
                    let program = &self.program.steps[step];
                    let choices = backend.lower(&program.kernel, words);
                    let bytes = choices.iter().find(|i| i.id == program.implementation).map_or(16, |i| i.scratch);
                    slot(*at, bytes.max(16))
                }
            })
            .collect()
    }

    /// The node that names step `i`.
    pub(crate) fn head(&self, i: usize) -> u32 {
        self.steps[i].head
    }
}

fn put_scalars(recipe: &Recipe, params: &[(u32, u8)], c: &Collected, scalars: &mut Vec<Scalar>) {
    recipe.scalars(c, scalars);
    scalars.extend(
        params.iter().map(|&(n, k)| c.nodes[n as usize].scalars.get(k as usize).copied().unwrap_or(Scalar::F(0.0))),
    );
}

/// Plans a round that no cached plan fits.
pub(crate) fn plan(c: &Collected, token: &Token, backend: &dyn Backend, fuse: bool) -> Result<Plan> {
    let info = backend.info();
    let mut learned = Learned::default();
    // Every attempt learns one refusal more, and there are finitely many.
    for _ in 0..4 * c.nodes.len() + 16 {
        let rules = Rules { fuse, max_bindings: info.max_bindings, refused: &learned.refused };
        let drafts = Drafter::new(c, token, &rules).run();
        let emitter = Emitter { c, token, drafts: &drafts, learned: &learned, fuse, steps: Vec::new() };
        let mut steps = emitter.run();
        let after = match order::sort(&mut steps) {
            Ok(after) => after,
            Err(write) => {
                learned.refused.insert(Refusal::InPlace(write));
                continue;
            }
        };
        let mut after = if fuse {
            order::merge_maps(&mut steps, &after, info.max_bindings, info.max_words);
            match order::sort(&mut steps) {
                Ok(after) => after,
                Err(write) => {
                    learned.refused.insert(Refusal::InPlace(write));
                    continue;
                }
            }
        } else {
            after
        };
        match compile(c, token, backend, &steps)? {
            Ok(kernels) => {
                let layout = memory::assign(c, token, &steps, &mut after);
                return finish(c, backend, steps, &after, layout, kernels, &drafts);
            }
            Err(refusal) => learned.learn(refusal)?,
        }
    }
    Err(Error::msg("planning did not come to an end; this is a bug in Tallow, please report the model or program"))
}

/// What an attempt to compile teaches.
enum Lesson {
    Refuse(Refusal),
    Copy(u32, u8),
}

impl Learned {
    fn learn(&mut self, lesson: Lesson) -> Result<()> {
        let new = match lesson {
            Lesson::Refuse(refusal) => self.refused.insert(refusal),
            Lesson::Copy(n, e) => self.copies.insert((n, e)),
        };
        if new { Ok(()) } else { Err(Error::msg("an operand's layout fits no kernel; this is a bug in Tallow")) }
    }
}

struct Compiled {
    kernel: Arc<Kernel>,
    class: Class,
    implementation: u32,
    scratch: u64,
}

/// Kernels and implementations of all steps, or the first thing that stands in the way.
fn compile(
    c: &Collected,
    token: &Token,
    backend: &dyn Backend,
    steps: &[emit::Emitted],
) -> Result<Result<Vec<Compiled>, Lesson>> {
    let mut compiled = Vec::with_capacity(steps.len());
    let mut words = Vec::new();
    for step in steps {
        words.clear();
        let norm = matches!(&step.recipe, Recipe::Contract { prologue: Some(_), .. });
        let class = match step.recipe.words(c, token, &mut words) {
            Ok(class) => class,
            Err(Misfit::Copy(..)) if norm => return Ok(Err(Lesson::Refuse(Refusal::Norm(step.head)))),
            Err(Misfit::Copy(n, e)) => return Ok(Err(Lesson::Copy(n, e))),
            Err(Misfit::Epilogue(n)) => return Ok(Err(Lesson::Refuse(Refusal::Epilogue(n)))),
            Err(Misfit::View) => {
                return Err(Error::op(c.nodes[step.head as usize].op.name(), "an operand's view fits no kernel"));
            }
        };
        let kernel = step.recipe.kernel(&class, c);
        let mut choices = backend.lower(&kernel, &words);
        choices.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        match choices.into_iter().next() {
            Some(choice) => compiled.push(Compiled {
                kernel: Arc::new(kernel),
                class,
                implementation: choice.id,
                scratch: choice.scratch,
            }),
            None => return refusal(c, backend, step, &kernel).map(Err),
        }
    }
    Ok(Ok(compiled))
}

/// Which fusion to give up for a kernel that the backend cannot run.
fn refusal(c: &Collected, backend: &dyn Backend, step: &emit::Emitted, kernel: &Kernel) -> Result<Lesson> {
    if let Recipe::Contract { prologue, parts, .. } = &step.recipe {
        if prologue.is_some() {
            return Ok(Lesson::Refuse(Refusal::Norm(step.head)));
        }
        if parts.len() > 1 {
            return Ok(Lesson::Refuse(Refusal::Group(step.head)));
        }
        if parts[0].paired {
            return Ok(Lesson::Refuse(Refusal::Pair(step.head)));
        }
        if !parts[0].operands.is_empty() {
            return Ok(Lesson::Refuse(Refusal::Epilogue(step.head)));
        }
    }
    if let Recipe::Row { after, .. } = &step.recipe
        && !after.is_identity()
    {
        return Ok(Lesson::Refuse(Refusal::Epilogue(step.head)));
    }
    let node = &c.nodes[step.head as usize];
    Err(Error::op(
        node.op.name(),
        format!("{} cannot compute {} of {:?} {}", backend.info().name, kernel.name(), node.shape, node.dtype),
    ))
}

fn finish(
    c: &Collected,
    backend: &dyn Backend,
    steps: Vec<emit::Emitted>,
    after: &order::After,
    layout: memory::Layout,
    kernels: Vec<Compiled>,
    drafts: &draft::Drafts,
) -> Result<Plan> {
    let buffer = |value: &emit::Value| layout.buffer.get(value).copied().unwrap_or(0);
    let mut places = layout.places.clone();
    let mut slots = layout.slots;
    let mut program = Program { steps: Vec::with_capacity(steps.len()), buffers: 0 };
    let mut plan_steps = Vec::with_capacity(steps.len());
    let mut commits = Vec::new();
    for ((step, compiled), after) in steps.into_iter().zip(kernels).zip(after) {
        for out in &step.outputs {
            if let emit::Value::Node(n) = out.value
                && c.wanted[n as usize].keep
            {
                commits.push((n, buffer(&out.value)));
            }
        }
        let scratch = (compiled.scratch > 0).then(|| {
            places.push(Place::Work(slots, plan_steps.len() as u32));
            slots += 1;
            places.len() as u32 - 1
        });
        program.steps.push(Step {
            kernel: compiled.kernel,
            implementation: compiled.implementation,
            inputs: step.inputs.iter().map(buffer).collect(),
            outputs: step.outputs.iter().map(|o| buffer(&o.value)).collect(),
            scratch,
            after: after.clone(),
        });
        plan_steps.push(PlanStep { recipe: step.recipe, class: compiled.class, params: step.params, head: step.head });
    }
    program.buffers = places.len();
    let fused = (0..c.nodes.len() as u32)
        .filter(|&n| c.wanted[n as usize].keep && !matches!(drafts.roles[n as usize], draft::Role::Tail(_)))
        .collect();
    let prepared = backend.prepare(&program)?;
    Ok(Plan { program, prepared, steps: plan_steps, places, commits, fused })
}
