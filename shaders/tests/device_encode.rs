//! What a step costs the host, beside the same commands given to wgpu by hand. A measurement, so it is ignored unless
//! asked for: `cargo test -p tallow-wgpu --test device_encode -- --ignored --nocapture`.
#![cfg(not(target_arch = "wasm32"))]

mod device_support;

use device_support::*;
use std::time::{Duration, Instant};
use tallow_graph::Backend;
use tallow_wgpu::{host::WgpuBackend, library::Target};

const STEPS: usize = 200;
const RUNS: usize = 60;

fn least_and_median(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / STEPS as f64;
    (micros(times[0]), micros(times[times.len() / 2]))
}

fn ours(backend: &WgpuBackend) -> (f64, f64) {
    let n = 64usize;
    let buffers: Vec<_> = (0..4).map(|_| backend.allocate(4 * n as u64).unwrap()).collect();
    let mut builder = Builder::default();
    let kernels = [add(), add_variant(2), add_variant(3), add_variant(4)];
    for i in 0..STEPS {
        let (from, to) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
        builder.step(&kernels[i % 4], &[0, from], to, None, &[n as i64], &[1.0]);
    }
    let program = builder.program(4);
    let prepared = backend.prepare(&program).unwrap();
    let time = || {
        let start = Instant::now();
        builder.submit(backend, &program, &*prepared, &buffers).unwrap();
        let time = start.elapsed();
        pollster::block_on(backend.ready()).unwrap();
        time
    };
    time();
    let before = backend.counters();
    let times = (0..RUNS).map(|_| time()).collect();
    let after = backend.counters();
    assert_eq!(
        (after.bind_groups, after.pipelines, after.buffers),
        (before.bind_groups, before.pipelines, before.buffers)
    );
    least_and_median(times)
}

fn by_hand(backend: &WgpuBackend, target: &Target) -> (f64, f64) {
    let (device, queue) = backend.wgpu();
    let shader = (options().library.shader)(&add(), 0, target).unwrap();
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(shader.source.into()),
    });
    let storage = |binding, read_only| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    };
    let params = wgpu::BindGroupLayoutEntry {
        binding: 3,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Uniform,
            has_dynamic_offset: true,
            min_binding_size: None,
        },
        count: None,
    };
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &[storage(0, true), storage(1, true), storage(2, false), params],
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: None,
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let pipelines: Vec<_> = (0..4)
        .map(|_| {
            device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            })
        })
        .collect();
    let buffer = |size, usage| {
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    };
    let buffers: Vec<_> =
        (0..3).map(|_| buffer(256, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST)).collect();
    let arena = buffer(1 << 20, wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST);
    let groups: Vec<_> = [(1, 2), (2, 1)]
        .into_iter()
        .map(|(from, to): (usize, usize)| {
            let block = wgpu::BufferBinding { buffer: &arena, offset: 0, size: wgpu::BufferSize::new(16) };
            let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[
                    entry(0, buffers[0].as_entire_binding()),
                    entry(1, buffers[from].as_entire_binding()),
                    entry(2, buffers[to].as_entire_binding()),
                    entry(3, wgpu::BindingResource::Buffer(block)),
                ],
            })
        })
        .collect();
    let words = vec![0u8; STEPS * 256];
    let time = || {
        let start = Instant::now();
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for i in 0..STEPS {
            pass.set_pipeline(&pipelines[i % 4]);
            pass.set_bind_group(0, &groups[i % 2], &[i as u32 * 256]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        drop(pass);
        queue.write_buffer(&arena, 0, &words);
        queue.submit([encoder.finish()]);
        let time = start.elapsed();
        pollster::block_on(backend.ready()).unwrap();
        time
    };
    time();
    least_and_median((0..RUNS).map(|_| time()).collect())
}

#[test]
#[ignore = "a measurement"]
fn encode_cost_of_a_step() {
    let Some(backend) = open(options()) else { return };
    let target = backend.target().clone();
    for _ in 0..2 {
        let (least, median) = ours(&backend);
        let (hand_least, hand_median) = by_hand(&backend, &target);
        println!(
            "{STEPS} steps on {}: {least:.2} us a step at best, {median:.2} in the median; by hand {hand_least:.2}, \
             {hand_median:.2}",
            backend.info().name
        );
    }
}
