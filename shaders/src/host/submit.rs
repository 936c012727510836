//! A run of a program: all steps in one compute pass, all parameters in one upload.
//!
//! Every step's parameters are a block in the uniform arena, bound with a dynamic offset; the arena is overwritten by
//! each run, after the runs before (the queue keeps the order). What a warm run costs is the recording itself: pipelines
//! were resolved by `prepare`, and each step remembers its last bind group with the buffers that it was made for.

use super::{
    backend::Inner,
    binds::{Binds, Fixed},
    pipelines::Compiled,
    pool::WgpuBuffer,
    read::{Faults, WaitingRead},
};
use crate::library::{Room, too_large};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::{
    any::Any,
    sync::{Arc, atomic::Ordering},
};
use tallow_graph::{Error, Kernel, Prepared, Program, Result, Run, Scalar, Step};

/// Bytes of one arena chunk: 4096 blocks of the usual 256 bytes.
const CHUNK: u32 = 1 << 20;

/// A program whose pipelines are compiled.
pub(super) struct WgpuPrepared {
    steps: Mutex<Vec<Ready>>,
}

impl Prepared for WgpuPrepared {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Ready {
    compiled: Arc<Compiled>,
    last: Option<Last>,
}

/// The bind group of a step's last run, and what it was made for.
struct Last {
    ids: SmallVec<[u64; 8]>,
    chunk: u32,
    group: wgpu::BindGroup,
}

/// What submits share; locked for the length of one.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) binds: Binds,
    pub(super) faults: Faults,
    /// Reads that go with the next submit.
    pub(super) reads: Vec<WaitingRead>,
    chunks: Vec<wgpu::Buffer>,
    /// The chunk being filled.
    words: Vec<u32>,
    /// The block being made.
    block: Vec<u32>,
}

impl Recorder {
    /// Takes the buffers that are not the pool's: the arena, the fault word and its log, memory of reads that wait.
    pub(super) fn own_buffers(&mut self) -> Vec<wgpu::Buffer> {
        let reads = self.reads.drain(..).flat_map(WaitingRead::into_buffers);
        self.chunks.drain(..).chain(self.faults.take_buffers()).chain(reads).collect()
    }
}

impl Inner {
    pub(super) fn prepare_program(&self, program: &Program) -> Result<WgpuPrepared> {
        self.gpu.check()?;
        let mut pipelines = self.pipelines.lock();
        let mut steps = Vec::with_capacity(program.steps.len());
        for step in &program.steps {
            let compiled = pipelines.get(
                &self.gpu,
                &self.library,
                &self.target,
                self.checks,
                &step.kernel,
                step.implementation,
            )?;
            check_step(step, &compiled, program.buffers)?;
            steps.push(Ready { compiled, last: None });
        }
        drop(pipelines);
        self.recorder.lock().binds.make_room(steps.len());
        Ok(WgpuPrepared { steps: Mutex::new(steps) })
    }

    pub(super) fn run(&self, prepared: &WgpuPrepared, run: Run<'_>) -> Result<()> {
        let gpu = &*self.gpu;
        gpu.check()?;
        let steps = &mut *prepared.steps.lock();
        let program = run.program;
        if steps.len() != program.steps.len() || run.args.len() != steps.len() || run.buffers.len() < program.buffers {
            return Err(Error::msg("submit: the program is not the one that was prepared, or buffers are missing"));
        }
        let buffers = run.buffers.iter().map(|buffer| self.ours(buffer)).collect::<Result<Vec<&WgpuBuffer>>>()?;
        let recorder = &mut *self.recorder.lock();
        recorder.binds.remove(&self.pool.take_dead());
        self.pool.tick();

        recorder.words.clear();
        let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime();
        let mut recording = Recording {
            inner: self,
            recorder,
            pass,
            chunk: 0,
            dispatches: 0,
            pipeline: std::ptr::null(),
            temporaries: Vec::new(),
        };
        for (i, (step, ready)) in program.steps.iter().zip(steps.iter_mut()).enumerate() {
            let (words, scalars) = run.data(i);
            let grids = (self.library.grids)(&step.kernel, step.implementation, words, &self.target);
            if grids.iter().all(|grid| grid.contains(&0)) {
                continue;
            }
            let bound = step.inputs.iter().chain(&step.outputs).chain(&step.scratch);
            let bound = bound.filter_map(|&number| buffers.get(number as usize).copied());
            debug_assert!(
                writes_are_exclusive(step, &buffers),
                "step {i} ({}) writes what it binds twice",
                step.kernel.name()
            );
            if bound.clone().any(|buffer| buffer.capacity() > gpu.limits.max_storage_buffer_binding_size) {
                recording.pieces(step, words, scalars, &bound.collect::<SmallVec<[_; 8]>>())?;
            } else {
                recording.step(step, ready, words, scalars, &grids, bound)?;
            }
        }
        // Temporaries go back to the pool after the submit: until then, a write of another thread would come first.
        let Recording { recorder, pass, chunk, dispatches, temporaries: _temporaries, .. } = recording;
        drop(pass);
        if dispatches == 0 {
            return Ok(());
        }
        self.upload(recorder, chunk)?;
        self.submit(recorder, Some(encoder.finish()));
        gpu.counts.dispatches.fetch_add(dispatches, Ordering::Relaxed);
        gpu.check()
    }

