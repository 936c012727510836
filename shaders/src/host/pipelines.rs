//! Compiled kernels, shared by all programs. A hit compares the whole kernel, never only its hash.

use super::{open::Library, pool::Gpu};
use crate::library::{Shader, Target};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tallow_graph::{Error, Kernel, Result};

/// Kernels kept beyond those that prepared programs hold.
const MOST: usize = 4096;

/// How many bindings of each kind a pipeline has; pipelines of one shape share their layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) inputs: u16,
    pub(super) outputs: u16,
    pub(super) scratch: bool,
    pub(super) fault: bool,
}

/// The layout of one [`Shape`].
pub(super) struct Layout {
    pub(super) id: u32,
    pub(super) groups: wgpu::BindGroupLayout,
    pipelines: wgpu::PipelineLayout,
}

/// One kernel, ready to run.
pub(super) struct Compiled {
    pub(super) kernel: Arc<Kernel>,
    pub(super) implementation: u32,
    pub(super) shape: Shape,
    pub(super) layout: Arc<Layout>,
    /// One for each entry point, to be run in order.
    pub(super) entries: SmallVec<[wgpu::ComputePipeline; 2]>,
    /// Bytes of the uniform block as bound: a multiple of 16.
    pub(super) block: u32,
    /// The number by which a fault names this kernel, if it can fault.
    pub(super) number: Option<u32>,
}

struct Entry {
    compiled: Arc<Compiled>,
    used: AtomicU64,
}

/// The cache.
#[derive(Default)]
pub(super) struct Pipelines {
    layouts: FxHashMap<Shape, Arc<Layout>>,
    compiled: FxHashMap<(Arc<Kernel>, u32), Entry>,
    clock: AtomicU64,
    /// Names of kernels that can fault, by number - 1.
    names: Vec<&'static str>,
}

