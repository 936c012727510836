//! Bind groups by the buffers in them. The pool hands out the same buffers again and again, so a warm program finds all
//! of its bind groups here, or already at its own steps ([`super::submit`]).

use super::{
    pipelines::{Compiled, Layout},
    pool::{Gpu, WgpuBuffer},
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use tallow_graph::{Error, Result};

/// Bind groups kept at least, before the oldest are forgotten.
const MOST: usize = 16_384;

/// Layout and block size, arena chunk and number of windows, the buffers' ids in binding order, then the windows.
type Key = SmallVec<[u64; 10]>;

struct Entry {
    group: wgpu::BindGroup,
    used: u64,
}

/// The cache.
#[derive(Default)]
pub(super) struct Binds {
    groups: FxHashMap<Key, Entry>,
    clock: u64,
    /// The bound on entries, where a program is so long that [`MOST`] would make it evict its own.
    most: usize,
}

/// The buffers of a bind group that are not the step's own.
pub(super) struct Fixed<'a> {
    pub(super) fault: &'a wgpu::Buffer,
    pub(super) arena: &'a wgpu::Buffer,
    /// Number of the arena chunk.
    pub(super) chunk: u32,
}

impl Binds {
    /// Lets programs of `steps` steps keep all their bind groups, for a few sets of buffers.
    pub(super) fn make_room(&mut self, steps: usize) {
        self.most = self.most.max(MOST).max(steps.saturating_mul(4));
    }

    /// The bind group of `compiled` over `buffers` (inputs, outputs, scratch: in binding order). With `windows`, each
    /// binding shows (first byte, bytes) of its buffer, else all of it.
    pub(super) fn get<'a>(
        &mut self,
        gpu: &Gpu,
        compiled: &Compiled,
        buffers: impl Iterator<Item = &'a WgpuBuffer> + Clone,
        windows: Option<&[(u64, u64)]>,
        fixed: &Fixed<'_>,
    ) -> Result<wgpu::BindGroup> {
        let layout = (u64::from(compiled.layout.id) << 32) | u64::from(compiled.block);
        let windowed = windows.unwrap_or_default();
        let head = [layout, (windowed.len() as u64) << 32 | u64::from(fixed.chunk)];
        let key: Key = head
            .into_iter()
            .chain(buffers.clone().map(WgpuBuffer::id))
            .chain(windowed.iter().flat_map(|&(offset, bytes)| [offset, bytes]))
            .collect();
        self.clock += 1;
        if let Some(entry) = self.groups.get_mut(&key) {
            entry.used = self.clock;
            return Ok(entry.group.clone());
        }
        let group = create(gpu, &compiled.layout, compiled, buffers, windows, fixed)?;
        if self.groups.len() >= self.most.max(MOST) {
            self.forget_older_half();
        }
        self.groups.insert(key, Entry { group: group.clone(), used: self.clock });
        Ok(group)
    }

    /// Forgets the bind groups of destroyed buffers.
    pub(super) fn remove(&mut self, dead: &[u64]) {
        if dead.is_empty() {
            return;
        }
        let dead: FxHashSet<u64> = dead.iter().copied().collect();
        self.groups.retain(|key, _| {
            // Windows follow the buffers.
            let windows = key.get(1).map_or(0, |head| 2 * (head >> 32) as usize);
            !key.iter().take(key.len() - windows).skip(2).any(|id| dead.contains(id))
        });
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<u64> = self.groups.values().map(|entry| entry.used).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.groups.retain(|_, entry| entry.used >= median);
    }
}

fn create<'a>(
    gpu: &Gpu,
    layout: &Layout,
    compiled: &Compiled,
    buffers: impl Iterator<Item = &'a WgpuBuffer>,
    windows: Option<&[(u64, u64)]>,
    fixed: &Fixed<'_>,
) -> Result<wgpu::BindGroup> {
    let whole = |buffer| wgpu::BufferBinding { buffer, offset: 0, size: None };
    let block =
        wgpu::BufferBinding { buffer: fixed.arena, offset: 0, size: wgpu::BufferSize::new(u64::from(compiled.block)) };
    let window = |i: usize| windows.and_then(|windows| windows.get(i)).copied();
    let entries: SmallVec<[wgpu::BindGroupEntry<'_>; 12]> = buffers
        .enumerate()
        .filter_map(|(i, buffer)| {
            let buffer = buffer.wgpu()?;
            Some(window(i).map_or(whole(buffer), |(offset, bytes)| wgpu::BufferBinding {
                buffer,
                offset,
                size: wgpu::BufferSize::new(bytes),
            }))
        })
        .chain(compiled.shape.fault.then(|| whole(fixed.fault)))
        .chain([block])
        .zip(0..)
        .map(|(buffer, binding)| wgpu::BindGroupEntry { binding, resource: wgpu::BindingResource::Buffer(buffer) })
        .collect();
    let name = compiled.kernel.name();
    let descriptor = wgpu::BindGroupDescriptor { label: None, layout: &layout.groups, entries: &entries };
    let group = gpu
        .errors
        .scoped(&gpu.device, wgpu::ErrorFilter::Validation, 0, name, || gpu.device.create_bind_group(&descriptor))
        .map_err(|failure| Error::op(name, format!("its buffers cannot be bound: {}", failure.to_error(&gpu.name))))?;
    gpu.counts.bind_groups.fetch_add(1, Ordering::Relaxed);
    Ok(group)
}