    /// Submits the reads that wait, then these commands.
    pub(super) fn submit(
        &self,
        recorder: &mut Recorder,
        commands: Option<wgpu::CommandBuffer>,
    ) -> wgpu::SubmissionIndex {
        let (reads, ends): (Vec<_>, Vec<_>) = recorder.reads.drain(..).map(WaitingRead::begin).unzip();
        let index = self.gpu.queue.submit(reads.into_iter().chain(commands));
        self.gpu.counts.submits.fetch_add(1, Ordering::Relaxed);
        self.writer.flushed();
        for end in ends {
            end.submitted(&self.gpu, &index);
        }
        index
    }

    fn upload(&self, recorder: &mut Recorder, chunk: usize) -> Result<()> {
        let Recorder { chunks, words, .. } = recorder;
        let arena = arena_chunk(&self.gpu, chunks, chunk)?;
        self.gpu.write(arena, 0, bytes_of(words));
        Ok(())
    }
}

/// A run being recorded.
struct Recording<'a> {
    inner: &'a Inner,
    recorder: &'a mut Recorder,
    pass: wgpu::ComputePass<'static>,
    /// The arena chunk being filled.
    chunk: usize,
    dispatches: u64,
    /// What was set last.
    pipeline: *const Compiled,
    /// What pieces use between them.
    temporaries: Vec<WgpuBuffer>,
}

