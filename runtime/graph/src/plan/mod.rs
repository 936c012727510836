//! Plans: from pending nodes to a program for a backend, once for each structure; then filled with data at every run.

mod collect;
mod conv;
mod draft;
mod emit;
mod express;
mod faults;
mod fixed;
mod memory;
mod nest;
mod order;
mod recipe;

pub(crate) use collect::{Collected, MAX_ROUNDS};
pub(crate) use memory::rounded;

use crate::{Args, Backend, Buffer, Error, Kernel, Prepared, Program, Result, Scalar, Step, locked::Token};
use draft::{Drafter, Refusal, Rules};
use emit::{Emitter, Learned};
use memory::Place;
use recipe::{Class, Misfit, Reads, Recipe};
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
    /// Leaves whose buffers it writes into.
    pub taken: Vec<u32>,
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
        let rules =
            Rules { fuse, max_bindings: info.max_bindings, max_words: info.max_words, refused: &learned.refused };
        let drafts = Drafter::new(c, token, &rules).run();
        let ages = c.ages();
        let mut steps = Emitter::new(c, token, &drafts, &learned, fuse).run();
        let mut after = match order::sort(&mut steps, &ages) {
            Ok(after) => after,
            Err(refusal) => {
                learned.learn([Lesson::Refuse(refusal)])?;
                continue;
            }
        };
        if fuse {
            order::merge_maps(&mut steps, &after, info.max_bindings, info.max_words);
            after = match order::sort(&mut steps, &ages) {
                Ok(after) => after,
                Err(refusal) => {
                    learned.learn([Lesson::Refuse(refusal)])?;
                    continue;
                }
            };
        }
        match compile(c, token, backend, &steps)? {
            Ok(kernels) => {
                let layout = memory::assign(c, token, &steps, &mut after);
                return finish(c, backend, steps, &after, layout, kernels, &drafts);
            }
            Err(lessons) => learned.learn(lessons)?,
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
    /// Takes lessons in; an error if there is nothing new among them, since the next attempt would then end as this one.
    fn learn(&mut self, lessons: impl IntoIterator<Item = Lesson>) -> Result<()> {
        let mut new = false;
        for lesson in lessons {
            new |= match lesson {
                Lesson::Refuse(refusal) => self.refused.insert(refusal),
                Lesson::Copy(n, e) => self.copies.insert((n, e)),
            };
        }
        if new {
            Ok(())
        } else {
            Err(Error::msg("operations fit no plan; this is a bug in Tallow, please report them"))
        }
    }
}

struct Compiled {
    kernel: Arc<Kernel>,
    class: Class,
    implementation: u32,
    scratch: u64,
}

/// Kernels and implementations of all steps, or whatever stands in the way.
fn compile(
    c: &Collected,
    token: &Token,
    backend: &dyn Backend,
    steps: &[emit::Emitted],
) -> Result<Result<Vec<Compiled>, Vec<Lesson>>> {
    let mut compiled = Vec::with_capacity(steps.len());
    let mut lessons = Vec::new();
    let mut words = Vec::new();
    for step in steps {
        if step.inputs.len() + step.outputs.len() > backend.info().max_bindings {
            lessons.push(refusal(step).ok_or_else(|| unable(c, backend, step, "so many operands"))?);
            continue;
        }
        words.clear();
        let norm = matches!(&step.recipe, Recipe::Contract { prologue: Some(_), .. });
        let class = match step.recipe.words(c, token, &mut words) {
            Ok(class) => class,
            Err(misfit) => {
                lessons.push(match misfit {
                    // The norm's own operand cannot be copied here; alone, the norm takes any layout.
                    Misfit::Copy(_, 0) if norm => Lesson::Refuse(Refusal::Norm(step.head)),
                    Misfit::Copy(n, e) => Lesson::Copy(n, e),
                    Misfit::Epilogue(n) => Lesson::Refuse(Refusal::Epilogue(n)),
                    Misfit::View => refusal(step).ok_or_else(|| unable(c, backend, step, "this view"))?,
                });
                continue;
            }
        };
        let kernel = step.recipe.kernel(&class, c);
        match backend.choose(&kernel, &words) {
            Some(choice) => compiled.push(Compiled {
                kernel: Arc::new(kernel),
                class,
                implementation: choice.id,
                scratch: choice.scratch,
            }),
            None => lessons.push(refusal(step).ok_or_else(|| unable(c, backend, step, kernel.name()))?),
        }
    }
    Ok(if lessons.is_empty() { Ok(compiled) } else { Err(lessons) })
}

/// The error for a step that nothing helps.
fn unable(c: &Collected, backend: &dyn Backend, step: &emit::Emitted, what: &str) -> Error {
    let node = &c.nodes[step.head as usize];
    let message = format!("{} cannot compute {what} of {:?} {}", backend.info().name, node.shape, node.dtype);
    Error::op(node.op.name(), message)
}

/// Which fusion to give up for a kernel that the backend cannot run, or that binds too much; `None` if nothing is left.
fn refusal(step: &emit::Emitted) -> Option<Lesson> {
    let refuse = match &step.recipe {
        Recipe::Contract { prologue, parts, .. } => match parts.as_slice() {
            [.., last] if parts.len() > 1 => Refusal::Group(last.head),
            [part] if part.paired => Refusal::Pair(step.head),
            _ if prologue.is_some() => Refusal::Norm(step.head),
            [part] if step.tail != part.head => Refusal::Epilogue(step.head),
            _ => return None,
        },
        Recipe::Row { head, .. } if step.tail != *head => Refusal::Epilogue(step.head),
        Recipe::Conv(conv) if step.tail != conv.head => Refusal::Epilogue(step.head),
        // A composite whose operand is fused into it reads the stored operand instead.
        Recipe::Row { head, operands, .. } if operands.len() > 1 || operands.iter().any(|r| r.path.0.len() > 1) => {
            Refusal::Operand(*head)
        }
        // A map or write reads stored operands where no expression of what they are computed from will do.
        Recipe::Map { parts } => {
            let inlined = |r: &Reads| r.path.0.iter().rev().nth(1).map(|&(reader, _)| reader);
            Refusal::Operand(parts.iter().flat_map(|p| &p.operands).find_map(inlined)?)
        }
        _ => return None,
    };
    Some(Lesson::Refuse(refuse))
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
    let mut taken = Vec::new();
    for ((step, compiled), after) in steps.into_iter().zip(kernels).zip(after) {
        for out in &step.outputs {
            if let Some(emit::Value::Leaf(l)) = out.takes {
                taken.push(l);
            }
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
            in_place: step.outputs.first().is_some_and(|out| out.takes.is_some()),
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
    Ok(Plan { program, prepared, steps: plan_steps, places, commits, fused, taken })
}