impl Pipelines {
    /// The kernel's pipelines, compiled if they are not yet.
    pub(super) fn get(
        &mut self,
        gpu: &Gpu,
        library: &Library,
        target: &Target,
        checks: bool,
        kernel: &Arc<Kernel>,
        implementation: u32,
    ) -> Result<Arc<Compiled>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let key = (Arc::clone(kernel), implementation);
        if let Some(entry) = self.compiled.get(&key) {
            entry.used.store(now, Ordering::Relaxed);
            return Ok(Arc::clone(&entry.compiled));
        }
        let shader = (library.shader)(kernel, implementation, target)?;
        let compiled = Arc::new(self.compile(gpu, checks, kernel, implementation, &shader)?);
        if self.compiled.len() >= MOST {
            self.forget_older_half();
        }
        self.compiled.insert(key, Entry { compiled: Arc::clone(&compiled), used: AtomicU64::new(now) });
        Ok(compiled)
    }

    /// The kernel that a fault's step word names.
    pub(super) fn name(&self, number: u32) -> Option<&'static str> {
        self.names.get((number as usize).checked_sub(1)?).copied()
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<u64> = self.compiled.values().map(|entry| entry.used.load(Ordering::Relaxed)).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        self.compiled.retain(|_, entry| entry.used.load(Ordering::Relaxed) >= median);
    }

    fn layout(&mut self, gpu: &Gpu, shape: Shape) -> Arc<Layout> {
        if let Some(layout) = self.layouts.get(&shape) {
            return Arc::clone(layout);
        }
        let storage = |read_only| wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        };
        let written = usize::from(shape.outputs) + usize::from(shape.scratch) + usize::from(shape.fault);
        let params = wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Uniform,
            has_dynamic_offset: true,
            min_binding_size: None,
        };
        let entries: Vec<_> = std::iter::repeat_n(storage(true), usize::from(shape.inputs))
            .chain(std::iter::repeat_n(storage(false), written))
            .chain([params])
            .zip(0..)
            .map(|(ty, binding)| wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty,
                count: None,
            })
            .collect();
        let groups =
            gpu.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipelines = gpu.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&groups)],
            immediate_size: 0,
        });
        let layout = Arc::new(Layout { id: self.layouts.len() as u32, groups, pipelines });
        self.layouts.insert(shape, Arc::clone(&layout));
        layout
    }

    fn compile(
        &mut self,
        gpu: &Gpu,
        checks: bool,
        kernel: &Arc<Kernel>,
        implementation: u32,
        shader: &Shader,
    ) -> Result<Compiled> {
        let refuse = |message: String| Error::op(kernel.name(), format!("shader {}: {message}", shader.label));
        let storage = shader.inputs + shader.outputs + usize::from(shader.scratch) + usize::from(shader.fault);
        let most = gpu.limits.max_storage_buffers_per_shader_stage as usize;
        if storage > most {
            return Err(refuse(format!(
                "it binds {storage} buffers, {} allows {most} (max_storage_buffers_per_shader_stage)",
                gpu.name
            )));
        }
        let block = (shader.param_words.max(1) * 4).next_multiple_of(16);
        if block as u64 > gpu.limits.max_uniform_buffer_binding_size {
            return Err(refuse(format!(
                "its parameters take {block} bytes, more than max_uniform_buffer_binding_size"
            )));
        }
        let shape = Shape {
            inputs: shader.inputs as u16,
            outputs: shader.outputs as u16,
            scratch: shader.scratch,
            fault: shader.fault,
        };
        let layout = self.layout(gpu, shape);
        // Nobody vouches for what users write.
        let checks = checks || matches!(**kernel, Kernel::Custom(_));
        // An entry point may run several times: one pipeline serves all.
        let mut by_name: FxHashMap<&'static str, wgpu::ComputePipeline> = FxHashMap::default();
        // Two scopes: shaders that are wrong, and drivers that fail on right ones.
        let made = gpu.errors.scoped(&gpu.device, wgpu::ErrorFilter::Internal, 0, &shader.label, || {
            gpu.errors.scoped(&gpu.device, wgpu::ErrorFilter::Validation, 0, &shader.label, || {
                let module = module(gpu, checks, shader);
                let create = |name: &'static str| {
                    gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                        label: Some(&shader.label),
                        layout: Some(&layout.pipelines),
                        module: &module,
                        entry_point: Some(name),
                        compilation_options: wgpu::PipelineCompilationOptions {
                            constants: &[],
                            zero_initialize_workgroup_memory: checks,
                        },
                        cache: None,
                    })
                };
                let entry = |&name: &&'static str| by_name.entry(name).or_insert_with(|| create(name)).clone();
                shader.entries.iter().map(entry).collect::<SmallVec<[_; 2]>>()
            })
        });
        let entries = made.and_then(|inner| inner).map_err(|failure| match failure {
            super::errors::Failure::Other(message) => Error::op(kernel.name(), format!("does not compile: {message}")),
            other => other.to_error(&gpu.name),
        })?;
        gpu.counts.pipelines.fetch_add(by_name.len() as u64, Ordering::Relaxed);
        let number = shader.fault.then(|| {
            self.names.push(kernel.name());
            self.names.len() as u32
        });
        Ok(Compiled { kernel: Arc::clone(kernel), implementation, shape, layout, entries, block: block as u32, number })
    }
}

fn module(gpu: &Gpu, checks: bool, shader: &Shader) -> wgpu::ShaderModule {
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(&shader.label),
        source: wgpu::ShaderSource::Wgsl(std::borrow::Cow::Borrowed(&shader.source)),
    };
    if checks {
        return gpu.device.create_shader_module(descriptor);
    }
    // Divisions keep their checks: kernels rely on x / 0 being defined.
    let runtime = wgpu::ShaderRuntimeChecks {
        bounds_checks: false,
        force_loop_bounding: false,
        ..wgpu::ShaderRuntimeChecks::checked()
    };
    // SAFETY: whoever opened the device with `checks: false` vouches for the library's shaders: every index is in
    // bounds, and every loop ends. Tests run the same shaders with checks.
    unsafe { gpu.device.create_shader_module_trusted(descriptor, runtime) }
}