impl Recording<'_> {
    /// A step whose buffers are bound whole.
    fn step<'b>(
        &mut self,
        step: &Step,
        ready: &mut Ready,
        words: &[i64],
        scalars: &[Scalar],
        grids: &[[u32; 3]],
        bound: impl Iterator<Item = &'b WgpuBuffer> + Clone,
    ) -> Result<()> {
        let compiled = &ready.compiled;
        let at = self.block(&step.kernel, compiled, words, scalars, &[], grids)?;
        let known = ready.last.as_ref().filter(|last| {
            last.chunk as usize == self.chunk && bound.clone().map(WgpuBuffer::id).eq(last.ids.iter().copied())
        });
        let group = match known {
            Some(last) => &last.group,
            None => {
                let group = self.group(compiled, bound.clone(), None)?;
                let ids = bound.map(WgpuBuffer::id).collect();
                &ready.last.insert(Last { ids, chunk: self.chunk as u32, group }).group
            }
        };
        self.dispatch(&ready.compiled, group, at, grids);
        Ok(())
    }

    /// A step with a buffer that is larger than one binding may be: in pieces, each with windows of the buffers. The
    /// pieces are cut anew each time, since sizes are data; what they need is found in the caches.
    fn pieces(&mut self, step: &Step, words: &[i64], scalars: &[Scalar], bound: &[&WgpuBuffer]) -> Result<()> {
        let Inner { gpu, library, target, pipelines, checks, .. } = self.inner;
        let limits = &gpu.limits;
        let room = Room {
            binding: limits.max_storage_buffer_binding_size & !15,
            align: u64::from(limits.min_storage_buffer_offset_alignment),
            buffers: limits.max_storage_buffers_per_shader_stage as usize,
        };
        // Scratch memory is not cut: another way to run it may need none.
        let mut implementation = step.implementation;
        if step.scratch.is_some() {
            let ways = (library.implementations)(&step.kernel, words, target);
            let plain = ways.iter().filter(|way| way.scratch == 0).min_by(|a, b| a.cost.total_cmp(&b.cost));
            let plain = plain.ok_or_else(|| too_large(&step.kernel, "scratch memory and what goes with it", &room))?;
            implementation = plain.id;
        }
        let cut = (library.split)(&step.kernel, words, scalars.len(), &room)?;
        let own = cut.temporaries.iter().map(|&bytes| self.inner.pool.allocate(bytes)).collect::<Result<Vec<_>>>()?;
        let mut all: Vec<Scalar> = Vec::new();
        for piece in cut.pieces {
            let grids = (library.grids)(&piece.kernel, implementation, &piece.words, target);
            if grids.iter().all(|grid| grid.contains(&0)) {
                continue;
            }
            let compiled = pipelines.lock().get(gpu, library, target, *checks, &piece.kernel, implementation)?;
            all.clear();
            all.extend(scalars.iter().chain(&piece.scalars));
            let at = self.block(&piece.kernel, &compiled, &piece.words, &all, &piece.patches, &grids)?;
            let mut buffers: SmallVec<[&WgpuBuffer; 8]> = SmallVec::new();
            let mut windows: SmallVec<[(u64, u64); 8]> = SmallVec::new();
            for window in &piece.windows {
                let known = bound.get(window.buffer).copied();
                let buffer = known.or_else(|| own.get(window.buffer.checked_sub(bound.len())?));
                let buffer = buffer.ok_or_else(|| Error::msg("submit: a piece binds no buffer"))?;
                let end = (window.offset.saturating_add(window.bytes)).min(buffer.capacity());
                let bytes = end.checked_sub(window.offset).filter(|&bytes| bytes > 0).ok_or_else(|| {
                    Error::op(step.kernel.name(), format!("it reaches byte {}, of a buffer of {end}", window.offset))
                })?;
                buffers.push(buffer);
                windows.push((window.offset, bytes));
            }
            let group = self.group(&compiled, buffers.iter().copied(), Some(&windows))?;
            self.dispatch(&compiled, &group, at, &grids);
        }
        self.temporaries.extend(own);
        Ok(())
    }

    /// Puts the uniform block of a step (or a piece) into the arena; its place, in words.
    fn block(
        &mut self,
        kernel: &Kernel,
        compiled: &Compiled,
        words: &[i64],
        scalars: &[Scalar],
        patches: &[(usize, u32)],
        grids: &[[u32; 3]],
    ) -> Result<usize> {
        check_grids(compiled, grids, self.inner.target.max_dispatch)?;
        let Recorder { block, words: arena, .. } = &mut *self.recorder;
        block.clear();
        (self.inner.library.params)(kernel, words, scalars, block)?;
        if block.len() * 4 > compiled.block as usize {
            let room = compiled.block / 4;
            return Err(Error::op(
                kernel.name(),
                format!("{} parameter words, but its shader has room for {room}", block.len()),
            ));
        }
        for &(at, value) in patches {
            *block
                .get_mut(at)
                .ok_or_else(|| Error::op(kernel.name(), "a piece sets a parameter that is not there"))? = value;
        }
        if let (Some(number), Some(word)) = (compiled.number, block.last_mut()) {
            *word = number;
        }
        let align = self.inner.gpu.limits.min_uniform_buffer_offset_alignment.max(16) as usize / 4;
        let mut at = arena.len().next_multiple_of(align);
        if at * 4 + compiled.block as usize > CHUNK as usize {
            self.inner.upload(self.recorder, self.chunk)?;
            self.recorder.words.clear();
            self.chunk += 1;
            at = 0;
        }
        let Recorder { block, words: arena, .. } = &mut *self.recorder;
        arena.resize(at, 0);
        arena.extend_from_slice(block);
        Ok(at)
    }

    fn group<'b>(
        &mut self,
        compiled: &Compiled,
        buffers: impl Iterator<Item = &'b WgpuBuffer> + Clone,
        windows: Option<&[(u64, u64)]>,
    ) -> Result<wgpu::BindGroup> {
        let gpu = &*self.inner.gpu;
        let Recorder { binds, faults, chunks, .. } = &mut *self.recorder;
        let arena = arena_chunk(gpu, chunks, self.chunk)?;
        let fixed = Fixed { fault: faults.word(gpu)?, arena, chunk: self.chunk as u32 };
        binds.get(gpu, compiled, buffers, windows, &fixed)
    }

    fn dispatch(&mut self, compiled: &Compiled, group: &wgpu::BindGroup, at: usize, grids: &[[u32; 3]]) {
        self.pass.set_bind_group(0, group, &[(at * 4) as u32]);
        for (entry, &[x, y, z]) in compiled.entries.iter().zip(grids) {
            if x == 0 || y == 0 || z == 0 {
                continue;
            }
            if compiled.entries.len() > 1 || !std::ptr::eq(self.pipeline, compiled) {
                self.pass.set_pipeline(entry);
                self.pipeline = if compiled.entries.len() > 1 { std::ptr::null() } else { compiled };
            }
            self.pass.dispatch_workgroups(x, y, z);
            self.dispatches += 1;
        }
    }
}

/// Words as bytes, in the device's order (little-endian, as every host that wgpu runs on).
fn bytes_of(words: &[u32]) -> &[u8] {
    const { assert!(cfg!(target_endian = "little")) };
    // SAFETY: u32 has no padding and any byte is a valid u8; the length is that of the same memory.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) }
}

/// The arena's chunk of that number; they are made one after the other and never freed.
fn arena_chunk<'a>(
    gpu: &super::pool::Gpu,
    chunks: &'a mut Vec<wgpu::Buffer>,
    number: usize,
) -> Result<&'a wgpu::Buffer> {
    while chunks.len() <= number {
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        chunks.push(gpu.create_buffer("tallow parameters", u64::from(CHUNK), usage)?);
    }
    chunks.get(number).ok_or_else(|| Error::msg("submit: the parameter arena is missing a chunk"))
}

/// That the step's bindings are those of its shader, and its buffers exist.
fn check_step(step: &Step, compiled: &Compiled, buffers: usize) -> Result<()> {
    let shape = compiled.shape;
    let fits = step.inputs.len() == usize::from(shape.inputs)
        && step.outputs.len() == usize::from(shape.outputs)
        && step.scratch.is_some() == shape.scratch;
    if !fits {
        return Err(Error::op(
            step.kernel.name(),
            format!(
                "the step has {} inputs, {} outputs and scratch: {}; its shader has {}, {} and {}",
                step.inputs.len(),
                step.outputs.len(),
                step.scratch.is_some(),
                shape.inputs,
                shape.outputs,
                shape.scratch
            ),
        ));
    }
    match step.inputs.iter().chain(&step.outputs).chain(&step.scratch).find(|&&number| number as usize >= buffers) {
        Some(number) => Err(Error::op(step.kernel.name(), format!("buffer {number} of a program with {buffers}"))),
        None => Ok(()),
    }
}

fn check_grids(compiled: &Compiled, grids: &[[u32; 3]], most: u32) -> Result<()> {
    let name = compiled.kernel.name();
    if grids.len() != compiled.entries.len() {
        return Err(Error::op(name, format!("{} grids for {} entry points", grids.len(), compiled.entries.len())));
    }
    match grids.iter().find(|grid| grid.iter().any(|&count| count > most)) {
        Some(grid) => Err(Error::op(
            name,
            format!(
                "a grid of {grid:?} workgroups (implementation {}): the device allows {most}",
                compiled.implementation
            ),
        )),
        None => Ok(()),
    }
}

/// WebGPU forbids a buffer to be written in a dispatch that binds it a second time.
fn writes_are_exclusive(step: &Step, buffers: &[&WgpuBuffer]) -> bool {
    let id = |&number: &u32| buffers.get(number as usize).map(|buffer| buffer.id());
    let reads: SmallVec<[_; 8]> = step.inputs.iter().map(id).collect();
    let writes: SmallVec<[_; 4]> = step.outputs.iter().chain(&step.scratch).map(id).collect();
    writes.iter().enumerate().all(|(i, written)| !reads.contains(written) && !writes[..i].contains(written))
}
